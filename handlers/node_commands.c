/*
 * node_commands.c - commands at the internal door of a node: started, read, told of, fed, signalled, stopped (SBX-40…46).
 * Invariant: a command is named by the API's id, which is its label in the box; numbers of the box stay on this side.
 */
#include "handlers/node.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "sandbox/relay.h"

enum {
	START_MS = 20 * 1000,
	CALL_MS = 5000,
	LOOK_MS = 500,            /* whether the caller is still there, while it waits */
	RUN_BODY_BYTES = 6 << 20, /* standard input and arguments, in base64 at worst */
	ARG_MAX_BYTES = 1 << 20,
};

static const char *const encs[] = { "utf8", "base64", NULL };
static const char *const streams[] = { "stdout", "stderr", NULL };
static const char *const targets[] = { "process", "group", "tree", NULL };
static const struct param arg = { .type = T_STR, .max = ARG_MAX_BYTES, .doc = "One argument." };
static const struct param value = { .type = T_STR, .max = ARG_MAX_BYTES, .doc = "Its value." };

#define COMMAND IN_REQUIRED(T_STR, "cmd", "The command.", NULL, .max = ID_MAX)
#define SIZE                                                                                                 \
	IN_REQUIRED(T_INT, "cols", "Columns.", NULL, .min = 1, .max = UINT16_MAX),                           \
	    IN_REQUIRED(T_INT, "rows", "Rows.", NULL, .min = 1, .max = UINT16_MAX)
static const struct param size_fields[] = { SIZE, { 0 } };
static const struct param resize_in[] = { NODE_ID, COMMAND, SIZE, { 0 } };
static const struct param run_in[] = {
	NODE_ID,
	IN_REQUIRED(T_STR, "cmd", "What the caller calls it.", NULL, .min = ID_TAIL, .max = ID_MAX),
	IN_REQUIRED(T_ARR, "argv", "The command, exactly.", NULL, .min = 1, .max = 4000, .fields = &arg),
	IN(T_STR, "dir", "Where it runs; the working directory.", NULL, .max = LIMIT_PATH_BYTES),
	IN(T_MAP, "env", "Laid over the lease's.", NULL, .max = 1000, .fields = &value),
	IN(T_STR, "stdin", "Its standard input.", NULL, .max = RUN_BODY_BYTES),
	IN(T_ENUM, "stdinEnc", "How `stdin` is written.", NULL, .values = encs),
	IN(T_STR, "stdinFile", "Or a file of the sandbox.", NULL, .max = LIMIT_PATH_BYTES),
	IN_REQUIRED(T_INT, "timeoutSec", "After which it is killed; 0: at the end of the lease.", NULL,
	    .min = 0, .max = LIMIT_RUN_S),
	IN(T_BOOL, "stream", "Everything as it comes; else the tail at the end.", NULL),
	IN(T_BOOL, "detach", "Only its start is told.", NULL),
	IN(T_BOOL, "stdinOpen", "Its standard input is written to later.", NULL),
	IN(T_OBJ, "pty", "It gets a terminal of this size.", NULL, .fields = size_fields),
	{ 0 },
};
static const struct param output_in[] = {
	NODE_ID,
	COMMAND,
	IN(T_INT, "from", "First byte of stdout, or of the one `stream`.", NULL, .max = INT64_MAX),
	IN(T_INT, "fromStderr", "First byte of stderr.", NULL, .max = INT64_MAX),
	IN(T_ENUM, "stream", "Only this one.", NULL, .values = streams),
	{ 0 },
};
static const struct param list_in[] = { NODE_ID, { 0 } };
static const struct param get_in[] = {
	NODE_ID,
	COMMAND,
	IN(T_INT, "waitSec", "Wait so long for its end.", NULL, .max = 600),
	{ 0 },
};
static const struct param stdin_in[] = {
	NODE_ID,
	COMMAND,
	IN_REQUIRED(T_STR, "data", "In base64.", NULL, .max = RUN_BODY_BYTES),
	IN(T_BOOL, "close", "Its end comes after that.", NULL),
	IN(T_INT, "offset", "Where the data belong.", NULL, .max = INT64_MAX),
	IN_REQUIRED(T_INT, "waitSec", "For a command that does not read.", NULL, .max = 600),
	{ 0 },
};
static const struct param signal_in[] = {
	NODE_ID,
	COMMAND,
	IN_REQUIRED(T_INT, "signal", "Its number.", NULL, .min = 1, .max = 64),
	IN_REQUIRED(T_ENUM, "to", "Who gets it.", NULL, .values = targets),
	{ 0 },
};
static const struct param stop_in[] = {
	NODE_ID,
	IN(T_STR, "cmd", "Only this command.", NULL, .max = ID_MAX),
	{ 0 },
};
static const char *const *strings(struct mem *m, const json_t *array)
{
	const char **list = mem_alloc(m, (json_array_size(array) + 1) * sizeof *list);
	size_t i;
	json_t *v;
	json_array_foreach(array, i, v)
		list[i] = json_string_value(v);
	return list;
}

