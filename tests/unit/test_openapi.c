/* The document of GET /v1/openapi.json (OP-1). tests/clients/openapi lets a third party judge it. */
#include "../t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/js.h"
#include "handlers/handlers.h"
#include "io/file.h"
#include "op/metrics.h"

#define GOLDEN "tests/golden/openapi.json"

static void the_document_is_the_reviewed_one(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_json json_t *doc = op_openapi(handlers_all);
	auto_free char *text = json_dumps(doc, JSON_INDENT(1));
	assert_non_null(text);
	auto_buf struct buf now = BUF(8 << 20), then = BUF(8 << 20);
	(void)buf_fmt(&now, "%s\n", text);
	if (getenv("GATEHOUSE_GOLDEN") != NULL)
		assert_int_equal(file_write(GOLDEN, now.p, now.n, 0644, &e), 0);
	assert_int_equal(file_read(GOLDEN, &then, &e), 0);
	if (now.n != then.n || memcmp(now.p, then.p, now.n) != 0)
		fail_msg(
		    "%s is not what the tables say: run `make golden` and look at the difference", GOLDEN);
}

static const char *const words[] = { "a", "b", NULL };
static const struct param item = { .type = T_STR, .max = 9 };
static const struct param sub[] = {
	{ .name = "deep", .type = T_BOOL, .required = true, .doc = "D.", .example = "true" },
	{ 0 },
};
static const struct param in[] = {
	{ .name = "id", .type = T_STR, .required = true, .min = 2, .doc = "I.", .example = "\"x y\"" },
	{ .name = "n", .type = T_INT, .min = 1, .max = 5, .doc = "N.", .example = "3" },
	{ .name = "any", .type = T_INT, .doc = "A." },
	{ .name = "word", .type = T_ENUM, .values = words, .doc = "W." },
	{ .name = "list", .type = T_ARR, .min = 1, .fields = &item, .doc = "L." },
	{ .name = "env", .type = T_MAP, .doc = "E." },
	{ .name = "sub", .type = T_OBJ, .fields = sub, .doc = "S.", .example = "{\"deep\":true}" },
	{ 0 },
};
static const struct param out[] = {
	{ .name = "at", .type = T_TIME, .required = true, .nullable = true, .doc = "T." },
	{ 0 },
};
static const struct op toy_ops[] = {
	{ .id = "run",
	    .routes = { { "POST", "/v1/x/run" }, { "POST", "/v1/x/{id}/run" } },
	    .scope = "x",
	    .in = in,
	    .out = out,
	    .line = out,
	    .status = 202,
	    .flags = OP_STREAM },
	{ .id = "get",
	    .routes = { { "GET", "/v1/x/{id}" } },
	    .scope = "x",
	    .in = in,
	    .out = out,
	    .status = 200 },
	{ .id = "put",
	    .routes = { { "PUT", "/v1/x/{id}/raw" } },
	    .scope = "x",
	    .in = in,
	    .out = out,
	    .flags = OP_RAW_IN | OP_STORES },
	{ .id = "hid", .routes = { { "GET", "/git/x" } }, .flags = OP_HIDDEN },
	{ .id = "node", .routes = { { "GET", "/v1/node" } }, .flags = OP_INTERNAL },
	{ .id = "free", .routes = { { "GET", "/v1/free" } }, .flags = OP_PUBLIC },
	{ 0 },
};
static const struct op *const toys[] = { toy_ops, NULL };

/* The value at a path of keys separated by '|' and indices, as compact text; "" when there is none. */
static const char *at(const json_t *v, const char *path)
{
	static char text[2000];
	char key[200];
	while (*path != 0 && v != NULL) {
		size_t n = strcspn(path, "|");
		(void)snprintf(key, sizeof key, "%.*s", (int)n, path);
		v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
		path += n + (path[n] == '|');
	}
	text[0] = 0;
	auto_free char *s = v == NULL ? NULL : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	if (s != NULL)
		(void)snprintf(text, sizeof text, "%s", s);
	return text;
}

static void a_schema_says_what_the_check_checks(void **s)
{
	(void)s;
	auto_json json_t *o = op_schema(in);
	assert_string_equal(at(o, "required"), "[\"id\"]");
	assert_string_equal(at(o, "additionalProperties"), "false");
	assert_string_equal(at(o, "properties|id"),
	    "{\"type\":\"string\",\"description\":\"I.\",\"minLength\":1,\"maxLength\":1024,\"examples\":["
	    "\"x y\"]}");
	assert_string_equal(at(o, "properties|n|maximum"), "5");
	assert_string_equal(at(o, "properties|any|maximum"), "");
	assert_string_equal(at(o, "properties|word|enum"), "[\"a\",\"b\"]");
	assert_string_equal(at(o, "properties|list|items|maxLength"), "9");
	assert_string_equal(at(o, "properties|list|maxItems"), "1000");
	assert_string_equal(at(o, "properties|env|additionalProperties|type"), "\"string\"");
	assert_string_equal(at(o, "properties|sub|required"), "[\"deep\"]");
	auto_json json_t *r = op_schema_out(out);
	assert_string_equal(at(r, "properties|at|type"), "[\"string\",\"null\"]");
	assert_string_equal(at(r, "properties|at|format"), "\"date-time\"");
	assert_string_equal(at(r, "additionalProperties"), "");
}

