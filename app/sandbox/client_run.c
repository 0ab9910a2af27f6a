/* client_run.c - one command from its start to its exit, over as many connections as it takes. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/ndjson.h"
#include "sandbox/client_int.h"

enum {
	AGAIN_MS = 250,
	AWAY_MS = 60 * 1000, /* how long a node may be gone before a command on it counts as lost */
	LATE_MS = 30 * 1000, /* beyond the command's own time */
	STOP_AGAIN_MS = 1000,
};
#define EVER_MS (40LL * 24 * 3600 * 1000) /* longer than any lease */

enum stage { NOT_STARTED, RUNNING, ENDED, LOST };

struct reading {
	const struct box_addr *a;
	int (*on_line)(void *arg, const json_t *line);
	bool (*cancelled)(void *arg);
	void *arg;
	struct box_exit *x; /* NULL in box_output */
	const char *id;
	struct ndjson lines;
	enum stage stage;
	long long from[2];
	bool aborted; /* by the reader */
	bool stop_asked;
	int64_t stop_ms; /* when the node was last asked to stop it */
	bool follow;     /* it was started before */
	bool leave;      /* box_output: a cancel ends the reading, not the command */
	char lost[ERR_MSG_MAX];
};

/* ---- lines */

/* Keep the last LIMIT_OUTPUT_BYTES. */
static void keep(struct buf *tail, const char *p, size_t n)
{
	if (tail->n + n > 2 * LIMIT_OUTPUT_BYTES)
		buf_drop(tail, tail->n - LIMIT_OUTPUT_BYTES);
	(void)buf_add(tail, p, n); /* a line's data are smaller than the room that is left */
}

static void take_data(struct reading *r, const json_t *line, int stream)
{
	const char *text = js_str_or(line, "data", "");
	size_t n = json_string_length(js_get(line, "data"));
	auto_free unsigned char *bytes = NULL;
	if (strcmp(js_str_or(line, "enc", "utf8"), "base64") == 0) {
		bytes = xcalloc(1, n + 1);
		ssize_t got = b64_decode(text, n, bytes);
		text = (const char *)bytes;
		n = got < 0 ? 0 : (size_t)got;
	}
	r->from[stream] = js_int(line, "offset", r->from[stream]) + (long long)n;
	if (r->x != NULL)
		keep(stream == 0 ? &r->x->out : &r->x->errout, text, n);
}

static void trim(struct buf *tail)
{
	if (tail->n > LIMIT_OUTPUT_BYTES)
		buf_drop(tail, tail->n - LIMIT_OUTPUT_BYTES);
}

static void take_exit(struct reading *r, const json_t *line)
{
	struct box_exit *x = r->x;
	r->stage = ENDED;
	if (x == NULL)
		return;
	x->exit_code = (int)js_int(line, "exitCode", -1);
	(void)snprintf(x->signal, sizeof x->signal, "%s", js_str_or(line, "signal", ""));
	(void)snprintf(x->message, sizeof x->message, "%s", js_str_or(line, "message", ""));
	x->timed_out = js_bool(line, "timedOut", false);
	x->stopped = js_bool(line, "stopped", false);
	x->oom = js_bool(line, "oom", false);
	x->duration_ms = js_int(line, "durationMs", 0);
	x->stdout_bytes = js_int(line, "stdoutBytes", 0);
	x->stderr_bytes = js_int(line, "stderrBytes", 0);
	trim(&x->out);
	trim(&x->errout);
	x->truncated = x->stdout_bytes > (long long)x->out.n || x->stderr_bytes > (long long)x->errout.n;
}

/* 0, or -1 when the reader wants no more. */
static int take_line(struct reading *r, const json_t *line)
{
	const char *type = js_str_or(line, "type", "");
	if (strcmp(type, "start") == 0)
		r->stage = RUNNING;
	else if (strcmp(type, "stdout") == 0)
		take_data(r, line, 0);
	else if (strcmp(type, "stderr") == 0)
		take_data(r, line, 1);
	else if (strcmp(type, "exit") == 0)
		take_exit(r, line);
	else if (strcmp(type, "lost") == 0) {
		r->stage = LOST;
		(void)snprintf(r->lost, sizeof r->lost, "%s", js_str_or(line, "message", ""));
		return 0;
	} else if (strcmp(type, "ping") != 0) {
		return 0; /* "reconnect": the end of the connection says the same */
	}
	return r->on_line == NULL ? 0 : r->on_line(r->arg, line);
}

