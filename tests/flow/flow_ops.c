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
#include "gw.h"
#include "judge.h"
#include "session/event.h"
#include "stack.h"

enum { NAME_BYTES = 64, PATIENCE_S = 300 };

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;
static char operators[128]; /* an admin's key of the reserved org */
static struct pg_pool *pool;
static int made_so_far;

/* ---- things that ops name; each maker makes a new one */

static void fresh_session(char out[NAME_BYTES])
{
	struct err e = { 0 };
	char id[ID_MAX];
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
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

static void run_of(const char *body, char out[NAME_BYTES])
{
	static const char *const later[] = { "Prefer: respond-async", NULL };
	auto_web struct web w = { 0 };
	struct web_req q = {
		.method = "POST", .path = "/v1/coding-tasks", .key = org.key, .headers = later, .body = body
	};
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 202);
	(void)snprintf(out, NAME_BYTES, "%s", js_str(w.json, "run"));
}

static void fresh_run(char out[NAME_BYTES])
{
	run_of("{\"tool\":\"python\",\"prompt\":\"print(1)\"}", out);
}

/* One that does not end meanwhile. */
static void fresh_long_run(char out[NAME_BYTES])
{
	run_of("{\"tool\":\"python\",\"prompt\":\"import time; time.sleep(600)\"}", out);
}

static void fresh_grant(char out[NAME_BYTES]);

static void fresh_egress_credential(char out[NAME_BYTES])
{
	auto_mem struct mem *m = mem_new();
	posted("/v1/egress/credentials",
	    js_pack("{s:s, s:s, s:s, s:s}", "name", "x", "host", mem_fmt(m, "h%d.example.com", ++made_so_far),
		"header", "authorization", "value", "Bearer x"),
	    201, "id", out);
}

/* Nobody is at its address: trying it costs no time and no network. */
static void fresh_provider(char out[NAME_BYTES])
{
	auto_mem struct mem *m = mem_new();
	posted("/v1/models/providers",
	    js_pack("{s:s, s:s, s:s, s:[{s:s, s:{s:i, s:i}}]}", "name", mem_fmt(m, "p%d", ++made_so_far),
		"wire", "openai-chat", "baseUrl", "http://127.0.0.1:9/v1", "models", "name", "gpt-5",
		"prices", "input", 1, "output", 1),
	    201, "name", out);
}

/* One that answers: a call of it is a whole call. */
static void fresh_model(char out[NAME_BYTES])
{
	auto_web struct web w = { 0 };
	gw_provider(&st, fake, org.key, "vendor", "openai-chat", 1, "ok");
	web_json(&st, "PUT", "/v1/models/routing", org.key,
	    js_pack("{s:{s:[s]}}", "aliases", "free", "vendor/ok"), &w);
	assert_int_equal(w.status, 200);
	(void)snprintf(out, NAME_BYTES, "vendor/ok");
}

static void fresh_model_again(char out[NAME_BYTES])
{
	(void)snprintf(out, NAME_BYTES, "vendor/ok");
}

static void fresh_account(char out[NAME_BYTES])
{
	(void)snprintf(out, NAME_BYTES, "%s", org.slug);
}

static void fresh_trace(char out[NAME_BYTES])
{
	auto_buf struct buf unused = BUF(4096);
	auto_mem struct mem *m = mem_new();
	(void)snprintf(out, NAME_BYTES, "%032d", ++made_so_far);
	stack_sql(&st,
	    mem_fmt(m,
		"INSERT INTO spans (org, trace_id, span_id, name, started_at, duration_us, attributes) "
		"VALUES ('%s', '%s', '0000000000000001', 'chat m', now(), 1, '{}')",
		org.slug, out),
	    &unused);
}

