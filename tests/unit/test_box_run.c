/* Commands through a real box: SBX-31, SBX-40, SBX-42, SBX-63. The faults of others, by number: app/sandbox/README.md. */
#include "../span.h"
#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/limits.h"

static struct boxtest box;

static int up(void **s)
{
	(void)s;
	static const char *const env[] = { "PATH=/usr/bin:/bin", "LEASE=l", "BOTH=lease", "SANDBOX_SECRET=x",
		"SANDBOX_TIER=2", NULL };
	boxtest_up(&box, &(struct boxtest_conf){ .env = env });
	return 0;
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static int tail_of(const char *p, size_t n, const char *want)
{
	size_t m = strlen(want);
	return n >= m && memcmp(p + n - m, want, m) == 0;
}

/* SBX-40: a non-zero exit is data */
static void an_exit_status_and_both_streams_are_told(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1000), err = BUF(1000);
	struct channel_exit x = boxtest_finish(
	    boxtest_sh(&box, "echo one; echo two >&2; exit 3", 0), &out, &err, false);
	assert_int_equal(x.how, PROTO_EXITED);
	assert_int_equal(x.exit_code, 3);
	assert_string_equal(x.signal, "");
	assert_string_equal(buf_c(&out), "one\n");
	assert_string_equal(buf_c(&err), "two\n");
	assert_false(x.timed_out || x.stopped || x.escaped);
}

/* SBX-40 */
static void a_death_by_signal_is_named(void **s)
{
	(void)s;
	struct channel_exit x = boxtest_run(&box, "kill -SEGV $$", 0, NULL);
	assert_int_equal(x.how, PROTO_SIGNALED);
	assert_int_equal(x.exit_code, -1);
	assert_string_equal(x.signal, "SIGSEGV");
}

static struct channel_exit run_argv(const char *const *argv)
{
	return boxtest_finish(boxtest_start(&box, &(struct channel_spec){ .argv = argv }), NULL, NULL, false);
}

/* SBX-40, fault 18 */
static void a_missing_program_is_127_with_a_message(void **s)
{
	(void)s;
	const char *const by_name[] = { "no-such-program", NULL },
			  *const by_path[] = { "/no/such/program", NULL };
	const char *const empty[] = { "", NULL };
	struct channel_exit x = run_argv(by_name);
	assert_int_equal(x.how, PROTO_NOT_FOUND);
	assert_int_equal(x.exit_code, 127);
	assert_string_equal(x.message, "The command was not started: No such file or directory.");
	assert_int_equal(run_argv(by_path).exit_code, 127);
	assert_int_equal(run_argv(empty).exit_code, 127);
}

/* SBX-40 */
static void a_program_that_cannot_be_executed_is_126_with_a_message(void **s)
{
	(void)s;
	const char *const no_permission[] = { "/etc/passwd", NULL }, *const directory[] = { "/etc", NULL };
	struct channel_exit x = run_argv(no_permission);
	assert_int_equal(x.how, PROTO_NOT_EXECUTABLE);
	assert_int_equal(x.exit_code, 126);
	assert_string_equal(x.message, "The command was not started: Permission denied.");
	assert_int_equal(run_argv(directory).exit_code, 126);
}

/* SBX-40, fault 20: nothing waits for input that never comes */
static void standard_input_is_at_its_end_unless_given(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1000);
	assert_int_equal(boxtest_run(&box, "cat; readlink /proc/self/fd/0", PATIENCE_MS, &out).exit_code, 0);
	assert_string_equal(buf_c(&out), "/dev/null\n");
}

/* Fault 19: there is no session to hang in; faults 17, 21: nor a shell around it that could be replaced. */
static void a_here_document_ends_and_a_replaced_shell_tells_its_exit(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1000);
	struct channel_exit x = boxtest_run(
	    &box, "exec cat <<'END'\nline $1 `x`\n\nEOF\nEND", PATIENCE_MS, &out);
	assert_int_equal(x.exit_code, 0);
	assert_string_equal(buf_c(&out), "line $1 `x`\n\nEOF\n");
	assert_int_equal(boxtest_run(&box, "exec sh -c 'exec true; exit 9'", PATIENCE_MS, NULL).exit_code, 0);
	assert_int_equal(boxtest_run(&box, "exec false", PATIENCE_MS, NULL).exit_code, 1);
}

