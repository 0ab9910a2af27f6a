#include "../t.h"

#include <pthread.h>
#include <string.h>

#include "../pgtest.h"
#include "base/hash.h"
#include "io/migrate.h"

enum { TIMEOUT_MS = 20000 };

static struct pgtest *server;

static const struct migration one = { "0001_a", "CREATE TABLE a (x int);\nINSERT INTO a VALUES (1);\n" };
static const struct migration two = { "0002_b", "ALTER TABLE a ADD COLUMN y text DEFAULT E'\\\\';\n" };
static const struct migration broken = { "0002_b", "CREATE TABLE half (x int); SELECT * FROM nowhere;\n" };
static const struct pg_stmt q_tables = { "tables",
	"SELECT count(*) FROM pg_tables WHERE tablename = $1 AND schemaname = 'public'", 1 };

static struct pg_pool *pool;

static long long tables(const char *name)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 0, &e);
	assert_non_null(db);
	auto_res struct pg_res *r = PG(db, &q_tables, &e, name);
	assert_non_null(r);
	return pg_int(r, 0, 0);
}

static int pending(const struct migration *set)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 0, &e);
	assert_non_null(db);
	int n = migrate_pending(db, set, &e);
	assert_int_equal(e.code, ERR_NONE);
	return n;
}

static void the_built_in_set_is_applied_and_complete(void **s)
{
	(void)s;
	assert_int_equal(pending(migrations), 0);
	struct err e = { 0 };
	assert_int_equal(migrate_up(pool, migrations, &e), 0);
	assert_string_equal(migrations[0].name, "0001_identity");
	for (const struct migration *m = migrations; m[1].name != NULL; m++)
		assert_true(strcmp(m->name, m[1].name) < 0);
}

static void files_are_applied_once_and_in_order(void **s)
{
	(void)s;
	struct err e = { 0 };
	const struct migration set1[] = { one, { 0 } }, set2[] = { one, two, { 0 } };
	assert_int_equal(pending(set2), 2);
	assert_int_equal(migrate_up(pool, set1, &e), 1);
	assert_int_equal(pending(set1), 0);
	assert_int_equal(pending(set2), 1);
	assert_int_equal(migrate_up(pool, set2, &e), 1);
	assert_int_equal(migrate_up(pool, set2, &e), 0);
	assert_int_equal(pending(set2), 0);
	assert_int_equal(pending(set1), 0); /* the old processes of an upgrade still serve */
}

static void a_failed_file_leaves_nothing_of_itself(void **s)
{
	(void)s;
	struct err e = { 0 };
	const struct migration set[] = { one, broken, { 0 } };
	assert_int_equal(migrate_up(pool, set, &e), -1);
	assert_non_null(strstr(e.msg, "0002_b"));
	assert_int_equal(tables("a"), 1);
	assert_int_equal(tables("half"), 0);
	assert_int_equal(pending(set), 1);
}

static void a_changed_or_newer_or_skipped_record_is_refused(void **s)
{
	(void)s;
	const struct migration set[] = { one, two, { 0 } }, older[] = { one, { 0 } };
	const struct migration changed[] = { { one.name, "CREATE TABLE a (x bigint);\n" }, two, { 0 } };
	const struct migration skipped[] = { one, { "0001_b", "SELECT 1;\n" }, two, { 0 } };
	const struct migration *const refused[] = { older, changed, skipped };
	const char *const says[] = { "newer version", "changed after", "where this version has 0001_b" };
	struct err e = { 0 };
	assert_int_equal(migrate_up(pool, set, &e), 2);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(migrate_up(pool, refused[i], &e), -1);
		assert_int_equal(e.code, ERR_CONFLICT);
		assert_non_null(strstr(e.msg, says[i]));
		err_clear(&e);
	}
	assert_int_equal(pending(changed), 1);
}

static void *up(void *arg)
{
	struct err e = { 0 };
	struct pg_pool *own = pg_pool_new(pgtest_conninfo(server), 1, TIMEOUT_MS);
	*(int *)arg = migrate_up(own, (const struct migration[]){ one, two, { 0 } }, &e);
	pg_pool_free(own);
	return NULL;
}

static void two_at_once_apply_each_file_once(void **s)
{
	(void)s;
	pthread_t threads[4];
	int applied[4], sum = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, up, &applied[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_true(applied[i] >= 0);
		sum += applied[i];
	}
	assert_int_equal(sum, 2);
}

static int empty_database(void **s)
{
	(void)s;
	pgtest_sql(server, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
	return 0;
}

static int start_server(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 2, TIMEOUT_MS);
	return 0;
}

static int end_server(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_built_in_set_is_applied_and_complete),
		cmocka_unit_test_setup(files_are_applied_once_and_in_order, empty_database),
		cmocka_unit_test_setup(a_failed_file_leaves_nothing_of_itself, empty_database),
		cmocka_unit_test_setup(a_changed_or_newer_or_skipped_record_is_refused, empty_database),
		cmocka_unit_test_setup(two_at_once_apply_each_file_once, empty_database),
	};
	return cmocka_run_group_tests_name("migrate", tests, start_server, end_server);
}
