/*
 * coding.c - coding runs: post a task and watch it (COD-1, STR-5), list and read runs (COD-12), ask for an end (COD-15).
 */
#include <string.h>
#include <strings.h>

#include "auth/principal.h"
#include "base/js.h"
#include "base/limits.h"
#include "code/runs.h"
#include "code/task.h"
#include "code/tool.h"
#include "handlers.h"
#include "session/watch.h"

enum {
	DB_WAIT_MS = 5000,
	/* A prompt of 1 MiB may need six bytes for each of its own as JSON ("\u0001"). */
	TASK_BODY_BYTES = 7 << 20,
	NAME_BYTES =
	    400, /* longer than any good name, so that a bad one is refused with the rule it breaks */
};

#define RUN "run_01jdq3v8m5c7x2k9f4t6w0b1ra"
#define SES "ses_01jdq3v8m5c7x2k9f4t6w0b1ra"

static const struct param credential_in[] = {
	{ .name = "username",
	    .type = T_STR,
	    .min = 1,
	    .max = 256,
	    .doc = "`x-access-token` when not given." },
	{ .name = "token",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = 4096,
	    .doc = "Used for git over HTTP with that one repository, by the runner; it never enters the "
		   "sandbox." },
	{ 0 },
};

static const struct param task_in[] = {
	{ .name = "prompt",
	    .type = T_STR,
	    .required = true,
	    .max = LIMIT_PROMPT_BYTES,
	    .doc = "What is to be done: a program for python and node, an instruction for an agent. Its "
		   "first line becomes the "
		   "commit message.",
	    .example = "\"open('hello.txt', 'w').write('Hello.\\\\n')\"" },
	{ .name = "tool",
	    .type = T_ENUM,
	    .values = tool_names,
	    .doc = "What works on it; `dev` when not given.",
	    .example = "\"python\"" },
	{ .name = "repo",
	    .type = T_STR,
	    .min = 1,
	    .max = NAME_BYTES,
	    .doc = "A repository of this forge.",
	    .example = "\"demo\"" },
	{ .name = "project",
	    .type = T_STR,
	    .min = 1,
	    .max = 64,
	    .doc = "The project that `repo` must belong to. A run never keeps a project's disk." },
	{ .name = "cloneUrl",
	    .type = T_STR,
	    .min = 1,
	    .max = 2048,
	    .doc = "A repository elsewhere, over https. Neither `repo` nor `cloneUrl`: a run without a "
		   "repository." },
	{ .name = "base",
	    .type = T_STR,
	    .min = 1,
	    .max = NAME_BYTES,
	    .doc = "The branch to start from; the repository's default branch when not given.",
	    .example = "\"main\"" },
	{ .name = "credential", .type = T_OBJ, .fields = credential_in, .doc = "For `cloneUrl` only." },
	{ .name = "timeoutSec",
	    .type = T_INT,
	    .min = 1,
	    .max = LIMIT_RUN_S,
	    .doc = "How long the tool may work; 1500 when not given.",
	    .example = "600" },
	{ .name = "session",
	    .type = T_STR,
	    .min = 1,
	    .max = 64,
	    .doc = "An open session of the organisation to narrate into." },
	{ .name = "branch",
	    .type = T_STR,
	    .min = 1,
	    .max = NAME_BYTES,
	    .doc = "Only ever `agent/<tail of the session id>`: the branch is not a choice." },
	{ .name = "target",
	    .type = T_STR,
	    .min = 1,
	    .max = 64,
	    .doc = "A registered machine of the organisation; none can be yet." },
	{ .name = "desktop", .type = T_BOOL, .doc = "A sandbox with a desktop; not offered yet." },
	{ 0 },
};

static const struct param task_out[] = {
	OUT(T_STR, "run", "The run.", "\"" RUN "\""),
	OUT(T_STR, "session", "The session to watch.", "\"" SES "\""),
	{ 0 },
};

static const struct param path_out[] = {
	{ .name = "path",
	    .type = T_STR,
	    .required = true,
	    .max = 4096,
	    .doc = "The file; a long one is cut and ends in …." },
	OUT(T_INT, "insertions", "Lines.", NULL),
	OUT(T_INT, "deletions", "Lines.", NULL),
	OUT(T_BOOL, "binary", "Not counted in lines.", NULL),
	{ 0 },
};
static const struct param path_item[] = {
	{ .name = "path", .type = T_OBJ, .fields = path_out, .doc = "One file." }, { 0 }
};
static const struct param repository_item[] = {
	{ .name = "path", .type = T_STR, .max = 4096, .doc = "One of them." }, { 0 }
};
static const struct param diffstat_out[] = {
	OUT(T_INT, "files", "How many differ.", NULL),
	OUT(T_INT, "insertions", "Lines.", NULL),
	OUT(T_INT, "deletions", "Lines.", NULL),
	{ .name = "paths",
	    .type = T_ARR,
	    .required = true,
	    .fields = path_item,
	    .doc = "The first of them." },
	{ .name = "repositories",
	    .type = T_ARR,
	    .fields = repository_item,
	    .doc = "Directories that are repositories of their own: only the ids of their commits are in the "
		   "branch, not their files." },
	OUT(T_BOOL, "more", "There are more than are listed.", NULL),
	{ 0 },
};
static const struct param pr_out[] = {
	OUT(T_STR, "identifier", "What was proposed: the branch.", NULL),
	OUT(T_STR, "url", "Its page.", NULL),
	{ 0 },
};

