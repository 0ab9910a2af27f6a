/* What a sandbox's root and network namespace are before anything runs in them (SBX-24, DRV-1). */
#include "../t.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file.h"
#include "sandbox/image.h"
#include "sandbox/netns.h"

static char root[] = "/tmp/ghim.XXXXXX";

static void at(char out[200], const char *name)
{
	(void)snprintf(out, 200, "%s%s", root, name);
}

static void assert_dir(const char *name, unsigned mode)
{
	char path[200];
	struct stat st;
	at(path, name);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 07777, mode);
}

static void make(struct image_binds *b)
{
	struct err e = { 0 };
	if (image_host_make(root, "/bin/true", b, &e) != 0)
		fail_msg("%s", e.msg);
}

static void the_root_is_made_whatever_the_umask_and_twice_is_the_same(void **s)
{
	(void)s;
	struct image_binds b;
	mode_t before = umask(077);
	make(&b);
	make(&b);
	(void)umask(before);
	assert_dir("/usr", 0755);
	assert_dir("/tmp", 01777); /* a tmpfs mounted there gets the mode of what it covers */
	assert_dir("/state", 0755);
	assert_dir("/mnt/data", 0755);
	assert_dir("/run/gatehouse", 0755);
	char path[200], to[64] = "";
	at(path, "/bin");
	assert_true(readlink(path, to, sizeof to - 1) > 0);
	assert_string_equal(to, "usr/bin");
	at(path, IMAGE_INIT);
	assert_int_equal(access(path, X_OK), 0);
	for (int i = 0; b.path[i] != NULL; i++) /* every bound directory has a place to be bound to */
		assert_dir(b.path[i], 0755);
}

static void etc_holds_what_we_wrote_and_no_more(void **s)
{
	(void)s;
	static const char *const known[] = { ".", "..", "alternatives", "fonts", "group", "host.conf",
		"hostname", "hosts", "java-17-openjdk", "ld.so.cache", "localtime", "mime.types", "mtab",
		"nsswitch.conf", "os-release", "passwd", "protocols", "resolv.conf", "services", "shells",
		"ssl", "timezone", NULL };
	char path[200];
	struct image_binds b;
	make(&b);
	at(path, "/etc");
	DIR *d = opendir(path);
	assert_non_null(d);
	for (struct dirent *i; (i = readdir(d)) != NULL;) {
		bool found = false;
		for (const char *const *k = known; *k != NULL; k++)
			found = found || strcmp(*k, i->d_name) == 0;
		if (!found)
			fail_msg("/etc/%s", i->d_name);
	}
	(void)closedir(d);
	auto_buf struct buf passwd = BUF(4096);
	struct err e = { 0 };
	at(path, "/etc/passwd");
	assert_int_equal(file_read(path, &passwd, &e), 0);
	assert_non_null(strstr(buf_c(&passwd), "agent:x:1000:1000:"));
}

static void a_network_namespace_holds_loopback_up_and_nothing_else(void **s)
{
	(void)s;
	struct err e = { 0 };
	if (geteuid() != 0)
		skip();
	int fd = netns_make(NULL, &e);
	assert_true(fd >= 0);
	assert_int_equal(access("/proc/self/ns/net", F_OK), 0);
	pid_t pid = fork();
	if (pid == 0) {
		auto_buf struct buf dev = BUF(4096), routes = BUF(4096), ours = BUF(4096);
		if (setns(fd, CLONE_NEWNET) != 0)
			_exit(1);
		if (file_read("/proc/thread-self/net/dev", &dev, &e) != 0 ||
		    file_read("/proc/thread-self/net/route", &routes, &e) != 0 ||
		    file_read("/proc/thread-self/net/fib_trie", &ours, &e) != 0)
			_exit(2);
		const char *colon = strchr(buf_c(&dev), ':');
		if (colon == NULL || strncmp(colon - 2, "lo", 2) != 0 || strchr(colon + 1, ':') != NULL)
			_exit(3); /* one device, lo */
		if (strchr(buf_c(&routes), '\n') != NULL && strlen(strchr(buf_c(&routes), '\n')) > 1)
			_exit(4); /* no route besides the header line */
		_exit(strstr(buf_c(&ours), "127.0.0.1") == NULL ? 5 : 0); /* lo is up: it has its address */
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	(void)close(fd);
}

static int up(void **s)
{
	(void)s;
	return mkdtemp(root) == NULL || chmod(root, 0755) != 0 ? -1 : 0;
}

static int down(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(root, &e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_root_is_made_whatever_the_umask_and_twice_is_the_same),
		cmocka_unit_test(etc_holds_what_we_wrote_and_no_more),
		cmocka_unit_test(a_network_namespace_holds_loopback_up_and_nothing_else),
	};
	return cmocka_run_group_tests_name("image", tests, up, down);
}
