/*
 * traces.c - what model calls did, as spans (RUN-7), for the org that they are filed under.
 * Invariant: nothing that was said in a call is in here.
 */
#include "auth/principal.h"
#include "base/js.h"
#include "handlers/handlers.h"
#include "io/pg.h"
#include "model/trace.h"

#define TRACE "\"4bf92f3577b34da6a3ce929d0e0e4736\""

static const struct param list_in[] = {
	LIST_PARAMS,
	IN(T_STR, "session", "Only those of this run's session.", NULL, .min = 1, .max = 64),
	{ 0 },
};
static const struct param list_row[] = {
	OUT(T_STR, "id", "The trace's id, as in a traceparent.", TRACE),
	OUT(T_STR, "name", "Of its first span.", "\"chat openai/gpt-5\""),
	OUT(T_TIME, "startedAt", "When its first span began.", "\"2026-01-31T12:00:00.000Z\""),
	OUT(T_INT, "durationMs", "From the first begin to the last end.", "420"),
	OUT(T_INT, "spans", "How many spans it has.", "1"),
	OUT(T_INT, "errors", "How many of them failed.", "0"),
	OUT(T_INT, "inputTokens", "Of all its model calls.", "21"),
	OUT(T_INT, "outputTokens", "Of all its model calls.", "60"),
	OUT_NULL(T_STR, "session", "The run that it belongs to.", "null"),
	OUT(T_STR, "user", "Whose call it was.", "\"ada\""),
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(list_row, "Newest first."), { 0 } };

static const struct param get_in[] = {
	IN_ID("id", "The trace's id.", TRACE),
	{ 0 },
};
static const struct param event_row[] = {
	OUT(T_STR, "name", "What happened.", "\"gatehouse.attempt\""),
	OUT(T_INT, "atUs", "When, in microseconds since 1970.", "1796040000000000"),
	OUT(T_OBJ, "attributes", "What else is told of it.", "{}"),
	{ 0 },
};
static const struct param event = { .type = T_OBJ, .fields = event_row };
static const struct param span_row[] = {
	OUT(T_STR, "id", "The span's id.", "\"00f067aa0ba902b7\""),
	OUT_NULL(T_STR, "parent", "The span that it is part of, which may be a client's own.", "null"),
	OUT(T_STR, "name", "By the conventions for generative AI.", "\"chat openai/gpt-5\""),
	OUT(T_TIME, "startedAt", "When it began.", "\"2026-01-31T12:00:00.000Z\""),
	OUT(T_INT, "offsetUs", "Microseconds since the first one began.", "0"),
	OUT(T_INT, "durationUs", "How long it took, in microseconds.", "420000"),
	OUT_NULL(T_STR, "error", "Why it failed, in one word.", "null"),
	OUT_NULL(T_STR, "session", "The run that it belongs to.", "null"),
	OUT(T_STR, "user", "Whose it was.", "\"ada\""),
	OUT(T_OBJ, "attributes", "gen_ai.* by the conventions, gatehouse.* of our own.",
	    "{\"gatehouse.org\":\"acme\"}"),
	OUT(T_ARR, "events", "Attempts and failovers.", "[]", .fields = &event),
	{ 0 },
};
static const struct param span = { .type = T_OBJ, .fields = span_row };
static const struct param get_out[] = {
	OUT(T_STR, "id", "The trace's id.", TRACE),
	OUT(T_BOOL, "more", "There are more spans than are shown.", "false"),
	OUT(T_ARR, "spans", "In the order in which they began.", "[]", .max = TRACE_SPANS_MAX,
	    .fields = &span),
	{ 0 },
};

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *before = list_cursor(c, in, e);
	auto_pg struct pg *db = before == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = trace_list(db, c->who->org, before, limit + 1, js_str(in, "session"), e);
	return rows == NULL ? NULL : list_reply(rows, limit, "_key");
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : trace_get(db, c->who->org, js_str_or(in, "id", ""), e);
}

const struct op traces_ops[] = {
	{ .id = "list_traces",
	    .routes = { { "GET", "/v1/traces" } },
	    .summary = "List traces",
	    .doc = "Those of your org's model calls, one row a trace, as long as the deployment keeps them.",
	    .scope = "sessions",
	    .in = list_in,
	    .out = list_out,
	    .status = 200,
	    .run = list },
	{ .id = "get_trace",
	    .routes = { { "GET", "/v1/traces/{id}" } },
	    .summary = "Read a trace",
	    .doc = "The spans of one trace: of a run all its model calls, with every attempt.",
	    .scope = "sessions",
	    .in = get_in,
	    .out = get_out,
	    .status = 200,
	    .run = get },
	{ 0 },
};
