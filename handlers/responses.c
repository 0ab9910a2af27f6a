/* responses.c - the responses wire (MOD-1): OpenAI's newer form, whichever provider answers. Nothing is stored: each request holds
 * its whole conversation. */
#include "handlers/models.h"

static json_t *responses(struct ctx *c, json_t *in, struct err *e)
{
	const struct call_svc svc = models_svc(c);
	return call_run(c, &svc, WIRE_RESPONSES, in, e);
}

static bool responses_refuse(struct ctx *c, const struct err *why)
{
	return call_refuse(c, WIRE_RESPONSES, why);
}

static const struct param responses_in[] = {
	MODEL_NAME,
	IN_REQUIRED(T_ANY, "input",
	    "A text, or the conversation as a list of items, as the vendor documents them.",
	    "\"Say hello.\""),
	MODEL_STREAM,
	MODEL_TOOLS,
	{ 0 },
};
static const struct param responses_out[] = {
	OUT(T_STR, "id", "The vendor's id of it.", "\"resp_1\""),
	OUT(T_STR, "object", "Always `response`.", "\"response\""),
	OUT(T_STR, "status", "completed or incomplete.", "\"completed\""),
	OUT(T_STR, "model", "The model that answered.", "\"openai/gpt-5\""),
	OUT(T_ARR, "output", "The answer.", NULL,
	    .fields = &(const struct param){ .type = T_OBJ, .doc = "An item." }),
	OUT_MAYBE(T_OBJ, "usage", "Tokens.", NULL),
	{ 0 },
};
static const struct param responses_line[] = {
	OUT(T_STR, "type",
	    "The event's name; the last is `response.completed`, `response.incomplete`, `response.failed` or "
	    "`error`.",
	    "\"response.output_text.delta\""),
	{ 0 },
};

const struct op responses_ops[] = {
	{ .id = "create_response",
	    .routes = { { "POST", "/v1/responses" } },
	    .summary = "Ask a model (responses)",
	    .doc =
		"Compatible with OpenAI's Responses API as coding agents use it: fields that are not named "
		"here are passed on to the provider. Nothing is stored. Errors are in that API's form.",
	    .scope = "models",
	    .in = responses_in,
	    .out = responses_out,
	    .line = responses_line,
	    .status = 200,
	    .flags = MODEL_FLAGS,
	    .max_body_bytes = MODEL_BODY_BYTES,
	    .run = responses,
	    .again = call_again,
	    .refuse = responses_refuse },
	{ 0 },
};
