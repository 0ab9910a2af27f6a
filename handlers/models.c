/* models.c - what models an org may use (MOD-2), in a form that the clients of both vendors read. */
#include "handlers/models.h"

#include <string.h>

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
	OUT(T_STR, "display_name", "The same as its id.", "\"openai/gpt-5\""),
	OUT_MAYBE(T_INT, "context_window", "Tokens of its context.", "400000"),
	OUT_MAYBE(T_INT, "max_output_tokens", "The most it writes.", "128000"),
	OUT_MAYBE(T_STR, "alias_of", "Of an alias: who is asked first.", "\"openai/gpt-5\""),
	{ 0 },
};
static const struct param model_in[] = {
	IN_REQUIRED(T_STR, "model", "`provider/model`, an alias or a tier.", "\"openai/gpt-5\"", .min = 1,
	    .max = 256),
	{ 0 },
};
/* As the lists of both vendors take them: chat's name a row `after`, messages' `after_id` or `before_id`. */
static const struct param models_in[] = {
	IN(T_INT, "limit", "How many at most; all when not given.", NULL, .min = 1, .max = 1000),
	IN(T_STR, "after", "Only those behind this id.", NULL, .min = 1, .max = 256),
	IN(T_STR, "after_id", "The same.", NULL, .min = 1, .max = 256),
	IN(T_STR, "before_id", "Only those before this id, the last of them.", NULL, .min = 1, .max = 256),
	{ 0 },
};
static const struct param models_out[] = {
	OUT(T_STR, "object", "Always `list`.", "\"list\""),
	OUT(T_ARR, "data", "Models by id.", NULL, .max = 100000,
	    .fields = &(const struct param){ .type = T_OBJ, .fields = model_out }),
	OUT(T_BOOL, "has_more", "Are there more in that direction.", "false"),
	OUT_NULL(T_STR, "first_id", "The first row's.", "\"openai/gpt-5\""),
	OUT_NULL(T_STR, "last_id", "The last row's.", "\"openai/gpt-5\""),
	{ 0 },
};

/* A client of the messages wire says so, and reads errors in that form only; all others read ours. */
static bool models_refuse(struct ctx *c, const struct err *why)
{
	return reply_param(c, "HTTP_ANTHROPIC_VERSION") != NULL && call_refuse(c, WIRE_MESSAGES, why);
}

static json_t *rows_of(struct ctx *c, struct err *e)
{
	json_t *row, *rows = route_models(((struct api *)c->app)->catalog, c->who->org, e);
	size_t i;
	json_array_foreach(rows, i, row) {
		char at[CLOCK_TEXT];
		clock_rfc3339(js_int(row, "created", 0) * 1000, at);
		js_set_str(row, "type", "model");
		js_set_str(row, "display_name", js_str_or(row, "id", ""));
		js_set_str(row, "created_at", at);
	}
	return rows;
}

static json_t *row_of(const json_t *rows, const char *id)
{
	size_t i;
	json_t *row;
	json_array_foreach(rows, i, row)
		if (strcmp(js_str_or(row, "id", ""), id) == 0)
			return json_incref(row);
	return NULL;
}

/* Any name that a call may have; what is no row of the list stands for the first who would be asked. */
static json_t *model(struct ctx *c, json_t *in, struct err *e)
{
	struct model_route r;
	const char *name = js_str_or(in, "model", "");
	auto_json json_t *rows = rows_of(c, e);
	if (rows == NULL)
		return NULL;
	json_t *row = row_of(rows, name);
	if (row != NULL ||
	    route_resolve(((struct api *)c->app)->catalog, c->mem, c->who->org, name, &r, e) != 0)
		return row;
	row = row_of(rows, r.targets[0].address);
	if (row == NULL)
		(void)err_set(e, ERR_NOT_FOUND, "There is no such model any more.");
	return row;
}

/* Of rows in the order of their ids; an id that is no row's has its place among them. */
static json_t *page_of(const json_t *rows, const json_t *in, bool *more)
{
	const char *after = js_str_or(in, "after", js_str_or(in, "after_id", "")),
		   *before = js_str(in, "before_id");
	size_t limit = (size_t)js_int(in, "limit", INT32_MAX), i;
	json_t *row, *page = json_array();
	*more = false;
	json_array_foreach(rows, i, row) {
		const char *id = js_str_or(row, "id", "");
		if (strcmp(id, after) <= 0 || (before != NULL && strcmp(id, before) >= 0))
			continue;
		if (json_array_size(page) == limit) {
			*more = true;
			if (before == NULL)
				break;
			(void)json_array_remove(page, 0);
		}
		js_push(page, json_incref(row));
	}
	return page;
}

static json_t *models(struct ctx *c, json_t *in, struct err *e)
{
	bool more;
	auto_json json_t *all = rows_of(c, e);
	if (all == NULL)
		return NULL;
	auto_json json_t *rows = page_of(all, in, &more);
	size_t n = json_array_size(rows);
	return js_pack("{s:s, s:O, s:b, s:s?, s:s?}", "object", "list", "data", rows, "has_more", more,
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
	    .in = models_in,
	    .out = models_out,
	    .status = 200,
	    .flags = OP_LAX,
	    .run = models,
	    .refuse = models_refuse },
	{ .id = "get_model",
	    .routes = { { "GET", "/v1/models/{model...}" } },
	    .summary = "One of them",
	    .doc = "By any name that a call may have, as a row of the list; the slash in it may be encoded.",
	    .scope = "models",
	    .in = model_in,
	    .out = model_out,
	    .status = 200,
	    .flags = OP_LAX,
	    .run = model,
	    .refuse = models_refuse },
	{ 0 },
};
