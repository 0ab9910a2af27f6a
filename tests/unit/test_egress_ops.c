/* test_egress_ops.c - policies, audit rows and brokered credentials as the API serves them (EGR-1, 2, 8, 9, 15, SBX-33). The
 * boundary is a thread that confirms what it is told, or does not. */
#include "../t.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../pgtest.h"
#include "auth/broker.h"
#include "auth/seal.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "io/file.h"
#include "sandbox/network.h"

extern const struct op egress_ops[];

static struct pgtest *server;
static struct pg_pool *pool;
static struct mem *mem; /* of the test */
static struct api api;
static struct conf *plain, *open_conf, *watching, *strict;

static const struct principal admin = {
	.kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "*", .org_admin = true
};
static const struct principal member = { .kind = CRED_KEY, .org = "acme", .user = "bea", .scopes = "*" };
static const struct principal other = {
	.kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "*", .org_admin = true
};

/* ---- the boundary */

static atomic_bool confirms;
static atomic_int told;

static const struct pg_stmt apply = { "t_apply",
	"UPDATE sandboxes SET network_applied = network_version WHERE id = $1", 1 };

static void on_event(void *arg, const char *channel, const char *payload)
{
	struct err e = { 0 };
	(void)arg;
	if (strcmp(channel, "egress_policy") != 0)
		return;
	told++;
	if (!confirms)
		return;
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &apply, &e, payload);
	(void)r;
}

static struct pg_listen *listener;

/* ---- calling */

static json_t *call_as(
    const struct conf *conf, const struct principal *who, const char *id, const char *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ egress_ops, NULL }, id);
	assert_non_null(op);
	struct reply reply = { 0 };
	struct ctx c = { .mem = mem,
		.db = pool,
		.who = who,
		.reply = &reply,
		.request_id = "req_1",
		.conf = conf,
		.app = &api };
	err_clear(e);
	json_t *in = mem_json(mem, js_parse(input, strlen(input), e));
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out == NULL) {
		assert_int_not_equal(e->code, ERR_NONE);
		return NULL;
	}
	if (op_check_out(op->out, out, e) != 0)
		fail_msg("%s: %s", id, e->msg);
	return mem_json(mem, out);
}

static json_t *call(const struct principal *who, const char *id, const char *input, struct err *e)
{
	return call_as(plain, who, id, input, e);
}

static enum err_code refused(
    const struct principal *who, const char *id, const char *input, const char *param)
{
	struct err e = { 0 };
	assert_null(call(who, id, input, &e));
	assert_string_equal(e.param, param);
	return e.code;
}

/* ---- policies */

static int check(const struct conf *conf, const char *asked, struct network *n, struct err *e)
{
	err_clear(e);
	auto_json json_t *j = asked == NULL ? NULL : js_parse(asked, strlen(asked), e);
	return network_check(conf, j, "network.", n, e);
}

static void assert_policy(
    const struct conf *conf, const char *asked, const char *policy, const char *reach, int tier)
{
	struct network n;
	struct err e = { 0 };
	if (check(conf, asked, &n, &e) != 0)
		fail_msg("%s: %s", asked, e.msg);
	auto_json json_t *owned = n.policy;
	assert_string_equal(js_dump(mem, n.policy), policy);
	assert_string_equal(n.reach, reach);
	assert_int_equal(n.tier, tier);
}

#define NOTHING "{\"mode\":\"deny-all\",\"allowedHosts\":[]}"

/* EGR-1, SBX-33 */
static void nothing_said_is_deny_all_and_the_tier_is_true(void **s)
{
	(void)s;
	assert_policy(plain, NULL, NOTHING, "none", 2);
	assert_policy(plain, "{}", NOTHING, "none", 2);
	assert_policy(plain, "{\"mode\":null,\"allowedHosts\":[]}", NOTHING, "none", 2);
	assert_policy(plain, "{\"allowedHosts\":[\"a.example\"]}",
	    "{\"mode\":\"static\",\"allowedHosts\":[\"a.example\"]}", "proxy", 2);
	assert_policy(
	    plain, "{\"mode\":\"static\"}", "{\"mode\":\"static\",\"allowedHosts\":[]}", "proxy", 2);
	assert_policy(open_conf, "{\"mode\":\"allow-all\"}", "{\"mode\":\"allow-all\",\"allowedHosts\":[]}",
	    "proxy", 1);
	assert_policy(
	    open_conf, "{\"mode\":\"resolver\"}", "{\"mode\":\"resolver\",\"allowedHosts\":[]}", "proxy", 2);
	assert_policy(watching, "{}", NOTHING, "none", 1); /* EGR-13 */
	assert_int_equal(network_tier(watching, 2), 1);
	assert_int_equal(network_tier(plain, 2), 2);
	assert_int_equal(network_tier(watching, 0), 0);
}

