/* Live streams through nginx, from two api processes: STR-1…6, SES-2, RUN-6, REL-1 and REL-2 for watchers. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/http.h"
#include "judge.h"
#include "session/event.h"
#include "stack.h"

enum { TAKE_MS = 2000 };

static struct stack st;
static struct stack_org org;
static struct pg_pool *pool;

/* ---- a client: a thread that reads one stream */

struct client {
	char path[200];
	const char *header; /* one more, or NULL */
	int api;
	int leave_at; /* hang up when this many lines have come; 0: never */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buf text;
	struct web w;
	int lines;
	bool blocked; /* reads nothing meanwhile */
	bool ended;
};

static int on_data(void *arg, const char *p, size_t n)
{
	struct client *k = arg;
	(void)pthread_mutex_lock(&k->lock);
	while (k->blocked)
		(void)pthread_cond_wait(&k->changed, &k->lock);
	int rc = buf_add(&k->text, p, n);
	for (size_t i = 0; i < n; i++)
		k->lines += p[i] == '\n';
	if (k->leave_at > 0 && k->lines >= k->leave_at)
		rc = -1;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return rc;
}

static void *client_run(void *arg)
{
	struct client *k = arg;
	const char *const headers[] = { k->header, NULL };
	struct web_req q = { .method = "GET",
		.path = k->path,
		.key = org.member,
		.headers = headers,
		.api = k->api,
		.timeout_s = 600,
		.on_data = on_data,
		.arg = k };
	web_do(&st, &q, &k->w);
	(void)pthread_mutex_lock(&k->lock);
	k->ended = true;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return NULL;
}

static void client_start(struct client *k)
{
	k->text = BUF(256 << 20);
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_cond_init(&k->changed, NULL);
	assert_int_equal(pthread_create(&k->thread, NULL, client_run, k), 0);
}

static void watch(struct client *k, int api, const char *session, long long after)
{
	k->api = api;
	(void)snprintf(k->path, sizeof k->path, "/v1/agents/sessions/%s/stream?after=%lld", session, after);
	client_start(k);
}

/* Until n lines have come; until it has ended (n < 0). */
static void client_wait(struct client *k, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true;
	(void)pthread_mutex_lock(&k->lock);
	while (in_time && !k->ended && (n < 0 || k->lines < n))
		in_time = cond_wait_until(&k->changed, &k->lock, deadline);
	bool fine = n < 0 ? k->ended : k->lines >= n;
	(void)pthread_mutex_unlock(&k->lock);
	if (!fine)
		fail_msg("%s: %d lines, %s", k->path, k->lines, k->ended ? k->w.body : "not ended");
}

static void client_join(struct client *k)
{
	client_wait(k, -1);
	(void)pthread_join(k->thread, NULL);
}

static void client_free(struct client *k)
{
	web_free(&k->w);
	buf_free(&k->text);
	(void)pthread_cond_destroy(&k->changed);
	(void)pthread_mutex_destroy(&k->lock);
}

/* What has come as whole lines, without pings and hints. */
static json_t *events_in(const struct buf *text)
{
	json_t *all = js_pack("[]");
	for (const char *p = buf_c(text), *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
		struct err e = { 0 };
		json_t *v = js_parse(p, (size_t)(nl - p), &e);
		assert_non_null(v);
		if (js_get(v, "seq") != NULL)
			js_push(all, v);
		else
			json_decref(v);
	}
	return all;
}

/* ---- the other side: what a run does */

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

