/* Files through a real box: SBX-47. */
#include "../span.h"
#include "../t.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

static void sh(const char *script)
{
	assert_int_equal(boxtest_run(&box, script, PATIENCE_MS, NULL).exit_code, 0);
}

struct source {
	uint64_t left;
	unsigned char at;
	uint64_t fail_at; /* abort when so much is left; 0: never */
};

static ssize_t give(void *arg, void *p, size_t n)
{
	struct source *s = arg;
	if (s->fail_at != 0 && s->left <= s->fail_at)
		return -1;
	if (n > s->left)
		n = (size_t)s->left;
	for (size_t i = 0; i < n; i++)
		((unsigned char *)p)[i] = s->at++;
	s->left -= n;
	return (ssize_t)n;
}

struct sink {
	uint64_t n;
	unsigned char at, first; /* at: what comes next when it is what give() makes; first: of all */
	bool wrong;
	uint64_t stop_at; /* abort after so much; 0: never */
	struct channel_file file;
};

static int on_file(void *arg, const struct channel_file *f)
{
	((struct sink *)arg)->file = *f;
	return 0;
}

static int on_data(void *arg, const char *p, size_t n)
{
	struct sink *s = arg;
	if (s->n == 0 && n > 0)
		s->first = (unsigned char)p[0];
	for (size_t i = 0; i < n; i++)
		s->wrong |= (unsigned char)p[i] != (unsigned char)(s->at++);
	s->n += n;
	return s->stop_at != 0 && s->n >= s->stop_at ? -1 : 0;
}

static int put(const char *path, uint64_t size, int mode, struct err *e)
{
	struct source from = { .left = size };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	uint64_t written = 0;
	err_clear(e);
	if (channel_put(box.c, path, mode, &w, give, &from, &written, e) != 0)
		return -1;
	assert_int_equal(written, size);
	return 0;
}

static int get(const char *path, uint64_t offset, int64_t length, struct sink *to, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	err_clear(e);
	*to = (struct sink){ .at = (unsigned char)offset };
	return channel_get(box.c, path, offset, length, &w, on_file, on_data, to, e);
}

/* A refusal names the field, and is a sentence of ours and not of the C library. */
static void names_the_path(const struct err *e)
{
	assert_string_equal(e->param, "path");
	assert_true(strncmp(e->msg, "Th", 2) == 0 || strncmp(e->msg, "A part", 6) == 0 ||
	    strncmp(e->msg, "path ", 5) == 0);
	assert_int_equal(e->msg[strlen(e->msg) - 1], '.');
}

static int put_code(const char *path)
{
	struct err e = { 0 };
	assert_int_equal(put(path, 3, -1, &e), -1);
	names_the_path(&e);
	return (int)e.code;
}

static int get_code(const char *path)
{
	struct err e = { 0 };
	struct sink to;
	assert_int_equal(get(path, 0, -1, &to, &e), -1);
	assert_int_equal(to.n, 0);
	names_the_path(&e);
	return (int)e.code;
}

static void a_file_comes_back_as_it_went(void **s)
{
	(void)s;
	static const uint64_t sizes[] = { 0, 1, PROTO_DATA_MAX, PROTO_WINDOW + 1, 5000000 };
	struct err e = { 0 };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct sink to;
		assert_int_equal(put("made/on/the/way/file", sizes[i], -1, &e), 0);
		assert_int_equal(get("made/on/the/way/file", 0, -1, &to, &e), 0);
		assert_int_equal(to.n, sizes[i]);
		assert_false(to.wrong);
		assert_int_equal(to.file.size, sizes[i]);
		assert_int_equal(to.file.mode, 0644);
	}
	sh("rm -r made");
}

static void a_part_of_a_file_can_be_read(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct sink to;
	assert_int_equal(put("part", 1000000, 0600, &e), 0);
	assert_int_equal(get("part", 300000, 400000, &to, &e), 0);
	assert_int_equal(to.n, 400000);
	assert_false(to.wrong);
	assert_int_equal(to.file.mode, 0600);
	assert_int_equal(get("part", 999999, 10, &to, &e), 0);
	assert_int_equal(to.n, 1);
	assert_int_equal(get("part", 1000000, -1, &to, &e), 0);
	assert_int_equal(to.n, 0);
	assert_int_equal(get("part", UINT64_C(1) << 40, -1, &to, &e), 0);
	assert_int_equal(to.n, 0);
}

