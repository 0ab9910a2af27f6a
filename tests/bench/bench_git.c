/*
 * Push and clone through nginx and the forge beside git over a local path; and the memory that 1 GiB takes: the most that nginx,
 * the api and their git processes held at once, beside what a sixteenth of it takes.
 */
#include "../t.h"

#include "bench.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../flow/gitclient.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"

enum { FILE_MIB = 8, ALL_MIB = 1024, MIB = 64, ROUNDS = 3, SAMPLE_MS = 200 };

static struct stack stack;
static struct stack_org org;
static struct gitclient git;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &org);
	gitclient_start(&git, &stack, org.key);
	git.extra[0] = "core.compression=0"; /* random bytes: nothing is gained by trying */
	git.extra[1] = "gc.auto=0";
	git.extra[3] = "receive.unpackLimit=1";    /* a local push keeps its pack, as the forge does */
	git.extra[2] = "core.bigFileThreshold=1m"; /* the client writes a pack at once */
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gitclient_end(&git);
	stack_down(&stack);
	return 0;
}

static void make_work(const char *name, int mib)
{
	char path[300];
	struct err e = { 0 };
	auto_free char *bytes = malloc((size_t)FILE_MIB << 20);
	assert_non_null(bytes);
	GIT_OK(&git, ".", "init", "-q", "-b", "main", name);
	for (int i = 0; i < mib / FILE_MIB; i++) {
		random_bytes((unsigned char *)bytes, (size_t)FILE_MIB << 20);
		(void)snprintf(path, sizeof path, "%s/%s/f%d", git.home, name, i);
		assert_int_equal(file_write(path, bytes, (size_t)FILE_MIB << 20, 0644, &e), 0);
	}
	GIT_OK(&git, name, "add", "-A");
	GIT_OK(&git, name, "commit", "-q", "-m", "bytes");
}

static void forget(const char *name)
{
	char path[300];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/%s", git.home, name);
	(void)file_rmtree(path, &e);
}

/* ---- the sides; what a round made is removed before the next */

static void fresh_repository(struct bench_side *s)
{
	(void)s;
	auto_web struct web gone = { 0 }, made = { 0 };
	web_json(&stack, "DELETE", "/v1/git/repos/big", org.key, NULL, &gone);
	web_json(&stack, "POST", "/v1/git/repos", org.key, js_pack("{s:s}", "name", "big"), &made);
	assert_int_equal(made.status, 201);
}

static void fresh_local(struct bench_side *s)
{
	(void)s;
	forget("local.git");
	GIT_OK(&git, ".", "init", "-q", "--bare", "local.git");
}

static void no_clone(struct bench_side *s)
{
	(void)s;
	forget("copy");
}

static long push(struct bench_side *s)
{
	char url[200];
	(void)s;
	GIT_OK(&git, "work", "push", "-q", gitclient_url(&git, org.slug, "big", url), "main");
	return MIB;
}

static long push_local(struct bench_side *s)
{
	(void)s;
	GIT_OK(&git, "work", "push", "-q", "../local.git", "main");
	return MIB;
}

static long clone_remote(struct bench_side *s)
{
	char url[200];
	(void)s;
	GIT_OK(&git, ".", "clone", "-q", "--bare", gitclient_url(&git, org.slug, "big", url), "copy");
	return MIB;
}

/* --no-local: through the protocol, as the other side does; a hard link measures nothing. */
static long clone_local(struct bench_side *s)
{
	(void)s;
	GIT_OK(&git, ".", "clone", "-q", "--bare", "--no-local", "local.git", "copy");
	return MIB;
}

/* ---- memory: sampled, as processes of git come and go */

struct sampler {
	pthread_t thread;
	atomic_bool stop;
	long most_kib;
};

