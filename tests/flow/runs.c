#include "../span.h"
#include "../t.h"

#include "runs.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/proc.h"

enum { WATCH_S = 10 * PATIENCE_MS / 1000 };

void flow_run_free(struct flow_run *r)
{
	json_decref(r->lines);
	r->lines = NULL;
}

void runs_repo(const struct stack *s, const struct stack_org *org, const char *name)
{
	char path[200];
	auto_web struct web made = { 0 }, pushed = { 0 };
	web_json(s, "POST", "/v1/git/repos", org->key, js_pack("{s:s}", "name", name), &made);
	assert_int_equal(made.status, 201);
	(void)snprintf(path, sizeof path, "/v1/git/repos/%s/push", name);
	web_json(s, "POST", path, org->key,
	    js_pack("{s:s,s:s,s:[{s:s,s:s},{s:s,s:s}]}", "branch", "main", "message", "first", "files",
		"path", "a.txt", "content", "one\n", "path", "dir/b.txt", "content", "bee\n"),
	    &pushed);
	assert_int_equal(pushed.status, 200);
}

json_t *runs_task(const char *tool, const char *repo, const char *prompt)
{
	json_t *v = js_pack("{s:s,s:s}", "tool", tool, "prompt", prompt);
	if (repo != NULL)
		js_set_str(v, "repo", repo);
	return v;
}

static void parse(struct flow_run *r, const struct web *w)
{
	struct str rest = { w->body, w->body_n }, line;
	flow_run_free(r);
	r->lines = json_array();
	while (str_cut(&rest, '\n', &line)) {
		struct err e = { 0 };
		json_t *v = line.n == 0 ? NULL : js_parse(line.p, line.n, &e);
		if (v != NULL && strcmp(js_str_or(v, "type", ""), "ping") != 0)
			js_push(r->lines, v);
		else
			json_decref(v);
	}
	r->last = json_array_get(r->lines, json_array_size(r->lines) - 1);
}

static void post(
    const struct stack *s, const struct stack_org *org, json_t *body, const char *prefer, struct web *w)
{
	auto_mem struct mem *m = mem_new();
	const char *headers[] = { prefer, NULL };
	web_do(s,
	    &(struct web_req){ .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org->member,
		.body = js_dump(m, mem_json(m, body)),
		.headers = headers,
		.timeout_s = WATCH_S },
	    w);
}

static void keep_ids(struct flow_run *r, const struct web *w, const char *run)
{
	char at[200];
	assert_true(web_header(w, "Location", at, sizeof at));
	assert_true(str_starts(at, "/v1/agents/sessions/ses_"));
	(void)snprintf(r->session, sizeof r->session, "%s", strrchr(at, '/') + 1);
	(void)snprintf(r->run, sizeof r->run, "%s", run);
}

void runs_do(const struct stack *s, const struct stack_org *org, json_t *body, struct flow_run *r)
{
	auto_web struct web w = { 0 };
	post(s, org, body, NULL, &w);
	if (w.status != 200)
		fail_msg("start_coding_run: %ld %.300s", w.status, w.body);
	parse(r, &w);
	keep_ids(r, &w, js_str_or(json_array_get(r->lines, 0), "run", ""));
}

void runs_start(const struct stack *s, const struct stack_org *org, json_t *body, struct flow_run *r)
{
	auto_web struct web w = { 0 };
	post(s, org, body, "Prefer: respond-async", &w);
	if (w.status != 202)
		fail_msg("start_coding_run: %ld %.300s", w.status, w.body);
	keep_ids(r, &w, js_str(w.json, "run"));
}

void runs_watch(
    const struct stack *s, const struct stack_org *org, struct flow_run *r, long long after, int api)
{
	char path[200];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream?after=%lld", r->session, after);
	web_do(s,
	    &(struct web_req){
		.method = "GET", .path = path, .key = org->member, .api = api, .timeout_s = WATCH_S },
	    &w);
	assert_int_equal(w.status, 200);
	parse(r, &w);
}

struct search {
	const char *text;
	struct buf seen;
	bool found;
};

static int look(void *arg, const char *p, size_t n)
{
	struct search *k = arg;
	assert_int_equal(buf_add(&k->seen, p, n), 0);
	k->found = strstr(k->seen.p, k->text) != NULL;
	return k->found ? -1 : 0;
}

void runs_until(
    const struct stack *s, const struct stack_org *org, const struct flow_run *r, const char *text)
{
	char path[200];
	auto_web struct web w = { 0 };
	struct search k = { .text = text, .seen = BUF(16 << 20) };
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream", r->session);
	web_do(s,
	    &(struct web_req){ .method = "GET",
		.path = path,
		.key = org->member,
		.on_data = look,
		.arg = &k,
		.timeout_s = WATCH_S },
	    &w);
	if (!k.found)
		fail_msg("%s was not said: %s", text, buf_c(&k.seen));
	buf_free(&k.seen);
}

const json_t *runs_step(const struct flow_run *r, const char *step, const char *status)
{
	const json_t *v;
	size_t i;
	json_array_foreach(r->lines, i, v) {
		if (strcmp(js_str_or(v, "step", ""), step) == 0 &&
		    (status == NULL || strcmp(js_str_or(v, "status", ""), status) == 0))
			return v;
	}
	return NULL;
}

static bool terminal(const json_t *v)
{
	const char *type = js_str_or(v, "type", "");
	return strcmp(type, "result") == 0 || strcmp(type, "error") == 0;
}

