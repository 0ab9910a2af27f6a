#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "auth/cred.h"
#include "auth/known.h"
#include "base/str.h"

static struct pgtest *server;
static struct pg_pool *pool;

/* ---- a request with headers and nothing else */

struct fake {
	struct reply reply;
	const char *const *params; /* name, value, …, NULL */
};

static const char *param(struct reply *r, const char *name)
{
	for (const char *const *p = ((struct fake *)r)->params; p != NULL && *p != NULL; p += 2)
		if (strcmp(p[0], name) == 0)
			return p[1];
	return NULL;
}
static const struct reply_vt vt = { .param = param };

static enum op_door door; /* where the requests come in */

static const struct principal *identify(struct mem *m, const char *path, const char *const *params)
{
	struct fake f = { .reply.vt = &vt, .params = params };
	struct ctx c = {
		.mem = m, .db = pool, .reply = &f.reply, .path = path, .method = "GET", .door = door
	};
	const struct principal *who = NULL;
	struct err e = { 0 };
	assert_int_equal(principal_identify(&c, &who, &e), 0);
	return who;
}

static const struct principal *with(struct mem *m, const char *path, const char *authorization)
{
	return identify(m, path, (const char *const[]){ "HTTP_AUTHORIZATION", authorization, NULL });
}

static const struct principal *bearer(struct mem *m, const char *credential)
{
	return with(m, "/v1/x", mem_fmt(m, "Bearer %s", credential));
}

/* A new credential's text, in the arena. */
static const char *make(struct mem *m, struct cred_new want, struct cred *got)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(cred_create(db, &want, got, &e), 0);
	auto_secret struct secret *text = got->text;
	return mem_str(m, secret_use(text));
}

static const struct cred_new ada = { .kind = CRED_KEY, .org = "acme", .user = "ada", .name = "laptop" };

static void a_key_gives_its_own_identity(void **s) /* ID-1 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = make(m, ada, &got);
	assert_true(str_starts(key, "gk_") && strlen(key) == 73);
	assert_string_equal(got.expires_at, "");
	const struct principal *who = bearer(m, key);
	assert_non_null(who);
	assert_int_equal(who->kind, CRED_KEY);
	assert_string_equal(who->cred_id, got.id);
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->user, "ada");
	assert_string_equal(who->scopes, "*");
	assert_false(who->org_admin || who->super_admin);
	assert_null(who->repo);
	assert_null(who->session);
	assert_non_null(with(m, "/v1/x", mem_fmt(m, "bearer   %s", key)));
}

static void only_the_hash_is_stored(void **s) /* ID-1 */
{
	(void)s;
	static const struct pg_stmt q_row = { "q_row",
		"SELECT row_to_json(c)::text FROM credentials c WHERE id = $1", 1 };
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = make(m, ada, &got), *secret = strchr(key + 3, '_') + 1;
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = PG(db, &q_row, &e, got.id);
	assert_non_null(r);
	char hex[SHA256_HEX];
	sha256_hex(secret, strlen(secret), hex);
	assert_null(strstr(pg_str(r, 0, 0), secret));
	assert_non_null(strstr(pg_str(r, 0, 0), hex));
}

