#include "../span.h"
#include "../t.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/proc.h"

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SH(text)  ARGV("/bin/sh", "-c", text)
#define OPTS      .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = PATIENCE_MS

static int count_fds(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (readdir(d) != NULL)
		n++;
	(void)closedir(d);
	return n;
}

static int fds_before;

static int before(void **state)
{
	(void)state;
	fds_before = count_fds();
	return 0;
}

/* After every test: no descriptor and no child is left. */
static int after(void **state)
{
	(void)state;
	assert_int_equal(count_fds(), fds_before);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return 0;
}

static void test_a_child_gets_its_arguments_a_clean_environment_and_nothing_to_read(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	const struct proc_opts o = { .argv = ARGV("sh", "-c",
					 "env | grep -v ^PWD; pwd; cat; printf %s \"$0\"; exit 7", "a b"),
		OPTS };
	assert_int_equal(setenv("SECRET_OF_PARENT", "x", 1), 0);
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_int_equal(r.exit_code, 7);
	assert_int_equal(r.signal, 0);
	assert_string_equal(buf_c(&r.out),
	    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
	    "LANG=C.UTF-8\n/\na b");
	assert_false(r.timed_out || r.cancelled);
}

static void test_environment_and_directory_are_the_ones_asked_for(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	const struct proc_opts o = { .argv = SH("echo $A; pwd"), .env = ARGV("A=1"), .cwd = "/usr", OPTS };
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_string_equal(buf_c(&r.out), "1\n/usr\n");
}

static void test_a_program_that_cannot_be_started_is_an_error_that_names_it(void **state)
{
	(void)state;
	static const char *const names[] = { "no-such-program-here", "/no/no-such-program-here",
		"/etc/hostname", "/" };
	for (size_t i = 0; i < 4; i++) {
		struct err e = { 0 };
		auto_proc struct proc_result r;
		const struct proc_opts o = { .argv = ARGV(names[i]), OPTS };
		assert_int_equal(proc_run(&o, &r, &e), -1);
		assert_int_equal(e.code, ERR_INTERNAL);
		assert_null(strstr(e.msg, "/no/"));
		assert_true(i > 1 || strstr(e.msg, "no-such-program-here") != NULL);
	}
	struct err e = { 0 };
	auto_proc struct proc_result r;
	const struct proc_opts o = { .argv = ARGV("/bin/true"), .cwd = "/no/such", OPTS };
	assert_int_equal(proc_run(&o, &r, &e), -1);
}

static void test_arguments_too_long_for_the_system_are_too_large(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	auto_free char *big = xcalloc(1, 1 << 20);
	memset(big, 'a', (1 << 20) - 1);
	const struct proc_opts o = { .argv = ARGV("/bin/true", big), OPTS };
	assert_int_equal(proc_run(&o, &r, &e), -1);
	assert_int_equal(e.code, ERR_TOO_LARGE);
}

struct flow {
	uint64_t to_send, sent, got;
	bool wrong;
};

static unsigned char byte_at(uint64_t i)
{
	return (unsigned char)((i / 4096) * 31);
}

static ssize_t send_some(void *arg, void *p, size_t n)
{
	struct flow *f = arg;
	n = n > 4096 - f->sent % 4096 ? 4096 - f->sent % 4096 : n;
	if (n > f->to_send - f->sent)
		n = f->to_send - f->sent;
	memset(p, byte_at(f->sent), n);
	f->sent += n;
	return (ssize_t)n;
}

static int take_some(void *arg, const char *p, size_t n)
{
	struct flow *f = arg;
	for (size_t i = 0; i < n; i += 509)
		f->wrong = f->wrong || (unsigned char)p[i] != byte_at(f->got + i);
	f->got += n;
	return 0;
}

