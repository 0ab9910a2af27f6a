#include "../t.h"

#include "../same.h"

#include <string.h>

#include "../pgtest.h"
#include "auth/cred.h"
#include "base/js.h"
#include "base/str.h"

extern const struct op keys_ops[];

static struct pgtest *server;
static struct pg_pool *pool;
static struct mem *mem; /* of the test */

static const struct principal admin = {
	.kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "*", .org_admin = true
};
static const struct principal other = {
	.kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "*", .org_admin = true
};
static const struct principal narrow = {
	.kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "keys git", .org_admin = true
};

/* An op as the server calls it: authorised, its input checked, its reply checked against its own schema. NULL with e. */
static json_t *call(const struct principal *who, const char *id, const char *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ keys_ops, NULL }, id);
	assert_non_null(op);
	struct reply reply = { 0 };
	struct ctx c = { .mem = mem, .db = pool, .who = who, .reply = &reply, .request_id = "req_1" };
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

static enum err_code refused(
    const struct principal *who, const char *id, const char *input, const char *param)
{
	struct err e;
	assert_null(call(who, id, input, &e));
	assert_string_equal(e.param, param);
	return e.code;
}

static const struct principal *principal(const char *key)
{
	struct err e = { 0 };
	const struct principal *who = NULL;
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(principal_of(mem, db, key, &who, &e), 0);
	return who;
}

static void a_key_is_made_listed_without_its_secret_and_revoked(void **s) /* ID-6 */
{
	(void)s;
	struct err e;
	const json_t *made = call(&admin, "create_key",
	    "{\"name\":\"ci\",\"scopes\":[\"coding\",\"git\"],\"expiresAt\":\"2036-02-29T12:00:00Z\"}", &e);
	assert_non_null(made);
	const char *key = js_str(made, "key"), *id = js_str(made, "id");
	assert_string_equal(js_str(made, "user"), "ci");
	assert_string_equal(js_str(made, "expiresAt"), "2036-02-29T12:00:00.000Z");
	const struct principal *who = principal(key);
	assert_non_null(who);
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->scopes, "coding git");
	assert_false(who->org_admin);

	const json_t *list = call(&admin, "list_keys", "{}", &e);
	assert_non_null(list);
	const json_t *row = json_array_get(json_object_get(list, "data"), 0);
	assert_string_equal(js_str(row, "id"), id);
	assert_null(strstr(js_dump(mem, list), strchr(key + 3, '_')));

	char *input = mem_fmt(mem, "{\"id\":\"%s\"}", id);
	assert_non_null(call(&admin, "revoke_key", input, &e));
	assert_null(principal(key));
	assert_int_equal(refused(&admin, "revoke_key", input, ""), ERR_NOT_FOUND);
	(void)call(&admin, "revoke_key", input, &e);
	assert_string_equal(e.msg, "There is no such key.");
	list = call(&admin, "list_keys", "{}", &e);
	assert_null(strstr(js_dump(mem, list), id));
}

static const json_t *rotated(const char *id, int grace_s)
{
	struct err e;
	const json_t *v = call(
	    &admin, "rotate_key", mem_fmt(mem, "{\"id\":\"%s\",\"graceSec\":%d}", id, grace_s), &e);
	if (v == NULL)
		fail_msg("%s", e.msg);
	return v;
}

static void a_rotated_key_has_a_new_secret_and_the_same_rights(void **s) /* ID-6 */
{
	(void)s;
	struct err e;
	const json_t *made = call(&admin, "create_key",
	    "{\"name\":\"ci\",\"user\":\"eve\",\"scopes\":[\"git\"],\"expiresAt\":\"2036-02-29T12:00:00Z\"}",
	    &e);
	const char *id = js_str(made, "id"), *first = js_str(made, "key");
	const json_t *again = rotated(id, 0);
	const char *second = js_str(again, "key");
	assert_string_equal(js_str(again, "id"), id);
	assert_string_equal(js_str(again, "user"), "eve");
	assert_string_equal(js_str(again, "expiresAt"), "2036-02-29T12:00:00.000Z");
	assert_null(js_str(again, "oldValidUntil"));
	assert_string_not_equal(first, second);
	assert_memory_equal(first, second, 30); /* gk_<tail>_ */
	assert_null(principal(first));
	assert_string_equal(principal(second)->scopes, "git");
	assert_null(strstr(js_dump(mem, call(&admin, "list_keys", "{}", &e)), strrchr(second, '_')));
}

