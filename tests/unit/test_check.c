/* The input check (HTTP-3). */
#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "op/op.h"

static const char *const modes[] = { "none", "proxy", NULL };
static const struct param limits[] = {
	{ .name = "cpus", .type = T_INT, .min = 1, .max = 8 },
	{ .name = "load", .type = T_NUM, .min = 0, .max = 2 },
	{ .name = "share", .type = T_NUM, .least = 0.1, .max = 4 },
	{ 0 },
};
static const struct param file[] = {
	{ .name = "path", .type = T_STR, .required = true, .min = 1, .max = 10 },
	{ .name = "delete", .type = T_BOOL },
	{ 0 },
};
static const struct param in_schema[] = {
	{ .name = "name", .type = T_STR, .required = true, .min = 1, .max = 8 },
	{ .name = "count", .type = T_INT },
	{ .name = "mode", .type = T_ENUM, .values = modes },
	{ .name = "at", .type = T_TIME },
	{ .name = "limits", .type = T_OBJ, .fields = limits },
	{ .name = "files",
	    .type = T_ARR,
	    .max = 3,
	    .fields = &(struct param){ .type = T_OBJ, .fields = file } },
	{ .name = "argv",
	    .type = T_ARR,
	    .min = 1,
	    .max = 4,
	    .fields = &(struct param){ .type = T_STR, .max = 5 } },
	{ .name = "env", .type = T_MAP, .max = 2 },
	{ .name = "extra", .type = T_ANY },
	{ 0 },
};

