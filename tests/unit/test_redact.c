#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/redact.h"

#define TAIL  "01hzy3v9k2m4n6p8q0r2s4t6v8"
#define TOKEN "gk_" TAIL "_Zm9vYmFyYmF6cXV4LXRoaXMtaXMtYS1zZWNyZXQtNDM"

typedef int redactor(const char *p, size_t n, struct buf *out);

static void check(redactor *fn, const char *in, const char *want)
{
	auto_buf struct buf out = BUF(1 << 20);
	assert_int_equal(fn(in, strlen(in), &out), 0);
	assert_string_equal(buf_c(&out), want);
}

/* RED-1 */
static void test_secret_keys_are_found_by_their_parts_in_any_spelling(void **state)
{
	(void)state;
	static const char *const secret[] = { "password", "PASSWORD", "db_password", "dbPassword",
		"DBPassword", "user.passwd", "client-secret", "clientSecret", "x-api-key", "apiKey", "APIKey",
		"API_KEY", "apikey", "Authorization", "proxy-authorization", "credential", "credentials",
		"private_key", "privateKey", "aws access key id", "encryption_key", "Set-Cookie", "cookie",
		"session_key", "sessionKey", "token", "access_token", "refreshToken", "token2",
		"GITHUB_TOKEN", "passWord", "https_secret_1" };
	static const char *const plain[] = { "", "tokens", "max_tokens", "promptTokens", "key", "key_id",
		"tokenizer", "session", "secretary", "author", "authority", "keyboard", "public_key",
		"cookiecutter", "message", "api", "path", "compass word" };
	for (size_t i = 0; i < sizeof secret / sizeof *secret; i++)
		if (!redact_key(secret[i]))
			fail_msg("%s is secret", secret[i]);
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (redact_key(plain[i]))
			fail_msg("%s is not secret", plain[i]);
}

static void test_a_key_too_long_to_be_judged_is_secret(void **state)
{
	(void)state;
	char key[600];
	memset(key, 'a', sizeof key);
	key[sizeof key - 1] = 0;
	assert_true(redact_key(key));
}

/* RED-2 */
static void test_the_password_of_a_url_goes_and_the_user_stays(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "https://user:pw@host/x", "https://user:[redacted]@host/x" },
		{ "see postgres://a:b@h:5432/db?x=1 now", "see postgres://a:[redacted]@h:5432/db?x=1 now" },
		{ "https://ghp_token@host", "https://[redacted]@host" },
		{ "https://:pw@host", "https://:[redacted]@host" },
		{ "https://u:p@w@host/", "https://u:[redacted]@host/" },
		{ "https://u:p/w@host/", "https://u:[redacted]@host/" },
		{ "https://u:p#w?x@host/", "https://u:[redacted]@host/" },
		{ "git+ssh://u:p@h", "git+ssh://u:[redacted]@h" },
		{ "https://a:b@c,https://d:e@f", "https://a:[redacted]@c,https://d:[redacted]@f" },
		{ "HTTPS://a:b@c", "HTTPS://a:[redacted]@c" },
		{ "https://u:[redacted]@host", "https://u:[redacted]@host" },
		{ "https://" TOKEN ":x@h", "https://[redacted]:[redacted]@h" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		check(redact_plain, rows[i][0], rows[i][1]);
		check(redact_text, rows[i][0], rows[i][1]);
	}
}

static void test_text_without_a_secret_is_untouched(void **state)
{
	(void)state;
	static const char *const rows[] = { "", "mail a@b.example", "git@host:path.git", "user:pw@host",
		"://u:p@h", "https://host/@scope/pkg", "https://host:8080/a@b", "http://[::1]:80/a@b",
		"https://host?q=a@b", "a://b", "gk_short", "debugging_helper_function",
		"msgr_handler_for_things", "pk_" TAIL "_abcdefghijkl", "https://", "x ://", "\xff\xfe@" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		check(redact_plain, rows[i], rows[i]);
		check(redact_text, rows[i], rows[i]);
	}
}

