/*
 * Standard input that is written to while a command runs, signals, and what is told of commands, through a real box: SBX-46.
 * The faults of others, by number: app/sandbox/README.md.
 */
#include "../t.h"
#include "../span.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../boxtest.h"
#include "../liar.h"
#include "base/clock.h"

static struct boxtest box;

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	return 0;
}

static int up_in_gvisor(void **s)
{
	(void)s;
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	return 0;
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static struct channel_cmd *start(const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	return boxtest_start(
	    &box, &(struct channel_spec){ .argv = argv, .stdin_open = true, .label = "l", .live = true });
}

static uint64_t give(uint32_t cmd, const char *p, size_t n, bool close, int ms)
{
	struct err e = { 0 };
	uint64_t taken;
	struct channel_wait w = boxtest_wait(ms);
	const struct channel_input in = { .cmd = cmd, .p = p, .n = n, .close = close, .at = PROTO_APPEND };
	if (channel_input(box.c, &in, &w, &taken, &e) != 0)
		fail_msg("%s", e.msg);
	return taken;
}

static enum err_code refused(uint32_t cmd, uint64_t at, const char *part)
{
	struct err e = { 0 };
	uint64_t taken;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	const struct channel_input in = { .cmd = cmd, .p = "x", .n = 1, .at = at };
	assert_int_equal(channel_input(box.c, &in, &w, &taken, &e), -1);
	if (strstr(e.msg, part) == NULL)
		fail_msg("%s", e.msg);
	return e.code;
}

static struct channel_item look(uint32_t cmd)
{
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_item *items = NULL;
	assert_int_equal(channel_list(box.c, cmd, &w, &items, &e), 1);
	struct channel_item t = items[0];
	free(items);
	return t;
}

/* What comes next must be this, in however many pieces. */
static void expect(struct channel_cmd *k, const char *want)
{
	while (*want != 0) {
		struct err e = { 0 };
		struct channel_event ev;
		struct channel_wait w = boxtest_wait(PATIENCE_MS);
		assert_int_equal(channel_next(k, &w, &ev, &e), 0);
		assert_int_equal(ev.type, CHANNEL_OUT);
		assert_true(ev.n <= strlen(want));
		assert_memory_equal(ev.p, want, ev.n);
		want += ev.n;
	}
}

static void a_running_command_is_talked_to_until_its_input_is_closed(void **s)
{
	(void)s;
	struct channel_cmd *k = start("while read -r x; do echo \"<$x>\"; done; echo over");
	uint32_t cmd = channel_cmd_id(k);
	assert_int_equal(give(cmd, "one\n", 4, false, PATIENCE_MS), 4);
	expect(k, "<one>\n");
	assert_int_equal(look(cmd).in_state, PROTO_IN_OPEN);
	assert_int_equal(look(cmd).in_bytes, 4);
	assert_int_equal(give(cmd, "two\n", 4, true, PATIENCE_MS), 4);
	expect(k, "<two>\nover\n");
	assert_int_equal(boxtest_finish(k, NULL, NULL, true).exit_code, 0);
	assert_int_equal(look(cmd).in_state, PROTO_IN_CLOSED);
	assert_int_equal(refused(cmd, PROTO_APPEND, "is closed"), ERR_CONFLICT);
}

static void a_megabyte_goes_through_in_order(void **s)
{
	(void)s;
	enum { N = 1 << 20 };
	auto_free char *in = xcalloc(1, N);
	auto_buf struct buf out = BUF(2 * N);
	for (size_t i = 0; i < N; i++)
		in[i] = (char)(i * 7 + i / 251);
	struct channel_cmd *k = start("cat");
	assert_int_equal(give(channel_cmd_id(k), in, N, true, PATIENCE_MS), N);
	assert_int_equal(boxtest_finish(k, &out, NULL, false).exit_code, 0);
	assert_int_equal(out.n, N);
	assert_memory_equal(out.p, in, N);
}

/* Fault 28: neither the writer nor the box waits for ever, and not a byte is taken twice. */
static void who_does_not_read_holds_up_nobody_and_loses_nothing(void **s)
{
	(void)s;
	enum { N = 1 << 20 };
	auto_free char *in = xcalloc(1, N);
	auto_buf struct buf out = BUF(2 * N);
	for (size_t i = 0; i < N; i++)
		in[i] = (char)(i * 7 + i / 251);
	struct channel_cmd *k = start("while [ ! -e go ]; do sleep 0.05; done; cat");
	uint32_t cmd = channel_cmd_id(k);
	uint64_t at = give(cmd, in, N, true, span_room_ms(100));
	assert_true(at > 0 && at < N);
	assert_int_equal(look(cmd).in_bytes, at);
	assert_int_equal(look(cmd).in_state, PROTO_IN_OPEN); /* closed only when all was taken */
	assert_int_equal(boxtest_run(&box, "touch go", PATIENCE_MS, NULL).exit_code, 0);
	assert_int_equal(refused(cmd, at + 1, "stands at offset"), ERR_CONFLICT);
	struct err e = { 0 };
	uint64_t taken;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	const struct channel_input rest = { .cmd = cmd, .p = in + at, .n = N - at, .close = true, .at = at };
	assert_int_equal(channel_input(box.c, &rest, &w, &taken, &e), 0);
	assert_int_equal(taken, N - at);
	assert_int_equal(boxtest_finish(k, &out, NULL, false).exit_code, 0);
	assert_int_equal(out.n, N);
	assert_memory_equal(out.p, in, N);
}

static bool is_broken(void *arg)
{
	return look(*(uint32_t *)arg).in_state == PROTO_IN_BROKEN;
}

static void a_reader_that_goes_away_is_told(void **s)
{
	(void)s;
	struct channel_cmd *k = start("exec <&-; echo closed; sleep 300");
	uint32_t cmd = channel_cmd_id(k);
	expect(k, "closed\n");
	boxtest_until(is_broken, &cmd, PATIENCE_MS); /* without anybody writing */
	assert_int_equal(refused(cmd, PROTO_APPEND, "no longer reads"), ERR_CONFLICT);
	channel_cmd_close(k);
	int n;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_stop_one(box.c, cmd, &w, &n, &e), 0);
}

