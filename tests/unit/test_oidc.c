/* Tokens of an identity provider as credentials (ID-1): whom they name, and keys that come, go, and cannot be fetched. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../issuer.h"
#include "../pgtest.h"
#include "auth/cred.h"
#include "auth/oidc.h"
#include "base/clock.h"
#include "base/js.h"
#include "io/file.h"
#include "io/http.h"

/* What oidc.c promises, and what a test waits for something that must happen: the machine may be busy. */
enum { GAP_MS = 5000, WAIT_MS = 2000 };

static struct pgtest *server;
static struct pg_pool *pool;
static struct issuer_server *idp;
static struct issuer_key rsa, ec;
static struct conf *conf;
static char dir[64], file[80];

/* ---- a request with an Authorization header and nothing else */

struct fake {
	struct reply reply;
	const char *header;
};
static const char *param(struct reply *r, const char *name)
{
	return strcmp(name, "HTTP_AUTHORIZATION") == 0 ? ((struct fake *)r)->header : NULL;
}
static const struct reply_vt vt = { .param = param };

/* The principal, NULL for nobody; e says what could not be found out. */
static const struct principal *ask(struct mem *m, const char *path, const char *header, struct err *e)
{
	struct fake f = { .reply.vt = &vt, .header = header };
	struct ctx c = { .mem = m, .db = pool, .reply = &f.reply, .path = path, .method = "GET" };
	const struct principal *who = NULL;
	err_clear(e);
	int rc = principal_identify(&c, &who, e);
	assert_int_equal(rc, e->code == ERR_NONE ? 0 : -1);
	return who;
}

/* As a client does: who is told to come again does so, e.g. while the first fetch is slow. */
static const struct principal *with(struct mem *m, const char *token)
{
	struct err e = { 0 };
	const char *header = mem_fmt(m, "Bearer %s", token);
	const struct principal *who = ask(m, "/v1/x", header, &e);
	for (int64_t until = clock_ms() + PATIENCE_MS; e.code == ERR_UNAVAILABLE && clock_ms() < until;) {
		(void)poll(NULL, 0, 20);
		who = ask(m, "/v1/x", header, &e);
	}
	if (e.code != ERR_NONE)
		fail_msg("%s", e.msg);
	return who;
}

/* The same, answered at the first go. */
static const struct principal *at_once(struct mem *m, const char *token)
{
	struct err e = { 0 };
	const struct principal *who = ask(m, "/v1/x", mem_fmt(m, "Bearer %s", token), &e);
	if (e.code != ERR_NONE)
		fail_msg("%s", e.msg);
	return who;
}

static const char *token(struct mem *m, const struct issuer_key *k, json_t *claims)
{
	auto_json json_t *c = claims, *h = issuer_head(k);
	return issuer_token(m, k, h, c);
}

static json_t *claims(const char *org, const char *user)
{
	return issuer_claims(issuer_url(idp), "gatehouse", org, user);
}

/* ---- the issuer's settings */

static void begin(const char *more)
{
	char text[1024];
	struct err e = { 0 };
	int n = snprintf(
	    text, sizeof text, "OIDC_ISSUER=%s\nOIDC_AUDIENCE=gatehouse\n%s", issuer_url(idp), more);
	assert_int_equal(file_write(file, text, (size_t)n, 0600, &e), 0);
	conf = conf_load(file, &e);
	if (conf == NULL || oidc_start(conf, &e) != 0)
		fail_msg("%s", e.msg);
}

static int end(void **s)
{
	(void)s;
	oidc_stop();
	conf_free(conf);
	conf = NULL;
	issuer_set_mode(idp, ISSUER_OK);
	char keys[100];
	(void)snprintf(keys, sizeof keys, "%s/jwks", issuer_url(idp));
	issuer_discovery(idp, js_pack("{s:s, s:s}", "issuer", issuer_url(idp), "jwks_uri", keys));
	issuer_publish_keys(idp, &rsa, &ec, NULL);
	return 0;
}

static void until_accepted(const char *t)
{
	int64_t until = clock_ms() + PATIENCE_MS;
	for (;;) {
		struct err e = { 0 };
		auto_mem struct mem *m = mem_new();
		if (ask(m, "/v1/x", mem_fmt(m, "Bearer %s", t), &e) != NULL)
			return;
		if (clock_ms() > until)
			fail_msg("not accepted: %s", e.msg);
		(void)poll(NULL, 0, 20);
	}
}