static void the_secret_before_a_rotation_counts_for_the_grace_and_only_that_one(void **s) /* ID-6 */
{
	(void)s;
	struct err e;
	const json_t *made = call(&admin, "create_key", "{\"name\":\"ci\"}", &e);
	const char *id = js_str(made, "id"), *first = js_str(made, "key");
	const json_t *v = rotated(id, 600);
	const char *second = js_str(v, "key");
	assert_non_null(js_str(v, "oldValidUntil"));
	assert_non_null(principal(first));
	assert_non_null(principal(second));
	const char *third = js_str(rotated(id, 600), "key");
	assert_null(principal(first));
	assert_non_null(principal(second));
	assert_non_null(principal(third));
	pgtest_sql(
	    server, mem_fmt(mem, "UPDATE credentials SET old_until = clock_timestamp() WHERE id = '%s'", id));
	assert_null(principal(second));
	assert_non_null(principal(third));
	const char *fourth = js_str(rotated(id, 600), "key");
	assert_non_null(principal(third));
	assert_non_null(call(&admin, "revoke_key", mem_fmt(mem, "{\"id\":\"%s\"}", id), &e));
	assert_null(principal(third)); /* an end is the end of both */
	assert_null(principal(fourth));
}

static void the_grace_ends_with_the_key_itself(void **s)
{
	(void)s;
	struct err e;
	const json_t *made = call(&admin, "create_key", "{\"name\":\"ci\"}", &e);
	const char *id = js_str(made, "id");
	pgtest_sql(server,
	    mem_fmt(mem,
		"UPDATE credentials SET expires_at = clock_timestamp() + interval '9 s' WHERE id = '%s'",
		id));
	const json_t *v = rotated(id, 600);
	assert_string_equal(js_str(v, "oldValidUntil"), js_str(v, "expiresAt"));
}

static void who_may_not_have_a_keys_rights_is_not_given_its_secret(void **s) /* ID-3, ID-4, ID-6 */
{
	(void)s;
	struct err e, e2;
	struct principal user = admin;
	user.org_admin = false;
	const json_t *made = call(&admin, "create_key", "{\"name\":\"wide\"}", &e);
	const char *id = js_str(made, "id"), *key = js_str(made, "key"),
		   *in = mem_fmt(mem, "{\"id\":\"%s\"}", id);
	assert_int_equal(refused(&user, "rotate_key", in, ""), ERR_FORBIDDEN);
	assert_int_equal(refused(&narrow, "rotate_key", in, ""), ERR_FORBIDDEN);
	assert_null(call(&other, "rotate_key", in, &e));
	assert_null(call(&other, "rotate_key", "{\"id\":\"key_00000000000000000000000000\"}", &e2));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	same_error(&e, &e2);
	assert_null(call(&admin, "rotate_key", "{\"id\":\"key_x' OR true --\"}", &e2));
	same_error(&e, &e2);
	assert_non_null(principal(key));
	const json_t *slim = call(&admin, "create_key", "{\"name\":\"slim\",\"scopes\":[\"git\"]}", &e);
	assert_non_null(call(&narrow, "rotate_key", mem_fmt(mem, "{\"id\":\"%s\"}", js_str(slim, "id")), &e));
	pgtest_sql(server,
	    mem_fmt(mem, "UPDATE credentials SET expires_at = clock_timestamp() WHERE id = '%s'", id));
	assert_int_equal(refused(&admin, "rotate_key", in, ""), ERR_CONFLICT);
	assert_int_equal(
	    refused(&admin, "rotate_key", mem_fmt(mem, "{\"id\":\"%s\",\"graceSec\":-1}", id), "graceSec"),
	    ERR_BAD_REQUEST);
}

static void another_orgs_key_answers_like_none(void **s) /* ID-4 */
{
	(void)s;
	struct err e, e2;
	const json_t *made = call(&admin, "create_key", "{\"name\":\"mine\"}", &e);
	assert_null(call(&other, "revoke_key", mem_fmt(mem, "{\"id\":\"%s\"}", js_str(made, "id")), &e));
	assert_null(call(&other, "revoke_key", "{\"id\":\"key_00000000000000000000000000\"}", &e2));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	same_error(&e, &e2);
	assert_non_null(principal(js_str(made, "key")));
	const json_t *list = call(&other, "list_keys", "{}", &e);
	assert_int_equal(json_array_size(json_object_get(list, "data")), 0);
}

static void only_admins_and_only_what_they_hold(void **s) /* ID-3, ID-6 */
{
	(void)s;
	struct err e;
	struct principal user = admin;
	user.org_admin = false;
	assert_int_equal(refused(&user, "create_key", "{\"name\":\"x\"}", ""), ERR_FORBIDDEN);
	assert_int_equal(refused(&user, "list_keys", "{}", ""), ERR_FORBIDDEN);
	assert_int_equal(refused(&user, "revoke_key", "{\"id\":\"x\"}", ""), ERR_FORBIDDEN);
	assert_int_equal(refused(NULL, "create_key", "{\"name\":\"x\"}", ""), ERR_UNAUTHORIZED);
	assert_int_equal(refused(&narrow, "create_key", "{\"name\":\"x\"}", "scopes"), ERR_FORBIDDEN);
	assert_int_equal(
	    refused(&narrow, "create_key", "{\"name\":\"x\",\"scopes\":[\"git\",\"coding\"]}", "scopes"),
	    ERR_FORBIDDEN);
	const json_t *made = call(&narrow, "create_key",
	    "{\"name\":\"x\",\"user\":\"eve\",\"admin\":true,\"scopes\":[\"git\"]}", &e);
	assert_non_null(made);
	const struct principal *who = principal(js_str(made, "key"));
	assert_true(who->org_admin);
	assert_false(who->super_admin);
	assert_string_equal(who->user, "eve");
}

