#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "session/event.h"
#include "session/feed.h"
#include "session/watch.h"

enum { PATIENCE_MS = 30000, POOL = 12 };

static struct pgtest *server;
static struct pg_pool *pool;

/* The log as a fake: PostgreSQL going away says much that is not this test's business. */
void log_kv(enum log_level level, const char *msg, ...)
{
	(void)level;
	(void)msg;
}

/* ---- a client: a stream's thread, whose connection is played by the test */

struct client {
	struct reply reply; /* first: the callbacks get the client back */
	struct ctx c;
	struct watch_hub *hub;
	const char *session, *root; /* session NULL: a tree or the org */
	long long after;
	int leave_at; /* hang up at this many lines; 0: never */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buf text;
	int lines, pings;
	bool blocked, gone, ended;
};

static struct client *client_of(struct reply *r)
{
	return (struct client *)r;
}

static int on_head(struct reply *r, int status, const char *headers)
{
	(void)headers;
	(void)r;
	return status == 200 ? 0 : -1;
}

static void count_line(struct client *k)
{
	const char *end = k->text.p + k->text.n - 1, *start = end;
	while (start > k->text.p && start[-1] != '\n')
		start--;
	if (strstr(start, "\"type\":\"ping\"") != NULL) {
		k->pings++;
		k->text.n = (size_t)(start - k->text.p);
		k->text.p[k->text.n] = 0;
	} else {
		k->lines++;
	}
}

static int on_write(struct reply *r, const void *p, size_t n)
{
	struct client *k = client_of(r);
	(void)pthread_mutex_lock(&k->lock);
	while (k->blocked)
		(void)pthread_cond_wait(&k->changed, &k->lock);
	int rc = k->gone || (k->leave_at > 0 && k->lines >= k->leave_at) ? -1 : buf_add(&k->text, p, n);
	if (rc == 0 && n > 0 && ((const char *)p)[n - 1] == '\n')
		count_line(k);
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return rc;
}

static int on_flush(struct reply *r)
{
	(void)r;
	return 0;
}

static bool on_gone(struct reply *r)
{
	struct client *k = client_of(r);
	(void)pthread_mutex_lock(&k->lock);
	bool gone = k->gone;
	(void)pthread_mutex_unlock(&k->lock);
	return gone;
}

static const struct reply_vt vt = { .head = on_head, .write = on_write, .flush = on_flush, .gone = on_gone };

static void *client_run(void *arg)
{
	struct client *k = arg;
	struct err e = { 0 };
	if (k->session != NULL)
		(void)watch_session(k->hub, &k->c, "admin", k->session, k->after);
	else
		(void)watch_tree(k->hub, &k->c, "admin", k->root, &e);
	(void)pthread_mutex_lock(&k->lock);
	k->ended = true;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return NULL;
}

static void client_start(struct client *k, struct watch_hub *h)
{
	k->reply.vt = &vt;
	k->hub = h;
	k->text = BUF(64 << 20);
	k->c = (struct ctx){
		.mem = mem_new(), .db = pool, .reply = &k->reply, .request_id = "req_1", .method = "GET"
	};
	(void)pthread_mutex_init(&k->lock, NULL);
	feed_cond_init(&k->changed);
	assert_int_equal(pthread_create(&k->thread, NULL, client_run, k), 0);
}

/* Until it has n lines, or has ended (n < 0). */
static void client_wait(struct client *k, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true;
	(void)pthread_mutex_lock(&k->lock);
	while (in_time && !k->ended && (n < 0 || k->lines < n))
		in_time = feed_cond_wait(&k->changed, &k->lock, deadline);
	bool fine = n < 0 ? k->ended : k->lines >= n;
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(fine);
}

static void client_set(struct client *k, bool *flag, bool value)
{
	(void)pthread_mutex_lock(&k->lock);
	*flag = value;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
}

static void client_join(struct client *k)
{
	client_wait(k, -1);
	(void)pthread_join(k->thread, NULL);
	mem_free(k->c.mem);
}

static void client_wait_pings(struct client *k, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true;
	(void)pthread_mutex_lock(&k->lock);
	while (k->pings < n && in_time)
		in_time = feed_cond_wait(&k->changed, &k->lock, deadline);
	bool fine = k->pings >= n;
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(fine);
}

static bool client_has(struct client *k, const char *text)
{
	(void)pthread_mutex_lock(&k->lock);
	bool has = strstr(buf_c(&k->text), text) != NULL;
	(void)pthread_mutex_unlock(&k->lock);
	return has;
}