/* ---- whom a token names */

static void a_token_names_its_org_and_user(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_ADMIN_GROUP=ops\n");
	const struct principal *who = with(
	    m, token(m, &rsa, claims("acme", "ada"))); /* waits for the first fetch */
	assert_non_null(who);
	assert_int_equal(who->kind, CRED_OIDC);
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->user, "ada");
	assert_false(who->org_admin || who->super_admin);
	assert_true(principal_scope(who, "coding"));
	assert_true(principal_may_stop(who, "acme", "ada"));
	assert_false(principal_may_stop(who, "acme", "bob"));
	assert_false(principal_may_stop(who, "other", "ada"));
	assert_non_null(with(m, token(m, &ec, claims("acme", "ada"))));
	/* git sends it as a password; the API does not take it so. */
	struct err e = { 0 };
	const char *plain = mem_fmt(m, "x:%s", token(m, &rsa, claims("acme", "ada")));
	char *b64 = mem_alloc(m, B64_SIZE(strlen(plain)));
	(void)b64_encode(plain, strlen(plain), b64);
	assert_non_null(ask(m, "/v1/git/acme/app.git/info/refs", mem_fmt(m, "Basic %s", b64), &e));
	assert_null(ask(m, "/v1/keys", mem_fmt(m, "Basic %s", b64), &e));
}

static void an_org_that_does_not_exist_and_a_claim_that_names_nobody_are_refused(void **s)
{
	(void)s;
	static const char *const rows[][2] = { { "org", "\"nobodys\"" }, { "org", "\"ACME\"" },
		{ "org", "\"\"" }, { "org", "\"acme' OR true\"" }, { "org", "[\"acme\"]" }, { "org", "null" },
		{ "org", NULL }, { "sub", "\"\"" }, { "sub", "\"  \"" }, { "sub", "\"a\\nb\"" },
		{ "sub", "7" }, { "sub", NULL },
		{ "sub",
		    "\"12345678901234567890123456789012345678901234567890123456789012345678901234567890x"
		    "\"" } };
	auto_mem struct mem *m = mem_new();
	begin("");
	assert_non_null(with(m, token(m, &rsa, claims("acme", "ada"))));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *c = claims("acme", "ada");
		(void)json_object_del(c, rows[i][0]);
		if (rows[i][1] != NULL)
			js_set(c, rows[i][0], json_loads(rows[i][1], JSON_DECODE_ANY, NULL));
		assert_null(with(m, token(m, &rsa, c)));
	}
}

static const struct principal *of_groups(struct mem *m, const char *org, const char *json)
{
	json_t *c = claims(org, "ada");
	js_set(c, "roles", json_loads(json, JSON_DECODE_ANY, NULL));
	return with(m, token(m, &rsa, c));
}

static void the_admin_group_makes_an_admin_of_that_org_and_nothing_more(void **s) /* ID-3 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_ADMIN_GROUP=ops\nOIDC_GROUPS_CLAIM=roles\n");
	static const char *const yes[] = { "\"ops\"", "[\"dev\",\"ops\"]" };
	static const char *const no[] = { "\"ops2\"", "[\"Ops\",\"dev\"]", "[]", "null", "true",
		"{\"ops\":true}", "[[\"ops\"]]", "\"\"", "[\"\"]" };
	for (size_t i = 0; i < 2; i++) {
		const struct principal *who = of_groups(m, "acme", yes[i]);
		assert_true(who->org_admin && !who->super_admin);
		assert_true(principal_org_admin(who, "acme") && !principal_org_admin(who, "other"));
	}
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		assert_false(of_groups(m, "acme", no[i])->org_admin);
	/* Nobody of the reserved org, in whatever group: it could make keys that rule the service. */
	assert_null(of_groups(m, "admin", "\"ops\""));
	assert_null(of_groups(m, "admin", "[]"));
}

static void without_an_admin_group_nobody_is_an_admin(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_GROUPS_CLAIM=roles\n");
	assert_false(of_groups(m, "acme", "\"\"")->org_admin);
	assert_false(of_groups(m, "acme", "[\"\",\"admin\"]")->org_admin);
}

static void the_reserved_org_is_open_only_where_the_settings_say_so(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_ADMIN_GROUP=ops\nOIDC_GROUPS_CLAIM=roles\nOIDC_SUPER_ADMIN=yes\n");
	assert_true(of_groups(m, "admin", "\"ops\"")->super_admin);
	assert_false(of_groups(m, "admin", "\"dev\"")->super_admin);
	assert_false(of_groups(m, "acme", "\"ops\"")->super_admin);
}

