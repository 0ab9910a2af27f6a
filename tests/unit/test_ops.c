/* What every row of the op tables must keep (HTTP-1, HTTP-8, HTTP-9, OP-1, SBX-2). */
#include "../t.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "handlers/node.h"
#include "io/file.h"

#define EACH_OP(o)                                                                                           \
	for (const struct op *const *t_ = handlers_all; *t_ != NULL; t_++)                                   \
		for (const struct op *o = *t_; o->id != NULL; o++)
#define EACH_ROUTE(r, o)                                                                                     \
	for (const struct route *r = (o)->routes; r < (o)->routes + OP_ROUTES_MAX && r->path != NULL; r++)

static bool is_native(const struct op *o)
{
	return (o->flags & (OP_INTERNAL | OP_HIDDEN)) == 0;
}

static bool is_first_party(const struct op *o, const char *path)
{
	bool internal = (o->flags & OP_INTERNAL) != 0;
	if (str_starts(path, "/v1/node/"))
		return internal;
	if ((o->flags & OP_E2B) != 0) /* ECO-1: another's paths, at a door of their own */
		return !str_starts(path, "/v1/") && !str_starts(path, "/git/");
	return str_starts(path, "/v1/") || str_starts(path, "/git/{org}/") || strcmp(path, "/health") == 0 ||
	    strcmp(path, "/ready") == 0 || (strcmp(path, "/metrics") == 0 && internal);
}

static void every_path_is_where_first_party_paths_are(void **s)
{
	(void)s;
	const struct op *const *const both[] = { handlers_all, handlers_node };
	for (size_t i = 0; i < 2; i++)
		for (const struct op *const *t = both[i]; *t != NULL; t++)
			for (const struct op *o = *t; o->id != NULL; o++)
				EACH_ROUTE(r, o)
	if (!is_first_party(o, r->path))
		fail_msg("%s: %s", o->id, r->path);
}

/* HTTP-9: neither C nor pages speak of a path that answers 404. */
static const char *old_path_in(const char *text, size_t n)
{
	static const char *const marks[] = { "\"/api/", "\"/api\"", "'/api/", "'/api'", "`/api/", "=/api/",
		"}/api/" };
	for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
		const char *at = memmem(text, n, marks[i], strlen(marks[i]));
		if (at != NULL)
			return at;
	}
	return NULL;
}

static int scan(const char *dir)
{
	int seen = 0;
	DIR *d = opendir(dir);
	for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
		char path[600];
		(void)snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
		if (f->d_name[0] == '.')
			continue;
		if (f->d_type == DT_DIR) {
			seen += scan(path);
			continue;
		}
		struct err e = { 0 };
		auto_buf struct buf text = BUF(4 << 20);
		assert_int_equal(file_read(path, &text, &e), 0);
		const char *at = old_path_in(buf_c(&text), text.n);
		if (at != NULL)
			fail_msg("%s: %.40s", path, at);
		seen++;
	}
	if (d != NULL)
		(void)closedir(d);
	return seen;
}

static void no_source_names_a_path_under_api(void **s)
{
	(void)s;
	assert_true(old_path_in("fetch('/api/x')", 15) != NULL);
	assert_true(scan("app") > 50);
	assert_true(scan("handlers") > 3);
	(void)scan("nginx");
}

static void ids_are_unique_lower_case_words(void **s)
{
	(void)s;
	EACH_OP(o)
	{
		assert_true(
		    str_only(str_starts(o->id, "e2b_") ? o->id + 3 : o->id, "abcdefghijklmnopqrstuvwxyz_"));
		assert_ptr_equal(op_by_id(handlers_all, o->id), o);
	}
}

/* Parameters' names do not tell routes apart. */
static void shape(const struct route *r, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "%s ", r->method);
	for (const char *p = r->path; *p != 0 && n + 2 < size; p++) {
		if (*p == '{')
			p += strcspn(p, "}");
		out[n++] = *p;
		out[n] = 0;
	}
}