static void identity_headers_of_a_client_have_no_effect(void **s) /* ID-2 */
{
	(void)s;
	static const char *const headers[][2] = { { "HTTP_X_ORG_ID", "admin" }, { "HTTP_X_ORG", "admin" },
		{ "HTTP_X_USER_ID", "root" }, { "HTTP_X_USER", "root" }, { "HTTP_X_USER_ISADMIN", "true" },
		{ "HTTP_X_USER_IS_ADMIN", "true" }, { "HTTP_X_ORG_ADMIN", "true" },
		{ "HTTP_X_SUPER_ADMIN", "true" }, { "HTTP_X_USER_EMAIL", "root@admin" },
		{ "HTTP_X_USER_ROLES", "admin" }, { "HTTP_X_SCOPES", "*" },
		{ "HTTP_X_FORWARDED_USER", "root" }, { "HTTP_X_REMOTE_USER", "root" },
		{ "HTTP_X_AUTH_REQUEST_USER", "root" }, { "HTTP_X_API_KEY", "gk_x" },
		{ "HTTP_X_TENANT_ID", "admin" }, { "HTTP_X_GATEHOUSE_ORG", "admin" },
		{ "HTTP_GATEHOUSE_DOOR", "internal" }, { "HTTP_REMOTE_USER", "root" },
		{ "HTTP_FROM", "root@admin" }, { "HTTP_COOKIE", "session=admin" } };
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = mem_fmt(m, "Bearer %s", make(m, ada, &got));
	for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
		const char *const alone[] = { headers[i][0], headers[i][1], NULL };
		const char *const both[] = { headers[i][0], headers[i][1], "HTTP_AUTHORIZATION", key, NULL };
		assert_null(identify(m, "/v1/x", alone));
		const struct principal *who = identify(m, "/v1/x", both);
		assert_non_null(who);
		assert_string_equal(who->cred_id, got.id);
		assert_string_equal(who->org, "acme");
		assert_string_equal(who->user, "ada");
		assert_string_equal(who->scopes, "*");
		assert_false(who->org_admin || who->super_admin);
	}
}

static void what_is_not_a_valid_credential_is_nobody(void **s) /* ID-1, ID-5 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got, other;
	const char *key = make(m, ada, &got), *key2 = make(m, ada, &other);
	char *wrong = mem_str(m, key), *unknown = mem_str(m, key), *kind = mem_str(m, key),
	     *mixed = mem_str(m, key);
	wrong[72] = wrong[72] == 'A' ? 'B' : 'A';
	unknown[28] = unknown[28] == '0' ? '1' : '0';
	kind[1] = 'g';
	memcpy(mixed + 30, key2 + 30, 43); /* the right id with another key's secret */
	const char *const bad[] = { wrong, unknown, kind, mixed, mem_fmt(m, "%sA", key), mem_strn(m, key, 72),
		"gk_", "gk__", "", "x", mem_fmt(m, "pk%s", key + 2), mem_fmt(m, " %s x", key), got.id };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_null(bearer(m, bad[i]));
	char *upper = mem_str(m, key);
	upper[5] = 'I'; /* not in the id's alphabet */
	assert_null(bearer(m, upper));
	assert_null(with(m, "/v1/x", key));
	assert_null(with(m, "/v1/x", "Bearer"));
	assert_null(with(m, "/v1/x", mem_fmt(m, "Token %s", key)));
	assert_null(with(m, "/v1/x", mem_fmt(m, "Bearer %13000s", key)));
	assert_non_null(bearer(m, key));
}

static void an_expired_key_is_nobody(void **s) /* ID-6 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	struct cred_new want = ada;
	want.expires_at = "2036-01-31T12:00:00.000Z";
	const char *key = make(m, want, &got);
	assert_string_equal(got.expires_at, "2036-01-31T12:00:00.000Z");
	assert_non_null(bearer(m, key));
	/* What another process changes is seen after KNOWN_MS; a key that ends within a second is looked up each time. */
	known_forget(got.id);
	pgtest_sql(server,
	    mem_fmt(m,
		"UPDATE credentials SET expires_at = clock_timestamp() + interval '900 ms' WHERE id = '%s'",
		got.id));
	(void)bearer(m, key);
	pgtest_sql(server,
	    mem_fmt(m, "UPDATE credentials SET expires_at = clock_timestamp() WHERE id = '%s'", got.id));
	assert_null(bearer(m, key));
}

static void a_revoked_key_is_refused_at_once_on_another_connection(void **s) /* ID-6 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = make(m, ada, &got);
	struct pg_pool *host2 = pg_pool_new(pgtest_conninfo(server), 1, 60000);
	struct err e = { 0 };
	struct pg *here = pg_take(pool, 60000, &e), *there = pg_take(host2, 1000, &e);
	const struct principal *who = NULL;
	assert_int_equal(principal_of(m, there, key, &who, &e), 0);
	assert_non_null(who);
	assert_int_equal(cred_revoke(here, "acme", CRED_KEY, got.id, &e), 0);
	assert_int_equal(principal_of(m, there, key, &who, &e), 0);
	assert_null(who);
	assert_int_equal(cred_revoke(here, "acme", CRED_KEY, got.id, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	pg_put(here);
	pg_put(there);
	pg_pool_free(host2);
}

/* ---- the door for the E2B SDK (ECO-1) */

