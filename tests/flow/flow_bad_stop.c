/*
 * flow_bad_stop.c - the end that is asked for (RUN-6): SIGTERM of every process under load, in its unit's stop timeout, and a
 * reload of nginx under streams. The load, and what must hold after it, are those of chaos.h.
 */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "chaos.h"
#include "io/file.h"
#include "runs.h"

static struct chaos chaos;

/* ---- SIGTERM */

struct part {
	const char *name;
	int signal, within_s; /* TimeoutStopSec of its unit (systemd/) */
};
static const struct part parts[] = {
	{ "runner1", SIGTERM, 60 },
	{ "node1", SIGTERM, 30 },
	{ "api1", SIGTERM, 60 },
	{ "nginx", SIGTERM, 10 },
	{ "runner2", SIGTERM, 60 },
	{ "pg", SIGINT, 60 }, /* what PostgreSQL's unit sends; TERM waits for its clients */
	{ "node2", SIGTERM, 30 },
	{ "egress1", SIGTERM, 30 },
	{ "api2", SIGTERM, 60 },
};
enum { PARTS = sizeof parts / sizeof parts[0], RUNS = 24, EVENTS_BETWEEN = 24 };

static bool is_there(pid_t pid)
{
	char path[64];
	auto_buf struct buf stat = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (file_read(path, &stat, &e) != 0)
		return false;
	const char *at = strrchr(buf_c(&stat), ')');
	return at != NULL && !str_starts(at, ") Z");
}

static void end(const struct part *p)
{
	pid_t pid = stack_pid(&chaos.stack, p->name);
	struct span before = span_begin();
	assert_int_equal(kill(pid, p->signal), 0);
	while (is_there(pid)) {
		if (span_ms(&before) > p->within_s * 1000LL)
			fail_msg("%s has not ended within %d s", p->name, p->within_s);
		(void)poll(NULL, 0, 10);
	}
	print_message("%-8s ended after %4d ms\n", p->name, (int)(clock_ms() - before.began_ms));
	stack_start(&chaos.stack, p->name);
}

/* RUN-6, REL-1 */
static void sigterm_under_load_ends_in_time_and_loses_nothing(void **s)
{
	(void)s;
	char n[32];
	chaos_begin(&chaos, RUNS);
	for (int i = 0; i < PARTS; i++) {
		chaos_wait_events(&chaos, (i + 1) * EVENTS_BETWEEN);
		end(&parts[i]);
	}
	chaos_end(&chaos);
	/* A runner that was asked to end has handed its jobs back: none of them waited for its lease to run out. */
	runs_sql(&chaos.stack, n, sizeof n, "SELECT count(*) FROM jobs WHERE crashes > 0");
	assert_string_equal(n, "0");
}

/* ---- reload */

/* Streams that were open go on to their end with the worker they have, and no request in between is refused. */
static void a_reload_of_nginx_under_streams_is_noticed_by_nobody(void **s)
{
	(void)s;
	chaos_begin(&chaos, 8);
	for (int i = 1; i <= 4; i++) {
		chaos_wait_events(&chaos, i * 15);
		assert_int_equal(kill(stack_pid(&chaos.stack, "nginx"), SIGHUP), 0);
	}
	chaos_end(&chaos);
	if (atomic_load(&chaos.refused) > 0)
		fail_msg("%d refused: %s", atomic_load(&chaos.refused), chaos.refusal);
	assert_int_equal(atomic_load(&chaos.cut), 0);
}

static int setup(void **s)
{
	(void)s;
	chaos_stack(&chaos, "JOB_LEASE_S=30\nRUNNER_JOBS=2\n");
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
		cmocka_unit_test(a_reload_of_nginx_under_streams_is_noticed_by_nobody),
		cmocka_unit_test(sigterm_under_load_ends_in_time_and_loses_nothing),
	};
	return cmocka_run_group_tests_name("the end that is asked for", tests, setup, teardown);
}