void runs_check(const struct flow_run *r, const char *type)
{
	auto_mem struct mem *m = mem_new();
	const json_t *v;
	size_t i, ends = 0;
	long long leased = 0, ended = 0;
	json_array_foreach(r->lines, i, v) {
		assert_int_equal(js_int(v, "seq", 0), (long long)i + 1);
		ends += terminal(v);
		if (strcmp(js_str_or(v, "step", ""), "leased") == 0)
			leased = js_int(v, "seq", 0);
		if (strcmp(js_str_or(v, "step", ""), "ended") == 0)
			ended = js_int(v, "seq", 0);
	}
	if (ends == 1 && strcmp(js_str_or(r->last, "type", ""), type) == 0 && ended >= leased)
		return;
	json_array_foreach(r->lines, i, v) /* one by one: cmocka cuts a message after a KiB */
		print_error("%s\n", js_dump(m, v));
	fail_msg("expected one %s at the end, and the sandbox's end told", type);
}

static char *forge_git(
    const struct stack *s, const struct stack_org *org, const char *repo, const char *a, const char *b)
{
	char dir[200];
	(void)snprintf(dir, sizeof dir, "%s/forge/%s/%s.git", s->dir, org->slug, repo);
	const char *const argv[] = { "git", "-c", "safe.directory=*", "--git-dir", dir, a, b, NULL };
	const char *const env[] = { "PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", NULL };
	const struct proc_opts o = { .argv = argv,
		.env = env,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = PATIENCE_MS,
		.max_out_bytes = 16 << 20 };
	auto_proc struct proc_result x = { 0 };
	struct err e = { 0 };
	assert_int_equal(proc_run(&o, &x, &e), 0);
	if (x.exit_code != 0)
		return xstrdup("");
	size_t n = x.out.n;
	while (n > 0 && x.out.p[n - 1] == '\n')
		x.out.p[--n] = 0;
	return xstrdup(buf_c(&x.out));
}

char *runs_tip(const struct stack *s, const struct stack_org *org, const char *repo, const char *ref)
{
	char full[200];
	(void)snprintf(full, sizeof full, "refs/heads/%s^{commit}", ref);
	return forge_git(s, org, repo, "rev-parse", full);
}

char *runs_file(
    const struct stack *s, const struct stack_org *org, const char *repo, const char *ref, const char *path)
{
	char spec[300];
	(void)snprintf(spec, sizeof spec, "refs/heads/%s:%s", ref, path);
	return forge_git(s, org, repo, "show", spec);
}

void runs_sql(const struct stack *s, char *out, size_t n, const char *fmt, ...)
{
	char text[1000];
	va_list ap;
	va_start(ap, fmt);
	assert_true(vsnprintf(text, sizeof text, fmt, ap) < (int)sizeof text);
	va_end(ap);
	auto_buf struct buf b = BUF(65536);
	stack_sql(s, text, &b);
	(void)snprintf(out, n, "%s", buf_c(&b));
}

void runs_runner(const struct stack *s, const struct flow_run *r, char part[RUNS_PART])
{
	char worker[200]; /* "host:pid" */
	runs_sql(
	    s, worker, sizeof worker, "SELECT COALESCE(worker, ':0') FROM jobs WHERE subject = '%s'", r->run);
	long pid = strtol(strrchr(worker, ':') + 1, NULL, 10);
	for (int i = 1; i <= s->runners; i++) {
		(void)snprintf(part, RUNS_PART, "runner%d", i);
		if (stack_pid(s, part) == (pid_t)pid)
			return;
	}
	fail_msg("nobody of ours holds %s: %s", r->run, worker);
}

void runs_sound(const struct stack *s, const struct flow_run *r)
{
	char n[64];
	runs_sql(s, n, sizeof n,
	    "SELECT (SELECT count(*) FROM jobs WHERE subject = '%s' AND state NOT IN ('done', 'failed')) || "
	    "' ' || "
	    "(SELECT count(*) FROM runs WHERE id = '%s' AND (ended_at IS NULL OR sealed_credential IS NOT "
	    "NULL)) || "
	    "' ' || (SELECT count(*) FROM credentials WHERE session = '%s' AND revoked_at IS NULL)",
	    r->run, r->run, r->session);
	assert_string_equal(n, "0 0 0");
	/* What is not ended when the next is made could still work. */
	runs_sql(s, n, sizeof n,
	    "SELECT count(*) FROM sandboxes a JOIN sandboxes b ON a.session = b.session AND a.created_at < "
	    "b.created_at WHERE a.session = '%s' AND (a.ended_at IS NULL OR a.ended_at > b.created_at)",
	    r->session);
	assert_string_equal(n, "0");
}

void runs_ready(const struct stack *s)
{
	int64_t until = clock_ms() + PATIENCE_MS;
	for (int i = 0; i < s->apis; i++)
		for (long status = 0; status != 200; (void)poll(NULL, 0, 50)) {
			auto_web struct web w = { 0 };
			web_do(s, &(struct web_req){ .method = "GET", .path = "/ready", .api = i }, &w);
			status = w.status;
			if (status != 200 && clock_ms() > until)
				fail_msg("not ready: %s", w.body);
		}
}

void runs_wait_sql(const struct stack *s, const char *sql, const char *want)
{
	int64_t until = clock_ms() + 4 * PATIENCE_MS;
	for (;;) {
		auto_buf struct buf b = BUF(65536);
		stack_sql(s, sql, &b);
		if (strcmp(buf_c(&b), want) == 0)
			return;
		if (clock_ms() > until)
			fail_msg("%s is %s, not %s", sql, buf_c(&b), want);
		(void)poll(NULL, 0, 50);
	}
}