static void client_wait_text(struct client *k, const char *text)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true, has;
	(void)pthread_mutex_lock(&k->lock);
	while (!(has = strstr(buf_c(&k->text), text) != NULL) && in_time)
		in_time = feed_cond_wait(&k->changed, &k->lock, deadline);
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(has);
}

/* What it was sent, as an array. */
static json_t *client_lines(const struct client *k)
{
	json_t *all = js_pack("[]");
	for (const char *p = buf_c(&k->text), *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
		struct err e = { 0 };
		json_t *v = js_parse(p, (size_t)(nl - p), &e);
		assert_non_null(v);
		js_push(all, v);
	}
	return all;
}

static void client_free(struct client *k)
{
	buf_free(&k->text);
	(void)pthread_cond_destroy(&k->changed);
	(void)pthread_mutex_destroy(&k->lock);
}

/* ---- the other side */

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, PATIENCE_MS, &e);
	assert_non_null(db);
	return db;
}

static void opened(const char *org, const char *parent, char id[ID_MAX])
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	assert_int_equal(session_open(db, org, "coding", "t", "ann", parent, id, &e), 0);
}

static void say(const char *org, const char *id, int from, int to)
{
	auto_pg struct pg *db = take();
	for (int i = from; i <= to; i++) {
		struct err e = { 0 };
		auto_json json_t *v = js_pack("{s:i}", "i", i);
		assert_int_equal(session_append(db, org, id, "log", v, NULL, &e), 0);
	}
}

static void closed(const char *org, const char *id)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *v = js_pack("{s:b}", "ok", 1);
	assert_int_equal(session_close(db, org, id, "done", v, NULL, &e), 0);
}

/* The lines are exactly the session's events behind `after`. */
static void is_whole(const struct client *k, const char *id, long long after)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *want = session_read(db, "admin", id, after, 1000000, &e);
	auto_json json_t *got = client_lines(k);
	assert_non_null(want);
	assert_int_equal(json_array_size(got), json_array_size(want));
	assert_true(json_equal(got, want));
}

static struct watch_hub *hub_new(void)
{
	return watch_start(pgtest_conninfo(server), pool);
}

/* ---- one session */

/* STR-2 */
static void a_watcher_gets_every_event_and_leaves_after_the_last(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, 3);
	k.session = id;
	client_start(&k, h);
	client_wait(&k, 3);
	say("admin", id, 4, 200);
	closed("admin", id);
	client_join(&k);
	is_whole(&k, id, 0);
	client_free(&k);
	watch_stop(h);
}

/* STR-3 */
static void a_stream_resumes_behind_any_event(void **s)
{
	(void)s;
	static const int at[] = { 0, 1, 63, 64, 65, 128, 150, 151 };
	struct watch_hub *h = hub_new();
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, 150);
	closed("admin", id);
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		struct client k = { .session = id, .after = at[i] };
		client_start(&k, h);
		client_join(&k);
		is_whole(&k, id, at[i]);
		client_free(&k);
	}
	watch_stop(h);
}

struct talker {
	pthread_t thread;
	const char *session;
	int events;
};

/* Says everything, whatever happens to PostgreSQL; what an answer was lost for may be there twice, as two events. */
static void *talk(void *arg)
{
	struct talker *t = arg;
	for (int i = 0; i < t->events;) {
		struct err e = { 0 };
		struct pg *db = pg_take(pool, PATIENCE_MS, &e);
		if (db == NULL)
			continue;
		json_t *v = js_pack("{s:i}", "i", i);
		if (session_append(db, "admin", t->session, "log", v, NULL, &e) == 0)
			i++;
		json_decref(v);
		pg_put(db);
	}
	return NULL;
}

/* STR-3: hang up after a few lines and come back, until the end; all that came is put together. */
static void come_and_go(struct client *k, struct watch_hub *h, const char *id, int stay)
{
	struct buf all = BUF(64 << 20);
	long long after = 0;
	for (bool over = false; !over;) {
		*k = (struct client){ .session = id, .after = after, .leave_at = stay };
		client_start(k, h);
		client_join(k);
		after += k->lines;
		over = strstr(buf_c(&k->text), "\"type\":\"result\"") != NULL;
		(void)buf_add(&all, buf_c(&k->text), k->text.n);
		client_free(k);
	}
	k->text = all;
}

struct goer {
	pthread_t thread;
	struct watch_hub *hub;
	const char *session;
	int stay;
	struct client k;
};

static void *goer_run(void *arg)
{
	struct goer *g = arg;
	come_and_go(&g->k, g->hub, g->session, g->stay);
	return NULL;
}

