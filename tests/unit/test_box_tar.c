/* Folders in and out of a real box as tar streams. SBX-47. */
#include "../t.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/limits.h"
#include "box/tar.h"
#include "io/file.h"

enum { ARCHIVE_MAX = 64 << 20 };

static struct boxtest box;
static char host[128]; /* a directory of ours */

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	(void)snprintf(host, sizeof host, "%s/host", box.dir);
	assert_int_equal(mkdir(host, 0755), 0);
	return 0;
}

static int up_in_gvisor(void **s)
{
	(void)s;
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	(void)snprintf(host, sizeof host, "%s/host", box.dir);
	assert_int_equal(mkdir(host, 0755), 0);
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
	auto_buf struct buf out = BUF(65536);
	if (boxtest_run(&box, script, PATIENCE_MS, &out).exit_code != 0)
		fail_msg("%s\n%s", script, buf_c(&out));
}

/* A script of ours on the host, beside the sandbox's directories. */
static void on_host(const char *script)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (chdir(host) == 0)
			(void)execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(127);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("on the host: %s", script);
}

static int keep(void *arg, const char *p, size_t n)
{
	return buf_add(arg, p, n);
}

static int pack(const char *path, struct buf *to, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	err_clear(e);
	buf_reset(to);
	return channel_pack(box.c, path, &w, keep, to, e);
}

static ssize_t give(void *arg, void *p, size_t n)
{
	struct str *left = arg;
	n = n < left->n ? n : left->n;
	memcpy(p, left->p, n);
	left->p += n;
	left->n -= n;
	return (ssize_t)n;
}

static int unpack(const struct buf *from, const char *path, uint64_t *entries, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct str left = { from->p, from->n };
	err_clear(e);
	return channel_unpack(box.c, path, &w, give, &left, entries, e);
}

static void to_host(const struct buf *archive)
{
	char path[160];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/a.tar", host);
	assert_int_equal(file_write(path, archive->p, archive->n, 0644, &e), 0);
}

static void from_host(struct buf *archive)
{
	char path[160];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/a.tar", host);
	buf_reset(archive);
	assert_int_equal(file_read(path, archive, &e), 0);
}

static const char tree[] = "mkdir -p t/empty t/deep/er; echo hello >t/f; : >t/none; chmod 750 t/f; ln -s "
			   "../f t/deep/l; ln t/f t/deep/hard;"
			   "ln -s / t/out; head -c 3000000 /dev/zero >t/large; mkfifo t/pipe;"
			   "x=$(printf '%0150d' 0); mkdir -p t/$x/$x; echo long >t/$x/$x/f; ln -s $x/$x/f "
			   "t/longlink; touch \"t/$(printf "
			   "'new\\nline \\377')\"";

