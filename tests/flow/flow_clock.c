/*
 * flow_clock.c - clocks that step (REL-6): the database's by an hour, both ways, under sandboxes, runs, keys and heartbeats
 * (tests/skew.h); a node's monotonic clock between two lives of its daemon (a time namespace).
 */
#include "../t.h"

#include "../span.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../skew.h"
#include "base/clock.h"
#include "base/js.h"
#include "io/file.h"
#include "io/proc.h"
#include "runs.h"
#include "sandbox/node.h"
#include "sbx.h"

static struct stack stack;
static struct stack_org org;

static void sql(const char *text)
{
	stack_sql(&stack, text, NULL);
}

static void until_leased(char id[40], int64_t *took_ms)
{
	struct span begin = span_begin();
	for (;; (void)poll(NULL, 0, 100)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/sandboxes", org.key, json_object(), &w);
		*took_ms = span_ms(&begin);
		if (w.status == 201) {
			(void)snprintf(id, 40, "%s", js_str(w.json, "id"));
			return;
		}
		if (w.status != 503 || clock_ms() - begin.began_ms > PATIENCE_MS)
			fail_msg("lease: %ld %s", w.status, w.body);
	}
}

/* For longer than two heartbeats and two rounds of the reaper. */
static void let_it_work(void)
{
	(void)poll(NULL, 0, 2 * NODE_BEAT_S * 1000 + 2000);
}

static void assert_running(const char *id)
{
	char status[12];
	sbx_status(&stack, org.key, id, status);
	assert_string_equal(status, "running");
	assert_int_equal(sbx_sh(&stack, org.key, id, "cat kept", NULL), 0);
}

static void steps_of_an_hour_cost_nothing(void **s)
{
	(void)s;
	static const char *const steps[] = { SKEW_STEP("1 hour"), SKEW_STEP("0"), SKEW_STEP("-1 hour"),
		SKEW_STEP("0") };
	char old[40], fresh[40];
	int64_t took_ms;
	sbx_lease(&stack, org.key, js_pack("{s:i}", "ttlSec", 900), old);
	assert_int_equal(sbx_sh(&stack, org.key, old, "echo kept > kept", NULL), 0);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_start(&stack, &org,
		    runs_task("python", NULL, "import time; print('on', flush=True); time.sleep(14)"), &r);
		runs_until(&stack, &org, &r, "\"on");
		sql(steps[i]);
		until_leased(fresh, &took_ms);
		assert_true(
		    took_ms < (NODE_BEAT_S + 3) * 1000); /* a heartbeat from before the step says nothing */
		let_it_work();
		assert_running(old);
		sbx_end(&stack, org.key, fresh);
		runs_watch(&stack, &org, &r, 0, 0);
		runs_check(&r, "result");
		assert_int_equal(js_int(r.last, "attempts", 0), 1);
	}
	sbx_end(&stack, org.key, old);
	sbx_no_leaks(&stack);
}

/* Neither an hour too early nor an hour too late. */
static void a_lease_ends_when_its_time_is_over_whatever_the_clock_did(void **s)
{
	(void)s;
	static const char *const steps[] = { SKEW_STEP("1 hour"), SKEW_STEP("0") };
	for (size_t i = 0; i < 2; i++) {
		char id[40], status[12] = "running";
		int ttl_ms = 14000 + span_room_ms(300) / 1000 * 1000;
		struct span begin = span_begin();
		sbx_lease(&stack, org.key, js_pack("{s:i}", "ttlSec", ttl_ms / 1000), id);
		sql(steps[i]);
		while (strcmp(status, "running") == 0) {
			(void)poll(NULL, 0, 100);
			sbx_status(&stack, org.key, id, status);
			assert_true(clock_ms() - begin.began_ms < ttl_ms + 4 * PATIENCE_MS);
		}
		int64_t took_ms = clock_ms() - begin.began_ms;
		assert_string_equal(status, "ended");
		assert_true(took_ms > ttl_ms - 1000 && span_of(&begin, took_ms) < ttl_ms + 16000);
	}
}

/* Whoever looks after it has watched for no time at all, whatever the row says. */
static void a_daemon_that_starts_after_a_step_ends_no_lease(void **s)
{
	(void)s;
	static const char *const steps[] = { SKEW_STEP("1 hour"), SKEW_STEP("0") };
	char id[40];
	sbx_lease(&stack, org.key, NULL, id);
	assert_int_equal(sbx_sh(&stack, org.key, id, "echo kept > kept", NULL), 0);
	for (size_t i = 0; i < 2; i++) {
		stack_stop(&stack, "node1");
		sql(steps[i]);
		stack_start(&stack, "node1");
		stack_ready(&stack);
		let_it_work();
		assert_running(id);
	}
	sbx_end(&stack, org.key, id);
}

