/*
 * How commands end through a real box: SBX-41, SBX-44. This program is also what runs in the sandbox (see hostile()); the
 * faults of others, by number: app/sandbox/README.md.
 */
#include "../span.h"
#include "../t.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/file.h"

static struct boxtest box;
static char self[128]; /* this program, where the sandbox's uid can reach it */

/* ---- what runs inside */

static void deafen(void)
{
	for (int sig = 1; sig < 32; sig++)
		(void)signal(sig, SIG_IGN);
}

static void stay(void)
{
	for (;;)
		(void)pause();
}

/* A child that does something and stays. */
static void child(void (*what)(void))
{
	if (fork() == 0) {
		if (what != NULL)
			what();
		stay();
	}
}

static void own_session(void)
{
	(void)setsid();
}

static void own_group(void)
{
	(void)setpgid(0, 0);
}

static void stop_itself(void)
{
	(void)setsid();
	(void)raise(SIGSTOP);
}

/* Twice forked, a session of its own, no descriptor, another name, another environment, another mark. */
static void daemonize(void)
{
	(void)setsid();
	if (fork() != 0)
		_exit(0);
	(void)setsid();
	for (int fd = 0; fd < 64; fd++)
		(void)close(fd);
	(void)prctl(PR_SET_NAME, "harmless");
	struct rlimit low = { 12345, 12345 };
	(void)setrlimit(RLIMIT_RSS, &low);
	char *const argv[] = { self, (char[]){ "stay" }, NULL };
	char *const env[] = { NULL };
	(void)execve(self, argv, env);
}

/* Its own orphans come to it, and so do not look like anybody's children when it goes. */
static void adopt(void)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	child(daemonize);
}

static void hard_to_kill(void)
{
	deafen();
	child(own_session);
	child(own_group);
	child(stop_itself);
	child(daemonize);
	child(adopt);
	child(NULL);
}

/* Every process forks for ever, each child leads a session: no group holds two of them. */
static void bomb(void)
{
	struct rlimit some = { 300, 300 };
	(void)setrlimit(RLIMIT_NPROC, &some);
	deafen();
	for (;;)
		if (fork() == 0)
			(void)setsid();
}

static int hostile(const char *how)
{
	if (strcmp(how, "stay") == 0) {
		deafen();
		stay();
	} else if (strcmp(how, "tree") == 0) {
		hard_to_kill();
		(void)!write(1, "ready\n", 6);
		stay();
	} else if (strcmp(how, "tree-and-leave") == 0) {
		hard_to_kill();
	} else if (strcmp(how, "bomb") == 0) {
		bomb();
	} else if (strcmp(how, "kill-keeper") == 0) {
		hard_to_kill();
		(void)kill(getppid(), SIGKILL);
		stay();
	} else if (strcmp(how, "stop-keeper") == 0) {
		hard_to_kill();
		(void)kill(getppid(), SIGSTOP);
		_exit(7);
	} else if (strcmp(how, "kill-all") == 0) {
		(void)kill(-1, SIGKILL);
		stay();
	} else if (strcmp(how, "stop-all") == 0) {
		(void)kill(-1, SIGSTOP);
		(void)kill(0, SIGSTOP);
		stay();
	} else if (strcmp(how, "orphans") == 0) {
		for (int i = 0; i < 20; i++)
			if (fork() == 0) {
				if (fork() == 0)
					_exit(0);
				_exit(0);
			}
	}
	return 0;
}

/* ---- fixture */

static bool in_gvisor;

static int prepare(const struct boxtest_conf *conf)
{
	boxtest_up(&box, conf);
	auto_buf struct buf program = BUF(64 << 20);
	struct err e = { 0 };
	(void)snprintf(self, sizeof self, "%s/self", box.work);
	assert_int_equal(file_read("/proc/self/exe", &program, &e), 0);
	assert_int_equal(file_write(self, program.p, program.n, 0755, &e), 0);
	return 0;
}

static int up(void **s)
{
	(void)s;
	return prepare(NULL);
}

/* The same in gVisor, where orphans do not come to their keeper and /proc of the host shows nothing. Not the fork bomb: there
 * it has no RLIMIT_NPROC, and leaves the box so little of the processor that a second cannot be promised (PROTO_ESCAPED). */