/* FRG-1, SBX-47 */
static void test_a_gigabyte_passes_through_both_ways_in_constant_memory(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	struct flow f = { .to_send = 1ULL << 30 };
	const struct proc_opts o = { .argv = ARGV("cat"),
		.in_read = send_some,
		.on_out = take_some,
		.arg = &f,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 5 * PATIENCE_MS };
	struct rusage was, is;
	(void)getrusage(RUSAGE_SELF, &was);
	assert_int_equal(proc_run(&o, &r, &e), 0);
	(void)getrusage(RUSAGE_SELF, &is);
	assert_int_equal(r.exit_code, 0);
	assert_int_equal(f.got, f.to_send);
	assert_false(f.wrong);
	assert_in_range(is.ru_maxrss - was.ru_maxrss, 0, 8 * 1024);
}

static void test_a_child_that_does_not_read_its_input_is_no_error(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	struct flow f = { .to_send = 1 << 22 };
	const struct proc_opts o = {
		.argv = SH("exec 0<&-; echo done"), .in_read = send_some, .arg = &f, OPTS
	};
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_int_equal(r.exit_code, 0);
	assert_string_equal(buf_c(&r.out), "done\n");
}

/* A pipe whose write end the child keeps: its end of file means that everybody who inherited it is gone. */
struct witness {
	int read_end, keep[2];
};

static struct witness witness_make(void)
{
	int p[2];
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	/* A fixed number, so that a shell script can name it. */
	assert_int_equal(dup3(p[1], 9, O_CLOEXEC), 9);
	(void)close(p[1]);
	return (struct witness){ p[0], { 9, -1 } };
}

static bool all_gone(struct witness *w)
{
	char c;
	(void)close(9);
	(void)fcntl(w->read_end, F_SETFL, O_NONBLOCK);
	for (int64_t end = clock_ms() + 60000; clock_ms() < end;) {
		ssize_t n = read(w->read_end, &c, 1);
		if (n == 0) {
			(void)close(w->read_end);
			return true;
		}
	}
	return false;
}

static void test_at_the_deadline_the_whole_group_dies_and_what_it_said_is_kept(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	struct witness w = witness_make();
	int limit = span_room_ms(300); /* it has to speak before */
	const struct proc_opts o = { .argv = SH("sleep 100 & (sleep 100 & sleep 100) & echo started; wait"),
		.keep_fds = w.keep,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = limit };
	struct span from = span_begin();
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_true(clock_ms() - from.began_ms >= limit);
	assert_in_range(span_ms(&from), 0, limit + 2700);
	assert_true(r.timed_out);
	assert_int_equal(r.exit_code, -1);
	assert_int_equal(r.signal, SIGTERM);
	assert_string_equal(buf_c(&r.out), "started\n");
	assert_true(all_gone(&w));
}

static void test_a_group_that_ignores_or_is_stopped_against_the_first_signal_is_killed(void **state)
{
	(void)state;
	static const char *const scripts[] = { "trap '' TERM; sleep 100 & sleep 100; sleep 100",
		"kill -STOP $$" };
	for (size_t i = 0; i < 2; i++) {
		struct err e = { 0 };
		auto_proc struct proc_result r;
		struct witness w = witness_make();
		int limit = span_room_ms(200); /* it has to trap before */
		const struct proc_opts o = { .argv = SH(scripts[i]),
			.keep_fds = w.keep,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = -1,
			.timeout_ms = limit };
		struct span from = span_begin();
		assert_int_equal(proc_run(&o, &r, &e), 0);
		assert_true(clock_ms() - from.began_ms >= limit);
		assert_in_range(span_ms(&from), 0, limit + 3800);
		assert_true(r.timed_out);
		assert_int_equal(r.signal, i == 0 ? SIGKILL : SIGTERM);
		assert_true(all_gone(&w));
	}
}

static bool yes(void *arg)
{
	return ++*(int *)arg > 1;
}

static void test_a_cancelled_child_ends_long_before_its_deadline(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	int asked = 0;
	const struct proc_opts o = { .argv = ARGV("sleep", "100"), .cancelled = yes, .arg = &asked, OPTS };
	struct span from = span_begin();
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_true(span_ms(&from) < 3000);
	assert_true(r.cancelled && !r.timed_out);
}

