/* Providers, their keys and what holds of them in every process (MOD-2, MOD-3), on a real database. Two catalogs are two processes. */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "auth/principal.h"
#include "auth/reseal.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "io/conf.h"
#include "io/file.h"
#include "io/http.h"
#include "model/keyring.h"
#include "model/route.h"
#include "sql/model.h"

extern const struct op providers_ops[];

static struct pgtest *server;
static struct pg_pool *pool;
static struct conf *conf;
static struct seal_key *keys;
static struct mem *mem; /* of the test */
static struct catalog *here, *there;
static char dir[64], key_file[80], conf_file[80];

static const struct principal ada = {
	.kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "*", .org_admin = true
};
static const struct principal member = { .kind = CRED_KEY, .org = "acme", .user = "bob", .scopes = "*" };
static const struct principal other = {
	.kind = CRED_KEY, .org = "other", .user = "eve", .scopes = "*", .org_admin = true
};
static const struct principal super = { .kind = CRED_KEY,
	.org = "admin",
	.user = "root",
	.scopes = "*",
	.org_admin = true,
	.super_admin = true };

/* An op as the server calls it. NULL with e. */
static json_t *call(const struct principal *who, const char *id, const char *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ providers_ops, NULL }, id);
	assert_non_null(op);
	struct api api = { .conf = conf, .db = pool, .seal = keys, .catalog = here };
	struct reply reply = { 0 };
	struct ctx c = { .mem = mem,
		.db = pool,
		.conf = conf,
		.app = &api,
		.who = who,
		.reply = &reply,
		.request_id = "req_1" };
	err_clear(e);
	json_t *in = mem_json(mem, js_parse(input, strlen(input), e));
	assert_non_null(in);
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out == NULL)
		return NULL;
	if (op_check_out(op->out, out, e) != 0)
		fail_msg("%s: %s", id, e->msg);
	return mem_json(mem, out);
}

static json_t *works(const struct principal *who, const char *id, const char *input)
{
	struct err e = { 0 };
	json_t *out = call(who, id, input, &e);
	if (out == NULL)
		fail_msg("%s: %s (%s)", id, e.msg, e.param);
	return out;
}

static void refused(
    const struct principal *who, const char *id, const char *input, enum err_code code, const char *param)
{
	struct err e = { 0 };
	assert_null(call(who, id, input, &e));
	if (e.code != code || strcmp(e.param, param) != 0)
		fail_msg("%s: %d %s: %s", input, e.code, e.param, e.msg);
}

#define ONE "\"models\":[{\"name\":\"m\",\"prices\":{\"input\":100,\"output\":200}}]"
#define AT  "\"wire\":\"openai-chat\",\"baseUrl\":\"https://api.example.com/v1\""

/* The first target of a name in a process; its reason when there is none. */
static const char *first(struct catalog *c, const char *org, const char *name)
{
	struct err e = { 0 };
	struct model_route r;
	if (route_resolve(c, mem, org, name, &r, &e) != 0)
		return mem_str(mem, e.reason == NULL ? e.msg : e.reason);
	return mem_fmt(mem, "%s:%s", r.targets[0].provider->org, r.targets[0].address);
}

static void becomes(struct catalog *c, const char *org, const char *name, const char *what)
{
	int64_t end = clock_ms() + PATIENCE_MS;
	while (strcmp(first(c, org, name), what) != 0 && clock_ms() < end)
		(void)usleep(2000);
	assert_string_equal(first(c, org, name), what);
}

static const struct provider *provider(struct catalog *c, const char *name)
{
	struct err e = { 0 };
	struct model_route r;
	if (route_resolve(c, mem, "acme", name, &r, &e) != 0)
		fail_msg("%s", e.msg);
	return r.targets[0].provider;
}

/* ---- rows */