static const char *const *assignments(struct mem *m, json_t *env)
{
	const char **list = mem_alloc(m, (json_object_size(env) + 1) * sizeof *list);
	const char *name;
	json_t *v;
	size_t n = 0;
	json_object_foreach(env, name, v)
		list[n++] = mem_fmt(m, "%s=%s", name, json_string_value(v));
	return list;
}

static int standard_input(struct mem *m, const json_t *in, struct channel_spec *s, struct err *e)
{
	struct str given;
	if (js_bytes(m, in, "stdin", "stdinEnc", &given, e) != 0)
		return -1;
	if (js_get(in, "stdin") != NULL)
		s->stdin_p = given.p;
	s->stdin_n = given.n;
	if (given.n > PROTO_STDIN_MAX)
		return err_field(e, ERR_TOO_LARGE, "stdin",
		    "`stdin` is longer than %d bytes; write a file instead.", PROTO_STDIN_MAX);
	return 0;
}

struct placing {
	struct held *held;
	const char *cmd;
};

static int place(void *arg_, uint32_t number, pid_t pid, struct err *e)
{
	const struct placing *p = arg_;
	(void)number;
	return held_place(p->held, p->cmd, pid, e);
}

static json_t *run(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	if (h == NULL)
		return NULL;
	const char *cmd = js_str_or(in, "cmd", "");
	if (!id_is("cmd", cmd)) { /* it names a control group */
		err_field(e, ERR_BAD_REQUEST, "cmd", "`cmd` is not the id of a command.");
		return NULL;
	}
	bool stream = js_bool(in, "stream", false), detach = js_bool(in, "detach", false);
	struct placing p = { h, cmd };
	struct channel_spec s = {
		.argv = strings(c->mem, js_get(in, "argv")),
		.env = assignments(c->mem, js_get(in, "env")),
		.dir = js_str(in, "dir"),
		.label = cmd,
		.stdin_path = js_str(in, "stdinFile"),
		.stdin_open = js_bool(in, "stdinOpen", false),
		.pty = js_get(in, "pty") != NULL,
		.cols = (uint16_t)js_int(js_get(in, "pty"), "cols", 0),
		.rows = (uint16_t)js_int(js_get(in, "pty"), "rows", 0),
		.timeout_ms = js_int(in, "timeoutSec", 1) * 1000,
		.live = stream && !detach,
		.place = place,
		.arg = &p,
	};
	struct channel_wait w = { .deadline_ms = clock_ms() + START_MS };
	struct relay_opts o = { .held = h, .cmd = cmd, .tail = !stream };
	if (standard_input(c->mem, in, &s, e) != 0)
		return NULL;
	long long oom_kills = held_oom_kills(h);
	struct channel_cmd *k = channel_start(held_channel(h), &s, &w, e);
	if (k == NULL)
		return NULL;
	held_began(h, cmd, oom_kills);
	o.number = channel_cmd_id(k);
	pid_t pid = channel_cmd_pid(k);
	if (detach) {
		channel_cmd_close(k);
		return js_pack("{s:s,s:i}", "id", cmd, "pid", (int)pid);
	}
	if (!stream) {
		channel_cmd_close(k);
		k = channel_follow(
		    held_channel(h), o.number, e); /* NULL when it is lost already: relay_run tells */
	}
	if (reply_begin(c, 200, "application/x-ndjson") == 0)
		(void)reply_line(c, js_pack("{s:s,s:s,s:i}", "type", "start", "id", cmd, "pid", (int)pid));
	relay_run(c, &o, k);
	return REPLIED;
}

