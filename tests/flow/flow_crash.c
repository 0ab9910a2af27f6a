/*
 * flow_crash.c - REL-1 over a coding run: kill -9 of api, runner, sandboxd or box at every named point of a run and of its
 * sandbox, then the invariants. Which of them dies at which point is chosen by GATEHOUSE_SEED; GATEHOUSE_HEAVY=1 takes every
 * pair, GATEHOUSE_POINT=name one point only.
 */
#include "../t.h"

#include "../fds.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "runs.h"

static struct stack stack;
static struct stack_org acme;

enum victim { API, RUNNER, NODE, BOX, VICTIMS };
static const char *const victim_names[] = { "api", "runner", "node", "box" };

struct point {
	const char *name;
	bool box; /* there is a box to kill */
};
static const struct point points[] = {
	{ "run.claimed", false },
	{ "sandbox.row", false },
	{ "sandbox.netns", false },
	{ "sandbox.bundle", false },
	{ "sandbox.started", false },
	{ "sandbox.ready", true },
	{ "sandbox.running", true },
	{ "run.leased", true },
	{ "run.fetched", true },
	{ "run.checked_out", true },
	{ "run.tool_started", true },
	{ "run.tool_done", true },
	{ "run.committed", true },
	{ "run.collected", true },
	{ "run.checked", true },
	{ "run.pushing", true },
	{ "run.pushed", true },
	{ "sandbox.destroying", true },
	{ "sandbox.gone", false },
	{ "run.ended", false },
	{ "run.verified", false },
	{ "run.closing", false },
};
enum { POINTS = sizeof points / sizeof points[0] };

/* ---- who to kill */

static void sandbox_of(const struct flow_run *r, const char *column, char out[64])
{
	runs_sql(&stack, out, 64,
	    "SELECT %s FROM sandboxes WHERE session = '%s' ORDER BY created_at DESC LIMIT 1", column,
	    r->session);
}

static bool file_has(const char *path, const char *text)
{
	auto_buf struct buf b = BUF(1 << 20);
	struct err e = { 0 };
	return file_read(path, &b, &e) == 0 && strstr(buf_c(&b), text) != NULL;
}

/* Process 1 of the sandbox: the one of its cgroup that is pid 1 in a namespace of its own. */
static void kill_box(const char *id)
{
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		char path[300];
		(void)snprintf(path, sizeof path, "/proc/%s/cgroup", f->d_name);
		if (!str_only(f->d_name, "0123456789") || !file_has(path, id))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/status", f->d_name);
		if (file_has(path, "\t1\nNSpgid"))
			(void)kill((pid_t)strtol(f->d_name, NULL, 10), SIGKILL);
	}
	(void)closedir(d);
}

static void strike(enum victim v, const struct flow_run *r)
{
	char part[RUNS_PART], id[64];
	switch (v) {
	case API:
		(void)snprintf(part, sizeof part, "api1");
		break;
	case RUNNER:
		runs_runner(&stack, r, part);
		break;
	case NODE:
		sandbox_of(r, "node", part);
		if (part[0] == 0) /* nothing is leased yet: any */
			(void)snprintf(part, sizeof part, "node1");
		break;
	default:
		sandbox_of(r, "id", id);
		kill_box(id);
		return;
	}
	stack_kill(&stack, part);
	stack_start(&stack, part);
}

/* ---- what must hold afterwards */

/* A pushed branch is whole, and holds the work once. */
static void assert_pushed(const struct flow_run *r, const char *repo)
{
	const char *branch = js_str(r->last, "branch");
	assert_non_null(branch);
	auto_free char *tip = runs_tip(&stack, &acme, repo, branch),
		       *text = runs_file(&stack, &acme, repo, branch, "a.txt");
	assert_string_equal(tip, js_str(r->last, "commit"));
	assert_string_equal(text, "one\ntwo");
}

/* Only a sandbox that lost its box may cost the run. */
static void judge(const struct flow_run *r, enum victim v, const char *repo)
{
	runs_check(r, js_str(r->last, "type"));
	runs_sound(&stack, r);
	if (strcmp(js_str(r->last, "type"), "result") == 0)
		assert_pushed(r, repo);
	else if (v != BOX)
		fail_msg("killing the %s cost the run: %s", victim_names[v], js_str(r->last, "message"));
}