static void a_key_is_in_no_answer_and_sealed_in_its_row(void **s)
{
	(void)s;
	const json_t *made = works(&ada, "create_provider",
	    "{\"name\":\"a\"," AT "," ONE ",\"keys\":[\"sk-secret-1\",\"sk-secret-2\"]}");
	assert_int_equal(json_array_size(js_get(made, "keys")), 2);
	const char *id = js_str(json_array_get(js_get(made, "keys"), 0), "id");
	const json_t *all[] = { made, works(&ada, "get_provider", "{\"name\":\"a\"}"),
		works(&ada, "list_providers", "{}"),
		works(&ada, "update_provider",
		    mem_fmt(
			mem, "{\"name\":\"a\",\"addKeys\":[\"sk-secret-3\"],\"removeKeys\":[\"%s\"]}", id)) };
	for (size_t i = 0; i < 4; i++)
		assert_null(strstr(js_dump(mem, all[i]), "sk-secret"));
	assert_int_equal(json_array_size(js_get(all[3], "keys")), 2);
	/* A price that is not given is another's. */
	const json_t *prices = js_get(json_array_get(js_get(made, "models"), 0), "prices");
	assert_int_equal(js_int(prices, "cached", -1), 100);
	assert_int_equal(js_int(prices, "cacheWrite", -1), 100);
	assert_int_equal(js_int(prices, "reasoning", -1), 200);

	const struct provider *p = provider(here, "a/m");
	assert_int_equal(p->n_keys, 2);
	assert_string_equal(secret_use(p->keys[0].secret), "sk-secret-2");
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *rows = PG(db, &q_model_copy, &e, "acme");
	assert_non_null(rows);
	assert_null(strstr(pg_str(rows, 0, 5), "sk-secret"));
	assert_non_null(strstr(pg_str(rows, 0, 5), "2:"));
}

static void what_cannot_be_is_refused_by_name(void **s)
{
	(void)s;
	static const struct {
		const char *url;
		bool ok;
	} urls[] = {
		{ "https://api.example.com/v1", true },
		{ "https://api.example.com", true },
		{ "https://1.1.1.1/v1", true },
		{ "http://127.0.0.1:18099/v1", true }, /* listed */
		{ "http://10.1.2.3/v1", true },
		{ "http://127.0.0.1:18098/v1", false },
		{ "http://api.example.com/v1", false },
		{ "https://127.0.0.1/v1", false },
		{ "https://169.254.169.254/", false },
		{ "https://[::1]/v1", false },
		{ "https://10.0.0.1/v1", false },
		{ "https://u:p@api.example.com/v1", false },
		{ "https://api.example.com/v1?x=1", false },
		{ "https://api.example.com/v1#f", false },
		{ "https://api.example.com/v1/", false },
		{ "https://api.example.com//v1", false },
		{ "https://api.example.com/../v1", false },
		{ "https://api.example.com/./v1", false },
		{ "ftp://api.example.com/v1", false },
		{ "https:///v1", false },
		{ "https://api.example.com:0/v1", false },
		{ "https://0x7f.1/v1", false },
		{ "https://api.example.com /v1", false },
		{ "https://2130706433/v1", false },
	};
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		struct err e = { 0 };
		if ((provider_url_ok(conf, urls[i].url, &e) == 0) != urls[i].ok)
			fail_msg("%s: %s", urls[i].url, e.msg);
		if (!urls[i].ok)
			assert_string_equal(e.param, "baseUrl");
	}
	static const char *const adds[][2] = { { "http://127.0.0.1:18098/v1", "add 127.0.0.1:18098 to" },
		{ "http://api.example.com/v1", "add api.example.com:80 to" },
		{ "https://[::1]/v1", "add [::1]:443 to" } };
	for (size_t i = 0; i < sizeof adds / sizeof *adds; i++) {
		struct err e = { 0 };
		assert_int_equal(provider_url_ok(conf, adds[i][0], &e), -1);
		assert_non_null(strstr(e.msg, adds[i][1]));
	}
	refused(&ada, "create_provider", "{\"name\":\"A\"," AT "}", ERR_BAD_REQUEST, "name");
	refused(&ada, "create_provider", "{\"name\":\"a/b\"," AT "}", ERR_BAD_REQUEST, "name");
	refused(
	    &ada, "create_provider", "{\"name\":\"b\"," AT ",\"keys\":[\"a b\"]}", ERR_BAD_REQUEST, "keys");
	refused(&ada, "create_provider", "{\"name\":\"b\"," AT ",\"keys\":[\"a\\r\\nX: y\"]}",
	    ERR_BAD_REQUEST, "keys");
	refused(&ada, "create_provider",
	    "{\"name\":\"b\"," AT ",\"models\":[{\"name\":\"m\",\"prices\":{\"input\":1}}]}", ERR_BAD_REQUEST,
	    "models[0].prices.output");
	refused(&ada, "create_provider",
	    "{\"name\":\"b\"," AT ",\"models\":[{\"name\":\"m m\",\"prices\":{\"input\":1,\"output\":1}}]}",
	    ERR_BAD_REQUEST, "models");
	refused(&ada, "create_provider",
	    "{\"name\":\"b\",\"wire\":\"soap\",\"baseUrl\":\"https://x.example\"}", ERR_BAD_REQUEST, "wire");
	(void)works(&ada, "create_provider", "{\"name\":\"b\"," AT "}");
	refused(&ada, "create_provider", "{\"name\":\"b\"," AT "}", ERR_CONFLICT, "");
	refused(&ada, "update_provider", "{\"name\":\"b\",\"removeKeys\":[\"mky_x\"]}", ERR_NOT_FOUND,
	    "removeKeys");
	refused(&ada, "set_model_routing", "{\"aliases\":{\"a/b\":[\"a/m\"]}}", ERR_BAD_REQUEST, "aliases");
	refused(&ada, "set_model_routing", "{\"aliases\":{\"a\":[]}}", ERR_BAD_REQUEST, "aliases.a");
}