static int up_in_gvisor(void **s)
{
	(void)s;
	in_gvisor = true;
	return prepare(&(struct boxtest_conf){ .runsc = true });
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static struct channel_cmd *start(const char *how, int timeout_ms)
{
	const char *const argv[] = { self, how, NULL };
	const char *const env[] = { "ASAN_OPTIONS=detect_leaks=0", NULL };
	return boxtest_start(
	    &box, &(struct channel_spec){ .argv = argv, .env = env, .timeout_ms = timeout_ms, .live = true });
}

/* Processes and zombies besides the box. */
static int processes(void)
{
	static const char count[] =
	    "n=0; for d in /proc/[0-9]*; do read -r p name state up rest <$d/stat || continue;"
	    "[ $p = 1 ] || [ $p = $$ ] || [ $p = $PPID ] || n=$((n+1)); done; echo $n";
	auto_buf struct buf out = BUF(100);
	int zombies;
	if (!in_gvisor)
		return boxtest_processes(&box, &zombies);
	assert_int_equal(boxtest_run(&box, count, PATIENCE_MS, &out).exit_code, 0);
	return (int)strtol(buf_c(&out), NULL, 10);
}

static void assert_nothing_left(void)
{
	assert_int_equal(processes(), 0);
}

static bool is_empty(void *arg)
{
	(void)arg;
	return processes() == 0;
}

/* The process, and on Linux its keeper. */
static bool only_one(void *arg)
{
	(void)arg;
	return processes() == (in_gvisor ? 1 : 2);
}

/* A time-out that leaves a tree time to grow, by how long another one takes for it. */
static int growth_ms(void)
{
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_event ev;
	int ended;
	int64_t before = clock_ms();
	struct channel_cmd *k = start("tree", 0);
	assert_int_equal(channel_next(k, &w, &ev, &e), 0);
	assert_int_equal(ev.type, CHANNEL_OUT); /* it is all there */
	int took = (int)(clock_ms() - before);
	assert_int_equal(channel_stop_one(box.c, channel_cmd_id(k), &w, &ended, &e), 0);
	channel_cmd_close(k);
	return 1000 + 3 * took;
}

/* A command that lasts until it is let go, and then says so. */
static struct channel_cmd *start_held(void)
{
	assert_int_equal(boxtest_run(&box, "rm -f go", PATIENCE_MS, NULL).exit_code, 0);
	return boxtest_sh(&box, "until [ -e go ]; do sleep 0.1; done; echo whole", 0);
}

static void assert_whole(struct channel_cmd *held)
{
	auto_buf struct buf out = BUF(100);
	assert_int_equal(boxtest_run(&box, "touch go", PATIENCE_MS, NULL).exit_code, 0);
	struct channel_exit x = boxtest_finish(held, &out, NULL, false);
	assert_int_equal(x.exit_code, 0);
	assert_false(x.stopped);
	assert_string_equal(buf_c(&out), "whole\n");
}

/* SBX-41, faults 1, 3, 5, 6, 7, 8: the whole tree dies within a second of the time-out, and what it said before is kept */
static void a_time_out_kills_the_whole_tree_within_a_second(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(100);
	int limit = growth_ms();
	struct span before = span_begin();
	struct channel_exit x = boxtest_finish(start("tree", limit), &out, NULL, false);
	int64_t at_least = clock_ms() - before.began_ms, took = span_ms(&before);
	assert_nothing_left();
	assert_true(x.timed_out);
	assert_false(x.stopped || x.escaped);
	assert_string_equal(x.signal, "SIGKILL");
	assert_string_equal(buf_c(&out), "ready\n");
	assert_true(at_least >= limit && took < limit + 1000);
}

/* SBX-44 */
static void a_stop_counts_what_it_ended_and_zero_is_an_answer(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 0);
	struct channel_cmd *k[3];
	for (int i = 0; i < 3; i++)
		k[i] = start("tree", 0);
	struct span before = span_begin();
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_true(span_ms(&before) < 1000);
	assert_int_equal(ended, 3);
	assert_nothing_left();
	for (int i = 0; i < 3; i++) {
		struct channel_exit x = boxtest_finish(k[i], NULL, NULL, false);
		assert_true(x.stopped);
		assert_false(x.timed_out || x.escaped);
	}
	assert_int_equal(boxtest_run(&box, "exit 5", PATIENCE_MS, NULL).exit_code, 5); /* the sandbox stays */
}

