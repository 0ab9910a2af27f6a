/*
 * sessions.c - /v1/agents/sessions: what runs say, kept and live (SES-1, 2, 3; STR-1…6).
 * A session of another org is not found, whatever is asked of it (ID-4).
 */
#include <string.h>

#include "auth/principal.h"
#include "base/js.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "op/op.h"
#include "session/event.h"
#include "session/place.h"
#include "session/watch.h"

#define SES "ses_01jdq3v8m5c7x2k9f4t6w0b1ra"

static const char *const states[] = { "open", "done", "error", "stopped", NULL };
static const char *const types[] = { "status", "step", "tool-call", "log", "message", "result", "error",
	"ping", "reconnect", NULL };

static const struct param session_out[] = {
	OUT(T_STR, "id", "Its id; sortable by creation.", "\"" SES "\""),
	OUT(T_STR, "kind", "What narrates into it.", "\"coding\""),
	OUT(T_STR, "title", "One line for people; may be empty.", "\"Greet in French\"", .max = 4096),
	OUT(T_ENUM, "state", "`open` until its last event; then how it ended.", "\"open\"", .values = states),
	OUT_NULL(T_STR, "parent", "The session of the run that started this one, null for none.", "null"),
	OUT(T_STR, "root", "The first session of its tree; its own id when nothing started it.",
	    "\"" SES "\""),
	OUT(T_INT, "lastSeq", "The number of its last event, 0 before the first.", "12"),
	OUT(T_STR, "createdBy", "The user who started it.", "\"ann\""),
	OUT(T_TIME, "createdAt", "When it was opened.", "\"2026-11-29T12:00:00.000Z\""),
	OUT_NULL(T_TIME, "closedAt", "When it was closed, null while it is open.", "null"),
	{ 0 },
};

static const struct param event_out[] = {
	OUT_MAYBE(T_STR, "session", "Which session, on a stream of many.", "\"" SES "\""),
	OUT_MAYBE(T_INT, "seq",
	    "Counts from 1 without gaps within a session. Resume with the last one you have. Pings have "
	    "none.",
	    "1"),
	OUT_MAYBE(T_TIME, "time", "When it was written.", "\"2026-11-29T12:00:00.000Z\""),
	OUT(T_ENUM, "type",
	    "`result` or `error` is the last event of a session; a stream that ends without it is "
	    "incomplete. `ping` says that all is well, `reconnect` that this server is about to stop. The "
	    "other members of a line depend on the type: a `step` has `step`, `message`, `status`; a `log` "
	    "has `message`.",
	    "\"step\"", .values = types),
	OUT_MAYBE(T_INT, "after", "Of `reconnect`: resume with this.", "12"),
	OUT_MAYBE(T_STR, "step", "Of `step`: the phase of the work.", "\"leased\""),
	OUT_MAYBE(
	    T_STR, "message", "A sentence, or output of a command.", "\"A sandbox is ready.\"", .max = 61440),
	OUT_MAYBE(T_STR, "status", "Of `step`: running, ok or failed.", "\"ok\""),
	{ 0 },
};

static const struct param list_in[] = {
	LIST_PARAMS,
	IN(T_STR, "root", "Only the tree that this session is the root of.", "\"" SES "\"", .min = 1,
	    .max = 64),
	IN(T_ENUM, "state", "Only sessions in this state.", "\"open\"", .values = states),
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(session_out, "Sessions, newest first."), { 0 } };
static const struct param get_in[] = {
	IN_ID("id", "The session.", "\"" SES "\""),
	{ 0 },
};
static const struct param watch_in[] = {
	IN_ID("id", "The session.", "\"" SES "\""),
	IN(T_INT, "after",
	    "The `seq` of the last event you have: the stream goes on behind it, from any server. The header "
	    "Last-Event-ID does the same. Without either it begins with the first event.",
	    "0", .max = 1LL << 53),
	{ 0 },
};
static const struct param tree_in[] = {
	IN(T_STR, "root",
	    "The tree of this session, from its first event until all of it is closed. Without it: "
	    "everything your organisation does, from now on.",
	    "\"" SES "\"", .min = 1, .max = 64),
	IN(T_STR, "after",
	    "Where to go on in that tree, from any server: the last `seq` you have of each `session`, such "
	    "as `ses_a:12,ses_b:7`. The header Last-Event-ID does the same; the `id` of SSE is such a list.",
	    NULL, .min = 1, .max = PLACES_BYTES),
	{ 0 },
};

/* The session of the caller's org, looked up with a connection that is given back at once: a stream holds none. */
static int find(struct ctx *c, const char *id, struct session_row *row, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? -1 : session_get(db, c->mem, c->who->org, id, row, e);
}

