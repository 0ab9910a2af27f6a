/*
 * flow_bulk.c - much data through the forge (FRG-1): in constant memory, within its limits, and with nothing left running or
 * lying about when somebody hangs up. GATEHOUSE_HEAVY=1 moves a whole GiB.
 */
#include "../t.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "gitclient.h"
#include "io/file.h"
#include "stack.h"

static struct stack stack;
static struct stack_org acme;
static struct gitclient person; /* "w" holds a branch of bulk_mib() MiB */

enum { FILE_MIB = 20, WAIT_MS = 60 * 1000, GROWTH_KIB = 48 * 1024 };

static int bulk_mib(void)
{
	return getenv("GATEHOUSE_HEAVY") != NULL ? 1020 : 200;
}

static void create(const char *name)
{
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/git/repos", acme.member, js_pack("{s:s}", "name", name), &w);
	assert_int_equal(w.status, 201);
}

/* Bytes that do not get smaller. */
static void write_noise(const char *path, int mib)
{
	static unsigned char block[1 << 20];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	for (int i = 0; i < mib; i++) {
		random_bytes(block, sizeof block);
		assert_int_equal(fd_write_all(fd, block, sizeof block), 0);
	}
	(void)close(fd);
}

static void add_noise(struct gitclient *g, int mib)
{
	char path[200], name[40];
	for (int i = 0; i * FILE_MIB < mib; i++) {
		unsigned char rnd[4];
		random_bytes(rnd, sizeof rnd);
		hex_encode(rnd, sizeof rnd, name);
		(void)snprintf(path, sizeof path, "%.63s/w/%s", g->home, name);
		write_noise(path, mib - i * FILE_MIB < FILE_MIB ? mib - i * FILE_MIB : FILE_MIB);
	}
	GIT_OK(g, "w", "add", "-A");
	GIT_OK(g, "w", "commit", "-q", "-m", "noise");
}

static long peak_kib(void)
{
	char path[64];
	auto_buf struct buf b = BUF(16384);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)stack_pid(&stack, "api1"));
	assert_int_equal(file_read(path, &b, &e), 0);
	const char *at = strstr(buf_c(&b), "VmHWM:");
	assert_non_null(at);
	return strtol(at + 6, NULL, 10);
}

/* Programs that the api runs now whose name begins like this; its children and theirs. */
static int running(const char *name)
{
	char path[400];
	int n = 0;
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		auto_buf struct buf cmd = BUF(65536), env = BUF(1 << 20);
		struct err e = { 0 };
		if (f->d_name[0] < '1' || f->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/cmdline", f->d_name);
		if (file_read(path, &cmd, &e) != 0 || cmd.n == 0)
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/environ", f->d_name);
		if (file_read(path, &env, &e) != 0 || env.n == 0)
			continue;
		const char *mine = memmem(env.p, env.n, stack.dir, strlen(stack.dir));
		if (mine != NULL && memmem(env.p, env.n, "GIT_PROJECT_ROOT=", 17) != NULL &&
		    memmem(cmd.p, cmd.n, name, strlen(name)) != NULL)
			n++;
	}
	(void)closedir(d);
	return n;
}

static void assert_all_ended(void)
{
	int64_t deadline = clock_ms() + WAIT_MS;
	while (running("git") > 0) {
		if (clock_ms() > deadline)
			fail_msg("git still runs for somebody who left");
		(void)poll(NULL, 0, 50);
	}
}

/* The name of something half received in a folder of the object store; false when there is none. */
static bool half_received(const char *path, char name[256])
{
	DIR *d = opendir(path);
	assert_non_null(d);
	bool found = false;
	for (const struct dirent *f; !found && (f = readdir(d)) != NULL;)
		if (str_starts(f->d_name, "tmp_") || str_starts(f->d_name, "incoming") ||
		    str_starts(f->d_name, ".tmp")) {
			(void)snprintf(name, 256, "%s", f->d_name);
			found = true;
		}
	(void)closedir(d);
	return found;
}

/* Nothing half received lies in the object store. The api removes it once git's processes have ended. */
static void assert_tidy(const char *repo)
{
	static const char *const where[] = { "", "/pack" };
	int64_t deadline = clock_ms() + WAIT_MS;
	for (size_t i = 0; i < 2; i++) {
		char path[300], name[256];
		(void)snprintf(
		    path, sizeof path, "%s/forge/%s/%s.git/objects%s", stack.dir, acme.slug, repo, where[i]);
		while (half_received(path, name)) {
			if (clock_ms() > deadline)
				fail_msg("%s holds %s", path, name);
			(void)poll(NULL, 0, 20);
		}
	}
}

/* ---- */