/* Fault 13: one command's end is nobody else's */
static void stopping_one_leaves_the_others_alone(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	struct channel_cmd *one = start("tree", 0), *other = start_held();
	assert_int_equal(channel_stop_one(box.c, channel_cmd_id(one), &w, &ended, &e), 0);
	assert_int_equal(ended, 1);
	assert_true(boxtest_finish(one, NULL, NULL, false).stopped);
	assert_whole(other);
	boxtest_until(is_empty, NULL, PATIENCE_MS);
}

/* SBX-41, fault 6: a child that keeps the pipe open does not hold the exit back beyond the grace; fault 14: and is not killed by it */
static void a_background_child_does_not_hold_the_exit_back(void **s)
{
	(void)s;
	static const char script[] = "rm -f go; echo said; (until [ -e go ]; do sleep 0.1; done;"
				     " echo late && touch still-there; sleep 300) & exit 4";
	auto_buf struct buf out = BUF(100);
	struct span before = span_begin();
	struct channel_exit x = boxtest_run(&box, script, 0, &out);
	assert_true(span_ms(&before) < 1100);
	assert_int_equal(x.exit_code, 4);
	assert_true(span_of(&before, x.duration_ms) < 400); /* the leader's own */
	assert_string_equal(buf_c(&out), "said\n");
	assert_int_equal(
	    boxtest_run(&box, "touch go; until [ -e still-there ]; do sleep 0.1; done", PATIENCE_MS, NULL)
		.exit_code,
	    0);
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 0); /* a leftover process is killed, but is no command */
	assert_nothing_left();
}

static void a_background_child_that_never_stops_writing_does_not_either(void **s)
{
	(void)s;
	struct span before = span_begin();
	struct channel_exit x = boxtest_run(&box, "yes & sleep 0.1; exit 4", 0, NULL);
	assert_true(span_ms(&before) < 4000);
	assert_int_equal(x.exit_code, 4);
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_nothing_left();
}

static void what_a_finished_command_left_behind_is_stopped_too(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(
	    boxtest_finish(start("tree-and-leave", PATIENCE_MS), NULL, NULL, false).exit_code, 0);
	assert_true(processes() > 5);
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 0);
	assert_nothing_left();
}

/* Faults 13, 14: a server that an early command left behind is nobody's business but a full stop's, however much happens since */
static void what_was_left_behind_long_ago_lives_until_everything_is_stopped(void **s)
{
	(void)s;
	(void)boxtest_run(&box, "(sleep 300 </dev/null >/dev/null 2>&1 &)", PATIENCE_MS, NULL);
	for (int i = 0; i < PROTO_COMMANDS_MAX + 2; i++) /* the command itself is forgotten */
		(void)boxtest_run(&box, "true", PATIENCE_MS, NULL);
	assert_true(boxtest_finish(start("tree", 300), NULL, NULL, false).timed_out);
	boxtest_until(only_one, NULL, PATIENCE_MS);
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 0);
	assert_nothing_left();
}

/* SBX-41: forks faster than any walk, every child in a session of its own */
static void a_fork_bomb_of_sessions_dies_and_its_neighbour_goes_on(void **s)
{
	(void)s;
	struct channel_cmd *other = start_held();
	struct span before = span_begin();
	struct channel_exit x = boxtest_finish(start("bomb", 500), NULL, NULL, false);
	assert_true(
	    span_ms(&before) < 2500); /* 0.1 to 0.9 s on a busy machine, which 300 of these make busier */
	assert_true(x.timed_out);
	assert_false(x.escaped);
	assert_whole(other);
	boxtest_until(is_empty, NULL, PATIENCE_MS);
}

