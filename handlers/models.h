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
	{                                                                                                    \
		.name = "model", .type = T_STR, .max = 256,                                                  \
		.doc = "`provider/model`, an alias or a tier; the organisation's own tier when not given.",  \
		.example = "\"openai/gpt-5\""                                                                \
	}
#define MODEL_MESSAGES                                                                                       \
	{                                                                                                    \
		.name = "messages", .type = T_ARR, .required = true, .min = 1, .max = 100000,                \
		.fields = &(const struct param){ .type = T_OBJ, .doc = "A message." },                       \
		.doc = "The conversation, as the vendor documents it.",                                      \
		.example = "[{\"role\":\"user\",\"content\":\"Say hello.\"}]"                                \
	}
#define MODEL_TOOLS                                                                                          \
	{                                                                                                    \
		.name = "tools", .type = T_ARR, .max = 10000,                                                \
		.fields = &(const struct param){ .type = T_OBJ, .doc = "A tool." },                          \
		.doc = "What the model may call."                                                            \
	}
#define MODEL_STREAM                                                                                         \
	{                                                                                                    \
		.name = "stream", .type = T_BOOL, .doc = "Answer with events (SSE) as they come."            \
	}
