/* Routing, query strings, paging and replies (HTTP-2, HTTP-6, STR-1). */
#include "../t.h"

#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "base/limits.h"
#include "op/op.h"

static const struct op one_ops[] = {
	{ .id = "list", .routes = { { "GET", "/v1/things" } } },
	{ .id = "make", .routes = { { "POST", "/v1/things" }, { "POST", "/v1/things/make" } } },
	{ .id = "get", .routes = { { "GET", "/v1/things/{id}" } } },
	{ .id = "end", .routes = { { "DELETE", "/v1/things/{id}" } } },
	{ .id = "files", .routes = { { "GET", "/v1/things/{id}/files" } } },
	{ .id = "watch", .routes = { { "GET", "/v1/things/stream" } } },
	{ .id = "secret", .routes = { { "GET", "/v1/node/things" } }, .flags = OP_INTERNAL },
	{ .id = "theirs", .routes = { { "GET", "/things" }, { "GET", "/v1/things/{id}" } }, .flags = OP_E2B },
	{ 0 },
};
static const struct op two_ops[] = {
	{ .id = "git", .routes = { { "GET", "/v1/git/{org}/{repo}.git/{rest...}" } } },
	{ .id = "repos", .routes = { { "GET", "/v1/git/repos/{repo}" } } },
	{ .id = "repos_all", .routes = { { "GET", "/v1/git/repos" } } },
	{ 0 },
};
static const struct op *const tables[] = { one_ops, two_ops, NULL };
static struct routes *routes;

static int begin(void **s)
{
	(void)s;
	routes = routes_new(tables);
	return 0;
}

static int end(void **s)
{
	(void)s;
	routes_free(routes);
	return 0;
}

static const char *found(
    const char *method, const char *path, enum op_door door, json_t **params, struct err *e)
{
	struct route_match m;
	*e = (struct err){ 0 };
	if (route_find(routes, method, path, door, &m, e) != 0) {
		assert_null(m.path_params);
		return NULL;
	}
	if (params != NULL)
		*params = m.path_params;
	else
		json_decref(m.path_params);
	return m.op->id;
}

static void goes_to(const char *method, const char *path, const char *id)
{
	struct err e;
	const char *got = found(method, path, DOOR_PUBLIC, NULL, &e);
	if (got == NULL)
		fail_msg("%s %s: %s", method, path, e.msg);
	assert_string_equal(got, id);
}

static void a_path_finds_its_op(void **s)
{
	(void)s;
	goes_to("GET", "/v1/things", "list");
	goes_to("POST", "/v1/things", "make");
	goes_to("POST", "/v1/things/make", "make");
	goes_to("GET", "/v1/things/abc", "get");
	goes_to("DELETE", "/v1/things/abc", "end");
	goes_to("GET", "/v1/things/abc/files", "files");
	goes_to("HEAD", "/v1/things/abc", "get");
}

static void a_literal_segment_beats_a_parameter(void **s)
{
	(void)s;
	goes_to("GET", "/v1/things/stream", "watch");
	goes_to("GET", "/v1/git/repos/x.git", "repos");
	goes_to("GET", "/v1/git/acme/x.git/info/refs", "git");
}

static void path_parameters_are_taken_from_their_segments(void **s)
{
	(void)s;
	struct err e;
	auto_json json_t *p = NULL;
	assert_string_equal(found("GET", "/v1/git/acme/a.b.git/info/refs", DOOR_PUBLIC, &p, &e), "git");
	assert_string_equal(js_str(p, "org"), "acme");
	assert_string_equal(js_str(p, "repo"), "a.b");
	assert_string_equal(js_str(p, "rest"), "info/refs");
	assert_int_equal(json_object_size(p), 3);
}

static void an_unknown_path_is_404(void **s)
{
	(void)s;
	static const char *const paths[] = { "/", "/v1", "/v1/", "/v1/things/", "/v1//things",
		"/v1/things/a/b", "/api/v1", "/api/things", "/v1/git/acme/x.git", "/v1/git/acme/x.git/",
		"/v1/git/acme/.git/x", "/v1/thing", "", NULL };
	struct err e;
	for (const char *const *p = paths; *p != NULL; p++) {
		if (found("GET", *p, DOOR_PUBLIC, NULL, &e) != NULL)
			fail_msg("%s was found", *p);
		assert_int_equal(e.code, ERR_NOT_FOUND);
	}
}

static void a_wrong_method_is_405_with_the_methods_of_that_path(void **s)
{
	(void)s;
	struct route_match m;
	struct err e = { 0 };
	assert_int_equal(route_find(routes, "PUT", "/v1/things/abc", DOOR_PUBLIC, &m, &e), -1);
	assert_int_equal(e.code, ERR_METHOD);
	assert_string_equal(m.allow, "GET, HEAD, DELETE");
	err_clear(&e);
	assert_int_equal(route_find(routes, "GET", "/v1/things/make", DOOR_PUBLIC, &m, &e), -1);
	assert_string_equal(m.allow, "POST");
}