static void nothing_is_lost_or_repeated_while_watchers_come_and_go(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct goer g[4] = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	struct talker t = { .session = id, .events = 600 };
	assert_int_equal(pthread_create(&t.thread, NULL, talk, &t), 0);
	for (int i = 0; i < 4; i++) {
		g[i] = (struct goer){ .hub = h, .session = id, .stay = 7 + 20 * i };
		assert_int_equal(pthread_create(&g[i].thread, NULL, goer_run, &g[i]), 0);
	}
	(void)pthread_join(t.thread, NULL);
	closed("admin", id);
	for (int i = 0; i < 4; i++) {
		(void)pthread_join(g[i].thread, NULL);
		is_whole(&g[i].k, id, 0);
		buf_free(&g[i].k.text);
	}
	watch_stop(h);
}

/* SES-2: an event is read once for all who watch here. */
static void a_crowd_costs_the_database_as_much_as_one(void **s)
{
	(void)s;
	enum { CROWD = 50, PAGES = 4 };
	struct watch_hub *h = hub_new();
	struct client k[CROWD] = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, PAGES * PAGE_LINES);
	for (int i = 0; i < CROWD; i++) {
		k[i].session = id;
		client_start(&k[i], h);
	}
	for (int i = 0; i < CROWD; i++)
		client_wait(&k[i], PAGES * PAGE_LINES);
	(void)pthread_mutex_lock(&h->lock);
	long long reads = h->reads;
	(void)pthread_mutex_unlock(&h->lock);
	/* Each page, that nothing follows, and the look that follows the greeting of LISTEN. */
	assert_in_range(reads, PAGES, PAGES + 2);
	closed("admin", id);
	for (int i = 0; i < CROWD; i++) {
		client_join(&k[i]);
		is_whole(&k[i], id, 0);
		client_free(&k[i]);
	}
	watch_stop(h);
}

/* STR-6 */
static void a_slow_reader_delays_nobody_and_misses_nothing(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client slow = { .blocked = true }, fast = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, 1);
	slow.session = fast.session = id;
	client_start(&slow, h);
	client_start(&fast, h);
	say("admin", id, 2, 300);
	closed("admin", id);
	client_join(&fast);
	is_whole(&fast, id, 0);
	assert_int_equal(slow.lines, 0);
	client_set(&slow, &slow.blocked, false);
	client_join(&slow);
	is_whole(&slow, id, 0);
	client_free(&slow);
	client_free(&fast);
	watch_stop(h);
}

/* STR-4 */
static void silence_is_filled_with_pings_until_the_client_is_gone(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	h->ping_ms = 20;
	struct client k = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, 1);
	k.session = id;
	client_start(&k, h);
	client_wait(&k, 1);
	client_wait_pings(&k, 2);
	client_set(&k, &k.gone, true);
	client_join(&k);
	client_free(&k);
	watch_stop(h);
}

/* RUN-6 */
static void draining_ends_every_stream_with_the_place_to_resume(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client one = { 0 }, org = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	say("admin", id, 1, 5);
	one.session = id;
	one.after = 2;
	client_start(&one, h);
	client_start(&org, h);
	client_wait(&one, 3);
	watch_drain(h);
	client_join(&one);
	client_join(&org);
	auto_json json_t *lines = client_lines(&one);
	const json_t *last = json_array_get(lines, 3);
	assert_string_equal(js_str(last, "type"), "reconnect");
	assert_int_equal(js_int(last, "after", 0), 5);
	assert_non_null(strstr(buf_c(&org.text), "\"type\":\"reconnect\""));
	client_free(&one);
	client_free(&org);
	watch_stop(h);
}

static void a_session_that_is_deleted_ends_its_streams(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 };
	char id[ID_MAX], sql[256];
	opened("admin", NULL, id);
	say("admin", id, 1, 2);
	k.session = id;
	client_start(&k, h);
	client_wait(&k, 2);
	(void)snprintf(sql, sizeof sql,
	    "DELETE FROM sessions WHERE id = '%s'; NOTIFY gh_event, 'admin %s 3 %s'", id, id, id);
	pgtest_sql(server, sql);
	client_join(&k);
	assert_int_equal(k.lines, 2);
	client_free(&k);
	watch_stop(h);
}

