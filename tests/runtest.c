#include "runtest.h"

#include "t.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "auth/principal.h"
#include "base/clock.h"
#include "base/js.h"
#include "code/runs.h"
#include "fakebox.h"
#include "session/event.h"

enum { WAIT_MS = 60000 };

struct pgtest *server;
struct pg_pool *pool;
struct gittest gits;
static struct gittest_server *remote;
static struct conf *conf;
static struct seal_key *key;
struct mem *mem;
static const struct principal ann = { .kind = CRED_KEY, .org = "acme", .user = "ann", .scopes = "*" };

void runtest_billing(const char *mode)
{
	struct err e = { 0 };
	assert_int_equal(setenv("BILLING_MODE", mode, 1), 0);
	if (conf_reload(conf, &e) != 0)
		fail_msg("%s", e.msg);
}

void post(struct done *d, json_t *body)
{
	struct err e = { 0 };
	struct ctx c = { .mem = mem, .db = pool, .conf = conf, .who = &ann };
	if (task_start(&c, key, mem_json(mem, body), &d->ids, &e) != 0)
		fail_msg("post: %s", e.msg);
}

void claim(struct done *d)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, WAIT_MS, &e);
	assert_int_equal(job_claim(db, mem, "test", TASK_JOB_KIND, 60, &d->job, &e), 1);
	assert_string_equal(d->job.subject, d->ids.run);
	atomic_store(&d->hold.why, TASK_GO);
	atomic_store(&d->hold.until_ms, clock_ms() + 60000);
}

void look(struct done *d)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, WAIT_MS, &e);
	d->lines = mem_json(mem, session_read(db, "acme", d->ids.session, 0, 1000, &e));
	d->last = json_array_get(d->lines, json_array_size(d->lines) - 1);
	d->row = mem_json(mem, runs_get(db, "acme", d->ids.run, &e));
}

void work(struct done *d)
{
	const struct runner r = {
		.db = pool, .conf = conf, .seal = key, .end_ms = d->end_ms > 0 ? d->end_ms : 700
	};
	err_clear(&d->err);
	d->rc = task_run(&r, &d->job, &d->hold, &d->err);
	look(d);
}

void run(struct done *d, json_t *body)
{
	post(d, body);
	claim(d);
	work(d);
}

json_t *task(const char *name, const char *tool, const char *prompt)
{
	return js_pack("{s:s,s:s,s:s,s:{s:s}}", "tool", tool, "prompt", prompt, "cloneUrl",
	    mem_fmt(mem, "http://127.0.0.1:%d/%s.git", gittest_port(remote), name), "credential", "token",
	    TOKEN);
}

const json_t *step(const struct done *d, const char *name)
{
	const json_t *v;
	size_t i;
	json_array_foreach(d->lines, i, v) {
		if (strcmp(js_str_or(v, "step", ""), name) == 0)
			return v;
	}
	return NULL;
}

const char *story(const struct done *d)
{
	auto_buf struct buf b = BUF(8192);
	const json_t *v;
	size_t i;
	json_array_foreach(d->lines, i, v) {
		const char *type = js_str(v, "type"), *name = js_str_or(v, "step", js_str_or(v, "phase", ""));
		assert_int_equal(js_int(v, "seq", 0), (long long)i + 1);
		if (strcmp(type, "log") != 0)
			(void)buf_fmt(
			    &b, "%s%s%s%s", b.n == 0 ? "" : " ", type, name[0] == 0 ? "" : ":", name);
	}
	return mem_str(mem, buf_c(&b));
}

const char *text_of(const struct done *d)
{
	return js_dump(mem, d->lines);
}

void assert_over(struct done *d, const char *state)
{
	static const struct pg_stmt left = { "left",
		"SELECT (SELECT count(*) FROM sandboxes WHERE session = $1 AND status <> 'ended'), (SELECT "
		"count(*) FROM jobs WHERE "
		"subject = $2 AND state NOT IN ('done', 'failed')), (SELECT count(*) FROM credentials WHERE "
		"session = $1 AND revoked_at "
		"IS NULL), (SELECT count(*) FROM runs WHERE id = $2 AND sealed_credential IS NOT NULL)",
		2 };
	struct err e = { 0 };
	if (d->rc != 0)
		fail_msg("not finished: %s\n%s", d->err.msg, text_of(d));
	assert_string_equal(js_str(d->row, "state"), state);
	assert_string_equal(js_str(d->last, "type"), strcmp(state, "done") == 0 ? "result" : "error");
	auto_pg struct pg *db = pg_take(pool, WAIT_MS, &e);
	auto_res struct pg_res *r = PG(db, &left, &e, d->ids.session, d->ids.run);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pg_int(r, 0, i), 0);
	gittest_python(&gits, "import os; assert os.listdir('runner') == [], os.listdir('runner')", NULL);
	gittest_python(&gits, "import os; assert os.listdir('boxes') == [], os.listdir('boxes')", NULL);
	assert_null(strstr(text_of(d), TOKEN));
}

const char *in_remote(const char *name, const char *a, const char *b)
{
	auto_free char *out = gittest_out(&gits, mem_fmt(mem, "%s.git", name), NULL, 0, a, b, (char *)0);
	return mem_str(mem, out);
}
const char *branch_of(const struct done *d)
{
	return mem_fmt(mem, "agent/%s", id_tail(d->ids.session));
}
void assert_not_pushed(const char *name)
{
	assert_string_equal(in_remote(name, "for-each-ref", "--format=%(refname)"), "refs/heads/main");
}

int runtest_setup(void **s)
{
	(void)s;
	struct err e = { 0 };
	server = pgtest_start();
	pgtest_sql(server,
	    "INSERT INTO orgs (slug) VALUES ('acme'); INSERT INTO nodes (name, instance, address, runtimes, "
	    "capacity, "
	    "heartbeat_at) VALUES ('n1', 'gatehouse', 'unix:/x', '{\"\"}', 9, now() + interval '1 day')");
	pool = pg_pool_new(pgtest_conninfo(server), 4, 5000);
	gittest_start(&gits);
	gittest_python(&gits, "import os; os.mkdir('boxes'); os.mkdir('runner')", NULL);
	remote = gittest_serve(&gits);
	auto_free char *file = gittest_path(&gits, "conf"), *secret = gittest_path(&gits, "secret"),
		       *root = gittest_path(&gits, "boxes");
	char text[300];
	(void)snprintf(text, sizeof text,
	    "RUNNER_DIR=%s/"
	    "runner\nALLOW_HTTP_CLONE_HOSTS=127.0.0.1\nALLOW_PRIVATE_CLONE_HOSTS=127.0.0.1\nBILLING_MODE="
	    "open\n",
	    gits.dir);
	gittest_write(&gits, "conf", text);
	gittest_write(&gits, "secret", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	assert_int_equal(chmod(secret, 0600), 0);
	conf = conf_load(file, &e);
	key = seal_load(secret, &e);
	if (conf == NULL || key == NULL)
		fail_msg("%s", e.msg);
	fakebox = (struct fakebox){ .root = xstrdup(root), .db = pool };
	return 0;
}

int runtest_teardown(void **s)
{
	(void)s;
	gittest_serve_end(remote);
	gittest_end(&gits);
	seal_free(key);
	conf_free(conf);
	pg_pool_free(pool);
	pgtest_end(server);
	free((void *)(uintptr_t)fakebox.root);
	return 0;
}

int runtest_begin(void **s)
{
	(void)s;
	mem = mem_new();
	return 0;
}
int runtest_end(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

int runtest_lock(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	return fd;
}

int runtest_port(void)
{
	return gittest_port(remote);
}
