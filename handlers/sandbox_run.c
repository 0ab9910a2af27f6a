/*
 * sandbox_run.c - commands of a sandbox: run one, read one's output again (SBX-40…43).
 * Invariant: a command outlives the request that started it; what ends here is only the reading, unless a session narrates it.
 */
#include "handlers/forward.h"
#include "handlers/handlers.h"
#include "handlers/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "auth/once.h"
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
	OUT_MAYBE(T_ARR, "argv", "The program and its arguments, exactly.",                                  \
	    "[\"python3\",\"-c\",\"print(6*7)\"]", .min = 1, .max = 1000, .fields = &arg),                   \
	    OUT_MAYBE(T_STR, "command", "Or a line for `sh -c`.", NULL, .min = 1, .max = COMMAND_BYTES),     \
	    OUT_MAYBE(T_STR, "dir", "Where it runs; the sandbox's workdir.", NULL, .min = 1,                 \
		.max = LIMIT_PATH_BYTES),                                                                    \
	    OUT_MAYBE(                                                                                       \
		T_STR, "stdin", "Its standard input; nothing when not given.", NULL, .max = STDIN_BYTES),    \
	    OUT_MAYBE(                                                                                       \
		T_MAP, "env", "Laid over the lease's environment.", NULL, .max = 200, .fields = &variable),  \
	    OUT_MAYBE(T_INT, "timeoutSec",                                                                   \
		"After this it is killed with everything it started; 300 when not given, with "              \
		"`detach` at the "                                                                           \
		"end of the lease.",                                                                         \
		"60", .min = 1, .max = LIMIT_COMMAND_S),                                                     \
	    OUT_MAYBE(                                                                                       \
		T_STR, "session", "An open session that its output is told to.", NULL, .min = 1, .max = 64), \
	    OUT_MAYBE(T_BOOL, "detach",                                                                      \
		"Answer as soon as it runs, with its `id` and `pid`: see list_commands. Its "                \
		"output is "                                                                                 \
		"read with read_command.",                                                                   \
		NULL),                                                                                       \
	    OUT_MAYBE(T_BOOL, "stdinOpen",                                                                   \
		"With `detach` or `stream`: its standard input stays open for write_stdin.", NULL),          \
	    OUT_MAYBE(T_BOOL, "stream",                                                                      \
		"Answer with NDJSON as it runs: start, stdout and stderr with offsets, then exit "           \
		"(or lost).",                                                                                \
		NULL)

static const struct param run_in[] = { SANDBOX_ID, RUN_FIELDS, { 0 } };
static const struct param run_out[] = {
	OUT(T_STR, "id", "The command.", "\"" CMD "\"", .max = 64),
	OUT_MAYBE(T_INT, "pid", "With `detach`: its first process, as the sandbox numbers them.", "7"),
	OUT_MAYBE(T_BOOL, "stdinOpen", "With `detach`: write_stdin can write to it.", "false"),
	OUT_NULL(T_INT, "exitCode",
	    "Null when a signal ended it, and while it runs. 127: not found, 126: not executable.", "0",
	    .max = 255),
	OUT_NULL(T_STR, "signal", "The signal that ended it.", "null", .max = 16),
	OUT_MAYBE(T_STR, "stdout", "Its end, at most 1 MiB; with `detach` there is none yet.", "\"42\\n\"",
	    .max = 2 * LIMIT_OUTPUT_BYTES),
	OUT_MAYBE(T_ENUM, "stdoutEnc", "base64 where it is not text.", "\"utf8\"", .values = encs),
	OUT_MAYBE(T_STR, "stderr", "Its end, at most 1 MiB; with `detach` there is none yet.", "\"\"",
	    .max = 2 * LIMIT_OUTPUT_BYTES),
	OUT_MAYBE(T_ENUM, "stderrEnc", "base64 where it is not text.", "\"utf8\"", .values = encs),
	OUT_MAYBE(T_BOOL, "truncated", "There was more output than is shown.", "false"),
	OUT(T_INT, "stdoutBytes", "All that it wrote.", "3", .max = INT64_MAX),
	OUT(T_INT, "stderrBytes", "All that it wrote.", "0", .max = INT64_MAX),
	OUT(T_BOOL, "timedOut", "Its time ran out.", "false"),
	OUT(T_BOOL, "stopped", "Somebody stopped it.", "false"),
	OUT(T_BOOL, "oom", "The sandbox's memory ran out.", "false"),
	OUT(T_INT, "durationMs", "How long it ran.", "31", .max = INT64_MAX),
	OUT_NULL(T_STR, "message", "Why it could not run, or died.", "null", .max = 300),
	{ 0 },
};
static const char *const line_types[] = { "start", "stdout", "stderr", "exit", "lost", "ping", "reconnect",
	NULL };
