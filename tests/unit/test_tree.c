#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "../watching.h"
#include "base/js.h"
#include "base/log.h"
#include "session/event.h"
#include "session/feed.h"
#include "session/place.h"
#include "session/watch.h"

enum { POOL = 12 };

static struct pgtest *server;
static struct pg_pool *pool;

/* The log as a fake: PostgreSQL going away says much that is not this test's business. */
void log_kv(enum log_level level, const char *msg, ...)
{
	(void)level;
	(void)msg;
}

static struct watch_hub *hub_new(void)
{
	return watch_start(pgtest_conninfo(server), pool);
}

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
	session_made(pool, "admin", NULL, root);
	session_made(pool, "admin", root, child);
	session_made(pool, "admin", NULL, stranger);
	session_says(pool, "admin", root, 1, 3);
	session_says(pool, "admin", child, 1, 70);
	session_ends(pool, "admin", child);
	k.root = root;
	client_start(&k, h, pool);
	client_wait(&k, 74);
	session_says(pool, "admin", stranger, 1, 2);
	session_made(pool, "admin", child, late);
	session_ends(pool, "admin", root);
	session_says(pool, "admin", late, 1, 2);
	session_ends(pool, "admin", late);
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
	session_made(pool, "admin", NULL, old);
	session_made(pool, "other", NULL, foreign);
	session_says(pool, "admin", old, 1, 5);
	client_start(&k, h, pool);
	/* It has begun when a session opened now is told. */
	session_made(pool, "admin", NULL, fresh);
	for (int i = 1; !client_has(&k, fresh); i++)
		session_says(pool, "admin", fresh, i, i);
	session_says(pool, "other", foreign, 1, 3);
	session_says(pool, "admin", old, 6, 8);
	session_ends(pool, "admin", old);
	client_wait_text(&k, "\"type\":\"result\"", 1);
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

/* STR-4 */
static void silence_has_pings_here_too_until_the_client_is_gone(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	h->ping_ms = 20;
	struct client k = { 0 };
	client_start(&k, h, pool);
	client_wait_pings(&k, 2);
	client_set(&k, &k.gone, true);
	client_join(&k);
	assert_int_equal(k.lines, 0);
	client_free(&k);
	watch_stop(h);
}

