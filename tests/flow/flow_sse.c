/* The same streams as Server-Sent Events (STR-1, STR-3, STR-4), read byte for byte and by Chromium's own EventSource. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "browser.h"
#include "judge.h"
#include "runs.h"
#include "sbx.h"
#include "session/event.h"

static struct stack st;
static struct stack_org org;
static struct pg_pool *pool;

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	return db;
}

static void opened(const char *parent, char id[ID_MAX])
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	assert_int_equal(session_open(db, org.slug, "coding", "t", "ann", parent, id, &e), 0);
}

static void say(const char *id, int n)
{
	auto_pg struct pg *db = take();
	for (int i = 0; i < n; i++) {
		struct err e = { 0 };
		auto_json json_t *v = js_pack(
		    "{s:i, s:s}", "i", i, "message", "two\nlines\r\nand \xe2\x80\xa8");
		assert_int_equal(session_append(db, org.slug, id, "log", v, NULL, &e), 0);
	}
}

static void closed(const char *id)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *v = js_pack("{s:b}", "ok", 1);
	assert_int_equal(session_close(db, org.slug, id, "done", v, NULL, &e), 0);
}

/* GET as SSE, with one header more (NULL: none). */
static void get(const char *path, const char *header, struct web *w)
{
	const char *const headers[] = { "Accept: text/event-stream", header, NULL };
	struct web_req q = { .method = "GET", .path = path, .key = org.member, .headers = headers };
	web_do(&st, &q, w);
}

static void post(const char *path, const char *body, struct web *w)
{
	static const char *const headers[] = { "Accept: text/event-stream", NULL };
	struct web_req q = {
		.method = "POST", .path = path, .key = org.member, .headers = headers, .body = body
	};
	web_do(&st, &q, w);
}

static void is_sse(const struct web *w)
{
	char type[80];
	assert_int_equal(w->status, 200);
	assert_true(web_header(w, "Content-Type", type, sizeof type));
	assert_string_equal(type, "text/event-stream");
}

/* What the NDJSON of the same session becomes, message by message. */
static void messages_of(const char *ndjson, struct buf *out)
{
	long long seq = 0;
	for (const char *p = ndjson, *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1)
		(void)buf_fmt(out, "id: %lld\ndata: %.*s\n\n", ++seq, (int)(nl - p), p);
}

/* The id of the last message that has one, and the data of all as an array. */
static json_t *messages(const char *body, char *id, size_t size)
{
	json_t *all = js_pack("[]");
	for (const char *p = body, *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
		struct err e = { 0 };
		if (strncmp(p, "id: ", 4) == 0)
			(void)snprintf(id, size, "%.*s", (int)(nl - p - 4), p + 4);
		else if (strncmp(p, "data: ", 6) == 0)
			js_push(all, js_parse(p + 6, (size_t)(nl - p - 6), &e));
		else
			assert_true(nl == p || *p == ':');
		assert_int_equal(e.code, ERR_NONE);
	}
	return all;
}

/* STR-1, STR-3 */
static void a_session_is_the_same_events_byte_for_byte(void **s)
{
	(void)s;
	char id[ID_MAX], path[200];
	auto_buf struct buf want = BUF(1 << 20);
	opened(NULL, id);
	say(id, 5);
	closed(id);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream", id);
	auto_web struct web plain = { 0 }, w = { 0 }, rest = { 0 };
	web_json(&st, "GET", path, org.member, NULL, &plain);
	get(path, NULL, &w);
	is_sse(&w);
	messages_of(plain.body, &want);
	assert_string_equal(w.body, buf_c(&want));
	get(path, "Last-Event-ID: 4", &rest);
	is_sse(&rest);
	assert_string_equal(rest.body, strstr(buf_c(&want), "id: 5\n"));
}