static const char *const types[] = { "status", "step", "tool-call", "log", "message", "result", "error",
	"ping", "reconnect", NULL };
static const struct param line_out[] = {
	OUT_MAYBE(T_INT, "seq", "Counts from 1 without gaps; pings have none.", "1"),
	OUT_MAYBE(T_TIME, "time", "When it was written.", "\"2026-11-29T12:00:00.000Z\""),
	{ .name = "type",
	    .type = T_ENUM,
	    .required = true,
	    .values = types,
	    .doc = "The last line is one `result` or `error`; a stream that ends without it is incomplete: "
		   "go on with "
		   "watch_session.",
	    .example = "\"result\"" },
	OUT_MAYBE(T_STR, "step",
	    "Of `step`: leased, fetch, checkout, tool, commit, collect, check, push, ended, verify, propose. "
	    "Of `tool-call`: exit.",
	    NULL),
	{ .name = "message", .type = T_STR, .max = 61440, .doc = "A sentence, or output of the tool." },
	OUT_MAYBE(T_STR, "status", "Of `step`: running, ok or failed.", NULL),
	OUT_MAYBE(T_STR, "phase", "Of the first line: start.", NULL),
	OUT_MAYBE(T_STR, "run", "Of the first line: the run.", NULL),
	OUT_MAYBE(T_STR, "session", "Of the first line: where to come back to, with watch_session.", NULL),
	OUT_MAYBE(T_STR, "tool", "Of the first line.", NULL),
	{ .name = "repo", .type = T_STR, .nullable = true, .doc = "Of the first line." },
	OUT_MAYBE(T_INT, "after", "Of `reconnect`: where to go on.", NULL),
	OUT_MAYBE(T_STR, "code",
	    "Of `error`, a word for programs: `stopped` (somebody asked for the end), `tool_failed` (it "
	    "exited with another status than 0, was killed, or took too long), `commit_failed` (its work "
	    "could not be committed), `change_refused` (what it committed cannot be taken), `lost` (unknown "
	    "how a command ended), `not_found` (the base branch), `nodes_full` (no place became free within "
	    "the run's own time), `insufficient_quota` and `budget_exceeded` (the org has no money left), or "
	    "the `code` of an error answer.",
	    NULL),
	OUT_MAYBE(T_BOOL, "ok", "Of `result`: always true.", NULL),
	OUT_MAYBE(T_BOOL, "changed", "Of `result`: the tip of the branch moved.", NULL),
	{ .name = "branch",
	    .type = T_STR,
	    .nullable = true,
	    .doc = "Of `result`: what was pushed; null when nothing changed." },
	{ .name = "commit",
	    .type = T_STR,
	    .nullable = true,
	    .doc = "Of `result`: the tip in the repository's own storage." },
	{ .name = "diffstat",
	    .type = T_OBJ,
	    .nullable = true,
	    .fields = diffstat_out,
	    .doc = "Of `result`: base to tip." },
	{ .name = "pr",
	    .type = T_OBJ,
	    .nullable = true,
	    .fields = pr_out,
	    .doc = "Of `result`: what was proposed, if anything." },
	{ .name = "url",
	    .type = T_STR,
	    .nullable = true,
	    .doc = "Of `result`: the branch's page; empty when it has none, null when there is no branch." },
	{ .name = "logTail",
	    .type = T_STR,
	    .max = 61440,
	    .doc = "Of `result` and `error`: the end of the tool's output." },
	OUT_MAYBE(
	    T_INT, "attempts", "Of `result` and `error`: more than 1 when a runner was replaced.", NULL),
	{ 0 },
};