static void feed(size_t n, const char *script, struct buf *out)
{
	auto_free char *in = xcalloc(1, n + 1);
	for (size_t i = 0; i < n; i++)
		in[i] = (char)('a' + i % 23);
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct channel_spec spec = {
		.argv = argv, .stdin_p = in, .stdin_n = n, .timeout_ms = PATIENCE_MS, .live = true
	};
	assert_int_equal(boxtest_finish(boxtest_start(&box, &spec), out, NULL, false).exit_code, 0);
	if (n > 0 && out->n == n)
		assert_memory_equal(out->p, in, n);
}

static void given_input_arrives_whole_and_ends(void **s)
{
	(void)s;
	static const size_t sizes[] = { 0, 1, PROTO_DATA_MAX, PROTO_DATA_MAX + 1, PROTO_STDIN_MAX };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		auto_buf struct buf out = BUF(2 * PROTO_STDIN_MAX);
		feed(sizes[i], "cat", &out);
		assert_int_equal(out.n, sizes[i]);
	}
}

static void unread_input_harms_nobody(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(100);
	feed(PROTO_STDIN_MAX, "exec true", &out);
	assert_int_equal(out.n, 0);
}

static void too_much_input_is_refused_before_anything_runs(void **s)
{
	(void)s;
	auto_free char *in = xcalloc(1, PROTO_STDIN_MAX + 1);
	const char *const argv[] = { "cat", NULL };
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_spec spec = { .argv = argv, .stdin_p = in, .stdin_n = PROTO_STDIN_MAX + 1 };
	assert_null(channel_start(box.c, &spec, &w, &e));
	assert_int_equal(e.code, ERR_TOO_LARGE);
	assert_string_equal(e.param, "stdin");
}

/* SBX-31 */
static void the_leases_environment_is_stripped_and_the_commands_own_is_not(void **s)
{
	(void)s;
	static const char want[] =
	    "BOTH=own\nLEASE=l\nOWN=1\nPATH=/usr/bin:/bin\nSANDBOX_OWN=kept\nSANDBOX_TIER=2\n";
	const char *const argv[] = { "sh", "-c", "env | grep -v ^PWD= | sort", NULL };
	const char *const env[] = { "OWN=1", "BOTH=own", "SANDBOX_OWN=kept", NULL };
	auto_buf struct buf out = BUF(4000);
	boxtest_finish(
	    boxtest_start(&box, &(struct channel_spec){ .argv = argv, .env = env }), &out, NULL, false);
	assert_string_equal(buf_c(&out), want);
}

static void a_program_is_looked_up_in_the_commands_own_path(void **s)
{
	(void)s;
	const char *const argv[] = { "true", NULL }, *const env[] = { "PATH=/nowhere", NULL };
	struct channel_spec spec = { .argv = argv, .env = env };
	assert_int_equal(boxtest_finish(boxtest_start(&box, &spec), NULL, NULL, false).exit_code, 127);
}

