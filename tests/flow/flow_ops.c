/*
 * Every op of the table, over every route it has, on the whole stack: the examples that OpenAPI shows are sent as they stand
 * (only ids are put in that exist here), and every reply is held to the op's own schema (OP-1). An op that a new row adds is
 * called here without a line of test code; what it names and cannot be guessed gets a maker below.
 */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../../handlers/handlers.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "judge.h"
#include "session/event.h"
#include "stack.h"

enum { NAME_BYTES = 64, LISTEN_S = 3 };

static struct stack st;
static struct stack_org org;
static struct pg_pool *pool;
static int made_so_far;

/* ---- things that ops name; each maker makes a new one */

static void fresh_session(char out[NAME_BYTES])
{
	struct err e = { 0 };
	char id[ID_MAX];
	auto_pg struct pg *db = pg_take(pool, 5000, &e);
	auto_json json_t *end = js_pack("{s:b}", "ok", 1);
	assert_non_null(db);
	assert_int_equal(session_open(db, org.slug, "coding", "A title", "ann", NULL, id, &e), 0);
	assert_int_equal(session_step(db, org.slug, id, "work", "A step.", "ok", NULL, &e), 0);
	assert_int_equal(session_close(db, org.slug, id, "done", end, NULL, &e), 0);
	(void)snprintf(out, NAME_BYTES, "%s", id);
}

static void posted(const char *path, json_t *body, long status, const char *member, char out[NAME_BYTES])
{
	auto_web struct web w = { 0 };
	web_json(&st, "POST", path, org.key, body, &w);
	if (w.status != status)
		fail_msg("%s: %ld %s", path, w.status, w.body);
	(void)snprintf(out, NAME_BYTES, "%s", js_str_or(w.json, member, ""));
	assert_int_not_equal(strlen(out), 0);
}

static void fresh_key(char out[NAME_BYTES])
{
	posted("/v1/keys", js_pack("{s:s}", "name", "a thing"), 201, "id", out);
}

static void fresh_sandbox(char out[NAME_BYTES])
{
	posted("/v1/sandboxes", js_pack("{s:s}", "class", "exec"), 201, "id", out);
}

static void fresh_repo(char out[NAME_BYTES])
{
	char name[NAME_BYTES], path[200], commit[NAME_BYTES];
	(void)snprintf(name, sizeof name, "repo-%d", ++made_so_far);
	posted("/v1/git/repos", js_pack("{s:s}", "name", name), 201, "name", out);
	(void)snprintf(path, sizeof path, "/v1/git/repos/%s/push", name);
	posted(path,
	    js_pack("{s:s, s:s, s:[{s:s, s:s}]}", "branch", "main", "message", "Begin", "files", "path",
		"README.md", "content", "Hello.\n"),
	    200, "commit", commit);
}

static void fresh_run(char out[NAME_BYTES])
{
	static const char *const later[] = { "Prefer: respond-async", NULL };
	auto_web struct web w = { 0 };
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org.key,
		.headers = later,
		.body = "{\"tool\":\"python\",\"prompt\":\"print(1)\"}" };
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 202);
	(void)snprintf(out, NAME_BYTES, "%s", js_str(w.json, "run"));
}

static struct thing {
	const char *scope, *param;
	void (*fresh)(char out[NAME_BYTES]);
	char id[NAME_BYTES]; /* "" when there is none, or the last one was used up */
} things[] = {
	{ "sessions", "id", fresh_session, "" },
	{ "sessions", "root", fresh_session, "" },
	{ "keys", "id", fresh_key, "" },
	{ "sandboxes", "id", fresh_sandbox, "" },
	{ "coding", "run", fresh_run, "" },
	{ "coding", "repo", fresh_repo, "" },
	{ "git", "repo", fresh_repo, "" },
};

static struct thing *thing_of(const struct op *op, const char *param)
{
	for (struct thing *t = things; t < things + sizeof things / sizeof things[0]; t++)
		if (op->scope != NULL && strcmp(t->scope, op->scope) == 0 && strcmp(t->param, param) == 0)
			return t;
	return NULL;
}

/* A sandbox's file and command have to exist before they are read. */
static void prepare_sandbox(const struct op *op, json_t *in)
{
	char path[300], unused[NAME_BYTES];
	const char *id = js_str(in, "id");
	if (op->scope == NULL || strcmp(op->scope, "sandboxes") != 0 || id == NULL)
		return;
	if (js_str(in, "path") != NULL && strcmp(op->id, "read_sandbox_file") == 0)
		posted("/v1/sandboxes/write",
		    js_pack("{s:s, s:s, s:s}", "id", id, "path", js_str(in, "path"), "content", "Hello.\n"),
		    200, "path", unused);
	if (js_get(in, "cmd") == NULL)
		return;
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	posted(path, js_pack("{s:[s]}", "argv", "true"), 200, "id", unused);
	js_set_str(in, "cmd", unused);
}

static bool uses_up(const struct op *op)
{
	return str_starts(op->id, "end_") || str_starts(op->id, "delete_") || str_starts(op->id, "revoke_");
}

