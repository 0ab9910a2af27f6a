#include "../t.h"

#include "../same.h"

#include <string.h>

#include "../../handlers/handlers.h"
#include "../pgtest.h"
#include "auth/principal.h"
#include "base/js.h"
#include "session/event.h"
#include "session/watch.h"

extern const struct op sessions_ops[];

static struct pgtest *server;
static struct pg_pool *pool;
static struct api api;

static const struct principal ann = { .kind = CRED_KEY, .org = "acme", .user = "ann", .scopes = "*" };
static const struct principal bob = { .kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "*" };

/* ---- a request as the server core makes one, its reply kept */

struct call {
	struct reply reply; /* first: the callbacks get the call back */
	struct mem *mem;
	const char *last_event_id;
	struct buf text;
};

static int on_head(struct reply *r, int status, const char *headers)
{
	(void)r;
	assert_int_equal(status, 200);
	assert_non_null(strstr(headers, "application/x-ndjson"));
	return 0;
}

static int on_write(struct reply *r, const void *p, size_t n)
{
	return buf_add(&((struct call *)r)->text, p, n);
}

static int on_flush(struct reply *r)
{
	(void)r;
	return 0;
}

static const char *on_param(struct reply *r, const char *name)
{
	return strcmp(name, "HTTP_LAST_EVENT_ID") == 0 ? ((struct call *)r)->last_event_id : NULL;
}

static const struct reply_vt vt = {
	.head = on_head, .write = on_write, .flush = on_flush, .param = on_param
};

/* The reply, checked against the op's schema; a stream's as an array of its lines. NULL with e. */
static json_t *call(
    struct call *k, const struct principal *who, const char *id, const char *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ sessions_ops, NULL }, id);
	assert_non_null(op);
	k->reply = (struct reply){ .vt = &vt };
	k->text.max = 1 << 20;
	buf_reset(&k->text);
	struct ctx c = { .mem = k->mem,
		.db = pool,
		.who = who,
		.app = &api,
		.reply = &k->reply,
		.request_id = "req_1",
		.method = "GET" };
	err_clear(e);
	json_t *in = mem_json(k->mem, js_parse(input, strlen(input), e));
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out == NULL) {
		assert_int_not_equal(e->code, ERR_NONE);
		assert_false(k->reply.begun);
		return NULL;
	}
	if (out != REPLIED) {
		assert_int_equal(op_check_out(op->out, out, e), 0);
		return mem_json(k->mem, out);
	}
	json_t *lines = mem_json(k->mem, js_pack("[]"));
	for (const char *p = buf_c(&k->text), *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1)
		js_push(lines, js_parse(p, (size_t)(nl - p), e));
	assert_int_equal(e->code, ERR_NONE);
	return lines;
}

static json_t *call_for(struct call *k, const struct principal *who, const char *id, const char *session,
    const char *more, struct err *e)
{
	return call(k, who, id, mem_fmt(k->mem, "{\"id\":\"%s\"%s}", session, more), e);
}

/* A session with five events, closed. */
static void made(const char *org, const char *parent, char id[ID_MAX])
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(session_open(db, org, "coding", "A title", "ann", parent, id, &e), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(session_step(db, org, id, "work", "A step.", "ok", NULL, &e), 0);
	auto_json json_t *end = js_pack("{s:b}", "ok", 1);
	assert_int_equal(session_close(db, org, id, "done", end, NULL, &e), 0);
}

static int call_new(void **s)
{
	struct call *k = xcalloc(1, sizeof *k);
	k->mem = mem_new();
	*s = k;
	return 0;
}

static int call_free(void **s)
{
	struct call *k = *s;
	buf_free(&k->text);
	mem_free(k->mem);
	free(k);
	return 0;
}

static void a_session_is_read_and_watched_by_its_org(void **s) /* SES-2 */
{
	struct call *k = *s;
	struct err e;
	char id[ID_MAX];
	made("acme", NULL, id);
	const json_t *v = call_for(k, &ann, "get_session", id, "", &e);
	assert_non_null(v);
	assert_string_equal(js_str(v, "id"), id);
	assert_string_equal(js_str(v, "state"), "done");
	assert_int_equal(js_int(v, "lastSeq", 0), 5);
	assert_true(json_is_null(json_object_get(v, "parent")));
	const json_t *lines = call_for(k, &ann, "watch_session", id, "", &e);
	assert_int_equal(json_array_size(lines), 5);
	assert_string_equal(js_str(json_array_get(lines, 4), "type"), "result");
}

