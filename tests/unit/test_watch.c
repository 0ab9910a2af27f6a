#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "../watching.h"
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

/* The lines are exactly the session's events behind `after`. */
static void is_whole(const struct client *k, const char *id, long long after)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 3);
	k.session = id;
	client_start(&k, h, pool);
	client_wait(&k, 3);
	session_says(pool, "admin", id, 4, 200);
	session_ends(pool, "admin", id);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 150);
	session_ends(pool, "admin", id);
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		struct client k = { .session = id, .after = at[i] };
		client_start(&k, h, pool);
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
		client_start(k, h, pool);
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
	session_made(pool, "admin", NULL, id);
	struct talker t = { .session = id, .events = 600 };
	assert_int_equal(pthread_create(&t.thread, NULL, talk, &t), 0);
	for (int i = 0; i < 4; i++) {
		g[i] = (struct goer){ .hub = h, .session = id, .stay = 7 + 20 * i };
		assert_int_equal(pthread_create(&g[i].thread, NULL, goer_run, &g[i]), 0);
	}
	(void)pthread_join(t.thread, NULL);
	session_ends(pool, "admin", id);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, PAGES * PAGE_LINES);
	for (int i = 0; i < CROWD; i++) {
		k[i].session = id;
		client_start(&k[i], h, pool);
	}
	for (int i = 0; i < CROWD; i++)
		client_wait(&k[i], PAGES * PAGE_LINES);
	(void)pthread_mutex_lock(&h->lock);
	long long reads = h->reads;
	(void)pthread_mutex_unlock(&h->lock);
	/* Each page, that nothing follows, and the look that follows the greeting of LISTEN. */
	assert_in_range(reads, PAGES, PAGES + 2);
	session_ends(pool, "admin", id);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 1);
	slow.session = fast.session = id;
	client_start(&slow, h, pool);
	client_start(&fast, h, pool);
	session_says(pool, "admin", id, 2, 300);
	session_ends(pool, "admin", id);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 1);
	k.session = id;
	client_start(&k, h, pool);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 5);
	one.session = id;
	one.after = 2;
	client_start(&one, h, pool);
	client_start(&org, h, pool);
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
	session_made(pool, "admin", NULL, id);
	session_says(pool, "admin", id, 1, 2);
	k.session = id;
	client_start(&k, h, pool);
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
	session_made(pool, "admin", NULL, id);
	k.session = id;
	client_start(&k, h, pool);
	g = (struct goer){ .hub = h, .session = id, .stay = 10 };
	assert_int_equal(pthread_create(&g.thread, NULL, goer_run, &g), 0);
	session_says(pool, "admin", id, 1, 1);
	client_start(&org, h, pool);
	struct talker t = { .session = id, .events = 300 };
	assert_int_equal(pthread_create(&t.thread, NULL, talk, &t), 0);
	client_wait(&k, 20);
	client_wait(&org, 1);
	pgtest_down(server);
	pgtest_up(server);
	(void)pthread_join(t.thread, NULL);
	session_ends(pool, "admin", id);
	client_join(&k);
	is_whole(&k, id, 0);
	(void)pthread_join(g.thread, NULL);
	is_whole(&g.k, id, 0);
	client_wait_text(&org, "\"type\":\"result\"", 1);
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

static int setup(void **s)
{
	(void)s;
	server = pgtest_start();
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('other')");
	pool = pg_pool_new(pgtest_conninfo(server), POOL, 60000);
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
		cmocka_unit_test(postgresql_restarting_loses_and_repeats_nothing),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
