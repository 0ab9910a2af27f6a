/* flow_doctor.c - RUN-5, SBX-64: every line of `gatehouse doctor` fails when what it looks at is broken, and says so. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"
#include "sbx.h"
#include "stack.h"

static struct stack stack;
static bool volumes;
static char broken[96];  /* directory of the runtimes that stand before the real ones */
static const char *also; /* one more setting for doctor(), or NULL */

/* ---- running it */

/* As the services' user; `set` is one more setting of its environment, or NULL. Its exit status. */
static int doctor(const char *set, bool json, struct buf *out)
{
	char bin[128], conf[128];
	struct err e = { 0 };
	(void)snprintf(bin, sizeof bin, "%s/bin/gatehouse", stack.dir);
	(void)snprintf(conf, sizeof conf, "GATEHOUSE_CONFIG=%s/gatehouse.conf", stack.dir);
	const char *const argv[] = { "setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups",
		"--", bin, "doctor", json ? "--json" : NULL, NULL };
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"ASAN_OPTIONS=detect_leaks=0", conf, set, also, NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 300000 };
	if (proc_run(&o, &r, &e) != 0)
		fail_msg("%s", e.msg);
	assert_int_equal(buf_add(out, buf_c(&r.out), r.out.n), 0);
	return r.exit_code;
}

/* "fail NAME: …" and what follows; NULL when there is no such line. */
static const char *line_of(const char *text, const char *word, const char *name)
{
	char want[128];
	(void)snprintf(want, sizeof want, "%-4s %s: ", word, name);
	for (const char *p = text; p != NULL; p = strchr(p, '\n') == NULL ? NULL : strchr(p, '\n') + 1)
		if (str_starts(p, want))
			return p;
	return NULL;
}

/* ---- breaking and mending */

static void path_of(const char *in, char out[200])
{
	(void)snprintf(out, 200, "%s/%s", stack.dir, in);
}

static void mode(const char *in, mode_t m)
{
	char path[200];
	path_of(in, path);
	assert_int_equal(chmod(path, m), 0);
}

static void key_readable(void)
{
	mode("secret.key", 0644);
}
static void key_private(void)
{
	mode("secret.key", 0600);
}
static void api_open(void)
{
	mode("run/api1.sock", 0666);
}
static void api_shut(void)
{
	mode("run/api1.sock", 0660);
}
static void node_open(void)
{
	mode("run/sandboxd1.sock", 0777);
}
static void node_shut(void)
{
	mode("run/sandboxd1.sock", 0660);
}
static void door_open(void)
{
	mode("run/internal", 0755);
}
static void door_shut(void)
{
	mode("run/internal", 0750);
}

static void sql(const char *text)
{
	stack_sql(&stack, text, NULL);
}

static void migration_away(void)
{
	sql("CREATE TABLE kept AS SELECT * FROM schema_migrations ORDER BY name DESC LIMIT 1; DELETE FROM "
	    "schema_migrations "
	    "WHERE name IN (SELECT name FROM kept)");
}
static void migration_back(void)
{
	sql("INSERT INTO schema_migrations SELECT * FROM kept; DROP TABLE kept");
}

/* For new connections the database's clock is an hour ahead. */
static void clock_away(void)
{
	sql("CREATE SCHEMA skew; GRANT USAGE ON SCHEMA skew TO PUBLIC; CREATE FUNCTION "
	    "skew.clock_timestamp() RETURNS "
	    "timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''; ALTER "
	    "ROLE gatehouse "
	    "SET search_path = skew, pg_catalog, public");
}
static void clock_back(void)
{
	sql("ALTER ROLE gatehouse RESET search_path; DROP SCHEMA skew CASCADE");
}

static void no_nodes(void)
{
	sql("ALTER TABLE nodes RENAME TO really; CREATE VIEW nodes AS SELECT * FROM really WHERE false; "
	    "GRANT SELECT ON "
	    "nodes TO gatehouse");
}
static void nodes_back(void)
{
	sql("DROP VIEW nodes; ALTER TABLE really RENAME TO nodes");
}

