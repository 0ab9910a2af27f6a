/* The HTTP conventions, through nginx: HTTP-1…6, 8, 9 and what bad input meets. */
#include "../t.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "../../handlers/handlers.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "judge.h"
#include "session/event.h"
#include "stack.h"

static struct stack st;
static struct stack_org org;
static struct pg_pool *pool;

static void get(const char *path, struct web *w)
{
	web_json(&st, "GET", path, org.key, NULL, w);
}

static void send_body(const char *path, const char *type, const void *body, size_t n, struct web *w)
{
	struct web_req q = {
		.method = "POST", .path = path, .key = org.key, .type = type, .body = body, .body_n = n
	};
	web_do(&st, &q, w);
}

/* ---- routes */

typedef void visit_fn(const struct op *op, const struct route *r);

static void each_route(visit_fn *visit)
{
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++)
			for (int i = 0; i < OP_ROUTES_MAX && op->routes[i].path != NULL; i++)
				visit(op, &op->routes[i]);
}

/* A path of the route: every parameter becomes "x". */
static void path_of(const struct route *r, char out[256])
{
	size_t n = 0;
	for (const char *p = r->path; *p != 0 && n + 2 < 256; p++) {
		if (*p != '{') {
			out[n++] = *p;
			continue;
		}
		out[n++] = 'x';
		p = strchr(p, '}');
		assert_non_null(p);
	}
	out[n] = 0;
}

static void route_is_under_v1(const struct op *op, const struct route *r)
{
	static const char *const others[] = { "/health", "/ready", "/metrics", NULL };
	bool page = (op->flags & OP_HIDDEN) != 0 && str_starts(r->path, "/git/{");
	if ((op->flags & OP_E2B) != 0) /* a door of its own, with the SDK's paths */
		return;
	if (!str_starts(r->path, "/v1/") && !str_one_of(r->path, others) && !page)
		fail_msg("%s: %s is not under /v1", op->id, r->path);
}

/* HTTP-1 */
static void every_registered_path_is_under_v1(void **s)
{
	(void)s;
	each_route(route_is_under_v1);
}

static void scan_file(const char *path)
{
	static const char *const never[] = { "\"/api", "'/api", "`/api", "(/api", NULL };
	auto_buf struct buf text = BUF(4 << 20);
	struct err e = { 0 };
	assert_int_equal(file_read(path, &text, &e), 0);
	for (const char *const *n = never; *n != NULL; n++) {
		const char *hit = strstr(buf_c(&text), *n);
		if (hit != NULL)
			fail_msg("%s names a first-party /api path: %.40s", path, hit);
	}
}

static int scan_tree(const char *dir)
{
	static const char *const kinds[] = { ".c", ".h", ".html", ".js", ".css", ".conf", NULL };
	DIR *d = opendir(dir);
	if (d == NULL)
		return 0;
	int n = 0;
	for (const struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[512];
		if (de->d_name[0] == '.' ||
		    snprintf(path, sizeof path, "%s/%s", dir, de->d_name) >= (int)sizeof path)
			continue;
		if (de->d_type == DT_DIR)
			n += scan_tree(path);
		for (const char *const *k = kinds; *k != NULL; k++)
			if (de->d_type == DT_REG && str_ends(de->d_name, *k)) {
				scan_file(path);
				n++;
			}
	}
	(void)closedir(d);
	return n;
}

/* HTTP-9 */
static void no_source_names_a_first_party_api_path(void **s)
{
	(void)s;
	assert_true(scan_tree("app") > 50);
	assert_true(scan_tree("handlers") > 3);
	assert_true(scan_tree("nginx") > 1);
}

/* HTTP-1, HTTP-2 */
static void unknown_paths_are_not_found(void **s)
{
	(void)s;
	static const char *const ours[] = { "/v1", "/v1/", "/v1/nope", "/v1/keys/a/b/c",
		"/v1/agents/sessions/", "/v1/node/sandboxes", "/v1/forge/x/y/tip?branch=main", NULL };
	for (const char *const *p = ours; *p != NULL; p++) {
		auto_web struct web w = { 0 };
		get(*p, &w);
		judge_refusal(&st, &w, 404);
	}
	static const char *const nginxs[] = { "/api/v1/keys", "/api/", "/api", "/metrics", "/", NULL };
	for (const char *const *p = nginxs; *p != NULL; p++) {
		auto_web struct web w = { 0 };
		get(*p, &w);
		assert_int_equal(w.status, 404);
	}
}

