/* messages.c - the messages wire (MOD-1): Anthropic's form, whichever provider answers. */
#include "handlers/models.h"

#include "base/js.h"

static json_t *messages(struct ctx *c, json_t *in, struct err *e)
{
	const struct call_svc svc = models_svc(c);
	return call_run(c, &svc, WIRE_MESSAGES, in, e);
}

static bool messages_refuse(struct ctx *c, const struct err *why)
{
	return call_refuse(c, WIRE_MESSAGES, why);
}

/* Nobody is asked: an estimate, as the tokenizers are the providers' own. It is high rather than low. */
static json_t *count(struct ctx *c, json_t *in, struct err *e)
{
	(void)c;
	struct wire_ask ask;
	if (wire_look(WIRE_MESSAGES, in, &ask, e) != 0)
		return NULL;
	long long n = wire_estimate_request(in);
	return js_pack("{s:I}", "input_tokens", (json_int_t)(n + n / 4));
}

static const struct param messages_in[] = {
	MODEL_NAME,
	MODEL_MESSAGES,
	MODEL_TOOLS,
	IN(T_INT, "max_tokens", "The most it may write.", "1024", .min = 1, .max = 1000000000),
	MODEL_STREAM,
	{ 0 },
};
static const struct param count_in[] = { MODEL_NAME, MODEL_MESSAGES, MODEL_TOOLS, { 0 } };

static const struct param messages_out[] = {
	OUT(T_STR, "id", "The vendor's id of it.", "\"msg_1\""),
	OUT(T_STR, "type", "Always `message`.", "\"message\""),
	OUT(T_STR, "role", "Always `assistant`.", "\"assistant\""),
	OUT(T_STR, "model", "The model that answered.", "\"openai/gpt-5\""),
	OUT(T_ARR, "content", "The answer.", NULL,
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "A block." }),
	OUT_NULL(T_STR, "stop_reason", "Why it ended.", "\"end_turn\""),
	OUT_MAYBE(T_OBJ, "usage", "Tokens.", NULL),
	{ 0 },
};
static const struct param messages_line[] = {
	OUT(T_STR, "type", "The event's name; the last is `message_stop`, or `error`.",
	    "\"content_block_delta\""),
	{ 0 },
};
static const struct param count_out[] = {
	OUT(T_INT, "input_tokens", "An estimate: no provider is asked.", "12"),
	{ 0 },
};

const struct op messages_ops[] = {
	{ .id = "create_message",
	    .routes = { { "POST", "/v1/messages" } },
	    .summary = "Ask a model (messages)",
	    .doc = "Compatible with Anthropic's Messages API: fields that are not named here are passed on "
		   "to the provider. The key may stand in X-Api-Key. Errors are in that API's form.",
	    .scope = "models",
	    .in = messages_in,
	    .out = messages_out,
	    .line = messages_line,
	    .status = 200,
	    .flags = MODEL_FLAGS,
	    .max_body_bytes = MODEL_BODY_BYTES,
	    .run = messages,
	    .again = call_again,
	    .refuse = messages_refuse },
	{ .id = "count_message_tokens",
	    .routes = { { "POST", "/v1/messages/count_tokens" } },
	    .summary = "How many tokens a message would have, about",
	    .doc = "An estimate from the text, high rather than low; no provider is asked, and nothing is "
		   "charged.",
	    .scope = "models",
	    .in = count_in,
	    .out = count_out,
	    .status = 200,
	    .flags = OP_LAX,
	    .max_body_bytes = MODEL_BODY_BYTES,
	    .run = count,
	    .refuse = messages_refuse },
	{ 0 },
};
