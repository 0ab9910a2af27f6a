/*
 * flow_bad_database.c - bad days of PostgreSQL under load (REL-2): away for longer than leases, stopped, locked, and ended in
 * the middle of transactions. The load is that of chaos.h: its clients take a 503 that says when to come back, or a cut, and
 * nothing else, for an answer; and its judge wants everything back.
 */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "chaos.h"
#include "io/file.h"
#include "io/proc.h"
#include "runs.h"

enum { RUNS = 8, AWAY_MS = 8000 /* JOB_LEASE_S and more */, SLOW_MS = 5000, LOCK_MS = 4000 };

static struct chaos chaos;

static void for_a_while(int ms)
{
	(void)poll(NULL, 0, ms);
}

/* One request, with a key that must be looked up: it is answered in time, by a 503 with Retry-After. */
static void assert_refused_in_time(int within_ms)
{
	char retry[20];
	auto_web struct web w = { 0 };
	struct span before = span_begin();
	web_json(&chaos.stack, "GET", "/v1/bots", chaos.org.member, NULL, &w);
	assert_int_equal(w.status, 503);
	assert_true(web_header(&w, "Retry-After", retry, sizeof retry));
	assert_string_equal(web_error(&w, "code"), "database_away");
	assert_in_range(span_ms(&before), 0, within_ms);
}

static void away_for_longer_than_a_lease_costs_time_and_nothing_else(void **s)
{
	(void)s;
	chaos_begin(&chaos, RUNS);
	chaos_wait_events(&chaos, 20);
	stack_stop(&chaos.stack, "pg");
	assert_refused_in_time(5000);
	for_a_while(AWAY_MS);
	assert_refused_in_time(5000);
	stack_start(&chaos.stack, "pg");
	chaos_end(&chaos);
}

/* ---- slow: every backend stands still, and the server takes no connection either */

static int processes(pid_t out[256])
{
	char path[64];
	auto_buf struct buf list = BUF(65536);
	struct err e = { 0 };
	int n = 0;
	out[n++] = stack_pid(&chaos.stack, "pg");
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)out[0], (int)out[0]);
	assert_int_equal(file_read(path, &list, &e), 0);
	struct str rest = { list.p, list.n }, word;
	while (n < 256 && str_cut(&rest, ' ', &word))
		if (word.n > 0)
			out[n++] = (pid_t)strtol(word.p, NULL, 10);
	return n;
}

static void standing_still_is_a_503_in_time_and_loses_nothing(void **s)
{
	(void)s;
	pid_t pids[256];
	chaos_begin(&chaos, RUNS);
	chaos_wait_events(&chaos, 20);
	int n = processes(pids);
	for (int i = 0; i < n; i++)
		(void)kill(pids[i], SIGSTOP);
	/* The statement's time, a new connection's, and as much again for one that was tried twice. */
	assert_refused_in_time(20000);
	for_a_while(SLOW_MS);
	for (int i = n; i-- > 0;)
		(void)kill(pids[i], SIGCONT);
	chaos_end(&chaos);
}

/* ---- a lock that somebody holds, and an end in the middle of what waits for it */

/* In a thread, until it is told to end or PostgreSQL does; how its psql ends is of no interest. */
static void *hold_lock(void *unused)
{
	(void)unused;
	static const char sql[] =
	    "BEGIN; LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(900); COMMIT";
	char host[128];
	(void)snprintf(host, sizeof host, "%s/run/pg", chaos.stack.dir);
	const char *const argv[] = { "psql", "-X", "-q", "-h", host, "-U", "postgres", "-d", "gatehouse",
		"-c", sql, NULL };
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 15 * PATIENCE_MS,
		.max_out_bytes = 1 << 16 };
	auto_proc struct proc_result r = { 0 };
	struct err ignored = { 0 };
	(void)proc_run(&o, &r, &ignored);
	return NULL;
}

static void wait_for_the_lock(void)
{
	runs_wait_sql(&chaos.stack,
	    "SELECT (count(*) > 2)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock'", "true");
}

static void a_lock_that_is_held_delays_and_loses_nothing(void **s)
{
	(void)s;
	pthread_t holder;
	chaos_begin(&chaos, RUNS);
	chaos_wait_events(&chaos, 20);
	assert_int_equal(pthread_create(&holder, NULL, hold_lock, NULL), 0);
	wait_for_the_lock();
	for_a_while(LOCK_MS);
	stack_sql(&chaos.stack,
	    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", NULL);
	(void)pthread_join(holder, NULL);
	chaos_end(&chaos);
}

/* An immediate shutdown while transactions stand at the lock: each of them is lost whole. */
static void an_end_in_the_middle_of_transactions_loses_none_half(void **s)
{
	(void)s;
	pthread_t holder;
	chaos_begin(&chaos, RUNS);
	chaos_wait_events(&chaos, 20);
	assert_int_equal(pthread_create(&holder, NULL, hold_lock, NULL), 0);
	wait_for_the_lock();
	pid_t pid = stack_pid(&chaos.stack, "pg");
	assert_int_equal(kill(pid, SIGQUIT), 0);
	(void)pthread_join(holder, NULL);
	stack_stop(&chaos.stack, "pg"); /* waits for its end */
	stack_start(&chaos.stack, "pg");
	chaos_end(&chaos);
}

static int setup(void **s)
{
	(void)s;
	chaos_stack(&chaos, "JOB_LEASE_S=5\nRUNNER_JOBS=2\nDATABASE_TIMEOUT_MS=1500\n");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&chaos.stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(away_for_longer_than_a_lease_costs_time_and_nothing_else),
		cmocka_unit_test(standing_still_is_a_503_in_time_and_loses_nothing),
		cmocka_unit_test(a_lock_that_is_held_delays_and_loses_nothing),
		cmocka_unit_test(an_end_in_the_middle_of_transactions_loses_none_half),
	};
	return cmocka_run_group_tests_name("bad days of PostgreSQL", tests, setup, teardown);
}
