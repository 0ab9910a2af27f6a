#include "fakebox.h"

#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"
#include "sandbox/client.h"
#include "sandbox/lease.h"

struct fakebox fakebox;

enum { DB_WAIT_MS = 60000, ARGS = 64, OUT_BYTES = 1 << 20 };

static const struct pg_stmt put = { "fakebox_put",
	"INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, iso_tier, "
	"node, workdir, session, "
	"created_by, expires_at) VALUES ($1, $2, 'exec', 'running', 'host', '', false, 'none', 2, 'n1', $3, "
	"$4, 'ann', now() + "
	"interval '1 hour')",
	4 };
static const struct pg_stmt end = { "fakebox_end",
	"UPDATE sandboxes SET status = 'ended', ended_at = now() WHERE org = $1 AND id = $2 AND status = "
	"'running'",
	2 };

static const struct pg_stmt ask_end = { "fakebox_ask_end",
	"UPDATE sandboxes SET end_asked_at = now() WHERE org = $1 AND id = $2 AND status = 'running'", 2 };

static int unavailable(struct err *e, const char *why)
{
	return err_set(e, ERR_UNAVAILABLE, "%s", why);
}

json_t *lease_take(struct ctx *c, const struct lease_want *want, bool *created, struct err *e)
{
	char id[ID_MAX];
	if (fakebox.refuse != NULL && (fakebox.reason == NULL || fakebox.refusals-- > 0)) {
		(void)unavailable(e, fakebox.refuse);
		e->reason = fakebox.reason;
		return NULL;
	}
	if (fakebox.full > 0) {
		fakebox.full--;
		(void)unavailable(e, "All nodes are full.");
		e->reason = "nodes_full";
		return NULL;
	}
	id_make("sbx", id);
	const char *dir = mem_fmt(c->mem, "%s/%s", fakebox.root, id);
	auto_pg struct pg *db = pg_take(fakebox.db, DB_WAIT_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &put, e, id, want->org, dir, want->session);
	if (r == NULL)
		return NULL;
	assert_int_equal(mkdir(dir, 0700), 0);
	fakebox.leases++;
	*created = true;
	return js_pack("{s:s,s:s,s:s}", "id", id, "runtime", "", "node", "n1");
}

int lease_offered(const struct conf *conf, struct pg *db, struct err *e)
{
	(void)conf, (void)db, (void)e;
	return 0;
}

int lease_ask_end(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &ask_end, e, org, id);
	return r == NULL ? -1 : 0;
}

int lease_end(struct ctx *c, const char *org, const char *id, struct err *e)
{
	if (fakebox.end_fails)
		return unavailable(e, "The node is away.");
	auto_pg struct pg *db = pg_take(fakebox.db, DB_WAIT_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &end, e, org, id);
	if (r == NULL)
		return -1;
	fakebox.ended += (int)pg_affected(r);
	return file_rmtree(mem_fmt(c->mem, "%s/%s", fakebox.root, id), e);
}

int box_find(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e)
{
	(void)db, (void)org, (void)e;
	*a = (struct box_addr){ 0 };
	(void)snprintf(a->id, sizeof a->id, "%s", id);
	(void)snprintf(a->workdir, sizeof a->workdir, "%s/%s", fakebox.root, id);
	return 0;
}

/* ---- commands */

struct job {
	const struct box_cmd *cmd;
	struct box_exit *x;
	const char *in;
	size_t in_n;
	bool refused;
};

static ssize_t feed(void *arg, void *p, size_t n)
{
	struct job *j = arg;
	n = n < j->in_n ? n : j->in_n;
	memcpy(p, j->in, n);
	j->in += n;
	j->in_n -= n;
	return (ssize_t)n;
}

static int say(const struct box_cmd *cmd, const char *type, const char *p, size_t n)
{
	if (cmd->on_line == NULL || n == 0)
		return 0;
	auto_free char *b64 = xcalloc(1, B64_SIZE(n));
	(void)b64_encode(p, n, b64);
	auto_json json_t *line = js_pack("{s:s,s:s,s:s}", "type", type, "data", b64, "enc", "base64");
	return cmd->on_line(cmd->arg, line);
}

