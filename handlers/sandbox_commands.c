/*
 * sandbox_commands.c - commands by their id, from any API host: list, look and wait, standard input, signals (SBX-46).
 * Invariant: what is known of a command stands in its sandbox; nothing is remembered here.
 */
#include "handlers/sandbox.h"

#include <signal.h>
#include <string.h>

#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"

enum { WAIT_S = 60, INPUT_WAIT_S = 10, INPUT_BODY_BYTES = 2 << 20 };

static const char *const encs[] = { "utf8", "base64", NULL };
static const char *const states[] = { "running", "ended", NULL };
static const char *const targets[] = { "process", "group", "tree", NULL };
static const struct param arg_out = { .type = T_STR, .max = LIMIT_BODY_BYTES, .doc = "One argument." };

#define COMMAND IN_ID("cmd", "The command.", "\"" CMD "\"")

static const struct param command_out[] = {
	OUT(T_STR, "id", "The command.", "\"" CMD "\""),
	OUT(T_INT, "pid", "Its first process, as the sandbox numbers them.", "7"),
	OUT(T_ENUM, "state", "Ended: its exit is settled. Processes that it left behind may live on.",
	    "\"running\"", .values = states),
	OUT(T_ARR, "argv", "What it was started with, the first 1 KiB of it.",
	    "[\"sh\",\"-c\",\"make serve\"]", .fields = &arg_out),
	OUT(T_BOOL, "argvCut", "There is more of `argv` or `dir` than is told.", "false"),
	OUT_NULL(T_STR, "dir", "Where it was started; null: the sandbox's workdir.", "null"),
	OUT_NULL(T_INT, "exitCode", "Null while it runs, and when a signal ended it.", "null"),
	OUT_NULL(T_STR, "signal", "The signal that ended it.", "null"),
	OUT_NULL(T_STR, "message", "Why it could not be executed.", "null"),
	OUT(T_BOOL, "timedOut", "Its time ran out.", "false"),
	OUT(T_BOOL, "stopped", "Somebody stopped it.", "false"),
	OUT_NULL(T_BOOL, "oom",
	    "The sandbox's memory ran out while it ran; null: not known, its node has been restarted since.",
	    "false"),
	OUT(T_INT, "ageMs", "Since it was started.", "31045"),
	OUT(T_INT, "durationMs", "How long it ran, until now if it still does.", "31045"),
	OUT(T_INT, "stdoutBytes", "All that it wrote so far.", "2048"),
	OUT(T_INT, "stderrBytes", "All that it wrote so far.", "0"),
	OUT(T_INT, "stdoutFrom", "The first byte that read_command can still read.", "0"),
	OUT(T_INT, "stderrFrom", "The first byte that read_command can still read.", "0"),
	OUT(T_BOOL, "pty", "It has a terminal: what it writes there is stdout.", "false"),
	OUT(T_BOOL, "stdinOpen", "write_stdin can write to it.", "true"),
	OUT(T_INT, "stdinBytes", "What it was given with write_stdin; it need not have read all of that.",
	    "0"),
	{ 0 },
};
static const struct param list_in[] = { SANDBOX_ID, { 0 } };
static const struct param list_out[] = {
	LIST_OUT(command_out, "Those that run, and the last 64 that have ended, oldest first."),
	{ 0 },
};
static const struct param get_in[] = {
	SANDBOX_ID,
	COMMAND,
	IN(T_INT, "waitSec", "Answer when it has ended, or after this time as it then is.", NULL, .min = 0,
	    .max = WAIT_S),
	{ 0 },
};
static const struct param stdin_in[] = {
	SANDBOX_ID,
	COMMAND,
	IN(T_STR, "data", "What it is given, at most 1 MiB.", "\"yes\\n\"", .max = INPUT_BODY_BYTES),
	IN(T_ENUM, "enc", "How `data` is written; utf8.", "\"utf8\"", .values = encs),
	IN(T_BOOL, "close", "Then its standard input ends, once all is taken.", NULL),
	IN(T_INT, "offset",
	    "Where `data` begins in all that it is given: 409 when it stands elsewhere, so that nothing is "
	    "given twice.",
	    NULL, .max = INT64_MAX),
	IN(T_INT, "waitSec", "How long to wait for a command that does not read; 10 when not given.", NULL,
	    .min = 0, .max = WAIT_S),
	{ 0 },
};
static const struct param stdin_out[] = {
	OUT(T_INT, "taken", "So many bytes of `data` were taken; fewer than there are: it does not read.",
	    "4"),
	OUT(T_INT, "stdinBytes", "All that it was given so far: the next `offset`.", "4"),
	OUT(T_BOOL, "stdinOpen", "It can be given more.", "true"),
	{ 0 },
};
static const struct param signal_in[] = {
	SANDBOX_ID,
	COMMAND,
	IN_REQUIRED(T_STR, "signal", "Its name or number: `TERM`, `SIGTERM`, `RTMIN+1`, `15`.", "\"TERM\"",
	    .min = 1, .max = 16),
	IN(T_ENUM, "to",
	    "`process`: the command itself. `group`: its process group, as a terminal would. `tree`: "
	    "everything that it has started. The group when not given, and for `KILL` the tree.",
	    "\"group\"", .values = targets),
	{ 0 },
};
static const struct param signal_out[] = {
	OUT(T_INT, "processes",
	    "So many got it; 0 is a true answer. After `KILL` to the tree none of it lives.", "1"),
	{ 0 },
};