static void no_route_is_there_twice(void **s)
{
	(void)s;
	char a[300], b[300];
	EACH_OP(o)
	EACH_ROUTE(r, o)
	{
		int same = 0;
		shape(r, a, sizeof a);
		for (const struct op *const *t = handlers_all; *t != NULL; t++)
			for (const struct op *p = *t; p->id != NULL; p++)
				EACH_ROUTE(q, p)
				{
					shape(q, b, sizeof b);
					same += strcmp(a, b) == 0 && ((o->flags ^ p->flags) & OP_E2B) == 0;
				}
		if (same != 1)
			fail_msg("%s", a);
	}
}

static void every_row_is_whole(void **s)
{
	(void)s;
	EACH_OP(o)
	{
		bool ok = o->run != NULL && o->routes[0].path != NULL;
		if (is_native(o))
			ok = ok && o->summary != NULL && o->doc != NULL && o->status >= 200 &&
			    o->status < 300;
		if ((o->flags & (OP_PUBLIC | OP_INTERNAL)) == 0)
			ok = ok && o->scope != NULL;
		if (!ok)
			fail_msg("%s lacks something", o->id);
	}
}

static void check_docs(const struct op *o, const struct param *fields)
{
	for (const struct param *p = fields; p != NULL && p->name != NULL; p++) {
		if (p->doc == NULL || p->doc[0] == 0)
			fail_msg("%s: %s has no doc", o->id, p->name);
		/* HTTP: camelCase on the wire; a compatibility door has its vendor's names */
		bool vendors = (o->flags & OP_LAX) != 0;
		if (!islower((unsigned char)p->name[0]) || (!vendors && strpbrk(p->name, "_-. ") != NULL))
			fail_msg("%s: %s is not camelCase", o->id, p->name);
		if (p->type == T_OBJ)
			check_docs(o, p->fields);
		if (p->type == T_ARR) {
			assert_non_null(p->fields);
			if (p->fields->type == T_OBJ)
				check_docs(o, p->fields->fields);
		}
		if (p->type == T_ENUM)
			assert_true(p->values != NULL && p->values[0] != NULL);
	}
}

static void every_field_is_documented(void **s)
{
	(void)s;
	EACH_OP(o)
	if (is_native(o)) {
		check_docs(o, o->in);
		check_docs(o, o->out);
		check_docs(o, o->line);
	}
}

static const struct param *field(const struct param *schema, const char *name, size_t n)
{
	for (; schema != NULL && schema->name != NULL; schema++)
		if (strlen(schema->name) == n && strncmp(schema->name, name, n) == 0)
			return schema;
	return NULL;
}

static void what_stands_in_a_path_is_a_required_field(void **s)
{
	(void)s;
	EACH_OP(o)
	EACH_ROUTE(r, o)
	for (const char *p = strchr(r->path, '{'); p != NULL; p = strchr(p + 1, '{')) {
		const struct param *f = field(o->in, p + 1, strcspn(p + 1, ".}"));
		if (f == NULL || !f->required)
			fail_msg("%s: %s", o->id, p);
	}
}

/* SBX-2 and the product's fifth principle: the org comes from the credential, never from an input. */
static void no_org(const struct op *o, const struct param *fields)
{
	for (const struct param *p = fields; p != NULL && p->name != NULL; p++) {
		char plain[80];
		size_t n = 0;
		for (const char *c = p->name; *c != 0 && n + 1 < sizeof plain; c++)
			if (isalnum((unsigned char)*c))
				plain[n++] = (char)tolower((unsigned char)*c);
		plain[n] = 0;
		/* The forge's public paths name the org; their handlers compare it with the credential's. */
		bool in_path = (o->flags & OP_HIDDEN) != 0 && route_has(&o->routes[0], p->name);
		if (!in_path &&
		    (str_starts(plain, "org") || strstr(plain, "tenant") != NULL ||
			strstr(plain, "owner") != NULL))
			fail_msg("%s takes %s", o->id, p->name);
		if (p->type == T_OBJ)
			no_org(o, p->fields);
		if (p->type == T_ARR && p->fields->type == T_OBJ)
			no_org(o, p->fields->fields);
	}
}