static void internal_ops_do_not_exist_on_the_public_door(void **s)
{
	(void)s;
	struct err e;
	assert_null(found("GET", "/v1/node/things", DOOR_PUBLIC, NULL, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_null(found("POST", "/v1/node/things", DOOR_PUBLIC, NULL, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_string_equal(found("GET", "/v1/node/things", DOOR_INTERNAL, NULL, &e), "secret");
}

/* ECO-1: and of ours nothing is there. */
static void ops_of_the_compatibility_door_exist_there_and_nowhere_else(void **s)
{
	(void)s;
	struct err e;
	assert_null(found("GET", "/things", DOOR_PUBLIC, NULL, &e));
	assert_null(found("GET", "/things", DOOR_INTERNAL, NULL, &e));
	assert_string_equal(found("GET", "/things", DOOR_E2B, NULL, &e), "theirs");
	assert_string_equal(found("GET", "/v1/things/a", DOOR_E2B, NULL, &e), "theirs");
	assert_null(found("GET", "/v1/things", DOOR_E2B, NULL, &e));
	assert_null(found("GET", "/v1/node/things", DOOR_E2B, NULL, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void a_route_knows_its_parameters(void **s)
{
	(void)s;
	const struct route *r = &two_ops[0].routes[0];
	assert_true(route_has(r, "org") && route_has(r, "repo") && route_has(r, "rest"));
	assert_false(route_has(r, "re") || route_has(r, "id") || route_has(r, "git"));
}

static void a_query_is_percent_decoded(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_json json_t *q = query_parse("path=%2Fetc%2fa+b&x=&flag&&u=%C3%A9&eq=a=b", &e);
	assert_string_equal(js_str(q, "path"), "/etc/a b");
	assert_string_equal(js_str(q, "x"), "");
	assert_string_equal(js_str(q, "flag"), "");
	assert_string_equal(js_str(q, "u"), "\xC3\xA9");
	assert_string_equal(js_str(q, "eq"), "a=b");
	assert_int_equal(json_object_size(q), 5);
	auto_json json_t *none = query_parse(NULL, &e);
	assert_int_equal(json_object_size(none), 0);
}

static void a_broken_query_is_refused(void **s)
{
	(void)s;
	static const char *const bad[] = { "a=%", "a=%4", "a=%zz", "a=%00", "a=%ff", "%00=1", "a=1&a=2",
		"a=1&%61=2", NULL };
	for (const char *const *b = bad; *b != NULL; b++) {
		struct err e = { 0 };
		auto_json json_t *q = query_parse(*b, &e);
		if (q != NULL)
			fail_msg("%s was accepted", *b);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	}
}

static void query_strings_become_what_the_schema_says(void **s)
{
	(void)s;
	static const struct param schema[] = {
		{ .name = "limit", .type = T_INT, .min = 1, .max = 200 },
		{ .name = "after", .type = T_INT },
		{ .name = "all", .type = T_BOOL },
		{ .name = "ratio", .type = T_NUM },
		{ .name = "name", .type = T_STR },
		{ 0 },
	};
	struct err e = { 0 };
	auto_json json_t *q = query_parse("limit=50&all=true&ratio=0.5&name=7&after=abc", &e);
	query_coerce(schema, q);
	assert_int_equal(js_int(q, "limit", 0), 50);
	assert_true(js_bool(q, "all", false));
	assert_true(json_is_real(json_object_get(q, "ratio")));
	assert_string_equal(js_str(q, "name"), "7");
	/* What does not fit stays a string, so that the check names it. */
	assert_int_equal(op_check(schema, q, 0, &e), -1);
	assert_string_equal(e.param, "after");
	assert_int_equal(e.n_details, 1);
}

static json_t *rows_of(int n)
{
	json_t *rows = json_array();
	for (int i = 0; i < n; i++)
		js_push(rows, js_pack("{s:o}", "id", json_sprintf("k\"%03d", i)));
	return rows;
}

/* HTTP-6 */
static void a_page_names_the_next_one_with_a_cursor(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct ctx c = { .mem = m };
	struct err e = { 0 };
	auto_json json_t *page = list_reply(rows_of(4), 3, "id");
	assert_int_equal(json_array_size(json_object_get(page, "data")), 3);
	auto_json json_t *in = js_pack("{s:O}", "cursor", json_object_get(page, "next"));
	assert_string_equal(list_cursor(&c, in, &e), "k\"002");
	auto_json json_t *last = list_reply(rows_of(3), 3, "id");
	assert_true(json_is_null(json_object_get(last, "next")));
	auto_json json_t *hidden = list_reply(
	    js_pack("[{s:s,s:s},{s:s}]", "id", "a", "_k", "1", "_k", "2"), 1, "_k");
	auto_json json_t *shown = js_pack("[{s:s}]", "id", "a");
	assert_true(json_equal(json_object_get(hidden, "data"), shown));
	assert_true(json_is_string(json_object_get(hidden, "next")));
	auto_json json_t *empty = list_reply(json_array(), 3, "id");
	assert_true(json_is_array(json_object_get(empty, "data")));
}

static void a_cursor_that_is_not_ours_is_refused(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct ctx c = { .mem = m };
	static const char *const bad[] = { "x", "c1-", "c1-0", "c1-zz", "c1-00", "c1-ff", "c2-41", NULL };
	for (const char *const *b = bad; *b != NULL; b++) {
		struct err e = { 0 };
		auto_json json_t *in = js_pack("{s:s}", "cursor", *b);
		assert_null(list_cursor(&c, in, &e));
		assert_string_equal(e.param, "cursor");
	}
	struct err e = { 0 };
	auto_json json_t *none = json_object();
	assert_string_equal(list_cursor(&c, none, &e), "");
	assert_int_equal(list_limit(none), LIMIT_LIST_DEFAULT);
}

static void what_was_written_is_a_path_without_empty_or_dot_segments_and_encoded_slashes(void **s)
{
	(void)s;
	static const char *const good[] = { "/", "/v1", "/v1/things/", "/v1/a%20b?x=//..%2f", "/v1/...",
		"/v1/.a/a.", "/v1/%252e%252e", "/v1/%2e%2e%2e", "/v1/a%", "/v1/a#//", "*", "", NULL };
	static const struct {
		const char *uri;
		enum err_code code;
	} bad[] = { { "//v1/things", ERR_NOT_FOUND }, { "/v1//things", ERR_NOT_FOUND },
		{ "/v1/things//?q", ERR_NOT_FOUND }, { "/v1/./things", ERR_BAD_REQUEST },
		{ "/v1/x/..", ERR_BAD_REQUEST }, { "/v1/x/%2E./things", ERR_BAD_REQUEST },
		{ "/v1/%2e", ERR_BAD_REQUEST }, { "/v1/..%2fkeys", ERR_BAD_REQUEST },
		{ "/v1/a%2Fb", ERR_BAD_REQUEST } };
	for (const char *const *p = good; *p != NULL; p++) {
		struct err e = { 0 };
		if (route_raw(*p, NULL, &e) != 0)
			fail_msg("%s: %s", *p, e.msg);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = { 0 };
		assert_int_equal(route_raw(bad[i].uri, NULL, &e), -1);
		assert_int_equal(e.code, bad[i].code);
	}
}

/* The vendors' clients encode the slash of `provider/model`. */
static void the_rest_of_a_path_may_hold_encoded_slashes(void **s)
{
	(void)s;
	static const struct route rest = { "GET", "/v1/models/{model...}" }, plain = { "GET", "/v1/a/{id}" };
	static const struct {
		const char *uri;
		const struct route *r;
		enum err_code code;
	} rows[] = { { "/v1/models/a%2Fb", &rest, ERR_NONE }, { "/v1/models/a%2fb/c?x=%2f", &rest, ERR_NONE },
		{ "/v1/models/a%2F%2Fb", &rest, ERR_NOT_FOUND }, { "/v1/models/%2Fb", &rest, ERR_NOT_FOUND },
		{ "/v1/models/b%2F", &rest, ERR_NOT_FOUND }, { "/v1/models/a//b", &rest, ERR_NOT_FOUND },
		{ "/v1/models/a%2F..", &rest, ERR_BAD_REQUEST },
		{ "/v1/models/..%2Fa", &rest, ERR_BAD_REQUEST },
		{ "/v1/models/a%2F%2e%2Fb", &rest, ERR_BAD_REQUEST },
		{ "/v1%2Fmodels/a", &rest, ERR_BAD_REQUEST }, { "/v1/a/b%2Fc", &plain, ERR_BAD_REQUEST } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		if (route_raw(rows[i].uri, rows[i].r, &e) != (rows[i].code == ERR_NONE ? 0 : -1) ||
		    e.code != rows[i].code)
			fail_msg("%s: %d %s", rows[i].uri, (int)e.code, e.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_finds_its_op),
		cmocka_unit_test(a_literal_segment_beats_a_parameter),
		cmocka_unit_test(path_parameters_are_taken_from_their_segments),
		cmocka_unit_test(an_unknown_path_is_404),
		cmocka_unit_test(a_wrong_method_is_405_with_the_methods_of_that_path),
		cmocka_unit_test(internal_ops_do_not_exist_on_the_public_door),
		cmocka_unit_test(ops_of_the_compatibility_door_exist_there_and_nowhere_else),
		cmocka_unit_test(a_route_knows_its_parameters),
		cmocka_unit_test(a_query_is_percent_decoded),
		cmocka_unit_test(a_broken_query_is_refused),
		cmocka_unit_test(query_strings_become_what_the_schema_says),
		cmocka_unit_test(a_page_names_the_next_one_with_a_cursor),
		cmocka_unit_test(a_cursor_that_is_not_ours_is_refused),
		cmocka_unit_test(
		    what_was_written_is_a_path_without_empty_or_dot_segments_and_encoded_slashes),
		cmocka_unit_test(the_rest_of_a_path_may_hold_encoded_slashes),
	};
	return cmocka_run_group_tests_name("route", tests, begin, end);
}
