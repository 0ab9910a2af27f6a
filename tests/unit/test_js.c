#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "base/limits.h"

static json_t *parse(const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	return js_parse(text, strlen(text), e);
}

static void refused(const char *text, size_t n, const char *why)
{
	struct err e = { 0 };
	auto_json json_t *v = js_parse(text, n, &e);
	assert_null(v);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	if (strstr(e.msg, why) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}

/* HTTP-2, HTTP-3 */
static void test_bad_json_is_refused_with_the_reason_and_without_quoting_the_input(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "", "ends too early" },
		{ "{\"a\":1", "ends too early" },
		{ "{\"hunter2\"", "ends too early" },
		{ "{a:1}", "not JSON" },
		{ "{\"a\":hunter2}", "not JSON" },
		{ "{} {}", "not JSON" },
		{ "{\"a\":1,\"a\":2}", "given twice" },
		{ "\"\\u0000\"", "U+0000" },
		{ "{\"\\u0000\":1}", "U+0000" },
		{ "\"\xff\"", "UTF-8" },
		{ "\"\xed\xa0\x80\"", "UTF-8" },
		{ "1e999", "too large" },
		{ "99999999999999999999", "too large" },
		{ "[1,]", "not JSON: a value" },
		{ "{\"a\":\"\\ud800\"}", "not JSON: half of a surrogate pair" },
		{ "\"\\udc00\"", "half of a surrogate pair" },
		{ "\"\\ud800\\u0041\"", "half of a surrogate pair" },
		{ "{\"b\":\n \"\\ud83dhunter2\"}", "(line 2, column 16)" },
		{ "\"\thunter2\"", "control character" },
		{ "\"hunter2\n\"", "line break" },
		{ "\"hunter2\\x\"", "escape" },
		{ "{\"hunter2\" 1}", "colon" },
		{ "{\"a\":1 \"hunter2\":2}", "comma or }" },
		{ "[1 \"hunter2\"]", "comma or ]" },
		{ "{hunter2:1}", "key in double quotes" },
		{ "{\"a\":'hunter2'}", "not written as JSON" },
		{ "{} hunter2", "follows its end" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		refused(rows[i][0], strlen(rows[i][0]), rows[i][1]);
		auto_json json_t *v = parse(rows[i][0], &e);
		assert_null(v);
		assert_null(strstr(e.msg, "hunter2"));
		assert_string_equal(e.reason, "invalid_json");
	}
	refused("{\"a\":1}\0", 8, "not JSON");
}

static void test_depth_is_bounded_before_the_parser_recurses(void **state)
{
	(void)state;
	enum { DEEP = 200000 };
	auto_buf struct buf b = BUF(2 * DEEP);
	for (int i = 0; i < DEEP; i++)
		(void)buf_chr(&b, i % 2 == 0 ? '[' : '{');
	refused(b.p, b.n, "nested deeper");
	for (int depth = 1; depth <= LIMIT_JSON_DEPTH + 1; depth++) {
		char text[2 * (LIMIT_JSON_DEPTH + 1) + 1] = { 0 };
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		struct err e = { 0 };
		auto_json json_t *v = parse(text, &e);
		assert_int_equal(v != NULL, depth <= LIMIT_JSON_DEPTH);
	}
	assert_int_equal(js_depth("\"[[[\\\"[[\"", 9), 0);
	assert_int_equal(js_depth("[[]][[[]]]", 10), 3);
}

static void test_members_of_another_type_count_as_absent(void **state)
{
	(void)state;
	struct err e;
	auto_json json_t *o = parse("{\"s\":\"x\",\"i\":5,\"b\":true,\"n\":null,\"f\":1.5}", &e);
	assert_string_equal(js_str(o, "s"), "x");
	assert_null(js_str(o, "i"));
	assert_null(js_str(o, "none"));
	assert_string_equal(js_str_or(o, "n", "d"), "d");
	assert_int_equal(js_int(o, "i", -1), 5);
	assert_int_equal(js_int(o, "f", -1), -1);
	assert_int_equal(js_int(o, "s", -1), -1);
	assert_true(js_bool(o, "b", false));
	assert_true(js_bool(o, "i", true));
	assert_null(js_get(o, "n"));
	assert_non_null(js_get(o, "f"));
	assert_null(js_get(NULL, "f"));
}