static int refuse_out(void *arg, const char *p, size_t n)
{
	(void)p, (void)n;
	++*(int *)arg;
	return -1;
}

static ssize_t refuse_in(void *arg, void *p, size_t n)
{
	(void)arg, (void)p, (void)n;
	return -1;
}

static void test_a_reader_or_writer_that_gives_up_ends_the_child(void **state)
{
	(void)state;
	struct err e = { 0 };
	int calls = 0;
	{
		auto_proc struct proc_result r;
		const struct proc_opts o = { .argv = ARGV("yes"), .on_out = refuse_out, .arg = &calls, OPTS };
		assert_int_equal(proc_run(&o, &r, &e), 0);
		assert_true(r.cancelled);
		assert_int_equal(calls, 1);
	}
	auto_proc struct proc_result r;
	const struct proc_opts o = { .argv = SH("cat; sleep 100"), .in_read = refuse_in, OPTS };
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_true(r.cancelled);
}

static void test_collected_output_past_its_cap_ends_the_child_with_an_error(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	const struct proc_opts o = { .argv = ARGV("yes"), .max_out_bytes = 100000, OPTS };
	assert_int_equal(proc_run(&o, &r, &e), -1);
	assert_int_equal(e.code, ERR_TOO_LARGE);
	assert_true(r.out.n <= 100000);
}

static void test_the_tail_of_standard_error_is_kept_and_does_not_block_the_child(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	const struct proc_opts o = {
		.argv = SH("head -c 3000000 /dev/zero | tr '\\0' x >&2; printf last >&2; echo out"), OPTS
	};
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_string_equal(buf_c(&r.out), "out\n");
	assert_int_equal(r.errout.n, 16384);
	assert_memory_equal(r.errout.p + r.errout.n - 5, "xlast", 5);
}

static void test_a_child_sees_only_its_own_descriptors_and_those_kept_for_it(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	auto_fd int leak = open("/dev/null", O_RDONLY); /* not close-on-exec, as libfcgi's are */
	auto_fd int kept = fcntl(leak, F_DUPFD_CLOEXEC, 20);
	assert_true(leak >= 0 && kept >= 20);
	const int keep[] = { kept, -1 };
	const struct proc_opts o = { .argv = SH("n=0; while [ $n -lt 64 ]; do [ -e /proc/$$/fd/$n ] && "
						"printf '%s ' $n; n=$((n + 1)); done"),
		.keep_fds = keep,
		OPTS };
	char want[64];
	(void)snprintf(want, sizeof want, "0 1 2 %d ", kept);
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_string_equal(buf_c(&r.out), want);
}

