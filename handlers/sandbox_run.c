/*
 * sandbox_run.c - commands of a sandbox: run one, read one's output again (SBX-40…43).
 * Invariant: a command outlives the request that started it; what ends here is only the reading, unless a session narrates it.
 */
#include "handlers/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "session/narrate.h"

enum { ARG_BYTES = 128 * 1024, COMMAND_BYTES = 128 * 1024, STDIN_BYTES = 1 << 20, RUN_BODY_BYTES = 8 << 20 };

static const char *const encs[] = { "utf8", "base64", NULL };
static const char *const streams[] = { "stdout", "stderr", NULL };
static const struct param arg = { .type = T_STR, .max = ARG_BYTES, .doc = "One argument." };
static const struct param variable = { .type = T_STR, .max = 32768, .doc = "Its value." };

#define RUN_FIELDS                                                                                           \
	{ .name = "argv",                                                                                    \
		.type = T_ARR,                                                                               \
		.min = 1,                                                                                    \
		.max = 1000,                                                                                 \
		.fields = &arg,                                                                              \
		.doc = "The program and its arguments, exactly.",                                            \
		.example = "[\"python3\",\"-c\",\"print(6*7)\"]" },                                          \
	    { .name = "command",                                                                             \
		    .type = T_STR,                                                                           \
		    .min = 1,                                                                                \
		    .max = COMMAND_BYTES,                                                                    \
		    .doc = "Or a line for `sh -c`." },                                                       \
	    { .name = "dir",                                                                                 \
		    .type = T_STR,                                                                           \
		    .min = 1,                                                                                \
		    .max = LIMIT_PATH_BYTES,                                                                 \
		    .doc = "Where it runs; the sandbox's workdir." },                                        \
	    { .name = "stdin",                                                                               \
		    .type = T_STR,                                                                           \
		    .max = STDIN_BYTES,                                                                      \
		    .doc = "Its standard input; nothing when not given." },                                  \
	    { .name = "env",                                                                                 \
		    .type = T_MAP,                                                                           \
		    .max = 200,                                                                              \
		    .fields = &variable,                                                                     \
		    .doc = "Laid over the lease's environment." },                                           \
	    { .name = "timeoutSec",                                                                          \
		    .type = T_INT,                                                                           \
		    .min = 1,                                                                                \
		    .max = LIMIT_COMMAND_S,                                                                  \
		    .doc = "After this it is killed with everything it started; 300 when not given.",        \
		    .example = "60" },                                                                       \
	    { .name = "session",                                                                             \
		    .type = T_STR,                                                                           \
		    .min = 1,                                                                                \
		    .max = 64,                                                                               \
		    .doc = "An open session that its output is told to." },                                  \
	{                                                                                                    \
		.name = "stream", .type = T_BOOL,                                                            \
		.doc = "Answer with NDJSON as it runs: start, stdout and stderr with offsets, then exit "    \
		       "(or lost)."                                                                          \
	}

static const struct param run_in[] = { SANDBOX_ID, RUN_FIELDS, { 0 } };
static const struct param run_out[] = {
	{ .name = "id",
	    .type = T_STR,
	    .required = true,
	    .max = 64,
	    .doc = "The command.",
	    .example = "\"" CMD "\"" },
	{ .name = "exitCode",
	    .type = T_INT,
	    .required = true,
	    .nullable = true,
	    .max = 255,
	    .doc = "Null when a signal ended it. 127: not found, 126: not executable.",
	    .example = "0" },
	{ .name = "signal",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .max = 16,
	    .doc = "The signal that ended it.",
	    .example = "null" },
	{ .name = "stdout",
	    .type = T_STR,
	    .required = true,
	    .max = 2 * LIMIT_OUTPUT_BYTES,
	    .doc = "Its end, at most 1 MiB.",
	    .example = "\"42\\n\"" },
	{ .name = "stdoutEnc",
	    .type = T_ENUM,
	    .required = true,
	    .values = encs,
	    .doc = "base64 where it is not text.",
	    .example = "\"utf8\"" },
	{ .name = "stderr",
	    .type = T_STR,
	    .required = true,
	    .max = 2 * LIMIT_OUTPUT_BYTES,
	    .doc = "Its end, at most 1 MiB.",
	    .example = "\"\"" },
	{ .name = "stderrEnc",
	    .type = T_ENUM,
	    .required = true,
	    .values = encs,
	    .doc = "base64 where it is not text.",
	    .example = "\"utf8\"" },
	{ .name = "truncated",
	    .type = T_BOOL,
	    .required = true,
	    .doc = "There was more output than is shown.",
	    .example = "false" },
	{ .name = "stdoutBytes",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "All that it wrote.",
	    .example = "3" },
	{ .name = "stderrBytes",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "All that it wrote.",
	    .example = "0" },
	{ .name = "timedOut",
	    .type = T_BOOL,
	    .required = true,
	    .doc = "Its time ran out.",
	    .example = "false" },
	{ .name = "stopped",
	    .type = T_BOOL,
	    .required = true,
	    .doc = "Somebody stopped it.",
	    .example = "false" },
	{ .name = "oom",
	    .type = T_BOOL,
	    .required = true,
	    .doc = "The sandbox's memory ran out.",
	    .example = "false" },
	{ .name = "durationMs",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "How long it ran.",
	    .example = "31" },
	{ .name = "message",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .max = 300,
	    .doc = "Why it could not run, or died.",
	    .example = "null" },
	{ 0 },
};
static const char *const line_types[] = { "start", "stdout", "stderr", "exit", "lost", "ping", "reconnect",
	NULL };