static void replacing_is_atomic_and_keeps_the_mode(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct sink to;
	assert_int_equal(put("tool", 10, 0755, &e), 0);
	sh("ln tool same");
	assert_int_equal(put("tool", 20, -1, &e), 0);
	assert_int_equal(get("tool", 0, -1, &to, &e), 0);
	assert_int_equal(to.file.mode, 0755);
	assert_int_equal(to.n, 20);
	assert_int_equal(get("same", 0, -1, &to, &e), 0);
	assert_int_equal(to.n, 10); /* the old file, still whole */
	sh("rm tool same");
}

static void an_aborted_write_leaves_nothing(void **s)
{
	(void)s;
	struct source from = { .left = 3000000, .fail_at = 1000000 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct err e = { 0 };
	assert_int_equal(put("whole", 10, -1, &e), 0);
	assert_int_equal(channel_put(box.c, "whole", -1, &w, give, &from, NULL, &e), -1);
	assert_string_equal(e.reason, "cancelled");
	sh("test $(wc -c <whole) = 10 && set -- .gatehouse*; test ! -e \"$1\"");
	struct sink to = { .stop_at = 100000 };
	err_clear(&e);
	assert_int_equal(put("big", 3000000, -1, &e), 0);
	assert_int_equal(channel_get(box.c, "big", 0, -1, &w, NULL, on_data, &to, &e), -1);
	assert_string_equal(e.reason, "cancelled");
	assert_true(to.n < 200000);
	err_clear(&e);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
	sh("rm whole big");
}

static void a_write_that_loses_its_channel_leaves_nothing(void **s)
{
	(void)s;
	struct source from = { .left = 3000000, .fail_at = 1000000 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct err e = { 0 };
	(void)channel_put(box.c, "lost", -1, &w, give, &from, NULL, &e);
	channel_close(box.c);
	boxtest_redial(&box);
	sh("test ! -e lost && set -- .gatehouse*; test ! -e \"$1\"");
}

/* Constant memory: a file larger than what the box may ever hold. */
static void a_large_file_is_streamed_in_constant_memory(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct sink to;
	sh("truncate -s 300000000 sparse");
	assert_int_equal(get("sparse", 0, -1, &to, &e), 0);
	assert_int_equal(to.n, 300000000);
	char path[64], text[4096] = "";
	(void)snprintf(path, sizeof path, "/proc/%d/status", box.pid);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	(void)!fread(text, 1, sizeof text - 1, f);
	(void)fclose(f);
	assert_true(strtol(strstr(text, "VmHWM:") + 6, NULL, 10) < 8 * 1024);
	sh("rm sparse");
}

enum { EACH_MS = 60 };

struct pace {
	int pieces;
	int64_t began_ms;
};

static ssize_t give_slowly(void *arg, void *p, size_t n)
{
	struct pace *s = arg;
	(void)n;
	if (s->pieces-- == 0)
		return 0;
	(void)poll(NULL, 0, EACH_MS); /* as slow as a client may be */
	*(char *)p = 'x';
	return 1;
}

static ssize_t give_nothing(void *arg, void *p, size_t n)
{
	(void)p;
	struct source *s = arg;
	s->left += n;
	return (ssize_t)n;
}

/* Fault 30: no time for the whole is hidden anywhere; only what stands still ends. */
static void a_file_has_as_long_as_it_moves(void **s)
{
	(void)s;
	struct err e = { 0 };
	int quiet_ms = span_room_ms(500);
	struct pace slow = { .pieces = quiet_ms / EACH_MS * 2, .began_ms = clock_ms() };
	struct channel_wait w = { .deadline_ms = clock_ms() + 100, .quiet_ms = quiet_ms };
	assert_int_equal(channel_put(box.c, "slow", -1, &w, give_slowly, &slow, NULL, &e), 0);
	assert_true(clock_ms() - slow.began_ms >= 3 * quiet_ms / 2);
	/* A box that stands still takes what fits, and no more. */
	struct source more = { 0 };
	assert_int_equal(kill(box.pid, SIGSTOP), 0);
	struct span before = span_begin();
	w.quiet_ms = 500;
	assert_int_equal(channel_put(box.c, "never", -1, &w, give_nothing, &more, NULL, &e), -1);
	assert_int_equal(kill(box.pid, SIGCONT), 0);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_true(span_ms(&before) < 5000);
	assert_true(more.left <= PROTO_WINDOW);
	sh("test -e slow && test ! -e never && rm slow");
}

/* SBX-47: first by what it says */
static void a_path_outside_the_workspace_is_refused(void **s)
{
	(void)s;
	char two[128], beside[128];
	struct err e = { 0 };
	struct sink to;
	(void)snprintf(two, sizeof two, "%s/two/file", box.dir);
	(void)snprintf(
	    beside, sizeof beside, "%s/workmate", box.dir); /* a prefix of a name is not a parent */
	assert_int_equal(put(two, 5, -1, &e), 0);
	assert_int_equal(put("../two/file", 5, -1, &e), 0); /* another root */
	static const char *const bad[] = { "/etc/passwd", "/", "..", "../out/x", "../../x", "a/../../out/x",
		"/work/../etc/x" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(get_code(bad[i]), ERR_FORBIDDEN);
		assert_int_equal(put_code(bad[i]), ERR_FORBIDDEN);
	}
	assert_int_equal(put_code(beside), ERR_FORBIDDEN);
	sh("echo x >shown/file");
	assert_int_equal(put_code("shown/file"), ERR_FORBIDDEN); /* there to be read */
	assert_int_equal(put_code("shown/new/file"), ERR_FORBIDDEN);
	assert_int_equal(get("shown/file", 0, -1, &to, &e), 0);
	sh("test ! -e shown/new && rm shown/file");
	assert_int_equal(put_code(""), ERR_BAD_REQUEST);
	assert_int_equal(get_code("no"), ERR_NOT_FOUND);
	assert_int_equal(get_code("no/such"), ERR_NOT_FOUND);
}

/* SBX-47: then by where it leads */
static void a_link_cannot_lead_out(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct sink to;
	sh("ln -s /etc out; ln -s ../out near; ln -s /etc/passwd file; ln -s loop loop; mkdir in; ln -s in "
	   "inner; ln -s /nowhere/x hang;"
	   "ln -s ../two/there across");
	static const char *const out[] = { "out/passwd", "near/x", "file", "inner/../../out/x",
		"inner/../out/x", "hang" };
	for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
		assert_int_equal(get_code(out[i]), ERR_FORBIDDEN);
		assert_int_equal(put_code(out[i]), ERR_FORBIDDEN);
	}
	assert_int_equal(get_code("loop"), ERR_BAD_REQUEST);
	assert_int_equal(put("inner/file", 4, -1, &e), 0);
	assert_int_equal(get("in/file", 0, -1, &to, &e), 0);
	assert_int_equal(put("across", 4, -1, &e), 0);
	sh("test -L across && test $(wc -c <../two/there) = 4"); /* written where it leads, the link kept */
}

static void only_files_and_directories_are_touched(void **s)
{
	(void)s;
	sh("mkfifo fifo; mkdir dir; echo x >plain");
	struct span before = span_begin();
	assert_int_equal(get_code("fifo"), ERR_BAD_REQUEST);
	assert_int_equal(put_code("fifo"), ERR_BAD_REQUEST);
	assert_true(span_ms(&before) < 2000);
	assert_int_equal(get_code("dir"), ERR_CONFLICT);
	assert_int_equal(put_code("dir"), ERR_CONFLICT);
	assert_int_equal(put_code("plain/x"), ERR_CONFLICT);
	assert_int_equal(put_code("."), ERR_CONFLICT);
	sh("test -p fifo && test \"$(cat plain)\" = x");
}

/* A directory and a link out change places as fast as they can, until killed. */
static pid_t start_flipping(void)
{
	char dir[128], link[128];
	(void)snprintf(dir, sizeof dir, "%s/flip", box.work);
	(void)snprintf(link, sizeof link, "%s/flip.link", box.work);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			if (renameat2(AT_FDCWD, dir, AT_FDCWD, link, RENAME_EXCHANGE) != 0)
				_exit(1);
	}
	return pid;
}