static long metrics(const char *url, const char *door)
{
	char want[32] = "%{http_code}";
	struct err e = { 0 };
	const char *const argv[] = { "curl", "-s", "-o", "/dev/null", "-w", want, "--cacert", stack.ca,
		door == NULL ? "--max-time" : "--unix-socket", door == NULL ? "60" : door, url, NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = 2 * PATIENCE_MS
	};
	assert_int_equal(proc_run(&o, &r, &e), 0);
	return strtol(buf_c(&r.out), NULL, 10);
}

static void replace(const char *text, const char *was, const char *is, struct buf *out)
{
	for (const char *at; (at = strstr(text, was)) != NULL; text = at + strlen(was)) {
		assert_int_equal(buf_add(out, text, (size_t)(at - text)), 0);
		assert_int_equal(buf_str(out, is), 0);
	}
	assert_int_equal(buf_str(out, text), 0);
}

/* Write what the configuration says with one word replaced, make nginx read it, and wait until it has. */
static void nginx_says(
    const char *file, const char *was, const char *is, const char *url, const char *door, long then)
{
	char path[200];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 20), next = BUF(1 << 20);
	path_of(file, path);
	assert_int_equal(file_read(path, &text, &e), 0);
	replace(buf_c(&text), was, is, &next);
	assert_int_equal(file_write(path, next.p, next.n, 0644, &e), 0);
	stack_reload_nginx(&stack);
	for (int64_t until = clock_ms() + 60000; metrics(url, door) != then; (void)poll(NULL, 0, 50))
		assert_true(clock_ms() < until);
}

#define PUBLIC_IS   "fastcgi_param GATEHOUSE_DOOR public;"
#define INTERNAL_IS "fastcgi_param GATEHOUSE_DOOR internal;"

static void public_door(const char *was, const char *is, long then)
{
	char url[96];
	(void)snprintf(url, sizeof url, "%s/metrics", stack.url[0]);
	nginx_says("nginx/nginx.conf", was, is, url, NULL, then);
}
static void internal_door(const char *was, const char *is, long then)
{
	char door[200];
	path_of("run/internal/door1.sock", door);
	nginx_says("nginx/nginx.conf", was, is, "http://door/metrics", door, then);
}
/* (The include's own location does not hold /metrics; the server's `location /` does.) */
static void public_wrong(void)
{
	public_door(PUBLIC_IS, "fastcgi_param  GATEHOUSE_DOOR internal;", 200);
}
static void public_right(void)
{
	public_door("fastcgi_param  GATEHOUSE_DOOR internal;", PUBLIC_IS, 404);
}
static void internal_wrong(void)
{
	internal_door(INTERNAL_IS, "fastcgi_param  GATEHOUSE_DOOR public;", 404);
}
static void internal_right(void)
{
	internal_door("fastcgi_param  GATEHOUSE_DOOR public;", INTERNAL_IS, 200);
}

static void egress_away(void)
{
	stack_kill(&stack, "egress1");
}
static void egress_back(void)
{
	stack_start(&stack, "egress1");
}

static void node_away(void)
{
	stack_stop(&stack, "node1");
}

/* The node in a mount namespace where broken runtimes stand before the real ones. */
static void node_back(void)
{
	char script[300], cwd[200];
	struct err e = { 0 };
	assert_non_null(getcwd(cwd, sizeof cwd));
	(void)snprintf(script, sizeof script, "%s/tests/stack/stack.sh", cwd);
	const char *const argv[] = { "tests/stack/with-usr.sh", broken, script, "start", stack.dir, "node1",
		NULL };
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"ASAN_OPTIONS=detect_leaks=0:abort_on_error=1", NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.leaves = true,
		.timeout_ms = 60000 };
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("node: %s%s", e.msg, buf_c(&r.errout));
	stack_ready(&stack);
}

