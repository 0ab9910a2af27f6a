/* What becomes of a run when somebody stops it, when its runner ends, and when PostgreSQL goes away. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../fakebox.h"
#include "../runtest.h"
#include "auth/principal.h"
#include "base/clock.h"
#include "base/js.h"
#include "code/runs.h"

static const struct principal ann = { .kind = CRED_KEY, .org = "acme", .user = "ann", .scopes = "*" };
static const struct principal bob = { .kind = CRED_KEY, .org = "acme", .user = "bob", .scopes = "*" };
static const struct principal boss = {
	.kind = CRED_KEY, .org = "acme", .user = "eve", .scopes = "*", .org_admin = true
};
static const struct principal other = {
	.kind = CRED_KEY, .org = "other", .user = "ann", .scopes = "*", .org_admin = true
};

/* ---- something that happens while the tool works: when it has made the file "started". Here, in the first thread, because
 * a server that pgtest starts ends with the thread that started it; the run works in another one. */

static void *work_thread(void *arg)
{
	work(arg);
	return NULL;
}

static const char *waiting_tool(void)
{
	return mem_fmt(mem,
	    "import time\nopen('a.txt', 'a').write('more\\n'); open('%s/started', 'w'); time.sleep(60)",
	    gits.dir);
}

static void work_while(struct done *d, void (*act)(struct done *d))
{
	pthread_t thread;
	auto_free char *path = gittest_path(&gits, "started");
	int64_t until = clock_ms() + 60000;
	assert_int_equal(pthread_create(&thread, NULL, work_thread, d), 0);
	while (access(path, F_OK) != 0 && clock_ms() < until)
		(void)poll(NULL, 0, 10);
	(void)unlink(path);
	act(d);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void stop(struct done *d)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_json json_t *row = runs_stop(db, &ann, d->ids.run, &e);
	assert_non_null(js_str(row, "stopRequestedAt"));
	task_raise(&d->hold, TASK_STOP); /* as the notification does */
}
static void drain(struct done *d)
{
	task_raise(&d->hold, TASK_DRAIN);
}
static void lose(struct done *d)
{
	atomic_store(&d->hold.until_ms, 0);
}

/* COD-11 */
static void a_stop_ends_the_tool_at_once_and_closes_as_stopped(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "stop", tip);
	post(&d, task("stop", "python", waiting_tool()));
	claim(&d);
	struct span before = span_begin();
	work_while(&d, stop);
	assert_true(span_ms(&before) < 20000);
	assert_over(&d, "stopped");
	assert_string_equal(js_str(d.last, "code"), "stopped");
	assert_string_equal(js_str(d.last, "message"), "The run was stopped by ann.");
	assert_string_equal(js_str(step(&d, "exit"), "message"), "stopped");
	assert_string_equal(story(&d),
	    "status:start step:leased step:fetch step:checkout step:tool tool-call:exit step:ended error");
	assert_not_pushed("stop");
}

static void a_run_stopped_before_it_is_claimed_leases_nothing(void **s)
{
	(void)s;
	struct done d = { 0 };
	int leases = fakebox.leases;
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	stop(&d); /* nobody has it, so it is over at once */
	look(&d);
	assert_over(&d, "stopped");
	assert_int_equal(fakebox.leases, leases);
}

/* COD-15 */
static void only_who_started_a_run_and_admins_may_stop_it(void **s)
{
	(void)s;
	struct done d = { 0 };
	struct err e = { 0 };
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_null(runs_stop(db, &bob, d.ids.run, &e));
	assert_int_equal(e.code, ERR_FORBIDDEN);
	err_clear(&e);
	assert_null(runs_stop(db, &other, d.ids.run, &e)); /* ID-4 */
	assert_int_equal(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	auto_json json_t *first = runs_stop(db, &boss, d.ids.run, &e),
			 *again = runs_stop(db, &ann, d.ids.run, &e);
	assert_string_equal(js_str(again, "stopRequestedBy"), "eve");
	assert_string_equal(js_str(first, "stopRequestedAt"), js_str(again, "stopRequestedAt"));
	look(&d);
	assert_over(&d, "stopped");
	auto_json json_t *ended = runs_stop(db, &ann, d.ids.run, &e);
	assert_string_equal(js_str(ended, "state"), "stopped");
}

/* RUN-6, COD-11 */
static void a_run_handed_back_is_done_by_the_next_runner(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "drain", tip);
	post(&d,
	    task("drain", "python",
		mem_fmt(mem,
		    "import os, time\nfirst = not os.path.exists('%s/twice')\nopen('%s/twice', "
		    "'w')\nopen('a.txt', 'w')\n"
		    "if first: open('%s/started', 'w'); time.sleep(60)",
		    gits.dir, gits.dir, gits.dir)));
	claim(&d);
	int ended = fakebox.ended;
	work_while(&d, drain);
	assert_int_equal(d.rc, -1);
	assert_int_equal(fakebox.ended, ended + 1); /* the lease first */
	assert_string_equal(js_str(d.row, "state"), "running");
	claim(&d);
	assert_int_equal(d.job.attempt, 2);
	work(&d);
	assert_over(&d, "done");
	assert_int_equal(js_int(d.last, "attempts", 0), 2);
	assert_non_null(strstr(text_of(&d), "attempt 2"));
}