static void route_refuses_other_methods(const struct op *op, const struct route *r)
{
	if ((op->flags & (OP_INTERNAL | OP_HIDDEN)) != 0)
		return;
	char path[256], allow[200];
	path_of(r, path);
	auto_web struct web w = { 0 };
	web_json(&st, "PROPFIND", path, org.key, NULL, &w); /* no op has it */
	if (str_starts(path, "/v1/chat/") || str_starts(path, "/v1/responses") ||
	    str_starts(path, "/v1/messages"))
		judge_dialect(&st, &w, path, 405, "invalid_request_error", "method_not_allowed");
	else
		judge_refusal(&st, &w, 405);
	assert_true(web_header(&w, "Allow", allow, sizeof allow));
	assert_non_null(strstr(allow, r->method));
	assert_null(strstr(allow, "PROPFIND"));
}

/* HTTP-2 */
static void a_known_path_names_the_methods_it_has(void **s)
{
	(void)s;
	each_route(route_refuses_other_methods);
}

static void route_asks_for_a_credential(const struct op *op, const struct route *r)
{
	if ((op->flags & (OP_INTERNAL | OP_HIDDEN | OP_PUBLIC)) != 0)
		return;
	char path[256];
	path_of(r, path);
	auto_web struct web w = { 0 };
	web_json(&st, r->method, path, NULL, NULL, &w);
	if ((op->flags & OP_LAX) == 0)
		judge_refusal(&st, &w, 401);
	assert_int_equal(w.status, 401); /* a compatibility door says it in its own dialect: flow_wires */
}

/* ID-1: before a single field is looked at. */
static void every_op_asks_for_a_credential(void **s)
{
	(void)s;
	each_route(route_asks_for_a_credential);
}

static void a_head_request_is_a_get_without_a_body(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	web_json(&st, "HEAD", "/v1/keys", org.key, NULL, &w);
	assert_int_equal(w.status, 200);
	assert_int_equal(w.body_n, 0);
}

/* HTTP-2: 406 never. */
static void any_accept_is_answered_with_what_there_is(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	static const char *const headers[] = { "Accept: image/png", NULL };
	struct web_req q = { .method = "GET", .path = "/v1/keys", .key = org.key, .headers = headers };
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 200);
}

/* ---- bodies */

/* HTTP-2 */
static void a_body_that_is_not_json_by_its_own_word_is_refused(void **s)
{
	(void)s;
	static const char *const types[] = { "text/plain", "application/x-www-form-urlencoded",
		"application/jsonp", "application/octet-stream", NULL };
	static const char *const fine[] = { "application/json", "application/json; charset=utf-8",
		"Application/JSON", NULL };
	for (const char *const *t = types; *t != NULL; t++) {
		auto_web struct web w = { 0 };
		send_body("/v1/keys", *t, "{\"name\":\"x\"}", 0, &w);
		judge_refusal(&st, &w, 415);
	}
	for (const char *const *t = fine; *t != NULL; t++) {
		auto_web struct web w = { 0 };
		send_body("/v1/keys", *t, "{\"name\":\"x\"}", 0, &w);
		assert_int_equal(w.status, 201);
	}
}