static void no_input_names_an_org_in_any_spelling(void **s)
{
	(void)s;
	EACH_OP(o)
	if ((o->flags & OP_INTERNAL) == 0)
		no_org(o, o->in);
}

/* OP-1: the examples are a valid input, and the request made of them comes back to the same op with the same values. */
static void the_examples_of_every_op_make_a_request_that_is_routed_to_it(void **s)
{
	(void)s;
	struct routes *routes AUTO(auto_routesp) = routes_new(handlers_all);
	EACH_OP(o)
	{
		if (!is_native(o))
			continue;
		auto_mem struct mem *m = mem_new();
		auto_json json_t *in = op_example(o);
		struct err e = { 0 };
		struct op_request q;
		if (op_check(o->in, in, o->flags, &e) != 0 || op_request(m, o, in, &q, &e) != 0)
			fail_msg("%s: %s", o->id, e.msg);
		char *path = mem_strn(m, q.target, strcspn(q.target, "?"));
		const char *query = strchr(q.target, '?');
		struct route_match match;
		if (route_find(routes, q.method, path, DOOR_PUBLIC, &match, &e) != 0 || match.op != o)
			fail_msg("%s: %s %s goes elsewhere", o->id, q.method, path);
		auto_json json_t *got = match.path_params,
				 *more = query_parse(query == NULL ? NULL : query + 1, &e);
		auto_json json_t *body = q.body == NULL ? NULL : js_parse(q.body, strlen(q.body), &e);
		assert_non_null(more);
		assert_int_equal(json_object_update(got, more), 0);
		query_coerce(o->in, got);
		if (body != NULL)
			assert_int_equal(json_object_update(got, body), 0);
		if (!json_equal(got, in))
			fail_msg("%s: %s %s is not what was asked", o->id, q.method, q.target);
	}
}

/* HTTP-7: whoever adds a POST says whether it creates. */
static void every_post_that_creates_takes_an_idempotency_key(void **s)
{
	(void)s;
	static const char *const creates_nothing[] = { "stop_run", "end_sandbox", "stop_bot_run",
		"read_sandbox_file", "write_sandbox_file", "test_provider", "count_message_tokens",
		"write_stdin", "signal_command", "stat_sandbox_file", "list_sandbox_files",
		"make_sandbox_dir", "move_sandbox_file", "remove_sandbox_file", "watch_sandbox_files", NULL };
	EACH_OP(o)
	{
		bool posts = false, once = (o->flags & OP_ONCE) != 0, keeps = (o->flags & OP_KEEPS) != 0;
		EACH_ROUTE(r, o)
		posts = posts || strcmp(r->method, "POST") == 0;
		if (!is_native(o))
			continue;
		if (once != (posts && !str_one_of(o->id, creates_nothing)))
			fail_msg("%s: does it create?", o->id);
		if (o->status == 201 && posts && !once)
			fail_msg("%s answers 201", o->id);
		/* A repetition of a stream needs something to attach to, and a secret cannot be stored. */
		if (((o->flags & OP_STREAM) != 0 && once && o->again == NULL) || (keeps && !once) ||
		    ((o->flags & OP_SECRET) != 0 && (!once || o->again != NULL)))
			fail_msg("%s: its flags do not fit", o->id);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_path_is_where_first_party_paths_are),
		cmocka_unit_test(no_source_names_a_path_under_api),
		cmocka_unit_test(ids_are_unique_lower_case_words),
		cmocka_unit_test(no_route_is_there_twice),
		cmocka_unit_test(every_row_is_whole),
		cmocka_unit_test(every_field_is_documented),
		cmocka_unit_test(what_stands_in_a_path_is_a_required_field),
		cmocka_unit_test(no_input_names_an_org_in_any_spelling),
		cmocka_unit_test(every_post_that_creates_takes_an_idempotency_key),
		cmocka_unit_test(the_examples_of_every_op_make_a_request_that_is_routed_to_it),
	};
	return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