static const struct principal *at_e2b(struct mem *m, const char *header, const char *value)
{
	door = DOOR_E2B;
	const struct principal *who = identify(m, "/sandboxes", (const char *const[]){ header, value, NULL });
	door = DOOR_PUBLIC;
	return who;
}

static enum err_code at_door(struct mem *m, const struct principal *who, unsigned flags)
{
	struct fake f = { .reply.vt = &vt };
	struct ctx c = {
		.mem = m, .db = pool, .reply = &f.reply, .path = "/x", .who = who, .door = DOOR_E2B
	};
	struct err e = { 0 };
	const struct op op = { .scope = "sandboxes", .flags = flags };
	(void)principal_authorise(&c, &op, &e);
	return e.code;
}

static void at_the_door_for_e2b_its_own_headers_count_and_only_there(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = make(m, ada, &got);
	assert_string_equal(at_e2b(m, "HTTP_X_API_KEY", key)->cred_id, got.id);
	assert_null(at_e2b(m, "HTTP_AUTHORIZATION", mem_fmt(m, "Bearer %s", key)));
	assert_null(at_e2b(m, "HTTP_X_API_KEY", mem_fmt(m, "Bearer %s", key)));
	assert_null(identify(m, "/v1/x", (const char *const[]){ "HTTP_X_API_KEY", key, NULL }));
	assert_null(identify(m, "/v1/x", (const char *const[]){ "HTTP_X_ACCESS_TOKEN", key, NULL }));
}

/* A running sandbox of acme's, and its token. */
static const char *token(struct mem *m, const char *id, const char *minted_by)
{
	struct cred got;
	pgtest_sql(server,
	    mem_fmt(m,
		"INSERT INTO nodes (name, instance, address, capacity) VALUES ('n1', 'i', 'unix:/x', 4) ON "
		"CONFLICT DO NOTHING;"
		"INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, "
		"iso_tier, node, "
		"workdir, created_by, expires_at) VALUES ('%s', 'acme', 'exec', 'running', 'host', '', "
		"false, 'none', 2, 'n1', "
		"'/mnt/data', 'ada', now() + interval '1 hour')",
		id));
	const struct cred_new want = { .kind = CRED_SANDBOX,
		.org = "acme",
		.user = "ada",
		.scopes = "sandboxes",
		.sandbox = id,
		.minted_by = minted_by,
		.ttl_s = 60 };
	return make(m, want, &got);
}

static void a_sandboxs_token_is_for_work_in_it_and_nothing_else(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *key = make(m, ada, &got), *box = token(m, "sbx_1", got.id);
	assert_true(str_starts(box, "gs_"));
	const struct principal *who = at_e2b(m, "HTTP_X_ACCESS_TOKEN", box),
			       *owner = at_e2b(m, "HTTP_X_API_KEY", key);
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->sandbox, "sbx_1");
	assert_false(who->over || who->org_admin || principal_is_user(who));
	assert_int_equal(at_door(m, who, OP_E2B | OP_BOX), ERR_NONE);
	assert_int_equal(at_door(m, who, OP_E2B), ERR_FORBIDDEN);
	assert_int_equal(at_door(m, who, 0), ERR_FORBIDDEN);
	assert_int_equal(at_door(m, owner, OP_E2B), ERR_NONE);
	assert_int_equal(at_door(m, owner, OP_E2B | OP_BOX), ERR_UNAUTHORIZED);
	assert_int_equal(at_door(m, NULL, OP_E2B | OP_BOX), ERR_UNAUTHORIZED);
	assert_int_equal(at_door(m, NULL, OP_E2B), ERR_UNAUTHORIZED);
	/* Whatever the native door makes of it, it opens nothing there. */
	assert_int_equal(at_door(m, bearer(m, box), 0), ERR_FORBIDDEN);
}

