/* flow_bad_runner.c - bad days of a runner: a job that always crashes it, and a runner that sleeps through its lease. */
#include "../t.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "io/file.h"
#include "job/queue.h"
#include "runs.h"

static struct stack stack;
static struct stack_org acme;

#define EDIT "open('a.txt', 'a').write('two\\n')\n"

/* ---- poison */

/* The lease of a runner that is dead is at its end now, not in JOB_LEASE_S. */
static void lapse(const struct flow_run *r, pid_t dead)
{
	char n[64];
	runs_sql(&stack, n, sizeof n,
	    "WITH u AS (UPDATE jobs SET lease_until = now() - interval '1 second' WHERE subject = '%s' AND "
	    "state = 'running' AND worker LIKE '%%:%d' RETURNING 1) SELECT count(*) FROM u",
	    r->run, (int)dead);
}

/* COD-11: attempts are bounded, the run is closed with an error that says so, and the other jobs go on meanwhile. */
static void a_job_that_always_crashes_its_runner_is_given_up(void **s)
{
	(void)s;
	auto_flow_run struct flow_run poison = { 0 }, other = { 0 };
	char part[RUNS_PART];
	runs_repo(&stack, &acme, "poison");
	stack_crash_arm(&stack, "run.fetched");
	runs_start(&stack, &acme, runs_task("python", "poison", EDIT), &poison);
	for (int i = 0; i < JOB_MAX_CRASHES; i++) {
		assert_true(stack_crash_reached(&stack, "run.fetched"));
		runs_runner(&stack, &poison, part);
		pid_t pid = stack_pid(&stack, part);
		stack_kill(&stack, part);
		stack_crash_release(&stack, "run.fetched");
		if (i + 1 < JOB_MAX_CRASHES)
			stack_crash_arm(&stack, "run.fetched");
		lapse(&poison, pid);
		if (i == 0) { /* one without a repository, which fetches nothing */
			runs_do(&stack, &acme, runs_task("python", NULL, "print(1)"), &other);
			runs_check(&other, "result");
		}
		stack_start(&stack, part);
	}
	runs_watch(&stack, &acme, &poison, 0, 1);
	runs_check(&poison, "error");
	runs_sound(&stack, &poison);
	assert_non_null(strstr(js_str_or(poison.last, "message", ""), "not tried again"));
	assert_int_equal(js_int(poison.last, "attempts", 0), JOB_MAX_CRASHES + 1);
}

/* What a crash of PostgreSQL took back (flow_sandbox_crash) is asked for again, and the run knows nothing of it. */
static void a_lease_that_the_database_lost_is_no_end_of_a_run(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "lost");
	stack_crash_arm(&stack, "sandbox.row");
	runs_start(&stack, &acme, runs_task("python", "lost", "open('a.txt', 'a').write('two')"), &r);
	assert_true(stack_crash_reached(&stack, "sandbox.row"));
	stack_sql(&stack, "DELETE FROM sandboxes WHERE status = 'pending'", NULL);
	stack_crash_release(&stack, "sandbox.row");
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "result");
	runs_sound(&stack, &r);
}

/* ---- a runner that is stopped for longer than its lease, and goes on */

struct sleeper { /* a run whose first attempt was stopped on the way to its push, and its runner */
	struct flow_run run;
	char part[RUNS_PART];
};

/* Until another runner has claimed the job; `hold`: where that one is to stand, or NULL. */
static void put_to_sleep(struct sleeper *z, const char *repo, const char *hold)
{
	char sql[200];
	runs_repo(&stack, &acme, repo);
	stack_crash_arm(&stack, "run.pushing");
	/* Each attempt's commit is another one, so that one pushed by the wrong attempt shows. */
	runs_start(&stack, &acme,
	    runs_task("python", repo, "import time; open('a.txt', 'a').write(str(time.time()))"), &z->run);
	assert_true(stack_crash_reached(&stack, "run.pushing"));
	runs_runner(&stack, &z->run, z->part);
	assert_int_equal(kill(stack_pid(&stack, z->part), SIGSTOP), 0);
	if (hold != NULL)
		stack_crash_arm(&stack, hold);
	stack_crash_release(&stack, "run.pushing");
	(void)snprintf(sql, sizeof sql, "SELECT attempt FROM jobs WHERE subject = '%s'", z->run.run);
	runs_wait_sql(&stack, sql, "2");
}