/* The example's ids are replaced by those of things that exist. */
static void put_in_things(const struct op *op, json_t *in)
{
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++) {
		struct thing *t = thing_of(op, p->name);
		if (t == NULL || json_object_get(in, p->name) == NULL)
			continue;
		if (t->id[0] == 0)
			t->fresh(t->id);
		js_set_str(in, p->name, t->id);
		if (uses_up(op))
			t->id[0] = 0;
	}
	prepare_sandbox(op, in);
}

/* ---- calls */

static void call(const struct op *op, const struct route *r, json_t *in)
{
	struct op one = *op;
	struct err e = { 0 };
	struct op_request req;
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	memset(one.routes, 0, sizeof one.routes);
	one.routes[0] = *r;
	put_in_things(op, in);
	assert_int_equal(op_request(m, &one, in, &req, &e), 0);
	bool raw = (op->flags & OP_RAW_IN) != 0;
	struct web_req q = { .method = req.method,
		.path = req.target,
		.key = org.key,
		.body = raw ? "bytes" : req.body,
		.type = raw ? "application/octet-stream" : NULL,
		/* A whole org is told for ever. */
		.timeout_s = strcmp(op->id, "watch_sessions") == 0 ? LISTEN_S : 0 };
	web_do(&st, &q, &w);
	print_message("    %s %s: %ld\n", r->method, r->path, w.status);
	judge_reply(op, &w);
	if ((op->flags & OP_STREAM) == 0)
		assert_int_equal(w.status, op->status);
}

/* Only what must be there. */
static json_t *required_of(const struct op *op, const json_t *example)
{
	json_t *in = js_pack("{}");
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++) {
		json_t *v = json_object_get(example, p->name);
		if (p->required && v == NULL)
			fail_msg("%s: the required `%s` has no example", op->id, p->name);
		if (p->required)
			js_set(in, p->name, json_incref(v));
	}
	return in;
}

static void op_keeps_its_word(const struct op *op)
{
	/* What is required is not enough: a tool, a name that is free, one of two fields. */
	static const char *const only_whole[] = { "start_coding_run", "create_repo", "run_in_sandbox", NULL };
	auto_json json_t *example = op_example(op);
	for (int i = 0; i < OP_ROUTES_MAX && op->routes[i].path != NULL; i++) {
		auto_json json_t *all = json_deep_copy(example), *least = required_of(op, example);
		print_message("  %s\n", op->id);
		call(op, &op->routes[i], all);
		if (!str_one_of(op->id, only_whole))
			call(op, &op->routes[i], least);
	}
}

static void every_op_does_what_its_examples_say(void **s)
{
	(void)s;
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++)
			if ((op->flags & (OP_INTERNAL | OP_HIDDEN)) == 0)
				op_keeps_its_word(op);
}

/* STR-5 */
static void who_prefers_is_told_where_to_look_instead(void **s)
{
	(void)s;
	static const char *const later[] = { "Prefer: wait=1, respond-async; x=y", NULL };
	char location[200], applied[40];
	auto_web struct web w = { 0 }, session = { 0 }, again = { 0 };
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org.member,
		.headers = later,
		.body = "{\"tool\":\"python\",\"prompt\":\"print(1)\"}" };
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 202);
	assert_true(web_header(&w, "Location", location, sizeof location));
	assert_true(web_header(&w, "Preference-Applied", applied, sizeof applied));
	assert_string_equal(applied, "respond-async");
	web_json(&st, "GET", location, org.member, NULL, &session);
	assert_int_equal(session.status, 200);
	assert_string_equal(js_str(session.json, "id"), js_str(w.json, "session"));
	assert_string_equal(js_str(session.json, "createdBy"), "member");
	/* And its stream ends with the one terminal line. */
	struct web_req all = { .method = "GET", .key = org.member };
	char path[260];
	(void)snprintf(path, sizeof path, "%s/stream", location);
	all.path = path;
	web_do(&st, &all, &again);
	const char *last = strstr(again.body, "\"type\":\"result\"");
	assert_non_null(last);
	assert_int_equal(strcspn(last, "\n"), strlen(last) - 1);
}

/* OP-1: the document names every op of the table, and nothing else. */
static void openapi_names_every_public_op(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	web_json(&st, "GET", "/v1/openapi.json", NULL, NULL, &w);
	assert_int_equal(w.status, 200);
	const json_t *paths = json_object_get(w.json, "paths");
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++) {
			bool shown = strstr(w.body, op->id) != NULL;
			assert_true(shown == ((op->flags & (OP_INTERNAL | OP_HIDDEN)) == 0));
			if (shown)
				assert_non_null(json_object_get(paths, op->routes[0].path));
		}
}

static int setup(void **s)
{
	(void)s;
	char conninfo[160];
	stack_up(&st, 2, 1, 1, NULL);
	stack_org(&st, &org);
	(void)snprintf(conninfo, sizeof conninfo, "host=%s/run/pg dbname=gatehouse user=postgres", st.dir);
	pool = pg_pool_new(conninfo, 2, 5000);
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
		cmocka_unit_test(openapi_names_every_public_op),
		cmocka_unit_test(every_op_does_what_its_examples_say),
		cmocka_unit_test(who_prefers_is_told_where_to_look_instead),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