/* SBX-42: text for people out of any bytes. */
static void test_bytes_that_are_no_text_become_replacement_characters_one_for_one(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t n;
		const char *out;
		size_t out_n;
	} rows[] = {
		{ "plain é", 8, "plain é", 8 },
		{ "a\xff"
		  "b",
		    3,
		    "a\xEF\xBF\xBD"
		    "b",
		    5 },
		{ "\xff\xfe", 2, "\xEF\xBF\xBD\xEF\xBF\xBD", 6 },
		{ "\xe2\x82", 2, "\xEF\xBF\xBD\xEF\xBF\xBD", 6 },
		{ "a\0b", 3, "a\0b", 3 },
		{ "", 0, "", 0 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_json json_t *v = js_text(rows[i].in, rows[i].n);
		assert_int_equal(json_string_length(v), rows[i].out_n);
		assert_memory_equal(json_string_value(v), rows[i].out, rows[i].out_n);
	}
}

static void test_what_is_built_is_dumped_compactly_and_does_not_pass_a_bound(void **state)
{
	(void)state;
	auto_json json_t *o = js_pack("{s:i,s:[s]}", "a", 1, "b", "x");
	js_set(o, "n", NULL);
	js_set_str(o, "s", NULL);
	js_set_str(o, "t", "\xff");
	js_push(json_object_get(o, "b"), json_true());
	static const char want[] =
	    "{\"a\":1,\"b\":[\"x\",true],\"n\":null,\"s\":null,\"t\":\"\xEF\xBF\xBD\"}";
	auto_mem struct mem *m = mem_new();
	assert_string_equal(js_dump(m, o), want);
	for (size_t max = 1; max < sizeof want + 2; max++) {
		auto_buf struct buf b = BUF(max);
		assert_int_equal(js_dump_buf(&b, o), max >= sizeof want - 1 ? 0 : -1);
		if (max >= sizeof want - 1)
			assert_string_equal(buf_c(&b), want);
	}
}

static void test_a_text_member_stands_for_its_bytes_or_for_what_its_base64_says(void **state)
{
	(void)state;
	static const struct {
		const char *json, *bytes; /* NULL: refused */
		bool always;
	} rows[] = { { "{}", "", false }, { "{}", "", true }, { "{\"d\":null}", "", false },
		{ "{\"d\":\"YQ==\"}", "YQ==", false }, { "{\"d\":\"YQ==\"}", "a", true },
		{ "{\"d\":\"YQ==\",\"enc\":\"utf8\"}", "YQ==", false },
		{ "{\"d\":\"YQ==\",\"enc\":\"base64\"}", "a", false },
		{ "{\"d\":\"\",\"enc\":\"base64\"}", "", false },
		{ "{\"d\":\"YQ\",\"enc\":\"base64\"}", NULL, false }, { "{\"d\":\"a b\"}", NULL, true } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_mem struct mem *m = mem_new();
		struct err e = { 0 };
		struct str out;
		auto_json json_t *o = js_parse(rows[i].json, strlen(rows[i].json), &e);
		int rc = js_bytes(m, o, "d", rows[i].always ? NULL : "enc", &out, &e);
		assert_int_equal(rc, rows[i].bytes != NULL ? 0 : -1);
		if (rc == 0)
			assert_true(str_eq(out, rows[i].bytes));
		else
			assert_string_equal(e.param, "d");
	}
}