/* No byte ever comes from, or goes, outside. */
static void a_link_that_changes_during_the_walk_gains_nothing(void **s)
{
	(void)s;
	sh("mkdir flip; echo good >flip/f; echo evil >../out/f; ln -s ../out flip.link");
	pid_t flipper = start_flipping();
	int seen = 0, refused = 0, status;
	struct err e = { 0 };
	for (int64_t until = clock_ms() + 1500; clock_ms() < until || seen == 0 || refused == 0;) {
		struct sink to;
		if (get("flip/f", 0, 1, &to, &e) == 0) {
			assert_int_equal(to.first, 'g');
			seen++;
		} else {
			assert_true(e.code == ERR_FORBIDDEN || e.code == ERR_CONFLICT);
			refused += e.code == ERR_FORBIDDEN;
		}
		(void)put("flip/new", 3, -1, &e);
		assert_true(clock_ms() < until + PATIENCE_MS);
	}
	assert_int_equal(kill(flipper, SIGKILL), 0);
	assert_int_equal(waitpid(flipper, &status, 0), flipper);
	assert_true(WIFSIGNALED(status));
	sh("test \"$(echo ../out/*)\" = ../out/f && test \"$(cat ../out/f)\" = evil");
}

/* A name the file system refuses is the caller's fault, and parents are made lexically. */
static void odd_names_are_judged(void **s)
{
	(void)s;
	struct err e = { 0 };
	char name[301];
	memset(name, 'x', 300);
	name[300] = 0;
	assert_int_equal(put_code(name), ERR_BAD_REQUEST);
	assert_int_equal(put("no/such/../../plain2", 3, -1, &e), 0);
	sh("test -f plain2 && test ! -e no");
	assert_int_equal(put("-rf \n \xff", 3, -1, &e), 0);
	sh("test -f \"$(printf -- '-rf \\n \\377')\"");
}