static void a_key_does_not_follow_its_provider_to_another_host(void **s) /* SEC-6 */
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"h\"," AT "," ONE ",\"keys\":[\"sk-secret-h\"]}");
	const json_t *row = works(&ada, "update_provider",
	    "{\"name\":\"h\",\"baseUrl\":\"https://API.example.com:443/v2\",\"wire\":\"anthropic\"}");
	assert_int_equal(json_array_size(js_get(row, "keys")), 1); /* the same host */
	static const char *const others[] = { "https://other.example.com/v1",
		"https://api.example.com:444/v1", "http://127.0.0.1:18099/v1" };
	for (size_t i = 0; i < 3; i++) {
		row = works(
		    &ada, "update_provider", mem_fmt(mem, "{\"name\":\"h\",\"baseUrl\":\"%s\"}", others[i]));
		assert_int_equal(json_array_size(js_get(row, "keys")), 0);
		assert_null(provider(here, "h/m")->keys[0].secret);
		row = works(&ada, "update_provider",
		    mem_fmt(
			mem, "{\"name\":\"h\",\"baseUrl\":\"%s\",\"addKeys\":[\"sk-secret-h\"]}", others[i]));
		assert_int_equal(json_array_size(js_get(row, "keys")), 1);
	}
}

static void an_org_sees_its_own_and_of_the_deployments_only_what_it_may_call(void **s)
{
	(void)s;
	(void)works(
	    &super, "create_provider", "{\"name\":\"shared\"," AT "," ONE ",\"keys\":[\"sk-secret-d\"]}");
	(void)works(&ada, "create_provider", "{\"name\":\"mine\"," AT "," ONE "}");
	assert_string_equal(first(here, "other", "shared/m"), "admin:shared/m");
	assert_string_equal(first(here, "other", "mine/m"), "model_not_found");
	const json_t *seen = works(&other, "get_provider", "{\"name\":\"shared\"}");
	assert_string_equal(js_str(seen, "owner"), "deployment");
	assert_null(js_get(seen, "baseUrl"));
	assert_int_equal(json_array_size(js_get(seen, "keys")), 0);
	refused(&other, "get_provider", "{\"name\":\"mine\"}", ERR_NOT_FOUND, "");
	refused(&other, "update_provider", "{\"name\":\"shared\",\"enabled\":false}", ERR_NOT_FOUND, "");
	refused(&other, "delete_provider", "{\"name\":\"shared\"}", ERR_NOT_FOUND, "");
	refused(&other, "test_provider", "{\"name\":\"shared\"}", ERR_NOT_FOUND, "");
	refused(&member, "list_providers", "{}", ERR_FORBIDDEN, "");
	/* Its own of the same name hides it, page by page, too. */
	(void)works(&other, "create_provider", "{\"name\":\"shared\"," AT "," ONE "}");
	assert_string_equal(first(here, "other", "shared/m"), "other:shared/m");
	const json_t *page = works(&other, "list_providers", "{\"limit\":1}");
	assert_string_equal(js_str(json_array_get(js_get(page, "data"), 0), "owner"), "org");
	page = works(
	    &other, "list_providers", mem_fmt(mem, "{\"limit\":1,\"cursor\":\"%s\"}", js_str(page, "next")));
	assert_string_equal(js_str(json_array_get(js_get(page, "data"), 0), "owner"), "deployment");
	assert_null(js_get(page, "next"));
}

