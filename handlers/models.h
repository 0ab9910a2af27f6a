/* models.h - what the handlers of the model gateway share. */
#pragma once

#include "handlers/handlers.h"
#include "model/call.h"
#include "model/observe.h"

enum {
	MODEL_BODY_BYTES = 32 << 20,
	MODEL_FLAGS = OP_LAX | OP_STREAM | OP_ONCE | OP_KEEPS,
};

static inline struct call_svc models_svc(const struct ctx *c)
{
	const struct api *api = c->app;
	return (struct call_svc){
		.catalog = api->catalog, .gate = api->gate, .on_call = observe_call, .arg = api->observe
	};
}

/* Rows of an input that the doors share; the vendors' own fields pass as they are. */
#define MODEL_NAME                                                                                           \
	IN(T_STR, "model",                                                                                   \
	    "`provider/model`, an alias or a tier; the organisation's own tier when not given.",             \
	    "\"openai/gpt-5\"", .max = 256)
#define MODEL_MESSAGES                                                                                       \
	IN_REQUIRED(T_ARR, "messages", "The conversation, as the vendor documents it.",                      \
	    "[{\"role\":\"user\",\"content\":\"Say hello.\"}]", .min = 1, .max = 100000,                     \
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "A message." })
#define MODEL_TOOLS                                                                                          \
	IN(T_ARR, "tools", "What the model may call.", NULL, .max = 10000,                                   \
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "A tool." })
#define MODEL_STREAM IN(T_BOOL, "stream", "Answer with events (SSE) as they come.", NULL)
