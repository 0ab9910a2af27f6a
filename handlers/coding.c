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
#include "handlers/handlers.h"
#include "session/watch.h"

enum {
	/* A prompt of 1 MiB may need six bytes for each of its own as JSON ("\u0001"). */
	TASK_BODY_BYTES = 7 << 20,
	NAME_BYTES =
	    400, /* longer than any good name, so that a bad one is refused with the rule it breaks */
};

#define RUN "run_01jdq3v8m5c7x2k9f4t6w0b1ra"
#define SES "ses_01jdq3v8m5c7x2k9f4t6w0b1ra"

static const struct param credential_in[] = {
	IN(T_STR, "username", "`x-access-token` when not given.", NULL, .min = 1, .max = 256),
	IN_REQUIRED(T_STR, "token",
	    "Used for git over HTTP with that one repository, by the runner; it never enters the sandbox.",
	    NULL, .min = 1, .max = 4096),
	{ 0 },
};

static const struct param task_in[] = {
	IN_REQUIRED(T_STR, "prompt",
	    "What is to be done: a program for python and node, an instruction for an agent. Its first line "
	    "becomes the commit message.",
	    "\"open('hello.txt', 'w').write('Hello.\\\\n')\"", .max = LIMIT_PROMPT_BYTES),
	IN(T_ENUM, "tool", "What works on it; `dev` when not given.", "\"python\"", .values = tool_names),
	IN(T_STR, "repo", "A repository of this forge.", "\"demo\"", .min = 1, .max = NAME_BYTES),
	IN(T_STR, "project", "The project that `repo` must belong to. A run never keeps a project's disk.",
	    NULL, .min = 1, .max = 64),
	IN(T_STR, "cloneUrl",
	    "A repository elsewhere, over https. Neither `repo` nor `cloneUrl`: a run without a repository.",
	    NULL, .min = 1, .max = 2048),
	IN(T_STR, "base", "The branch to start from; the repository's default branch when not given.",
	    "\"main\"", .min = 1, .max = NAME_BYTES),
	IN(T_OBJ, "credential", "For `cloneUrl` only.", NULL, .fields = credential_in),
	IN(T_INT, "timeoutSec", "How long the tool may work; 1500 when not given.", "600", .min = 1,
	    .max = LIMIT_RUN_S),
	IN(T_STR, "session", "An open session of the organisation to narrate into.", NULL, .min = 1,
	    .max = 64),
	IN(T_STR, "branch", "Only ever `agent/<tail of the session id>`: the branch is not a choice.", NULL,
	    .min = 1, .max = NAME_BYTES),
	IN(T_STR, "target", "A registered machine of the organisation; none can be yet.", NULL, .min = 1,
	    .max = 64),
	IN(T_BOOL, "desktop", "A sandbox with a desktop; not offered yet.", NULL),
	{ 0 },
};

static const struct param task_out[] = {
	OUT(T_STR, "run", "The run.", "\"" RUN "\""),
	OUT(T_STR, "session", "The session to watch.", "\"" SES "\""),
	{ 0 },
};

static const struct param path_out[] = {
	OUT(T_STR, "path", "The file; a long one is cut and ends in ….", NULL, .max = 4096),
	OUT(T_INT, "insertions", "Lines that were added.", NULL),
	OUT(T_INT, "deletions", "Lines that were removed.", NULL),
	OUT(T_BOOL, "binary", "Not counted in lines.", NULL),
	{ 0 },
};
static const struct param path_item[] = { OUT_MAYBE(T_OBJ, "path", "One file.", NULL, .fields = path_out),
	{ 0 } };
static const struct param repository_item[] = { OUT_MAYBE(T_STR, "path", "One of them.", NULL, .max = 4096),
	{ 0 } };