/* ---- what every process knows */

static void a_change_holds_in_every_process_at_once(void **s)
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"e\"," AT "," ONE "}");
	assert_string_equal(
	    first(here, "acme", "e/m"), "acme:e/m"); /* who changed it sees it without being told */
	becomes(there, "acme", "e/m", "acme:e/m");
	(void)works(&ada, "update_provider", "{\"name\":\"e\",\"enabled\":false}");
	assert_string_equal(first(here, "acme", "e/m"), "model_not_found");
	becomes(there, "acme", "e/m", "model_not_found");
	(void)works(&ada, "update_provider", "{\"name\":\"e\",\"enabled\":true}");
	(void)works(&ada, "set_model_routing",
	    "{\"aliases\":{\"quick\":[\"e/m\"],\"free\":[\"quick\"]},\"allow\":[\"quick\",\"free\"]}");
	becomes(there, "acme", "quick", "acme:e/m");
	becomes(there, "acme", NULL, "acme:e/m");
	becomes(there, "acme", "e/m", "model_not_allowed");
	(void)works(&ada, "set_model_routing", "{\"allowAll\":true}");
	becomes(there, "acme", "e/m", "acme:e/m");
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_json json_t *at_most = js_pack("[s]", "x/y");
	assert_int_equal(provider_org_set(db, "acme", "paid", at_most, &e), 0);
	becomes(there, "acme", "e/m", "model_not_allowed");
	assert_string_equal(js_str(works(&ada, "get_model_routing", "{}"), "tier"), "paid");
	auto_json json_t *anything = json_null();
	assert_int_equal(provider_org_set(db, "acme", NULL, anything, &e), 0);
	becomes(there, "acme", "e/m", "acme:e/m");
	assert_int_equal(provider_org_set(db, "nobody", "paid", NULL, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void an_alias_that_leads_nowhere_is_refused(void **s) /* MOD-2 */
{
	(void)s;
	(void)works(&super, "create_provider", "{\"name\":\"deployed\"," AT "," ONE "}");
	(void)works(&super, "set_model_routing", "{\"aliases\":{\"theirs\":[\"deployed/m\"]}}");
	(void)works(&ada, "create_provider", "{\"name\":\"n\"," AT "," ONE "}");
	static const char *const wrong[] = { "{\"x\":[\"y\"],\"y\":[\"n/m\",\"x\"]}",
		"{\"v\":[\"w\"],\"w\":[\"x\"],\"x\":[\"y\"],\"y\":[\"z\"],\"z\":[\"n/m\"]}",
		"{\"x\":[\"n/nothing\"]}", "{\"x\":[\"x\"]}", "{\"theirs\":[\"theirs\"]}" };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refused(&ada, "set_model_routing", mem_fmt(mem, "{\"aliases\":%s}", wrong[i]),
		    ERR_BAD_REQUEST, "aliases");
	static const char right[] =
	    "{\"aliases\":{\"w\":[\"x\"],\"x\":[\"y\"],\"y\":[\"z\"],\"z\":[\"n/m\"],\"m\":[\"m\"],"
	    "\"t\":[\"theirs\",\"deployed/m\"]}}";
	(void)works(&ada, "set_model_routing", right);
	/* What stood there may be said again when what it led to has gone. */
	(void)works(&ada, "delete_provider", "{\"name\":\"n\"}");
	(void)works(&ada, "set_model_routing", right);
	(void)works(&ada, "set_model_routing", "{\"aliases\":{}}");
	(void)works(&super, "set_model_routing", "{\"aliases\":{}}");
}

static void what_routing_shows_can_be_put_back(void **s)
{
	(void)s;
	const json_t *row = works(&ada, "set_model_routing", "{\"allow\":[\"*\"]}");
	assert_true(json_is_false(js_get(row, "allowAll")));
	row = works(&ada, "set_model_routing", "{\"allow\":[\"*\"],\"allowAll\":false}");
	assert_int_equal(json_array_size(js_get(row, "allow")), 1);
	row = works(&ada, "set_model_routing", "{\"allow\":null,\"allowAll\":true}");
	assert_true(json_is_true(js_get(row, "allowAll")) && json_is_null(json_object_get(row, "allow")));
}

static void no_key_of_a_provider_is_in_what_it_said(void **s) /* SEC-6 */
{
	(void)s;
	(void)works(&ada, "create_provider",
	    "{\"name\":\"said\"," AT "," ONE ",\"keys\":[\"sk-secret-one\",\"sk-secret-two\"]}");
	static const char text[] = "sk-secret-one failed, sk-secret-two is revoked";
	auto_buf struct buf out = BUF(1000), small = BUF(4);
	const struct provider *p = provider(here, "said/m");
	assert_int_equal(catalog_redact(p, text, strlen(text), &out), 0);
	assert_null(strstr(buf_c(&out), "sk-secret"));
	assert_non_null(strstr(buf_c(&out), "is revoked"));
	assert_int_equal(catalog_redact(p, text, strlen(text), &small), -1);
}

static int64_t waits_for(struct catalog *c, const struct provider *p, const char *model)
{
	struct err e = { 0 };
	const struct provider_key *key;
	struct key_rest rest;
	if (keyring_take(c, p, model, NULL, &key, &rest, &e) == 0)
		return 0;
	assert_string_equal(e.reason, "keys_cooling");
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(e.retry_s >= 1 && (int64_t)e.retry_s * 1000 >= rest.ms);
	return rest.ms;
}
static int64_t waits(struct catalog *c, const struct provider *p)
{
	return waits_for(c, p, "m");
}

static void keys_are_used_in_turn_and_one_that_cools_is_passed_over(void **s) /* MOD-3 */
{
	(void)s;
	(void)works(
	    &ada, "create_provider", "{\"name\":\"r\"," AT "," ONE ",\"keys\":[\"k1\",\"k2\",\"k3\"]}");
	const struct provider *p = provider(here, "r/m");
	const struct provider_key *key, *before = NULL;
	struct err e = { 0 };
	struct key_rest rest;
	int seen[3] = { 0 };
	for (int i = 0; i < 9; i++) {
		assert_int_equal(keyring_take(here, p, "m", NULL, &key, &rest, &e), 0);
		assert_ptr_not_equal(key, before);
		before = key;
		seen[key - p->keys]++;
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(seen[i], 3);
	/* A conversation stays with its key while it can. */
	const struct provider_key *mine, *again;
	assert_int_equal(keyring_take(here, p, "m", "session-1", &mine, &rest, &e), 0);
	assert_int_equal(keyring_take(here, p, "m", "session-1", &again, &rest, &e), 0);
	assert_ptr_equal(mine, again);
	keyring_tell(here, p, mine, "m", KEY_LIMITED, 60000);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(keyring_take(here, p, "m", "session-1", &again, &rest, &e), 0);
		assert_ptr_not_equal(mine, again);
	}
	for (int i = 0; i < 3; i++)
		if (&p->keys[i] != mine)
			keyring_tell(here, p, &p->keys[i], "m", KEY_LIMITED, 30000 + 1000 * i);
	int64_t ms = waits(here, p);
	assert_true(ms > 15000 && ms <= 32000); /* the earliest return */
	const json_t *row = js_get(works(&ada, "get_provider", "{\"name\":\"r\"}"), "keys");
	assert_string_equal(js_str(json_array_get(row, 0), "state"), "cooling");
	assert_string_equal(js_str(json_array_get(row, 0), "why"), "limited");
}

static void hears(struct catalog *c, const struct provider *p, bool to_wait)
{
	for (int64_t end = clock_ms() + PATIENCE_MS; (waits(c, p) != 0) != to_wait && clock_ms() < end;)
		(void)usleep(1000);
	assert_int_equal(waits(c, p) != 0, to_wait);
}

static void a_cooldown_holds_in_every_process_and_only_grows(void **s) /* MOD-3 */
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"c\"," AT "," ONE ",\"keys\":[\"k1\"]}");
	becomes(there, "acme", "c/m", "acme:c/m");
	const struct provider *p = provider(here, "c/m"), *q = provider(there, "c/m");
	assert_int_equal(waits(there, q), 0);
	keyring_tell(here, p, &p->keys[0], "m", KEY_LIMITED, 50000);
	assert_true(waits(here, p) > 45000);
	hears(there, q, true);
	assert_true(waits(there, q) > 40000);
	/* Who hears less does not shorten it, and a success that began before does not end it. */
	keyring_tell(there, q, &q->keys[0], "m", KEY_FAULT, 1000);
	keyring_tell(there, q, &q->keys[0], "m", KEY_OK, 0);
	assert_true(waits(there, q) > 40000);
	assert_true(waits(here, p) > 40000);
	/* A process that starts reads it. */
	struct catalog *late = catalog_start(pgtest_conninfo(server), pool, keys, conf);
	assert_true(waits(late, provider(late, "c/m")) > 40000);
	catalog_stop(late);
	keyring_well(here, p, &p->keys[0], "m");
	assert_int_equal(waits(here, p), 0);
	hears(there, q, false);
}