static int on_data(void *arg, const char *p, size_t n)
{
	struct reading *r = arg;
	struct str text;
	if (ndjson_feed(&r->lines, p, n) != 0)
		return -1;
	while (ndjson_next(&r->lines, &text)) {
		struct err bad = { 0 };
		auto_json json_t *line = js_parse(text.p, text.n, &bad);
		if (line == NULL)
			return -1;
		if (take_line(r, line) != 0) {
			r->aborted = true;
			return -1;
		}
	}
	return 0;
}

/* Cancelled: the command is stopped over a second connection and its exit awaited on the first. */
static bool ask_cancel(void *arg)
{
	struct reading *r = arg;
	int n;
	struct err ignored = { 0 }; /* a node that cannot be asked now is asked again */
	if (!r->stop_asked && (r->cancelled == NULL || !r->cancelled(r->arg)))
		return false;
	r->stop_asked = true;
	r->aborted = r->leave;
	if (r->leave)
		return true;
	if (clock_ms() - r->stop_ms < STOP_AGAIN_MS)
		return false;
	(void)client_stop(r->a, r->id, &n, &ignored);
	r->stop_ms = clock_ms();
	return false;
}

/* ---- connections */

static int connection(
    struct reading *r, const char *method, const char *url, const char *body, int64_t until_ms, struct err *e)
{
	static const char *const json[] = { "Content-Type: application/json", NULL };
	struct http_res res = { 0 };
	int left_ms = clock_left_ms(until_ms);
	ndjson_free(&r->lines);
	r->lines = ndjson_new(2 * LIMIT_LINE_BYTES);
	struct http_req q = { .method = method,
		.url = url,
		.unix_socket = r->a->socket,
		.headers = json,
		.body = body,
		.body_n = body == NULL ? 0 : strlen(body),
		.on_data = on_data,
		.cancelled = ask_cancel,
		.arg = r,
		.connect_ms = CLIENT_CONNECT_MS,
		.total_ms = left_ms < INT_MAX ? left_ms + 1 : left_ms,
		.idle_ms = CLIENT_IDLE_MS };
	int rc = http_do(&q, &res, e);
	/* What nginx says when sandboxd went away is no answer of sandboxd. */
	if (rc == 0 && (res.status == 502 || res.status == 504))
		rc = err_set(e, ERR_UPSTREAM, "The sandbox's node went away.");
	else if (rc == 0 && res.status / 100 != 2)
		rc = http_envelope(&res, e);
	http_res_free(&res);
	return rc;
}

static int lost(const char *why, struct err *e)
{
	(void)err_replace(e, ERR_UPSTREAM, "It is unknown how the command ended: %.300s", why);
	e->reason = "lost";
	return -1;
}

static bool node_away(const struct err *e)
{
	return e->code == ERR_UNAVAILABLE || e->code == ERR_UPSTREAM || e->code == ERR_TIMEOUT;
}

static const char *output_url(struct mem *m, const struct reading *r, int only)
{
	if (only != 0)
		return client_url(m, r->a,
		    mem_fmt(m, "/commands/%s/output?from=%lld&stream=%s", r->id, r->from[only - 1],
			only == 1 ? "stdout" : "stderr"));
	return client_url(m, r->a,
	    mem_fmt(m, "/commands/%s/output?from=%lld&fromStderr=%lld", r->id, r->from[0], r->from[1]));
}

static int not_started(const struct reading *r, const char *why, struct err *e)
{
	if (!r->follow)
		return err_replace(e, ERR_UNAVAILABLE, "The command was not started: %.300s", why);
	e->reason = "unknown";
	return -1;
}

/* Go on reading after a cut, until the exit or until nobody can tell any more. */
static int resume(struct reading *r, int64_t until_ms, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	int64_t away_ms = clock_ms() + AWAY_MS;
	while (r->stage < ENDED) {
		char why[ERR_MSG_MAX];
		(void)snprintf(why, sizeof why, "%s", e->msg);
		err_clear(e);
		long long before = r->from[0] + r->from[1];
		int rc = connection(r, "GET", output_url(m, r, 0), NULL, until_ms, e);
		if (r->aborted || r->stage >= ENDED)
			break;
		if (rc != 0 && !node_away(e)) {
			/* Known to nobody: if it never said that it started, it did not. */
			if (e->code == ERR_NOT_FOUND && r->stage == NOT_STARTED)
				return not_started(r, why, e);
			return lost(e->msg, e);
		}
		if (rc == 0 || r->from[0] + r->from[1] > before)
			away_ms = clock_ms() + AWAY_MS;
		if (clock_ms() >= until_ms || clock_ms() >= away_ms)
			return lost(e->code == ERR_NONE ? "its time is long over" : e->msg, e);
		(void)poll(NULL, 0, AGAIN_MS);
	}
	err_clear(e);
	return 0;
}