static void the_claims_are_those_of_the_settings(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_ORG_CLAIM=https://acme.example/tenant\nOIDC_USER_CLAIM=email\n");
	json_t *c = claims("other", "not-this");
	js_set_str(c, "https://acme.example/tenant", "acme");
	js_set_str(c, "email", "ada@acme.example");
	const struct principal *who = with(m, token(m, &rsa, c));
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->user, "ada@acme.example");
}

/* ---- keys */

static void a_new_key_of_the_issuer_is_fetched_when_a_token_names_it(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct issuer_key fresh;
	issuer_key_make(&fresh, KEY_P256, "fresh");
	struct err e = { 0 };
	int64_t from = clock_ms();
	begin("");
	const char *old = token(m, &rsa, claims("acme", "ada")),
		   *new = token(m, &fresh, claims("acme", "ada"));
	assert_non_null(with(m, old));
	int before = issuer_asked(idp);
	assert_null(ask(m, "/v1/x", mem_fmt(m, "Bearer %s", new), &e));
	int asked = issuer_asked(idp);
	if (clock_ms() - from < GAP_MS) { /* the set is fresh: nobody has that key */
		assert_int_equal(e.code, ERR_NONE);
		assert_int_equal(asked, before);
	}
	issuer_publish_keys(idp, &fresh, NULL);
	until_accepted(new);
	assert_null(with(m, old)); /* withdrawn with the same fetch */
	assert_in_range(issuer_asked(idp) - before, 1, 1 + (clock_ms() - from) / GAP_MS);
	issuer_key_free(&fresh);
}

static void a_flood_of_unknown_keys_asks_the_issuer_every_few_seconds_at_most(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("");
	assert_non_null(with(m, token(m, &rsa, claims("acme", "ada"))));
	auto_json json_t *h = issuer_head(&rsa), *c = claims("acme", "ada");
	int before = issuer_asked(idp), asked = 0;
	int64_t from = clock_ms();
	for (; clock_ms() - from < GAP_MS + 2000 || asked <= 20 || issuer_asked(idp) == before; asked++) {
		struct err e = { 0 };
		assert_true(clock_ms() - from < PATIENCE_MS);
		auto_mem struct mem *one = mem_new();
		js_set_str(h, "kid", mem_fmt(one, "k%d", asked));
		assert_null(ask(one, "/v1/x", mem_fmt(one, "Bearer %s", issuer_token(one, &ec, h, c)), &e));
	}
	int fetched = issuer_asked(idp) - before;
	assert_in_range(fetched, 1, 1 + (clock_ms() - from) / GAP_MS);
	/* What is wrong in another way does not even count: once nothing is being fetched, and nobody is told to come again. */
	for (struct err e = { .code = ERR_UNAVAILABLE }; e.code != ERR_NONE;) {
		auto_mem struct mem *one = mem_new();
		assert_null(ask(one, "/v1/x", mem_fmt(one, "Bearer %s", issuer_token(one, &ec, h, c)), &e));
	}
	js_set_str(c, "aud", "another");
	before = issuer_asked(idp);
	for (int64_t until = clock_ms() + 6000; clock_ms() < until; (void)poll(NULL, 0, 50)) {
		auto_mem struct mem *one = mem_new();
		assert_null(with(one, issuer_token(one, &ec, h, c)));
	}
	assert_int_equal(issuer_asked(idp), before);
}

static void while_the_issuer_is_away_the_last_keys_count_for_their_time(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	begin("OIDC_KEYS_REFRESH_S=1\nOIDC_KEYS_STALE_S=4\n");
	const char *t = token(m, &rsa, claims("acme", "ada"));
	assert_non_null(with(m, t));
	/* A good fetch that was answered after `seen`: its keys count for 1 + 4 s from then, however slow everything is. */
	int64_t seen = clock_ms();
	for (int before = issuer_asked(idp); issuer_asked(idp) == before; (void)poll(NULL, 0, 10))
		assert_true(clock_ms() - seen < PATIENCE_MS);
	issuer_set_mode(idp, ISSUER_FAILS);
	const char *bearer = mem_fmt(m, "Bearer %s", t);
	const struct principal *who;
	int64_t down_ms = seen + 3500; /* failed fetches first, then none at all */
	do {
		who = ask(m, "/v1/x", bearer, &e);
		if (who == NULL)
			assert_true(clock_ms() - seen >= 5000);
		if (clock_ms() >= down_ms)
			issuer_set_mode(idp, ISSUER_DOWN);
		assert_true(clock_ms() - seen < PATIENCE_MS);
		(void)poll(NULL, 0, 20);
	} while (who != NULL);
	/* Then nobody can say: not refused, but asked to come again. */
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(e.retry_s > 0);
	issuer_set_mode(idp, ISSUER_OK);
	until_accepted(t);
}