static json_t *list_sessions(struct ctx *c, json_t *in, struct err *e)
{
	const char *before = list_cursor(c, in, e);
	if (before == NULL)
		return NULL;
	int limit = list_limit(in);
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL)
		return NULL;
	json_t *rows = session_list(
	    db, c->who->org, before, limit + 1, js_str(in, "root"), js_str(in, "state"), e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *get_session(struct ctx *c, json_t *in, struct err *e)
{
	struct session_row row;
	return find(c, js_str(in, "id"), &row, e) != 0 ? NULL : session_json(&row);
}

/* STR-3: `after` of the query, else the header. */
static int resume_point(struct ctx *c, const json_t *in, long long last_seq, long long *after, struct err *e)
{
	const char *header = reply_param(c, "HTTP_LAST_EVENT_ID");
	*after = 0;
	if (js_get(in, "after") != NULL)
		*after = js_int(in, "after", 0);
	else if (header != NULL && *header != 0 && !str_int(header, 0, 1LL << 53, after))
		return err_field(
		    e, ERR_BAD_REQUEST, "Last-Event-ID", "`Last-Event-ID` must be the `seq` of an event.");
	if (*after > last_seq)
		return err_field(e, ERR_BAD_REQUEST, "after",
		    "`after` is %lld, but the last event of this session is %lld.", *after, last_seq);
	return 0;
}

static json_t *watch_one(struct ctx *c, json_t *in, struct err *e)
{
	const struct api *api = c->app;
	struct session_row row;
	long long after;
	if (find(c, js_str(in, "id"), &row, e) != 0 || resume_point(c, in, row.last_seq, &after, e) != 0)
		return NULL;
	/* The HTML standard: 204 tells an EventSource, which comes back after every end, that this was all. */
	if (after == row.last_seq && strcmp(row.state, "open") != 0 && reply_wants_sse(c))
		return reply_begin(c, 204, NULL), REPLIED;
	return watch_session(api->hub, c, row.org, row.id, after);
}

static json_t *watch_sessions(struct ctx *c, json_t *in, struct err *e)
{
	const struct api *api = c->app;
	const char *root = js_str(in, "root"), *after = js_str(in, "after");
	struct session_row row;
	struct places *places = mem_alloc(c->mem, sizeof *places);
	if (root == NULL && after != NULL)
		return err_field(e, ERR_BAD_REQUEST, "after",
			   "`after` needs a `root`: a whole organisation has no place to go on from."),
		       NULL;
	if (root != NULL && after == NULL &&
	    places_parse(reply_param(c, "HTTP_LAST_EVENT_ID"), "Last-Event-ID", places, e) != 0)
		return NULL;
	if (after != NULL && places_parse(after, "after", places, e) != 0)
		return NULL;
	if (root != NULL && find(c, root, &row, e) != 0)
		return NULL;
	return watch_tree(api->hub, c, c->who->org, root, places, e);
}

const struct op sessions_ops[] = {
	{
	    .id = "list_sessions",
	    .routes = { { "GET", "/v1/agents/sessions" } },
	    .summary = "List sessions",
	    .doc = "The sessions of your organisation, newest first: one for every run of any kind.",
	    .scope = "sessions",
	    .in = list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list_sessions,
	},
	{
	    .id = "get_session",
	    .routes = { { "GET", "/v1/agents/sessions/{id}" } },
	    .summary = "Get a session",
	    .doc = "What a session is and how far it has come. Its events are read with watch_session.",
	    .scope = "sessions",
	    .in = get_in,
	    .out = session_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = get_session,
	},
	{
	    .id = "watch_session",
	    .routes = { { "GET", "/v1/agents/sessions/{id}/stream" } },
	    .summary = "Watch a session",
	    .doc = "The events of a session as they happen, one JSON object a line, until the session is "
		   "closed; with `Accept: text/event-stream` as SSE. Leaving does not disturb the run; come "
		   "back with `after`. 204: an SSE client has everything, and the session is closed.",
	    .scope = "sessions",
	    .in = watch_in,
	    .out = event_out,
	    .status = 200,
	    .flags = OP_STREAM,
	    .run = watch_one,
	},
	{
	    .id = "watch_sessions",
	    .routes = { { "GET", "/v1/agents/sessions/stream" } },
	    .summary = "Watch many sessions",
	    .doc = "The events of a tree of sessions, or of all sessions of your organisation, in one "
		   "stream. Each line names its `session`, and `seq` counts within it. A tree goes on with "
		   "`after`; a whole organisation has no place to go on from: read each session then.",
	    .scope = "sessions",
	    .in = tree_in,
	    .out = event_out,
	    .status = 200,
	    .flags = OP_STREAM,
	    .run = watch_sessions,
	},
	{ 0 },
};