/* REL-2 */
static void postgresql_restarting_loses_and_repeats_nothing(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 }, org = { 0 };
	struct goer g = { 0 };
	char id[ID_MAX];
	opened("admin", NULL, id);
	k.session = id;
	client_start(&k, h);
	g = (struct goer){ .hub = h, .session = id, .stay = 10 };
	assert_int_equal(pthread_create(&g.thread, NULL, goer_run, &g), 0);
	say("admin", id, 1, 1);
	client_start(&org, h);
	struct talker t = { .session = id, .events = 300 };
	assert_int_equal(pthread_create(&t.thread, NULL, talk, &t), 0);
	client_wait(&k, 20);
	client_wait(&org, 1);
	pgtest_down(server);
	pgtest_up(server);
	(void)pthread_join(t.thread, NULL);
	closed("admin", id);
	client_join(&k);
	is_whole(&k, id, 0);
	(void)pthread_join(g.thread, NULL);
	is_whole(&g.k, id, 0);
	client_wait_text(&org, "\"type\":\"result\"");
	watch_drain(h);
	client_join(&org);
	auto_json json_t *lines = client_lines(&org);
	for (size_t i = 1; i + 1 < json_array_size(lines); i++)
		assert_int_equal(js_int(json_array_get(lines, i), "seq", 0),
		    js_int(json_array_get(lines, i - 1), "seq", 0) + 1);
	client_free(&k);
	client_free(&org);
	buf_free(&g.k.text);
	watch_stop(h);
}

/* ---- many sessions */

static int count_of(const json_t *lines, const char *session, const char *type)
{
	int n = 0;
	size_t i;
	json_t *v;
	json_array_foreach(lines, i, v) {
		if (strcmp(js_str_or(v, "session", ""), session) == 0 && strcmp(js_str(v, "type"), type) == 0)
			n++;
	}
	return n;
}

/* SES-2 */
static void a_tree_is_told_from_its_beginning_until_all_of_it_is_closed(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 };
	char root[ID_MAX], child[ID_MAX], late[ID_MAX], stranger[ID_MAX];
	opened("admin", NULL, root);
	opened("admin", root, child);
	opened("admin", NULL, stranger);
	say("admin", root, 1, 3);
	say("admin", child, 1, 70);
	closed("admin", child);
	k.root = root;
	client_start(&k, h);
	client_wait(&k, 74);
	say("admin", stranger, 1, 2);
	opened("admin", child, late);
	closed("admin", root);
	say("admin", late, 1, 2);
	closed("admin", late);
	client_join(&k);
	auto_json json_t *lines = client_lines(&k);
	assert_int_equal(json_array_size(lines), 78);
	assert_int_equal(count_of(lines, root, "log"), 3);
	assert_int_equal(count_of(lines, root, "result"), 1);
	assert_int_equal(count_of(lines, child, "log"), 70);
	assert_int_equal(count_of(lines, child, "result"), 1);
	assert_int_equal(count_of(lines, late, "log"), 2);
	assert_int_equal(count_of(lines, late, "result"), 1);
	client_free(&k);
	watch_stop(h);
}

static void an_org_is_told_from_now_on_and_never_of_another(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 };
	char old[ID_MAX], fresh[ID_MAX], foreign[ID_MAX];
	opened("admin", NULL, old);
	opened("other", NULL, foreign);
	say("admin", old, 1, 5);
	client_start(&k, h);
	/* It has begun when a session opened now is told. */
	opened("admin", NULL, fresh);
	for (int i = 1; !client_has(&k, fresh); i++)
		say("admin", fresh, i, i);
	say("other", foreign, 1, 3);
	say("admin", old, 6, 8);
	closed("admin", old);
	client_wait_text(&k, "\"type\":\"result\"");
	watch_drain(h);
	client_join(&k);
	auto_json json_t *lines = client_lines(&k);
	assert_int_equal(count_of(lines, old, "log"), 3);
	assert_int_equal(count_of(lines, old, "result"), 1);
	assert_int_equal(count_of(lines, foreign, "log"), 0);
	assert_true(count_of(lines, fresh, "log") > 0);
	client_free(&k);
	watch_stop(h);
}

static int setup(void **s)
{
	(void)s;
	server = pgtest_start();
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('other')");
	pool = pg_pool_new(pgtest_conninfo(server), POOL, 10000);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watcher_gets_every_event_and_leaves_after_the_last),
		cmocka_unit_test(a_stream_resumes_behind_any_event),
		cmocka_unit_test(nothing_is_lost_or_repeated_while_watchers_come_and_go),
		cmocka_unit_test(a_crowd_costs_the_database_as_much_as_one),
		cmocka_unit_test(a_slow_reader_delays_nobody_and_misses_nothing),
		cmocka_unit_test(silence_is_filled_with_pings_until_the_client_is_gone),
		cmocka_unit_test(draining_ends_every_stream_with_the_place_to_resume),
		cmocka_unit_test(a_session_that_is_deleted_ends_its_streams),
		cmocka_unit_test(a_tree_is_told_from_its_beginning_until_all_of_it_is_closed),
		cmocka_unit_test(an_org_is_told_from_now_on_and_never_of_another),
		cmocka_unit_test(postgresql_restarting_loses_and_repeats_nothing),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