static void a_sandboxs_token_ends_with_the_sandbox_and_with_the_key_that_asked_for_it(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	(void)make(m, ada, &got);
	const char *box = token(m, "sbx_2", got.id), *other = token(m, "sbx_3", got.id);
	pgtest_sql(server, "UPDATE sandboxes SET status = 'ended', ended_at = now() WHERE id = 'sbx_2'");
	const struct principal *who = at_e2b(m, "HTTP_X_ACCESS_TOKEN", box);
	assert_true(who->over); /* its clients are told that the sandbox is over, not that they are nobody */
	assert_int_equal(at_door(m, who, OP_E2B | OP_BOX), ERR_UPSTREAM);
	assert_int_equal(at_door(m, at_e2b(m, "HTTP_X_ACCESS_TOKEN", other), OP_E2B | OP_BOX), ERR_NONE);
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(cred_revoke(db, "acme", CRED_KEY, got.id, &e), 0);
	assert_null(at_e2b(m, "HTTP_X_ACCESS_TOKEN", other));
	assert_null(at_e2b(m, "HTTP_X_ACCESS_TOKEN", box));
}

static void basic_is_for_git_and_pages_only(void **s) /* FRG-2 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *plain = mem_fmt(m, "anybody:%s", make(m, ada, &got));
	char *b64 = mem_alloc(m, B64_SIZE(strlen(plain)));
	(void)b64_encode(plain, strlen(plain), b64);
	const char *basic = mem_fmt(m, "Basic %s", b64);
	static const char *const yes[] = { "/v1/git/acme/app.git/info/refs", "/git/acme/app",
		"/v1/git/reposs/a.git/HEAD" };
	static const char *const no[] = { "/v1/keys", "/v1/git/repos", "/v1/git/repos/app", "/health",
		"/v1/gitx" };
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		assert_non_null(with(m, yes[i], basic));
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		assert_null(with(m, no[i], basic));
	static const char *const broken[] = { "Basic", "Basic ", "Basic !!!!", "Basic AAAA", "Basic YTpi",
		"Basic YQ==" };
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
		assert_null(with(m, yes[0], broken[i]));
	assert_non_null(with(m, yes[0], mem_fmt(m, "Bearer %s", plain + 8)));
}

static void a_grant_and_a_run_token_know_what_they_are_for(void **s) /* FRG-3, ID-1 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred g, t;
	const char *grant = make(m,
	    (struct cred_new){ .kind = CRED_GRANT,
		.org = "acme",
		.user = "ada",
		.repo = "app",
		.ref = "refs/heads/agent/x",
		.session = "ses_1",
		.ttl_s = 60,
		.org_admin = true },
	    &g);
	const char *token = make(m,
	    (struct cred_new){
		.kind = CRED_RUN_TOKEN, .org = "acme", .user = "ada", .session = "ses_1", .ttl_s = 60 },
	    &t);
	const struct principal *who = bearer(m, grant);
	assert_non_null(who);
	assert_true(str_starts(grant, "gg_") && str_starts(token, "gr_"));
	assert_int_equal(who->kind, CRED_GRANT);
	assert_string_equal(who->repo, "app");
	assert_string_equal(who->ref, "refs/heads/agent/x");
	assert_false(who->org_admin); /* of keys only, whatever the row says */
	who = bearer(m, token);
	assert_non_null(who);
	assert_string_equal(who->session, "ses_1");

	/* The end of the run is the end of both, and of nothing of another org. */
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(cred_revoke_session(db, "admin", "ses_1", &e), 0);
	assert_non_null(bearer(m, grant));
	assert_int_equal(cred_revoke_session(db, "acme", "ses_1", &e), 0);
	pg_put(db);
	assert_null(bearer(m, grant));
	assert_null(bearer(m, token));
}

/* ---- what may they do */