static void what_one_model_is_refused_says_nothing_of_the_others(void **s) /* MOD-3 */
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"rests\"," AT "," ONE ",\"keys\":[\"k1\"]}");
	becomes(there, "acme", "rests/m", "acme:rests/m");
	const struct provider *p = provider(here, "rests/m"), *q = provider(there, "rests/m");
	keyring_tell(here, p, &p->keys[0], "m", KEY_REFUSED_MODEL, 0);
	keyring_tell(here, p, &p->keys[0], "n/x", KEY_OK, 0);
	assert_true(waits(here, p) > 800000 && waits_for(here, p, "n/x") == 0);
	hears(there, q, true);
	assert_true(waits(there, q) > 800000 && waits_for(there, q, "n/x") == 0);
	json_t *row = json_array_get(js_get(works(&ada, "get_provider", "{\"name\":\"rests\"}"), "keys"), 0);
	assert_string_equal(js_str(row, "state"), "ready");
	assert_string_equal(json_string_value(json_array_get(js_get(row, "restsFor"), 0)), "m");
	keyring_well(here, p, &p->keys[0], "m");
	hears(here, p, false), hears(there, q, false);
}

static void a_cooldown_doubles_with_each_fault_and_starts_anew_after_a_success(void **s)
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"d\"," AT "," ONE "}"); /* no key at all: the same */
	const struct provider *p = provider(here, "d/m");
	assert_null(p->keys[0].secret);
	for (int i = 0; i < 3; i++) {
		int64_t begun = clock_ms(), nominal = 200 << i;
		keyring_tell(here, p, &p->keys[0], "m", KEY_FAULT, 0);
		int64_t ms = waits(here, p);
		assert_true(ms <= nominal + 5 && ms + clock_ms() - begun >= nominal - 5);
		if (i == 2) { /* told of a call that began before: no further strike */
			keyring_tell(here, p, &p->keys[0], "m", KEY_FAULT, 0);
			assert_true(waits(here, p) <= nominal + 5);
		}
		while (waits(here, p) != 0)
			(void)usleep(5000); /* it returns by itself */
	}
	/* After three faults one at a time tries. */
	assert_true(waits(here, p) > 0);
	keyring_tell(here, p, &p->keys[0], "m", KEY_OK, 0);
	assert_int_equal(waits(here, p), 0);
	assert_int_equal(waits(here, p), 0);
	keyring_tell(here, p, &p->keys[0], "m", KEY_FAULT, 0);
	assert_true(waits(here, p) <= 205);
	keyring_well(here, p, &p->keys[0], "m");
	keyring_tell(here, p, &p->keys[0], "m", KEY_REFUSED, 0);
	assert_true(waits(here, p) > 800000);
}