/* Is what js_parse reads, or refuses, what Jansson's parser does, and the text of it what Jansson's writer makes? */
static void like_jansson(const char *text, size_t n)
{
	struct err e = { 0 };
	json_error_t je;
	auto_json json_t *mine = js_parse(text, n, &e),
			 *theirs = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if ((mine == NULL) != (theirs == NULL) || (mine != NULL && !json_equal(mine, theirs)))
		fail_msg("read as something else: %.*s", (int)n, text);
	if (mine == NULL)
		return;
	auto_buf struct buf b = BUF(1 << 20);
	auto_free char *want = json_dumps(theirs, JSON_COMPACT | JSON_ENCODE_ANY);
	assert_non_null(want);
	assert_int_equal(js_dump_buf(&b, mine), 0);
	if (strcmp(buf_c(&b), want) != 0)
		fail_msg("written as %s, not %s", buf_c(&b), want);
}

static const char *const texts[] = {
	"{\"model\":\"m\",\"stream\":false,\"messages\":[{\"role\":\"user\",\"content\":\"a \\\"b\\\" \\\\ "
	"\\/ "
	"\\b\\f\\n\\r\\t\"}],\"n\":1}",
	(" [ 0 , -0 , -1 , 123456789012345678 , 1234567890123456789 , 9223372036854775807 , "
	 "-9223372036854775808 ] "),
	"[1.5,-0.0,1e3,1E-3,0.1,2e+10,12345678901234567890.0,5e-324]",
	"[true,false,null,\"\",{},[],{\"\":\"\"}]",
	"\"\\u00e9\\u0001\\u001F\\u007f\\u20ac\\uFFFD\\ud83d\\ude00\"",
	"{\"\\u0061\":1,\"b\":2,\"h\xc3\xa9\":[\"\xf0\x9f\x98\x80\",\"\x7f\"]}",
	"{\"a\":{\"a\":[{\"a\":[]}]},\"b\":-12,\"c\":\"a longer text that goes over eight bytes at a time\"}",
};

static void test_texts_are_read_and_written_as_jansson_does(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		like_jansson(texts[i], strlen(texts[i]));
}

/* Every cut of each text, and each with one byte of it changed. */
static void test_no_damage_is_read_otherwise_than_jansson_does(void **state)
{
	(void)state;
	static const char other[] = "\"\\{}[],:0919-+.eEutfn /\x01\x1f\x7f\x80\xc3\xed\xf0\n";
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		auto_free char *text = xstrdup(texts[i]);
		size_t n = strlen(text);
		for (size_t at = 0; at < n; at++) {
			char was = text[at];
			like_jansson(text, at);
			for (size_t k = 0; k < sizeof other; k++) { /* its NUL, too */
				text[at] = other[k];
				like_jansson(text, n);
			}
			text[at] = was;
		}
	}
}

static void test_quoted_text_is_read_back(void **state)
{
	(void)state;
	static const char *const rows[][2] = { { "", "\"\"" }, { "a\"b\\", "\"a\\\"b\\\\\"" },
		{ "a\x01\n", "\"a\\u0001\\n\"" }, { "\xff!", "\"\xEF\xBF\xBD!\"" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_buf struct buf b = BUF(100);
		js_quote(&b, rows[i][0], strlen(rows[i][0]));
		assert_string_equal(buf_c(&b), rows[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_json_is_refused_with_the_reason_and_without_quoting_the_input),
		cmocka_unit_test(test_depth_is_bounded_before_the_parser_recurses),
		cmocka_unit_test(test_members_of_another_type_count_as_absent),
		cmocka_unit_test(test_bytes_that_are_no_text_become_replacement_characters_one_for_one),
		cmocka_unit_test(test_a_text_member_stands_for_its_bytes_or_for_what_its_base64_says),
		cmocka_unit_test(test_what_is_built_is_dumped_compactly_and_does_not_pass_a_bound),
		cmocka_unit_test(test_texts_are_read_and_written_as_jansson_does),
		cmocka_unit_test(test_no_damage_is_read_otherwise_than_jansson_does),
		cmocka_unit_test(test_quoted_text_is_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