static void crash_at(const struct point *p, enum victim v)
{
	auto_flow_run struct flow_run r = { 0 };
	char repo[60];
	(void)snprintf(repo, sizeof repo, "%s-%s", p->name, victim_names[v]);
	runs_repo(&stack, &acme, repo);
	stack_crash_arm(&stack, p->name);
	runs_start(&stack, &acme, runs_task("python", repo, "open('a.txt', 'a').write('two\\n')"), &r);
	if (!stack_crash_reached(&stack, p->name))
		fail_msg("%s was not reached", p->name);
	int64_t before = clock_ms();
	strike(v, &r);
	stack_crash_release(&stack, p->name);
	runs_watch(&stack, &acme, &r, 0, 1);
	judge(&r, v, repo);
	print_message("%-20s %-7s %s after %.1f s, attempt %lld\n", p->name, victim_names[v],
	    js_str(r.last, "type"), (double)(clock_ms() - before) / 1000.0, js_int(r.last, "attempts", 0));
	/* A run may end before the api that was killed serves again, and the next asks it. */
	stack_ready(&stack);
}

static unsigned long long seed(void)
{
	const char *s = getenv("GATEHOUSE_SEED");
	return s == NULL ? 1 : strtoull(s, NULL, 10);
}

/* SplitMix64: the same pairs for the same seed, everywhere. */
static unsigned long long next(unsigned long long *state)
{
	unsigned long long z = *state += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* REL-1 */
static void a_killed_process_costs_nothing_that_was_acknowledged(void **s)
{
	(void)s;
	unsigned long long state = seed();
	const char *only = getenv("GATEHOUSE_POINT");
	bool all = getenv("GATEHOUSE_HEAVY") != NULL;
	print_message("GATEHOUSE_SEED=%llu\n", state);
	for (int i = 0; i < POINTS; i++) {
		int chosen = (int)(next(&state) % (points[i].box ? VICTIMS : BOX));
		for (int v = 0; v < (points[i].box ? VICTIMS : BOX); v++)
			if ((all || v == chosen) && (only == NULL || strcmp(only, points[i].name) == 0))
				crash_at(&points[i], (enum victim)v);
	}
}

/* ---- descriptors: what more runs do not add to */

static void some_runs(void)
{
	for (int i = 0; i < 6; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_do(
		    &stack, &acme, runs_task("python", "steady", "open('a.txt', 'a').write('two\\n')"), &r);
		runs_check(&r, "result");
	}
}

static void descriptors_are_counted_back_to_where_they_were(void **s)
{
	(void)s;
	static const char *const parts[] = { "api1", "api2", "runner1", "runner2", "node1", "node2" };
	enum {
		PARTS = sizeof parts / sizeof parts[0],
		SLACK = 3
	}; /* kept connections to each other come and go */
	int before[PARTS];
	struct buf were[PARTS];
	enum { SETTLE_MS = 500, BACK_MS = 60000 };
	runs_repo(&stack, &acme, "steady");
	some_runs();
	for (int i = 0; i < PARTS; i++) {
		were[i] = BUF(1 << 20);
		before[i] = fds_least(stack_pid(&stack, parts[i]), SETTLE_MS, &were[i]);
	}
	some_runs();
	some_runs();
	for (int i = 0; i < PARTS; i++) {
		fds_back(stack_pid(&stack, parts[i]), before[i] + SLACK, &were[i], BACK_MS);
		buf_free(&were[i]);
	}
}

static void nothing_is_left_on_the_host(void **s)
{
	(void)s;
	runs_wait_sql(&stack, "SELECT count(*) FROM sandboxes WHERE status IN ('pending', 'running')", "0");
	auto_buf struct buf what = BUF(1 << 20);
	int64_t until = clock_ms() + 60000; /* the reaper's turns */
	while (buf_reset(&what), stack_leaks(&stack, &what) > 0)
		if (clock_ms() > until)
			fail_msg("left behind:\n%s", buf_c(&what));
		else
			(void)poll(NULL, 0, 200);
	char dir[128];
	(void)snprintf(dir, sizeof dir, "%s/runner", stack.dir);
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;)
		assert_int_equal(f->d_name[0], '.');
	(void)closedir(d);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&stack, 2, 2, 2, "JOB_LEASE_S=3\nRUNNER_JOBS=2\n");
	stack_org(&stack, &acme);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_process_costs_nothing_that_was_acknowledged),
		cmocka_unit_test(nothing_is_left_on_the_host),
		cmocka_unit_test(descriptors_are_counted_back_to_where_they_were),
	};
	return cmocka_run_group_tests_name("crash", tests, setup, teardown);
}