/* SBX-47: no room is told, and leaves nothing. */
static void a_full_disk_is_told_and_leaves_nothing(void **s)
{
	(void)s;
	struct err e = { 0 };
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit small = { 500000, RLIM_INFINITY };
		bool done = setresgid(box.uid, box.uid, box.uid) == 0 &&
		    setresuid(box.uid, box.uid, box.uid) == 0 &&
		    prlimit(box.pid, RLIMIT_FSIZE, &small, NULL) == 0;
		_exit(done ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(put("full", 3000000, -1, &e), -1);
	assert_int_equal(e.code, ERR_STORAGE);
	assert_non_null(strstr(e.msg, "disk is full"));
	assert_string_equal(e.param, ""); /* the path is not what is wrong */
	sh("test ! -e full && set -- .gatehouse*; test ! -e \"$1\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_file_is_streamed_in_constant_memory),
		cmocka_unit_test(a_file_comes_back_as_it_went),
		cmocka_unit_test(a_part_of_a_file_can_be_read),
		cmocka_unit_test(replacing_is_atomic_and_keeps_the_mode),
		cmocka_unit_test(an_aborted_write_leaves_nothing),
		cmocka_unit_test(a_write_that_loses_its_channel_leaves_nothing),
		cmocka_unit_test(a_file_has_as_long_as_it_moves),
		cmocka_unit_test(a_path_outside_the_workspace_is_refused),
		cmocka_unit_test(a_link_cannot_lead_out),
		cmocka_unit_test(only_files_and_directories_are_touched),
		cmocka_unit_test(a_link_that_changes_during_the_walk_gains_nothing),
		cmocka_unit_test(odd_names_are_judged),
		cmocka_unit_test(a_full_disk_is_told_and_leaves_nothing),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(a_file_comes_back_as_it_went),
		cmocka_unit_test(a_part_of_a_file_can_be_read),
		cmocka_unit_test(replacing_is_atomic_and_keeps_the_mode),
		cmocka_unit_test(an_aborted_write_leaves_nothing),
		cmocka_unit_test(a_write_that_loses_its_channel_leaves_nothing),
		cmocka_unit_test(a_path_outside_the_workspace_is_refused),
		cmocka_unit_test(a_link_cannot_lead_out),
		cmocka_unit_test(only_files_and_directories_are_touched),
		cmocka_unit_test(a_link_that_changes_during_the_walk_gains_nothing),
		cmocka_unit_test(odd_names_are_judged),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