/* A runner whose lease ran out writes nothing more, and what it left is ended before the next one begins. */
static void a_lost_run_goes_on_elsewhere_and_its_old_sandbox_is_ended(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "gone", tip);
	post(&d,
	    task("gone", "python",
		mem_fmt(mem,
		    "import os, time\nfirst = not os.path.exists('%s/once')\nopen('%s/once', "
		    "'w')\nopen('a.txt', 'w')\n"
		    "if first: open('%s/started', 'w'); time.sleep(60)",
		    gits.dir, gits.dir, gits.dir)));
	claim(&d);
	work_while(&d, lose);
	assert_int_equal(d.rc, -1);
	size_t told = json_array_size(d.lines);
	assert_null(step(&d, "ended"));
	pgtest_sql(
	    server, "UPDATE jobs SET lease_until = now() - interval '1 second' WHERE state = 'running'");
	claim(&d);
	work(&d);
	assert_over(&d, "done");
	assert_string_equal(js_str(json_array_get(d.lines, told), "step"), "attempt");
}

static void nothing_is_written_with_a_stale_fence(void **s)
{
	(void)s;
	struct done d = { 0 };
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	claim(&d);
	struct done old = d;
	pgtest_sql(
	    server, "UPDATE jobs SET lease_until = now() - interval '1 second' WHERE state = 'running'");
	claim(&d);
	int leases = fakebox.leases;
	work(&old);
	assert_int_equal(old.rc, -1);
	assert_int_equal(json_array_size(old.lines), 1);
	assert_int_equal(fakebox.leases, leases);
	work(&d);
	assert_over(&d, "done");
}

/* COD-11: the first runner died right after its push; the second completes it and does nothing again. */
static void a_pushed_branch_is_completed_and_not_redone(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "half", tip);
	post(&d, task("half", "python", "open('a.txt', 'w')"));
	claim(&d);
	auto_free char *commit = gittest_out(
	    &gits, "half.git", "x\n", 2, "commit-tree", "main^{tree}", "-p", "main", (char *)0);
	gittest(&gits, "half.git", "update-ref", mem_fmt(mem, "refs/heads/%s", branch_of(&d)), commit);
	pgtest_sql(server,
	    mem_fmt(mem,
		"UPDATE runs SET state = 'running', draft = "
		"'{\"commit\":\"%s\",\"diffstat\":{\"files\":1},\"logTail\":\"said\"}' WHERE id "
		"= '%s'; UPDATE jobs SET lease_until = now() - interval '1 second' WHERE state = 'running'",
		commit, d.ids.run));
	claim(&d);
	int leases = fakebox.leases;
	work(&d);
	assert_over(&d, "done");
	assert_int_equal(fakebox.leases, leases);
	assert_string_equal(js_str(d.last, "commit"), commit);
	assert_string_equal(js_str(d.last, "logTail"), "said");
	assert_int_equal(js_int(js_get(d.last, "diffstat"), "files", 0), 1);
	assert_string_equal(story(&d), "status:start step:attempt step:push step:verify result");
}

static void a_push_that_did_not_happen_is_started_again(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "draft", tip);
	post(&d, task("draft", "python", "open('a.txt', 'w')"));
	claim(&d);
	pgtest_sql(server,
	    mem_fmt(mem,
		"UPDATE runs SET state = 'running', draft = '{\"commit\":\"%s\"}' WHERE id = '%s'; UPDATE "
		"jobs SET lease_until = now() - "
		"interval '1 second' WHERE state = 'running'",
		tip, d.ids.run));
	claim(&d);
	work(&d);
	assert_over(&d, "done");
	assert_string_equal(in_remote("draft", "rev-parse", branch_of(&d)), js_str(d.last, "commit"));
}

static void a_run_that_kills_its_runners_is_given_up(void **s)
{
	(void)s;
	struct done d = { 0 };
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	claim(&d);
	pgtest_sql(server,
	    mem_fmt(mem, "UPDATE jobs SET crashes = %d, lease_until = now() WHERE subject = '%s'",
		JOB_MAX_CRASHES, d.ids.run));
	claim(&d);
	assert_true(d.job.poisoned);
	int leases = fakebox.leases;
	work(&d);
	assert_over(&d, "error");
	assert_int_equal(fakebox.leases, leases);
	assert_non_null(strstr(js_str(d.last, "message"), "not tried again"));
}

