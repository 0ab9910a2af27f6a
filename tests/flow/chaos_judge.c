/* chaos_judge.c - what must hold after chaos.h: every promise that a client was given, and nothing left over. */
#include "../t.h"

#include "chaos.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "job/queue.h"
#include "runs.h"

enum { LEAK_MS = 90 * 1000 };

/* ---- the database: one query each, whose answer must be empty */

static const struct {
	const char *what, *sql;
} empty[] = {
	{ "jobs that are not over",
	    "SELECT subject || ' ' || state FROM jobs WHERE state IN ('queued', 'running')" },
	{ "runs that are not over, or keep a credential",
	    "SELECT id FROM runs WHERE ended_at IS NULL OR sealed_credential IS NOT NULL" },
	{ "sessions without exactly one terminal event at their end",
	    "SELECT s.id FROM sessions s LEFT JOIN events e ON e.session = s.id AND e.ends IS NOT NULL "
	    "GROUP BY s.id HAVING count(e.seq) <> 1 OR max(e.seq) <> s.last_seq OR max(e.ends) <> s.state" },
	{ "sessions with a gap",
	    "SELECT s.id FROM sessions s LEFT JOIN events e ON e.session = s.id GROUP BY s.id "
	    "HAVING count(e.seq) <> s.last_seq OR min(e.seq) <> 1 OR max(e.seq) <> s.last_seq" },
	{ "runs and their sessions or jobs that ended differently",
	    "SELECT r.id FROM runs r JOIN sessions s ON s.id = r.session JOIN jobs j ON j.subject = r.id "
	    "WHERE r.state <> s.state OR (r.state = 'done') <> (j.state = 'done')" },
	{ "two sandboxes of one run at one time",
	    "SELECT a.session FROM sandboxes a JOIN sandboxes b ON a.session = b.session AND a.id <> b.id "
	    "AND "
	    "a.created_at <= b.created_at WHERE a.ended_at IS NULL OR a.ended_at > b.created_at" },
	{ "sandboxes that are not over, or keep a slot",
	    "SELECT id FROM sandboxes WHERE status IN ('pending', 'running') OR slot IS NOT NULL" },
	{ "credentials of sessions that still work",
	    "SELECT id FROM credentials WHERE session IS NOT NULL AND revoked_at IS NULL" },
	{ "runs that were done without their tool's end",
	    "SELECT r.id FROM runs r WHERE r.state = 'done' AND NOT EXISTS (SELECT FROM events e WHERE "
	    "e.session = r.session AND e.kind = 'tool-call' AND e.payload LIKE '%\"exit\"%exit 0%')" },
	{ "transactions left open",
	    "SELECT pid || ' ' || query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND "
	    "state_change < now() - interval '5 seconds'" },
};

static void judge_rows(const struct chaos *c)
{
	for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
		auto_buf struct buf got = BUF(1 << 20);
		stack_sql(&c->stack, empty[i].sql, &got);
		if (got.n > 0)
			fail_msg("%s: %.2000s", empty[i].what, buf_c(&got));
	}
}

/* ---- each run, by what its client was told */

static bool may_fail(const struct chaos *c, const struct chaos_run *r)
{
	for (int i = 0; i < c->n_boxes; i++) {
		char sql[300];
		auto_buf struct buf got = BUF(1024);
		(void)snprintf(sql, sizeof sql,
		    "SELECT count(*) FROM sandboxes WHERE session = '%s' AND id = '%s'", r->session,
		    c->boxes[i]);
		stack_sql(&c->stack, sql, &got);
		if (strcmp(buf_c(&got), "1") == 0)
			return true;
	}
	return false;
}

/* COD-11: attempts are bounded, and chaos may reach the bound; rarely. */
static bool given_up(const struct chaos *c, const struct chaos_run *r, const struct flow_run *f)
{
	char n[64];
	runs_sql(&c->stack, n, sizeof n, "SELECT crashes FROM jobs WHERE subject = '%s'", r->run);
	return strtol(n, NULL, 10) >= JOB_MAX_CRASHES &&
	    strstr(js_str_or(f->last, "message", ""), "not tried again") != NULL;
}