/* The HTML standard: an EventSource comes back after every end, until it is told 204. */
static void who_has_everything_is_told_not_to_come_back(void **s)
{
	(void)s;
	char id[ID_MAX], path[200];
	opened(NULL, id);
	closed(id);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream", id);
	auto_web struct web w = { 0 }, plain = { 0 };
	get(path, "Last-Event-ID: 1", &w);
	assert_int_equal(w.status, 204);
	assert_int_equal(w.body_n, 0);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream?after=1", id);
	web_json(&st, "GET", path, org.member, NULL, &plain);
	assert_int_equal(plain.status, 200);
}

/* STR-1: before the stream an error is the envelope, whatever Accept says. */
static void a_refusal_is_the_envelope(void **s)
{
	(void)s;
	static const char *const paths[] = {
		"/v1/agents/sessions/ses_01jdq3v8m5c7x2k9f4t6w0b1ra/stream",
		"/v1/agents/sessions/stream?root=ses_01jdq3v8m5c7x2k9f4t6w0b1ra",
		"/v1/sandboxes/sbx_01jdq3v8m5c7x2k9f4t6w0b1ra/commands/cmd_01jdq3v8m5c7x2k9f4t6w0b1ra/output"
	};
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		auto_web struct web w = { 0 };
		get(paths[i], NULL, &w);
		judge_refusal(&st, &w, 404);
	}
	auto_web struct web w = { 0 }, bad = { 0 };
	post("/v1/coding-tasks", "{\"tool\":\"python\"}", &w);
	judge_field(&st, &w, 400, "prompt");
	get("/v1/sandboxes/sbx_01jdq3v8m5c7x2k9f4t6w0b1ra/commands/cmd_01jdq3v8m5c7x2k9f4t6w0b1ra/output",
	    "Last-Event-ID: seven", &bad);
	judge_field(&st, &bad, 400, "Last-Event-ID");
}

/* STR-1, COD-1 */
static void a_posted_run_streams_as_messages(void **s)
{
	(void)s;
	char id[80] = "";
	auto_web struct web w = { 0 };
	post("/v1/coding-tasks", "{\"tool\":\"python\",\"prompt\":\"print('error')\"}", &w);
	is_sse(&w);
	auto_json json_t *lines = messages(w.body, id, sizeof id);
	size_t n = json_array_size(lines);
	const json_t *last = json_array_get(lines, n - 1);
	assert_string_equal(js_str(last, "type"), "result");
	assert_int_equal(js_int(last, "seq", 0), n);
	assert_int_equal(strtoll(id, NULL, 10), n);
}

/* STR-1, SBX-42: a command's place is its two offsets, and whether its end is told. */
static void a_command_streams_as_messages_and_goes_on_behind_an_id(void **s)
{
	(void)s;
	char sbx[40], body[300], path[200], id[80] = "", header[120];
	sbx_lease(&st, org.member, NULL, sbx);
	(void)snprintf(body, sizeof body,
	    "{\"id\":\"%s\",\"command\":\"printf abc; printf '\\\\377\\\\376' >&2\",\"stream\":true}", sbx);
	auto_web struct web w = { 0 }, again = { 0 }, end = { 0 };
	post("/v1/sandboxes/run", body, &w);
	is_sse(&w);
	auto_json json_t *lines = messages(w.body, id, sizeof id);
	assert_string_equal(id, "3-2-end");
	const char *cmd = js_str(json_array_get(lines, 0), "id");
	assert_non_null(cmd);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output", sbx, cmd);
	get(path, "Last-Event-ID: 1-2", &again);
	is_sse(&again);
	auto_json json_t *rest = messages(again.body, id, sizeof id);
	assert_int_equal(json_array_size(rest), 2);
	assert_string_equal(js_str(json_array_get(rest, 0), "data"), "bc");
	assert_string_equal(js_str(json_array_get(rest, 1), "type"), "exit");
	(void)snprintf(header, sizeof header, "Last-Event-ID: %s", id);
	get(path, header, &end);
	assert_int_equal(end.status, 204);
	sbx_end(&st, org.member, sbx);
}

/* STR-4 */
static int until_ping(void *arg, const char *p, size_t n)
{
	struct buf *b = arg;
	return buf_add(b, p, n) != 0 || strstr(buf_c(b), "\n\n") != NULL ? -1 : 0;
}

