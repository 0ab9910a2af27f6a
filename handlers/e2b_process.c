/*
 * e2b_process.c - commands at the door of the E2B SDK: process.Process (SBX-40…46, ECO-3). There a command is named by its pid, here by
 * our id: of those that run, one has that pid.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "handlers/e2b.h"
#include "op/connect.h"

enum { START_BYTES = 2 << 20, INPUT_BODY_BYTES = 2 << 20, INPUT_WAIT_S = 10, AGAIN_MS = 60 * 1000 };

/* ---- a command's lines as events of theirs */

struct stream {
	struct ctx *c;
	bool pty;       /* what it writes comes from its terminal */
	bool announced; /* its pid was told */
	bool ended, gone, drained;
	int pid; /* told where no line tells it */
	long long at[2];
	int64_t last_ms;
	struct err how; /* its end was none that is told as an exit */
};

static void event(struct stream *s, json_t *e)
{
	if (!s->c->reply->begun && connect_begin(s->c) != 0)
		s->gone = true;
	if (connect_send(s->c, js_pack("{s:o}", "event", e)) != 0)
		s->gone = true;
	s->last_ms = clock_ms();
}

static void announce(struct stream *s, int pid)
{
	if (!s->announced)
		event(s, js_pack("{s:{s:i}}", "start", "pid", pid));
	s->announced = true;
}

static void data(struct stream *s, const json_t *line, int i)
{
	const char *text = js_str_or(line, "data", "");
	size_t n = strlen(text);
	auto_free char *b64 = NULL;
	long long bytes = (long long)n;
	if (strcmp(js_str_or(line, "enc", "utf8"), "base64") == 0) {
		bytes = (long long)(n / 4 * 3) - (n > 0 && text[n - 1] == '=') -
		    (n > 1 && text[n - 2] == '=');
	} else {
		b64 = xcalloc(1, B64_SIZE(n));
		(void)b64_encode(text, n, b64);
		text = b64;
	}
	s->at[i] = js_int(line, "offset", s->at[i]) + bytes;
	event(s, js_pack("{s:{s:s}}", "data", s->pty ? "pty" : i == 0 ? "stdout" : "stderr", text));
}

/* As Go says it, whose daemon the SDK is made for. */
static const char *go_signal(struct mem *m, const char *name)
{
	static const char *const words[][2] = { { "SIGKILL", "killed" }, { "SIGTERM", "terminated" },
		{ "SIGINT", "interrupt" }, { "SIGHUP", "hangup" }, { "SIGSEGV", "segmentation fault" },
		{ "SIGABRT", "aborted" }, { "SIGPIPE", "broken pipe" }, { NULL, NULL } };
	for (size_t i = 0; words[i][0] != NULL; i++)
		if (strcmp(name, words[i][0]) == 0)
			return mem_fmt(m, "signal: %s", words[i][1]);
	return mem_fmt(m, "signal: %s", name);
}

static void ended(struct stream *s, const json_t *line)
{
	struct mem *m = s->c->mem;
	const char *sig = js_str(line, "signal"), *message = js_str(line, "message");
	long long code = sig == NULL ? js_int(line, "exitCode", -1) : -1;
	s->ended = true;
	if (js_bool(line, "timedOut", false)) {
		(void)err_set(&s->how, ERR_TIMEOUT,
		    "The command's time ran out, and it was killed with all it started.");
		return;
	}
	const char *status = sig != NULL ? go_signal(m, sig) : mem_fmt(m, "exit status %lld", code);
	json_t *end = js_pack(
	    "{s:I,s:b,s:s}", "exitCode", (json_int_t)code, "exited", sig == NULL, "status", status);
	if (message != NULL)
		js_set_str(end, "error", mem_fmt(m, "%s: %s", status, message));
	else if (code != 0)
		js_set_str(end, "error", status);
	event(s, js_pack("{s:o}", "end", end));
}

static int on_line(void *arg, const json_t *line)
{
	struct stream *s = arg;
	const char *type = js_str_or(line, "type", "");
	if (strcmp(type, "start") == 0)
		announce(s, (int)js_int(line, "pid", 0));
	else if (strcmp(type, "stdout") == 0)
		data(s, line, 0);
	else if (strcmp(type, "stderr") == 0)
		data(s, line, 1);
	else if (strcmp(type, "exit") == 0)
		ended(s, line);
	return s->gone ? -1 : 0;
}

static bool cancelled(void *arg)
{
	struct stream *s = arg;
	if (s->announced && clock_ms() - s->last_ms >= LIMIT_PING_S * 1000)
		event(s, js_pack("{s:{}}", "keepalive"));
	s->gone = s->gone || reply_gone(s->c);
	s->drained = s->drained || reply_draining(s->c);
	return s->gone || s->drained;
}