/* EGR-2: refused when written, by name */
static void what_cannot_be_written_is_named(void **s)
{
	(void)s;
	static const struct {
		const char *asked, *param;
	} cases[] = {
		{ "{\"mode\":\"allow-all\"}", "network.mode" },
		{ "{\"mode\":\"resolver\"}", "network.mode" },
		{ "{\"mode\":\"deny-all\",\"allowedHosts\":[\"a.example\"]}", "network.allowedHosts" },
		{ "{\"allowedHosts\":[\"a.example\",\"*.b.example\"]}", "network.allowedHosts[1]" },
		{ "{\"allowedHosts\":[\"https://a.example\"]}", "network.allowedHosts[0]" },
		{ "{\"allowedHosts\":[\"0x7f.1\"]}", "network.allowedHosts[0]" },
		{ "{\"allowedHosts\":[7]}", "network.allowedHosts[0]" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct network n;
		struct err e = { 0 };
		assert_int_equal(check(plain, cases[i].asked, &n, &e), -1);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
		assert_string_equal(e.param, cases[i].param);
		if (strstr(cases[i].asked, "https://") != NULL)
			assert_non_null(strstr(e.msg, "no scheme and no path"));
	}
	struct network n;
	struct err e = { 0 };
	assert_int_equal(check(strict, "{\"mode\":\"allow-all\"}", &n, &e), -1); /* SBX-33 */
	assert_non_null(strstr(e.msg, "SANDBOX_STRICT_EGRESS"));
}

static void sandbox(const char *tail, const char *status, bool gate)
{
	pgtest_sql(server,
	    mem_fmt(mem,
		"INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, "
		"iso_tier, node, workdir, created_by, expires_at, network_gate, ended_at) VALUES ('sbx_%s', "
		"'acme', 'exec', '%s', 'host', '', false, 'none', 2, 'n1', '/mnt/data', 'ada', now() + "
		"interval "
		"'1 hour', %s, %s)",
		tail, status, gate ? "true" : "false", strcmp(status, "ended") == 0 ? "now()" : "NULL"));
}

/* EGR-9 */
/* fault 49 */
static void a_change_answers_when_it_is_in_force(void **s)
{
	(void)s;
	struct err e = { 0 };
	confirms = true;
	sandbox("live", "running", true);
	json_t *got = call(
	    &member, "set_network_policy", "{\"id\":\"sbx_live\",\"allowedHosts\":[\"A.Ex.org\"]}", &e);
	if (got == NULL)
		fail_msg("%s", e.msg);
	assert_string_equal(js_str_or(got, "mode", ""), "static");
	assert_string_equal(json_string_value(json_array_get(js_get(got, "allowedHosts"), 0)), "A.Ex.org");
	assert_false(js_bool(got, "observe", true));
	assert_non_null(
	    call(&member, "set_network_policy", "{\"id\":\"sbx_live\",\"mode\":\"deny-all\"}", &e));
	assert_int_equal(told, 2);
	/* The same again is told again: whoever asks wants to know that it is in force. */
	assert_non_null(
	    call(&member, "set_network_policy", "{\"id\":\"sbx_live\",\"mode\":\"deny-all\"}", &e));
	assert_int_equal(told, 3);
}

static void a_change_that_is_not_in_force_says_so_and_stays_written(void **s)
{
	(void)s;
	struct err e = { 0 };
	confirms = false;
	sandbox("deaf", "running", true);
	assert_null(call(
	    &member, "set_network_policy", "{\"id\":\"sbx_deaf\",\"allowedHosts\":[\"a.example\"]}", &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	static const struct pg_stmt stored = { "t_stored", "SELECT network FROM sandboxes WHERE id = $1", 1 };
	err_clear(&e);
	auto_res struct pg_res *r = PG(db, &stored, &e, "sbx_deaf");
	assert_non_null(strstr(pg_str(r, 0, 0), "a.example"));
}

/* fault 46 */
static void what_cannot_be_changed_is_refused(void **s)
{
	(void)s;
	confirms = true;
	sandbox("mine", "running", true);
	sandbox("plain", "running", false);
	sandbox("over", "ended", true);
	int before = told;
	assert_int_equal(
	    refused(&other, "set_network_policy", "{\"id\":\"sbx_mine\",\"mode\":\"deny-all\"}", ""),
	    ERR_NOT_FOUND);
	assert_int_equal(
	    refused(&member, "set_network_policy", "{\"id\":\"sbx_none\",\"mode\":\"deny-all\"}", ""),
	    ERR_NOT_FOUND);
	assert_int_equal(
	    refused(&member, "set_network_policy", "{\"id\":\"sbx_plain\",\"mode\":\"deny-all\"}", ""),
	    ERR_CONFLICT);
	assert_int_equal(
	    refused(&member, "set_network_policy", "{\"id\":\"sbx_over\",\"mode\":\"deny-all\"}", ""),
	    ERR_CONFLICT);
	assert_int_equal(refused(&member, "set_network_policy",
			     "{\"id\":\"sbx_mine\",\"allowedHosts\":[\"*\"]}", "allowedHosts[0]"),
	    ERR_BAD_REQUEST);
	assert_int_equal(told, before);
}

/* ---- audit rows */

static void what_was_decided_is_listed_for_the_sandboxs_org(void **s)
{
	(void)s;
	struct err e = { 0 };
	sandbox("asked", "ended", true);
	pgtest_sql(server,
	    "INSERT INTO egress_audit (org, sandbox, kind, form, host, port, verdict, reason) SELECT 'acme', "
	    "'sbx_asked', 'decision', 'connect', 'h' || n, 443, CASE WHEN n % 2 = 0 THEN 'allow' ELSE 'deny' "
	    "END, "
	    "'not_on_allowlist' FROM generate_series(1, 5) n");
	pgtest_sql(server,
	    "INSERT INTO egress_audit (org, sandbox, kind, form, host, port, verdict, reason, bytes_out, "
	    "bytes_in, "
	    "duration_ms) VALUES ('acme', 'sbx_asked', 'close', 'connect', 'h2', 443, 'allow', 'ok', 1, 2, "
	    "3)");
	json_t *page = call(&member, "list_egress", "{\"id\":\"sbx_asked\",\"limit\":2}", &e);
	assert_non_null(page);
	assert_int_equal(json_array_size(js_get(page, "data")), 2);
	assert_string_equal(js_str_or(json_array_get(js_get(page, "data"), 0), "kind", ""), "close");
	char *next = mem_fmt(
	    mem, "{\"id\":\"sbx_asked\",\"limit\":200,\"cursor\":\"%s\"}", js_str(page, "next"));
	page = call(&member, "list_egress", next, &e);
	assert_int_equal(json_array_size(js_get(page, "data")), 4);
	page = call(&member, "list_egress", "{\"id\":\"sbx_asked\",\"verdict\":\"deny\"}", &e);
	assert_int_equal(json_array_size(js_get(page, "data")), 3);
	assert_int_equal(refused(&other, "list_egress", "{\"id\":\"sbx_asked\"}", ""), ERR_NOT_FOUND);
}

/* ---- brokered credentials (EGR-8) */

#define BIND(host, header, value)                                                                            \
	"{\"name\":\"n\",\"host\":\"" host "\",\"header\":\"" header "\",\"value\":\"" value "\"}"

static void a_value_is_sealed_and_in_no_answer(void **s)
{
	(void)s;
	struct err e = { 0 };
	json_t *got = call(&admin, "bind_egress_credential",
	    BIND("Registry.Example.com:8443", "X-Token", "hunter2hunter2"), &e);
	if (got == NULL)
		fail_msg("%s", e.msg);
	const char *id = js_str(got, "id");
	assert_null(strstr(js_dump(mem, got), "hunter2"));
	assert_string_equal(js_str_or(got, "host", ""), "registry.example.com:8443");
	assert_string_equal(js_str_or(got, "header", ""), "x-token");
	json_t *all = call(&admin, "list_egress_credentials", "{}", &e);
	assert_int_equal(json_array_size(js_get(all, "data")), 1);
	assert_null(strstr(js_dump(mem, all), "hunter2"));
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	static const struct pg_stmt sealed = { "t_sealed",
		"SELECT sealed FROM egress_credentials WHERE id = $1", 1 };
	auto_res struct pg_res *r = PG(db, &sealed, &e, id);
	assert_null(strstr(pg_str(r, 0, 0), "hunter2"));
	auto_secret struct secret *value = seal_open(api.seal, id, pg_str(r, 0, 0), &e);
	assert_string_equal(secret_use(value), "hunter2hunter2");
	/* One host and header, one value, however they are spelled. */
	assert_int_equal(
	    refused(&admin, "bind_egress_credential", BIND("registry.example.com.:8443", "x-TOKEN", "v"), ""),
	    ERR_CONFLICT);
	assert_non_null(
	    call(&other, "bind_egress_credential", BIND("registry.example.com:8443", "x-token", "v"), &e));
	char *which = mem_fmt(mem, "{\"id\":\"%s\"}", id);
	assert_int_equal(refused(&other, "remove_egress_credential", which, ""), ERR_NOT_FOUND);
	assert_non_null(call(&admin, "remove_egress_credential", which, &e));
	assert_int_equal(refused(&admin, "remove_egress_credential", which, ""), ERR_NOT_FOUND);
}

static void a_binding_that_could_do_harm_is_refused(void **s)
{
	(void)s;
	static const struct {
		const char *body, *param;
	} cases[] = {
		{ BIND("*.example.com", "x-token", "v"), "host" },
		{ BIND("a.example", "Host", "v"), "header" },
		{ BIND("a.example", "Content-Length", "1"), "header" },
		{ BIND("a.example", "transfer-encoding", "chunked"), "header" },
		{ BIND("a.example", "x token", "v"), "header" },
		{ BIND("a.example", "x-token", "v\\r\\nx-other: w"), "value" },
		{ BIND("a.example", "x-token", " v"), "value" },
		{ BIND("a.example", "x-token", "caf\xc3\xa9"), "value" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(refused(&admin, "bind_egress_credential", cases[i].body, cases[i].param),
		    ERR_BAD_REQUEST);
	assert_int_equal(
	    refused(&member, "bind_egress_credential", BIND("a.example", "x", "v"), ""), ERR_FORBIDDEN);
	assert_int_equal(refused(&member, "list_egress_credentials", "{}", ""), ERR_FORBIDDEN);
}

/* ---- */

static struct conf *conf_with(const char *lines)
{
	char path[] = "/tmp/gheo.XXXXXX";
	struct err e = { 0 };
	int fd = mkstemp(path);
	if (fd < 0 || write(fd, lines, strlen(lines)) != (ssize_t)strlen(lines))
		return NULL;
	(void)close(fd);
	struct conf *c = conf_load(path, &e);
	(void)unlink(path);
	return c;
}

static int up(void **s)
{
	(void)s;
	static const char *const channels[] = { "egress_policy", NULL };
	struct err e = { 0 };
	char key[] = "/tmp/gheok.XXXXXX";
	int fd = mkstemp(key);
	if (fd < 0 || write(fd, "0123456789abcdef0123456789abcdef", 32) != 32 || fchmod(fd, 0600) != 0)
		return -1;
	(void)close(fd);
	api.seal = seal_load(key, &e);
	(void)unlink(key);
	plain = conf_with("");
	open_conf = conf_with("EGRESS_ALLOW_ALL=yes\nEGRESS_RESOLVER=http://127.0.0.1:9/\n");
	watching = conf_with("EGRESS_OBSERVE=yes\n");
	strict = conf_with("EGRESS_ALLOW_ALL=yes\nSANDBOX_STRICT_EGRESS=1\n");
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	pgtest_sql(server,
	    "INSERT INTO orgs (slug) VALUES ('acme'), ('other');"
	    "INSERT INTO nodes (name, instance, address, capacity) VALUES ('n1', 'i', 'unix:/x', 4)");
	listener = pg_listen_start(pgtest_conninfo(server), channels, on_event, NULL);
	mem = mem_new();
	return api.seal == NULL || plain == NULL || strict == NULL ? -1 : 0;
}

static int down(void **s)
{
	(void)s;
	pg_listen_stop(listener);
	pg_pool_free(pool);
	pgtest_end(server);
	conf_free(plain);
	conf_free(open_conf);
	conf_free(watching);
	conf_free(strict);
	seal_free(api.seal);
	mem_free(mem);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_is_deny_all_and_the_tier_is_true),
		cmocka_unit_test(what_cannot_be_written_is_named),
		cmocka_unit_test(a_change_answers_when_it_is_in_force),
		cmocka_unit_test(a_change_that_is_not_in_force_says_so_and_stays_written),
		cmocka_unit_test(what_cannot_be_changed_is_refused),
		cmocka_unit_test(what_was_decided_is_listed_for_the_sandboxs_org),
		cmocka_unit_test(a_value_is_sealed_and_in_no_answer),
		cmocka_unit_test(a_binding_that_could_do_harm_is_refused),
	};
	return cmocka_run_group_tests_name("egress_ops", tests, up, down);
}
