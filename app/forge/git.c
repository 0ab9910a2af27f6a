#include "forge/git.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

enum { ARGS_MAX = 4096, OUT_BYTES = 64 << 10, TIMEOUT_MS = 20 * 1000, ENV_MAX = 63 };

void git_env_init(struct git_env *v)
{
	static const char *const base[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC",
		"HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_LITERAL_PATHSPECS=1", "GIT_OPTIONAL_LOCKS=0", NULL };
	*v = (struct git_env){ 0 };
	while (base[v->n] != NULL) {
		v->list[v->n] = base[v->n];
		v->n++;
	}
}

static void add(struct git_env *v, const char *entry)
{
	assert(v->n < ENV_MAX);
	v->list[v->n++] = entry;
	v->list[v->n] = NULL;
}

void git_env_add(struct git_env *v, struct mem *m, const char *name, const char *value)
{
	add(v, mem_fmt(m, "%s=%s", name, value));
}

void git_env_config(struct git_env *v, struct mem *m, const char *key, const char *value)
{
	add(v, mem_fmt(m, "GIT_CONFIG_KEY_%d=%s", v->n_config, key));
	add(v, mem_fmt(m, "GIT_CONFIG_VALUE_%d=%s", v->n_config, value));
	v->n_config++;
}

const char *const *git_env_done(struct git_env *v, struct mem *m)
{
	add(v, mem_fmt(m, "GIT_CONFIG_COUNT=%d", v->n_config));
	return v->list;
}

/* Standard input out of memory, beside the caller's own callbacks. */
struct feed {
	const struct git_call *g;
	size_t done;
};

static ssize_t feed_read(void *arg, void *p, size_t n)
{
	struct feed *f = arg;
	if (f->g->in_read != NULL)
		return f->g->in_read(f->g->arg, p, n);
	size_t left = f->g->in_n - f->done, take = left < n ? left : n;
	if (take > 0)
		memcpy(p, (const char *)f->g->in + f->done, take);
	f->done += take;
	return (ssize_t)take;
}

static int feed_out(void *arg, const char *p, size_t n)
{
	const struct feed *f = arg;
	return f->g->on_out(f->g->arg, p, n);
}

static bool feed_cancelled(void *arg)
{
	const struct feed *f = arg;
	return f->g->cancelled(f->g->arg);
}

int git_run(struct mem *m, const struct git_call *g, struct proc_result *r, struct err *e)
{
	const char **argv = mem_alloc(m, ARGS_MAX * sizeof *argv);
	int n = 0;
	argv[n++] = "git";
	for (const char *const *a = g->args; *a != NULL; a++) {
		assert(n < ARGS_MAX - 1);
		argv[n++] = *a;
	}
	struct git_env env;
	git_env_init(&env);
	if (g->dir != NULL)
		git_env_add(&env, m, "GIT_DIR", g->dir);
	for (const char *const *v = g->more_env; v != NULL && *v != NULL; v++)
		add(&env, *v);
	struct feed f = { .g = g };
	const struct proc_opts o = {
		.argv = argv,
		.env = git_env_done(&env, m),
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.in_read = g->in_n > 0 || g->in_read != NULL ? feed_read : NULL,
		.on_out = g->on_out != NULL ? feed_out : NULL,
		.cancelled = g->cancelled != NULL ? feed_cancelled : NULL,
		.arg = &f,
		.timeout_ms = g->timeout_ms > 0 ? g->timeout_ms : TIMEOUT_MS,
		.max_out_bytes = g->max_out_bytes > 0 ? g->max_out_bytes : OUT_BYTES,
	};
	if (proc_run(&o, r, e) != 0)
		return -1;
	if (r->timed_out)
		return err_set(e, ERR_TIMEOUT, "The repository took too long to answer: try again later.");
	return 0;
}

/* The system's words, and git's own. */
static bool is_full(const char *words)
{
	return strstr(words, strerrordesc_np(ENOSPC)) != NULL ||
	    strstr(words, strerrordesc_np(EDQUOT)) != NULL || strstr(words, "Out of diskspace") != NULL;
}

int git_must(struct mem *m, const struct git_call *g, struct proc_result *r, struct err *e)
{
	if (git_run(m, g, r, e) != 0)
		return -1;
	if (r->exit_code == 0)
		return 0;
	/* git's words may name server paths: they are for the log, the caller gets the fact. */
	log_error("git failed", "command", g->args[0], "exit", mem_fmt(m, "%d", r->exit_code), "stderr",
	    buf_c(&r->errout));
	if (is_full(buf_c(&r->errout)))
		return err_set(e, ERR_STORAGE, "There is no space left where the repositories are kept.");
	return err_set(e, ERR_INTERNAL, "The repository could not be read or written.");
}