/* What a folder holds comes out for every tar program, and goes in from every one. */
static void a_folder_comes_out_as_a_tar(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	sh(tree);
	assert_int_equal(pack("t", &a, &e), 0);
	to_host(&a);
	on_host("mkdir x; tar xf a.tar -C x; rm -f ../work/t/pipe; chown -R --reference=. ../work/t;"
		"diff -r --no-dereference x ../work/t; test $(stat -c %a x/f) = 750 -a $(readlink x/out) = /;"
		"test $(stat -c %Y x/f) = $(stat -c %Y ../work/t/f); rm -r x ../work/t");
	sh("mkdir void");
	assert_int_equal(pack("void", &a, &e), 0);
	assert_int_equal(a.n, 2 * TAR_BLOCK);
	assert_int_equal(pack("no", &a, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	sh("rmdir void; echo x >file");
	assert_int_equal(pack("file", &a, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(pack("/etc", &a, &e), -1);
	assert_int_equal(e.code, ERR_FORBIDDEN);
	sh("rm file");
}

static void a_tar_of_any_program_goes_in(void **s)
{
	(void)s;
	static const char *const formats[] = { "gnu", "pax", "ustar", "v7" };
	struct err e = { 0 };
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
		char script[800];
		uint64_t entries = 0;
		(void)snprintf(script, sizeof script,
		    "mkdir t; cd t; mkdir -p empty deep/er; echo hello >f; chmod 640 f; ln -s ../f deep/l; "
		    "ln f "
		    "deep/hard; head -c 300000 /dev/zero >large; %s cd ..; tar cf a.tar --format=%s -C t .",
		    i < 2 ? "x=$(printf '%0150d' 0); mkdir -p $x/$x; echo long >$x/$x/f; ln -s $x/$x/f long;"
			  : "",
		    formats[i]);
		on_host(script);
		from_host(&a);
		assert_int_equal(unpack(&a, "into/there", &entries, &e), 0);
		assert_int_equal(entries, i < 2 ? 12 : 8);
		on_host("diff -r --no-dereference t ../work/into/there; test $(stat -c %a "
			"../work/into/there/f) = 640;"
			"test $(stat -c %h ../work/into/there/f) = 2;"
			"test $(stat -c %Y ../work/into/there/f) = $(stat -c %Y t/f)");
		assert_int_equal(unpack(&a, "into/there", &entries, &e), 0); /* again, over what is there */
		on_host("diff -r --no-dereference t ../work/into/there; rm -r t ../work/into");
	}
}

/* ---- archives that mean harm */

static void add(struct buf *to, enum tar_kind kind, const char *path, const char *target, const char *body)
{
	auto_free struct tar_entry *e = xcalloc(1, sizeof *e);
	auto_free unsigned char *head = xcalloc(1, TAR_HEAD_MAX);
	static const char zeros[TAR_BLOCK];
	*e = (struct tar_entry){ .kind = kind, .mode = 0644, .size = strlen(body) };
	(void)snprintf(e->path, sizeof e->path, "%s", path);
	(void)snprintf(e->target, sizeof e->target, "%s", target);
	assert_int_equal(buf_add(to, head, tar_head(e, head)), 0);
	assert_int_equal(buf_str(to, body), 0);
	assert_int_equal(buf_add(to, zeros, tar_pad(strlen(body))), 0);
}

static void finish(struct buf *to)
{
	static const char zeros[2 * TAR_BLOCK];
	assert_int_equal(buf_add(to, zeros, sizeof zeros), 0);
}

/* One harmless entry, then this one. */
static void refused(
    enum tar_kind kind, const char *path, const char *target, enum err_code code, const char *says)
{
	struct err e = { 0 };
	uint64_t entries;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	add(&a, TAR_FILE, "before", "", "x");
	add(&a, kind, path, target, kind == TAR_FILE ? "evil" : "");
	finish(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	if (e.code != code || strstr(e.msg, says) == NULL)
		fail_msg("%s > %s: %d %s", path, target, (int)e.code, e.msg);
	sh("test -e in/before && rm -r in && test \"$(cat ../out/theirs)\" = theirs && test \"$(echo "
	   "../out/*)\" = "
	   "../out/theirs");
}

static void nothing_of_a_tar_gets_out(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t entries;
	sh("echo theirs >../out/theirs");
	refused(TAR_FILE, "../x", "", ERR_BAD_REQUEST, "..");
	refused(TAR_FILE, "/tmp/x", "", ERR_BAD_REQUEST, "absolute");
	refused(TAR_FILE, "a/../../x", "", ERR_BAD_REQUEST, "..");
	refused(TAR_LINK, "l", "/etc", ERR_FORBIDDEN, "`l`: its link target: The path is outside");
	refused(TAR_LINK, "d/l", "../../../out", ERR_FORBIDDEN, "`d/l`");
	refused(TAR_LINK, "l", "../../out/theirs", ERR_FORBIDDEN, "`l`");
	refused(TAR_HARD_LINK, "h", "../../out/theirs", ERR_BAD_REQUEST, "..");
	refused(TAR_HARD_LINK, "h", "none", ERR_NOT_FOUND, "`h`");
	/* Through what is there already: a link out, and one that leads to another root. */
	sh("mkdir in; ln -s ../../out in/l");
	refused(TAR_FILE, "l/x", "", ERR_FORBIDDEN, "`l/x`");
	sh("mkdir in; ln -s ../../out/theirs in/h");
	refused(TAR_HARD_LINK, "hard", "h", ERR_FORBIDDEN, "`hard`");
	sh("mkdir in; ln -s ../../out in/d");
	refused(TAR_DIR, "d", "", ERR_FORBIDDEN, "`d`");
	sh("mkdir -p in/f");
	refused(TAR_FILE, "f", "", ERR_CONFLICT, "`f`: That is a directory");
	sh("mkdir in; ln -s ../../out/theirs in/f; ln -s ../two in/across");
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	add(&a, TAR_FILE, "f", "", "new"); /* takes the link's place, and not what it leads to */
	add(&a, TAR_DIR, "d", "", "");
	add(&a, TAR_LINK, "inner", "./d/../f", "");
	add(&a, TAR_HARD_LINK, "hard", "f", "");
	finish(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), 0);
	sh("test \"$(cat in/inner)\" = new && test ! -L in/f && test \"$(cat ../out/theirs)\" = theirs && rm "
	   "-r in");
	assert_int_equal(unpack(&a, "shown/in", &entries, &e), -1);
	assert_int_equal(e.code, ERR_FORBIDDEN);
	assert_int_equal(unpack(&a, "/etc", &entries, &e), -1);
	assert_int_equal(e.code, ERR_FORBIDDEN);
	sh("test ! -e shown/in; rm ../out/theirs");
}

static void special_files_and_bits_do_not_come_in(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t entries;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	on_host("mkdir t; echo x >t/s; chmod 6755 t/s; chmod 1777 t; tar cf a.tar t; mknod t/n c 1 3; tar cf "
		"n.tar t");
	from_host(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), 0);
	on_host(
	    "test $(stat -c %a ../work/in/t/s) = 755 -a $(stat -c %a ../work/in/t) = 777; mv n.tar a.tar");
	from_host(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_non_null(strstr(e.msg, "`t/n`: it is a device"));
	on_host("gzip -c a.tar >b.tar; mv b.tar a.tar; rm -r t");
	from_host(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	assert_non_null(strstr(e.msg, "gzip"));
	sh("test ! -e in/t/n && rm -r in");
}

/* An upload that ends early leaves no half file, and is no success. */
static void a_tar_that_is_cut_leaves_no_half_file(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t entries;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	sh("mkdir in; echo old >in/second");
	add(&a, TAR_FILE, "first", "", "first");
	add(&a, TAR_FILE, "second", "", "secondsecondsecond");
	finish(&a);
	a.n = 3 * TAR_BLOCK + 6;
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_non_null(strstr(e.msg, "`second`: the archive is cut short"));
	sh("test \"$(cat in/first in/second)\" = \"$(printf 'firstold')\" && test \"$(echo in/.g*)\" = "
	   "'in/.g*'; rm -r in");
}

static void a_full_disk_stops_at_the_entry_that_does_not_fit(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t entries;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit small = { 200000, RLIM_INFINITY };
		bool done = setresgid(box.uid, box.uid, box.uid) == 0 &&
		    setresuid(box.uid, box.uid, box.uid) == 0 &&
		    prlimit(box.pid, RLIMIT_FSIZE, &small, NULL) == 0;
		_exit(done ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	on_host("mkdir t; echo x >t/1; head -c 300000 /dev/zero >t/2; tar cf a.tar -C t 1 2; rm -r t");
	from_host(&a);
	sh("mkdir in; echo old >in/2");
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	assert_int_equal(e.code, ERR_STORAGE);
	assert_non_null(strstr(e.msg, "At `2`: the sandbox's disk is full (/"));
	sh("test \"$(cat in/1 in/2)\" = \"$(printf 'x\\nold')\" && test \"$(echo in/.g*)\" = 'in/.g*'; rm -r "
	   "in");
}

/* A file that is cut while it is read: the archive would not be true, so it has no end. */
static int cut_the_file(void *arg, const char *p, size_t n)
{
	char path[160];
	(void)snprintf(path, sizeof path, "%s/t/f", box.work);
	assert_int_equal(truncate(path, 10), 0);
	return keep(arg, p, n);
}

static void a_file_that_shrinks_ends_the_archive(void **s)
{
	(void)s;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct err e = { 0 };
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	sh("mkdir t; head -c 3000000 /dev/zero >t/f");
	assert_int_equal(channel_pack(box.c, "t", &w, cut_the_file, &a, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_non_null(strstr(e.msg, "`f`: it became shorter"));
	sh("rm -r t");
}

static void very_many_entries_are_too_many(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t entries;
	if (getenv("GATEHOUSE_HEAVY") == NULL)
		skip();
	auto_buf struct buf a = BUF(256 << 20);
	for (int i = 0; i <= 200000; i++)
		add(&a, TAR_DIR, "d", "", "");
	finish(&a);
	assert_int_equal(unpack(&a, "in", &entries, &e), -1);
	assert_int_equal(e.code, ERR_TOO_LARGE);
	sh("rm -r in");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_folder_comes_out_as_a_tar),
		cmocka_unit_test(a_tar_of_any_program_goes_in),
		cmocka_unit_test(nothing_of_a_tar_gets_out),
		cmocka_unit_test(special_files_and_bits_do_not_come_in),
		cmocka_unit_test(a_tar_that_is_cut_leaves_no_half_file),
		cmocka_unit_test(a_file_that_shrinks_ends_the_archive),
		cmocka_unit_test(very_many_entries_are_too_many),
		cmocka_unit_test(a_full_disk_stops_at_the_entry_that_does_not_fit),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(a_folder_comes_out_as_a_tar),
		cmocka_unit_test(a_tar_of_any_program_goes_in),
		cmocka_unit_test(nothing_of_a_tar_gets_out),
		cmocka_unit_test(a_tar_that_is_cut_leaves_no_half_file),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