static enum err_code may(const struct principal *p, const char *scope, unsigned flags)
{
	struct ctx c = { .who = p };
	struct op op = { .id = "x", .scope = scope, .flags = flags };
	struct err e = { 0 };
	int rc = principal_authorise(&c, &op, &e);
	assert_int_equal(rc, e.code == ERR_NONE ? 0 : -1);
	return e.code;
}

static void scopes_and_admin_rights_decide(void **s) /* ID-3, ID-6 */
{
	(void)s;
	const struct principal user = { .org = "acme", .user = "u", .scopes = "coding sessions" };
	const struct principal admin = { .org = "acme", .user = "a", .scopes = "*", .org_admin = true };
	const struct principal super = {
		.org = "admin", .user = "s", .scopes = "*", .org_admin = true, .super_admin = true
	};
	assert_int_equal(may(NULL, "coding", 0), ERR_UNAUTHORIZED);
	assert_int_equal(may(NULL, "coding", OP_PUBLIC), ERR_NONE);
	assert_int_equal(may(NULL, "node", OP_INTERNAL), ERR_NONE);
	assert_int_equal(may(&user, "coding", 0), ERR_NONE);
	assert_int_equal(may(&user, "sessions", 0), ERR_NONE);
	assert_int_equal(may(&user, "session", 0), ERR_FORBIDDEN);
	assert_int_equal(may(&user, "keys", 0), ERR_FORBIDDEN);
	assert_int_equal(may(&user, "coding", OP_ADMIN), ERR_FORBIDDEN);
	assert_int_equal(may(&admin, "keys", OP_ADMIN), ERR_NONE);
	assert_int_equal(may(&admin, "keys", OP_SUPER), ERR_FORBIDDEN);
	assert_int_equal(may(&super, "keys", OP_SUPER), ERR_NONE);
}

static void grants_and_run_tokens_reach_only_what_they_are_for(void **s) /* FRG-3 */
{
	(void)s;
	const struct principal grant = {
		.kind = CRED_GRANT, .org = "acme", .user = "u", .scopes = "*", .repo = "a", .ref = "r"
	};
	const struct principal token = {
		.kind = CRED_RUN_TOKEN, .org = "acme", .user = "u", .scopes = "*", .session = "ses_1"
	};
	static const char *const scopes[] = { "sandboxes", "coding", "git", "sessions", "keys", "node" };
	for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
		assert_int_equal(may(&grant, scopes[i], 0), ERR_FORBIDDEN);
		assert_int_equal(may(&token, scopes[i], 0), ERR_FORBIDDEN);
		assert_int_equal(may(&token, scopes[i], OP_HIDDEN), ERR_FORBIDDEN);
	}
	assert_int_equal(may(&grant, "git", OP_HIDDEN), ERR_NONE);
	assert_int_equal(may(&grant, "sessions", OP_HIDDEN), ERR_FORBIDDEN);
	assert_int_equal(may(&token, "models", 0), ERR_NONE);
}

static void the_predicates_end_at_the_org(void **s) /* ID-3, COD-15 */
{
	(void)s;
	const struct principal user = { .org = "acme", .user = "u", .scopes = "*" };
	const struct principal admin = { .org = "acme", .user = "a", .scopes = "*", .org_admin = true };
	const struct principal super = {
		.org = "admin", .user = "s", .scopes = "*", .org_admin = true, .super_admin = true
	};
	assert_true(principal_member(&user, "acme"));
	assert_false(principal_member(&user, "acm"));
	assert_false(principal_member(NULL, "acme"));
	assert_true(principal_org_admin(&admin, "acme"));
	assert_false(principal_org_admin(&admin, "other"));
	assert_false(principal_org_admin(&super, "acme"));
	assert_true(principal_super(&super));
	assert_false(principal_super(&admin));
	assert_true(principal_may_stop(&user, "acme", "u"));
	assert_false(principal_may_stop(&user, "acme", "a"));
	assert_false(principal_may_stop(&user, "other", "u"));
	assert_true(principal_may_stop(&admin, "acme", "u"));
	assert_false(principal_may_stop(&admin, "other", "u"));
	assert_true(principal_may_stop(&super, "acme", "u"));
}