static const struct param line_out[] = {
	OUT(T_ENUM, "type",
	    "`exit` is the last line of a command, `lost` that of one whose end nobody knows. `reconnect`: "
	    "this server is about to stop; read_command goes on.",
	    "\"stdout\"", .values = line_types),
	OUT_MAYBE(T_STR, "id", "Of `start`: the command.", NULL),
	OUT_MAYBE(T_INT, "pid", "Of `start`: its process in the sandbox.", NULL),
	OUT_MAYBE(T_STR, "data", "Of `stdout` and `stderr`.", "\"42\\n\"", .max = LIMIT_LINE_BYTES),
	OUT_MAYBE(T_ENUM, "enc", "Of `data`.", "\"utf8\"", .values = encs),
	OUT_MAYBE(T_INT, "offset", "Where `data` begins in its stream.", "0"),
	OUT_MAYBE(T_INT, "exitCode", "Of `exit`, like the fields below.", NULL, .nullable = true),
	OUT_MAYBE(T_STR, "signal", "The signal that ended it.", NULL, .nullable = true),
	OUT_MAYBE(T_BOOL, "timedOut", "Its time ran out.", NULL),
	OUT_MAYBE(T_BOOL, "stopped", "Somebody stopped it.", NULL),
	OUT_MAYBE(T_BOOL, "oom", "The sandbox's memory ran out.", NULL),
	OUT_MAYBE(T_INT, "durationMs", "How long it ran.", NULL),
	OUT_MAYBE(T_INT, "stdoutBytes", "All that it wrote.", NULL),
	OUT_MAYBE(T_INT, "stderrBytes", "All that it wrote.", NULL),
	OUT_MAYBE(T_STR, "message", "Of `exit` and `lost`: why.", NULL, .nullable = true),
	OUT_MAYBE(T_STR, "cmd", "Of `reconnect`: the command.", NULL),
	OUT_MAYBE(T_INT, "stdout", "Of `reconnect`: `from` for read_command.", NULL),
	OUT_MAYBE(T_INT, "stderr", "Of `reconnect`: `fromStderr`.", NULL),
	{ 0 },
};
static const struct param output_in[] = {
	SANDBOX_ID,
	IN_ID("cmd", "The command.", "\"" CMD "\""),
	IN(T_INT, "from", "First byte wanted: of stdout, or of the one `stream`.", NULL, .max = INT64_MAX),
	IN(T_INT, "fromStderr", "First byte wanted of stderr.", NULL, .max = INT64_MAX),
	IN(T_ENUM, "stream", "Only this stream.", NULL, .values = streams),
	{ 0 },
};

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
	bool detach = js_bool(in, "detach", false), open = js_bool(in, "stdinOpen", false);
	if (detach && js_bool(in, "stream", false))
		return err_field(e, ERR_BAD_REQUEST, "stream", "Give either `stream` or `detach`.");
	if (detach && js_get(in, "session") != NULL)
		return err_field(e, ERR_BAD_REQUEST, "session",
		    "A detached command is not told to a session: take `stream`, and leave it when you "
		    "like.");
	if (open && (js_get(in, "stdin") != NULL || (!detach && !js_bool(in, "stream", false))))
		return err_field(e, ERR_BAD_REQUEST, "stdinOpen",
		    "`stdinOpen` goes with `detach` or `stream`, and not with `stdin`.");
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
	auto_pg struct pg *db = handler_db(c, e);
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
	bool left = err_is(e, "left");
	if (e->code != ERR_NONE)
		(void)snprintf(how, sizeof how, "%s: %s", left ? "unknown" : "the channel was lost", e->msg);
	else if (x->timed_out || x->stopped)
		(void)snprintf(how, sizeof how, "%s", x->timed_out ? "timed out" : "stopped");
	else if (x->signal[0] != '\0')
		(void)snprintf(how, sizeof how, "killed by %s", x->signal);
	else
		(void)snprintf(how, sizeof how, "exit %d", x->exit_code);
	(void)narrate_exit(to, how);
}