static void with_postgresql_away_a_cooldown_holds_where_it_was_seen(void **s)
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"w\"," AT "," ONE "}");
	const struct provider *p = provider(here, "w/m");
	pgtest_down(server);
	keyring_tell(here, p, &p->keys[0], "m", KEY_LIMITED, 20000);
	assert_true(waits(here, p) > 15000);
	pgtest_up(server);
	becomes(here, "acme", "w/m", "acme:w/m");
	becomes(there, "acme", "w/m", "acme:w/m");
}

static void providers_keys_are_sealed_anew_like_everything_else(void **s) /* SEC-6 */
{
	(void)s;
	(void)works(&ada, "create_provider", "{\"name\":\"z\"," AT "," ONE ",\"keys\":[\"sk-secret-z\"]}");
	struct err e = { 0 };
	struct reseal_sum sum;
	struct seal_info info[2 * SEAL_KEYS_MAX];
	int n = seal_list(keys, info);
	char two[140];
	(void)snprintf(two, sizeof two, "%064d\n%064d\n", 1, 2);
	assert_int_equal(file_write(key_file, two, strlen(two), 0600, &e), 0);
	assert_int_equal(seal_reload(keys, &e), 0);
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(n, 1);
	assert_true(reseal_uses(db, info[0].id, &e) > 0);
	assert_int_equal(reseal_all(db, keys, NULL, NULL, &sum, &e), 0);
	assert_true(sum.done > 0);
	assert_int_equal(reseal_uses(db, info[0].id, &e), 0);
	catalog_forget(here, "acme");
	const struct provider *p = provider(here, "z/m");
	assert_string_equal(secret_use(p->keys[0].secret), "sk-secret-z");
}