static void kind(const char *name)
{
	char path[200];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/kind", stack.dir);
	assert_int_equal(file_write(path, name, strlen(name), 0644, &e), 0);
}
static void whole(void)
{
	kind("none");
}
static void refuse(void)
{
	kind("refuse");
}
static void with_network(void)
{
	kind("network");
}
static void with_capabilities(void)
{
	kind("capabilities");
}
static void without_seccomp(void)
{
	kind("seccomp");
}
static void with_place_to_write(void)
{
	kind("write");
}
static void with_etc(void)
{
	kind("sees");
}
static void that_forgets(void)
{
	kind("forgets");
}
static void that_remembers(void)
{
	kind("remembers");
}

/* ---- the table: a line, how it is broken, what it then says */

static const struct row {
	const char *line;
	void (*broken)(void), (*mended)(void);
	const char *set; /* or by a setting */
	const char *says;
} rows[] = {
	{ "configuration", NULL, NULL, "NODE_CAPACITY=many", "NODE_CAPACITY" },
	{ "secret-key", key_readable, key_private, NULL, "mode 0644" },
	{ "secret-key", NULL, NULL, "SECRET_KEY_FILE=/nowhere", "No such file" },
	{ "socket.api", api_open, api_shut, NULL, "mode 0666: every user" },
	{ "socket.api", NULL, NULL, "API_SOCKET=/nowhere", "No such file" },
	{ "socket.sandboxd", node_open, node_shut, NULL, "mode 0777: every user" },
	{ "socket.internal", door_open, door_shut, NULL, "mode 0755: every user" },
	{ "database", NULL, NULL, "DATABASE_URL=host=/nowhere dbname=x", "cannot be reached" },
	{ "migrations", migration_away, migration_back, NULL, "lacks 1 migrations" },
	{ "clock", clock_away, clock_back, NULL, "3599 s ahead|3600 s ahead" },
	{ "nginx.public", NULL, NULL, "PUBLIC_URL=https://127.0.0.1:1", "" },
	{ "nginx.public", public_wrong, public_right, NULL, "passes requests on as internal ones" },
	{ "nginx.internal", internal_wrong, internal_right, NULL, "answers 404" },
	{ "nginx.internal", NULL, NULL, "INTERNAL_SOCKET=/run/nowhere/door.sock", "" },
	{ "sandboxes", no_nodes, nodes_back, NULL, "no node is registered" },
	{ "node.node1", node_away, node_back, NULL, "not been heard of" },
	{ "egress.node1", egress_away, egress_back, NULL, "cannot be reached" },
	{ "ready", node_away, node_back, NULL, "It answers 503: No node offers sandboxes" },
	{ "sandbox.node1.default.lease", refuse, whole, NULL, "the runtime is broken" },
	{ "sandbox.node1.gvisor.kernel", NULL, NULL, NULL,
	    "kernel of its own, and it runs on the host's" }, /* always */
	{ "sandbox.node1.default.network", with_network, whole, NULL, "It has the network interface" },
	{ "sandbox.node1.default.capabilities", with_capabilities, whole, NULL, "CapEff" },
	{ "sandbox.node1.default.capabilities", without_seccomp, whole, NULL, "No seccomp profile" },
	{ "sandbox.node1.default.mounts", with_place_to_write, whole, NULL, "It can write to /opt" },
	{ "sandbox.node1.default.mounts", with_etc, whole, NULL, "It sees the host's /etc/shadow" },
	{ "sandbox.node1.volume", that_forgets, whole, NULL, "written to /work is not there" },
	{ "sandbox.node1.volume", that_remembers, whole, NULL, "wrote to /tmp is there in the next one" },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Of money and keys: broken together, as each run looks into sandboxes as well. */
static const struct {
	const char *line, *says;
} money_rows[] = {
	{ "billing.credit", "no organisation has credit" },
	{ "billing.report", "cannot be reached" },
	{ "billing.balance", "needs BILLING_REPORT_URL" },
	{ "billing.balance", "cannot be reached" },
	{ "billing.calls", "1 model calls of processes that gave no sign of life" },
	{ "billing.books", "1 accounts, one of poor among them" },
	{ "models.keys", "A key of poor's provider locked does not open" },
};
enum { MONEY_ROWS = sizeof money_rows / sizeof money_rows[0] };

static void money_broken(void)
{
	sql("INSERT INTO orgs (slug) VALUES ('poor'); INSERT INTO accounts (org, reserved, calls) VALUES "
	    "('poor', 7, 0); "
	    "INSERT INTO gates (id, at) VALUES ('gat_dead', now() - interval '1 hour'); "
	    "INSERT INTO reservations (org, request, account, amount, tokens, gate, at) SELECT 'poor', "
	    "'lost', id, 0, 0, "
	    "'gat_dead', now() - interval '1 hour' FROM accounts WHERE org = 'poor'; "
	    "INSERT INTO model_providers (org, name, wire, base_url, created_by) VALUES ('poor', 'locked', "
	    "'openai-chat', "
	    "'https://models.invalid', 'ann'); "
	    "INSERT INTO model_keys (id, org, provider, sealed) VALUES ('key_locked', 'poor', 'locked', "
	    "'2:00000000:AAAA')");
}
static void money_mended(void)
{
	sql("DELETE FROM model_providers WHERE org = 'poor'; DELETE FROM reservations WHERE org = 'poor'; "
	    "DELETE FROM gates WHERE id = 'gat_dead'; DELETE FROM accounts WHERE org = 'poor'; DELETE FROM "
	    "orgs "
	    "WHERE slug = 'poor'");
}

static bool says(const char *line, const char *any)
{
	struct str rest = str_of(any), one;
	size_t n = strcspn(line, "\n");
	while (str_cut(&rest, '|', &one))
		if (memmem(line, n, one.p, one.n) != NULL)
			return true;
	return any[0] == 0;
}

static void every_line_fails_when_what_it_looks_at_is_broken(void **s)
{
	(void)s;
	volumes = sbx_volumes(&stack);
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		if (!volumes && strcmp(r->line, "sandbox.node1.volume") == 0)
			continue;
		auto_buf struct buf out = BUF(1 << 16);
		if (r->broken != NULL)
			r->broken();
		int status = doctor(r->set, false, &out);
		if (r->mended != NULL)
			r->mended();
		const char *line = line_of(buf_c(&out), "fail", r->line);
		if (line == NULL || status != 1)
			fail_msg("%s does not fail (exit %d):\n%s", r->line, status, buf_c(&out));
		if (!says(line, r->says) || memmem(line, strcspn(line, "\n"), " -> ", 4) == NULL)
			fail_msg("%s does not say \"%s\" and what to do: %.500s", r->line, r->says, line);
	}
}

