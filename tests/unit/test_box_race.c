/*
 * A program flips links and directories while requests about files resolve their paths: nothing outside the workspace is ever read or
 * written, whatever is asked (SBX-47). GATEHOUSE_HEAVY=1 does it for ten seconds each.
 */
#include "../t.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/limits.h"
#include "box/tar.h"

static struct boxtest box;
static pid_t flipper;
static char work[96];

static void sh(const char *script)
{
	auto_buf struct buf out = BUF(65536);
	if (boxtest_run(&box, script, PATIENCE_MS, &out).exit_code != 0)
		fail_msg("%s\n%s", script, buf_c(&out));
}

static int round_ms(void)
{
	return getenv("GATEHOUSE_HEAVY") != NULL ? 10000 : 250;
}

/* In the workspace: `flip` is a directory of ours and `leaf` a file of ours, or links to those of somebody else, whose names are the same;
 * each changes into the other in one step, as fast as it goes. */
static void flip(void)
{
	static const char *const pairs[][2] = { { "flip", "flip.link" }, { "leaf", "leaf.link" } };
	int dir = open(work, O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		for (int i = 0; i < 2; i++)
			/* Requests may take one of the two away: then there is nothing to flip. */
			(void)renameat2(dir, pairs[i][0], dir, pairs[i][1], RENAME_EXCHANGE);
}

static void lay_out(void)
{
	(void)snprintf(work, sizeof work, "%s", box.work);
	sh("mkdir -p flip/sub; echo good >flip/f; echo good >leaf; ln -s ../out flip.link; ln -s ../out/f "
	   "leaf.link;"
	   "echo evil >../out/f; mkdir ../out/sub; echo evil >../out/sub/x; chmod 600 ../out/f");
}

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	lay_out();
	flipper = fork();
	assert_true(flipper >= 0);
	if (flipper == 0)
		flip();
	return 0;
}

static struct channel_cmd
    *inside; /* the same from inside: what happens on the host behind its back is not gVisor's matter */

static int up_in_gvisor(void **s)
{
	(void)s;
	static const char *const argv[] = { "/usr/bin/python3", "-c",
		/* There is no exchange in one step here, so requests may put something in the gap, which is moved out of the way. */
		"import os\n"
		"k = 0\n"
		"def step(do, *names):\n"
		"  try: do(*names)\n"
		"  except OSError: return False\n"
		"  return True\n"
		"while True:\n"
		"  for name, out in ('flip', '../out'), ('leaf', '../out/f'):\n"
		"    step(os.rename, name, name + '.own')\n"
		"    step(os.symlink, out, name)\n"
		"    k += 1\n"
		"    step(os.unlink, name) or step(os.rename, name, 'junk%d' % k)\n"
		"    step(os.rename, name + '.own', name)\n",
		NULL };
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	lay_out();
	inside = boxtest_start(&box, &(struct channel_spec){ .argv = argv });
	return 0;
}

static int down(void **s)
{
	(void)s;
	(void)kill(flipper, SIGKILL);
	(void)waitpid(flipper, NULL, 0);
	boxtest_down(&box);
	return 0;
}

static int down_in_gvisor(void **s)
{
	(void)s;
	channel_cmd_close(inside);
	boxtest_down(&box);
	return 0;
}