static const struct param line_out[] = {
	{ .name = "type",
	    .type = T_ENUM,
	    .required = true,
	    .values = line_types,
	    .doc = "`exit` is the last line of a command, `lost` that of one whose end nobody knows. "
		   "`reconnect`: this server "
		   "is about to stop; read_command goes on.",
	    .example = "\"stdout\"" },
	{ .name = "id", .type = T_STR, .doc = "Of `start`: the command." },
	{ .name = "pid", .type = T_INT, .doc = "Of `start`: its process in the sandbox." },
	{ .name = "data",
	    .type = T_STR,
	    .max = LIMIT_LINE_BYTES,
	    .doc = "Of `stdout` and `stderr`.",
	    .example = "\"42\\n\"" },
	{ .name = "enc", .type = T_ENUM, .values = encs, .doc = "Of `data`.", .example = "\"utf8\"" },
	{ .name = "offset", .type = T_INT, .doc = "Where `data` begins in its stream.", .example = "0" },
	{ .name = "exitCode", .type = T_INT, .nullable = true, .doc = "Of `exit`, like the fields below." },
	{ .name = "signal", .type = T_STR, .nullable = true, .doc = "The signal that ended it." },
	{ .name = "timedOut", .type = T_BOOL, .doc = "Its time ran out." },
	{ .name = "stopped", .type = T_BOOL, .doc = "Somebody stopped it." },
	{ .name = "oom", .type = T_BOOL, .doc = "The sandbox's memory ran out." },
	{ .name = "durationMs", .type = T_INT, .doc = "How long it ran." },
	{ .name = "stdoutBytes", .type = T_INT, .doc = "All that it wrote." },
	{ .name = "stderrBytes", .type = T_INT, .doc = "All that it wrote." },
	{ .name = "message", .type = T_STR, .nullable = true, .doc = "Of `exit` and `lost`: why." },
	{ .name = "cmd", .type = T_STR, .doc = "Of `reconnect`: the command." },
	{ .name = "stdout", .type = T_INT, .doc = "Of `reconnect`: `from` for read_command." },
	{ .name = "stderr", .type = T_INT, .doc = "Of `reconnect`: `fromStderr`." },
	{ 0 },
};
static const struct param output_in[] = {
	SANDBOX_ID,
	{ .name = "cmd",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = 64,
	    .doc = "The command.",
	    .example = "\"" CMD "\"" },
	{ .name = "from",
	    .type = T_INT,
	    .max = INT64_MAX,
	    .doc = "First byte wanted: of stdout, or of the one `stream`." },
	{ .name = "fromStderr", .type = T_INT, .max = INT64_MAX, .doc = "First byte wanted of stderr." },
	{ .name = "stream", .type = T_ENUM, .values = streams, .doc = "Only this stream." },
	{ 0 },
};

/* ---- lines on their way to the client */

struct forward {
	struct ctx *c;
	struct narrator *to; /* NULL: no session */
	bool stream;         /* lines go to the client */
	bool gone, drained;
	char cmd[ID_MAX];
	long long at[2];
	int64_t last_ms;
};

static void pass(struct forward *f, json_t *line)
{
	auto_json json_t *mine = line;
	if (f->gone)
		return;
	f->last_ms = clock_ms();
	if ((!f->c->reply->begun && reply_begin(f->c, 200, "application/x-ndjson") != 0) ||
	    reply_line(f->c, json_incref(mine)) != 0)
		f->gone = true;
}

static void count(struct forward *f, const json_t *line)
{
	const char *type = js_str_or(line, "type", "");
	int i = strcmp(type, "stderr") == 0;
	if (strcmp(type, "start") == 0)
		(void)snprintf(f->cmd, sizeof f->cmd, "%s", js_str_or(line, "id", ""));
	if (i == 1 || strcmp(type, "stdout") == 0)
		f->at[i] = js_int(line, "offset", 0);
}