static json_t *answer(struct forward *f, const struct box_exit *x, struct err *e)
{
	if (f->drained && err_is(e, "left")) {
		if (f->stream)
			forward_hint(f);
		else
			(void)err_replace(e, ERR_UNAVAILABLE,
			    "This server is ending; the command goes on as %s, read its output.", x->cmd);
	}
	if (f->c->reply->begun) {
		if (e->code != ERR_NONE && !f->drained)
			forward_lost(f, e);
		return REPLIED;
	}
	return e->code == ERR_NONE ? outcome(x) : NULL;
}

static json_t *started(const char *cmd, int pid, bool stdin_open)
{
	return js_pack("{s:s,s:i,s:b,s:n,s:n,s:i,s:i,s:b,s:b,s:b,s:i,s:n}", "id", cmd, "pid", pid,
	    "stdinOpen", stdin_open, "exitCode", "signal", "stdoutBytes", 0, "stderrBytes", 0, "timedOut",
	    false, "stopped", false, "oom", false, "durationMs", 0, "message");
}

/* HTTP-7: before it is started, so that it is never started twice. */
static int keep(struct ctx *c, const json_t *in, const char *id, struct err *e)
{
	if (c->once == NULL)
		return 0;
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || once_begin(c, db, e) != 0)
		return -1;
	json_t *made = js_pack("{s:s, s:s, s:b, s:b, s:b, s:I}", "id", js_str_or(in, "id", ""), "cmd", id,
	    "stream", js_bool(in, "stream", false), "detach", js_bool(in, "detach", false), "stdinOpen",
	    js_bool(in, "stdinOpen", false), "timeoutSec",
	    (json_int_t)js_int(in, "timeoutSec", LIMIT_COMMAND_DEFAULT_S));
	return once_commit(c, db, false, made, e);
}

/* A command that is lost because its sandbox was ended has an end that is known. */
static void name_the_end(struct ctx *c, const struct box_addr *a, struct err *e)
{
	struct err ignored = { 0 };
	if (!err_is(e, "lost"))
		return;
	auto_pg struct pg *db = handler_db(c, &ignored);
	if (db == NULL || !box_was_ended(db, c->who->org, a->id))
		return;
	(void)err_replace(e, ERR_CONFLICT, "The sandbox was ended while the command ran.");
	e->reason = "ended";
}

static json_t *run_cmd(struct forward *f, const struct box_addr *a, const struct box_cmd *cmd, struct err *e)
{
	struct box_exit x;
	int rc = box_run(a, cmd, &x, e);
	bool may_run = err_is(e, "left") || err_is(e, "lost");
	if (rc != 0 && !cmd->follow && !may_run)
		once_undo(f->c);
	name_the_end(f->c, a, e);
	if (f->to != NULL)
		narrate_outcome(f->to, &x, e);
	json_t *out = answer(f, &x, e);
	box_exit_free(&x);
	return out;
}

static json_t *detach(struct ctx *c, const struct box_addr *a, const struct box_cmd *cmd, struct err *e)
{
	struct box_started s;
	if (box_start(a, cmd, &s, e) == 0)
		return started(s.cmd, s.pid, cmd->stdin_open);
	if (!err_is(e, "lost"))
		once_undo(c);
	return NULL;
}

static json_t *run(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	char id[ID_MAX];
	const char *session = js_str(in, "session"), *command = js_str(in, "command"),
		   *text = js_str(in, "stdin");
	id_make("cmd", id);
	if (check(in, e) != 0 || session_check(c, session, e) != 0 || sandbox_use(c, in, &a, e) != 0 ||
	    keep(c, in, id, e) != 0)
		return NULL;
	auto_narrate struct narrator *to = session == NULL
	    ? NULL
	    : narrate_new(&(struct narrate_to){ .db = c->db, .org = c->who->org, .session = session });
	struct forward f = {
		.c = c, .to = to, .stream = js_bool(in, "stream", false), .last_ms = clock_ms()
	};
	auto_json json_t *argv = command == NULL ? json_incref(js_get(in, "argv"))
						 : js_pack("[s,s,s]", "sh", "-c", command);
	bool detached = js_bool(in, "detach", false);
	const struct box_cmd cmd = {
		.id = id,
		.argv = argv,
		.dir = js_str(in, "dir"),
		.env = js_get(in, "env"),
		.stdin_p = text,
		.stdin_n = text == NULL ? 0 : strlen(text),
		.stdin_open = js_bool(in, "stdinOpen", false),
		.timeout_s = js_int(in, "timeoutSec", detached ? 0 : LIMIT_COMMAND_DEFAULT_S),
		.on_line = f.stream || to != NULL ? forward_line : NULL,
		.cancelled = forward_cancelled,
		.leave = true,
		.arg = &f,
	};
	return detached ? detach(c, &a, &cmd, e) : run_cmd(&f, &a, &cmd, e);
}