static void a_stream_begins_behind_after_or_the_last_event_id(void **s) /* STR-3 */
{
	struct call *k = *s;
	struct err e;
	char id[ID_MAX];
	made("acme", NULL, id);
	const json_t *lines = call_for(k, &ann, "watch_session", id, ",\"after\":3", &e);
	assert_int_equal(json_array_size(lines), 2);
	assert_int_equal(js_int(json_array_get(lines, 0), "seq", 0), 4);
	k->last_event_id = "4";
	assert_int_equal(json_array_size(call_for(k, &ann, "watch_session", id, "", &e)), 1);
	assert_int_equal(json_array_size(call_for(k, &ann, "watch_session", id, ",\"after\":0", &e)), 5);
	assert_int_equal(json_array_size(call_for(k, &ann, "watch_session", id, ",\"after\":5", &e)), 0);
	k->last_event_id = "four";
	assert_null(call_for(k, &ann, "watch_session", id, "", &e));
	assert_string_equal(e.param, "Last-Event-ID");
	k->last_event_id = NULL;
	assert_null(call_for(k, &ann, "watch_session", id, ",\"after\":6", &e));
	assert_string_equal(e.param, "after");
	assert_null(call_for(k, &ann, "watch_session", id, ",\"after\":-1", &e));
	assert_string_equal(e.param, "after");
}

static void another_orgs_session_answers_like_none(void **s) /* ID-4 */
{
	struct call *k = *s;
	static const char *const ops[] = { "get_session", "watch_session" };
	static const char *const nothing[] = { "ses_00000000000000000000000000", "ses_", "run_1",
		"\xc3\xa9" };
	struct err e, other;
	char id[ID_MAX];
	made("acme", NULL, id);
	for (size_t i = 0; i < 2; i++) {
		assert_null(call_for(k, &bob, ops[i], id, "", &e));
		assert_int_equal(e.code, ERR_NOT_FOUND);
		for (size_t n = 0; n < sizeof nothing / sizeof nothing[0]; n++) {
			assert_null(call_for(k, &bob, ops[i], nothing[n], "", &other));
			same_error(&e, &other);
		}
	}
	assert_null(call(k, &bob, "watch_sessions", mem_fmt(k->mem, "{\"root\":\"%s\"}", id), &other));
	same_error(&e, &other);
	const json_t *list = call(k, &bob, "list_sessions", mem_fmt(k->mem, "{\"root\":\"%s\"}", id), &e);
	assert_int_equal(json_array_size(json_object_get(list, "data")), 0);
}

static void a_tree_is_listed_in_pages_and_watched_to_its_end(void **s) /* HTTP-6, SES-2 */
{
	struct call *k = *s;
	struct err e;
	char root[ID_MAX], child[2][ID_MAX];
	made("acme", NULL, root);
	made("acme", root, child[0]);
	made("acme", child[0], child[1]);
	const char *input = mem_fmt(k->mem, "{\"root\":\"%s\",\"limit\":2,\"state\":\"done\"}", root);
	const json_t *page = call(k, &ann, "list_sessions", input, &e);
	assert_non_null(page);
	assert_int_equal(json_array_size(json_object_get(page, "data")), 2);
	input = mem_fmt(
	    k->mem, "{\"root\":\"%s\",\"limit\":2,\"cursor\":\"%s\"}", root, js_str(page, "next"));
	page = call(k, &ann, "list_sessions", input, &e);
	assert_int_equal(json_array_size(json_object_get(page, "data")), 1);
	assert_true(json_is_null(json_object_get(page, "next")));
	input = mem_fmt(k->mem, "{\"root\":\"%s\"}", root);
	const json_t *lines = call(k, &ann, "watch_sessions", input, &e);
	assert_int_equal(json_array_size(lines), 15);
	assert_null(call(k, &ann, "list_sessions", "{\"cursor\":\"made up\"}", &e));
	assert_string_equal(e.param, "cursor");
	assert_null(call(k, &ann, "list_sessions", "{\"state\":\"running\"}", &e));
	assert_string_equal(e.param, "state");
}

static void postgresql_away_is_unavailable_before_a_stream_begins(void **s) /* REL-2 */
{
	struct call *k = *s;
	struct err e;
	char id[ID_MAX];
	made("acme", NULL, id);
	pgtest_down(server);
	assert_null(call_for(k, &ann, "watch_session", id, "", &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_null(call(k, &ann, "watch_sessions", "{}", &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	pgtest_up(server);
	assert_int_equal(json_array_size(call_for(k, &ann, "watch_session", id, "", &e)), 5);
}

static int setup(void **s)
{
	(void)s;
	server = pgtest_start();
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('acme'), ('other')");
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	api.hub = watch_start(pgtest_conninfo(server), pool);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	watch_stop(api.hub);
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, call_new, call_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_session_is_read_and_watched_by_its_org),
		TEST(a_stream_begins_behind_after_or_the_last_event_id),
		TEST(another_orgs_session_answers_like_none),
		TEST(a_tree_is_listed_in_pages_and_watched_to_its_end),
		TEST(postgresql_away_is_unavailable_before_a_stream_begins),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