static int up(void **s)
{
	(void)s;
	struct err e = { 0 };
	char text[140];
	http_setup();
	server = pgtest_start();
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('acme'), ('other')");
	(void)snprintf(dir, sizeof dir, "/tmp/ghmodels.XXXXXX");
	assert_non_null(mkdtemp(dir));
	(void)snprintf(key_file, sizeof key_file, "%s/key", dir);
	(void)snprintf(conf_file, sizeof conf_file, "%s/conf", dir);
	(void)snprintf(text, sizeof text, "%064d\n", 1);
	assert_int_equal(file_write(key_file, text, strlen(text), 0600, &e), 0);
	static const char lines[] = "MODEL_INWARD_HOSTS=127.0.0.1:18099 10.1.2.3\n";
	assert_int_equal(file_write(conf_file, lines, strlen(lines), 0600, &e), 0);
	conf = conf_load(conf_file, &e);
	assert_non_null(conf);
	keys = seal_load(key_file, &e);
	assert_non_null(keys);
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	here = catalog_start(pgtest_conninfo(server), pool, keys, conf);
	there = catalog_start(pgtest_conninfo(server), pool, keys, conf);
	return 0;
}

static int down(void **s)
{
	(void)s;
	catalog_stop(here);
	catalog_stop(there);
	pg_pool_free(pool);
	seal_free(keys);
	conf_free(conf);
	pgtest_end(server);
	(void)unlink(key_file);
	(void)unlink(conf_file);
	return rmdir(dir);
}

static int begin(void **s)
{
	(void)s;
	mem = mem_new();
	return 0;
}

static int end(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_key_is_in_no_answer_and_sealed_in_its_row),
		TEST(what_cannot_be_is_refused_by_name),
		TEST(a_key_does_not_follow_its_provider_to_another_host),
		TEST(an_org_sees_its_own_and_of_the_deployments_only_what_it_may_call),
		TEST(a_change_holds_in_every_process_at_once),
		TEST(an_alias_that_leads_nowhere_is_refused),
		TEST(what_routing_shows_can_be_put_back),
		TEST(no_key_of_a_provider_is_in_what_it_said),
		TEST(keys_are_used_in_turn_and_one_that_cools_is_passed_over),
		TEST(a_cooldown_holds_in_every_process_and_only_grows),
		TEST(what_one_model_is_refused_says_nothing_of_the_others),
		TEST(a_cooldown_doubles_with_each_fault_and_starts_anew_after_a_success),
		TEST(with_postgresql_away_a_cooldown_holds_where_it_was_seen),
		TEST(providers_keys_are_sealed_anew_like_everything_else),
	};
	return cmocka_run_group_tests(tests, up, down);
}