static void say(const char *id, int n, size_t bytes)
{
	auto_pg struct pg *db = take();
	auto_free char *text = xcalloc(1, bytes + 1);
	memset(text, 'x', bytes);
	for (int i = 0; i < n; i++) {
		struct err e = { 0 };
		auto_json json_t *v = js_pack("{s:i, s:s}", "i", i, "message", text);
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

static void is_whole(const json_t *got, const char *id, long long after)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *want = session_read(db, org.slug, id, after, 1000000, &e);
	assert_non_null(want);
	assert_int_equal(json_array_size(got), json_array_size(want));
	assert_true(json_equal(got, want));
}

static void client_is_whole(const struct client *k, const char *id, long long after)
{
	auto_json json_t *got = events_in(&k->text);
	is_whole(got, id, after);
}

/* A run that talks until told to stop, whatever happens to PostgreSQL. */
struct talker {
	pthread_t thread;
	const char *session;
	_Atomic bool stop;
	int said;
};

static void *talk(void *arg)
{
	struct talker *t = arg;
	while (!t->stop) {
		struct err e = { 0 };
		struct pg *db = pg_take(pool, TAKE_MS, &e);
		json_t *v = js_pack("{s:i, s:s}", "i", t->said, "message", "still at it");
		if (db != NULL && session_append(db, org.slug, t->session, "log", v, NULL, &e) == 0)
			t->said++;
		else
			(void)poll(NULL, 0, 20);
		json_decref(v);
		if (db != NULL)
			pg_put(db);
	}
	return NULL;
}

static void talk_start(struct talker *t, const char *session)
{
	t->session = session;
	assert_int_equal(pthread_create(&t->thread, NULL, talk, t), 0);
}

static void talk_end(struct talker *t)
{
	t->stop = true;
	(void)pthread_join(t->thread, NULL);
	closed(t->session);
}

/* ---- one session */

/* STR-1, STR-2: a line is there while the stream is open. */
static void events_arrive_line_by_line_as_they_happen(void **s)
{
	(void)s;
	struct client k[2] = { 0 };
	char id[ID_MAX], type[80];
	opened(NULL, id);
	for (int api = 0; api < 2; api++)
		watch(&k[api], api, id, 0);
	for (int n = 1; n <= 5; n++) {
		say(id, 1, 10);
		client_wait(&k[0], n);
		client_wait(&k[1], n);
	}
	closed(id);
	for (int api = 0; api < 2; api++) {
		client_join(&k[api]);
		assert_int_equal(k[api].w.status, 200);
		assert_true(web_header(&k[api].w, "Content-Type", type, sizeof type));
		assert_string_equal(type, "application/x-ndjson");
		client_is_whole(&k[api], id, 0);
		auto_json json_t *lines = events_in(&k[api].text);
		assert_string_equal(js_str(json_array_get(lines, 5), "type"), "result");
		client_free(&k[api]);
	}
}

/* STR-1: the longest line. */
static void a_line_holds_at_most_64_kib(void **s)
{
	(void)s;
	struct client k = { 0 };
	char id[ID_MAX];
	opened(NULL, id);
	say(id, 3, LIMIT_EVENT_BYTES - 64);
	closed(id);
	watch(&k, 0, id, 0);
	client_join(&k);
	client_is_whole(&k, id, 0);
	for (const char *p = buf_c(&k.text), *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1)
		assert_true(nl - p + 1 <= LIMIT_LINE_BYTES);
	client_free(&k);
}

/* STR-3: hang up mid-stream, again and again, and come back at the other host. */
static void who_leaves_comes_back_at_the_other_host_without_a_gap_or_a_repeat(void **s)
{
	(void)s;
	struct talker t = { 0 };
	auto_json json_t *all = js_pack("[]");
	char id[ID_MAX], header[64];
	opened(NULL, id);
	talk_start(&t, id);
	long long after = 0;
	for (int visit = 0; visit < 14; visit++) {
		bool last = visit == 13;
		struct client k = { .leave_at = last ? 0 : 1 + 7 * visit };
		if (last)
			talk_end(&t);
		if (visit % 2 == 0) {
			watch(&k, visit / 2 % 2, id, after);
		} else {
			(void)snprintf(header, sizeof header, "Last-Event-ID: %lld", after);
			(void)snprintf(k.path, sizeof k.path, "/v1/agents/sessions/%s/stream", id);
			k.header = header;
			k.api = visit % 4 == 1;
			client_start(&k);
		}
		client_join(&k);
		auto_json json_t *got = events_in(&k.text);
		after = js_int(json_array_get(got, json_array_size(got) - 1), "seq", after);
		assert_int_equal(json_array_extend(all, got), 0);
		client_free(&k);
	}
	is_whole(all, id, 0);
}

/* STR-3: a place that does not exist is said so, not waited for. */
static void a_place_to_resume_that_cannot_be_is_refused(void **s)
{
	(void)s;
	char id[ID_MAX], path[200];
	opened(NULL, id);
	say(id, 2, 10);
	static const char *const bad[] = { "3", "-1", "x", "1.5", "99999999999999999999", "" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream?after=%s", id, bad[i]);
		web_json(&st, "GET", path, org.member, NULL, &w);
		judge_field(&st, &w, 400, "after");
	}
	auto_web struct web w = { 0 };
	static const char *const headers[] = { "Last-Event-ID: two", NULL };
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream", id);
	struct web_req q = { .method = "GET", .path = path, .key = org.member, .headers = headers };
	web_do(&st, &q, &w);
	judge_field(&st, &w, 400, "Last-Event-ID");
}

/* STR-6 */
static void a_slow_reader_delays_neither_the_others_nor_the_run(void **s)
{
	(void)s;
	enum { EVENTS = 400, BYTES = 50 * 1000 }; /* 20 MB: more than all buffers on the way hold */
	struct client slow = { .blocked = true }, fast = { 0 };
	char id[ID_MAX];
	opened(NULL, id);
	watch(&slow, 0, id, 0);
	watch(&fast, 0, id, 0);
	say(id, EVENTS, BYTES);
	closed(id);
	client_join(&fast);
	client_is_whole(&fast, id, 0);
	(void)pthread_mutex_lock(&slow.lock);
	assert_int_equal(slow.lines, 0);
	slow.blocked = false;
	(void)pthread_cond_broadcast(&slow.changed);
	(void)pthread_mutex_unlock(&slow.lock);
	client_join(&slow);
	client_is_whole(&slow, id, 0);
	client_free(&slow);
	client_free(&fast);
}

/* ---- many sessions */

/* SES-2 */
static void a_tree_is_one_stream(void **s)
{
	(void)s;
	struct client k = { 0 };
	char root[ID_MAX], child[ID_MAX];
	opened(NULL, root);
	say(root, 2, 10);
	(void)snprintf(k.path, sizeof k.path, "/v1/agents/sessions/stream?root=%s", root);
	client_start(&k);
	client_wait(&k, 2);
	opened(root, child);
	say(child, 100, 10);
	closed(child);
	closed(root);
	client_join(&k);
	auto_json json_t *lines = events_in(&k.text);
	assert_int_equal(json_array_size(lines), 2 + 100 + 1 + 1);
	size_t i;
	json_t *v;
	long long last_root = 0, last_child = 0;
	json_array_foreach(lines, i, v) {
		bool of_root = strcmp(js_str(v, "session"), root) == 0;
		assert_true(of_root || strcmp(js_str(v, "session"), child) == 0);
		long long *last = of_root ? &last_root : &last_child;
		assert_int_equal(js_int(v, "seq", 0), *last + 1);
		*last = js_int(v, "seq", 0);
	}
	client_free(&k);
}

/* ---- bad days */

/* RUN-6 */
static void a_stopping_host_says_where_to_go_on(void **s)
{
	(void)s;
	struct talker t = { 0 };
	struct client k = { 0 }, rest = { 0 };
	char id[ID_MAX];
	opened(NULL, id);
	talk_start(&t, id);
	watch(&k, 0, id, 0);
	client_wait(&k, 20);
	stack_stop(&st, "api1");
	client_join(&k);
	const char *hint = strstr(buf_c(&k.text), "{\"type\":\"reconnect\"");
	assert_non_null(hint);
	struct err e = { 0 };
	auto_json json_t *v = js_parse(hint, strcspn(hint, "\n"), &e);
	auto_json json_t *all = events_in(&k.text);
	assert_int_equal(js_int(v, "after", -1), json_array_size(all));
	watch(&rest, 1, id, js_int(v, "after", 0));
	talk_end(&t);
	client_join(&rest);
	auto_json json_t *more = events_in(&rest.text);
	assert_int_equal(json_array_extend(all, more), 0);
	is_whole(all, id, 0);
	client_free(&k);
	client_free(&rest);
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* REL-1 */
static void a_killed_host_cuts_its_streams_and_the_other_goes_on_with_them(void **s)
{
	(void)s;
	enum { WATCHERS = 6 };
	struct talker t = { 0 };
	struct client k[WATCHERS] = { 0 }, rest = { 0 };
	char id[ID_MAX];
	opened(NULL, id);
	talk_start(&t, id);
	for (int i = 0; i < WATCHERS; i++)
		watch(&k[i], i % 2, id, 0);
	for (int i = 0; i < WATCHERS; i++)
		client_wait(&k[i], 20);
	stack_kill(&st, "api1");
	client_join(&k[0]);
	assert_null(
	    strstr(buf_c(&k[0].text), "\"type\":\"result\"")); /* and so it knows that this is not all */
	auto_json json_t *all = events_in(&k[0].text);
	watch(&rest, 1, id, (long long)json_array_size(all));
	talk_end(&t);
	client_join(&rest);
	auto_json json_t *more = events_in(&rest.text);
	assert_int_equal(json_array_extend(all, more), 0);
	is_whole(all, id, 0);
	for (int i = 0; i < WATCHERS; i++) {
		if (i > 0)
			client_join(&k[i]);
		if (i % 2 == 1)
			client_is_whole(&k[i], id, 0);
		client_free(&k[i]);
	}
	client_free(&rest);
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* REL-2: away, requests are told so; back, everything goes on; the streams were open all the while. */
static void postgresql_restarting_under_watchers_loses_and_repeats_nothing(void **s)
{
	(void)s;
	enum { WATCHERS = 6 };
	struct talker t = { 0 };
	struct client k[WATCHERS] = { 0 };
	char id[ID_MAX], retry[20];
	opened(NULL, id);
	talk_start(&t, id);
	for (int i = 0; i < WATCHERS; i++)
		watch(&k[i], i % 2, id, 0);
	for (int i = 0; i < WATCHERS; i++)
		client_wait(&k[i], 20);
	stack_kill(&st, "pg");
	{
		auto_web struct web w = { 0 };
		web_json(&st, "GET", "/v1/agents/sessions", org.member, NULL, &w);
		judge_refusal(&st, &w, 503);
		assert_true(web_header(&w, "Retry-After", retry, sizeof retry));
	}
	int before[WATCHERS];
	for (int i = 0; i < WATCHERS; i++)
		before[i] = k[i].lines;
	stack_start(&st, "pg");
	stack_ready(&st);
	for (int i = 0; i < WATCHERS; i++)
		client_wait(&k[i], before[i] + 20);
	talk_end(&t);
	for (int i = 0; i < WATCHERS; i++) {
		client_join(&k[i]);
		client_is_whole(&k[i], id, 0);
		client_free(&k[i]);
	}
}

/* How many streams an api process holds, by its own word. */
static long streams_of(int api)
{
	char door[120];
	struct err e = { 0 };
	struct http_res res = { 0 };
	(void)snprintf(door, sizeof door, "%s/run/internal/door%d.sock", st.dir, api + 1);
	struct http_req q = { .method = "GET",
		.url = "http://internal/metrics",
		.unix_socket = door,
		.connect_ms = 60000,
		.total_ms = 60000 };
	if (http_do(&q, &res, &e) != 0)
		fail_msg("metrics: %s", e.msg);
	const char *at = strstr(buf_c(&res.body), "\ngatehouse_streams ");
	long n = at == NULL ? -1 : strtol(at + strlen("\ngatehouse_streams "), NULL, 10);
	http_res_free(&res);
	assert_true(n >= 0);
	return n;
}

/* STR-4. The one test here that takes its time: twice the interval of pings. */
static void silence_has_pings_and_who_left_is_noticed(void **s)
{
	(void)s;
	struct client k = { .leave_at = 2 };
	char id[ID_MAX];
	opened(NULL, id);
	struct span began = span_begin();
	watch(&k, 0, id, 0);
	client_wait(&k, 1); /* at once: the stream is open */
	client_join(&k);    /* hangs up at the second */
	assert_string_equal(buf_c(&k.text), "{\"type\":\"ping\"}\n{\"type\":\"ping\"}\n");
	assert_true(clock_ms() - began.began_ms >= LIMIT_PING_S * 900);
	assert_in_range(span_ms(&began), 0, LIMIT_PING_S * 1500);
	client_free(&k);
	int64_t deadline = clock_ms() + 2 * LIMIT_PING_S * 1000 + PATIENCE_MS;
	while (streams_of(0) > 0) {
		assert_true(clock_ms() < deadline);
		(void)poll(NULL, 0, 100);
	}
	closed(id);
}

static int setup(void **s)
{
	(void)s;
	log_setup("test", LOG_ERROR_, LOG_LOGFMT); /* PostgreSQL goes away on purpose */
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
		cmocka_unit_test(events_arrive_line_by_line_as_they_happen),
		cmocka_unit_test(a_line_holds_at_most_64_kib),
		cmocka_unit_test(who_leaves_comes_back_at_the_other_host_without_a_gap_or_a_repeat),
		cmocka_unit_test(a_place_to_resume_that_cannot_be_is_refused),
		cmocka_unit_test(a_slow_reader_delays_neither_the_others_nor_the_run),
		cmocka_unit_test(a_tree_is_one_stream),
		cmocka_unit_test(a_stopping_host_says_where_to_go_on),
		cmocka_unit_test(a_killed_host_cuts_its_streams_and_the_other_goes_on_with_them),
		cmocka_unit_test(postgresql_restarting_under_watchers_loses_and_repeats_nothing),
		cmocka_unit_test(silence_has_pings_and_who_left_is_noticed),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