/* The keeper has the sandbox's uid: it can be killed, and that gains nothing */
static void killing_the_keeper_kills_the_command(void **s)
{
	(void)s;
	struct span before = span_begin();
	struct channel_exit x = boxtest_finish(start("kill-keeper", 0), NULL, NULL, false);
	assert_true(span_ms(&before) < 2000);
	assert_string_equal(x.signal, "SIGKILL");
	assert_nothing_left();
}

static void stopping_the_keeper_hides_nothing(void **s)
{
	(void)s;
	struct channel_exit x = boxtest_finish(start("stop-keeper", PATIENCE_MS), NULL, NULL, false);
	assert_int_equal(x.exit_code, 7);
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_nothing_left();
}

/* Faults 9, 12: signals to everything */
static void killing_everything_spares_the_box_and_leaves_nothing(void **s)
{
	(void)s;
	struct channel_cmd *other = boxtest_sh(&box, "sleep 300", 0);
	struct channel_exit x = boxtest_finish(start("kill-all", 0), NULL, NULL, false);
	assert_string_equal(x.signal, "SIGKILL");
	assert_string_equal(boxtest_finish(other, NULL, NULL, false).signal, "SIGKILL");
	assert_nothing_left();
	assert_int_equal(boxtest_run(&box, "exit 5", PATIENCE_MS, NULL).exit_code, 5);
}

static void stopping_everything_does_not_stop_the_time_out(void **s)
{
	(void)s;
	struct span before = span_begin();
	assert_true(boxtest_finish(start("stop-all", 300), NULL, NULL, false).timed_out);
	assert_true(span_ms(&before) < 1300);
	assert_nothing_left();
}

/* Fault 6: nothing of the box, nor of the commands beside it, whose ends would not be seen. */
static void a_command_has_three_descriptors(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended;
	auto_buf struct buf out = BUF(1000);
	struct channel_cmd *others[3];
	for (int i = 0; i < 3; i++)
		others[i] = boxtest_sh(&box, "sleep 300", 0);
	/* The last one is the shell's own, on the directory. */
	assert_int_equal(
	    boxtest_run(&box, "cd /proc/self/fd; for f in *; do echo $f; done", PATIENCE_MS, &out).exit_code,
	    0);
	assert_string_equal(buf_c(&out), "0\n1\n2\n3\n");
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	for (int i = 0; i < 3; i++)
		channel_cmd_close(others[i]);
}

/* SBX-41, fault 11 */
static void no_zombie_stays(void **s)
{
	(void)s;
	for (int i = 0; i < 10; i++)
		assert_int_equal(
		    boxtest_finish(start("orphans", PATIENCE_MS), NULL, NULL, false).exit_code, 0);
	boxtest_until(is_empty, NULL, PATIENCE_MS);
}