static void test_our_own_tokens_go_wherever_they_stand(void **state)
{
	(void)state;
	static const char *const glue[][2] = { { "", "" }, { "key=", "" }, { "\"", "\"" }, { "xx", "" },
		{ "9", " y" }, { "_", "." }, { "Bearer ", "\n" }, { "a:", "/b" }, { "\xff", "\xff" } };
	for (int kind = 0; kind < 3; kind++) {
		for (size_t i = 0; i < sizeof glue / sizeof *glue; i++) {
			char in[200], want[200], token[] = TOKEN;
			token[1] = "krg"[kind];
			(void)snprintf(in, sizeof in, "%s%s%s", glue[i][0], token, glue[i][1]);
			(void)snprintf(want, sizeof want, "%s[redacted]%s", glue[i][0], glue[i][1]);
			check(redact_plain, in, want);
		}
	}
}

/* A vendor quotes the key that it refuses, its own or somebody else's. */
static void test_keys_of_others_go_by_their_shape(void **state)
{
	(void)state;
	check(redact_plain, "Incorrect API key provided: sk-proj-abC123_def-456. See the page.",
	    "Incorrect API key provided: [redacted]. See the page.");
	check(redact_plain, "key=sk-ant-api03-Zyx987_wvu654-Tsr321", "key=[redacted]");
	check(redact_plain, "(sk-0123456789abcdefABCD0123)", "([redacted])");
	check(redact_plain, "AKIAIOSFODNN7EXAMPLE and AIzaSyA-0123456789_abcdefghijklmnopqrs",
	    "[redacted] and [redacted]");
	check(redact_plain, "ghp_16C7e42F292c6912E7710c838347Ae178B4a,github_pat_11ABCDEFG0_0123456789abcdef",
	    "[redacted],[redacted]");
	check(redact_plain, "xoxb-123456789012-abc hf_abcdefghijABCDEFGHIJ01 gsk_abcdefghijABCDEFGHIJ01",
	    "[redacted] [redacted] [redacted]");
	check(redact_text, "{\"error\":{\"message\":\"no: sk-proj-abC123def456\"}}",
	    "{\"error\":{\"message\":\"no: [redacted]\"}}");
	static const char *const words[] = {
		"sk-learn is a name, sk-SK a locale, risk-averse-investors-are-many",
		"a task-list-with-a-rather-long-name",
		"hf_tokenizer_for_training_data and my_hf_abcdefghijABCDEFGHIJ01",
		"AKIA is short, xAKIAIOSFODNN7EXAMPLE is a word", "sk-proj-****abcd", "ghp_ alone", "sk-", "A"
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		check(redact_plain, words[i], words[i]);
}

static void test_a_token_cut_short_loses_the_part_of_its_secret_that_is_there(void **state)
{
	(void)state;
	for (size_t n = strlen("gk_" TAIL "_"); n <= strlen(TOKEN); n++) {
		auto_buf struct buf out = BUF(4096);
		assert_int_equal(redact_plain(TOKEN, n, &out), 0);
		assert_string_equal(buf_c(&out), "[redacted]");
	}
}

/* RED-3 */
static void test_json_text_gets_both_rules_and_keeps_everything_else_as_it_was(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "{\"password\":\"x\"}", "{\"password\":\"[redacted]\"}" },
		{ " {\"a\" : 1.0, \"token\" : {\"b\":[1,2,{}]} , \"c\":1e400}\n",
		    " {\"a\" : 1.0, \"token\" : \"[redacted]\" , \"c\":1e400}\n" },
		{ "[{\"u\":\"https:\\/\\/u:p@h\"}]", "[{\"u\":\"https://u:[redacted]@h\"}]" },
		{ "{\"pass\\u0077ord\":1}", "{\"pass\\u0077ord\":\"[redacted]\"}" },
		{ "{\"secret\":1,\"secret\":2}", "{\"secret\":\"[redacted]\",\"secret\":\"[redacted]\"}" },
		{ "{\"token\":[],\"n\":123456789012345678901234567890}",
		    "{\"token\":\"[redacted]\",\"n\":123456789012345678901234567890}" },
		{ "{\"x\":\"\\u0000\",\"cookie\":null}", "{\"x\":\"\\u0000\",\"cookie\":\"[redacted]\"}" },
		{ "{\"cookie\":\"a\"}\n{\"cookie\":\"b\"}\n",
		    "{\"cookie\":\"[redacted]\"}\n{\"cookie\":\"[redacted]\"}\n" },
		{ "{\"body\":\"{\\\"token\\\":\\\"x\\\"}\"}",
		    "{\"body\":\"{\\\"token\\\":\\\"[redacted]\\\"}\"}" },
		{ "{\"" TOKEN "\":1}", "{\"[redacted]\":1}" },
		{ "{\"token\":{\"token\":1},\"b\":2}", "{\"token\":\"[redacted]\",\"b\":2}" },
		{ "{\"lone\":\"\\ud800\"}", "{\"lone\":\"[redacted]\"}" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		check(redact_text, rows[i][0], rows[i][1]);
}

static void test_depth_is_no_way_around_the_key_rule(void **state)
{
	(void)state;
	enum { DEEP = 20000 };
	auto_buf struct buf in = BUF(1 << 20), out = BUF(1 << 20);
	for (int i = 0; i < DEEP; i++)
		(void)buf_chr(&in, '[');
	(void)buf_str(&in, "{\"password\":\"hunter2\"}");
	for (int i = 0; i < DEEP; i++)
		(void)buf_chr(&in, ']');
	assert_int_equal(redact_text(in.p, in.n, &out), 0);
	assert_null(strstr(buf_c(&out), "hunter2"));
	assert_int_equal(out.n, in.n + strlen("[redacted]") - strlen("hunter2"));
}

static void test_text_that_is_not_json_gets_only_the_text_rules(void **state)
{
	(void)state;
	static const char *const rows[] = { "{\"password\":\"x\"", "{\"password\":\"x\"}}", "{password:1}",
		"{\"token\":01}", "{\"token\":+1}", "[1,]", "{\"token\":1,}", "{\"token\" 1}",
		"[\"a\tb\",{\"token\":1}]", "[\"password\":1]", "{]", "password=x", "[1 2]" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		check(redact_text, rows[i], rows[i]);
	check(redact_text, "{\"token\": " TOKEN, "{\"token\": [redacted]");
}

/* RED-4 */
static void test_what_must_be_json_and_is_not_is_replaced_whole(void **state)
{
	(void)state;
	static const char *const bad[] = { "", " ", "hello", "{\"a\":1", "{\"a\":1}{}", "nul", "\"open",
		"1 2", "-" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		check(redact_must_json, bad[i], "\"[redacted]\"");
	check(redact_must_json, "{\"a\":[true,null,-1.5e3,\"x\"]}", "{\"a\":[true,null,-1.5e3,\"x\"]}");
	check(redact_must_json, "\"https://u:p@h\"", "\"https://u:[redacted]@h\"");
	check(redact_must_json, "12", "12");
	check(redact_must_json, "{\"api_key\":[1]}", "{\"api_key\":\"[redacted]\"}");
}

static void test_a_json_value_is_copied_with_its_secrets_replaced(void **state)
{
	(void)state;
	struct err e = { 0 };
	const char *in = "{\"a\":[{\"token\":[1]},\"https://u:p@h\",3,true,null,1.5],\"" TOKEN "\":\"x\","
			 "\"in\":\"{\\\"pwd\\\":1}\"}";
	auto_json json_t *v = js_parse(in, strlen(in), &e);
	assert_non_null(v);
	auto_json json_t *before = json_deep_copy(v), *clean = redact_json(v);
	auto_mem struct mem *m = mem_new();
	assert_string_equal(js_dump(m, clean),
	    "{\"a\":[{\"token\":\"[redacted]\"},\"https://"
	    "u:[redacted]@h\",3,true,null,1.5],\"[redacted]\":\"x\","
	    "\"in\":\"{\\\"pwd\\\":\\\"[redacted]\\\"}\"}");
	assert_true(json_equal(v, before));
}

static void test_what_does_not_fit_is_an_error_and_never_the_original(void **state)
{
	(void)state;
	for (size_t max = 1; max < 24; max++) {
		auto_buf struct buf out = BUF(max);
		const char *in = "{\"token\":\"hunter2\"}";
		int rc = redact_text(in, strlen(in), &out);
		assert_int_equal(rc, max < strlen("{\"token\":\"[redacted]\"}") ? -1 : 0);
		assert_null(strstr(buf_c(&out), "hunter2"));
	}
}

/* COD-8 */
static void test_a_known_secret_is_removed_in_every_form_and_place(void **state)
{
	(void)state;
	static const char *const secrets[] = { "tok3", "p@ss/w%rd+", "x-access-token:abcdefghij",
		"ghp_0123456789abcdef" };
	for (size_t s = 0; s < sizeof secrets / sizeof *secrets; s++) {
		const char *secret = secrets[s];
		for (size_t before = 0; before < 7; before++) {
			for (size_t after = 0; after < 4; after++) {
				char raw[80], b64[120], hex[400] = "", text[900];
				(void)snprintf(raw, sizeof raw, "%.*s%s%.*s", (int)before, "user12:", secret,
				    (int)after, "xyz");
				size_t n = b64_encode(raw, strlen(raw), b64);
				for (const char *c = secret; *c != 0; c++)
					(void)snprintf(hex + strlen(hex), 4, c[0] % 2 ? "%%%02x" : "%%%02X",
					    (unsigned char)*c);
				(void)snprintf(text, sizeof text, "a %s b %s c %s d", raw, b64, hex);
				auto_buf struct buf out = BUF(4096);
				assert_int_equal(redact_secret(text, strlen(text), secret, &out), 0);
				char want[200];
				(void)snprintf(want, sizeof want,
				    "a %.*s[redacted]%.*s b [redacted] c [redacted] d", (int)before,
				    "user12:", (int)after, "xyz");
				assert_string_equal(buf_c(&out), want);
				for (size_t i = 0; i < n; i++)
					b64[i] = b64[i] == '+' ? '-' : b64[i] == '/' ? '_' : b64[i];
				buf_reset(&out);
				assert_int_equal(redact_secret(b64, n, secret, &out), 0);
				assert_string_equal(buf_c(&out), "[redacted]");
			}
		}
	}
}

static void test_text_full_of_almost_urls_and_tokens_takes_linear_time(void **state)
{
	(void)state;
	/* A quadratic search over these would run into the test runner's time limit by orders of magnitude. */
	static const char *const unit[] = { "a://b:c/", "xgk_", "a://", "1://", "::::", "gk_a " };
	for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
		auto_buf struct buf in = BUF(2 << 20), out = BUF(32 << 20);
		while (in.n < (1 << 20))
			(void)buf_str(&in, unit[u]);
		assert_int_equal(redact_text(in.p, in.n, &out), 0);
		assert_int_equal(out.n, in.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret_keys_are_found_by_their_parts_in_any_spelling),
		cmocka_unit_test(test_a_key_too_long_to_be_judged_is_secret),
		cmocka_unit_test(test_the_password_of_a_url_goes_and_the_user_stays),
		cmocka_unit_test(test_text_without_a_secret_is_untouched),
		cmocka_unit_test(test_our_own_tokens_go_wherever_they_stand),
		cmocka_unit_test(test_keys_of_others_go_by_their_shape),
		cmocka_unit_test(test_a_token_cut_short_loses_the_part_of_its_secret_that_is_there),
		cmocka_unit_test(test_json_text_gets_both_rules_and_keeps_everything_else_as_it_was),
		cmocka_unit_test(test_depth_is_no_way_around_the_key_rule),
		cmocka_unit_test(test_text_that_is_not_json_gets_only_the_text_rules),
		cmocka_unit_test(test_what_must_be_json_and_is_not_is_replaced_whole),
		cmocka_unit_test(test_a_json_value_is_copied_with_its_secrets_replaced),
		cmocka_unit_test(test_what_does_not_fit_is_an_error_and_never_the_original),
		cmocka_unit_test(test_a_known_secret_is_removed_in_every_form_and_place),
		cmocka_unit_test(test_text_full_of_almost_urls_and_tokens_takes_linear_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
