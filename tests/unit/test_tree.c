#include "../t.h"

#include <string.h>

#include "../pgtest.h"
#include "../watching.h"
#include "base/js.h"
#include "base/log.h"
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
		cmocka_unit_test(a_tree_is_told_from_its_beginning_until_all_of_it_is_closed),
		cmocka_unit_test(an_org_is_told_from_now_on_and_never_of_another),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