struct writer {
	uint32_t cmd;
	struct err e;
	int rc;
};

static void *write_much(void *arg)
{
	static const char much[256 * 1024];
	struct writer *x = arg;
	uint64_t taken;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	const struct channel_input in = { .cmd = x->cmd, .p = much, .n = sizeof much, .at = PROTO_APPEND };
	x->rc = channel_input(box.c, &in, &w, &taken, &x->e);
	return NULL;
}

/* Who waits for room hears of the command's end at once. */
static void a_write_that_waits_ends_with_its_command(void **s)
{
	(void)s;
	struct channel_cmd *k = start("sleep 300");
	struct writer x = { .cmd = channel_cmd_id(k) };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, write_much, &x), 0);
	struct span began = span_begin();
	while (look(x.cmd).in_bytes == 0)
		assert_true(span_ms(&began) < 5000);
	int n;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_stop_one(box.c, x.cmd, &w, &n, &e), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(span_ms(&began) < 10000);
	assert_int_equal(x.rc, -1);
	assert_int_equal(x.e.code, ERR_CONFLICT);
	channel_cmd_close(k);
}

/* Fault 20: a program that waits for input that never comes is ended by its time like any other. */
static void a_time_out_holds_with_an_open_input(void **s)
{
	(void)s;
	const char *const argv[] = { "cat", NULL };
	struct span began = span_begin();
	struct channel_exit x = boxtest_finish(
	    boxtest_start(&box,
		&(struct channel_spec){ .argv = argv, .stdin_open = true, .timeout_ms = 300, .live = true }),
	    NULL, NULL, false);
	assert_true(x.timed_out);
	assert_true(span_ms(&began) < 1300);
}

static void a_command_without_an_open_input_refuses(void **s)
{
	(void)s;
	struct channel_cmd *k = boxtest_sh(&box, "sleep 300", 0);
	assert_int_equal(refused(channel_cmd_id(k), PROTO_APPEND, "not started with"), ERR_CONFLICT);
	assert_int_equal(refused(4000000, PROTO_APPEND, "no such command"), ERR_NOT_FOUND);
	int n;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_stop(box.c, &w, &n, &e), 0);
	channel_cmd_close(k);
}