static const struct param diffstat_out[] = {
	OUT(T_INT, "files", "How many differ.", NULL),
	OUT(T_INT, "insertions", "Lines that were added.", NULL),
	OUT(T_INT, "deletions", "Lines that were removed.", NULL),
	OUT(T_ARR, "paths", "The first of them.", NULL, .fields = path_item),
	OUT_MAYBE(T_ARR, "repositories",
	    "Directories that are repositories of their own: only the ids of their commits are in the "
	    "branch, not their files.",
	    NULL, .fields = repository_item),
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
	OUT(T_ENUM, "type",
	    "The last line is one `result` or `error`; a stream that ends without it is incomplete: go on "
	    "with watch_session.",
	    "\"result\"", .values = types),
	OUT_MAYBE(T_STR, "step",
	    "Of `step`: leased, fetch, checkout, tool, commit, collect, check, push, ended, verify, propose. "
	    "Of `tool-call`: exit.",
	    NULL),
	OUT_MAYBE(T_STR, "message", "A sentence, or output of the tool.", NULL, .max = 61440),
	OUT_MAYBE(T_STR, "status", "Of `step`: running, ok or failed.", NULL),
	OUT_MAYBE(T_STR, "phase", "Of the first line: start.", NULL),
	OUT_MAYBE(T_STR, "run", "Of the first line: the run.", NULL),
	OUT_MAYBE(T_STR, "session", "Of the first line: where to come back to, with watch_session.", NULL),
	OUT_MAYBE(T_STR, "tool", "Of the first line.", NULL),
	OUT_MAYBE(T_STR, "repo", "Of the first line.", NULL, .nullable = true),
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
	OUT_MAYBE(T_STR, "branch", "Of `result`: what was pushed; null when nothing changed.", NULL,
	    .nullable = true),
	OUT_MAYBE(
	    T_STR, "commit", "Of `result`: the tip in the repository's own storage.", NULL, .nullable = true),
	OUT_MAYBE(
	    T_OBJ, "diffstat", "Of `result`: base to tip.", NULL, .nullable = true, .fields = diffstat_out),
	OUT_MAYBE(T_OBJ, "pr", "Of `result`: what was proposed, if anything.", NULL, .nullable = true,
	    .fields = pr_out),
	OUT_MAYBE(T_STR, "url",
	    "Of `result`: the branch's page; empty when it has none, null when there is no branch.", NULL,
	    .nullable = true),
	OUT_MAYBE(
	    T_STR, "logTail", "Of `result` and `error`: the end of the tool's output.", NULL, .max = 61440),
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
	OUT_NULL(T_STR, "cloneUrl", "The repository elsewhere.", NULL, .max = 2048),
	OUT_NULL(T_STR, "base", "The branch it started from.", NULL),
	OUT_NULL(T_STR, "branch", "The branch it pushes; null without repository.", NULL),
	OUT(T_ENUM, "state", "How far it is.", "\"running\"", .values = states),
	OUT(T_STR, "session", "Where it narrates.", "\"" SES "\""),
	OUT_NULL(T_STR, "commit", "What it pushed; null when nothing.", NULL),
	OUT(T_STR, "createdBy", "Who started it.", "\"ann\""),
	OUT(T_TIME, "createdAt", "When it was posted.", "\"2026-11-29T12:00:00.000Z\""),
	OUT_NULL(T_TIME, "endedAt", "When it ended.", NULL),
	OUT_NULL(
	    T_TIME, "stopRequestedAt", "When its end was asked for; its state says when it has come.", NULL),
	OUT_NULL(T_STR, "stopRequestedBy", "Who asked for its end.", NULL),
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
		return watch_session(api->hub, c, c->who->org, session, 0);
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
	auto_pg struct pg *db = before == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = runs_list(db, c->who->org, before, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : runs_get(db, c->who->org, js_str(in, "run"), e);
}

static json_t *stop(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : runs_stop(db, c->who, js_str(in, "run"), e);
}

const struct op coding_ops[] = {
	{
	    .id = "start_coding_run",
	    .routes = { { "POST", "/v1/coding-tasks" } },
	    .summary = "Start a coding run",
	    .doc =
		"Lease a sandbox, hand it the repository, let the tool work there, and push what changed to "
		"a branch of its own; then the sandbox is gone. The answer is the run's stream; leaving it "
		"does not disturb the run. With `Prefer: respond-async` it is 202 and the session to watch.",
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
		   "started it and for admins. The answer comes at once; stopping what has ended changes "
		   "nothing.",
	    .scope = "coding",
	    .in = one_in,
	    .out = run_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = stop,
	},
	{ 0 },
};