/* Nobody is left to read for, and nobody narrates. */
static bool done(struct forward *f)
{
	f->gone = f->gone || reply_gone(f->c);
	f->drained = f->drained || reply_draining(f->c);
	return f->drained || (f->gone && f->to == NULL);
}

static int on_line(void *arg_, const json_t *line)
{
	struct forward *f = arg_;
	if (f->to != NULL)
		narrate_box_line(f->to, line);
	count(f, line);
	if (f->stream)
		pass(f, json_deep_copy(line));
	return f->gone && f->to == NULL ? -1 : 0;
}

static bool cancelled(void *arg_)
{
	struct forward *f = arg_;
	if (f->to != NULL)
		narrate_tick(f->to);
	if (f->stream && f->c->reply->begun && clock_ms() - f->last_ms >= LIMIT_PING_S * 1000)
		pass(f, js_pack("{s:s}", "type", "ping"));
	return done(f);
}

/* The process ends before the command does: the client goes on from here, at any API host. The line it last got is told again. */
static void hint(struct forward *f)
{
	pass(f,
	    js_pack("{s:s,s:s,s:I,s:I}", "type", "reconnect", "cmd", f->cmd, "stdout", (json_int_t)f->at[0],
		"stderr", (json_int_t)f->at[1]));
}

/* ---- run */

static int check(const json_t *in, struct err *e)
{
	bool argv = js_get(in, "argv") != NULL, command = js_get(in, "command") != NULL;
	const char *name;
	json_t *v;
	if (argv == command)
		return err_field(
		    e, ERR_BAD_REQUEST, argv ? "command" : "argv", "Give either `argv` or `command`.");
	if (argv && json_string_length(json_array_get(js_get(in, "argv"), 0)) == 0)
		return err_field(
		    e, ERR_BAD_REQUEST, "argv", "`argv` begins with the program; it cannot be empty.");
	json_object_foreach(js_get(in, "env"), name, v)
		if (name[0] == '\0' || strchr(name, '=') != NULL)
			return err_field(
			    e, ERR_BAD_REQUEST, "env", "A variable's name cannot be empty or hold \"=\".");
	return 0;
}

/* SBX-43: the caller's own, and still open; NULL is no session. */
static int session_check(struct ctx *c, const char *id, struct err *e)
{
	struct session_row row;
	if (id == NULL)
		return 0;
	auto_pg struct pg *db = pg_take(c->db, SANDBOX_TAKE_MS, e);
	if (db == NULL || session_get(db, c->mem, c->who->org, id, &row, e) != 0)
		return -1;
	return strcmp(row.state, "open") == 0
	    ? 0
	    : err_field(e, ERR_CONFLICT, "session", "That session is closed.");
}

static json_t *outcome(const struct box_exit *x)
{
	const char *out_enc, *err_enc;
	json_t *out = sandbox_bytes(x->out.p, x->out.n, &out_enc),
	       *err = sandbox_bytes(x->errout.p, x->errout.n, &err_enc);
	bool killed = x->signal[0] != '\0';
	return js_pack("{s:s,s:o,s:s?,s:o,s:s,s:o,s:s,s:b,s:I,s:I,s:b,s:b,s:b,s:I,s:s?}", "id", x->cmd,
	    "exitCode", killed ? json_null() : json_integer(x->exit_code), "signal",
	    killed ? x->signal : NULL, "stdout", out, "stdoutEnc", out_enc, "stderr", err, "stderrEnc",
	    err_enc, "truncated", x->truncated, "stdoutBytes", (json_int_t)x->stdout_bytes, "stderrBytes",
	    (json_int_t)x->stderr_bytes, "timedOut", x->timed_out, "stopped", x->stopped, "oom", x->oom,
	    "durationMs", (json_int_t)x->duration_ms, "message", x->message[0] == '\0' ? NULL : x->message);
}

static void narrate_outcome(struct narrator *to, const struct box_exit *x, const struct err *e)
{
	char how[ERR_MSG_MAX + 32];
	bool left = e->reason != NULL && strcmp(e->reason, "left") == 0;
	if (e->code != ERR_NONE)
		(void)snprintf(how, sizeof how, "%s: %s", left ? "unknown" : "the channel was lost", e->msg);
	else if (x->timed_out || x->stopped)
		(void)snprintf(how, sizeof how, "%s", x->timed_out ? "timed out" : "stopped");
	else if (x->signal[0] != '\0')
		(void)snprintf(how, sizeof how, "killed by %s", x->signal);
	else
		(void)snprintf(how, sizeof how, "exit %d", x->exit_code);
	narrate_exit(to, how);
}