/* Read again, whole: every line that was received is there, byte for byte. */
static void judge_lines(const struct chaos *c, const struct chaos_run *r, struct flow_run *f)
{
	(void)snprintf(f->session, sizeof f->session, "%s", r->session);
	runs_watch(&c->stack, &c->org, f, 0, r->n % 2);
	runs_check(f, r->end);
	if ((int)json_array_size(f->lines) != r->n_lines)
		fail_msg("run %d: %d lines were received, %zu are there", r->n, r->n_lines,
		    json_array_size(f->lines));
	for (int i = 0; i < r->n_lines; i++) {
		struct err e = { 0 };
		auto_json json_t *was = js_parse(r->lines[i].text, strlen(r->lines[i].text), &e);
		if (!json_equal(was, json_array_get(f->lines, (size_t)i)))
			fail_msg("run %d: the event has changed: %s", r->n, r->lines[i].text);
	}
}

/* The branch holds the work exactly once, on top of main. */
static void judge_branch(const struct chaos *c, const struct chaos_run *r, const struct flow_run *f)
{
	const char *branch = js_str_or(f->last, "branch", "");
	char want[64];
	if (r->task == TASK_NOTHING) {
		assert_false(js_bool(f->last, "changed", true));
		return;
	}
	auto_free char *tip = runs_tip(&c->stack, &c->org, CHAOS_REPO, branch),
		       *text = runs_file(&c->stack, &c->org, CHAOS_REPO, branch, "a.txt");
	(void)snprintf(want, sizeof want, "one\ntwo %d", r->n);
	if (strcmp(tip, js_str_or(f->last, "commit", "?")) != 0 || strcmp(text, want) != 0)
		fail_msg("run %d: %s is at %s and holds '%s', not %s with '%s'", r->n, branch, tip, text,
		    js_str_or(f->last, "commit", "?"), want);
}

/* The tool's last words reached the terminal event. */
static void judge_words(const struct chaos_run *r, const struct flow_run *f)
{
	char mark[40];
	(void)snprintf(mark, sizeof mark, r->task == TASK_FAILS ? "mark fails" : "mark %d", r->n);
	if (strstr(js_str_or(f->last, "logTail", ""), mark) == NULL)
		fail_msg("run %d: what its tool said last is lost: %.300s", r->n,
		    js_str_or(f->last, "logTail", ""));
}

static void judge_run(struct chaos *c, const struct chaos_run *r)
{
	static const char *const code[CHAOS_TASKS] = {
		[TASK_FAILS] = "tool_failed", [TASK_STOPPED] = "stopped"
	};
	auto_flow_run struct flow_run f = { 0 };
	judge_lines(c, r, &f);
	bool ok = strcmp(r->end, "result") == 0;
	const char *got = ok ? NULL : js_str_or(f.last, "code", "?");
	bool expected = code[r->task] == NULL ? ok : got != NULL && strcmp(got, code[r->task]) == 0;
	if (!expected && given_up(c, r, &f))
		c->given_up++;
	else if (!expected && !may_fail(c, r))
		fail_msg("run %d (%s) ended with %s: %s", r->n, r->session, r->end,
		    js_str_or(f.last, "message", ""));
	if (ok)
		judge_branch(c, r, &f);
	if (expected && r->task != TASK_STOPPED)
		judge_words(r, &f);
}

/* ---- what is left over */

/* Children of ours that outlived who started them: they name our directory and belong to no living part's session. */
static int strays(const struct chaos *c, const pid_t *parts, int n_parts, struct buf *what)
{
	DIR *d = opendir("/proc");
	int n = 0;
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		char path[300];
		struct err e = { 0 };
		auto_buf struct buf args = BUF(1 << 20), stat = BUF(4096);
		bool ours = false, known = false;
		(void)snprintf(path, sizeof path, "/proc/%s/cmdline", f->d_name);
		if (!str_only(f->d_name, "0123456789") || file_read(path, &args, &e) != 0)
			continue;
		for (size_t i = 0; i < args.n && !ours; i += strlen(args.p + i) + 1)
			ours = strstr(args.p + i, c->stack.dir) != NULL;
		(void)snprintf(path, sizeof path, "/proc/%s/stat", f->d_name);
		if (!ours || file_read(path, &stat, &e) != 0)
			continue;
		int sid = 0;
		const char *at = strrchr(buf_c(&stat), ')');
		if (at == NULL || sscanf(at, ") %*c %*d %*d %d", &sid) != 1) /* NOLINT(cert-err34-c) */
			continue;
		for (int i = 0; i < n_parts; i++)
			known |= parts[i] == sid;
		if (known)
			continue;
		n++;
		(void)buf_fmt(what, "process %s: %s\n", f->d_name, buf_c(&args));
	}
	(void)closedir(d);
	return n;
}