static void every_line_about_money_fails_when_what_it_looks_at_is_broken(void **s)
{
	(void)s;
	auto_buf struct buf whole = BUF(1 << 16), books = BUF(1 << 16), half = BUF(1 << 16),
			    away = BUF(1 << 16);
	struct buf *const out[] = { &books, &half, &away };
	(void)doctor(NULL, false, &whole);
	money_broken();
	assert_int_equal(doctor("BILLING_MODE=closed", false, &books), 1);
	money_mended();
	assert_int_equal(doctor("BILLING_BALANCE_URL=http://127.0.0.1:1/b", false, &half), 1);
	also = "BILLING_REPORT_URL=http://127.0.0.1:1/r";
	assert_int_equal(doctor("BILLING_BALANCE_URL=http://127.0.0.1:1/b", false, &away), 1);
	also = NULL;
	for (size_t i = 0; i < MONEY_ROWS; i++) {
		bool said = false;
		for (int k = 0; k < 3 && !said; k++) {
			const char *line = line_of(buf_c(out[k]), "fail", money_rows[i].line);
			said = line != NULL && says(line, money_rows[i].says);
		}
		if (!said || line_of(buf_c(&whole), "ok", money_rows[i].line) == NULL)
			fail_msg("%s is not ok, or does not say \"%s\":\n%s\n%s\n%s\n%s", money_rows[i].line,
			    money_rows[i].says, buf_c(&whole), buf_c(&books), buf_c(&half), buf_c(&away));
	}
}

/* A stack as `make run` leaves it running: nothing fails, by its configuration file alone. */
static void a_stack_that_has_come_up_is_ok(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1 << 16);
	if (doctor(NULL, false, &out) != 0)
		fail_msg("%s", buf_c(&out));
	assert_non_null(line_of(buf_c(&out), "ok", "socket.api"));
	assert_non_null(line_of(buf_c(&out), "ok", "socket.sandboxd"));
}

