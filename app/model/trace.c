#include "model/trace.h"

#include <string.h>

#include "base/js.h"
#include "sql/span.h"

static const char *or_null(const struct pg_res *r, int row, int col)
{
	return pg_null(r, row, col) ? NULL : pg_str(r, row, col);
}

json_t *trace_list(
    struct pg *db, const char *org, const char *before, int limit, const char *session, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_span_traces, e, org, before, pg_num(m, limit), session);
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows,
		    js_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:s?,s:s,s:s}", "id", pg_str(r, i, 0), "name",
			pg_str(r, i, 1), "startedAt", pg_str(r, i, 2), "durationMs",
			(json_int_t)pg_int(r, i, 3), "spans", (json_int_t)pg_int(r, i, 4), "errors",
			(json_int_t)pg_int(r, i, 5), "inputTokens", (json_int_t)pg_int(r, i, 6),
			"outputTokens", (json_int_t)pg_int(r, i, 7), "session", or_null(r, i, 8), "user",
			pg_str(r, i, 9), "_key", pg_str(r, i, 10)));
	return rows;
}

static json_t *parsed(const struct pg_res *r, int row, int col)
{
	struct err e = { 0 };
	const char *s = pg_str(r, row, col);
	json_t *v = js_parse(s, strlen(s), &e);
	return v == NULL ? json_null() : v;
}

static json_t *span_row(const struct pg_res *r, int i)
{
	return js_pack("{s:s,s:s?,s:s,s:s,s:I,s:I,s:s?,s:s?,s:s,s:o,s:o}", "id", pg_str(r, i, 0), "parent",
	    or_null(r, i, 1), "name", pg_str(r, i, 2), "startedAt", pg_str(r, i, 3), "offsetUs",
	    (json_int_t)pg_int(r, i, 10), "durationUs", (json_int_t)pg_int(r, i, 4), "error",
	    or_null(r, i, 5), "session", or_null(r, i, 6), "user", pg_str(r, i, 7), "attributes",
	    parsed(r, i, 8), "events", parsed(r, i, 9));
}

json_t *trace_get(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_span_of, e, org, id, pg_num(m, TRACE_SPANS_MAX + 1));
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 0) {
		(void)err_set(e, ERR_NOT_FOUND, "There is no such trace, or it is not kept any more.");
		return NULL;
	}
	int n = pg_rows(r) > TRACE_SPANS_MAX ? TRACE_SPANS_MAX : pg_rows(r);
	json_t *spans = json_array();
	for (int i = 0; i < n; i++)
		js_push(spans, span_row(r, i));
	return js_pack("{s:s,s:b,s:o}", "id", id, "more", pg_rows(r) > n, "spans", spans);
}
