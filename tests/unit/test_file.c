#include "../t.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/file.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	struct err e = { 0 };
	return file_tmpdir("/tmp", dir, sizeof dir, &e);
}

static int drop_dir(void **state)
{
	(void)state;
	struct err e = { 0 };
	return file_rmtree(dir, &e) == 0 && access(dir, F_OK) != 0 ? 0 : -1;
}

/* dir/name, valid until the fourth call from here. */
static const char *in(const char *name)
{
	static char path[4][PATH_MAX];
	static int turn;
	turn = (turn + 1) % 4;
	(void)snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
	return path[turn];
}

static void touch(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	(void)close(fd);
}

static void test_what_is_written_is_read_again_with_its_mode_and_no_neighbour_left(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_buf struct buf out = BUF(1 << 20);
	auto_free char *big = xcalloc(1, 300000);
	memset(big, 'z', 300000);
	struct stat st;
	for (size_t n = 0; n <= 300000; n += 100000) {
		buf_reset(&out);
		assert_int_equal(file_write(in("f"), big, n, 0640, &e), 0);
		assert_int_equal(file_read(in("f"), &out, &e), 0);
		assert_int_equal(out.n, n);
		assert_int_equal(stat(in("f"), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
	}
	assert_int_equal(unlink(in("f")), 0);
	assert_int_equal(rmdir(dir), 0); /* nothing else is in it */
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void test_reading_says_what_is_wrong_without_naming_the_path(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_buf struct buf out = BUF(3);
	assert_int_equal(file_read(in("absent"), &out, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_null(strstr(e.msg, dir));
	e = (struct err){ 0 };
	assert_int_equal(file_write(in("f"), "abcd", 4, 0600, &e), 0);
	assert_int_equal(file_read(in("f"), &out, &e), -1);
	assert_int_equal(e.code, ERR_TOO_LARGE);
	e = (struct err){ 0 };
	assert_int_equal(file_read(dir, &out, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
}

/* REL-3 */
static void test_a_full_disk_keeps_the_old_content_and_leaves_nothing(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0) {
		struct err e = { 0 };
		struct buf out = BUF(100);
		auto_free char *big = xcalloc(1, 1 << 20);
		bool ok = unshare(CLONE_NEWNS) == 0 &&
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    mount("none", dir, "tmpfs", 0, "size=64k") == 0 &&
		    file_write(in("f"), "old", 3, 0600, &e) == 0 &&
		    file_write(in("f"), big, 1 << 20, 0600, &e) == -1 && e.code == ERR_UNAVAILABLE;
		e = (struct err){ 0 };
		ok = ok && file_read(in("f"), &out, &e) == 0 && strcmp(buf_c(&out), "old") == 0 &&
		    unlink(in("f")) == 0;
		/* Only "." and ".." are left. */
		struct stat st;
		ok = ok && stat(dir, &st) == 0 && st.st_size <= 40;
		_exit(ok ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && unshare(CLONE_FS) != 0)
		skip();
	assert_int_equal(status, 0);
}

static void test_directories_are_made_with_their_parents_and_may_exist(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct stat st;
	assert_int_equal(file_mkdirs(in("a/b//c/"), 0750, &e), 0);
	assert_int_equal(file_mkdirs(in("a/b/c"), 0700, &e), 0);
	assert_int_equal(stat(in("a/b/c"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	touch(in("a/file"));
	assert_int_equal(file_mkdirs(in("a/file"), 0700, &e), -1);
	e = (struct err){ 0 };
	assert_int_equal(file_mkdirs(in("a/file/x"), 0700, &e), -1);
	e = (struct err){ 0 };
	assert_int_equal(file_mkdirs("/proc/no-such-thing/x", 0700, &e), -1);
}

static void test_a_tree_goes_and_what_its_links_point_to_stays(void **state)
{
	(void)state;
	struct err e = { 0 };
	assert_int_equal(file_mkdirs(in("out/side"), 0700, &e), 0);
	touch(in("out/side/kept"));
	assert_int_equal(file_mkdirs(in("t/x/y"), 0700, &e), 0);
	touch(in("t/x/file"));
	assert_int_equal(symlink(in("out/side"), in("t/x/link")), 0);
	assert_int_equal(symlink("..", in("t/x/y/up")), 0);
	assert_int_equal(symlink("/no/such", in("t/dangling")), 0);
	assert_int_equal(mkfifo(in("t/fifo"), 0600), 0);
	assert_int_equal(mkdir(in("t/shut"), 0000), 0);
	assert_int_equal(file_rmtree(in("t"), &e), 0);
	assert_int_equal(access(in("t"), F_OK), -1);
	assert_int_equal(access(in("out/side/kept"), F_OK), 0);
	assert_int_equal(symlink(in("out/side"), in("top")), 0);
	assert_int_equal(file_rmtree(in("top"), &e), 0);
	assert_int_equal(access(in("out/side/kept"), F_OK), 0);
	assert_int_equal(file_rmtree(in("absent"), &e), 0);
}

static void test_a_tree_deeper_than_any_path_goes_too(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_fd int home = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdir(in("deep"), 0700), 0);
	touch(in("deep/.gh-deep-0")); /* the name it would like to use */
	assert_int_equal(chdir(in("deep")), 0);
	for (int i = 0; i < 3000; i++) {
		touch("f");
		assert_int_equal(mkdir("dddddddddd", 0700), 0);
		assert_int_equal(chdir("dddddddddd"), 0);
	}
	assert_int_equal(fchdir(home), 0);
	assert_int_equal(file_rmtree(in("deep"), &e), 0);
	assert_int_equal(access(in("deep"), F_OK), -1);
}

static void test_a_tree_is_removed_by_a_user_whose_rights_were_taken_away(void **state)
{
	(void)state;
	struct err e = { 0 };
	assert_int_equal(file_mkdirs(in("mine/a/b"), 0700, &e), 0);
	touch(in("mine/a/b/f"));
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 &&
		    (chmod(dir, 0777) != 0 || chown(in("mine"), 65534, 65534) != 0 ||
			chown(in("mine/a"), 65534, 65534) != 0 || chown(in("mine/a/b"), 65534, 65534) != 0 ||
			setresuid(65534, 65534, 65534) != 0))
			_exit(2);
		bool shut = chmod(in("mine/a/b"), 0) == 0 && chmod(in("mine/a"), 0) == 0 &&
		    chmod(in("mine"), 0100) == 0;
		_exit(shut && file_rmtree(in("mine"), &e) == 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(in("mine"), F_OK), -1);
}

static void test_a_mount_inside_a_tree_is_not_crossed(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	struct err e = { 0 };
	assert_int_equal(file_mkdirs(in("m/inner"), 0700, &e), 0);
	assert_int_equal(file_mkdirs(in("other"), 0700, &e), 0);
	touch(in("other/kept"));
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		    mount(in("other"), in("m/inner"), NULL, MS_BIND, NULL) != 0)
			_exit(77); /* this machine lets nobody mount */
		_exit(file_rmtree(in("m"), &e) == -1 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
	assert_int_equal(access(in("other/kept"), F_OK), 0);
}

#define T(t) cmocka_unit_test_setup_teardown(t, make_dir, drop_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_what_is_written_is_read_again_with_its_mode_and_no_neighbour_left),
		T(test_reading_says_what_is_wrong_without_naming_the_path),
		T(test_a_full_disk_keeps_the_old_content_and_leaves_nothing),
		T(test_directories_are_made_with_their_parents_and_may_exist),
		T(test_a_tree_goes_and_what_its_links_point_to_stays),
		T(test_a_tree_deeper_than_any_path_goes_too),
		T(test_a_tree_is_removed_by_a_user_whose_rights_were_taken_away),
		T(test_a_mount_inside_a_tree_is_not_crossed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