static const char *const states[] = { "queued", "running", "done", "error", "stopped", NULL };
static const struct param run_out[] = {
	OUT(T_STR, "id", "The run; sortable by creation.", "\"" RUN "\""),
	OUT(T_STR, "kind", "`coding`.", "\"coding\""),
	OUT(T_STR, "tool", "What worked on it.", "\"python\""),
	OUT_NULL(T_STR, "repo", "The repository of this forge.", NULL),
	{ .name = "cloneUrl",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .max = 2048,
	    .doc = "The repository elsewhere." },
	OUT_NULL(T_STR, "base", "The branch it started from.", NULL),
	OUT_NULL(T_STR, "branch", "The branch it pushes; null without repository.", NULL),
	{ .name = "state",
	    .type = T_ENUM,
	    .required = true,
	    .values = states,
	    .doc = "How far it is.",
	    .example = "\"running\"" },
	OUT(T_STR, "session", "Where it narrates.", "\"" SES "\""),
	OUT_NULL(T_STR, "commit", "What it pushed; null when nothing.", NULL),
	OUT(T_STR, "createdBy", "Who started it.", "\"ann\""),
	OUT(T_TIME, "createdAt", "When.", "\"2026-11-29T12:00:00.000Z\""),
	OUT_NULL(T_TIME, "endedAt", "When it ended.", NULL),
	OUT_NULL(
	    T_TIME, "stopRequestedAt", "When its end was asked for; its state says when it has come.", NULL),
	OUT_NULL(T_STR, "stopRequestedBy", "Who asked.", NULL),
	OUT(T_INT, "durationMs", "From the post to its end, or until now.", "2150"),
	OUT(T_INT, "costMillicents", "What its model calls cost, in thousandths of a cent.", "0"),
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(run_out, "Runs, newest first."), { 0 } };
static const struct param one_in[] = {
	IN_ID("run", "The run.", "\"" RUN "\""),
	{ 0 },
};

/* One of the comma-separated preferences of RFC 7240. */
static bool prefers_async(struct ctx *c)
{
	const char *p = reply_param(c, "HTTP_PREFER");
	static const char async[] = "respond-async";
	while (p != NULL && *p != 0) {
		p += strspn(p, ", \t");
		size_t n = strcspn(p, ",; \t");
		if (n == sizeof async - 1 && strncasecmp(p, async, n) == 0)
			return true;
		p += strcspn(p, ",");
	}
	return false;
}

static json_t *started(struct ctx *c, const char *run, const char *session)
{
	const struct api *api = c->app;
	reply_header(c, "Location", mem_fmt(c->mem, "/v1/agents/sessions/%s", session));
	if (!prefers_async(c))
		return watch_session(api->hub, c, principal_org(c->who), session, 0);
	reply_header(c, "Preference-Applied", "respond-async");
	reply_status(c, 202);
	return js_pack("{s:s,s:s}", "run", run, "session", session);
}

static json_t *start(struct ctx *c, json_t *in, struct err *e)
{
	const struct api *api = c->app;
	struct task_started got;
	return task_start(c, api->seal, in, &got, e) == 0 ? started(c, got.run, got.session) : NULL;
}

/* HTTP-7: a repetition attaches to the session that the first one started, and is answered as it prefers itself. */
static json_t *start_again(struct ctx *c, json_t *made, struct err *e)
{
	(void)e;
	return started(c, js_str(made, "run"), js_str(made, "session"));
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *before = list_cursor(c, in, e);
	auto_pg struct pg *db = before == NULL ? NULL : pg_take(c->db, DB_WAIT_MS, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = runs_list(db, principal_org(c->who), before, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->db, DB_WAIT_MS, e);
	return db == NULL ? NULL : runs_get(db, principal_org(c->who), js_str(in, "run"), e);
}

static json_t *stop(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->db, DB_WAIT_MS, e);
	return db == NULL ? NULL : runs_stop(db, c->who, js_str(in, "run"), e);
}

const struct op coding_ops[] = {
	{
	    .id = "start_coding_run",
	    .routes = { { "POST", "/v1/coding-tasks" } },
	    .summary = "Start a coding run",
	    .doc = "Lease a sandbox, hand it the repository, let the tool work there, and push what changed "
		   "to a branch of its own; "
		   "then the sandbox is gone. The answer is the run's stream; leaving it does not disturb "
		   "the run. With `Prefer: "
		   "respond-async` it is 202 and the session to watch.",
	    .scope = "coding",
	    .in = task_in,
	    .out = task_out,
	    .line = line_out,
	    .status = 202,
	    .flags = OP_STREAM | OP_TOOL | OP_ONCE | OP_KEEPS,
	    .max_body_bytes = TASK_BODY_BYTES,
	    .run = start,
	    .again = start_again,
	},
	{
	    .id = "list_runs",
	    .routes = { { "GET", "/v1/bots" } },
	    .summary = "List runs",
	    .doc = "The runs of your organisation, newest first.",
	    .scope = "coding",
	    .in = op_list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list,
	},
	{
	    .id = "get_run",
	    .routes = { { "GET", "/v1/bots/{run}" } },
	    .summary = "Get a run",
	    .doc = "What a run is and how far it has come. What it did is in its session.",
	    .scope = "coding",
	    .in = one_in,
	    .out = run_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = get,
	},
	{
	    .id = "stop_bot_run",
	    .routes = { { "POST", "/v1/bots/{run}/stop" } },
	    .summary = "Stop a run",
	    .doc = "End what the run is doing, end its sandbox, and close its session as stopped. For who "
		   "started it and for admins. "
		   "The answer comes at once; stopping what has ended changes nothing.",
	    .scope = "coding",
	    .in = one_in,
	    .out = run_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = stop,
	},
	{ 0 },
};