/* Private memory of the sessions that nginx and the api lead. */
static long held_kib(void)
{
	pid_t api = stack_pid(&stack, "api1"), nginx = stack_pid(&stack, "nginx");
	DIR *d = opendir("/proc");
	long sum = 0;
	assert_non_null(d);
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[64];
		int session;
		long size, resident, shared;
		auto_buf struct buf stat = BUF(4096), mem = BUF(256);
		struct err e = { 0 };
		if (!str_only(de->d_name, "0123456789"))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%.20s/stat", de->d_name);
		const char *at = file_read(path, &stat, &e) == 0 ? strrchr(buf_c(&stat), ')') : NULL;
		if (at == NULL || sscanf(at, ") %*c %*d %*d %d", &session) != 1 ||
		    (session != api && session != nginx))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%.20s/statm", de->d_name);
		/* Without what is mapped from files: git maps its packs. */
		if (file_read(path, &mem, &e) == 0 &&
		    sscanf(buf_c(&mem), "%ld %ld %ld", &size, &resident, &shared) == 3)
			sum += (resident - shared) * 4;
	}
	(void)closedir(d);
	return sum;
}

static void *sample(void *arg)
{
	struct sampler *m = arg;
	while (!atomic_load(&m->stop)) {
		long now = held_kib();
		m->most_kib = now > m->most_kib ? now : m->most_kib;
		(void)poll(NULL, 0, SAMPLE_MS);
	}
	return NULL;
}

/* Push and clone once; what was held at most, and how long each took. */
static double most_mib(const char *work, double *push_s, double *clone_s)
{
	char url[200];
	struct sampler m = { 0 };
	fresh_repository(NULL);
	no_clone(NULL);
	assert_int_equal(pthread_create(&m.thread, NULL, sample, &m), 0);
	double begin = bench_now_us();
	GIT_OK(&git, work, "push", "-q", gitclient_url(&git, org.slug, "big", url), "main");
	double pushed = bench_now_us();
	GIT_OK(&git, ".", "clone", "-q", "--bare", url, "copy");
	*push_s = (pushed - begin) / 1e6;
	*clone_s = (bench_now_us() - pushed) / 1e6;
	atomic_store(&m.stop, true);
	assert_int_equal(pthread_join(m.thread, NULL), 0);
	return (double)m.most_kib / 1024;
}

static void memory(void)
{
	double push_s, clone_s;
	double small = most_mib("work", &push_s, &clone_s);
	make_work("all", ALL_MIB);
	double all = most_mib("all", &push_s, &clone_s);
	no_clone(NULL);
	forget("all");
	bench_note("1 GiB pushed through nginx, once", ALL_MIB / push_s, "MiB/s");
	bench_note("1 GiB cloned through nginx, once", ALL_MIB / clone_s, "MiB/s");
	bench_note("Memory of nginx, api and git at most, 64 MiB pushed and cloned", small, "MiB");
	bench_at_most("… 1 GiB, of that (constant memory)", all / small, 1.25, "×");
}

/* ---- speed */

static void speed(const char *what, struct bench_side *sides)
{
	sides[0].meters[0] = (struct bench_meter){ "api and git", stack_pid(&stack, "api1") };
	sides[0].meters[1] = (struct bench_meter){ "nginx", stack_pid(&stack, "nginx") };
	bench_compare(what, "MiB", sides, 2, ROUNDS);
	char text[96];
	(void)snprintf(text, sizeof text, "%s, through nginx", what);
	bench_note(text, 1e6 / sides[0].us, "MiB/s");
	bench_note("… over a local path", 1e6 / sides[1].us, "MiB/s");
}

static void transfer(void **state)
{
	(void)state;
	make_work("work", MIB);
	memory();
	struct bench_side pushes[] = {
		{ .name = "git push through nginx", .prepare = fresh_repository, .round = push },
		{ .name = "git push to a local path",
		    .prepare = fresh_local,
		    .round = push_local,
		    .meters = { { "git", 0 } } },
	};
	speed("Push of 64 MiB", pushes);
	struct bench_side clones[] = {
		{ .name = "git clone through nginx", .prepare = no_clone, .round = clone_remote },
		{ .name = "git clone of a local path",
		    .prepare = no_clone,
		    .round = clone_local,
		    .meters = { { "git", 0 } } },
	};
	speed("Clone of 64 MiB", clones);
}

int main(void)
{
	return bench_main("git", setup, transfer, teardown);
}