/* Let it go on, and wait until it has said that the run is not its own. */
static void wake(const struct sleeper *z)
{
	char path[200], said[200];
	int64_t until = clock_ms() + 60000;
	(void)snprintf(path, sizeof path, "%s/log/%s.log", stack.dir, z->part);
	(void)snprintf(said, sizeof said, "msg=\"run not finished here\" run=%s", z->run.run);
	assert_int_equal(kill(stack_pid(&stack, z->part), SIGCONT), 0);
	for (bool seen = false; !seen; (void)poll(NULL, 0, 20)) {
		auto_buf struct buf log = BUF(64 << 20);
		struct err e = { 0 };
		assert_int_equal(file_read(path, &log, &e), 0);
		seen = strstr(buf_c(&log), said) != NULL;
		if (clock_ms() > until)
			fail_msg("%s does not notice that it lost its run", z->part);
	}
}

static void assert_done_by_the_other(struct sleeper *z, const char *repo)
{
	runs_check(&z->run, "result");
	runs_sound(&stack, &z->run);
	assert_int_equal(js_int(z->run.last, "attempts", 0), 2);
	auto_free char *tip = runs_tip(&stack, &acme, repo, js_str(z->run.last, "branch"));
	assert_string_equal(tip, js_str(z->run.last, "commit"));
	flow_run_free(&z->run);
}

/* The other one is through: nothing of what the sleeper still does counts. */
static void a_runner_that_wakes_after_its_run_was_done_changes_nothing(void **s)
{
	(void)s;
	struct sleeper z = { 0 };
	put_to_sleep(&z, "late", NULL);
	runs_watch(&stack, &acme, &z.run, 0, 0);
	size_t lines = json_array_size(z.run.lines);
	wake(&z);
	runs_watch(&stack, &acme, &z.run, 0, 1);
	assert_int_equal(json_array_size(z.run.lines), lines);
	assert_done_by_the_other(&z, "late");
}

static void own(const struct sleeper *z, char out[300])
{
	runs_sql(&stack, out, 300,
	    "SELECT (SELECT string_agg(id || status, ' ' ORDER BY id) FROM sandboxes WHERE session = '%s') "
	    "|| "
	    "(SELECT count(*) FROM credentials WHERE session = '%s' AND revoked_at IS NULL) || (SELECT "
	    "last_seq "
	    "FROM sessions WHERE id = '%s')",
	    z->run.session, z->run.session, z->run.session);
}

/* The other one is at work: its sandbox, its grant, its words and its branch are not the sleeper's to touch. */
static void a_runner_that_wakes_beside_its_successor_does_not_touch_its_work(void **s)
{
	(void)s;
	struct sleeper z = { 0 };
	char before[300], after[300], branch[100];
	put_to_sleep(&z, "beside", "run.tool_done");
	assert_true(stack_crash_reached(&stack, "run.tool_done"));
	own(&z, before);
	wake(&z);
	own(&z, after);
	assert_string_equal(before, after);
	assert_non_null(strstr(after, "running"));
	(void)snprintf(branch, sizeof branch, "agent/%s", id_tail(z.run.session));
	auto_free char *tip = runs_tip(&stack, &acme, "beside", branch);
	assert_string_equal(tip, "");
	stack_crash_release(&stack, "run.tool_done");
	runs_watch(&stack, &acme, &z.run, 0, 0);
	assert_done_by_the_other(&z, "beside");
}

static int setup(void **s)
{
	(void)s;
	/* Long enough for one that is awake on a machine that has much to do: attempts are counted. */
	stack_up(&stack, 2, 2, 1, "JOB_LEASE_S=15\nRUNNER_JOBS=2\n");
	stack_org(&stack, &acme);
	/* What lapse() writes is a lease of sixteen seconds ago: one from before PostgreSQL's start would be excused. */
	runs_wait_sql(&stack, "SELECT pg_postmaster_start_time() < now() - interval '16 seconds'", "t");
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
		cmocka_unit_test(a_lease_that_the_database_lost_is_no_end_of_a_run),
		cmocka_unit_test(a_job_that_always_crashes_its_runner_is_given_up),
		cmocka_unit_test(a_runner_that_wakes_after_its_run_was_done_changes_nothing),
		cmocka_unit_test(a_runner_that_wakes_beside_its_successor_does_not_touch_its_work),
	};
	return cmocka_run_group_tests_name("bad days of a runner", tests, setup, teardown);
}