static void a_command_runs_in_its_directory(void **s)
{
	(void)s;
	const char *const argv[] = { "pwd", NULL };
	auto_buf struct buf out = BUF(400);
	boxtest_finish(boxtest_start(&box, &(struct channel_spec){ .argv = argv }), &out, NULL, false);
	assert_int_equal(buf_c(&out)[out.n - 1], '\n');
	assert_memory_equal(buf_c(&out), box.work, strlen(box.work));
	buf_reset(&out);
	boxtest_finish(
	    boxtest_start(&box, &(struct channel_spec){ .argv = argv, .dir = "/usr" }), &out, NULL, false);
	assert_string_equal(buf_c(&out), "/usr\n");
	buf_reset(&out);
	(void)boxtest_run(&box, "mkdir -p below", PATIENCE_MS, NULL);
	boxtest_finish(
	    boxtest_start(&box, &(struct channel_spec){ .argv = argv, .dir = "below" }), &out, NULL, false);
	assert_true(tail_of(out.p, out.n, "/work/below\n"));
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_null(channel_start(box.c, &(struct channel_spec){ .argv = argv, .dir = "/no/such" }, &w, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

/* The command gets a clean process: no descriptor of the box, no blocked or ignored signal, a session of its own, no core. */
static void a_command_inherits_nothing_of_the_box(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(4000);
	(void)boxtest_run(&box,
	    "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)|NoNewPrivs' /proc/self/status | cut -f2 "
	    "| tr '\\n' ' ';"
	    "ulimit -c; umask; set -- $(cat /proc/$$/stat); test $6 = $$ && echo leads",
	    PATIENCE_MS, &out);
	assert_string_equal(buf_c(&out), "0 1 2 3 0000000000000000 0000000000000000 1 0\n0022\nleads\n");
}

/* SBX-63: what runs in the sandbox cannot read the box: memory, descriptors, environment, the nonce */
static void the_box_cannot_be_looked_into(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(4000);
	(void)boxtest_run(&box,
	    "for f in mem environ maps fd; do cat /proc/1/$f >/dev/null 2>&1 && echo read $f; done;"
	    "ls /proc/1/fd >/dev/null 2>&1 && echo listed; tr '\\0' ' ' </proc/1/cmdline; for k in "
	    "/proc/[0-9]*; do"
	    " cat $k/maps 2>&1 >/dev/null | grep -q denied && echo one; done | sort -u; kill -9 1; kill "
	    "-STOP 1; echo alive",
	    PATIENCE_MS, &out);
	assert_string_equal(buf_c(&out), "gatehouse-box one\nalive\n");
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
}

/* SBX-42, fault 24: bytes are bytes */
static void invalid_utf8_passes_unchanged(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(400);
	(void)boxtest_run(&box, "printf '\\377\\000\\303(\\342\\202'", PATIENCE_MS, &out);
	assert_int_equal(out.n, 6);
	assert_memory_equal(out.p, "\xff\0\xc3(\xe2\x82", 6);
}

/* SBX-41, fault 16: never before the output is drained; a slow reader is waited for */
static void the_exit_comes_after_all_output(void **s)
{
	(void)s;
	for (int i = 0; i < 20; i++) {
		auto_buf struct buf out = BUF(4 << 20);
		struct channel_cmd *k = boxtest_sh(&box, "head -c 900000 /dev/zero; printf end", PATIENCE_MS);
		struct channel_exit x = boxtest_finish(k, &out, NULL, false);
		assert_int_equal(x.exit_code, 0);
		assert_int_equal(out.n, 900003);
		assert_string_equal(out.p + 900000, "end");
	}
}

/* The most memory the box has ever held. */
static long peak_kb(void)
{
	char path[64], text[4096] = "";
	(void)snprintf(path, sizeof path, "/proc/%d/status", box.pid);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	(void)!fread(text, 1, sizeof text - 1, f);
	(void)fclose(f);
	const char *peak = strstr(text, "VmHWM:");
	assert_non_null(peak);
	return strtol(peak + 6, NULL, 10);
}

/* SBX-42: 1 GB with exact counts, the tail kept, in bounded memory; fault 28: nothing hangs without a reader */
static void a_gigabyte_is_drained_and_its_tail_kept(void **s)
{
	(void)s;
	const char *const argv[] = { "sh", "-c",
		"head -c 1000000000 /dev/zero; printf the-end; head -c 5000 /dev/zero >&2", NULL };
	long before = peak_kb();
	struct channel_cmd *k = boxtest_start(
	    &box, &(struct channel_spec){ .argv = argv, .timeout_ms = 5 * PATIENCE_MS });
	uint32_t id = channel_cmd_id(k);
	channel_cmd_close(k); /* nobody reads */
	struct err e = { 0 };
	struct channel_exit x = boxtest_finish(channel_follow(box.c, id, &e), NULL, NULL, true);
	assert_int_equal(x.exit_code, 0);
	assert_int_equal(x.bytes[0], 1000000007);
	assert_int_equal(x.bytes[1], 5000);
	auto_buf struct buf out = BUF(4 << 20), err = BUF(4 << 20);
	const uint64_t from[2] = { 0, 0 };
	(void)boxtest_finish(channel_resume(box.c, id, from, true, &e), &out, &err, true);
	assert_int_equal(out.n, LIMIT_OUTPUT_BYTES);
	assert_true(tail_of(out.p, out.n, "the-end"));
	assert_int_equal(err.n, 5000);
	assert_true(peak_kb() - before < 6 * 1024);
}

/* A reader that keeps up loses nothing, however much there is. */
static void a_live_reader_gets_every_byte(void **s)
{
	(void)s;
	auto_buf struct buf err = BUF(100);
	struct channel_cmd *k = boxtest_sh(&box, "head -c 100000000 /dev/zero; echo done >&2", 0);
	struct channel_exit x = boxtest_finish(k, NULL, &err, false);
	assert_int_equal(x.bytes[0], 100000000);
	assert_string_equal(buf_c(&err), "done\n");
}

/* Fault 29: a reader that stands still holds its command back for a while only, and nobody else at all. */
static void a_reader_that_stands_still_blocks_nobody_for_ever(void **s)
{
	(void)s;
	int64_t began = clock_ms();
	struct channel_cmd *k = boxtest_sh(&box, "head -c 20000000 /dev/zero; printf the-end", PATIENCE_MS);
	struct span before = span_begin();
	auto_buf struct buf out = BUF(100);
	assert_int_equal(boxtest_run(&box, "echo other", PATIENCE_MS, &out).exit_code, 0);
	assert_true(span_ms(&before) < 3000);
	struct err e = { 0 };
	struct channel_exit x = boxtest_finish(
	    channel_follow(box.c, channel_cmd_id(k), &e), NULL, NULL, true);
	assert_true(clock_ms() - began >= 4500); /* held back, then let go */
	assert_int_equal(x.bytes[0], 20000007);
	auto_buf struct buf all = BUF(4 << 20);
	x = boxtest_finish(k, &all, NULL, true);
	assert_int_equal(x.bytes[0], 20000007);
	assert_true(tail_of(all.p, all.n, "the-end"));
	assert_true(all.n > LIMIT_OUTPUT_BYTES && all.n < 3 * LIMIT_OUTPUT_BYTES);
}

static int place_ok(void *arg, uint32_t cmd, pid_t pid, struct err *e)
{
	(void)e;
	*(pid_t *)arg = channel_host_pid(box.pid, pid);
	char path[64], text[64] = "";
	(void)snprintf(path, sizeof path, "/proc/%d/comm", *(pid_t *)arg);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	(void)!fread(text, 1, sizeof text - 1, f);
	(void)fclose(f);
	assert_string_equal(text, "gatehouse-box\n"); /* not yet executed */
	return cmd == 0;
}

static int place_fails(void *arg, uint32_t cmd, pid_t pid, struct err *e)
{
	(void)arg;
	(void)cmd;
	(void)pid;
	return err_set(e, ERR_UNAVAILABLE, "no cgroup");
}

/* SBX-41: sandboxd puts the process into its cgroup before it runs a single instruction of the command */
static void a_held_command_begins_when_it_was_placed(void **s)
{
	(void)s;
	pid_t host = 0;
	const char *const argv[] = { "sh", "-c", "echo ran; touch ran", NULL };
	struct channel_spec spec = {
		.argv = argv, .place = place_ok, .arg = &host, .timeout_ms = PATIENCE_MS
	};
	auto_buf struct buf out = BUF(100);
	assert_int_equal(boxtest_finish(boxtest_start(&box, &spec), &out, NULL, false).exit_code, 0);
	assert_true(host > 0);
	assert_string_equal(buf_c(&out), "ran\n");
	assert_int_equal(boxtest_run(&box, "rm ran", PATIENCE_MS, NULL).exit_code, 0);
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	spec.place = place_fails;
	assert_null(channel_start(box.c, &spec, &w, &e));
	assert_string_equal(e.msg, "no cgroup");
	assert_int_equal(boxtest_run(&box, "test ! -e ran", PATIENCE_MS, NULL).exit_code, 0);
}

/* SBX-42, SBX-63, faults 25, 26: the channel is lost with a command in flight; it is found again, and no byte is missing */
static void a_command_survives_the_channel_and_is_read_on(void **s)
{
	(void)s;
	const char *const argv[] = { "sh", "-c",
		"i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); [ $i != 50 ] || sleep 0.3; done",
		NULL };
	struct channel_cmd *k = boxtest_start(
	    &box, &(struct channel_spec){ .argv = argv, .label = "cmd_x", .live = true });
	auto_buf struct buf out = BUF(10000);
	struct channel_event ev;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_next(k, &w, &ev, &e), 0);
	assert_int_equal(ev.type, CHANNEL_OUT);
	assert_int_equal(buf_add(&out, ev.p, ev.n), 0);
	uint32_t id = channel_cmd_id(k);
	channel_cmd_close(k);
	channel_close(box.c);
	boxtest_redial(&box);
	struct channel_item *items = NULL;
	assert_true(channel_list(box.c, 0, &w, &items, &e) >= 1);
	free(items);
	assert_int_equal(channel_list(box.c, id, &w, &items, &e), 1);
	assert_string_equal(items[0].label, "cmd_x");
	assert_int_equal(items[0].oldest[0], 0);
	assert_int_equal(items[0].cmd, id);
	free(items);
	const uint64_t from[2] = { out.n, 0 };
	k = channel_resume(box.c, id, from, true, &e);
	do {
		assert_int_equal(channel_next(k, &w, &ev, &e), 0);
		if (ev.type == CHANNEL_OUT) {
			assert_int_equal(ev.offset, out.n);
			assert_int_equal(buf_add(&out, ev.p, ev.n), 0);
		}
	} while (ev.type == CHANNEL_OUT);
	assert_int_equal(ev.type, CHANNEL_EXIT);
	assert_int_equal(ev.exit.exit_code, 0);
	assert_int_equal(channel_next(k, &w, &ev, &e), 0); /* told again */
	assert_int_equal(ev.type, CHANNEL_EXIT);
	channel_cmd_close(k);
	assert_int_equal(out.n, 10 * 7 + 90 * 8);
	assert_true(tail_of(out.p, out.n, "line 98\nline 99\n"));
}

static void who_asks_past_the_end_is_told_the_exit_and_the_channel_stays(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_cmd *k = boxtest_sh(&box, "echo hi; exit 3", PATIENCE_MS);
	const uint64_t from[2] = { 50, 7 };
	uint32_t id = channel_cmd_id(k);
	assert_int_equal(boxtest_finish(k, NULL, NULL, false).exit_code, 3);
	struct channel_event ev;
	k = channel_resume(box.c, id, from, false, &e);
	assert_int_equal(channel_next(k, &w, &ev, &e), 0);
	assert_int_equal(ev.type, CHANNEL_EXIT);
	assert_int_equal(ev.exit.exit_code, 3);
	channel_cmd_close(k);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
}

static void an_unknown_command_is_not_found(void **s)
{
	(void)s;
	struct err e = { 0 };
	const uint64_t from[2] = { 0, 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_event ev;
	struct channel_cmd *k = channel_resume(box.c, 4000000, from, true, &e);
	assert_int_equal(channel_next(k, &w, &ev, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	channel_cmd_close(k);
	err_clear(&e);
	int n;
	struct channel_item *items;
	assert_int_equal(channel_stop_one(box.c, 4000000, &w, &n, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	assert_int_equal(channel_list(box.c, 4000000, &w, &items, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

/* Finished commands are kept within bounds: the last of them readable, the first forgotten. */
static void finished_commands_are_kept_within_bounds(void **s)
{
	(void)s;
	uint32_t first = 0, last = 0;
	struct err e = { 0 };
	for (int i = 0; i < PROTO_COMMANDS_MAX + 4; i++) {
		struct channel_cmd *k = boxtest_sh(&box, "echo x", PATIENCE_MS);
		last = channel_cmd_id(k);
		first = first == 0 ? last : first;
		(void)boxtest_finish(k, NULL, NULL, false);
	}
	struct channel_item *items = NULL;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_list(box.c, 0, &w, &items, &e), PROTO_COMMANDS_MAX);
	assert_int_equal(items[PROTO_COMMANDS_MAX - 1].cmd, last);
	free(items);
	assert_int_equal(channel_list(box.c, first, &w, &items, &e), -1);
	for (int i = 0; i < 20; i++) /* 20 MiB of output: 16 are kept */
		(void)boxtest_run(&box, "head -c 1048576 /dev/zero", PATIENCE_MS, NULL);
	err_clear(&e);
	w = boxtest_wait(PATIENCE_MS);
	int n = channel_list(box.c, 0, &w, &items, &e);
	assert_true(n >= 15 && n <= 17);
	free(items);
}

/* Several requests at once, each with its own commands on the one channel; fault 29 */
static void *hammer(void *arg)
{
	intptr_t id = (intptr_t)arg;
	for (int i = 0; i < 8; i++) {
		char script[128], want[64];
		auto_buf struct buf out = BUF(4 << 20);
		(void)snprintf(script, sizeof script, "head -c %d /dev/zero; echo %d.%d; exit %d", 100000 * i,
		    (int)id, i, i);
		int n = snprintf(want, sizeof want, "%d.%d\n", (int)id, i);
		struct channel_exit x = boxtest_run(&box, script, PATIENCE_MS, &out);
		if (x.exit_code != i || out.n != (size_t)(100000 * i + n) || !tail_of(out.p, out.n, want))
			return arg;
	}
	return NULL;
}

static void many_threads_share_the_channel(void **s)
{
	(void)s;
	pthread_t threads[6];
	for (intptr_t i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < 6; i++) {
		void *failed;
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
}

/* The descriptors of finished commands are given back. */
static void no_descriptor_is_lost(void **s)
{
	(void)s;
	(void)boxtest_run(&box, "echo x", PATIENCE_MS, NULL);
	int before = boxtest_open_fds(box.pid);
	for (int i = 0; i < 20; i++)
		(void)boxtest_run(&box, "echo x", PATIENCE_MS, NULL);
	boxtest_fds_become(box.pid, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_exit_status_and_both_streams_are_told),
		cmocka_unit_test(a_death_by_signal_is_named),
		cmocka_unit_test(a_missing_program_is_127_with_a_message),
		cmocka_unit_test(a_program_that_cannot_be_executed_is_126_with_a_message),
		cmocka_unit_test(standard_input_is_at_its_end_unless_given),
		cmocka_unit_test(a_here_document_ends_and_a_replaced_shell_tells_its_exit),
		cmocka_unit_test(given_input_arrives_whole_and_ends),
		cmocka_unit_test(unread_input_harms_nobody),
		cmocka_unit_test(too_much_input_is_refused_before_anything_runs),
		cmocka_unit_test(the_leases_environment_is_stripped_and_the_commands_own_is_not),
		cmocka_unit_test(a_program_is_looked_up_in_the_commands_own_path),
		cmocka_unit_test(a_command_runs_in_its_directory),
		cmocka_unit_test(a_command_inherits_nothing_of_the_box),
		cmocka_unit_test(the_box_cannot_be_looked_into),
		cmocka_unit_test(invalid_utf8_passes_unchanged),
		cmocka_unit_test(the_exit_comes_after_all_output),
		cmocka_unit_test(a_gigabyte_is_drained_and_its_tail_kept),
		cmocka_unit_test(a_live_reader_gets_every_byte),
		cmocka_unit_test(a_reader_that_stands_still_blocks_nobody_for_ever),
		cmocka_unit_test(a_held_command_begins_when_it_was_placed),
		cmocka_unit_test(a_command_survives_the_channel_and_is_read_on),
		cmocka_unit_test(who_asks_past_the_end_is_told_the_exit_and_the_channel_stays),
		cmocka_unit_test(an_unknown_command_is_not_found),
		cmocka_unit_test(finished_commands_are_kept_within_bounds),
		cmocka_unit_test(many_threads_share_the_channel),
		cmocka_unit_test(no_descriptor_is_lost),
	};
	return cmocka_run_group_tests(tests, up, down);
}