/* Nobody was ever told of bytes that do not exist: who asks for them is mistaken, and would wait for ever. */
static int check_offsets(
    struct held *h, const struct relay_opts *o, const char *const names[2], struct err *e)
{
	struct channel_wait w = { .deadline_ms = clock_ms() + CALL_MS };
	struct channel_item *item = NULL;
	int n = channel_list(held_channel(h), o->number, &w, &item, e);
	auto_free struct channel_item *mine = item;
	if (n < 0)
		return -1;
	for (int i = 0; i < 2 && n > 0; i++)
		if (o->from[i] > mine->exit.bytes[i])
			return err_field(e, ERR_BAD_REQUEST, names[i],
			    "`%s` is %llu, but the command has written %llu bytes to %s.", names[i],
			    (unsigned long long)o->from[i], (unsigned long long)mine->exit.bytes[i],
			    i == 0 ? "stdout" : "stderr");
	return 0;
}

static json_t *output(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const char *stream = js_str_or(in, "stream", "");
	uint64_t from = (uint64_t)js_int(in, "from", 0), from_err = (uint64_t)js_int(in, "fromStderr", 0);
	if (h == NULL)
		return NULL;
	struct relay_opts o = { .held = h, .cmd = js_str(in, "cmd"), .from = { from, from_err } };
	if (strcmp(stream, "stderr") == 0)
		o = (struct relay_opts){ .held = h, .cmd = o.cmd, .from = { 0, from }, .only = PROTO_STDERR };
	else if (stream[0] != '\0')
		o.only = PROTO_STDOUT;
	const char *const names[2] = { "from", o.only == PROTO_STDERR ? "from" : "fromStderr" };
	if (held_find(h, o.cmd, &o.number, e) != 0 || check_offsets(h, &o, names, e) != 0)
		return NULL;
	struct channel_cmd *k = channel_resume(held_channel(h), o.number, o.from, false, e);
	if (k == NULL)
		return NULL;
	(void)reply_begin(c, 200, "application/x-ndjson");
	relay_run(c, &o, k);
	return REPLIED;
}

/* ---- told of */

static json_t *arguments(const struct channel_item *t)
{
	json_t *list = json_array();
	const char *p = t->args;
	for (uint32_t i = 0; i < t->n_args; i++, p += strlen(p) + 1)
		js_push(list, js_text(p, strlen(p)));
	return list;
}