json_t *client_run_body(const struct box_addr *a, const struct box_cmd *cmd, const char *id)
{
	/* SBX-33: what is true now; the policy may have changed since the lease. */
	json_t *env = js_pack("{s:o}", "SANDBOX_TIER", json_sprintf("%d", a->tier));
	json_t *body = js_pack("{s:s,s:O,s:I,s:b,s:o}", "cmd", id, "argv", cmd->argv, "timeoutSec",
	    (json_int_t)cmd->timeout_s, "stream", cmd->on_line != NULL, "env", env);
	if (cmd->dir != NULL)
		js_set_str(body, "dir", cmd->dir);
	if (cmd->env != NULL) {
		auto_json json_t *own = json_deep_copy(cmd->env);
		(void)json_object_update(env, own);
	}
	if (cmd->stdin_file != NULL)
		js_set_str(body, "stdinFile", cmd->stdin_file);
	if (cmd->cols > 0)
		js_set(body, "pty", js_pack("{s:i,s:i}", "cols", cmd->cols, "rows", cmd->rows));
	if (cmd->stdin_open)
		js_set(body, "stdinOpen", json_true());
	if (cmd->stdin_p != NULL) {
		auto_free char *b64 = xcalloc(1, B64_SIZE(cmd->stdin_n));
		(void)b64_encode(cmd->stdin_p, cmd->stdin_n, b64);
		js_set_str(body, "stdin", b64);
		js_set_str(body, "stdinEnc", "base64");
	}
	return body;
}

/* What the reader's own abort leaves behind: the command is not wanted any more. */
static int abandon(struct reading *r, struct err *e)
{
	int n;
	if (r->leave) {
		(void)err_replace(e, ERR_TIMEOUT, "The command goes on; its output is no longer read.");
		e->reason = "left";
		return -1;
	}
	struct err ignored = { 0 };
	(void)client_stop(r->a, r->id, &n, &ignored);
	(void)err_replace(e, ERR_TIMEOUT, "The command's output is no longer wanted; it was stopped.");
	e->reason = "cancelled";
	return -1;
}

static int start(struct reading *r, const struct box_cmd *cmd, int64_t until_ms, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = client_run_body(r->a, cmd, r->id);
	int rc = connection(r, "POST", client_url(m, r->a, "/run"), js_dump(m, body), until_ms, e);
	bool answered = rc != 0 && !node_away(e);
	if (!r->aborted && r->stage < ENDED && !(answered && r->stage == NOT_STARTED))
		rc = resume(r, until_ms, e);
	return rc;
}

int box_run(const struct box_addr *a, const struct box_cmd *cmd, struct box_exit *x, struct err *e)
{
	int64_t until_ms = clock_ms() + LATE_MS + (cmd->timeout_s > 0 ? cmd->timeout_s * 1000LL : EVER_MS);
	*x = (struct box_exit){
		.exit_code = -1, .out = BUF(3 * LIMIT_OUTPUT_BYTES), .errout = BUF(3 * LIMIT_OUTPUT_BYTES)
	};
	if (cmd->id != NULL)
		(void)snprintf(x->cmd, sizeof x->cmd, "%s", cmd->id);
	else
		id_make("cmd", x->cmd);
	struct reading r = { .a = a,
		.on_line = cmd->on_line,
		.cancelled = cmd->cancelled,
		.leave = cmd->leave,
		.follow = cmd->follow,
		.arg = cmd->arg,
		.x = x,
		.id = x->cmd,
		.lines = ndjson_new(LIMIT_LINE_BYTES) };
	int rc = cmd->follow ? resume(&r, until_ms, e) : start(&r, cmd, until_ms, e);
	ndjson_free(&r.lines);
	if (r.aborted && r.stage < ENDED)
		return abandon(&r, e);
	if (r.stage == LOST)
		return lost(r.lost, e);
	if (r.stage == ENDED)
		err_clear(e);
	return r.stage == ENDED ? 0 : rc;
}

void box_exit_free(struct box_exit *x)
{
	buf_free(&x->out);
	buf_free(&x->errout);
}

int box_output(const struct box_addr *a, const char *cmd, const long long from[2], int only,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct reading r = { .a = a,
		.on_line = on_line,
		.cancelled = cancelled,
		.arg = arg,
		.id = cmd,
		.leave = true,
		.from = { from[0], from[1] },
		.lines = ndjson_new(LIMIT_LINE_BYTES) };
	int rc = connection(&r, "GET", output_url(m, &r, only), NULL, clock_ms() + LIMIT_RUN_S * 1000LL, e);
	ndjson_free(&r.lines);
	if (r.aborted && r.stage < ENDED)
		return abandon(&r, e);
	if (r.stage == LOST)
		return lost(r.lost, e);
	return rc;
}
