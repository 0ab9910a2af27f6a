/* models.c - what models an org may use (MOD-2), in a form that the clients of both vendors read. */
#include "handlers/models.h"

#include "auth/principal.h"
#include "base/clock.h"
#include "base/js.h"
#include "model/route.h"

static const struct param model_out[] = {
	OUT(T_STR, "id", "What a call names: `provider/model`, an alias or a tier.", "\"openai/gpt-5\""),
	OUT(T_STR, "object", "Always `model`.", "\"model\""),
	OUT(T_STR, "type", "Always `model`, for clients of the messages wire.", "\"model\""),
	OUT(T_INT, "created", "Seconds since 1970.", "1767225600"),
	OUT(T_STR, "created_at", "The same moment.", "\"2026-01-01T00:00:00Z\""),
	OUT(T_STR, "owned_by", "The provider, or who made the alias.", "\"openai\""),
	OUT(T_STR, "display_name", "The id.", "\"openai/gpt-5\""),
	OUT_MAYBE(T_INT, "context_window", "Tokens of its context.", "400000"),
	OUT_MAYBE(T_INT, "max_output_tokens", "The most it writes.", "128000"),
	OUT_MAYBE(T_STR, "alias_of", "Of an alias: who is asked first.", "\"openai/gpt-5\""),
	{ 0 },
};
static const struct param models_out[] = {
	OUT(T_STR, "object", "Always `list`.", "\"list\""),
	{ .name = "data",
	    .type = T_ARR,
	    .required = true,
	    .max = 100000,
	    .fields = &(const struct param){ .type = T_OBJ, .fields = model_out },
	    .doc = "By id." },
	OUT(T_BOOL, "has_more", "Never: the list is whole.", "false"),
	OUT_NULL(T_STR, "first_id", "The first row's.", "\"openai/gpt-5\""),
	OUT_NULL(T_STR, "last_id", "The last row's.", "\"openai/gpt-5\""),
	{ 0 },
};

static json_t *models(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	auto_json json_t *rows = route_models(((struct api *)c->app)->catalog, c->who->org, e);
	if (rows == NULL)
		return NULL;
	size_t i, n = json_array_size(rows);
	json_t *row;
	json_array_foreach(rows, i, row) {
		char at[CLOCK_TEXT];
		clock_rfc3339(js_int(row, "created", 0) * 1000, at);
		js_set_str(row, "type", "model");
		js_set_str(row, "display_name", js_str_or(row, "id", ""));
		js_set_str(row, "created_at", at);
	}
	return js_pack("{s:s, s:O, s:b, s:s?, s:s?}", "object", "list", "data", rows, "has_more", 0,
	    "first_id", js_str(json_array_get(rows, 0), "id"), "last_id",
	    n == 0 ? NULL : js_str(json_array_get(rows, n - 1), "id"));
}

const struct op models_ops[] = {
	{ .id = "list_models",
	    .routes = { { "GET", "/v1/models" } },
	    .summary = "The models that the organisation may use",
	    .doc = "Every name that a call may have as its `model`, in a form that the clients of both "
		   "vendors read.",
	    .scope = "models",
	    .out = models_out,
	    .status = 200,
	    .flags = OP_LAX,
	    .run = models },
	{ 0 },
};
