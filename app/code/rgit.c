#include "code/rgit.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/redact.h"
#include "base/str.h"

enum {
	OUT_BYTES = 64 * 1024,
	ENV_MAX = 96,
	/* A delta may claim any result size and a header any object count: the allocation fails at this bound instead of
	 * the machine's. Packs are read through windows (below), so honest ones of PACK_MAX stay far under it. */
	HOSTILE_MEMORY_MIB = 768,
	HOSTILE_CPU_S = 120,
	HOSTILE_FILE_MIB = 1024,
};

#define LIMITS_MSG "git %s ran into its limits of time, memory or file size."

/* Configuration of every invocation. Later entries win; nothing of the machine or the user is read. */
static const char *const config[][2] = {
	{ "core.hooksPath", "/dev/null" },
	{ "core.fsmonitor", "false" },
	{ "core.attributesFile", "/dev/null" },
	{ "core.packedGitWindowSize", "16m" },
	{ "core.packedGitLimit", "256m" },
	{ "core.bigFileThreshold", "16m" }, /* larger blobs are streamed, not held */
	{ "credential.helper", "" },
	{ "fetch.fsckObjects", "true" },
	{ "fetch.unpackLimit", "1" }, /* one pack, which is handed on as it is */
	{ "fetch.recurseSubmodules", "false" },
	{ "push.recurseSubmodules", "no" },
	{ "push.gpgSign", "false" },
	{ "submodule.recurse", "false" },
	{ "gc.auto", "0" },
	{ "maintenance.auto", "false" },
	{ "pack.threads", "1" },
	{ "transfer.bundleURI", "false" },
	{ "http.extraHeader", "" },
	{ "http.followRedirects", "false" }, /* a redirect would carry the header to another place */
	{ "http.lowSpeedLimit", "500" },     /* bytes a second, for lowSpeedTime seconds */
	{ "http.lowSpeedTime", "60" },
	{ "http.proxy", "" },
};
enum { CONFIG_N = sizeof config / sizeof config[0] };

struct env {
	struct mem *mem;
	const char *v[ENV_MAX];
	int n, settings;
	char *header; /* holds the credential; wiped */
};

static void env_add(struct env *v, const char *entry)
{
	assert(v->n < ENV_MAX - 1);
	v->v[v->n++] = entry;
}

static void env_config(struct env *v, const char *key, const char *value)
{
	env_add(v, mem_fmt(v->mem, "GIT_CONFIG_KEY_%d=%s", v->settings, key));
	env_add(v, mem_fmt(v->mem, "GIT_CONFIG_VALUE_%d=%s", v->settings++, value));
}

/* "GIT_CONFIG_VALUE_n=Authorization: Basic base64(user:token)" in memory that env_free wipes. */
static void env_credential(struct env *v, const struct rgit_remote *r)
{
	size_t user = strlen(r->user), token = secret_len(r->token), plain = user + 1 + token;
	char *pair = xcalloc(1, plain + 1);
	memcpy(pair, r->user, user);
	pair[user] = ':';
	memcpy(pair + user + 1, secret_use(r->token), token);
	size_t size = 64 + B64_SIZE(plain);
	v->header = xcalloc(1, size);
	int at = snprintf(v->header, size, "GIT_CONFIG_VALUE_%d=Authorization: Basic ", v->settings);
	(void)b64_encode(pair, plain, v->header + at);
	secret_wipe(pair, plain);
	free(pair);
	env_add(v, mem_fmt(v->mem, "GIT_CONFIG_KEY_%d=http.%s.extraHeader", v->settings++, r->url));
	env_add(v, v->header);
}

static void env_free(struct env *v)
{
	if (v->header != NULL)
		secret_wipe(v->header, strlen(v->header));
	free(v->header);
	mem_free(v->mem);
}

static void env_remote(struct env *v, const struct rgit_remote *r)
{
	if (r->ca_file != NULL)
		env_config(v, mem_fmt(v->mem, "http.%s.sslCAInfo", r->url), r->ca_file);
	if (r->pin != NULL)
		env_config(v, mem_fmt(v->mem, "http.%s.curloptResolve", r->url), r->pin);
	env_config(v, mem_fmt(v->mem, "http.%s.extraHeader", r->url), ""); /* resets what was inherited */
	if (r->token != NULL)
		env_credential(v, r);
}

