/* chat.c - chat.completions (MOD-1): the vendor's form, whichever provider answers. */
#include "handlers/models.h"

static json_t *chat(struct ctx *c, json_t *in, struct err *e)
{
	const struct call_svc svc = models_svc(c);
	return call_run(c, &svc, WIRE_CHAT, in, e);
}

static bool chat_refuse(struct ctx *c, const struct err *why)
{
	return call_refuse(c, WIRE_CHAT, why);
}

static const struct param chat_in[] = { MODEL_NAME, MODEL_MESSAGES, MODEL_STREAM, MODEL_TOOLS, { 0 } };
static const struct param chat_out[] = {
	OUT(T_STR, "id", "The vendor's id of it.", "\"chatcmpl-1\""),
	OUT(T_STR, "object", "Always `chat.completion`.", "\"chat.completion\""),
	OUT(T_INT, "created", "Seconds since 1970.", "1767225600"),
	OUT(T_STR, "model", "The model that answered, as its provider calls it.", "\"gpt-5\""),
	OUT(T_ARR, "choices", "The answers.", NULL,
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "A completion." }),
	OUT_MAYBE(T_OBJ, "usage", "Tokens.", NULL),
	{ 0 },
};
static const struct param chat_line[] = {
	OUT(T_STR, "object", "Always `chat.completion.chunk`.", "\"chat.completion.chunk\""),
	OUT(T_ARR, "choices", "What is new; the last event is `[DONE]`.", NULL,
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "A piece of a completion." }),
	{ 0 },
};

const struct op chat_ops[] = {
	{ .id = "create_chat_completion",
	    .routes = { { "POST", "/v1/chat/completions" } },
	    .summary = "Ask a model (chat.completions)",
	    .doc = "Compatible with OpenAI's chat.completions: fields that are not named here are passed on "
		   "to the provider. Errors are in that API's form. Headers of the answer: "
		   "x-gatehouse-call-id, -attempts, -model (who answered) and -overhead-us.",
	    .scope = "models",
	    .in = chat_in,
	    .out = chat_out,
	    .line = chat_line,
	    .status = 200,
	    .flags = MODEL_FLAGS,
	    .max_body_bytes = MODEL_BODY_BYTES,
	    .run = chat,
	    .again = call_again,
	    .refuse = chat_refuse },
	{ 0 },
};