static struct err check(const char *json, unsigned flags)
{
	struct err e = { 0 };
	auto_json json_t *in = json_loads(json, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
	assert_non_null(in);
	int rc = op_check(in_schema, in, flags, &e);
	assert_int_equal(rc, e.code == ERR_NONE ? 0 : -1);
	if (rc != 0)
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	return e;
}

static void refused(const char *json, const char *param, const char *words)
{
	struct err e = check(json, 0);
	if (e.code == ERR_NONE)
		fail_msg("accepted: %s", json);
	assert_string_equal(e.param, param);
	if (strstr(e.msg, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static void accepted(const char *json)
{
	struct err e = check(json, 0);
	if (e.code != ERR_NONE)
		fail_msg("%s refused: %s", json, e.msg);
}

static void whole_valid_input_passes(void **s)
{
	(void)s;
	accepted("{\"name\":\"a\",\"count\":-5,\"mode\":\"none\",\"at\":\"2030-01-31T12:00:00.5Z\","
		 "\"limits\":{\"cpus\":8,"
		 "\"load\":1},\"files\":[{\"path\":\"x\",\"delete\":false}],\"argv\":[\"ls\"],\"env\":{\"A\":"
		 "\"b\"},"
		 "\"extra\":[1,{}]}");
}

static void an_unknown_field_is_named_with_the_known_ones(void **s)
{
	(void)s;
	refused("{\"name\":\"a\",\"nam\":1}", "nam", "known here: name, count");
	refused("{\"name\":\"a\",\"limits\":{\"cpu\":1}}", "limits.cpu", "known here: cpus, load, share");
	refused("{\"name\":\"a\",\"files\":[{\"path\":\"x\"},{\"path\":\"y\",\"mod\":1}]}", "files[1].mod",
	    "`mod`");
}

static void a_compatibility_door_ignores_unknown_fields_only(void **s)
{
	(void)s;
	assert_int_equal(check("{\"name\":\"a\",\"nam\":1}", OP_LAX).code, ERR_NONE);
	assert_int_equal(check("{\"name\":1}", OP_LAX).code, ERR_BAD_REQUEST);
}

static void a_wrong_type_names_the_field_and_the_expected_type(void **s)
{
	(void)s;
	refused("{\"name\":7}", "name", "must be a string, not a number");
	refused("{\"name\":\"a\",\"count\":\"7\"}", "count", "a whole number, not a string");
	refused("{\"name\":\"a\",\"count\":1.0}", "count", "whole number");
	refused("{\"name\":\"a\",\"count\":1e2}", "count", "without a point or exponent");
	refused("{\"name\":\"a\",\"mode\":3}", "mode", "\"none\", \"proxy\"");
	refused("{\"name\":\"a\",\"limits\":[]}", "limits", "an object, not an array");
	refused("{\"name\":\"a\",\"files\":{}}", "files", "an array, not an object");
	refused("{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"delete\":\"no\"}]}", "files[0].delete",
	    "true or false");
	refused("{\"name\":\"a\",\"argv\":[\"a\",null]}", "argv[1]", "not be null");
	refused("{\"name\":\"a\",\"env\":{\"A\":1}}", "env.A", "a string");
	refused("{\"name\":\"a\",\"env\":{\"A\":null}}", "env.A", "not be null");
}

static void bounds_are_inclusive_and_stated(void **s)
{
	(void)s;
	accepted("{\"name\":\"12345678\"}");
	refused("{\"name\":\"123456789\"}", "name", "1 to 8 bytes long; it has 9");
	refused("{\"name\":\"\"}", "name", "not be empty");
	refused("{\"name\":\"a\",\"limits\":{\"cpus\":0}}", "limits.cpus", "from 1 to 8");
	refused("{\"name\":\"a\",\"limits\":{\"cpus\":9}}", "limits.cpus", "from 1 to 8");
	refused("{\"name\":\"a\",\"limits\":{\"load\":2.5}}", "limits.load", "from 0 to 2");
	accepted("{\"name\":\"a\",\"limits\":{\"share\":0.1}}");
	refused("{\"name\":\"a\",\"limits\":{\"share\":0.09}}", "limits.share", "from 0.1 to 4");
	refused("{\"name\":\"a\",\"limits\":{\"share\":0}}", "limits.share", "from 0.1 to 4");
	refused("{\"name\":\"a\",\"limits\":{\"share\":5}}", "limits.share", "from 0.1 to 4");
	refused("{\"name\":\"a\",\"argv\":[]}", "argv", "1 to 4 items");
	refused("{\"name\":\"a\",\"argv\":[\"1\",\"2\",\"3\",\"4\",\"5\"]}", "argv", "it has 5");
	refused("{\"name\":\"a\",\"env\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}", "env", "at most 2 entries");
}

static void a_value_outside_an_enum_is_not_echoed(void **s)
{
	(void)s;
	struct err e = check("{\"name\":\"a\",\"mode\":\"gk_secret\"}", 0);
	assert_null(strstr(e.msg, "gk_secret"));
	assert_non_null(strstr(e.msg, "\"proxy\""));
}

static void strings_never_hold_nul(void **s)
{
	(void)s;
	refused("{\"name\":\"a\\u0000b\"}", "name", "U+0000");
	refused("{\"name\":\"a\",\"argv\":[\"\\u0000\"]}", "argv[0]", "U+0000");
}

static void null_is_the_same_as_absent(void **s)
{
	(void)s;
	accepted("{\"name\":\"a\",\"count\":null,\"limits\":null}");
	refused("{\"name\":null}", "name", "required");
}

static void required_fields_are_asked_for_at_every_depth(void **s)
{
	(void)s;
	refused("{}", "name", "required");
	refused("{\"name\":\"a\",\"files\":[{}]}", "files[0].path", "`files[0].path` is required");
}

static void every_violation_is_in_the_details(void **s)
{
	(void)s;
	struct err e = check("{\"nope\":1,\"count\":\"x\",\"limits\":{\"cpus\":99}}", 0);
	assert_int_equal(e.n_details, 4);
	auto_json json_t *env = op_envelope(&e, "req_1");
	const json_t *details = json_object_get(json_object_get(env, "error"), "details");
	assert_int_equal(json_array_size(details), 4);
	assert_string_equal(js_str(json_array_get(details, 3), "param"), "name");
}

static void times_are_rfc_3339_in_utc(void **s)
{
	(void)s;
	static const char *const bad[] = { "2030-01-31", "2030-01-31T12:00:00", "2030-01-31T12:00:00+01:00",
		"2030-13-01T00:00:00Z", "2030-01-31T24:00:00Z", "2030-01-31T12:60:00Z",
		"2030-01-31T12:00:00.Z", "", NULL };
	for (const char *const *b = bad; *b != NULL; b++) {
		auto_json json_t *in = js_pack("{s:s,s:s}", "name", "a", "at", *b);
		struct err e = { 0 };
		assert_int_equal(op_check(in_schema, in, 0, &e), -1);
		assert_string_equal(e.param, "at");
	}
}

static void the_body_must_be_an_object(void **s)
{
	(void)s;
	refused("[]", "", "must be a JSON object, not an array");
	refused("\"x\"", "", "must be a JSON object, not a string");
}

/* A key from outside may be long and end inside a character; the envelope stays valid JSON. */
static void long_hostile_keys_stay_bounded_and_valid(void **s)
{
	(void)s;
	char key[600];
	for (size_t i = 0; i + 3 < sizeof key; i += 3)
		memcpy(key + i, "\xE2\x82\xAC", 3);
	key[sizeof key - 3] = 0;
	auto_json json_t *in = js_pack("{s:s,s:i}", "name", "a", key, 1);
	struct err e = { 0 };
	assert_int_equal(op_check(in_schema, in, 0, &e), -1);
	auto_json json_t *env = op_envelope(&e, "req_1");
	auto_free char *text = json_dumps(env, 0);
	assert_non_null(text);
}

static void a_reply_may_be_null_only_where_it_says_so(void **s)
{
	(void)s;
	static const struct param out[] = {
		{ .name = "next", .type = T_STR, .required = true, .nullable = true },
		{ .name = "id", .type = T_STR, .required = true },
		{ 0 },
	};
	char big[3000];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	struct err e = { 0 };
	auto_json json_t *good = js_pack("{s:n,s:s}", "next", "id", big);
	assert_int_equal(op_check_out(out, good, &e), 0);
	auto_json json_t *bad = js_pack("{s:n,s:n}", "next", "id");
	assert_int_equal(op_check_out(out, bad, &e), -1);
	assert_string_equal(e.param, "id");
	err_clear(&e);
	auto_json json_t *more = js_pack("{s:n,s:s,s:i}", "next", "id", "x", "undocumented", 1);
	assert_int_equal(op_check_out(out, more, &e), -1);
	assert_string_equal(e.param, "undocumented");
}

static void an_op_without_fields_takes_none(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_json json_t *empty = json_object(), *one = js_pack("{s:i}", "a", 1);
	assert_int_equal(op_check(NULL, empty, 0, &e), 0);
	assert_int_equal(op_check(NULL, one, 0, &e), -1);
	assert_non_null(strstr(e.msg, "none here"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_valid_input_passes),
		cmocka_unit_test(an_unknown_field_is_named_with_the_known_ones),
		cmocka_unit_test(a_compatibility_door_ignores_unknown_fields_only),
		cmocka_unit_test(a_wrong_type_names_the_field_and_the_expected_type),
		cmocka_unit_test(bounds_are_inclusive_and_stated),
		cmocka_unit_test(a_value_outside_an_enum_is_not_echoed),
		cmocka_unit_test(strings_never_hold_nul),
		cmocka_unit_test(null_is_the_same_as_absent),
		cmocka_unit_test(required_fields_are_asked_for_at_every_depth),
		cmocka_unit_test(every_violation_is_in_the_details),
		cmocka_unit_test(times_are_rfc_3339_in_utc),
		cmocka_unit_test(the_body_must_be_an_object),
		cmocka_unit_test(long_hostile_keys_stay_bounded_and_valid),
		cmocka_unit_test(a_reply_may_be_null_only_where_it_says_so),
		cmocka_unit_test(an_op_without_fields_takes_none),
	};
	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