static void env_build(struct env *v, const struct rgit_repo *repo, const struct rgit_call *c)
{
	static const char *const fixed[] = {
		"PATH=/usr/bin:/bin",
		"LANG=C.UTF-8",
		"HOME=/nonexistent",
		"XDG_CONFIG_HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_PROTOCOL_FROM_USER=0",
	};
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		env_add(v, fixed[i]);
	env_add(v, mem_fmt(v->mem, "GIT_DIR=%s", repo->dir));
	/* An empty list allows no protocol: not even a submodule or an alternate can make git speak to anybody. */
	env_add(v, mem_fmt(v->mem, "GIT_ALLOW_PROTOCOL=%s", c->remote == NULL ? "" : c->remote->protocols));
	if (repo->quarantine != NULL) {
		env_add(v, mem_fmt(v->mem, "GIT_OBJECT_DIRECTORY=%s", repo->quarantine));
		env_add(v, mem_fmt(v->mem, "GIT_ALTERNATE_OBJECT_DIRECTORIES=%s/objects", repo->dir));
	}
	for (size_t i = 0; i < CONFIG_N; i++)
		env_config(v, config[i][0], config[i][1]);
	if (c->remote != NULL)
		env_remote(v, c->remote);
	env_add(v, mem_fmt(v->mem, "GIT_CONFIG_COUNT=%d", v->settings));
	v->v[v->n] = NULL;
}

/* The whole argv, in the arena of v. prlimit(1) sets the limits and becomes git. */
static const char *const *argv_build(struct env *v, const struct rgit_call *c)
{
	size_t n = 0;
	while (c->args[n] != NULL)
		n++;
	const char **argv = mem_alloc(v->mem, (n + 7) * sizeof *argv);
	size_t at = 0;
	if (c->hostile) {
		argv[at++] = "prlimit";
		argv[at++] = mem_fmt(v->mem, "--as=%lld", (long long)HOSTILE_MEMORY_MIB << 20);
		argv[at++] = mem_fmt(v->mem, "--cpu=%d", HOSTILE_CPU_S);
		argv[at++] = mem_fmt(v->mem, "--fsize=%lld", (long long)HOSTILE_FILE_MIB << 20);
		argv[at++] = "--";
	}
	argv[at++] = "git";
	memcpy(argv + at, c->args, (n + 1) * sizeof *argv);
	return argv;
}

struct io { /* proc_run has one arg for all its callbacks */
	const struct rgit_repo *repo;
	const char *p;
	size_t n;
};

static ssize_t io_read(void *arg, void *p, size_t n)
{
	struct io *io = arg;
	if (n > io->n)
		n = io->n;
	if (n > 0)
		memcpy(p, io->p, n);
	io->p += n;
	io->n -= n;
	return (ssize_t)n;
}

static bool io_cancelled(void *arg)
{
	const struct io *io = arg;
	return io->repo->cancelled != NULL && io->repo->cancelled(io->repo->arg);
}

static int judge(const struct rgit_call *c, const struct proc_result *r, struct err *e)
{
	if (r->cancelled) {
		(void)err_set(e, ERR_TIMEOUT, "git %s was interrupted.", c->args[0]);
		e->reason = "cancelled";
		return -1;
	}
	if (r->timed_out)
		return err_set(e, ERR_TIMEOUT, "git %s took longer than %lld s and was ended.", c->args[0],
		    (long long)(c->timeout_ms / 1000));
	if (r->exit_code < 0)
		return err_set(e, c->hostile ? ERR_BAD_REQUEST : ERR_INTERNAL,
		    c->hostile ? LIMITS_MSG : "git %s was ended by a signal.", c->args[0]);
	return 0;
}

int rgit_run(const struct rgit_repo *repo, const struct rgit_call *c, struct proc_result *r, struct err *e)
{
	struct env v = { .mem = mem_new() };
	env_build(&v, repo, c);
	struct io io = { .repo = repo, .p = c->in, .n = c->in_n };
	const struct proc_opts o = {
		.argv = argv_build(&v, c),
		.env = v.v,
		.cwd = repo->dir,
		.stdin_fd = c->stdin_fd > 0 ? c->stdin_fd : -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.in_read = c->stdin_fd > 0 || c->in == NULL ? NULL : io_read,
		.cancelled = io_cancelled,
		.arg = &io,
		.timeout_ms = c->timeout_ms,
		.max_out_bytes = c->max_out_bytes == 0 ? OUT_BYTES : c->max_out_bytes,
	};
	int rc = proc_run(&o, r, e);
	env_free(&v);
	return rc == 0 ? judge(c, r, e) : -1;
}

