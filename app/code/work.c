#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/redact.h"
#include "base/str.h"
#include "code/run.h"
#include "code/tool.h"
#include "session/narrate.h"

/* The commit's author is the agent, never a person (COD-16); the identity rides the invocation (COD-7). */
#define AGENT_NAME  "gatehouse agent"
#define AGENT_EMAIL "agent@gatehouse.invalid"

enum { INSIDE_S = 300, SAID_BYTES = 300 };

static json_t *identity(void)
{
	return js_pack("{s:s,s:s,s:s,s:s,s:s}", "GIT_AUTHOR_NAME", AGENT_NAME, "GIT_AUTHOR_EMAIL",
	    AGENT_EMAIL, "GIT_COMMITTER_NAME", AGENT_NAME, "GIT_COMMITTER_EMAIL", AGENT_EMAIL,
	    "GIT_TERMINAL_PROMPT", "0");
}

enum { AGAIN_MS = 250 };

int64_t run_patience(const struct run *r)
{
	return clock_ms() + r->svc->end_ms;
}

bool run_again(const struct run *r, const struct err *e, int64_t until_ms)
{
	bool away = e->code == ERR_UNAVAILABLE || e->code == ERR_UPSTREAM;
	if (!away || err_is(e, "lost"))
		return false;
	if (run_why(r) != TASK_GO || clock_ms() >= until_ms)
		return false;
	(void)poll(NULL, 0, AGAIN_MS);
	return true;
}

/* box_run, begun again while the node is away: what was refused has not run. */
static int patiently(struct run *r, const struct box_cmd *cmd, struct box_exit *x, struct err *e)
{
	int64_t until = run_patience(r);
	for (;;) {
		struct err one = { 0 };
		if (box_run(&r->box, cmd, x, &one) == 0)
			return 0;
		if (one.code != ERR_UNAVAILABLE || !run_again(r, &one, until)) {
			*e = one;
			return -1;
		}
		box_exit_free(x);
	}
}

int run_inside(struct run *r, const char *dir, json_t *argv, const char *in, long long timeout_s,
    struct box_exit *x, struct err *e)
{
	auto_json json_t *env = identity(), *mine = argv;
	const struct box_cmd cmd = {
		.argv = mine,
		.dir = dir,
		.env = env,
		.stdin_p = in,
		.stdin_n = in == NULL ? 0 : strlen(in),
		.timeout_s = timeout_s,
		.cancelled = run_cancelled,
		.arg = r,
	};
	int rc = patiently(r, &cmd, x, e);
	if (rc == 0 && x->stopped)
		return run_go(r, e) != 0 ? -1
					 : err_set(e, ERR_CONFLICT, "A command in the sandbox was stopped.");
	return rc;
}

/* How a command ended, in words that stand alone. */
static void ending(const struct box_exit *x, long long timeout_s, char *out, size_t n)
{
	if (x->timed_out)
		(void)snprintf(out, n, "timed out after %lld s", timeout_s);
	else if (x->signal[0] != 0)
		(void)snprintf(out, n, "killed by %s", x->signal);
	else if (x->message[0] != 0)
		(void)snprintf(out, n, "exit %d: %s", x->exit_code, x->message);
	else
		(void)snprintf(out, n, "exit %d", x->exit_code);
}

int run_inside_must(struct run *r, const char *dir, json_t *argv, const char *doing, struct err *e)
{
	struct box_exit x = { 0 };
	char end[200];
	if (run_inside(r, dir, argv, NULL, INSIDE_S, &x, e) != 0) {
		box_exit_free(&x);
		return -1;
	}
	bool ok = x.exit_code == 0 && x.signal[0] == 0 && !x.timed_out;
	ending(&x, INSIDE_S, end, sizeof end);
	struct str said = { x.errout.p, x.errout.n }, line, last = { 0 };
	while (str_cut(&said, '\n', &line))
		if (line.n > 0)
			last = line;
	if (!ok)
		(void)err_set(e, ERR_UPSTREAM, "%s in the sandbox failed (%s): %.*s", doing, end,
		    (int)utf8_valid(last.p, last.n < SAID_BYTES ? last.n : SAID_BYTES),
		    last.n == 0 ? "" : last.p);
	box_exit_free(&x);
	return ok ? 0 : -1;
}