static json_t *answer(struct forward *f, const struct box_exit *x, struct err *e)
{
	if (f->drained && e->reason != NULL && strcmp(e->reason, "left") == 0) {
		if (f->stream)
			hint(f);
		else
			(void)err_replace(e, ERR_UNAVAILABLE,
			    "This server is ending; the command goes on as %s, read its output.", x->cmd);
	}
	if (f->c->reply->begun) {
		if (e->code != ERR_NONE && !f->drained)
			pass(f, js_pack("{s:s,s:s}", "type", "lost", "message", e->msg));
		return REPLIED;
	}
	return e->code == ERR_NONE ? outcome(x) : NULL;
}

static json_t *run(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *session = js_str(in, "session"), *command = js_str(in, "command"),
		   *text = js_str(in, "stdin");
	if (check(in, e) != 0 || session_check(c, session, e) != 0 || sandbox_use(c, in, &a, e) != 0)
		return NULL;
	auto_narrate struct narrator *to = session == NULL
	    ? NULL
	    : narrate_new(&(struct narrate_to){ .db = c->db, .org = c->who->org, .session = session });
	struct forward f = {
		.c = c, .to = to, .stream = js_bool(in, "stream", false), .last_ms = clock_ms()
	};
	auto_json json_t *argv = command == NULL ? json_incref(js_get(in, "argv"))
						 : js_pack("[s,s,s]", "sh", "-c", command);
	const struct box_cmd cmd = {
		.argv = argv,
		.dir = js_str(in, "dir"),
		.env = js_get(in, "env"),
		.stdin_p = text,
		.stdin_n = text == NULL ? 0 : strlen(text),
		.timeout_s = js_int(in, "timeoutSec", LIMIT_COMMAND_DEFAULT_S),
		.on_line = f.stream || to != NULL ? on_line : NULL,
		.cancelled = cancelled,
		.leave = true,
		.arg = &f,
	};
	struct box_exit x;
	(void)box_run(&a, &cmd, &x, e);
	if (to != NULL)
		narrate_outcome(to, &x, e);
	json_t *out = answer(&f, &x, e);
	box_exit_free(&x);
	return out;
}

/* ---- read again */

static json_t *read_output(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *stream = js_str(in, "stream"), *cmd = js_str_or(in, "cmd", "");
	int only = stream == NULL ? 0 : strcmp(stream, "stdout") == 0 ? 1 : 2;
	long long from[2] = { js_int(in, "from", 0), js_int(in, only == 2 ? "from" : "fromStderr", 0) };
	if (!id_is("cmd", cmd)) {
		err_set(e, ERR_NOT_FOUND, "There is no such command, or its output is no longer held.");
		return NULL;
	}
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	struct forward f = { .c = c, .stream = true, .at = { from[0], from[1] }, .last_ms = clock_ms() };
	(void)snprintf(f.cmd, sizeof f.cmd, "%s", cmd);
	int rc = box_output(&a, cmd, from, only, on_line, cancelled, &f, e);
	if (!c->reply->begun)
		return NULL;
	if (rc != 0 && e->reason != NULL && strcmp(e->reason, "lost") == 0)
		pass(&f, js_pack("{s:s,s:s}", "type", "lost", "message", e->msg));
	else if (rc != 0) /* the node or we are restarting: the command goes on */
		hint(&f);
	return REPLIED;
}

const struct op sandbox_run_ops[] = {
	{
	    .id = "run_in_sandbox",
	    .routes = { { "POST", "/v1/sandboxes/run" }, { "POST", "/v1/sandboxes/{id}/run" } },
	    .summary = "Run a command",
	    .doc = "Answers when it has ended, with its exit and the end of its output; a non-zero exit is "
		   "an answer, not an error. It "
		   "outlives this request: read_command reads it again.",
	    .scope = "sandboxes",
	    .in = run_in,
	    .out = run_out,
	    .line = line_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_STREAM,
	    .max_body_bytes = RUN_BODY_BYTES,
	    .run = run,
	},
	{
	    .id = "read_command",
	    .routes = { { "GET", "/v1/sandboxes/{id}/commands/{cmd}/output" } },
	    .summary = "Read a command's output again",
	    .doc = "NDJSON from the given offsets, live, to its exit. What is no longer held is skipped, as "
		   "the offsets show.",
	    .scope = "sandboxes",
	    .in = output_in,
	    .out = line_out,
	    .status = 200,
	    .flags = OP_STREAM,
	    .run = read_output,
	},
	{ 0 },
};