/* What is outside is as it was: names, contents, permissions. */
static void assert_theirs(void)
{
	sh("cd ../out && test \"$(echo * .[a-z]*)\" = 'f sub .[a-z]*' && test \"$(echo sub/*)\" = sub/x &&"
	   "test \"$(cat f sub/x)\" = \"$(printf 'evil\\nevil')\"");
	struct stat st;
	char path[160];
	(void)snprintf(path, sizeof path, "%s/out/f", box.dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

/* The control: who looks first and opens then does read what is somebody else's, here and now. */
static void who_looks_first_and_opens_then_is_deceived(void **s)
{
	(void)s;
	char dir[128], file[160], byte;
	(void)snprintf(dir, sizeof dir, "%s/flip", work);
	(void)snprintf(file, sizeof file, "%s/f", dir);
	int deceived = 0, tries = 0;
	for (int64_t until = clock_ms() + PATIENCE_MS; deceived < 3; tries++) {
		struct stat st;
		if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
			continue;
		int fd = open(file, O_RDONLY | O_CLOEXEC);
		deceived += fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'e';
		if (fd >= 0)
			(void)close(fd);
		assert_true(clock_ms() < until);
	}
	print_message("    %d of %d\n", deceived, tries);
}

/* ---- requests; each is done again and again */

static struct channel_wait patience(void)
{
	return boxtest_wait(PATIENCE_MS);
}

static int seen_first; /* of the last download */

static int first_byte(void *arg, const char *p, size_t n)
{
	(void)arg;
	if (n > 0 && seen_first == 0)
		seen_first = (unsigned char)p[0];
	return 0;
}

static int get(struct err *e)
{
	static unsigned turn;
	struct channel_wait w = patience();
	seen_first = 0;
	int rc = channel_get(
	    box.c, turn++ % 2 == 0 ? "flip/f" : "leaf", 0, -1, &w, NULL, first_byte, NULL, e);
	assert_int_not_equal(seen_first, 'e');
	return rc;
}

static ssize_t give_one(void *arg, void *p, size_t n)
{
	int *left = arg;
	if (*left == 0 || n == 0)
		return 0;
	*left = 0;
	*(char *)p = 'n';
	return 1;
}

static int put(struct err *e)
{
	static unsigned turn;
	struct channel_wait w = patience();
	int left = 1;
	return channel_put(
	    box.c, turn++ % 2 == 0 ? "flip/new" : "flip/deep/er/new", 0666, &w, give_one, &left, NULL, e);
}

/* Of what is outside only the name of a link may be told. */
static int no_evil(void *arg, const struct channel_node *n)
{
	(void)arg;
	assert_null(strstr(n->path, "sub/x"));
	return 0;
}

static int look(struct err *e)
{
	const struct channel_look l = { .path = "flip", .depth = 4, .nodes = 100 };
	struct channel_wait w = patience();
	return channel_look(box.c, &l, &w, no_evil, NULL, NULL, e);
}

static int make_dir(struct err *e)
{
	struct channel_wait w = patience();
	bool made;
	return channel_mkdir(box.c, "flip/made/x", 0777, &w, &made, e);
}

static int move_in(struct err *e)
{
	struct channel_wait w = patience();
	int left = 1;
	(void)channel_put(box.c, "mine", -1, &w, give_one, &left, NULL, e);
	err_clear(e);
	return channel_move(box.c, "mine", "flip/moved/mine", true, &w, e);
}

static int move_out(struct err *e)
{
	struct channel_wait w = patience();
	int rc = channel_move(box.c, "flip/f", "taken", true, &w, e);
	struct err ignored = { 0 };
	if (rc == 0) /* and back, wherever `flip` is by now */
		while (channel_move(box.c, "taken", "flip/f", true, &w, &ignored) != 0)
			err_clear(&ignored);
	return rc;
}

static int remove_tree(struct err *e)
{
	struct channel_wait w = patience();
	struct err ignored = { 0 };
	bool made;
	uint64_t count;
	(void)channel_mkdir(box.c, "flip/gone/a/b", -1, &w, &made, &ignored);
	return channel_remove(box.c, "flip/gone", true, &w, &count, e);
}

static int remove_leaf(struct err *e)
{
	struct channel_wait w = patience();
	uint64_t count;
	return channel_remove(box.c, "flip/sub/x", true, &w, &count, e); /* there is none but theirs */
}

static int no_evil_bytes(void *arg, const char *p, size_t n)
{
	(void)arg;
	assert_null(memmem(p, n, "evil", 4));
	return 0;
}

static int pack(struct err *e)
{
	static unsigned turn;
	struct channel_wait w = patience();
	return channel_pack(box.c, turn++ % 2 == 0 ? "flip" : ".", &w, no_evil_bytes, NULL, e);
}

static ssize_t give_tar(void *arg, void *p, size_t n)
{
	struct str *left = arg;
	n = n < left->n ? n : left->n;
	memcpy(p, left->p, n);
	left->p += n;
	left->n -= n;
	return (ssize_t)n;
}

static void add(struct buf *to, enum tar_kind kind, const char *path, const char *target)
{
	static unsigned char head[TAR_HEAD_MAX];
	static struct tar_entry e;
	e = (struct tar_entry){ .kind = kind, .mode = 0666 };
	(void)snprintf(e.path, sizeof e.path, "%s", path);
	(void)snprintf(e.target, sizeof e.target, "%s", target);
	assert_int_equal(buf_add(to, head, tar_head(&e, head)), 0);
}

static int unpack(struct err *e)
{
	static const char zeros[2 * TAR_BLOCK];
	struct channel_wait w = patience();
	auto_buf struct buf a = BUF(65536);
	uint64_t entries;
	static const struct {
		enum tar_kind kind;
		const char *path, *target;
	} rows[] = { { TAR_DIR, "flip", "" }, { TAR_FILE, "flip/packed", "" },
		{ TAR_DIR, "flip/packed.d", "" }, { TAR_HARD_LINK, "flip/hard", "flip/f" },
		{ TAR_LINK, "flip/soft", "f" } };
	static unsigned turn;
	const size_t i = turn++ % (sizeof rows / sizeof rows[0]);
	add(&a, rows[i].kind, rows[i].path, rows[i].target);
	assert_int_equal(buf_add(&a, zeros, sizeof zeros), 0);
	struct str left = { a.p, a.n };
	return channel_unpack(box.c, ".", &w, give_tar, &left, &entries, e);
}

static int stop_at_once(void *arg, const struct channel_change *c)
{
	(void)arg;
	assert_null(strstr(c->path, "sub/x"));
	return -1;
}

static int watch(struct err *e)
{
	struct channel_wait w = patience();
	int rc = channel_watch(box.c, "flip", true, &w, stop_at_once, NULL, e);
	assert_int_equal(rc, -1);
	return err_is(e, "cancelled") ? 0 : -1;
}

static const struct {
	const char *name;
	int (*ask)(struct err *e);
	bool never; /* it cannot succeed */
} requests[] = { { "read", get, false }, { "write", put, false }, { "list", look, false },
	{ "mkdir", make_dir, false }, { "move in", move_in, false }, { "move out", move_out, false },
	{ "remove", remove_tree, false }, { "remove theirs", remove_leaf, true }, { "pack", pack, false },
	{ "unpack", unpack, false }, { "watch", watch, false } };

static void no_request_is_led_outside(void **s)
{
	(void)s;
	for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
		int done = 0, outside = 0, other = 0;
		int64_t until = clock_ms() + round_ms(), end = until + PATIENCE_MS;
		/* Both outcomes are seen, so the race was one. */
		while (clock_ms() < until || (done == 0 && !requests[i].never) || outside == 0) {
			struct err e = { 0 };
			if (requests[i].ask(&e) == 0)
				done++;
			else if (e.code == ERR_FORBIDDEN)
				outside++;
			else if (e.code == ERR_CONFLICT || e.code == ERR_NOT_FOUND ||
			    e.code == ERR_BAD_REQUEST)
				other++; /* it was something else when it was opened, or had just gone */
			else
				fail_msg("%s: %d %s", requests[i].name, (int)e.code, e.msg);
			if (clock_ms() > end)
				fail_msg("%s: %d done, %d outside, %d other", requests[i].name, done, outside,
				    other);
		}
		print_message(
		    "    %s: %d done, %d refused, %d neither\n", requests[i].name, done, outside, other);
		assert_true(!requests[i].never || done == 0);
		assert_theirs();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_looks_first_and_opens_then_is_deceived),
		cmocka_unit_test(no_request_is_led_outside),
	};
	const struct CMUnitTest gvisor[] = { cmocka_unit_test(no_request_is_led_outside) };
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down_in_gvisor);
	return failed;
}