static void silence_is_a_comment(void **s)
{
	(void)s;
	static const char *const headers[] = { "Accept: text/event-stream", NULL };
	auto_buf struct buf seen = BUF(1000);
	auto_web struct web w = { 0 };
	struct web_req q = { .method = "GET",
		.path = "/v1/agents/sessions/stream",
		.key = org.member,
		.headers = headers,
		.on_data = until_ping,
		.arg = &seen };
	web_do(&st, &q, &w);
	is_sse(&w);
	assert_string_equal(buf_c(&seen), ": ping\n\n");
}

/* STR-3: an EventSource would not come back after an error. */
static void a_database_that_is_away_ends_no_event_source(void **s)
{
	(void)s;
	static const char *const headers[] = { "Accept: text/event-stream", NULL };
	struct web_req q = {
		.method = "GET", .path = "/v1/agents/sessions/stream", .key = org.member, .headers = headers
	};
	auto_web struct web w = { 0 }, plain = { 0 };
	stack_stop(&st, "pg");
	web_do(&st, &q, &w);
	q.headers = NULL;
	web_do(&st, &q, &plain);
	stack_start(&st, "pg");
	stack_ready(&st);
	is_sse(&w);
	assert_string_equal(strstr(w.body, "\nretry: "), "\nretry: 2000\n\n");
	assert_int_equal(plain.status, 503);
}

/* ---- the browser's own */

static void until(struct browser *b, const char *expression, long long want)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	while (browser_int(b, expression) != want) {
		if (clock_ms() > deadline)
			fail_msg("%s is %lld", expression, browser_int(b, expression));
		(void)poll(NULL, 0, 50);
	}
}

static void source(struct browser *b, const char *path)
{
	char bearer[200], url[120], js[600];
	(void)snprintf(bearer, sizeof bearer, "Bearer %s", org.member);
	browser_header(b, "Authorization", bearer);
	(void)snprintf(url, sizeof url, "%s/health", st.url[0]);
	assert_int_equal(browser_open(b, url), 200);
	(void)snprintf(js, sizeof js,
	    "window.got = []; window.drops = 0; window.es = new EventSource('%s');"
	    "es.onmessage = e => got.push([e.lastEventId, JSON.parse(e.data)]); es.onerror = () => drops++; "
	    "0",
	    path);
	(void)browser_int(b, js);
}

/* The server is away for so long that the browser asks meanwhile, whatever the machine's pace. */
static void away_while_asked(struct browser *b)
{
	stack_kill(&st, "api1");
	int64_t deadline = clock_ms() + PATIENCE_MS;
	while (browser_int(b, "drops") < 3 && clock_ms() < deadline)
		(void)poll(NULL, 0, 50);
	assert_true(browser_int(b, "drops") >= 3); /* the loss, and two attempts in vain */
}

/* STR-3: Chromium loses its server, comes back by itself, has everything once, and stays away after the end. */
static void an_event_source_survives_its_server_and_ends_with_the_session(void **s)
{
	(void)s;
	char id[ID_MAX], path[200];
	struct browser *b = browser_start();
	opened(NULL, id);
	say(id, 3);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream", id);
	source(b, path);
	until(b, "got.length", 3);
	away_while_asked(b);
	say(id, 4);
	stack_start(&st, "api1");
	stack_ready(&st);
	until(b, "got.length", 7);
	say(id, 2);
	closed(id);
	until(b, "got.length", 10);
	until(b, "es.readyState", 2); /* CLOSED */
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *want = session_read(db, org.slug, id, 0, 100, &e);
	auto_json json_t *got = browser_eval(b, "got.map(x => x[1])"),
			 *ids = browser_eval(b, "got.map(x => +x[0])");
	assert_true(json_equal(got, want));
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(json_integer_value(json_array_get(ids, i)), i + 1);
	browser_end(b);
}

