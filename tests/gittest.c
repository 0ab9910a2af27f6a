#include "gittest.h"

#include "t.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/proc.h"

enum { ARGS = 40, TIMEOUT_MS = 60 * 1000 };

static char *run(const char *cwd, const char *const *argv, const void *in, size_t n)
{
	static const char *const env[] = { "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.invalid",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.invalid", NULL };
	struct str f = { in, n };
	const struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.in_read = in == NULL ? NULL : str_read,
		.arg = &f,
		.timeout_ms = TIMEOUT_MS,
		.max_out_bytes = 1 << 24 };
	auto_proc struct proc_result r = { 0 };
	struct err e = { 0 };
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("%s %s: exit %d %s %s", argv[0], argv[1], r.exit_code, e.msg, buf_c(&r.errout));
	size_t len = r.out.n;
	if (len > 0 && r.out.p[len - 1] == '\n')
		len--;
	char *out = xcalloc(1, len + 1);
	if (len > 0)
		memcpy(out, r.out.p, len);
	return out;
}

static void collect(const char **argv, int n, va_list ap)
{
	while (n < ARGS - 1 && (argv[n] = va_arg(ap, const char *)) != NULL)
		n++;
	argv[n] = NULL;
}

char *gittest_path(const struct gittest *t, const char *path)
{
	char *p = NULL;
	assert_true(asprintf(&p, "%s/%s", t->dir, path) > 0);
	return p;
}

void gittest_start(struct gittest *t)
{
	(void)snprintf(t->dir, sizeof t->dir, "/tmp/gittest.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
}

void gittest_end(struct gittest *t)
{
	const char *const argv[] = { "rm", "-rf", "--", t->dir, NULL };
	free(run("/", argv, NULL, 0));
}

char *gittest_out(const struct gittest *t, const char *where, const void *in, size_t n, ...)
{
	const char *argv[ARGS] = { "git" };
	va_list ap;
	va_start(ap, n);
	collect(argv, 1, ap);
	va_end(ap);
	auto_free char *cwd = gittest_path(t, where);
	return run(cwd, argv, in, n);
}

void gittest_python(const struct gittest *t, const char *script, ...)
{
	const char *argv[ARGS] = { "python3", "-c", script };
	va_list ap;
	va_start(ap, script);
	collect(argv, 3, ap);
	va_end(ap);
	free(run(t->dir, argv, NULL, 0));
}

void gittest_write(const struct gittest *t, const char *path, const char *text)
{
	auto_free char *full = gittest_path(t, path);
	FILE *f = fopen(full, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

void gittest_repo(const struct gittest *t, const char *name, char tip[GITTEST_ID])
{
	char bare[80], path[200];
	(void)snprintf(bare, sizeof bare, "%s.git", name);
	gittest(t, ".", "init", "-q", "--bare", "--initial-branch=main", bare);
	gittest(t, ".", "init", "-q", "--initial-branch=main", "seed");
	gittest_python(t, "import os; os.mkdir('seed/sub')", NULL);
	gittest_write(t, "seed/a.txt", "one\ntwo\n");
	gittest_write(t, "seed/sub/b.txt", "bee\n");
	gittest(t, "seed", "add", "-A");
	gittest(t, "seed", "commit", "-q", "-m", "first");
	gittest_write(t, "seed/a.txt", "one\ntwo\nthree\n");
	gittest(t, "seed", "commit", "-q", "-a", "-m", "second");
	(void)snprintf(path, sizeof path, "../%s", bare);
	gittest(t, "seed", "push", "-q", path, "main");
	auto_free char *id = gittest_out(t, "seed", NULL, 0, "rev-parse", "HEAD", (char *)0);
	(void)snprintf(tip, GITTEST_ID, "%s", id);
	gittest_python(t, "import shutil; shutil.rmtree('seed')", NULL);
	(void)snprintf(path, sizeof path, "file://%s/%s", t->dir, bare);
	gittest(t, ".", "clone", "-q", "--depth=1", path, name);
}

/* ---- */

struct gittest_server {
	const struct gittest *t;
	pthread_t thread;
	atomic_bool end;
	int port;
};

static bool ending(void *arg)
{
	struct gittest_server *s = arg;
	return atomic_load(&s->end);
}

static void *serve(void *arg)
{
	struct gittest_server *s = arg;
	auto_free char *script = realpath("tests/gitserver.py", NULL);
	const char *const argv[] = { "python3", script, s->t->dir, NULL };
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.cancelled = ending,
		.arg = s,
		.timeout_ms = 600 * 1000,
		.max_out_bytes = 1 << 20 };
	auto_proc struct proc_result r = { 0 };
	struct err e = { 0 };
	if (script != NULL && proc_run(&o, &r, &e) == 0 && !r.cancelled)
		(void)fprintf(stderr, "gitserver.py ended: %s\n", buf_c(&r.errout));
	return NULL;
}

struct gittest_server *gittest_serve(const struct gittest *t)
{
	struct gittest_server *s = xcalloc(1, sizeof *s);
	s->t = t;
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
	auto_free char *path = gittest_path(t, "port");
	int64_t until = clock_ms() + 60000;
	for (FILE *f = NULL; s->port == 0 && clock_ms() < until; (void)poll(NULL, 0, 20))
		if ((f = fopen(path, "re")) != NULL) {
			assert_int_equal(fscanf(f, "%d", &s->port), 1);
			(void)fclose(f);
		}
	assert_int_not_equal(s->port, 0);
	return s;
}

int gittest_port(const struct gittest_server *s)
{
	return s->port;
}

void gittest_serve_end(struct gittest_server *s)
{
	atomic_store(&s->end, true);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
	free(s);
}
