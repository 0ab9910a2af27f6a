#include "../span.h"
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "io/file.h"

static char dir[64], armed[100], reached[120];

static int setup(void **state)
{
	(void)state;
	struct err e = { 0 };
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0 || setenv("GATEHOUSE_CRASH_DIR", dir, 1) != 0)
		return -1;
	(void)snprintf(armed, sizeof armed, "%s/run.here", dir);
	(void)snprintf(reached, sizeof reached, "%s.reached", armed);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	struct err e = { 0 };
	return file_rmtree(dir, &e);
}

static void test_a_point_that_is_not_armed_costs_nothing(void **state)
{
	(void)state;
	struct span from = span_begin();
	for (int i = 0; i < 1000; i++)
		crash_point("run.here");
	assert_true(span_ms(&from) < 5000);
	assert_int_equal(access(reached, F_OK), -1);
}

#ifdef GH_CRASH_POINTS

static pid_t pass(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		crash_point("run.here");
		_exit(3);
	}
	return pid;
}

static void until(const char *path, bool there)
{
	int64_t end = clock_ms() + 60000;
	while ((access(path, F_OK) == 0) != there)
		assert_true(clock_ms() < end);
}

/* REL-1 */
static void test_of_two_processes_one_waits_at_an_armed_point_until_it_is_killed_or_let_go(void **state)
{
	(void)state;
	struct err e = { 0 };
	for (int killed = 0; killed < 2; killed++) {
		assert_int_equal(file_write(armed, "", 0, 0600, &e), 0);
		pid_t first = pass();
		until(reached, true);
		pid_t second = pass();
		int status;
		assert_int_equal(waitpid(second, &status, 0), second);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
		assert_int_equal(waitpid(first, &status, WNOHANG), 0);
		if (killed)
			assert_int_equal(kill(first, SIGKILL), 0);
		assert_int_equal(unlink(reached), 0);
		assert_int_equal(waitpid(first, &status, 0), first);
		assert_true(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 3);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_point_that_is_not_armed_costs_nothing),
#ifdef GH_CRASH_POINTS
		cmocka_unit_test(
		    test_of_two_processes_one_waits_at_an_armed_point_until_it_is_killed_or_let_go),
#endif
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