/* The command of this input; NULL with e when it is no id of ours. */
static const char *command_id(const json_t *in, struct err *e)
{
	const char *cmd = js_str_or(in, "cmd", "");
	if (id_is("cmd", cmd))
		return cmd;
	err_set(e, ERR_NOT_FOUND, "There is no such command.");
	return NULL;
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	json_t *got = box_commands(&a, e);
	if (got != NULL)
		js_set(got, "next", json_null()); /* there are never many */
	return got;
}

static bool gone(void *arg)
{
	struct ctx *c = arg;
	return reply_gone(c) || reply_draining(c);
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *cmd = command_id(in, e);
	if (cmd == NULL || sandbox_use(c, in, &a, e) != 0)
		return NULL;
	int wait_s = (int)js_int(in, "waitSec", 0);
	json_t *got = box_command(&a, cmd, wait_s, wait_s > 0 ? gone : NULL, c, e);
	if (got != NULL || !err_is(e, "cancelled"))
		return got;
	err_clear(e); /* this server is ending: as it is now */
	return box_command(&a, cmd, 0, NULL, NULL, e);
}

static int bytes_of(struct ctx *c, const json_t *in, struct box_input *to, struct err *e)
{
	struct str data;
	if (js_bytes(c->mem, in, "data", "enc", &data, e) != 0)
		return -1;
	to->p = data.p;
	to->n = data.n;
	if (to->n > BOX_INPUT_MAX)
		return err_field(e, ERR_TOO_LARGE, "data", "`data` has more than %d bytes: give it in parts.",
		    BOX_INPUT_MAX);
	if (to->n == 0 && !to->close)
		return err_field(e, ERR_BAD_REQUEST, "data",
		    js_get(in, "data") == NULL ? "Give `data`, or `close`."
					       : "`data` is empty: give a byte at least, or `close`.");
	return 0;
}

static json_t *write_stdin(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *cmd = command_id(in, e);
	struct box_input to = {
		.close = js_bool(in, "close", false),
		.offset = js_int(in, "offset", -1),
		.wait_s = (int)js_int(in, "waitSec", INPUT_WAIT_S),
	};
	if (cmd == NULL || bytes_of(c, in, &to, e) != 0 || sandbox_use(c, in, &a, e) != 0)
		return NULL;
	return box_input(&a, cmd, &to, e);
}

static json_t *send_signal(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *cmd = command_id(in, e);
	int sig = box_signal_number(js_str_or(in, "signal", ""));
	if (cmd == NULL)
		return NULL;
	if (sig == 0) {
		err_field(e, ERR_BAD_REQUEST, "signal",
		    "`signal` is a name such as TERM, or a number from 1 to 64.");
		return NULL;
	}
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	return box_signal(&a, cmd, sig, js_str_or(in, "to", sig == SIGKILL ? "tree" : "group"), e);
}

#define AT "/v1/sandboxes/{id}/commands"
const struct op sandbox_commands_ops[] = {
	{
	    .id = "list_commands",
	    .routes = { { "GET", AT } },
	    .summary = "List a sandbox's commands",
	    .doc = "All that run, detached or not, and the last ones that have ended.",
	    .scope = "sandboxes",
	    .in = list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = list,
	},
	{
	    .id = "get_command",
	    .routes = { { "GET", AT "/{cmd}" } },
	    .summary = "Look at a command, or wait for its end",
	    .doc = "Its state and exit, and which output read_command can still read.",
	    .scope = "sandboxes",
	    .in = get_in,
	    .out = command_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = get,
	},
	{
	    .id = "write_stdin",
	    .routes = { { "POST", AT "/{cmd}/stdin" } },
	    .summary = "Write to a command's standard input",
	    .doc = "Of a command that was started with `stdinOpen`. 409 when nobody reads it any more, or it "
		   "was closed.",
	    .scope = "sandboxes",
	    .in = stdin_in,
	    .out = stdin_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .max_body_bytes = INPUT_BODY_BYTES,
	    .run = write_stdin,
	},
	{
	    .id = "signal_command",
	    .routes = { { "POST", AT "/{cmd}/signal" } },
	    .summary = "Send a command a signal",
	    .doc = "Any signal. To end a command for sure take `KILL`, which is answered when nothing of it "
		   "lives.",
	    .scope = "sandboxes",
	    .in = signal_in,
	    .out = signal_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = send_signal,
	},
	{ 0 },
};