/* Its last reader may be a child that the command leaves behind; when the exit is settled it is closed. */
static void the_input_ends_with_the_command(void **s)
{
	(void)s;
	struct channel_cmd *k = start("exit 0");
	uint32_t cmd = channel_cmd_id(k);
	(void)boxtest_finish(k, NULL, NULL, false);
	assert_true(look(cmd).in_state != PROTO_IN_OPEN);
	int before = boxtest_open_fds(box.pid);
	for (int i = 0; i < 10; i++)
		(void)boxtest_finish(start("exit 0"), NULL, NULL, false);
	boxtest_fds_become(box.pid, before);
}

/* ---- signals */

static int send_to(uint32_t cmd, int sig, enum proto_to to)
{
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int n = -1;
	if (channel_signal(box.c, cmd, sig, to, &w, &n, &e) != 0)
		fail_msg("%s", e.msg);
	return n;
}

static void a_signal_reaches_the_process_its_group_or_the_tree(void **s)
{
	(void)s;
	/* The leader and a child in its group say what they get; another is in a session of its own. */
	static const char script[] =
	    "trap 'echo leader' USR1\n"
	    "(trap 'echo child' USR1; while :; do sleep 0.1; done) &\n"
	    "setsid sh -c 'trap \"echo far\" USR1; echo up; while :; do sleep 0.1; done' &\n"
	    "while :; do wait; done";
	struct channel_cmd *k = boxtest_sh(&box, script, PATIENCE_MS);
	uint32_t cmd = channel_cmd_id(k);
	expect(k, "up\n");
	assert_int_equal(send_to(cmd, SIGUSR1, PROTO_TO_PROCESS), 1);
	expect(k, "leader\n");
	assert_true(send_to(cmd, SIGSTOP, PROTO_TO_TREE) >= 3);
	assert_true(send_to(cmd, SIGCONT, PROTO_TO_TREE) >= 3);
	assert_true(send_to(cmd, SIGTERM, PROTO_TO_GROUP) >= 2);
	struct channel_exit x = boxtest_finish(k, NULL, NULL, true);
	assert_string_equal(x.signal, "SIGTERM");
	assert_false(x.stopped);
	/* What is left of it is still its own. Fault 7: killed means that nothing lives. */
	assert_true(send_to(cmd, SIGUSR1, PROTO_TO_TREE) >= 1);
	assert_true(send_to(cmd, SIGKILL, PROTO_TO_TREE) >= 1);
	assert_int_equal(send_to(cmd, SIGTERM, PROTO_TO_TREE), 0);
	int zombies;
	assert_int_equal(boxtest_processes(&box, &zombies), 0);
	assert_int_equal(zombies, 0);
}

/* Fault 7 */
static void kill_ends_a_tree_that_hides(void **s)
{
	(void)s;
	struct channel_cmd *k = boxtest_sh(&box,
	    "setsid sh -c '(setsid sleep 300 &) ; kill -STOP $$' & (trap '' TERM; sleep 300) & echo up; "
	    "sleep "
	    "300",
	    0);
	expect(k, "up\n");
	struct span began = span_begin();
	assert_true(send_to(channel_cmd_id(k), SIGKILL, PROTO_TO_TREE) >= 1);
	int zombies;
	assert_int_equal(boxtest_processes(&box, &zombies), 0);
	assert_int_equal(zombies, 0);
	assert_true(span_ms(&began) < 1000);
	struct channel_exit x = boxtest_finish(k, NULL, NULL, true);
	assert_string_equal(x.signal, "SIGKILL");
	assert_false(x.stopped || x.timed_out || x.escaped);
}

/* ---- what is told */

static void a_command_tells_what_it_was_started_with(void **s)
{
	(void)s;
	const char *const argv[] = { "sleep", "60", NULL };
	struct channel_cmd *k = boxtest_start(
	    &box, &(struct channel_spec){ .argv = argv, .dir = "/usr", .label = "mine" });
	struct channel_item t = look(channel_cmd_id(k));
	assert_string_equal(t.label, "mine");
	assert_string_equal(t.dir, "/usr");
	assert_int_equal(t.n_args, 2);
	assert_memory_equal(t.args, "sleep\00060", 9);
	assert_false(t.cut);
	assert_true(t.running);
	assert_int_equal(t.in_state, PROTO_IN_NONE);
	assert_int_equal(t.pid, channel_cmd_pid(k));
	(void)send_to(t.cmd, SIGKILL, PROTO_TO_TREE);
	channel_cmd_close(k);
}