/* The last message. The command goes on where only this stream ends. */
static json_t *finish(struct stream *s, struct err *e)
{
	if (s->drained && !s->ended) {
		(void)err_replace(e, ERR_UNAVAILABLE,
		    "This server is ending; the command goes on: connect to its pid again.");
	}
	if (s->ended)
		*e = s->how;
	if (!s->c->reply->begun && e->code != ERR_NONE)
		return NULL;
	connect_end(s->c, e);
	return REPLIED;
}

/* ---- Start */

static json_t *arguments(const json_t *process, struct err *e)
{
	const char *cmd = js_str_or(process, "cmd", "");
	auto_json json_t *argv = js_pack("[s]", cmd);
	size_t i;
	json_t *v;
	if (cmd[0] == '\0') {
		err_field(e, ERR_BAD_REQUEST, "process.cmd", "`process.cmd` is missing.");
		return NULL;
	}
	json_array_foreach(js_get(process, "args"), i, v) {
		if (!json_is_string(v)) {
			err_field(e, ERR_BAD_REQUEST, "process.args", "`process.args` holds strings.");
			return NULL;
		}
		js_push(argv, json_incref(v));
	}
	return steal(argv);
}

/* In the arena; who has a terminal is told of which kind. */
static int environment(struct ctx *c, const json_t *process, bool pty, const json_t **env, struct err *e)
{
	const char *name;
	json_t *v, *given = js_get(process, "envs");
	json_t *own = mem_json(c->mem, json_is_object(given) ? json_copy(given) : json_object());
	*env = own;
	if (pty && js_get(own, "TERM") == NULL)
		js_set_str(own, "TERM", "xterm-256color");
	json_object_foreach(own, name, v)
		if (name[0] == '\0' || strchr(name, '=') != NULL || !json_is_string(v))
			return err_field(e, ERR_BAD_REQUEST, "process.envs",
			    "A variable's name cannot be empty or hold \"=\", and its value is a string.");
	return 0;
}

/* Of pty {size {cols, rows}}. */
static int size_of(const json_t *pty, int *cols, int *rows, struct err *e)
{
	const json_t *size = js_get(pty, "size");
	long long w = js_int(size, "cols", 0), h = js_int(size, "rows", 0);
	if (w < 1 || w > UINT16_MAX || h < 1 || h > UINT16_MAX)
		return err_field(e, ERR_BAD_REQUEST, "pty.size",
		    "`pty.size` has `cols` and `rows` from 1 to %d.", UINT16_MAX);
	*cols = (int)w;
	*rows = (int)h;
	return 0;
}

/* Whole seconds, not less than asked; 0: until the lease ends. */
static int time_of(struct ctx *c, long long *s, struct err *e)
{
	long long ms;
	if (connect_timeout(c, &ms, e) != 0)
		return -1;
	*s = (ms + 999) / 1000;
	if (*s <= LIMIT_COMMAND_S)
		return 0;
	return err_set(e, ERR_BAD_REQUEST,
	    "A command's `timeoutMs` is at most %d, or 0 for one that runs until the sandbox ends.",
	    LIMIT_COMMAND_S * 1000);
}

static json_t *start(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	struct box_exit x;
	(void)in;
	auto_json json_t *q = connect_read(c, START_BYTES, e);
	const json_t *process = js_get(q, "process"), *pty = js_get(q, "pty");
	struct stream s = { .c = c, .pty = pty != NULL, .last_ms = clock_ms() };
	struct box_cmd cmd = {
		.dir = js_str(process, "cwd"),
		.stdin_open = js_bool(q, "stdin", false),
		.on_line = on_line,
		.cancelled = cancelled,
		.leave = true,
		.arg = &s,
	};
	if (q == NULL)
		return NULL;
	if (js_get(q, "tag") != NULL)
		return err_field(e, ERR_BAD_REQUEST, "tag", "Tags are not offered; use the pid."), NULL;
	auto_json json_t *argv = arguments(process, e);
	cmd.argv = argv;
	if (argv == NULL || (pty != NULL && size_of(pty, &cmd.cols, &cmd.rows, e) != 0) ||
	    environment(c, process, pty != NULL, &cmd.env, e) != 0 || time_of(c, &cmd.timeout_s, e) != 0 ||
	    e2b_basic_user(c, e) != 0 || e2b_use(c, &a, e) != 0)
		return NULL;
	(void)box_run(&a, &cmd, &x, e);
	box_exit_free(&x);
	return finish(&s, e);
}

/* ---- by pid */