/* Who has used up the minute is let in by the next, not an hour later. */
static void a_step_back_does_not_prolong_a_limit(void **s)
{
	(void)s;
	struct stack_org few;
	char text[120];
	long status = 200;
	stack_org(&stack, &few);
	(void)snprintf(
	    text, sizeof text, "UPDATE orgs SET requests_per_minute = 5 WHERE slug = '%s'", few.slug);
	sql(text);
	for (int i = 0; i < 20 && status == 200; i++) {
		auto_web struct web w = { 0 };
		web_json(&stack, "GET", "/v1/bots", few.key, NULL, &w);
		status = w.status;
	}
	assert_int_equal(status, 429);
	sql(SKEW_STEP("-1 hour"));
	for (int64_t until = clock_ms() + 2 * PATIENCE_MS; status != 200; (void)poll(NULL, 0, 1000)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "GET", "/v1/bots", few.key, NULL, &w);
		status = w.status;
		assert_true(clock_ms() < until);
	}
	sql(SKEW_STEP("0"));
}

/* The script has written down when its clock says that the part began; the pid file is read by ours. */
static void began_by_our_clock(const char *part)
{
	char path[128], text[64];
	struct err e = { 0 };
	pid_t pid = stack_pid(&stack, part);
	auto_buf struct buf stat = BUF(4096);
	(void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
	assert_int_equal(file_read(path, &stat, &e), 0);
	const char *p = strrchr(buf_c(&stat), ')') + 2; /* field 3 */
	for (int field = 3; field < 22; field++)
		p = strchr(p, ' ') + 1;
	(void)snprintf(text, sizeof text, "%d %.*s\n", pid, (int)strcspn(p, " "), p);
	(void)snprintf(path, sizeof path, "%s/pid/%s", stack.dir, part);
	assert_int_equal(file_write(path, text, strlen(text), 0644, &e), 0);
}

/* No process keeps a monotonic time for another one, not even for its own next life. */
static void monotonic_times_do_not_outlive_a_process(void **s)
{
	(void)s;
	char id[40], script[300], cwd[200];
	struct err e = { 0 };
	int64_t took_ms;
	until_leased(id, &took_ms); /* the clock has just stepped */
	assert_int_equal(sbx_sh(&stack, org.key, id, "echo kept > kept", NULL), 0);
	assert_non_null(getcwd(cwd, sizeof cwd));
	(void)snprintf(script, sizeof script, "%s/tests/stack/stack.sh", cwd);
	stack_stop(&stack, "node1");
	const char *const argv[] = { "unshare", "--time", "--monotonic", "3600", "--boottime", "3600", script,
		"start", stack.dir, "node1", NULL };
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"ASAN_OPTIONS=detect_leaks=0:abort_on_error=1", NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.leaves = true,
		.timeout_ms = 60000 };
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("node: %s%s", e.msg, buf_c(&r.errout));
	began_by_our_clock("node1");
	stack_ready(&stack);
	let_it_work();
	assert_running(id);
	stack_stop(&stack, "node1"); /* and an hour back again */
	stack_start(&stack, "node1");
	stack_ready(&stack);
	let_it_work();
	assert_running(id);
	sbx_end(&stack, org.key, id);
	sbx_no_leaks(&stack);
}

static int up(void **s)
{
	(void)s;
	static const char *const parts[] = { "node1", "api1", "runner1" };
	stack_up(&stack, 1, 1, 1, "JOB_LEASE_S=20");
	sql(SKEW_SQL);
	for (size_t i = 0; i < 3; i++)
		stack_stop(&stack, parts[i]);
	for (size_t i = 0; i < 3; i++) /* with connections that read the clock that steps */
		stack_start(&stack, parts[i]);
	stack_ready(&stack);
	stack_org(&stack, &org);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_of_an_hour_cost_nothing),
		cmocka_unit_test(a_lease_ends_when_its_time_is_over_whatever_the_clock_did),
		cmocka_unit_test(a_daemon_that_starts_after_a_step_ends_no_lease),
		cmocka_unit_test(a_step_back_does_not_prolong_a_limit),
		cmocka_unit_test(monotonic_times_do_not_outlive_a_process),
	};
	return cmocka_run_group_tests_name("clock", tests, up, down);
}
