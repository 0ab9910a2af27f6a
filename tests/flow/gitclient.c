#include "../t.h"

#include "gitclient.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"

enum { GIT_MS = 300 * 1000, ARGS = 40, ENV = 64 };

void gitclient_start(struct gitclient *g, const struct stack *s, const char *password)
{
	*g = (struct gitclient){ .s = s, .protocol = 2 };
	struct err e = { 0 };
	assert_int_equal(file_tmpdir("/tmp", g->home, sizeof g->home, &e), 0);
	(void)snprintf(g->password, sizeof g->password, "%s", password == NULL ? "" : password);
}

void gitclient_end(struct gitclient *g)
{
	struct err e = { 0 };
	assert_int_equal(file_rmtree(g->home, &e), 0);
}

struct env {
	struct mem *m;
	const char *list[ENV];
	int n, n_config;
};

static void add(struct env *v, const char *name, const char *value)
{
	assert_true(v->n < ENV - 1);
	v->list[v->n++] = mem_fmt(v->m, "%s=%s", name, value);
}

static void config(struct env *v, const char *key, const char *value)
{
	add(v, mem_fmt(v->m, "GIT_CONFIG_KEY_%d", v->n_config), key);
	add(v, mem_fmt(v->m, "GIT_CONFIG_VALUE_%d", v->n_config++), value);
}

static void fill(struct env *v, const struct gitclient *g)
{
	add(v, "PATH", "/usr/bin:/bin");
	add(v, "LANG", "C.UTF-8");
	add(v, "HOME", g->home);
	add(v, "GIT_CONFIG_NOSYSTEM", "1");
	add(v, "GIT_TERMINAL_PROMPT", "0");
	add(v, "GIT_SSL_CAINFO", g->s->ca);
	add(v, "GATEHOUSE_TEST_PASSWORD", g->password);
	config(v, "user.name", "tester");
	config(v, "user.email", "tester@example.org");
	config(v, "init.defaultBranch", "trunk"); /* so that `main` can only come from the server */
	config(v, "advice.detachedHead", "false");
	config(v, "protocol.version", g->protocol == 2 ? "2" : "0");
	if (g->password[0] != 0)
		config(v, "credential.helper",
		    "!f() { test \"$1\" = get && echo username=anything && echo "
		    "\"password=$GATEHOUSE_TEST_PASSWORD\"; }; f");
	for (const char *const *x = g->extra; *x != NULL; x++) {
		const char *eq = strchr(*x, '=');
		config(v, mem_strn(v->m, *x, (size_t)(eq - *x)), eq + 1);
	}
	add(v, "GIT_CONFIG_COUNT", mem_fmt(v->m, "%d", v->n_config));
}

static int run(struct gitclient *g, const char *where, const char *const *argv)
{
	auto_mem struct mem *m = mem_new();
	struct env v = { .m = m };
	fill(&v, g);
	const struct proc_opts o = { .argv = argv,
		.env = v.list,
		.cwd = mem_fmt(m, "%s/%s", g->home, where),
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.cancelled = g->leave,
		.arg = g->arg,
		.timeout_ms = GIT_MS,
		.max_out_bytes = 8 << 20 };
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	if (proc_run(&o, &r, &e) != 0)
		fail_msg("git: %s", e.msg);
	assert_false(r.timed_out);
	(void)snprintf(g->said, sizeof g->said, "%s%s", buf_c(&r.out), buf_c(&r.errout));
	return r.exit_code;
}

int gitclient_try(struct gitclient *g, const char *where, ...)
{
	const char *argv[ARGS] = { "git" };
	va_list ap;
	va_start(ap, where);
	size_t n = 1;
	while ((argv[n] = va_arg(ap, const char *)) != NULL) {
		n++;
		assert_true(n < ARGS - 1);
	}
	va_end(ap);
	return run(g, where, argv);
}

void gitclient_id(struct gitclient *g, const char *where, const char *rev, char out[65])
{
	GIT_OK(g, where, "rev-parse", "--verify", rev);
	(void)snprintf(out, 65, "%.*s", (int)strcspn(g->said, "\n"), g->said);
}

void gitclient_commit(struct gitclient *g, const char *where, const char *path, const char *text)
{
	char full[300];
	struct err e = { 0 };
	(void)snprintf(full, sizeof full, "%s/%s/%s", g->home, where, path);
	char *slash = strrchr(full, '/');
	*slash = 0;
	assert_int_equal(file_mkdirs(full, 0755, &e), 0);
	*slash = '/';
	assert_int_equal(file_write(full, text, strlen(text), 0644, &e), 0);
	GIT_OK(g, where, "add", "-A");
	GIT_OK(g, where, "commit", "-q", "-m", path);
}

const char *gitclient_url(const struct gitclient *g, const char *org, const char *repo, char out[200])
{
	(void)snprintf(out, 200, "%s/v1/git/%s/%s.git", g->s->url[0], org, repo);
	return out;
}

void gitclient_basic(const char *password, char out[400])
{
	char plain[220], b64[B64_SIZE(220)];
	int n = snprintf(plain, sizeof plain, "who ever:%s", password);
	(void)b64_encode(plain, (size_t)n, b64);
	(void)snprintf(out, 400, "Authorization: Basic %s", b64);
}