static json_t *command_json(struct held *h, const struct channel_item *t)
{
	int oom = held_oom(h, t->label, !t->running);
	const struct channel_exit *x = &t->exit;
	bool code = !t->running && x->signal[0] == '\0';
	json_t *o = js_pack("{s:s,s:i,s:s,s:o,s:b,s:o,s:o,s:s?,s:s?,s:b,s:b}", "id", t->label, "pid",
	    (int)t->pid, "state", t->running ? "running" : "ended", "argv", arguments(t), "argvCut", t->cut,
	    "dir", t->dir[0] == '\0' ? json_null() : js_text(t->dir, strlen(t->dir)), "exitCode",
	    code ? json_integer(x->exit_code) : json_null(), "signal",
	    x->signal[0] == '\0' ? NULL : x->signal, "message", x->message[0] == '\0' ? NULL : x->message,
	    "timedOut", x->timed_out, "stopped", x->stopped);
	js_set(o, "oom", oom < 0 ? json_null() : json_boolean(oom == 1));
	js_set(o, "ageMs", json_integer(t->age_ms));
	js_set(o, "durationMs", json_integer(t->running ? t->age_ms : x->duration_ms));
	js_set(o, "stdoutBytes", json_integer((json_int_t)x->bytes[0]));
	js_set(o, "stderrBytes", json_integer((json_int_t)x->bytes[1]));
	js_set(o, "stdoutFrom", json_integer((json_int_t)t->oldest[0]));
	js_set(o, "stderrFrom", json_integer((json_int_t)t->oldest[1]));
	js_set(o, "pty", json_boolean(t->pty));
	js_set(o, "stdinOpen", json_boolean(t->in_state == PROTO_IN_OPEN));
	js_set(o, "stdinBytes", json_integer((json_int_t)t->in_bytes));
	return o;
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	struct channel_wait w = { .deadline_ms = clock_ms() + CALL_MS };
	struct channel_item *items = NULL;
	int n = h == NULL ? -1 : channel_list(held_channel(h), 0, &w, &items, e);
	auto_free struct channel_item *mine = items;
	if (n < 0)
		return NULL;
	json_t *data = json_array();
	for (int i = 0; i < n; i++)
		if (id_is("cmd", mine[i].label))
			js_push(data, command_json(h, &mine[i]));
	return js_pack("{s:o}", "data", data);
}

static bool caller_gone(void *arg_)
{
	struct ctx *c = arg_;
	return reply_gone(c) || reply_draining(c);
}

/* Until its end, the time, or nobody is left to tell; -1 with e when the channel is lost. */
static int await(struct ctx *c, struct held *h, uint32_t number, long long wait_s, struct err *e)
{
	struct channel_event ev = { .type = CHANNEL_NOTHING };
	struct channel_cmd *k = channel_follow(held_channel(h), number, e);
	struct channel_wait w = {
		.deadline_ms = clock_ms() + wait_s * 1000, .cancelled = caller_gone, .arg = c
	};
	int rc = k == NULL ? -1 : channel_next(k, &w, &ev, e);
	channel_cmd_close(k);
	return rc;
}

static json_t *told(struct held *h, uint32_t number, struct err *e)
{
	struct channel_wait w = { .deadline_ms = clock_ms() + CALL_MS };
	struct channel_item *items = NULL;
	int n = channel_list(held_channel(h), number, &w, &items, e);
	auto_free struct channel_item *mine = items;
	return n < 1 ? NULL : command_json(h, &mine[0]);
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	long long wait_s = js_int(in, "waitSec", 0);
	uint32_t number;
	if (h == NULL || held_find(h, js_str(in, "cmd"), &number, e) != 0 ||
	    (wait_s > 0 && await(c, h, number, wait_s, e) != 0))
		return NULL;
	return told(h, number, e);
}

/* ---- fed and signalled */

static json_t *write_stdin(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	struct str data;
	if (h == NULL || js_bytes(c->mem, in, "data", NULL, &data, e) != 0)
		return NULL;
	uint64_t taken = 0;
	struct channel_input feed = { .p = data.p,
		.n = data.n,
		.close = js_bool(in, "close", false),
		.at = js_get(in, "offset") == NULL ? PROTO_APPEND : (uint64_t)js_int(in, "offset", 0) };
	struct channel_wait w = { .deadline_ms = clock_ms() + js_int(in, "waitSec", 0) * 1000,
		.cancelled = caller_gone,
		.arg = c };
	if (held_find(h, js_str(in, "cmd"), &feed.cmd, e) != 0 ||
	    channel_input(held_channel(h), &feed, &w, &taken, e) != 0)
		return NULL;
	auto_json json_t *now = told(h, feed.cmd, e);
	if (now == NULL)
		return NULL;
	return js_pack("{s:I,s:O,s:O}", "taken", (json_int_t)taken, "stdinBytes",
	    json_object_get(now, "stdinBytes"), "stdinOpen", json_object_get(now, "stdinOpen"));
}