/* What is whole is ok, line for line, but for the runtime whose label lies (see the table). */
static void what_is_whole_is_ok(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1 << 16);
	(void)doctor(NULL, false, &out);
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].line, "sandboxes") != 0 && strstr(rows[i].line, "gvisor") == NULL &&
		    line_of(buf_c(&out), "ok", rows[i].line) == NULL)
			fail_msg("%s is not ok:\n%s", rows[i].line, buf_c(&out));
	assert_non_null(line_of(buf_c(&out), "skip", "sandbox.node1.runc.lease"));
	/* Nothing of it stays. */
	auto_buf struct buf left = BUF(1 << 16), live = BUF(100);
	assert_int_equal(stack_leaks(&stack, &left), 0);
	stack_sql(&stack, "SELECT count(*) FROM sandboxes WHERE status IN ('pending', 'running')", &live);
	assert_string_equal(buf_c(&live), "0");
}

static void without_a_database_the_rest_is_told_all_the_same(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1 << 16);
	assert_int_equal(doctor("DATABASE_URL=host=/nowhere dbname=x", false, &out), 1);
	assert_non_null(line_of(buf_c(&out), "skip", "migrations"));
	assert_non_null(line_of(buf_c(&out), "skip", "clock"));
	assert_non_null(line_of(buf_c(&out), "skip", "sandboxes"));
	assert_non_null(line_of(buf_c(&out), "ok", "nginx.public"));
	assert_non_null(line_of(buf_c(&out), "ok", "secret-key"));
}

static void a_program_gets_one_document(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1 << 16);
	struct err e = { 0 };
	size_t i;
	const json_t *l;
	assert_int_equal(doctor("PUBLIC_URL=https://127.0.0.1:1", true, &out), 1);
	auto_json json_t *j = js_parse(buf_c(&out), out.n, &e);
	assert_non_null(j);
	assert_false(js_bool(j, "ok", true));
	bool failed = false;
	json_array_foreach(js_get(j, "lines"), i, l) {
		bool fails = strcmp(js_str(l, "status"), "fail") == 0;
		assert_true(fails == (js_str(l, "remedy") != NULL));
		failed = failed || (fails && strcmp(js_str(l, "name"), "nginx.public") == 0);
	}
	assert_true(failed);
}

/* ---- a host on which all is well but for a runsc that is a runc */

static int put_runtimes(void **s)
{
	(void)s;
	static const char *const names[] = { "runc", "runsc" };
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 16), program = BUF(1 << 16);
	char path[200];
	assert_int_equal(file_read("tests/stack/broken-runtime.py", &text, &e), 0);
	(void)snprintf(broken, sizeof broken, "%s/broken", stack.dir);
	(void)snprintf(path, sizeof path, "%s/local/sbin", broken);
	assert_int_equal(file_mkdirs(path, 0755, &e), 0);
	(void)snprintf(path, sizeof path, "%s/kind", stack.dir);
	replace(buf_c(&text), "@KIND@", path, &program);
	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof path, "%s/local/sbin/%s", broken, names[i]);
		assert_int_equal(file_write(path, program.p, program.n, 0755, &e), 0);
	}
	kind("none");
	node_away();
	node_back();
	return 0;
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, "SANDBOX_OCI_RUNTIME=runc");
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	struct err e = { 0 };
	(void)rmdir("/tmp/ghd-write");
	(void)file_rmtree("/tmp/ghd-tmp", &e);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stack_that_has_come_up_is_ok),
		cmocka_unit_test_setup(what_is_whole_is_ok, put_runtimes),
		cmocka_unit_test(every_line_about_money_fails_when_what_it_looks_at_is_broken),
		cmocka_unit_test(every_line_fails_when_what_it_looks_at_is_broken),
		cmocka_unit_test(without_a_database_the_rest_is_told_all_the_same),
		cmocka_unit_test(a_program_gets_one_document),
	};
	return cmocka_run_group_tests_name("doctor", tests, up, down);
}