static const char *unknown_key; /* "Bearer …" */

struct took {
	int64_t ms, counts_ms; /* by the clock, and by span.h */
};

static void *wait_for_unknown(void *arg)
{
	struct took *took = arg;
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	struct span from = span_begin();
	assert_null(ask(m, "/v1/x", unknown_key, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	took->ms = clock_ms() - from.began_ms;
	took->counts_ms = span_of(&from, took->ms);
	return NULL;
}

static void an_issuer_that_hangs_holds_up_two_requests_at_most_and_not_for_long(void **s)
{
	(void)s;
	enum { N = 8 };
	auto_mem struct mem *m = mem_new();
	pthread_t thread[N];
	struct took took[N];
	begin("");
	const char *known = token(m, &rsa, claims("acme", "ada"));
	assert_non_null(with(m, known));
	issuer_set_mode(idp, ISSUER_HANGS);
	auto_json json_t *h = issuer_head(&rsa), *c = claims("acme", "ada");
	js_set_str(h, "kid", "new");
	unknown_key = mem_fmt(m, "Bearer %s", issuer_token(m, &ec, h, c));
	(void)poll(NULL, 0, GAP_MS + 100); /* the set is no longer fresh */
	for (int i = 0; i < N; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, wait_for_unknown, &took[i]), 0);
	for (int64_t until = clock_ms() + 1500; clock_ms() < until;) {
		auto_mem struct mem *one = mem_new();
		struct span from = span_begin();
		assert_non_null(at_once(one, known));
		assert_in_range(span_ms(&from), 0, WAIT_MS - 1);
	}
	int slow = 0, surely = 0;
	for (int i = 0; i < N; i++) {
		(void)pthread_join(thread[i], NULL);
		assert_in_range(took[i].counts_ms, 0, 4900); /* the fetch itself is given up after 5 s */
		slow += took[i].ms >= WAIT_MS;               /* by its clock a wait is never shorter */
		surely += took[i].counts_ms >= WAIT_MS;
	}
	assert_true(slow >= 1 && surely <= 2);
}

static void a_set_without_a_usable_key_does_not_replace_one(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	begin("OIDC_KEYS_REFRESH_S=1\n");
	const char *t = token(m, &rsa, claims("acme", "ada"));
	assert_non_null(with(m, t));
	issuer_publish(idp, js_pack("{s:[]}", "keys"));
	for (int before = issuer_asked(idp); issuer_asked(idp) < before + 2;)
		assert_non_null(with(m, t));
}

/* ---- discovery and settings */

static void never_accepted(const char *t)
{
	struct err e = { 0 };
	for (int64_t until = clock_ms() + 1500; clock_ms() < until; (void)poll(NULL, 0, 50)) {
		auto_mem struct mem *m = mem_new();
		assert_null(ask(m, "/v1/x", mem_fmt(m, "Bearer %s", t), &e));
		assert_int_equal(e.code, ERR_UNAVAILABLE);
	}
}

static void a_discovery_document_is_believed_only_about_its_own_issuer_and_https(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *jwks = mem_fmt(m, "%s/jwks", issuer_url(idp)), *t = token(m, &rsa, claims("acme", "ada"));
	json_t *const bad[] = { js_pack("{s:s, s:s}", "issuer", "https://other.example", "jwks_uri", jwks),
		js_pack("{s:s, s:s}", "issuer", issuer_url(idp), "jwks_uri", "http://keys.example/jwks"),
		js_pack("{s:s, s:s}", "issuer", issuer_url(idp), "jwks_uri", "file:///etc/passwd"),
		js_pack("{s:s}", "issuer", issuer_url(idp)), js_pack("[]") };
	int before = issuer_asked(idp);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		issuer_discovery(idp, bad[i]);
		begin("");
		never_accepted(t);
		(void)end(NULL);
	}
	assert_int_equal(issuer_asked(idp), before);
	/* Where the settings name the key set, nothing is discovered. */
	issuer_discovery(idp, js_pack("{}"));
	begin(mem_fmt(m, "OIDC_JWKS_URL=%s\n", jwks));
	assert_non_null(with(m, t));
}