static void a_body_that_cannot_be_read_is_refused_with_the_reason(void **s)
{
	(void)s;
#define RAW(text) text, sizeof text - 1
	static const struct {
		const char *body;
		size_t n;
		const char *says;
	} bad[] = {
		{ RAW("{"), "ends too early" },
		{ RAW("nope"), "not JSON" },
		{ RAW("{\"name\":\"x\"} {}"), "not JSON" },
		{ RAW("{\"name\":\"x\",}"), "not JSON" },
		{ RAW("{'name':'x'}"), "not JSON" },
		{ RAW("\xEF\xBB\xBF{\"name\":\"x\"}"), "not JSON" },
		{ RAW("[\"name\"]"), "object" },
		{ RAW("null"), "object" },
		{ RAW("7"), "object" },
		{ RAW("{\"name\":\"x\",\"name\":\"y\"}"), "twice" },
		{ RAW("{\"name\":\"\xff\xfe\"}"), "UTF-8" },
		{ RAW("{\"name\":\"\xc0\xaf\"}"), "UTF-8" },
		{ RAW("{\"name\":\"\xed\xa0\x80\"}"), "UTF-8" },
		{ RAW("{\"name\":\"a\\u0000b\"}"), "U+0000" },
		{ RAW("{\"na\\u0000me\":\"b\"}"), "U+0000" },
		{ RAW("{\"name\":\"a\0b\"}"), "" },
		{ RAW("{\"name\":\"\\ud800\"}"), "" },
		{ RAW("{\"name\":1e999}"), "" },
		{ RAW("{\"name\":99999999999999999999999999}"), "too large" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		send_body("/v1/keys", NULL, bad[i].body, bad[i].n, &w);
		judge_refusal(&st, &w, 400);
		if (strstr(web_error(&w, "message"), bad[i].says) == NULL)
			fail_msg("%s: %s", bad[i].body, web_error(&w, "message"));
	}
}

static void deep_json_is_refused_before_it_is_parsed(void **s)
{
	(void)s;
	enum { DEEP = 200000 };
	auto_free char *body = xcalloc(1, DEEP + 1);
	memset(body, '[', DEEP);
	auto_web struct web w = { 0 };
	send_body("/v1/keys", NULL, body, DEEP, &w);
	judge_refusal(&st, &w, 400);
	assert_string_equal(web_error(&w, "code"), "json_too_deep");
}

/* HTTP-2: past the op's limit in our words, past nginx's in the same envelope. */
static void an_oversized_body_is_refused(void **s)
{
	(void)s;
	static const size_t sizes[] = { LIMIT_BODY_BYTES + 1, 33 << 20 };
	for (size_t i = 0; i < 2; i++) {
		auto_free char *body = xcalloc(1, sizes[i] + 1);
		memset(body, ' ', sizes[i]);
		auto_web struct web w = { 0 };
		send_body("/v1/keys", NULL, body, sizes[i], &w);
		assert_int_equal(w.status, 413);
		assert_string_equal(web_error(&w, "type"), "invalid_request_error");
		assert_true(strlen(web_error(&w, "message")) > 0);
		assert_true(strlen(web_error(&w, "request_id")) > 0);
	}
	/* The largest that is allowed is read to its end. */
	auto_free char *body = xcalloc(1, LIMIT_BODY_BYTES + 1);
	memset(body, ' ', LIMIT_BODY_BYTES);
	memcpy(body, "{\"name\":\"x\"}", strlen("{\"name\":\"x\"}"));
	auto_web struct web w = { 0 };
	send_body("/v1/keys", NULL, body, LIMIT_BODY_BYTES, &w);
	assert_int_equal(w.status, 201);
}

/* ---- fields */

/* HTTP-3 */
static void a_field_at_fault_is_named_with_what_is_allowed(void **s)
{
	(void)s;
	static const struct {
		const char *method, *path, *body, *param, *says;
	} bad[] = {
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"nope\":1}", "nope", "" },
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"orgId\":\"other\"}", "orgId", "" },
		{ "POST", "/v1/keys", "{\"name\":7}", "name", "string" },
		{ "POST", "/v1/keys", "{\"name\":[\"x\"]}", "name", "string" },
		{ "POST", "/v1/keys", "{}", "name", "" },
		{ "POST", "/v1/keys", "{\"name\":null}", "name", "" },
		{ "POST", "/v1/keys", "{\"name\":\"\"}", "name", "" },
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"admin\":\"true\"}", "admin", "true or false" },
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"scopes\":\"*\"}", "scopes", "array" },
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"scopes\":[\"moon\"]}", "scopes", "sessions" },
		{ "POST", "/v1/keys", "{\"name\":\"x\",\"expiresAt\":\"tomorrow\"}", "expiresAt", "" },
		{ "POST", "/v1/keys?name=x", "{\"name\":\"x\"}", "name", "query" },
		{ "GET", "/v1/keys?nope=1", NULL, "nope", "" },
		{ "GET", "/v1/keys?limit=many", NULL, "limit", "whole number" },
		{ "GET", "/v1/keys?limit=0", NULL, "limit", "1" },
		{ "GET", "/v1/keys?limit=201", NULL, "limit", "200" },
		{ "GET", "/v1/keys?limit=1.5", NULL, "limit", "whole number" },
		{ "GET", "/v1/keys?limit=1&limit=2", NULL, "limit", "" },
		{ "GET", "/v1/keys?cursor=made-up", NULL, "cursor", "" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		struct web_req q = {
			.method = bad[i].method, .path = bad[i].path, .key = org.key, .body = bad[i].body
		};
		web_do(&st, &q, &w);
		judge_refusal(&st, &w, 400);
		if (!str_starts(web_error(&w, "param"), bad[i].param) ||
		    strstr(web_error(&w, "message"), bad[i].says) == NULL)
			fail_msg("%s %s: %s", bad[i].path, bad[i].body == NULL ? "" : bad[i].body, w.body);
	}
}