/* 64 running and 64 ended, each with the longest words: more than one frame holds. */
static void all_commands_are_told_however_much_there_is_to_tell(void **s)
{
	(void)s;
	enum { N = PROTO_COMMANDS_MAX, EMPTY = 1000 };
	char dir[1200] = "/";
	const char *argv[EMPTY + 3] = { "sleep", "60" }, *ended[EMPTY + 2] = { "true" };
	for (int i = 1; i < 1100; i += 2)
		memcpy(dir + i, "./", 3);
	for (int i = 0; i < EMPTY; i++)
		argv[i + 2] = ended[i + 1] = "";
	argv[0] = "sh";
	argv[1] = "-c";
	argv[2] = "sleep 600";
	struct err e = { 0 };
	for (int i = 0; i < N; i++)
		(void)boxtest_finish(
		    boxtest_start(&box, &(struct channel_spec){ .argv = ended, .dir = dir, .label = "e" }),
		    NULL, NULL, false);
	for (int i = 0; i < N; i++)
		channel_cmd_close(
		    boxtest_start(&box, &(struct channel_spec){ .argv = argv, .dir = dir, .label = "r" }));
	struct channel_item *items = NULL;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int n = channel_list(box.c, 0, &w, &items, &e), running = 0;
	assert_int_equal(n, 2 * N);
	for (int i = 0; i < n; i++) {
		running += items[i].running;
		assert_true(items[i].cut);
		assert_true(items[i].n_args > 900);
		assert_int_equal(strlen(items[i].dir), PROTO_TOLD_MAX);
	}
	assert_int_equal(running, N);
	free(items);
	int ended_n;
	assert_int_equal(channel_stop(box.c, &w, &ended_n, &e), 0);
	assert_int_equal(ended_n, N);
}

/* ---- versions */

static void old_box(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	unsigned char done[8] = { 0 };
	liar_tell(l, PROTO_DONE, h.id, done, sizeof done);
}

static void a_box_from_before_an_upgrade_is_used_as_before(void **s)
{
	(void)s;
	struct liar *l = liar_up_version(old_box, 0, 1);
	struct err e = { 0 };
	struct channel_wait w = liar_wait();
	assert_int_equal(channel_ping(l->c, &w, &e), 0);
	uint64_t taken;
	int n;
	const struct channel_input in = { .cmd = 1, .p = "x", .n = 1, .at = PROTO_APPEND };
	const char *const argv[] = { "true", NULL };
	assert_int_equal(channel_input(l->c, &in, &w, &taken, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(channel_signal(l->c, 1, SIGTERM, PROTO_TO_GROUP, &w, &n, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_null(channel_start(l->c, &(struct channel_spec){ .argv = argv, .stdin_open = true }, &w, &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_false(channel_lost(l->c));
	liar_down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_running_command_is_talked_to_until_its_input_is_closed),
		cmocka_unit_test(a_megabyte_goes_through_in_order),
		cmocka_unit_test(who_does_not_read_holds_up_nobody_and_loses_nothing),
		cmocka_unit_test(a_reader_that_goes_away_is_told),
		cmocka_unit_test(a_write_that_waits_ends_with_its_command),
		cmocka_unit_test(a_time_out_holds_with_an_open_input),
		cmocka_unit_test(a_command_without_an_open_input_refuses),
		cmocka_unit_test(the_input_ends_with_the_command),
		cmocka_unit_test(a_signal_reaches_the_process_its_group_or_the_tree),
		cmocka_unit_test(kill_ends_a_tree_that_hides),
		cmocka_unit_test(a_command_tells_what_it_was_started_with),
		cmocka_unit_test(all_commands_are_told_however_much_there_is_to_tell),
		cmocka_unit_test(a_box_from_before_an_upgrade_is_used_as_before),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(a_running_command_is_talked_to_until_its_input_is_closed),
		cmocka_unit_test(a_megabyte_goes_through_in_order),
		cmocka_unit_test(who_does_not_read_holds_up_nobody_and_loses_nothing),
		cmocka_unit_test(a_reader_that_goes_away_is_told),
		cmocka_unit_test(a_write_that_waits_ends_with_its_command),
		cmocka_unit_test(a_time_out_holds_with_an_open_input),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