static void super_is_an_admin_key_of_the_org_admin(void **s) /* ID-3 */
{
	(void)s;
	static const struct {
		const char *org;
		bool admin, super;
	} rows[] = { { "admin", true, true }, { "admin", false, false }, { "acme", true, false } };
	auto_mem struct mem *m = mem_new();
	for (size_t i = 0; i < 3; i++) {
		struct cred got;
		const struct principal *who = bearer(m,
		    make(m,
			(struct cred_new){
			    .kind = CRED_KEY, .org = rows[i].org, .user = "u", .org_admin = rows[i].admin },
			&got));
		assert_non_null(who);
		assert_int_equal(who->super_admin, rows[i].super);
		assert_int_equal(who->org_admin, rows[i].admin);
	}
}

static void orgs_have_slugs_and_exist_once(void **s)
{
	(void)s;
	static const char *const bad[] = { "", "-a", "a-", "A", "a_b", "a b", "repos", "ü", "a.b", "a/b",
		"12345678901234567890123456789012345678901" };
	static const char *const good[] = { "a", "0", "a-b", "a--b",
		"1234567890123456789012345678901234567890" };
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		err_clear(&e);
		assert_int_equal(org_create(db, bad[i], &e), -1);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	}
	err_clear(&e);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_int_equal(org_create(db, good[i], &e), 0);
	assert_int_equal(org_create(db, "admin", &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	struct cred got;
	assert_int_equal(
	    cred_create(db, &(struct cred_new){ .kind = CRED_KEY, .org = "none", .user = "u" }, &got, &e),
	    -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_null(got.text);
}

static void without_the_database_nobody_is_called_invalid(void **s) /* REL-2 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct cred got;
	const char *const params[] = { "HTTP_AUTHORIZATION", mem_fmt(m, "Bearer %s", make(m, ada, &got)),
		NULL };
	struct fake f = { .reply.vt = &vt, .params = params };
	struct ctx c = { .mem = m, .db = pool, .reply = &f.reply, .path = "/v1/x" };
	const struct principal *who = NULL;
	struct err e = { 0 };
	pgtest_down(server);
	assert_int_equal(principal_identify(&c, &who, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	pgtest_up(server);
	err_clear(&e);
	assert_int_equal(principal_identify(&c, &who, &e), 0);
	assert_non_null(who);
}

static int start_server(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 2, 60000);
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	return org_create(db, "acme", &e);
}

static int end_server(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_gives_its_own_identity),
		cmocka_unit_test(only_the_hash_is_stored),
		cmocka_unit_test(identity_headers_of_a_client_have_no_effect),
		cmocka_unit_test(what_is_not_a_valid_credential_is_nobody),
		cmocka_unit_test(an_expired_key_is_nobody),
		cmocka_unit_test(a_revoked_key_is_refused_at_once_on_another_connection),
		cmocka_unit_test(at_the_door_for_e2b_its_own_headers_count_and_only_there),
		cmocka_unit_test(a_sandboxs_token_is_for_work_in_it_and_nothing_else),
		cmocka_unit_test(a_sandboxs_token_ends_with_the_sandbox_and_with_the_key_that_asked_for_it),
		cmocka_unit_test(basic_is_for_git_and_pages_only),
		cmocka_unit_test(a_grant_and_a_run_token_know_what_they_are_for),
		cmocka_unit_test(scopes_and_admin_rights_decide),
		cmocka_unit_test(grants_and_run_tokens_reach_only_what_they_are_for),
		cmocka_unit_test(the_predicates_end_at_the_org),
		cmocka_unit_test(super_is_an_admin_key_of_the_org_admin),
		cmocka_unit_test(orgs_have_slugs_and_exist_once),
		cmocka_unit_test(without_the_database_nobody_is_called_invalid),
	};
	return cmocka_run_group_tests_name("principal", tests, start_server, end_server);
}