static void both_routes_of_an_op_are_described(void **s)
{
	(void)s;
	auto_json json_t *d = op_openapi(toys);
	assert_string_equal(at(d, "paths|/v1/x/run|post|operationId"), "\"run\"");
	assert_string_equal(at(d, "paths|/v1/x/{id}/run|post|operationId"), "\"run_2\"");
	static const char body[] = "paths|/v1/x/{id}/run|post|requestBody|content|application/json|";
	char path[200];
	(void)snprintf(path, sizeof path, "%sschema|properties|id", body);
	assert_string_equal(at(d, path), "");
	(void)snprintf(path, sizeof path, "%sexample", body);
	assert_string_equal(at(d, path), "{\"n\":3,\"sub\":{\"deep\":true}}");
	assert_string_equal(at(d, "paths|/v1/x/{id}/run|post|parameters|0|in"), "\"path\"");
	assert_string_equal(at(d, "paths|/v1/x/{id}|get|parameters|1|in"), "\"query\"");
}

static void streams_and_values_have_their_own_content(void **s)
{
	(void)s;
	auto_json json_t *d = op_openapi(toys);
	assert_string_not_equal(
	    at(d, "paths|/v1/x/run|post|responses|200|content|application/x-ndjson|schema"), "");
	assert_string_not_equal(
	    at(d, "paths|/v1/x/run|post|responses|202|content|application/json|schema"), "");
	assert_string_not_equal(
	    at(d, "paths|/v1/x/{id}/raw|put|requestBody|content|application/octet-stream"), "");
}

static void errors_and_credentials_are_stated(void **s)
{
	(void)s;
	auto_json json_t *d = op_openapi(toys);
	assert_string_equal(
	    at(d, "paths|/v1/x/run|post|responses|415"), "{\"$ref\":\"#/components/responses/NotJson\"}");
	assert_string_equal(at(d, "paths|/v1/x/{id}|get|responses|415"), "");
	assert_string_not_equal(at(d, "paths|/v1/x/{id}|get|responses|404"), "");
	assert_string_equal(at(d, "paths|/v1/x/{id}|get|responses|507"), "");
	assert_string_equal(
	    at(d, "paths|/v1/x/{id}/raw|put|responses|507"), "{\"$ref\":\"#/components/responses/NoSpace\"}");
	assert_string_equal(at(d, "paths|/v1/free|get|security"), "[]");
	assert_string_equal(at(d, "paths|/v1/free|get|responses|401"), "");
	assert_string_equal(at(d, "security"), "[{\"key\":[]}]");
	assert_string_not_equal(at(d, "components|schemas|Error|properties|error|properties|request_id"), "");
}

static void what_is_no_native_op_is_left_out(void **s)
{
	(void)s;
	auto_json json_t *d = op_openapi(toys);
	assert_string_equal(at(d, "paths|/git/x"), "");
	assert_string_equal(at(d, "paths|/v1/node"), "");
}

static void a_request_is_made_of_an_input(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct op_request q;
	auto_json json_t *v = js_pack("{s:s, s:i}", "id", "a/b c", "n", 2);
	assert_int_equal(op_request(m, &toy_ops[1], v, &q, &e), 0);
	assert_string_equal(q.target, "/v1/x/a%2Fb%20c?n=2");
	assert_null(q.body);
	assert_int_equal(op_request(m, &toy_ops[0], v, &q, &e), 0);
	assert_string_equal(q.target, "/v1/x/run");
	assert_string_equal(q.body, "{\"id\":\"a/b c\",\"n\":2}");
	auto_json json_t *none = json_object();
	assert_int_equal(op_request(m, &toy_ops[1], none, &q, &e), -1);
	assert_string_equal(e.param, "id");
}

/* RUN-3 */
static void metrics_have_bounded_labels(void **s)
{
	(void)s;
	struct metrics *m = metrics_new(toys);
	auto_buf struct buf text = BUF(1 << 16);
	metrics_count(m, &toy_ops[1], 200, 6000);
	metrics_count(m, &toy_ops[1], 404, 99000000);
	metrics_count(m, &toy_ops[0], 200, 5);
	metrics_count(m, NULL, 404, 5);
	metrics_print(m, &text);
	assert_non_null(strstr(text.p, "gatehouse_requests_total{op=\"get\",class=\"2xx\"} 1\n"));
	assert_non_null(strstr(text.p, "gatehouse_requests_total{op=\"none\",class=\"4xx\"} 1\n"));
	assert_non_null(strstr(text.p, "gatehouse_request_seconds_bucket{op=\"get\",le=\"0.005\"} 0\n"));
	assert_non_null(strstr(text.p, "gatehouse_request_seconds_bucket{op=\"get\",le=\"0.025\"} 1\n"));
	assert_non_null(strstr(text.p, "gatehouse_request_seconds_bucket{op=\"get\",le=\"+Inf\"} 2\n"));
	assert_non_null(strstr(text.p, "gatehouse_request_seconds_count{op=\"get\"} 2\n"));
	assert_null(strstr(text.p, "seconds_count{op=\"run\"}")); /* how long a stream lives says nothing */
	metrics_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_document_is_the_reviewed_one),
		cmocka_unit_test(a_schema_says_what_the_check_checks),
		cmocka_unit_test(both_routes_of_an_op_are_described),
		cmocka_unit_test(streams_and_values_have_their_own_content),
		cmocka_unit_test(errors_and_credentials_are_stated),
		cmocka_unit_test(what_is_no_native_op_is_left_out),
		cmocka_unit_test(a_request_is_made_of_an_input),
		cmocka_unit_test(metrics_have_bounded_labels),
	};
	return cmocka_run_group_tests_name("openapi", tests, NULL, NULL);
}