static json_t *unknown(const char *cmd, struct err *e)
{
	(void)err_replace(e, ERR_CONFLICT,
	    "It is not known whether the first request started %s; look what is there, and take a new key.",
	    cmd);
	e->reason = "outcome_unknown";
	return NULL;
}

static json_t *detach_again(const struct box_addr *a, const json_t *made, struct err *e)
{
	const char *cmd = js_str_or(made, "cmd", "");
	auto_json json_t *now = box_command(a, cmd, 0, NULL, NULL, e);
	if (now != NULL)
		return started(cmd, (int)js_int(now, "pid", 0), js_bool(made, "stdinOpen", false));
	return e->code == ERR_NOT_FOUND ? unknown(cmd, e) : NULL;
}

/* A repetition attaches to the command that the first one started. */
static json_t *run_again(struct ctx *c, json_t *made, struct err *e)
{
	struct box_addr a;
	if (sandbox_use(c, made, &a, e) != 0)
		return NULL;
	if (js_bool(made, "detach", false))
		return detach_again(&a, made, e);
	struct forward f = {
		.c = c, .stream = js_bool(made, "stream", false), .announce = true, .last_ms = clock_ms()
	};
	(void)snprintf(f.cmd, sizeof f.cmd, "%s", js_str_or(made, "cmd", ""));
	const struct box_cmd cmd = {
		.id = f.cmd,
		.follow = true,
		.timeout_s = js_int(made, "timeoutSec", LIMIT_COMMAND_DEFAULT_S),
		.on_line = forward_line,
		.cancelled = forward_cancelled,
		.leave = true,
		.arg = &f,
	};
	json_t *out = run_cmd(&f, &a, &cmd, e);
	if (out != NULL || !err_is(e, "unknown"))
		return out;
	return unknown(f.cmd, e);
}

/* ---- read again */

/* STR-3: where the query says nothing, the id of the last event. 1: that was the command's end. */
static int resume_point(struct ctx *c, const json_t *in, long long from[2], struct err *e)
{
	const char *id = reply_param(c, "HTTP_LAST_EVENT_ID");
	struct str rest = str_of(id), part;
	if (rest.n == 0 || js_get(in, "from") != NULL || js_get(in, "fromStderr") != NULL)
		return 0;
	for (int i = 0; i < 2; i++)
		if (!str_cut(&rest, '-', &part) ||
		    !str_int(mem_strn(c->mem, part.p, part.n), 0, INT64_MAX, &from[i]))
			return err_field(e, ERR_BAD_REQUEST, "Last-Event-ID",
			    "`Last-Event-ID` must be the `id` of an event of this command.");
	return str_eq(rest, &FORWARD_END[1]);
}

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
	int ended = resume_point(c, in, from, e);
	if (ended < 0 || sandbox_use(c, in, &a, e) != 0)
		return NULL;
	if (ended > 0) /* the HTML standard: 204 tells an EventSource not to come back */
		return reply_begin(c, 204, NULL), REPLIED;
	struct forward f = { .c = c, .stream = true, .at = { from[0], from[1] }, .last_ms = clock_ms() };
	(void)snprintf(f.cmd, sizeof f.cmd, "%s", cmd);
	int rc = box_output(&a, cmd, from, only, forward_line, forward_cancelled, &f, e);
	if (!c->reply->begun)
		return NULL;
	if (rc != 0 && err_is(e, "lost")) {
		name_the_end(c, &a, e);
		forward_lost(&f, e);
	} else if (rc != 0) /* the node or we are restarting: the command goes on */
		forward_hint(&f);
	return REPLIED;
}

const struct op sandbox_run_ops[] = {
	{
	    .id = "run_in_sandbox",
	    .routes = { { "POST", "/v1/sandboxes/run" }, { "POST", "/v1/sandboxes/{id}/run" } },
	    .summary = "Run a command",
	    .doc = "Answers when it has ended, with its exit and the end of its output; a non-zero exit is "
		   "an answer, not an error. It outlives this request: read_command reads it again.",
	    .scope = "sandboxes",
	    .in = run_in,
	    .out = run_out,
	    .line = line_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_STREAM | OP_ONCE | OP_KEEPS,
	    .max_body_bytes = RUN_BODY_BYTES,
	    .run = run,
	    .again = run_again,
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