static struct thing {
	const char *scope, *param;
	void (*fresh)(char out[NAME_BYTES]);
	char id[NAME_BYTES]; /* "" when there is none, or the last one was used up */
	const char *under;   /* only of ops with such a path; before the row for all others */
} things[] = {
	{ "sessions", "id", fresh_trace, "", "/v1/traces" },
	{ "sessions", "id", fresh_session, "" },
	{ "sessions", "root", fresh_session, "" },
	{ "keys", "id", fresh_key, "" },
	{ "sandboxes", "id", fresh_egress_credential, "", "/v1/egress/credentials" },
	{ "sandboxes", "id", fresh_sandbox, "" },
	{ "coding", "run", fresh_long_run, "", "/v1/bots/{run}/tokens" },
	{ "coding", "run", fresh_run, "" },
	{ "coding", "repo", fresh_repo, "" },
	{ "git", "repo", fresh_repo, "" },
	{ "git", "id", fresh_grant, "" },
	{ "models", "name", fresh_provider, "", "/v1/models/providers/{name}" },
	{ "models", "model", fresh_model, "", "/v1/models/{model" },
	{ "models", "model", fresh_model_again, "", "/v1/chat/" },
	{ "models", "model", fresh_model_again, "", "/v1/messages" },
	{ "models", "model", fresh_model_again, "", "/v1/responses" },
	{ "billing", "account", fresh_account, "" },
};

static struct thing *thing_of(const struct op *op, const char *param)
{
	for (struct thing *t = things; t < things + sizeof things / sizeof things[0]; t++)
		if (op->scope != NULL && strcmp(t->scope, op->scope) == 0 && strcmp(t->param, param) == 0 &&
		    (t->under == NULL || str_starts(op->routes[0].path, t->under)))
			return t;
	return NULL;
}

/* For the repository that is named beside it. */
static void fresh_grant(char out[NAME_BYTES])
{
	char path[200];
	const struct op named = { .scope = "git" };
	(void)snprintf(path, sizeof path, "/v1/git/repos/%s/grants", thing_of(&named, "repo")->id);
	posted(path, js_pack("{s:s}", "ref", "agent/x"), 201, "id", out);
}

/* A sandbox's file and command have to exist before they are read. */
static void prepare_sandbox(const struct op *op, json_t *in)
{
	static const char *const files[] = { "read_sandbox_file", "stat_sandbox_file", "remove_sandbox_file",
		"download_sandbox_file", NULL };
	static const char *const folders[] = { "list_sandbox_files", "watch_sandbox_files",
		"download_sandbox_folder", NULL };
	char path[300], unused[NAME_BYTES];
	const char *id = js_str(in, "id");
	if (op->scope == NULL || strcmp(op->scope, "sandboxes") != 0 || id == NULL)
		return;
	const char *file = str_one_of(op->id, files)   ? js_str(in, "path")
	    : strcmp(op->id, "move_sandbox_file") == 0 ? js_str(in, "from")
						       : NULL;
	if (file != NULL)
		posted("/v1/sandboxes/write",
		    js_pack("{s:s, s:s, s:s}", "id", id, "path", file, "content", "Hello.\n"), 200, "path",
		    unused);
	else if (str_one_of(op->id, folders))
		posted("/v1/sandboxes/mkdir", js_pack("{s:s, s:s}", "id", id, "path", js_str(in, "path")),
		    200, "path", unused);
	if (file != NULL && js_str(in, "to") != NULL) { /* what the call before has moved there */
		posted("/v1/sandboxes/write",
		    js_pack("{s:s, s:s, s:s}", "id", id, "path", js_str(in, "to"), "content", ""), 200,
		    "path", unused);
		posted("/v1/sandboxes/remove", js_pack("{s:s, s:s}", "id", id, "path", js_str(in, "to")), 200,
		    "path", unused);
	}
	if (js_get(in, "cmd") == NULL)
		return;
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	if (strcmp(op->id, "write_stdin") == 0)
		posted(path, js_pack("{s:[s], s:b, s:b}", "argv", "cat", "detach", true, "stdinOpen", true),
		    200, "id", unused);
	else
		posted(path, js_pack("{s:[s]}", "argv", "true"), 200, "id", unused);
	js_set_str(in, "cmd", unused);
}

/* One that is removed has to be there. */
static void prepare_budget(const struct op *op, const json_t *in)
{
	auto_web struct web w = { 0 };
	if (strcmp(op->id, "remove_budget") != 0)
		return;
	web_json(&st, "PUT", "/v1/billing/budgets/org", org.key,
	    js_pack("{s:s, s:i}", "period", js_str(in, "period"), "softMillicents", 5), &w);
	assert_int_equal(w.status, 200);
}