/* The running command of `process` {pid}. New reference. */
static json_t *find(const struct box_addr *a, const json_t *q, struct err *e)
{
	const json_t *process = js_get(q, "process");
	long long pid = js_int(process, "pid", 0);
	size_t i;
	json_t *v;
	if (js_get(process, "tag") != NULL)
		return err_field(e, ERR_BAD_REQUEST, "tag", "Tags are not offered; use the pid."), NULL;
	auto_json json_t *all = box_commands(a, e);
	json_array_foreach(js_get(all, "data"), i, v)
		if (js_int(v, "pid", -1) == pid && strcmp(js_str_or(v, "state", ""), "running") == 0)
			return json_incref(v);
	err_set(e, ERR_NOT_FOUND, "No command runs with pid %lld.", pid);
	return NULL;
}

/* Its output from now on, over as many connections to its node as it takes. */
static void follow(struct stream *s, const struct box_addr *a, const char *cmd, struct err *e)
{
	int64_t away_ms = clock_ms() + AGAIN_MS;
	while (!s->ended && !cancelled(s)) {
		long long before = s->at[0] + s->at[1];
		err_clear(e);
		int rc = box_output(a, cmd, s->at, 0, on_line, cancelled, s, e);
		bool away = e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT ||
		    (e->code == ERR_UPSTREAM && e->reason == NULL);
		if (rc == 0 || s->at[0] + s->at[1] > before)
			away_ms = clock_ms() + AGAIN_MS;
		if (rc != 0 && (!away || clock_ms() >= away_ms))
			return;
	}
	err_clear(e);
}

static json_t *join(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	(void)in;
	auto_json json_t *q = connect_read(c, START_BYTES, e);
	if (q == NULL || e2b_use(c, &a, e) != 0)
		return NULL;
	auto_json json_t *cmd = find(&a, q, e);
	if (cmd == NULL)
		return NULL;
	struct stream s = { .c = c,
		.pty = js_bool(cmd, "pty", false),
		.at = { js_int(cmd, "stdoutBytes", 0), js_int(cmd, "stderrBytes", 0) },
		.last_ms = clock_ms() };
	announce(&s, (int)js_int(cmd, "pid", 0));
	follow(&s, &a, js_str_or(cmd, "id", ""), e);
	return finish(&s, e);
}

static json_t *listed(const json_t *cmd)
{
	json_t *args = json_array(), *argv = js_get(cmd, "argv");
	for (size_t i = 1; i < json_array_size(argv); i++)
		js_push(args, json_incref(json_array_get(argv, i)));
	const char *program = json_string_value(json_array_get(argv, 0)), *dir = js_str(cmd, "dir");
	json_t *config = js_pack(
	    "{s:s,s:o,s:{}}", "cmd", program == NULL ? "" : program, "args", args, "envs");
	if (dir != NULL)
		js_set_str(config, "cwd", dir);
	return js_pack("{s:o,s:I}", "config", config, "pid", (json_int_t)js_int(cmd, "pid", 0));
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	size_t i;
	json_t *v;
	(void)in;
	auto_json json_t *all = e2b_use(c, &a, e) != 0 ? NULL : box_commands(&a, e), *out = json_array();
	if (all == NULL)
		return NULL;
	json_array_foreach(js_get(all, "data"), i, v)
		if (strcmp(js_str_or(v, "state", ""), "running") == 0)
			js_push(out, listed(v));
	return js_pack("{s:O}", "processes", out);
}

static json_t *send_input(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const json_t *input = js_get(in, "input");
	const char *text = js_str(input, "stdin");
	text = text == NULL ? js_str_or(input, "pty", "") : text;
	size_t n = strlen(text);
	unsigned char *bytes = mem_alloc(c->mem, n + 1);
	ssize_t got = b64_decode(text, n, bytes);
	if (got < 0)
		return err_field(e, ERR_BAD_REQUEST, "input", "`input` is not base64."), NULL;
	auto_json json_t *cmd = e2b_use(c, &a, e) != 0 ? NULL : find(&a, in, e);
	if (cmd == NULL)
		return NULL;
	if (got == 0)
		return json_object();
	const struct box_input feed = { .p = bytes, .n = (size_t)got, .offset = -1, .wait_s = INPUT_WAIT_S };
	auto_json json_t *now = box_input(&a, js_str_or(cmd, "id", ""), &feed, e);
	if (now == NULL)
		return NULL;
	if (js_int(now, "taken", 0) == got)
		return json_object();
	err_set(e, ERR_TIMEOUT, "The command does not read: it has taken %lld of %lld bytes.",
	    js_int(now, "taken", 0), (long long)got);
	return NULL;
}