/* ---- the tool */

struct work {
	struct run *run;
	struct narrator *to;
};

static int on_line(void *arg, const json_t *line)
{
	struct work *w = arg;
	narrate_box_line(w->to, line);
	return 0;
}

static bool cancelled(void *arg)
{
	struct work *w = arg;
	narrate_tick(w->to);
	return run_cancelled(w->run);
}

/* A prompt that does not fit an argument becomes a file beside the checkout, where no commit takes it along. */
static int put_prompt(struct run *r, const char *path, struct err *e)
{
	int64_t until = run_patience(r);
	for (;;) {
		struct str text = str_of(r->prompt);
		struct err one = { 0 };
		if (box_put(&r->box, path, 0444, str_read, &text, &one) == 0)
			return 0;
		if (!run_again(r, &one, until)) {
			*e = one;
			return -1;
		}
	}
}

/* The tool's end is told also when PostgreSQL is away just then (REL-2); who lost the job tells nothing. */
static void say_exit(struct run *r, struct narrator *to, const char *how)
{
	while (narrate_exit(to, how) != 0 && run_why(r) != TASK_LOST)
		(void)poll(NULL, 0, AGAIN_MS);
}

static int judge(struct run *r, int rc, const struct box_exit *x, struct narrator *to, struct err *e)
{
	char end[200];
	if (rc != 0) {
		char why[300];
		(void)snprintf(why, sizeof why, "unknown: %.250s", e->msg);
		say_exit(r, to, run_why(r) == TASK_GO ? why : "stopped");
		return -1;
	}
	if (x->stopped && run_go(r, e) != 0) {
		say_exit(r, to, "stopped");
		return -1;
	}
	ending(x, r->timeout_s, end, sizeof end);
	say_exit(r, to, end);
	crash_point("run.tool_done");
	if (x->exit_code == 0 && x->signal[0] == 0 && !x->timed_out && !x->stopped)
		return run_step(
		    r, "tool", "ok", e, "%s ended after %.1f s", r->tool, (double)x->duration_ms / 1000.0);
	struct err said = { 0 };
	(void)run_step(r, "tool", "failed", &said, "%s: %s", r->tool, end);
	return run_fail(e, "tool_failed", "%s failed: %s", r->tool, end);
}

static int execute(struct run *r, const struct tool *t, json_t *argv, bool is_long, struct err *e)
{
	auto_json json_t *env = identity();
	if (is_long && t->path_env != NULL)
		js_set_str(env, t->path_env, r->checkout);
	auto_narrate struct narrator *to = narrate_new(&(struct narrate_to){
	    .db = r->svc->db, .org = r->org, .session = r->session, .fence = &r->fence, .hide = r->token });
	struct work w = { r, to };
	bool fed = is_long && t->how == TOOL_STDIN;
	const struct box_cmd cmd = {
		.argv = argv,
		.dir = r->checkout,
		.env = env,
		.stdin_p = fed ? r->prompt : NULL,
		.stdin_n = fed ? strlen(r->prompt) : 0,
		.timeout_s = r->timeout_s,
		.on_line = on_line,
		.cancelled = cancelled,
		.arg = &w,
	};
	struct box_exit x = { 0 };
	crash_point("run.tool_started");
	int rc = judge(r, patiently(r, &cmd, &x, e), &x, to, e);
	box_exit_free(&x);
	narrate_tail(to, &r->log_tail);
	return rc;
}

int run_tool(struct run *r, struct err *e)
{
	const struct tool *t = tool_find(r->tool);
	bool is_long = strlen(r->prompt) > LIMIT_PROMPT_ARG_BYTES;
	const char *file = is_long && t->how == TOOL_FILE ? mem_fmt(r->mem, "%s/%s", r->box.workdir, t->file)
							  : NULL;
	if (run_go(r, e) != 0)
		return -1;
	auto_json json_t *argv = tool_argv(
	    t, conf_str(r->svc->conf, "CODING_TOOLS"), r->prompt, is_long, file, e);
	if (argv == NULL || (file != NULL && put_prompt(r, file, e) != 0))
		return -1;
	if (run_step(r, "tool", "running", e, "Running %s in %s", r->tool, r->checkout) != 0)
		return -1;
	return execute(r, t, argv, is_long, e);
}
