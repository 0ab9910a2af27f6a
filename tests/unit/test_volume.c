#include "../t.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/file.h"
#include "sandbox/volume.h"

enum { MIB = 1 << 20, SMALL = 16 * MIB, BASE = 1700000000, AGENT = 1000 };

static char dir[128];
static struct volumes v;

static int up(void **s)
{
	(void)s;
	struct err e = { 0 };
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0)
		return -1;
	volumes_open(&v, dir, 0);
	if (v.why_not[0] != '\0')
		print_message("no volumes here: %s\n", v.why_not);
	return 0;
}

static int down(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(dir, &e);
}

static void needs_root(void)
{
	if (getuid() != 0 || v.why_not[0] != '\0')
		skip();
}

static int mounted(const char *name, uid_t base)
{
	struct err e = { 0 };
	int at = volume_mount(&v, name, SMALL, NULL, base, &e);
	if (at < 0)
		fail_msg("%s", e.msg);
	return at;
}

static void gone(const char *name)
{
	struct err e = { 0 };
	if (volume_settle(&v, name, clock_ms() + 60000, &e) != 0)
		fail_msg("%s", e.msg);
}

/* As an id of the host, in the volume. 0 or errno. */
struct writer {
	int at;
	uid_t id;
	const char *name;
	size_t bytes;
	int err;
};
static void *write_as(void *arg)
{
	struct writer *w = arg;
	static const char block[64 * 1024] = { 1 };
	(void)syscall(SYS_setresgid, -1, w->id, -1);
	(void)syscall(SYS_setresuid, -1, w->id, -1);
	int fd = openat(w->at, w->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	w->err = fd < 0 ? errno : 0;
	for (size_t n = 0; w->err == 0 && n < w->bytes; n += sizeof block)
		if (write(fd, block, sizeof block) != sizeof block)
			w->err = errno == 0 ? ENOSPC : errno;
	if (fd >= 0)
		(void)close(fd);
	return NULL;
}
static int put(int at, uid_t id, const char *name, size_t bytes)
{
	struct writer w = { at, id, name, bytes, 0 };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, write_as, &w), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	return w.err;
}

static void a_name_is_a_function_of_whose_it_is(void **s)
{
	(void)s;
	char a[VOLUME_NAME_MAX], b[VOLUME_NAME_MAX];
	volume_name(a, VOLUME_PROJECT, "acme", "deep-research");
	assert_string_equal(a, "project.acme.deep-research");
	volume_name(a, VOLUME_PROJECT, "a", "b-c");
	volume_name(b, VOLUME_PROJECT, "a-b", "c");
	assert_string_not_equal(a, b);
}

/* Whichever range its sandbox has. */
static void what_one_range_of_ids_wrote_is_the_next_ones(void **s)
{
	(void)s;
	needs_root();
	int at = mounted("ids", BASE);
	struct stat st;
	assert_int_equal(put(at, BASE + AGENT, "f", 1), 0);
	assert_int_equal(put(at, BASE + 2 * AGENT, "g", 1), EACCES);
	assert_int_equal(fstatat(at, "lost+found", &st, 0), -1);
	(void)close(at);
	gone("ids");
	at = mounted("ids", BASE + 65536);
	assert_int_equal(fstatat(at, "f", &st, 0), 0);
	assert_int_equal(st.st_uid, BASE + 65536 + AGENT);
	assert_int_equal(put(at, BASE + 65536 + AGENT, "f", 1), 0);
	(void)close(at);
	gone("ids");
}

static void the_size_is_enforced_inside_and_says_so(void **s)
{
	(void)s;
	needs_root();
	int at = mounted("size", BASE);
	assert_int_equal(put(at, BASE + AGENT, "big", 64 * MIB), ENOSPC);
	assert_int_equal(unlinkat(at, "big", 0), 0);
	assert_int_equal(put(at, BASE + AGENT, "again", MIB), 0);
	(void)close(at);
	gone("size");
	assert_true(volume_used(&v, "size") <= SMALL);
	assert_true(volume_used(&v, "size") >= MIB);
}

static void a_volume_in_use_is_nobody_elses_and_not_deleted(void **s)
{
	(void)s;
	needs_root();
	struct err e = { 0 };
	int at = mounted("busy", BASE);
	assert_int_equal(volume_mount(&v, "busy", SMALL, NULL, BASE, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(volume_remove(&v, "busy", &e), -1); /* fault 42 */
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(volume_settle(&v, "busy", clock_ms() + 20, &e), -1);
	err_clear(&e);
	(void)close(at);
	gone("busy");
	assert_int_equal(volume_remove(&v, "busy", &e), 0);
	assert_int_equal(volume_remove(&v, "busy", &e), 0);
	assert_int_equal(volume_used(&v, "busy"), 0);
}

static void what_was_left_half_made_is_made_again(void **s)
{
	(void)s;
	needs_root();
	char path[256];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/half.ext4.new", dir);
	assert_int_equal(file_write(path, "x", 1, 0600, &e), 0);
	int at = mounted("half", BASE);
	assert_int_equal(access(path, F_OK), -1);
	(void)close(at);
	gone("half");
}

static void a_full_host_makes_and_leases_none(void **s)
{
	(void)s;
	needs_root();
	struct err e = { 0 };
	struct volumes full = v;
	full.spare_bytes = INT64_MAX;
	assert_int_equal(volume_mount(&full, "none", SMALL, NULL, BASE, &e), -1);
	assert_int_equal(e.code, ERR_STORAGE);
	assert_int_equal(volume_used(&full, "none"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_a_function_of_whose_it_is),
		cmocka_unit_test(what_one_range_of_ids_wrote_is_the_next_ones),
		cmocka_unit_test(the_size_is_enforced_inside_and_says_so),
		cmocka_unit_test(a_volume_in_use_is_nobody_elses_and_not_deleted),
		cmocka_unit_test(what_was_left_half_made_is_made_again),
		cmocka_unit_test(a_full_host_makes_and_leases_none),
	};
	return cmocka_run_group_tests(tests, up, down);
}