static json_t *close_input(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	auto_json json_t *cmd = e2b_use(c, &a, e) != 0 ? NULL : find(&a, in, e);
	if (cmd == NULL)
		return NULL;
	const struct box_input end = { .p = "", .close = true, .offset = -1, .wait_s = INPUT_WAIT_S };
	auto_json json_t *now = box_input(&a, js_str_or(cmd, "id", ""), &end, e);
	return now == NULL ? NULL : json_object();
}

static json_t *update(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	int cols, rows;
	const json_t *pty = js_get(in, "pty");
	if (pty == NULL)
		return json_object(); /* nothing else can be updated */
	if (size_of(pty, &cols, &rows, e) != 0 || e2b_use(c, &a, e) != 0)
		return NULL;
	auto_json json_t *cmd = find(&a, in, e);
	if (cmd == NULL || box_resize(&a, js_str_or(cmd, "id", ""), cols, rows, e) != 0)
		return NULL;
	return json_object();
}

/* JSON has an enum's name or its number. */
static int signal_of(const json_t *in)
{
	const char *name = js_str_or(in, "signal", "");
	long long n = js_int(in, "signal", 0);
	if (n == SIGKILL || strcmp(name, "SIGNAL_SIGKILL") == 0)
		return SIGKILL;
	return n == SIGTERM || strcmp(name, "SIGNAL_SIGTERM") == 0 ? SIGTERM : 0;
}

static json_t *send_signal(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	int sig = signal_of(in);
	if (sig == 0)
		return err_field(
			   e, ERR_BAD_REQUEST, "signal", "`signal` is SIGNAL_SIGKILL or SIGNAL_SIGTERM."),
		       NULL;
	auto_json json_t *cmd = e2b_use(c, &a, e) != 0 ? NULL : find(&a, in, e);
	if (cmd == NULL)
		return NULL;
	/* What is killed is killed with all that it started. */
	auto_json json_t *got = box_signal(
	    &a, js_str_or(cmd, "id", ""), sig, sig == SIGKILL ? "tree" : "group", e);
	return got == NULL ? NULL : json_object();
}

static json_t *health(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	(void)in;
	if (e2b_use(c, &a, e) != 0)
		return NULL;
	(void)reply_begin(c, 204, NULL);
	return REPLIED;
}

static const struct param process_in[] = {
	IN(T_OBJ, "process", "{pid}", NULL),
	IN(T_OBJ, "input", "{stdin} or {pty}, in base64.", NULL),
	IN(T_OBJ, "pty", "{size {cols, rows}}", NULL),
	IN(T_ANY, "signal", "Its name or number.", NULL),
	{ 0 },
};

#define STREAM                                                                                               \
	.scope = "sandboxes", .status = 200, .flags = E2B_INSIDE | OP_STREAM | OP_RAW_IN | OP_RAW_OUT,       \
	.max_body_bytes = START_BYTES + CONNECT_HEAD, .refuse = e2b_refuse_stream
#define UNARY                                                                                                \
	.scope = "sandboxes", .status = 200, .in = process_in, .flags = E2B_INSIDE, .refuse = e2b_refuse_unary
const struct op e2b_process_ops[] = {
	{ .id = "e2b_health",
	    .routes = { { "GET", "/health" } },
	    .summary = "Does the sandbox run",
	    .scope = "sandboxes",
	    .status = 204,
	    .flags = E2B_INSIDE,
	    .run = health,
	    .refuse = e2b_refuse },
	{ .id = "e2b_start",
	    .routes = { { "POST", "/process.Process/Start" } },
	    .summary = "Run a command",
	    STREAM,
	    .run = start },
	{ .id = "e2b_join",
	    .routes = { { "POST", "/process.Process/Connect" } },
	    .summary = "A running command's output from now on",
	    STREAM,
	    .run = join },
	{ .id = "e2b_processes",
	    .routes = { { "POST", "/process.Process/List" } },
	    .summary = "What runs",
	    UNARY,
	    .run = list },
	{ .id = "e2b_input",
	    .routes = { { "POST", "/process.Process/SendInput" } },
	    .summary = "Write to a command's standard input",
	    UNARY,
	    .max_body_bytes = INPUT_BODY_BYTES,
	    .run = send_input },
	{ .id = "e2b_close_input",
	    .routes = { { "POST", "/process.Process/CloseStdin" } },
	    .summary = "End a command's standard input",
	    UNARY,
	    .run = close_input },
	{ .id = "e2b_resize",
	    .routes = { { "POST", "/process.Process/Update" } },
	    .summary = "A terminal's new size",
	    UNARY,
	    .run = update },
	{ .id = "e2b_signal",
	    .routes = { { "POST", "/process.Process/SendSignal" } },
	    .summary = "Kill or terminate a command",
	    UNARY,
	    .run = send_signal },
	{ 0 },
};