/* With the box's uid, since root need not have CAP_SYS_RESOURCE. No more than the hard limit. */
static void set_limit(enum __rlimit_resource what, rlim_t n)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit now;
		bool done = setresgid(box.uid, box.uid, box.uid) == 0 &&
		    setresuid(box.uid, box.uid, box.uid) == 0 && prlimit(box.pid, what, NULL, &now) == 0;
		now.rlim_cur = n > now.rlim_max ? now.rlim_max : n;
		_exit(done && prlimit(box.pid, what, &now, NULL) == 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void assert_cannot_start(void)
{
	const char *const argv[] = { "true", NULL };
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_null(channel_start(box.c, &(struct channel_spec){ .argv = argv }, &w, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(strncmp(e.msg, "The sandbox cannot start another process: ", 42) == 0);
}

/* Fault 12: out of processes or descriptors the command fails with a reason and the box goes on */
static void without_processes_or_descriptors_the_command_says_so(void **s)
{
	(void)s;
	boxtest_until(is_empty, NULL, PATIENCE_MS);
	set_limit(RLIMIT_NPROC, 1);
	assert_cannot_start();
	set_limit(RLIMIT_NPROC, 2); /* a keeper, but no leader */
	assert_cannot_start();
	set_limit(RLIMIT_NPROC, RLIM_INFINITY);
	set_limit(RLIMIT_NOFILE, (rlim_t)boxtest_open_fds(box.pid) + 4);
	assert_cannot_start();
	set_limit(RLIMIT_NOFILE, 1024);
	struct channel_cmd *k = start("tree", 0); /* and killing needs none of either */
	struct channel_event ev;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	int ended = -1;
	assert_int_equal(channel_next(k, &w, &ev, &e), 0); /* it is all there */
	set_limit(RLIMIT_NPROC, 1);
	set_limit(RLIMIT_NOFILE, (rlim_t)boxtest_open_fds(box.pid));
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 1);
	assert_nothing_left();
	set_limit(RLIMIT_NOFILE, 1024);
	set_limit(RLIMIT_NPROC, RLIM_INFINITY);
	assert_true(boxtest_finish(k, NULL, NULL, true).stopped);
	assert_int_equal(boxtest_run(&box, "exit 5", PATIENCE_MS, NULL).exit_code, 5);
	boxtest_until(is_empty, NULL, PATIENCE_MS);
}

/* Output is counted exactly even when there is no memory to keep it */
static void without_memory_output_is_still_drained_and_counted(void **s)
{
	(void)s;
	assert_int_equal(boxtest_run(&box, "mkfifo pipe", PATIENCE_MS, NULL).exit_code, 0);
	struct channel_cmd *k = boxtest_sh(&box, "read go <pipe; head -c 3000000 /dev/zero; echo end", 0);
	char pipe[128];
	(void)snprintf(pipe, sizeof pipe, "%s/pipe", box.work);
	auto_fd int go = open(pipe, O_RDWR | O_CLOEXEC);
	set_limit(RLIMIT_AS, 1);
	assert_int_equal(write(go, "go\n", 3), 3);
	struct channel_exit x = boxtest_finish(k, NULL, NULL, true);
	set_limit(RLIMIT_AS, RLIM_INFINITY);
	assert_int_equal(x.exit_code, 0);
	assert_int_equal(x.bytes[0], 3000004);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		(void)snprintf(self, sizeof self, "%s", argv[0]);
		return hostile(argv[1]);
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_time_out_kills_the_whole_tree_within_a_second),
		cmocka_unit_test(a_stop_counts_what_it_ended_and_zero_is_an_answer),
		cmocka_unit_test(stopping_one_leaves_the_others_alone),
		cmocka_unit_test(a_background_child_does_not_hold_the_exit_back),
		cmocka_unit_test(a_background_child_that_never_stops_writing_does_not_either),
		cmocka_unit_test(what_a_finished_command_left_behind_is_stopped_too),
		cmocka_unit_test(what_was_left_behind_long_ago_lives_until_everything_is_stopped),
		cmocka_unit_test(a_fork_bomb_of_sessions_dies_and_its_neighbour_goes_on),
		cmocka_unit_test(killing_the_keeper_kills_the_command),
		cmocka_unit_test(stopping_the_keeper_hides_nothing),
		cmocka_unit_test(killing_everything_spares_the_box_and_leaves_nothing),
		cmocka_unit_test(stopping_everything_does_not_stop_the_time_out),
		cmocka_unit_test(a_command_has_three_descriptors),
		cmocka_unit_test(no_zombie_stays),
		cmocka_unit_test(without_processes_or_descriptors_the_command_says_so),
		cmocka_unit_test(without_memory_output_is_still_drained_and_counted),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(a_time_out_kills_the_whole_tree_within_a_second),
		cmocka_unit_test(a_stop_counts_what_it_ended_and_zero_is_an_answer),
		cmocka_unit_test(stopping_one_leaves_the_others_alone),
		cmocka_unit_test(a_background_child_does_not_hold_the_exit_back),
		cmocka_unit_test(a_background_child_that_never_stops_writing_does_not_either),
		cmocka_unit_test(what_a_finished_command_left_behind_is_stopped_too),
		cmocka_unit_test(what_was_left_behind_long_ago_lives_until_everything_is_stopped),
		cmocka_unit_test(killing_the_keeper_kills_the_command),
		cmocka_unit_test(stopping_the_keeper_hides_nothing),
		cmocka_unit_test(killing_everything_spares_the_box_and_leaves_nothing),
		cmocka_unit_test(stopping_everything_does_not_stop_the_time_out),
		cmocka_unit_test(a_command_has_three_descriptors),
		cmocka_unit_test(no_zombie_stays),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