/* HTTP-4 */
static void several_faults_are_listed_at_once(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	send_body("/v1/keys", NULL, "{\"name\":7,\"nope\":1,\"admin\":\"x\"}", 0, &w);
	judge_refusal(&st, &w, 400);
	const json_t *details = json_object_get(json_object_get(w.json, "error"), "details");
	assert_int_equal(json_array_size(details), 3);
}

static void odd_urls_are_refused_and_never_a_fault_of_ours(void **s)
{
	(void)s;
	static const char *const odd[] = { "/v1/agents/sessions/%ff%fe", "/v1/agents/sessions/%00",
		"/v1/agents/sessions/a%0d%0aX-Evil:%201", "/v1/../../etc/passwd", "/v1/keys?limit=%ff",
		"/v1/keys?limit=%zz", "/v1/keys?cursor=%00", "/v1/keys?=1",
		"/v1/agents/sessions/'%20OR%201=1--", "/v1/keys?cursor=c1-ff", NULL };
	for (const char *const *p = odd; *p != NULL; p++) {
		auto_web struct web w = { 0 };
		get(*p, &w);
		if (w.status < 400 || w.status >= 500)
			fail_msg("%s: %ld %s", *p, w.status, w.body);
	}
}

/* ---- what every reply has */

/* HTTP-5 */
static void a_sane_request_id_is_kept_and_another_is_replaced(void **s)
{
	(void)s;
	static const struct {
		const char *header;
		const char *kept; /* NULL: one of ours comes back */
	} ids[] = {
		{ "X-Request-Id: my-id_1.2", "my-id_1.2" },
		{ "X-Request-Id: has a space", NULL },
		{ "X-Request-Id: <script>", NULL },
		{ "X-Request-Id;", NULL },
		{ "X-Other: x", NULL },
		{ "X-Request-Id: "
		  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		  "aaaaaaaaaaaaaaaaaaaaaaaaaa"
		  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		  "aaaaaaaaaaaaaaaaaaaaaaaaaaa",
		    NULL },
	};
	for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		auto_web struct web w = { 0 };
		char id[300];
		const char *const headers[] = { ids[i].header, NULL };
		struct web_req q = {
			.method = "GET", .path = "/v1/nope", .key = org.key, .headers = headers
		};
		web_do(&st, &q, &w);
		judge_refusal(&st, &w, 404);
		assert_true(web_header(&w, "X-Request-Id", id, sizeof id));
		if (ids[i].kept != NULL)
			assert_string_equal(id, ids[i].kept);
		else
			assert_true(id_is("req", id));
	}
}

/* ---- lists */

static void opened(const char *slug, char id[ID_MAX])
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(session_open(db, slug, "coding", "A title", "ann", NULL, id, &e), 0);
}

/* HTTP-6, HTTP-8 */
static void a_list_is_walked_in_pages_without_a_gap_or_a_repeat(void **s)
{
	(void)s;
	enum { ALL = 7, LIMIT = 3 };
	struct stack_org own;
	stack_org(&st, &own);
	char ids[ALL][ID_MAX], path[600], next[400] = "";
	for (int i = 0; i < ALL; i++)
		opened(own.slug, ids[i]);
	int seen[ALL] = { 0 }, pages = 0, rows = 0;
	do {
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/agents/sessions?limit=%d%s%s", LIMIT,
		    pages == 0 ? "" : "&cursor=", next);
		web_json(&st, "GET", path, own.member, NULL, &w);
		assert_int_equal(w.status, 200);
		const json_t *row;
		size_t i;
		json_array_foreach(json_object_get(w.json, "data"), i, row) {
			for (int k = 0; k < ALL; k++)
				seen[k] += strcmp(ids[k], js_str(row, "id")) == 0;
			assert_true(id_is("ses", js_str(row, "id")));
			assert_int_equal(
			    strlen(js_str(row, "createdAt")), strlen("2026-01-02T03:04:05.678Z"));
			rows++;
		}
		(void)snprintf(next, sizeof next, "%s", js_str_or(w.json, "next", ""));
		pages++;
	} while (next[0] != 0);
	assert_int_equal(pages, 3);
	assert_int_equal(rows, ALL);
	for (int k = 0; k < ALL; k++)
		assert_int_equal(seen[k], 1);
}