static void a_scope_said_twice_is_held_once(void **s)
{
	(void)s;
	struct err e;
	const json_t *made = call(&admin, "create_key",
	    "{\"name\":\"J\\u00f6rg 2\",\"scopes\":[\"git\",\"git\",\"coding\",\"git\"]}", &e);
	assert_non_null(made);
	assert_int_equal(json_array_size(json_object_get(made, "scopes")), 2);
	assert_string_equal(principal(js_str(made, "key"))->scopes, "git coding");
}

static void bad_input_names_its_field(void **s) /* HTTP-3 */
{
	(void)s;
	static const char *const rows[][2] = { { "{}", "name" }, { "{\"name\":\"\"}", "name" },
		{ "{\"name\":7}", "name" }, { "{\"name\":\"  \"}", "name" },
		{ "{\"name\":\"a\\nb\"}", "name" }, { "{\"name\":\"\\u001b[31m\"}", "name" },
		{ "{\"name\":\"\\u0085\"}", "name" }, { "{\"name\":\"\\u00a0\\u3000\"}", "name" },
		{ "{\"name\":\"x\",\"user\":\"\\t\"}", "user" },
		{ "{\"name\":\"x\",\"org\":\"admin\"}", "org" },
		{ "{\"name\":\"x\",\"scopes\":[]}", "scopes" },
		{ "{\"name\":\"x\",\"scopes\":[\"node\"]}", "scopes[0]" },
		{ "{\"name\":\"x\",\"scopes\":\"*\"}", "scopes" },
		{ "{\"name\":\"x\",\"admin\":\"yes\"}", "admin" },
		{ "{\"name\":\"x\",\"expiresAt\":\"tomorrow\"}", "expiresAt" },
		{ "{\"name\":\"x\",\"expiresAt\":\"2036-02-30T12:00:00Z\"}", "expiresAt" },
		{ "{\"name\":\"x\",\"expiresAt\":\"1999-12-31T23:59:59Z\"}", "expiresAt" },
		{ "{\"name\":\"x\",\"expiresAt\":\"0000-01-01T00:00:00Z\"}", "expiresAt" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_int_equal(refused(&admin, "create_key", rows[i][0], rows[i][1]), ERR_BAD_REQUEST);
	assert_int_equal(refused(&admin, "list_keys", "{\"cursor\":\"x\"}", "cursor"), ERR_BAD_REQUEST);
}

static void lists_page_without_gaps_or_repeats(void **s) /* HTTP-6 */
{
	(void)s;
	struct err e;
	for (int i = 0; i < 5; i++)
		assert_non_null(call(&other, "create_key", mem_fmt(mem, "{\"name\":\"k%d\"}", i), &e));
	const char *cursor = NULL;
	char last[ID_MAX] = "l"; /* sorts after every id */
	int seen = 0, pages = 0;
	do {
		char *input = cursor == NULL ? mem_str(mem, "{\"limit\":2}")
					     : mem_fmt(mem, "{\"limit\":2,\"cursor\":\"%s\"}", cursor);
		const json_t *page = call(&other, "list_keys", input, &e), *row;
		assert_non_null(page);
		size_t i;
		json_array_foreach(json_object_get(page, "data"), i, row) {
			assert_true(strcmp(js_str(row, "id"), last) < 0);
			memcpy(last, js_str(row, "id"), strlen(js_str(row, "id")) + 1);
			seen++;
		}
		cursor = js_str(page, "next");
		pages++;
	} while (cursor != NULL);
	assert_int_equal(seen, 5);
	assert_int_equal(pages, 3);
}

static int start_server(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 2, 60000);
	mem = mem_new();
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	return org_create(db, "acme", &e) + org_create(db, "other", &e);
}

static int end_server(void **s)
{
	(void)s;
	mem_free(mem);
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_is_made_listed_without_its_secret_and_revoked),
		cmocka_unit_test(a_rotated_key_has_a_new_secret_and_the_same_rights),
		cmocka_unit_test(the_secret_before_a_rotation_counts_for_the_grace_and_only_that_one),
		cmocka_unit_test(the_grace_ends_with_the_key_itself),
		cmocka_unit_test(who_may_not_have_a_keys_rights_is_not_given_its_secret),
		cmocka_unit_test(another_orgs_key_answers_like_none),
		cmocka_unit_test(only_admins_and_only_what_they_hold),
		cmocka_unit_test(a_scope_said_twice_is_held_once),
		cmocka_unit_test(bad_input_names_its_field),
		cmocka_unit_test(lists_page_without_gaps_or_repeats),
	};
	return cmocka_run_group_tests_name("keys", tests, start_server, end_server);
}