static void settings_that_do_not_fit_stop_the_start(void **s) /* RUN-1 */
{
	(void)s;
	static const char *const bad[] = { "OIDC_ISSUER=http://issuer.example\n", "OIDC_ISSUER=issuer\n",
		"OIDC_ISSUER=https://\n", "OIDC_ISSUER=https://u:p@issuer.example\n",
		"OIDC_ISSUER=https://issuer.example?x\n", "OIDC_ISSUER=http://127.0.0.1.evil.example\n",
		"OIDC_ISSUER=http://localhost.evil.example\n", "OIDC_JWKS_URL=ftp://issuer.example\n",
		"OIDC_SUPER_ADMIN=perhaps\n", "OIDC_ORG_CLAIM=\n", "OIDC_USER_CLAIM=\n",
		"OIDC_GROUPS_CLAIM=\n" };
	struct err e;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		e = (struct err){ 0 };
		assert_int_equal(file_write(file, bad[i], strlen(bad[i]), 0600, &e), 0);
		struct conf *c = conf_load(file, &e);
		if (c != NULL)
			fail_msg("%s", bad[i]);
		assert_non_null(strstr(e.msg, "OIDC_"));
	}
	/* One that needs another. */
	static const char *const half[][2] = {
		{ "OIDC_ISSUER=https://issuer.example/realms/a\n", "OIDC_AUDIENCE must be set" },
		{ "OIDC_AUDIENCE=x\n", "OIDC_AUDIENCE is set and OIDC_ISSUER is not" },
		{ "OIDC_JWKS_URL=https://issuer.example/keys\n", "OIDC_JWKS_URL is set" },
		{ "OIDC_ADMIN_GROUP=ops\n", "OIDC_ADMIN_GROUP is set" },
	};
	for (size_t i = 0; i < sizeof half / sizeof *half; i++) {
		e = (struct err){ 0 };
		assert_int_equal(file_write(file, half[i][0], strlen(half[i][0]), 0600, &e), 0);
		struct conf *c = conf_load(file, &e);
		assert_non_null(c);
		assert_int_equal(oidc_start(c, &e), -1);
		assert_non_null(strstr(e.msg, half[i][1]));
		conf_free(c);
	}
}

static void without_an_issuer_no_token_counts(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	assert_null(with(m, token(m, &rsa, claims("acme", "ada"))));
}

static int start_all(void **s)
{
	(void)s;
	struct err e = { 0 };
	http_setup();
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	idp = issuer_serve();
	issuer_key_make(&rsa, KEY_RSA, "rsa");
	issuer_key_make(&ec, KEY_P256, "ec");
	issuer_publish_keys(idp, &rsa, &ec, NULL);
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0)
		return -1;
	(void)snprintf(file, sizeof file, "%s/conf", dir);
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	return org_create(db, "acme", &e) + org_create(db, "other", &e);
}

static int end_all(void **s)
{
	(void)s;
	struct err e = { 0 };
	issuer_end(idp);
	issuer_key_free(&rsa);
	issuer_key_free(&ec);
	pg_pool_free(pool);
	pgtest_end(server);
	return file_rmtree(dir, &e);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, NULL, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_an_issuer_no_token_counts),
		cmocka_unit_test(settings_that_do_not_fit_stop_the_start),
		T(a_token_names_its_org_and_user),
		T(an_org_that_does_not_exist_and_a_claim_that_names_nobody_are_refused),
		T(the_admin_group_makes_an_admin_of_that_org_and_nothing_more),
		T(without_an_admin_group_nobody_is_an_admin),
		T(the_reserved_org_is_open_only_where_the_settings_say_so),
		T(the_claims_are_those_of_the_settings),
		T(a_new_key_of_the_issuer_is_fetched_when_a_token_names_it),
		T(a_flood_of_unknown_keys_asks_the_issuer_every_few_seconds_at_most),
		T(while_the_issuer_is_away_the_last_keys_count_for_their_time),
		T(an_issuer_that_hangs_holds_up_two_requests_at_most_and_not_for_long),
		T(a_set_without_a_usable_key_does_not_replace_one),
		T(a_discovery_document_is_believed_only_about_its_own_issuer_and_https),
	};
	return cmocka_run_group_tests_name("oidc", tests, start_all, end_all);
}