static int entries(const struct chaos *c, const char *sub, const char *hint, struct buf *what)
{
	char path[300];
	int n = 0;
	(void)snprintf(path, sizeof path, "%s/%s", c->stack.dir, sub);
	DIR *d = opendir(path);
	for (const struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
		if (f->d_name[0] == '.' || (hint != NULL && strstr(f->d_name, hint) == NULL))
			continue;
		n++;
		(void)buf_fmt(what, "left in %s: %s\n", sub, f->d_name);
	}
	if (d != NULL)
		(void)closedir(d);
	return n;
}

static int left(const struct chaos *c, struct buf *what)
{
	const struct stack *s = &c->stack;
	char sub[200], part[24];
	pid_t parts[16];
	int n_parts = 0;
	parts[n_parts++] = stack_pid(s, "pg");
	parts[n_parts++] = stack_pid(s, "nginx");
	static const char *const kinds[] = { "api", "runner", "node", "egress" };
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		for (int i = 1; i <= 2; i++) {
			(void)snprintf(part, sizeof part, "%s%d", kinds[k], i);
			parts[n_parts++] = stack_pid(s, part);
		}
	int n = stack_leaks(s, what) + strays(c, parts, n_parts, what) + entries(c, "runner", NULL, what);
	(void)snprintf(sub, sizeof sub, "forge/%s/%s.git", c->org.slug, CHAOS_REPO);
	n += entries(c, sub, ".lock", what);
	(void)snprintf(sub, sizeof sub, "forge/%s/%s.git/refs/heads/agent", c->org.slug, CHAOS_REPO);
	n += entries(c, sub, ".lock", what);
	(void)snprintf(sub, sizeof sub, "forge/%s/%s.git/objects", c->org.slug, CHAOS_REPO);
	n += entries(c, sub, "tmp_", what) + entries(c, sub, "incoming", what);
	(void)snprintf(sub, sizeof sub, "forge/%s/%s.git/objects/pack", c->org.slug, CHAOS_REPO);
	return n + entries(c, sub, "tmp_", what);
}

static void judge_left(const struct chaos *c)
{
	auto_buf struct buf what = BUF(1 << 20);
	int64_t until = clock_ms() + LEAK_MS; /* the reaper's turns */
	while (buf_reset(&what), left(c, &what) > 0)
		if (clock_ms() > until)
			fail_msg("left behind:\n%s", buf_c(&what));
		else
			(void)poll(NULL, 0, 200);
}

/* What the sanitizers, or an assertion, have said. */
static void judge_logs(const struct chaos *c)
{
	static const char *const words[] = { "ERROR: AddressSanitizer", "runtime error:", "Assertion `",
		NULL };
	char path[400];
	(void)snprintf(path, sizeof path, "%s/log", c->stack.dir);
	DIR *d = opendir(path);
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		auto_buf struct buf text = BUF(256 << 20);
		struct err e = { 0 };
		if (f->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "%s/log/%s", c->stack.dir, f->d_name);
		assert_int_equal(file_read(path, &text, &e), 0);
		for (const char *const *w = words; *w != NULL; w++) {
			const char *at = strstr(buf_c(&text), *w);
			if (at != NULL)
				fail_msg("%s says %.600s", f->d_name, at);
		}
	}
	(void)closedir(d);
}

static void settle(struct chaos *c)
{
	runs_ready(&c->stack);
	runs_wait_sql(&c->stack, "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')", "0");
	runs_wait_sql(
	    &c->stack, "SELECT count(*) FROM sandboxes WHERE status IN ('pending', 'running')", "0");
	/* One push more: what killed pushes received is removed by the next one to end. */
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&c->stack, &c->org,
	    runs_task("python", CHAOS_REPO, "open('a.txt', 'a').write('last\\n')\nprint('mark last')"), &r);
	runs_check(&r, "result");
}

void chaos_judge(struct chaos *c)
{
	settle(c);
	for (int i = 0; i < c->runs; i++)
		if (c->all[i].fault[0] != 0)
			fail_msg("run %d (%s): %s", i, c->all[i].session, c->all[i].fault);
	judge_rows(c);
	for (int i = 0; i < c->runs; i++)
		judge_run(c, &c->all[i]);
	if (c->given_up > 0)
		print_message("given up after %d crashes: %d\n", JOB_MAX_CRASHES, c->given_up);
	assert_in_range(c->given_up, 0, 1 + c->runs / 50);
	judge_left(c);
	judge_logs(c);
	assert_int_equal(c->exits, 0);
}