static void prepare_volume(const struct op *op, const json_t *in)
{
	auto_mem struct mem *m = mem_new();
	auto_buf struct buf unused = BUF(4096);
	if (strcmp(op->id, "purge_volume") == 0)
		stack_sql(&st,
		    mem_fmt(m,
			"INSERT INTO volumes (org, kind, name, node, size_bytes) SELECT '%s', 'project', "
			"'%s', "
			"min(name), 1 FROM nodes",
			org.slug, js_str(in, "project")),
		    &unused);
}

static bool uses_up(const struct op *op)
{
	return str_starts(op->id, "end_") || str_starts(op->id, "delete_") || str_starts(op->id, "revoke_") ||
	    (str_starts(op->id, "remove_") && strcmp(op->id, "remove_sandbox_file") != 0);
}

/* The example's ids are replaced by those of things that exist. */
static void put_in_things(const struct op *op, json_t *in)
{
	struct thing *last = NULL; /* what the op is about: a grant, and not its repository */
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++) {
		struct thing *t = thing_of(op, p->name);
		if (t == NULL || json_object_get(in, p->name) == NULL)
			continue;
		if (t->id[0] == 0)
			t->fresh(t->id);
		js_set_str(in, p->name, t->id);
		last = t;
	}
	if (last != NULL && uses_up(op))
		last->id[0] = 0;
	prepare_sandbox(op, in);
	prepare_budget(op, in);
	prepare_volume(op, in);
}

/* ---- calls */

/* A whole org is told for ever; a line is enough, and at the latest a ping is one. */
static int one_line(void *arg, const char *p, size_t n)
{
	(void)arg;
	return n > 0 && p[n - 1] == '\n' ? -1 : 0;
}

static void call(const struct op *op, const struct route *r, json_t *in)
{
	static const char *const endless[] = { "watch_sessions", "watch_sandbox_files", NULL };
	struct op one = *op;
	struct err e = { 0 };
	struct op_request req;
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	memset(one.routes, 0, sizeof one.routes);
	one.routes[0] = *r;
	put_in_things(op, in);
	assert_int_equal(op_request(m, &one, in, &req, &e), 0);
	static const char zeros[1024];
	bool raw = (op->flags & OP_RAW_IN) != 0, empty_tar = strcmp(op->id, "upload_sandbox_folder") == 0;
	struct web_req q = { .method = req.method,
		.path = req.target,
		.key = strcmp(op->id, "credit_account") == 0 ? operators : org.key,
		.body = empty_tar ? zeros
		    : raw         ? "bytes"
				  : req.body,
		.body_n = empty_tar ? sizeof zeros : 0,
		.type = raw ? "application/octet-stream" : NULL,
		.on_data = str_one_of(op->id, endless) ? one_line : NULL,
		.timeout_s = PATIENCE_S };
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
	static const char *const only_whole[] = { "start_coding_run", "create_repo", "run_in_sandbox",
		"bind_egress_credential", "create_provider", "set_budget", "write_stdin", NULL };
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
			char path[200];
			const char *rest = strstr(
			    op->routes[0].path, "...}"); /* OpenAPI has no word for it */
			int n = rest == NULL ? 199 : (int)(rest - op->routes[0].path);
			(void)snprintf(
			    path, sizeof path, "%.*s%s", n, op->routes[0].path, rest == NULL ? "" : "}");
			if (shown)
				assert_non_null(json_object_get(paths, path));
		}
}

static int setup(void **s)
{
	(void)s;
	char conf[80];
	fake = fakemodel_start();
	(void)snprintf(
	    conf, sizeof conf, "MODEL_INWARD_HOSTS=127.0.0.1:9 127.0.0.1:%d", fakemodel_port(fake));
	stack_up(&st, 2, 1, 1, conf);
	stack_org(&st, &org);
	stack_key(&st, "admin", "ops", true, NULL, operators);
	pool = stack_pool(&st, 2);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	stack_down(&st);
	fakemodel_end(fake);
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