/*
 * The last line of stderr that says why: git's own verdict, else what the other side said, else the ref's line. A check of
 * objects names the fault in an `error`, its `fatal` only says that there was one.
 */
static struct str last_words(const struct rgit_call *c, const struct proc_result *r)
{
	static const char *const usual[] = { "fatal: ", "remote: ", " ! ", "error: ", NULL };
	static const char *const check[] = { "error: ", "fatal: ", NULL };
	struct str best = { 0 };
	for (const char *const *m = c->hostile ? check : usual; *m != NULL && best.n == 0; m++) {
		struct str all = { r->errout.p, r->errout.n }, line;
		while (str_cut(&all, '\n', &line))
			if (line.n > strlen(*m) && memcmp(line.p, *m, strlen(*m)) == 0)
				best = line;
	}
	return best;
}

static bool says(const struct proc_result *r, const char *const *signs)
{
	for (; *signs != NULL; signs++)
		if (strstr(buf_c(&r->errout), *signs) != NULL)
			return true;
	return false;
}

/*
 * The other side is restarting, overloaded or cut off, rather than unwilling. Before an answer git only says that the URL is not
 * accessible, with any of curl's many words for a lost connection; a refusal is told by its status or names a certificate.
 * The last two: what an earlier push of the same left under way there when its connection was cut; it will have arrived, or
 * its lock is removed.
 */
static bool remote_away(const struct proc_result *r)
{
	static const char *const lost[] = { "unable to access", "RPC failed; curl", NULL };
	static const char *const refused[] = { "returned error: 3", "returned error: 4", "certificate",
		"not supported or disabled", NULL };
	static const char *const away[] = { "returned error: 50", "HTTP 50", "Connection reset",
		"Empty reply from server", "unexpected disconnect", "early EOF", "hung up", "timed out",
		"Broken pipe", "reference already exists", ".lock': File exists", NULL };
	return says(r, away) || (says(r, lost) && !says(r, refused));
}

int rgit_failed(const struct rgit_repo *repo, const struct rgit_call *c, const struct proc_result *r,
    const char *doing, struct err *e)
{
	auto_buf struct buf clean = BUF(16 * 1024), shown = BUF(16 * 1024);
	struct str words = last_words(c, r);
	enum err_code code = c->hostile ? ERR_BAD_REQUEST : ERR_INTERNAL;
	if (c->remote != NULL)
		code = remote_away(r) ? ERR_UNAVAILABLE : ERR_UPSTREAM;
	if (words.p == NULL || memmem(words.p, words.n, repo->dir, strlen(repo->dir)) != NULL)
		return err_set(e, code, "%s failed (git %s, exit %d).", doing, c->args[0], r->exit_code);
	if (c->hostile && memmem(words.p, words.n, "memory", 6) != NULL)
		return err_set(e, code, "%s failed: " LIMITS_MSG, doing, c->args[0]);
	const struct secret *token = c->remote == NULL ? NULL : c->remote->token;
	if (token != NULL)
		(void)redact_secret(words.p, words.n, secret_use(token), &clean);
	else
		(void)buf_add(&clean, words.p, words.n);
	(void)redact_plain(buf_c(&clean), clean.n, &shown);
	size_t n = shown.n > 300 ? 300 : shown.n;
	return err_set(e, code, "%s failed: %.*s", doing, (int)utf8_valid(buf_c(&shown), n), buf_c(&shown));
}

int rgit_must(const struct rgit_repo *repo, const struct rgit_call *c, const char *doing,
    struct proc_result *r, struct err *e)
{
	if (rgit_run(repo, c, r, e) != 0)
		return -1;
	return r->exit_code == 0 ? 0 : rgit_failed(repo, c, r, doing, e);
}

bool rgit_id_ok(const char *s, size_t n)
{
	if (n != 40 && n != 64)
		return false;
	for (size_t i = 0; i < n; i++)
		if (memchr("0123456789abcdef", s[i], 16) == NULL)
			return false;
	return true;
}

bool rgit_id_line(const char *p, size_t n, char out[RGIT_ID_MAX])
{
	if (n > 0 && p[n - 1] == '\n')
		n--;
	if (!rgit_id_ok(p, n))
		return false;
	memcpy(out, p, n);
	out[n] = 0;
	return true;
}
