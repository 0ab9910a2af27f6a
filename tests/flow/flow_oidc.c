/* Tokens of an identity provider through nginx, on two api hosts (ID-1). */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../issuer.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/mem.h"
#include "io/file.h"
#include "judge.h"
#include "stack.h"

static struct stack st;
static struct stack_org ours, theirs;
static struct issuer_server *idp;
static struct issuer_key rsa, ec, stranger;

static const char *token_of(struct mem *m, const struct issuer_key *k, const char *org, bool admin)
{
	auto_json json_t *c = issuer_claims(issuer_url(idp), "gatehouse", org, "ada"), *h = issuer_head(k);
	if (admin)
		js_set(c, "groups", js_pack("[s]", "ops"));
	return issuer_token(m, k, h, c);
}

static void get(int api, const char *path, const char *key, struct web *w)
{
	struct web_req q = { .method = "GET", .path = path, .key = key, .api = api };
	web_do(&st, &q, w);
}

static long status(int api, const char *path, const char *key)
{
	auto_web struct web w = { 0 };
	get(api, path, key, &w);
	return w.status;
}

static void a_token_is_a_credential_like_a_key_on_every_host(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *member = token_of(m, &rsa, ours.slug, false), *admin = token_of(m, &ec, ours.slug, true);
	for (int api = 0; api < 2; api++) {
		assert_int_equal(status(api, "/v1/agents/sessions", member), 200);
		assert_int_equal(status(api, "/v1/keys", admin), 200);
		assert_int_equal(status(api, "/v1/keys", member), 403);
	}
	/* What it makes belongs to the org, and another org's members see nothing of it (ID-4). */
	auto_web struct web repo = { 0 }, none = { 0 }, foreign = { 0 };
	web_json(&st, "POST", "/v1/git/repos", member, js_pack("{s:s}", "name", "by-token"), &repo);
	assert_int_equal(repo.status, 201);
	assert_int_equal(status(0, "/v1/git/repos/by-token", ours.member), 200);
	get(1, "/v1/git/repos/by-token", token_of(m, &rsa, theirs.slug, true), &foreign);
	judge_refusal(&st, &foreign, 404);
	/* git sends it as a password. */
	const char *plain = mem_fmt(m, "ada:%s", member);
	char *b64 = mem_alloc(m, B64_SIZE(strlen(plain)));
	(void)b64_encode(plain, strlen(plain), b64);
	const char *const basic[] = { mem_fmt(m, "Authorization: Basic %s", b64), NULL };
	struct web_req q = { .method = "GET",
		.path = mem_fmt(m, "/v1/git/%s/by-token.git/info/refs?service=git-upload-pack", ours.slug),
		.headers = basic };
	web_do(&st, &q, &none);
	assert_int_equal(none.status, 200);
}

static void a_token_that_is_not_valid_is_answered_like_no_credential(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_web struct web nobody = { 0 };
	get(0, "/v1/agents/sessions", NULL, &nobody);
	judge_refusal(&st, &nobody, 401);
	const char *good = token_of(m, &rsa, ours.slug, true);
	auto_json json_t *c = issuer_claims(issuer_url(idp), "gatehouse", ours.slug, "ada"),
			 *none = issuer_head(&rsa);
	auto_json json_t *late = json_deep_copy(c), *head = issuer_head(&rsa), *far = json_deep_copy(c);
	js_set_str(none, "alg", "none");
	js_set(late, "exp", json_integer(clock_wall_ms() / 1000 - 60));
	js_set_str(far, "aud", "another-service");
	const char *const bad[] = { mem_fmt(m, "%s.", issuer_unsigned(m, none, c)),
		issuer_token(m, &stranger, head, c), issuer_token(m, &rsa, head, late),
		issuer_token(m, &rsa, head, far), token_of(m, &rsa, "admin", true),
		token_of(m, &rsa, "no-such-org", true), mem_strn(m, good, strlen(good) - 1),
		mem_fmt(m, "%sA", good), mem_fmt(m, "%s%09000d", good, 1), "eyJ.eyJ.x" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		auto_web struct web w = { 0 };
		get(0, "/v1/agents/sessions", bad[i], &w);
		judge_same(&nobody, &w);
	}
	assert_int_equal(status(0, "/v1/agents/sessions", good), 200);
}

static void an_issuer_that_is_away_disturbs_nobody_who_does_not_need_it(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *known = token_of(m, &rsa, ours.slug, false);
	struct issuer_key fresh;
	issuer_key_make(&fresh, KEY_P256, "fresh");
	issuer_set_mode(idp, ISSUER_HANGS);
	const char *new = token_of(m, &fresh, ours.slug, false);
	for (int i = 0; i < 10; i++) {
		struct span from = span_begin();
		assert_int_equal(status(0, "/v1/agents/sessions", ours.member), 200);
		assert_int_equal(status(0, "/v1/agents/sessions", known), 200);
		assert_in_range(span_ms(&from), 0, 3000);
	}
	/* Its new key is accepted once it can be fetched, and until then nobody is told that the token is wrong for good. */
	issuer_publish_keys(idp, &rsa, &ec, &fresh, NULL);
	issuer_set_mode(idp, ISSUER_OK);
	int64_t deadline = clock_ms() + 60000;
	long last;
	while ((last = status(1, "/v1/agents/sessions", new)) != 200) {
		assert_true(last == 503 || last == 401);
		assert_true(clock_ms() < deadline);
	}
	issuer_key_free(&fresh);
}

static void a_token_reaches_no_log(void **s) /* RUN-2 */
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *token = token_of(m, &rsa, ours.slug, false);
	assert_int_equal(status(0, "/v1/agents/sessions", token), 200);
	assert_int_equal(status(0, "/v1/agents/sessions", mem_fmt(m, "%sA", token)), 401);
	for (int i = 0; i < 2; i++) {
		auto_buf struct buf text = BUF(32 << 20);
		struct err e = { 0 };
		assert_int_equal(
		    file_read(mem_fmt(m, "%s/log/%s.log", st.dir, i == 0 ? "api1" : "nginx"), &text, &e), 0);
		assert_null(strstr(buf_c(&text), strrchr(token, '.')));
		assert_null(memmem(buf_c(&text), text.n, token, 60));
	}
}

static int setup(void **s)
{
	(void)s;
	char conf[300];
	issuer_key_make(&rsa, KEY_RSA, "rsa");
	issuer_key_make(&ec, KEY_P256, "ec");
	issuer_key_make(&stranger, KEY_RSA, "rsa");
	idp = issuer_serve();
	issuer_publish_keys(idp, &rsa, &ec, NULL);
	(void)snprintf(conf, sizeof conf, "OIDC_ISSUER=%s\nOIDC_AUDIENCE=gatehouse\nOIDC_ADMIN_GROUP=ops",
	    issuer_url(idp));
	stack_up(&st, 2, 0, 1, conf);
	stack_org(&st, &ours);
	stack_org(&st, &theirs);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	issuer_end(idp);
	issuer_key_free(&rsa);
	issuer_key_free(&ec);
	issuer_key_free(&stranger);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_is_a_credential_like_a_key_on_every_host),
		cmocka_unit_test(a_token_that_is_not_valid_is_answered_like_no_credential),
		cmocka_unit_test(an_issuer_that_is_away_disturbs_nobody_who_does_not_need_it),
		cmocka_unit_test(a_token_reaches_no_log),
	};
	return cmocka_run_group_tests_name("oidc", tests, setup, teardown);
}