static void a_big_push_and_clone_need_no_memory(void **s) /* FRG-1 */
{
	(void)s;
	char url[200], id[65], got[65];
	struct gitclient *g = &person;
	long before = peak_kib();
	GIT_OK(g, "w", "push", "-q", "origin", "main");
	GIT_OK(g, "", "clone", "-q", "--bare", gitclient_url(g, acme.slug, "bulk", url), "c");
	gitclient_id(g, "w", "main", id);
	gitclient_id(g, "c", "main", got);
	assert_string_equal(id, got);
	long after = peak_kib();
	if (after - before > GROWTH_KIB)
		fail_msg("the api grew from %ld to %ld KiB", before, after);
	char path[200];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%.63s/c", g->home);
	assert_int_equal(file_rmtree(path, &e), 0);
	assert_tidy("bulk");
}

static void a_push_over_the_limit_is_told_so_by_git(void **s) /* FRG-1 */
{
	(void)s;
	struct gitclient *g = &person;
	create("over");
	char url[200];
	GIT_OK(g, "w", "checkout", "-q", "-b", "over");
	add_noise(g, 16);
	GIT_NO(g, "w", "exceeds maximum allowed size", "push", gitclient_url(g, acme.slug, "over", url),
	    "over:main");
	assert_non_null(strstr(g->said, "remote rejected"));
	GIT_OK(g, "w", "checkout", "-q", "main");
	assert_all_ended();
	assert_tidy("over");
	/* And the repository is as usable as before. */
	GIT_OK(g, "w", "push", "-q", url, "main~1:refs/heads/main");
}

struct leaver {
	const char *program; /* leave once the api runs this */
	bool seen;
	long busy_status; /* of a request meanwhile */
	char retry[20];
};

static bool leave(void *arg)
{
	struct leaver *l = arg;
	if (running(l->program) == 0)
		return false;
	l->seen = true;
	char path[200], auth[400];
	gitclient_basic(acme.member, auth);
	const char *headers[] = { auth, NULL };
	(void)snprintf(path, sizeof path, "/v1/git/%s/bulk.git/info/refs?service=git-upload-pack", acme.slug);
	auto_web struct web w = { 0 };
	web_do(&stack, &(struct web_req){ .method = "GET", .path = path, .headers = headers }, &w);
	l->busy_status = w.status;
	(void)web_header(&w, "Retry-After", l->retry, sizeof l->retry);
	return true;
}

/* One transfer at a time is allowed here (FORGE_MAX_TRANSFERS=1), so that the leaver sees the limit, too. */
static void whoever_hangs_up_leaves_nothing_running(void **s) /* FRG-1 */
{
	(void)s;
	char url[200];
	struct gitclient g = person;
	create("left");
	for (int push = 0; push < 2; push++) {
		struct leaver l = { .program = push ? "index-pack" : "pack-objects" };
		g.leave = leave;
		g.arg = &l;
		if (push)
			(void)gitclient_try(&g, "w", "push", "-q", gitclient_url(&g, acme.slug, "left", url),
			    "main", (char *)0);
		else
			(void)gitclient_try(&g, "", "clone", "-q", "--bare",
			    gitclient_url(&g, acme.slug, "bulk", url), "x", (char *)0);
		assert_true(l.seen);
		assert_int_equal(l.busy_status, 503);
		assert_string_equal(l.retry, "5");
		assert_all_ended();
		assert_tidy(push ? "left" : "bulk");
	}
	g.leave = NULL;
	GIT_NO(&g, "", "", "ls-remote", "--exit-code", gitclient_url(&g, acme.slug, "left", url), "main");
	GIT_OK(&g, "w", "push", "-q", url, "main~1:refs/heads/main");
}

static int up(void **s)
{
	(void)s;
	char conf[100], url[200];
	(void)snprintf(conf, sizeof conf, "FORGE_MAX_TRANSFERS=1\nFORGE_MAX_PUSH_MIB=%d\n", bulk_mib() + 8);
	stack_up(&stack, 1, 0, 1, conf);
	stack_org(&stack, &acme);
	create("bulk");
	gitclient_start(&person, &stack, acme.member);
	person.extra[0] = "core.compression=0";
	person.extra[1] = "pack.window=0";
	GIT_OK(&person, "", "clone", "-q", gitclient_url(&person, acme.slug, "bulk", url), "w");
	gitclient_commit(&person, "w", "a", "a\n");
	add_noise(&person, bulk_mib());
	return 0;
}

static int down(void **s)
{
	(void)s;
	gitclient_end(&person);
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_big_push_and_clone_need_no_memory),
		cmocka_unit_test(a_push_over_the_limit_is_told_so_by_git),
		cmocka_unit_test(whoever_hangs_up_leaves_nothing_running),
	};
	return cmocka_run_group_tests_name("bulk", tests, up, down);
}