/* STR-3: the place in a tree is one in each of its sessions. */
static void a_tree_survives_its_server_in_an_event_source_and_ends(void **s)
{
	(void)s;
	char root[ID_MAX], child[ID_MAX], path[200];
	struct browser *b = browser_start();
	opened(NULL, root);
	opened(root, child);
	say(root, 2);
	say(child, 3);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/stream?root=%s", root);
	source(b, path);
	until(b, "got.length", 5);
	away_while_asked(b);
	say(child, 2);
	stack_start(&st, "api1");
	stack_ready(&st);
	until(b, "got.length", 7);
	closed(child);
	closed(root);
	until(b, "got.length", 9);
	until(b, "es.readyState", 2); /* CLOSED */
	auto_json json_t *lines = browser_eval(b, "got.map(x => x[1])"),
			 *last = browser_eval(b, "got[got.length - 1][0]");
	const char *const both[] = { root, child };
	for (int i = 0; i < 2; i++) {
		long long seq = 0;
		size_t n;
		json_t *v;
		json_array_foreach(lines, n, v)
			if (strcmp(js_str(v, "session"), both[i]) == 0)
				assert_int_equal(js_int(v, "seq", 0), ++seq);
		char place[ID_MAX + 24];
		(void)snprintf(place, sizeof place, "%s:%lld", both[i], seq);
		assert_int_equal(seq, i == 0 ? 3 : 6);
		assert_non_null(strstr(json_string_value(last), place));
	}
	browser_end(b);
}

static void a_place_in_a_tree_that_cannot_be_is_refused(void **s)
{
	(void)s;
	char root[ID_MAX], other[ID_MAX], path[300];
	opened(NULL, root);
	opened(NULL, other);
	say(root, 1);
	say(other, 1);
	const char *const bad[][2] = { { root, "2" }, { other, "1" }, { root, "x" }, { root, "0" } };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/agents/sessions/stream?root=%s&after=%s:%s", root,
		    bad[i][0], bad[i][1]);
		get(path, NULL, &w);
		judge_field(&st, &w, 400, "after");
	}
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/stream?after=%s:1", root);
	get(path, NULL, &w);
	judge_field(&st, &w, 400, "after");
	closed(root);
	closed(other);
}

/* An empty id makes an EventSource forget: it begins again, and misses nothing. */
static void a_tree_of_very_many_sessions_has_no_place_in_its_ids(void **s)
{
	(void)s;
	enum { SESSIONS = 40 };
	char root[ID_MAX], child[ID_MAX], path[200];
	opened(NULL, root);
	for (int i = 0; i < SESSIONS; i++) {
		opened(root, child);
		closed(child);
	}
	closed(root);
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/stream?root=%s", root);
	auto_web struct web w = { 0 };
	get(path, NULL, &w);
	is_sse(&w);
	int placed = 0, empty = 0;
	for (const char *p = w.body; (p = strstr(p, "id: ")) != NULL; p++)
		*(p[4] == '\n' ? &empty : &placed) += 1;
	assert_int_equal(placed, 32);
	assert_int_equal(empty, SESSIONS + 1 - 32);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, NULL);
	stack_org(&st, &org);
	pool = stack_pool(&st, 4);
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
		cmocka_unit_test(a_session_is_the_same_events_byte_for_byte),
		cmocka_unit_test(who_has_everything_is_told_not_to_come_back),
		cmocka_unit_test(a_refusal_is_the_envelope),
		cmocka_unit_test(a_posted_run_streams_as_messages),
		cmocka_unit_test(a_command_streams_as_messages_and_goes_on_behind_an_id),
		cmocka_unit_test(silence_is_a_comment),
		cmocka_unit_test(a_database_that_is_away_ends_no_event_source),
		cmocka_unit_test(an_event_source_survives_its_server_and_ends_with_the_session),
		cmocka_unit_test(a_tree_survives_its_server_in_an_event_source_and_ends),
		cmocka_unit_test(a_place_in_a_tree_that_cannot_be_is_refused),
		cmocka_unit_test(a_tree_of_very_many_sessions_has_no_place_in_its_ids),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