static void route_lists_nothing_as_an_empty_array(const struct op *op, const struct route *r)
{
	if ((op->flags & (OP_INTERNAL | OP_HIDDEN | OP_LAX)) != 0 || !str_starts(op->id, "list_") ||
	    strcmp(r->method, "GET") != 0 || strchr(r->path, '{') != NULL)
		return;
	struct stack_org own;
	stack_org(&st, &own);
	auto_web struct web w = { 0 };
	web_json(&st, r->method, r->path, own.key, NULL, &w);
	judge_reply(op, &w);
	assert_true(json_is_array(json_object_get(w.json, "data")));
	assert_true(json_is_null(json_object_get(w.json, "next")));
}

/* HTTP-6: arrays are never null. */
static void an_empty_list_is_an_empty_array(void **s)
{
	(void)s;
	each_route(route_lists_nothing_as_an_empty_array);
}

/* What is no request of git's protocol is the client's fault: said to it, and no error of ours in the log. */
static void rubbish_for_git_is_refused_in_words(void **s)
{
	(void)s;
	static const struct {
		const char *service, *body, *encoding;
	} rows[] = { { "git-upload-pack", "rubbish and more", NULL },
		{ "git-upload-pack", "000ahello\n0000", NULL },
		{ "git-upload-pack", "\x1f\x8b\x08rubbish", "Content-Encoding: gzip" },
		{ "git-receive-pack", "rubbish and more", NULL },
		{ "git-receive-pack", "000ahello\n0000", NULL },
		{ "git-receive-pack", "plain", "Content-Encoding: gzip" } };
	auto_web struct web made = { 0 };
	web_json(&st, "POST", "/v1/git/repos", org.key, js_pack("{s:s}", "name", "rubbish"), &made);
	assert_int_equal(made.status, 201);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char path[200], type[80];
		const char *headers[] = { rows[i].encoding, NULL };
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/git/%s/rubbish.git/%s", org.slug, rows[i].service);
		(void)snprintf(type, sizeof type, "application/x-%s-request", rows[i].service);
		web_do(&st,
		    &(struct web_req){ .method = "POST",
			.path = path,
			.key = org.key,
			.type = type,
			.headers = headers,
			.body = rows[i].body },
		    &w);
		if (w.status != 400 || strncmp(web_error(&w, "message"), "The body ", 9) != 0)
			fail_msg("%zu: %ld %s", i, w.status, w.body);
	}
	for (int i = 1; i <= st.apis; i++) {
		char path[200];
		struct err e = { 0 };
		auto_buf struct buf log = BUF(64 << 20);
		(void)snprintf(path, sizeof path, "%s/log/api%d.log", st.dir, i);
		assert_int_equal(file_read(path, &log, &e), 0);
		assert_null(strstr(buf_c(&log), "http-backend"));
	}
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, NULL);
	stack_org(&st, &org);
	pool = stack_pool(&st, 2);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	stack_down(&st);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_registered_path_is_under_v1),
		cmocka_unit_test(no_source_names_a_first_party_api_path),
		cmocka_unit_test(unknown_paths_are_not_found),
		cmocka_unit_test(a_known_path_names_the_methods_it_has),
		cmocka_unit_test(every_op_asks_for_a_credential),
		cmocka_unit_test(a_head_request_is_a_get_without_a_body),
		cmocka_unit_test(any_accept_is_answered_with_what_there_is),
		cmocka_unit_test(a_body_that_is_not_json_by_its_own_word_is_refused),
		cmocka_unit_test(a_body_that_cannot_be_read_is_refused_with_the_reason),
		cmocka_unit_test(deep_json_is_refused_before_it_is_parsed),
		cmocka_unit_test(an_oversized_body_is_refused),
		cmocka_unit_test(a_field_at_fault_is_named_with_what_is_allowed),
		cmocka_unit_test(several_faults_are_listed_at_once),
		cmocka_unit_test(odd_urls_are_refused_and_never_a_fault_of_ours),
		cmocka_unit_test(rubbish_for_git_is_refused_in_words),
		cmocka_unit_test(a_sane_request_id_is_kept_and_another_is_replaced),
		cmocka_unit_test(a_list_is_walked_in_pages_without_a_gap_or_a_repeat),
		cmocka_unit_test(an_empty_list_is_an_empty_array),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
