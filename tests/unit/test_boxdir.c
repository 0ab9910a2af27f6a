/* The directories of the sandboxes' sockets (SBX-63, SBX-65). */
#include "../t.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/file.h"
#include "sandbox/boxdir.h"

enum { STRANGER = 12345 };

static char top[] = "/tmp/ghbd.XXXXXX";

static int up(void **s)
{
	(void)s;
	return mkdtemp(top) == NULL ? -1 : 0;
}

static int down(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(top, &e);
}

static void at(char out[200], const char *name)
{
	(void)snprintf(out, 200, "%s/%s", top, name);
}

static void the_first_that_fits_is_taken_and_made(void **s)
{
	(void)s;
	char a[200], b[200], got[BOXDIR_BASE_MAX + 1];
	struct err e = { 0 };
	struct stat st;
	at(a, "no/such/parent");
	at(b, "base");
	const char *const list[] = { NULL, "", "relative/path", a, b, "/tmp" };
	assert_int_equal(boxdir_base(list, 6, got, &e), 0);
	assert_string_equal(got, b);
	assert_int_equal(lstat(b, &st), 0);
	assert_int_equal(st.st_mode & 022, 0);
	assert_int_equal(boxdir_base(list, 6, got, &e), 0); /* and again, now that it is there */
}

static void none_that_fits_names_the_first(void **s)
{
	(void)s;
	char longer[BOXDIR_BASE_MAX + 2], got[BOXDIR_BASE_MAX + 1];
	struct err e = { 0 };
	memset(longer, 'x', sizeof longer - 1);
	longer[0] = '/';
	longer[sizeof longer - 1] = '\0';
	const char *const list[] = { "/nowhere/at/all", longer };
	assert_int_equal(boxdir_base(list, 2, got, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "/nowhere/at/all"));
}

/* A predictable name that somebody else made, or can change, is not used. */
static void what_another_user_controls_is_refused(void **s)
{
	(void)s;
	char dir[200], link[200], got[BOXDIR_BASE_MAX + 1];
	struct err e = { 0 };
	if (geteuid() != 0)
		skip();
	at(dir, "theirs");
	at(link, "link");
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chown(dir, STRANGER, STRANGER), 0);
	const char *one = dir;
	assert_int_equal(boxdir_base(&one, 1, got, &e), -1);
	assert_int_equal(chown(dir, 0, 0), 0);
	for (int mode = 0777; mode >= 0757; mode -= 020) { /* for everybody, for others */
		assert_int_equal(chmod(dir, (mode_t)mode), 0);
		err_clear(&e);
		assert_int_equal(boxdir_base(&one, 1, got, &e), -1);
	}
	assert_int_equal(chmod(dir, 0755), 0);
	err_clear(&e);
	assert_int_equal(boxdir_base(&one, 1, got, &e), 0);
	assert_int_equal(symlink(dir, link), 0);
	one = link;
	assert_int_equal(boxdir_base(&one, 1, got, &e), -1);
}

static void put(const char *dir, const char *name)
{
	char path[300];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
}

static void a_sandboxs_directory_is_its_own_and_empty(void **s)
{
	(void)s;
	char path[BOXDIR_PATH_MAX], again[BOXDIR_PATH_MAX];
	struct err e = { 0 };
	struct stat st;
	if (geteuid() != 0)
		skip();
	assert_int_equal(boxdir_make(top, "sbx_1", STRANGER, path, &e), 0);
	put(path, "left-over");
	assert_int_equal(boxdir_make(top, "sbx_1", STRANGER, again, &e), 0);
	assert_string_equal(path, again);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(st.st_uid, STRANGER);
	assert_int_equal(rmdir(path), 0); /* it was empty */
}

static void closing_takes_it_back(void **s)
{
	(void)s;
	char path[BOXDIR_PATH_MAX];
	struct err e = { 0 };
	struct stat st;
	if (geteuid() != 0)
		skip();
	assert_int_equal(boxdir_make(top, "sbx_2", STRANGER, path, &e), 0);
	put(path, BOXDIR_SOCKET);
	assert_int_equal(boxdir_close(path, &e), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_mode & 077, 0);
	assert_int_equal(boxdir_remove(top, "sbx_2", &e), 0);
	assert_int_equal(lstat(path, &st), -1);
	assert_int_equal(boxdir_remove(top, "sbx_2", &e), 0); /* absent is fine */
}

/* What stands in its place is removed, never followed. */
static void a_link_in_its_place_is_not_followed(void **s)
{
	(void)s;
	char target[200], link[200], path[BOXDIR_PATH_MAX];
	struct err e = { 0 };
	struct stat st;
	if (geteuid() != 0)
		skip();
	at(target, "precious");
	at(link, "sbx_3");
	assert_int_equal(mkdir(target, 0700), 0);
	put(target, "file");
	assert_int_equal(symlink(target, link), 0);
	assert_int_equal(boxdir_close(link, &e), -1);
	err_clear(&e);
	assert_int_equal(boxdir_make(top, "sbx_3", STRANGER, path, &e), 0);
	assert_int_equal(lstat(target, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
}

/* SBX-65 */
static void the_setting_alone_or_the_places_in_their_order(void **s)
{
	(void)s;
	char tmp[BOXDIR_PATH_MAX], want[BOXDIR_PATH_MAX];
	const char *names[BOXDIR_NAMES];
	assert_int_equal(boxdir_names("/of/the/setting", tmp, names), 1);
	assert_string_equal(names[0], "/of/the/setting");
	assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
	assert_int_equal(setenv("TMPDIR", "/other/tmp", 1), 0);
	(void)snprintf(want, sizeof want, "/other/tmp/gatehouse-%u", geteuid());
	assert_int_equal(boxdir_names("", tmp, names), 4);
	assert_string_equal(names[0], "/run/gatehouse/s");
	assert_string_equal(names[1], "/run/gatehouse");
	assert_string_equal(names[2], "/run/user/7");
	assert_string_equal(names[3], want);
	assert_int_equal(unsetenv("TMPDIR"), 0);
	assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
	(void)snprintf(want, sizeof want, "/tmp/gatehouse-%u", geteuid());
	assert_int_equal(boxdir_names("", tmp, names), 4);
	assert_null(names[2]); /* skipped */
	assert_string_equal(names[3], want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_that_fits_is_taken_and_made),
		cmocka_unit_test(none_that_fits_names_the_first),
		cmocka_unit_test(what_another_user_controls_is_refused),
		cmocka_unit_test(a_sandboxs_directory_is_its_own_and_empty),
		cmocka_unit_test(closing_takes_it_back),
		cmocka_unit_test(the_setting_alone_or_the_places_in_their_order),
		cmocka_unit_test(a_link_in_its_place_is_not_followed),
	};
	return cmocka_run_group_tests_name("boxdir", tests, up, down);
}