/* REL-2: notifications are lost meanwhile; a survey finds what they would have told. */
static void what_happened_while_postgresql_could_not_tell_is_told(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client org = { 0 }, tree = { 0 };
	char root[ID_MAX], child[ID_MAX], fresh[ID_MAX], first[ID_MAX];
	session_made(pool, "admin", NULL, root);
	session_says(pool, "admin", root, 1, 2);
	tree.root = root;
	client_start(&org, h, pool);
	client_start(&tree, h, pool);
	client_wait(&tree, 2);
	session_made(pool, "admin", NULL, first);
	for (int i = 1; !client_has(&org, first); i++)
		session_says(pool, "admin", first, i, i);
	pgtest_down(server);
	pgtest_up(server);
	/* LISTEN has not come back yet, or only just. */
	session_made(pool, "admin", root, child);
	session_says(pool, "admin", child, 1, 3);
	session_ends(pool, "admin", child);
	session_made(pool, "admin", NULL, fresh);
	session_says(pool, "admin", fresh, 1, 3);
	session_ends(pool, "admin", fresh);
	session_ends(pool, "admin", root);
	client_join(&tree);
	client_wait_text(&org, "\"type\":\"result\"", 3);
	watch_drain(h);
	client_join(&org);
	auto_json json_t *of_tree = client_lines(&tree), *of_org = client_lines(&org);
	assert_int_equal(json_array_size(of_tree), 3 + 4);
	assert_int_equal(count_of(of_tree, child, "log"), 3);
	assert_int_equal(count_of(of_tree, child, "result"), 1);
	assert_int_equal(count_of(of_org, fresh, "log"), 3);
	assert_int_equal(count_of(of_org, fresh, "result"), 1);
	assert_int_equal(count_of(of_org, child, "log"), 3);
	assert_int_equal(count_of(of_org, root, "log"), 0);
	assert_int_equal(count_of(of_org, root, "result"), 1);
	client_free(&tree);
	client_free(&org);
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

/* STR-3: who has some of each session gets the rest of each, and what was opened meanwhile from its beginning. */
static void a_tree_goes_on_behind_the_places_that_are_named(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { .leave_at = 30 }, rest = { 0 };
	char root[ID_MAX], child[ID_MAX], late[ID_MAX], places[300];
	session_made(pool, "admin", NULL, root);
	session_made(pool, "admin", root, child);
	session_says(pool, "admin", root, 1, 20);
	session_says(pool, "admin", child, 1, 20);
	k.root = root;
	client_start(&k, h, pool);
	client_join(&k);
	auto_json json_t *lines = client_lines(&k);
	int of_root = count_of(lines, root, "log"), of_child = count_of(lines, child, "log");
	assert_int_equal(of_root + of_child, 30);
	session_made(pool, "admin", child, late);
	session_says(pool, "admin", late, 1, 3);
	session_says(pool, "admin", child, 21, 25);
	session_ends(pool, "admin", root);
	session_ends(pool, "admin", child);
	session_ends(pool, "admin", late);
	(void)snprintf(places, sizeof places, "%s:%d,%s:%d", of_root > 0 ? root : child,
	    of_root > 0 ? of_root : of_child, child, of_child);
	if (of_root == 0 || of_child == 0)
		places[strcspn(places, ",")] = 0;
	rest.root = root;
	rest.places = places;
	client_start(&rest, h, pool);
	client_join(&rest);
	auto_json json_t *more = client_lines(&rest);
	assert_int_equal(json_array_size(more), 20 + 25 - 30 + 3 + 3);
	assert_int_equal(json_array_extend(lines, more), 0);
	const char *const all[] = { root, child, late };
	for (int i = 0; i < 3; i++) { /* seq counts on without a gap or a repeat */
		long long last = 0;
		size_t n;
		json_t *v;
		json_array_foreach(lines, n, v)
			if (strcmp(js_str(v, "session"), all[i]) == 0) {
				assert_int_equal(js_int(v, "seq", 0), last + 1);
				last++;
			}
		assert_int_equal(last, i == 0 ? 21 : i == 1 ? 26 : 4);
	}
	client_free(&k);
	client_free(&rest);
	watch_stop(h);
}

/* What names its session itself does not hold it twice there: our parser, and many others, would refuse the line. */
static void a_line_that_names_its_session_is_told_as_it_is(void **s)
{
	(void)s;
	struct watch_hub *h = hub_new();
	struct client k = { 0 };
	struct err e = { 0 };
	char root[ID_MAX];
	session_made(pool, "admin", NULL, root);
	auto_json json_t *own = js_pack("{s:s, s:s}", "session", root, "phase", "start");
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(session_append(db, "admin", root, "status", own, NULL, &e), 0);
	session_ends(pool, "admin", root);
	k.root = root;
	client_start(&k, h, pool);
	client_join(&k);
	auto_json json_t *lines = client_lines(&k);
	assert_int_equal(json_array_size(lines), 2);
	for (size_t i = 0; i < 2; i++)
		assert_string_equal(js_str(json_array_get(lines, i), "session"), root);
	client_free(&k);
	watch_stop(h);
}

static void a_list_of_places_is_judged_whole(void **s)
{
	(void)s;
#define A "ses_01jdq3v8m5c7x2k9f4t6w0b1ra"
#define B "ses_01jdq3v8m5c7x2k9f4t6w0b1rb"
	static const char *const bad[] = { "x", A, A ":", A ":0", A ":-1", A ":1x", A ":1," A ":2", A ":1,,",
		":1", "run_01jdq3v8m5c7x2k9f4t6w0b1ra:1", A A ":1", A ":99999999999999999999999999" };
	struct places p;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct err e = { 0 };
		if (places_parse(bad[i], "after", &p, &e) == 0)
			fail_msg("%s", bad[i]);
		assert_string_equal(e.param, "after");
	}
	struct err e = { 0 };
	assert_int_equal(places_parse(A ":12," B ":7", "after", &p, &e), 0);
	assert_int_equal(places_seq(&p, A), 12);
	assert_int_equal(places_seq(&p, B), 7);
	assert_int_equal(places_seq(&p, "ses_01jdq3v8m5c7x2k9f4t6w0b1rc"), 0);
	assert_int_equal(places_parse(NULL, "after", &p, &e), 0);
	assert_int_equal(p.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_is_told_from_its_beginning_until_all_of_it_is_closed),
		cmocka_unit_test(an_org_is_told_from_now_on_and_never_of_another),
		cmocka_unit_test(silence_has_pings_here_too_until_the_client_is_gone),
		cmocka_unit_test(what_happened_while_postgresql_could_not_tell_is_told),
		cmocka_unit_test(a_tree_goes_on_behind_the_places_that_are_named),
		cmocka_unit_test(a_list_of_places_is_judged_whole),
		cmocka_unit_test(a_line_that_names_its_session_is_told_as_it_is),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