/* A renewal that comes through late does not bring back what the run has already taken for lost. */
static void a_job_that_was_lost_by_the_clock_stays_lost(void **s)
{
	(void)s;
	struct task_hold h = { 0 };
	atomic_store(&h.until_ms, clock_ms() + 60000);
	assert_int_equal(task_held(&h), TASK_GO);
	atomic_store(&h.until_ms, clock_ms() - 1);
	assert_int_equal(task_held(&h), TASK_LOST);
	atomic_store(&h.until_ms, clock_ms() + 60000);
	assert_int_equal(task_held(&h), TASK_LOST);
}

/* REL-1: a node, its nginx or its PostgreSQL that is being restarted costs a run a moment. */
static void a_lease_waits_for_what_is_being_restarted(void **s)
{
	(void)s;
	static const char *const reasons[] = { "node_away", "node_cut", "node_starting", "database_away" };
	fakebox.refuse = "It is away.";
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
		struct done d = { .end_ms = PATIENCE_MS };
		fakebox.reason = reasons[i];
		fakebox.refusals = 2;
		run(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
		assert_over(&d, "done");
		assert_int_equal(fakebox.refusals, -1);
	}
	fakebox.refuse = fakebox.reason = NULL;
}

/* REL-2 */
static void restart_postgresql(struct done *d)
{
	(void)d;
	pgtest_down(server);
	(void)poll(NULL, 0, 300);
	gittest_write(&gits, "go", "");
	(void)poll(NULL, 0, 300);
	pgtest_up(server);
}

static void a_restart_of_postgresql_loses_nothing(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "restart", tip);
	post(&d,
	    task("restart", "python",
		mem_fmt(mem,
		    "import os, time\nopen('a.txt', 'w'); open('%s/started', 'w')\nwhile not "
		    "os.path.exists('%s/go'): time.sleep(0.01)",
		    gits.dir, gits.dir)));
	claim(&d);
	work_while(&d, restart_postgresql);
	assert_over(&d, "done");
	assert_string_equal(in_remote("restart", "rev-parse", branch_of(&d)), js_str(d.last, "commit"));
}

/* A node that stays away is said, and keeps no run open for ever. */
static void a_lease_that_cannot_be_ended_is_said(void **s)
{
	(void)s;
	struct done d = { 0 };
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	claim(&d);
	fakebox.end_fails = true;
	work(&d);
	fakebox.end_fails = false;
	assert_int_equal(d.rc, 0);
	assert_string_equal(js_str(step(&d, "ended"), "status"), "failed");
	/* And what it says is true: the node is told by the row. */
	pgtest_sql(server,
	    mem_fmt(mem,
		"DO $$ BEGIN ASSERT (SELECT end_asked_at IS NOT NULL FROM sandboxes WHERE session = '%s'); "
		"END $$",
		d.ids.session));
	assert_string_equal(js_str(d.last, "type"), "result");
}

static void directories_of_dead_runners_are_swept_and_no_others(void **s)
{
	(void)s;
	gittest_python(
	    &gits, "import os; os.makedirs('runner/run_x.7/base.git'); os.mkdir('runner/other')", NULL);
	auto_free char *live = gittest_path(&gits, "runner/run_y.8");
	struct err e = { 0 };
	auto_free char *file = gittest_path(&gits, "conf");
	gittest_python(&gits, "import os; os.mkdir('runner/run_y.8')", NULL);
	int lock = runtest_lock(live);
	struct conf *c = conf_load(file, &e);
	task_sweep(c);
	conf_free(c);
	gittest_python(&gits,
	    "import os; assert sorted(os.listdir('runner')) == ['other', 'run_y.8'], os.listdir('runner')",
	    NULL);
	(void)close(lock);
	gittest_python(&gits, "import os; os.rmdir('runner/other'); os.rmdir('runner/run_y.8')", NULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, runtest_begin, runtest_end)
	const struct CMUnitTest tests[] = {
		T(a_stop_ends_the_tool_at_once_and_closes_as_stopped),
		T(a_run_stopped_before_it_is_claimed_leases_nothing),
		T(only_who_started_a_run_and_admins_may_stop_it),
		T(a_run_handed_back_is_done_by_the_next_runner),
		T(a_lost_run_goes_on_elsewhere_and_its_old_sandbox_is_ended),
		T(nothing_is_written_with_a_stale_fence),
		T(a_pushed_branch_is_completed_and_not_redone),
		T(a_push_that_did_not_happen_is_started_again),
		T(a_run_that_kills_its_runners_is_given_up),
		T(a_lease_waits_for_what_is_being_restarted),
		T(a_job_that_was_lost_by_the_clock_stays_lost),
		T(a_restart_of_postgresql_loses_nothing),
		T(directories_of_dead_runners_are_swept_and_no_others),
		T(a_lease_that_cannot_be_ended_is_said),
	};
	return cmocka_run_group_tests_name("run_again", tests, runtest_setup, runtest_teardown);
}
