/* flow_stack.c - the stack's own script, as a person uses it by `make run` and `make stop`. */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "io/file.h"
#include "stack.h"

static struct stack stack;

/* A zombie has no binary. */
static bool runs(pid_t pid)
{
	char path[64], exe[300];
	(void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	return readlink(path, exe, sizeof exe) > 0;
}

static void forget(const char *part)
{
	char path[128];
	(void)snprintf(path, sizeof path, "%s/pid/%s", stack.dir, part);
	assert_int_equal(unlink(path), 0);
}

static void settings_of_ones_own_reach_the_daemons_at_the_next_start(void **s)
{
	(void)s;
	char path[128];
	struct err e = { 0 };
	static const char setting[] = "ORG_CONCURRENT_RUNS=7\n",
			  hosts[] = "MODEL_INWARD_HOSTS=\"127.0.0.1:9\"\n";
	pid_t api = stack_pid(&stack, "api1"), pg = stack_pid(&stack, "pg");
	stack_ready(&stack);
	assert_int_equal(stack_pid(&stack, "api1"), api); /* nothing new, nothing done */
	(void)snprintf(path, sizeof path, "%s/local.conf", stack.dir);
	auto_buf struct buf local = BUF(1000);
	assert_int_equal(buf_fmt(&local, "%s%s", hosts, setting), 0);
	assert_int_equal(file_write(path, buf_c(&local), local.n, 0644, &e), 0);
	/* As if it had been brought up with the bundled model provider; the file is shell. */
	auto_buf struct buf state = BUF(1 << 16);
	(void)snprintf(path, sizeof path, "%s/stack.conf", stack.dir);
	assert_int_equal(file_read(path, &state, &e), 0);
	assert_int_equal(buf_str(&state, "ECHO_PORT=$((E2B_HTTP_PORT + 1))\n"), 0);
	assert_int_equal(file_write(path, buf_c(&state), state.n, 0644, &e), 0);
	stack_ready(&stack);
	auto_buf struct buf conf = BUF(1 << 16);
	(void)snprintf(path, sizeof path, "%s/gatehouse.conf", stack.dir);
	assert_int_equal(file_read(path, &conf, &e), 0);
	assert_non_null(strstr(buf_c(&conf), setting));
	/* Hosts of model providers come beside the stack's own. */
	const char *own = strstr(buf_c(&conf), "\nMODEL_INWARD_HOSTS='127.0.0.1:");
	assert_non_null(own);
	assert_non_null(strstr(own, " '\"127.0.0.1:9\"\n"));
	assert_true(runs(stack_pid(&stack, "echo")));
	assert_false(runs(api));
	assert_true(runs(stack_pid(&stack, "api1")));
	assert_int_equal(stack_pid(&stack, "pg"), pg);
}

static void a_command_asked_for_help_tells_its_usage_and_does_nothing(void **s)
{
	(void)s;
	auto_buf struct buf explain = BUF(1 << 16), migrate = BUF(1 << 16);
	stack_cli(&stack, (const char *const[]){ "egress", "explain", "--help", NULL }, &explain);
	assert_true(str_starts(buf_c(&explain), "gatehouse egress explain [--allow "));
	stack_cli(&stack, (const char *const[]){ "migrate", "--help", NULL }, &migrate);
	assert_true(str_starts(buf_c(&migrate), "gatehouse migrate \n"));
}

/* As after an interrupt: `up` finds it and starts another; `down` leaves nothing. */
static void a_daemon_of_which_no_pid_file_tells_is_found(void **s)
{
	(void)s;
	pid_t egress = stack_pid(&stack, "egress1");
	forget("egress1");
	stack_ready(&stack);
	assert_false(runs(egress));
	egress = stack_pid(&stack, "egress1");
	assert_true(runs(egress));
	pid_t runner = stack_pid(&stack, "runner1");
	forget("egress1");
	forget("runner1");
	stack_down(&stack);
	assert_false(runs(egress));
	assert_false(runs(runner));
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_of_ones_own_reach_the_daemons_at_the_next_start),
		cmocka_unit_test(a_command_asked_for_help_tells_its_usage_and_does_nothing),
		cmocka_unit_test(
		    a_daemon_of_which_no_pid_file_tells_is_found), /* and is the end of the stack */
	};
	return cmocka_run_group_tests_name("stack", tests, up, NULL);
}