static json_t *send_signal(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const char *cmd = js_str(in, "cmd"), *to = js_str_or(in, "to", "");
	int sig = (int)js_int(in, "signal", 0), processes;
	uint32_t number;
	struct channel_wait w = { .deadline_ms = clock_ms() + CALL_MS };
	enum proto_to who = strcmp(to, "process") == 0 ? PROTO_TO_PROCESS
	    : strcmp(to, "group") == 0                 ? PROTO_TO_GROUP
						       : PROTO_TO_TREE;
	if (h == NULL || held_find(h, cmd, &number, e) != 0 ||
	    channel_signal(held_channel(h), number, sig, who, &w, &processes, e) != 0)
		return NULL;
	if (sig == SIGKILL && who == PROTO_TO_TREE)
		held_sweep(h, cmd); /* what has left the box's sight (SBX-41) */
	return js_pack("{s:i}", "processes", processes);
}

static json_t *resize(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	struct proto_resize s = { .cols = (uint16_t)js_int(in, "cols", 0),
		.rows = (uint16_t)js_int(in, "rows", 0) };
	struct channel_wait w = { .deadline_ms = clock_ms() + CALL_MS };
	if (h == NULL || held_find(h, js_str(in, "cmd"), &s.cmd, e) != 0 ||
	    channel_resize(held_channel(h), &s, &w, e) != 0)
		return NULL;
	return json_object();
}

static json_t *stop(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	int stopped = 0;
	if (h == NULL || held_stop(h, js_str(in, "cmd"), &stopped, e) != 0)
		return NULL;
	return js_pack("{s:i}", "stopped", stopped);
}

#define INTERNAL .scope = "node", .status = 200
#define AT       "/v1/node/sandboxes/{id}"
#define FLAGS    (OP_INTERNAL | OP_PUBLIC | OP_STREAM)
const struct op node_commands_ops[] = {
	{ .id = "node_run",
	    .routes = { { "POST", AT "/run" } },
	    .summary = "Run a command",
	    INTERNAL,
	    .in = run_in,
	    .max_body_bytes = RUN_BODY_BYTES,
	    .flags = FLAGS,
	    .run = run },
	{ .id = "node_commands",
	    .routes = { { "GET", AT "/commands" } },
	    .summary = "Commands that are known",
	    INTERNAL,
	    .in = list_in,
	    .flags = FLAGS,
	    .run = list },
	{ .id = "node_command",
	    .routes = { { "GET", AT "/commands/{cmd}" } },
	    .summary = "One command, at its end if need be",
	    INTERNAL,
	    .in = get_in,
	    .flags = FLAGS,
	    .run = get },
	{ .id = "node_output",
	    .routes = { { "GET", AT "/commands/{cmd}/output" } },
	    .summary = "Read a command's output again",
	    INTERNAL,
	    .in = output_in,
	    .flags = FLAGS,
	    .run = output },
	{ .id = "node_stdin",
	    .routes = { { "POST", AT "/commands/{cmd}/stdin" } },
	    .summary = "Write to a command's standard input",
	    INTERNAL,
	    .in = stdin_in,
	    .max_body_bytes = RUN_BODY_BYTES,
	    .flags = FLAGS,
	    .run = write_stdin },
	{ .id = "node_signal",
	    .routes = { { "POST", AT "/commands/{cmd}/signal" } },
	    .summary = "Send a command a signal",
	    INTERNAL,
	    .in = signal_in,
	    .flags = FLAGS,
	    .run = send_signal },
	{ .id = "node_resize",
	    .routes = { { "POST", AT "/commands/{cmd}/terminal" } },
	    .summary = "A terminal's new size",
	    INTERNAL,
	    .in = resize_in,
	    .flags = FLAGS,
	    .run = resize },
	{ .id = "node_stop",
	    .routes = { { "POST", AT "/stop" } },
	    .summary = "Stop commands",
	    INTERNAL,
	    .in = stop_in,
	    .flags = FLAGS,
	    .run = stop },
	{ 0 },
};