static void test_a_child_starts_with_no_signal_blocked_or_ignored(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_proc struct proc_result r;
	sigset_t some, old;
	(void)sigfillset(&some);
	(void)pthread_sigmask(SIG_BLOCK, &some, &old);
	void (*was)(int) = signal(SIGPIPE, SIG_IGN);
	const struct proc_opts o = { .argv = ARGV("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"), OPTS };
	assert_int_equal(proc_run(&o, &r, &e), 0);
	(void)signal(SIGPIPE, was);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	assert_string_equal(buf_c(&r.out), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void test_somebody_who_left_the_group_and_holds_the_pipes_does_not_hold_us(void **state)
{
	(void)state;
	/* The second one speaks the moment it sees the leader gone. */
	static const char *const scripts[] = { "setsid sleep 60 & echo a",
		"setsid sh -c 'while read -r pid name state rest </proc/'$$'/stat && [ $state != Z ]; do :; "
		"done;"
		" echo b; sleep 60' & echo a" };
	for (size_t i = 0; i < 2; i++) {
		struct err e = { 0 };
		auto_proc struct proc_result r;
		const struct proc_opts o = { .argv = SH(scripts[i]), OPTS };
		struct span from = span_begin();
		assert_int_equal(proc_run(&o, &r, &e), 0);
		assert_true(span_ms(&from) < 2000);
		assert_int_equal(r.exit_code, 0);
		assert_string_equal(buf_c(&r.out), i == 0 ? "a\n" : "a\nb\n");
	}
}

/* REL-3 */
static void test_without_descriptors_it_says_unavailable_and_loses_none(void **state)
{
	(void)state;
	struct rlimit most, few;
	(void)getrlimit(RLIMIT_NOFILE, &most);
	int failed = 0;
	for (rlim_t n = 3; n < 24; n++) {
		struct err e = { 0 };
		auto_proc struct proc_result r;
		const struct proc_opts o = { .argv = ARGV("/bin/true"), OPTS };
		few = (struct rlimit){ n, most.rlim_max };
		(void)setrlimit(RLIMIT_NOFILE, &few);
		int rc = proc_run(&o, &r, &e);
		(void)setrlimit(RLIMIT_NOFILE, &most);
		failed += rc != 0;
		assert_true(rc == 0 || e.code == ERR_UNAVAILABLE);
	}
	assert_in_range(failed, 1, 20);
}

static void test_when_the_parent_is_killed_its_child_dies_too(void **state)
{
	(void)state;
	struct witness w = witness_make();
	int told[2];
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	assert_int_equal(dup3(told[1], 8, O_CLOEXEC), 8);
	(void)close(told[1]);
	pid_t parent = fork();
	if (parent == 0) {
		struct err e = { 0 };
		struct proc_result r;
		const int keep[] = { 8, 9, -1 };
		const struct proc_opts o = {
			.argv = SH("echo up >&8; exec sleep 100"), .keep_fds = keep, OPTS
		};
		(void)proc_run(&o, &r, &e);
		_exit(0);
	}
	(void)close(8);
	char up[3];
	assert_int_equal(read(told[0], up, 3), 3);
	(void)close(told[0]);
	assert_int_equal(kill(parent, SIGKILL), 0);
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	assert_true(all_gone(&w));
}

static void *many(void *arg)
{
	int *bad = arg;
	for (int i = 0; i < 25; i++) {
		struct err e = { 0 };
		auto_proc struct proc_result r;
		struct flow f = { .to_send = 100000 };
		const struct proc_opts o = { .argv = ARGV("cat"), .in_read = send_some, .arg = &f, OPTS };
		*bad += proc_run(&o, &r, &e) != 0 || r.exit_code != 0 || r.out.n != 100000;
	}
	return NULL;
}

static void test_threads_start_children_at_the_same_time_without_mixing_them_up(void **state)
{
	(void)state;
	pthread_t t[6];
	int bad[6] = { 0 };
	for (int i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&t[i], NULL, many, &bad[i]), 0);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(bad[i], 0);
	}
}

#define T(t) cmocka_unit_test_setup_teardown(t, before, after)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_child_gets_its_arguments_a_clean_environment_and_nothing_to_read),
		T(test_environment_and_directory_are_the_ones_asked_for),
		T(test_a_program_that_cannot_be_started_is_an_error_that_names_it),
		T(test_arguments_too_long_for_the_system_are_too_large),
		T(test_a_gigabyte_passes_through_both_ways_in_constant_memory),
		T(test_a_child_that_does_not_read_its_input_is_no_error),
		T(test_at_the_deadline_the_whole_group_dies_and_what_it_said_is_kept),
		T(test_a_group_that_ignores_or_is_stopped_against_the_first_signal_is_killed),
		T(test_a_cancelled_child_ends_long_before_its_deadline),
		T(test_a_reader_or_writer_that_gives_up_ends_the_child),
		T(test_collected_output_past_its_cap_ends_the_child_with_an_error),
		T(test_the_tail_of_standard_error_is_kept_and_does_not_block_the_child),
		T(test_a_child_sees_only_its_own_descriptors_and_those_kept_for_it),
		T(test_a_child_starts_with_no_signal_blocked_or_ignored),
		T(test_somebody_who_left_the_group_and_holds_the_pipes_does_not_hold_us),
		T(test_without_descriptors_it_says_unavailable_and_loses_none),
		T(test_when_the_parent_is_killed_its_child_dies_too),
		T(test_threads_start_children_at_the_same_time_without_mixing_them_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