static int on_out(void *arg, const char *p, size_t n)
{
	struct job *j = arg;
	(void)buf_add(&j->x->out, p, n);
	return say(j->cmd, "stdout", p, n);
}

static bool cancelled(void *arg)
{
	const struct job *j = arg;
	return j->cmd->cancelled != NULL && j->cmd->cancelled(j->cmd->arg);
}

static const char **words(struct mem *m, const json_t *argv)
{
	const char **v = mem_alloc(m, ARGS * sizeof *v);
	assert_true(json_array_size(argv) < ARGS);
	for (size_t i = 0; i < json_array_size(argv); i++)
		v[i] = json_string_value(json_array_get(argv, i));
	return v;
}

static const char **environment(struct mem *m, const json_t *env, const char *home)
{
	const char **v = mem_alloc(m, ARGS * sizeof *v), *key;
	json_t *value;
	int n = 0;
	v[n++] = "PATH=/usr/bin:/bin";
	v[n++] = "LANG=C.UTF-8";
	v[n++] = mem_fmt(m, "HOME=%s", home);
	json_object_foreach((json_t *)(uintptr_t)env, key, value)
		v[n++] = mem_fmt(m, "%s=%s", key, json_string_value(value));
	return v;
}

int box_run(const struct box_addr *a, const struct box_cmd *cmd, struct box_exit *x, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct job j = { .cmd = cmd, .x = x, .in = cmd->stdin_p, .in_n = cmd->stdin_n };
	*x = (struct box_exit){ .out = BUF(OUT_BYTES), .errout = BUF(OUT_BYTES) };
	fakebox.commands++;
	const struct proc_opts o = {
		.argv = words(m, cmd->argv),
		.env = environment(m, cmd->env, a->workdir),
		.cwd = cmd->dir == NULL ? a->workdir : cmd->dir,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.in_read = cmd->stdin_p == NULL ? NULL : feed,
		.on_out = on_out,
		.cancelled = cancelled,
		.arg = &j,
		.timeout_ms = cmd->timeout_s * 1000,
	};
	auto_proc struct proc_result r = { 0 };
	int64_t before = clock_ms();
	if (proc_run(&o, &r, e) != 0)
		return -1;
	if (cmd->on_line != NULL && fakebox.lose_channel)
		return err_set(e, ERR_UPSTREAM,
		    "The channel to the sandbox was lost; what became of the command is not known.");
	(void)say(cmd, "stderr", buf_c(&r.errout), r.errout.n);
	(void)buf_add(&x->errout, buf_c(&r.errout), r.errout.n);
	x->exit_code = r.exit_code;
	x->timed_out = r.timed_out;
	x->stopped = r.cancelled;
	x->duration_ms = clock_ms() - before;
	if (r.exit_code < 0)
		(void)snprintf(x->signal, sizeof x->signal, "SIG%s", sigabbrev_np(r.signal));
	return 0;
}

void box_exit_free(struct box_exit *x)
{
	buf_free(&x->out);
	buf_free(&x->errout);
}

/* ---- files */

int box_put(const struct box_addr *a, const char *path, int mode, ssize_t (*rd)(void *arg, void *p, size_t n),
    void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	assert_true(str_starts(path, a->workdir));
	const char *slash = strrchr(path, '/');
	if (file_mkdirs(mem_strn(m, path, (size_t)(slash - path)), 0755, e) != 0)
		return -1;
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, (mode_t)mode);
	assert_true(fd >= 0);
	char buf[65536];
	for (ssize_t n; (n = rd(arg, buf, sizeof buf)) != 0;) {
		assert_true(n > 0);
		assert_int_equal(fd_write_all(fd, buf, (size_t)n), 0);
	}
	return 0;
}

int box_get(const struct box_addr *a, const char *path, long long offset, long long length,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	assert_true(str_starts(path, a->workdir));
	assert_int_equal(offset, 0);
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, "There is no such file.");
	char buf[65536];
	for (ssize_t n; length > 0 && (n = read(fd, buf, sizeof buf)) > 0; length -= n)
		if (on_data(arg, buf, (size_t)n) != 0)
			return err_set(e, ERR_TIMEOUT, "Interrupted.");
	return 0;
}
