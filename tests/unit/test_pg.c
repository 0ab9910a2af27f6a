#include "../span.h"
#include "../t.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/pg.h"

static struct pgtest *server;

/* The log as a fake: what was written to it. */
static struct {
	pthread_mutex_t lock;
	char text[65536];
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

void log_kv(enum log_level level, const char *msg, ...)
{
	(void)level;
	va_list ap;
	va_start(ap, msg);
	(void)pthread_mutex_lock(&logged.lock);
	for (const char *s = msg; s != NULL; s = va_arg(ap, const char *)) {
		const char *v = s == msg ? "" : va_arg(ap, const char *);
		size_t n = strlen(logged.text);
		(void)snprintf(logged.text + n, sizeof logged.text - n, "%s=%s ", s, v == NULL ? "" : v);
	}
	(void)pthread_mutex_unlock(&logged.lock);
	va_end(ap);
}

#define Q(id, text, n) static const struct pg_stmt id = { #id, text, n }
Q(q_echo, "SELECT $1::text, $2::bigint, NULL::text, true AS yes, false", 2);
Q(q_slow, "SELECT pg_sleep(300)", 0);
Q(q_org, "INSERT INTO orgs (slug) VALUES ($1)", 1);
Q(q_count, "SELECT count(*) FROM orgs WHERE slug = $1", 1);
Q(q_bad_number, "SELECT $1::text::bigint", 1);
Q(q_bad_sql, "SELECT * FROM no_such_table", 0);
Q(q_changes, "SELECT * FROM changing", 0);

static struct pg_pool *pool_new(int max)
{
	return pg_pool_new(pgtest_conninfo(server), max, PATIENCE_MS);
}

/* A limit to be met with, in which other statements are done; a connection is never waited for longer than 5 s. */
static int short_ms(void)
{
	int ms = span_room_ms(500);
	return ms < 5000 ? ms : 5000;
}

static void auto_poolp(struct pg_pool **p)
{
	pg_pool_free(*p);
}
#define auto_pool AUTO(auto_poolp)

static struct pg *take(struct pg_pool *p)
{
	struct err e = { 0 };
	struct pg *db = pg_take(p, 60000, &e);
	assert_non_null(db);
	return db;
}

static long long count(struct pg *db, const char *slug)
{
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_count, &e, slug);
	assert_non_null(r);
	return pg_int(r, 0, 0);
}

static void results_are_read_by_type(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_echo, &e, "a'b\\ü", pg_num(m, -42));
	assert_non_null(r);
	assert_int_equal(pg_rows(r), 1);
	assert_string_equal(pg_str(r, 0, 0), "a'b\\ü");
	assert_int_equal(pg_int(r, 0, 1), -42);
	assert_true(pg_null(r, 0, 2));
	assert_string_equal(pg_str(r, 0, 2), "");
	assert_true(pg_bool(r, 0, pg_col(r, "yes")));
	assert_false(pg_bool(r, 0, 4));
	auto_res struct pg_res *null = PG(db, &q_echo, &e, NULL, NULL);
	assert_non_null(null);
	assert_true(pg_null(null, 0, 0));
}

static void errors_are_mapped_by_sqlstate(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	assert_null(PG(db, &q_org, &e, "admin"));
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_null(PG0(db, &q_bad_sql, &e));
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_null(strstr(e.msg, "no_such_table"));
	assert_non_null(strstr(logged.text, "no_such_table"));
	err_clear(&e);
	assert_null(PG(db, &q_bad_number, &e, "hunter2"));
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_null(strstr(logged.text, "hunter2"));
	assert_non_null(strstr(logged.text, "22P02"));
	assert_int_equal(count(db, "admin"), 1);
}

static void a_slow_statement_is_unavailable_in_time(void **s) /* REL-2 */
{
	(void)s;
	int limit_ms = short_ms();
	auto_pool struct pg_pool *p = pg_pool_new(pgtest_conninfo(server), 1, limit_ms);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	struct span t0 = span_begin();
	assert_null(PG0(db, &q_slow, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(clock_ms() - t0.began_ms >= limit_ms - 50);
	assert_in_range(span_ms(&t0), 0, limit_ms + 900);
	assert_int_equal(count(db, "admin"), 1);
}

static void a_transaction_is_all_or_nothing(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(2);
	auto_pg struct pg *db = take(p), *other = take(p);
	struct err e = { 0 };
	assert_int_equal(pg_begin(db, &e), 0);
	pg_free(PG(db, &q_org, &e, "tx-1"));
	assert_int_equal(count(other, "tx-1"), 0);
	assert_int_equal(pg_commit(db, &e), 0);
	assert_int_equal(count(other, "tx-1"), 1);

	assert_int_equal(pg_begin(db, &e), 0);
	pg_free(PG(db, &q_org, &e, "tx-2"));
	assert_null(PG(db, &q_org, &e, "admin"));
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	/* PostgreSQL calls this COMMIT a success and rolls back. */
	assert_int_equal(pg_commit(db, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_int_equal(count(other, "tx-2"), 0);
}

static void a_connection_put_back_in_a_transaction_is_rolled_back(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	struct err e = { 0 };
	struct pg *db = take(p);
	assert_int_equal(pg_begin(db, &e), 0);
	pg_free(PG(db, &q_org, &e, "left-open"));
	pg_put(db);
	db = take(p);
	assert_int_equal(pg_script(db, "BEGIN; INSERT INTO orgs (slug) VALUES ('left-open')", &e), 0);
	pg_put(db);
	auto_pg struct pg *again = take(p);
	assert_int_equal(count(again, "left-open"), 0);
}

static void an_exhausted_pool_is_unavailable(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	struct span t0 = span_begin();
	assert_null(pg_take(p, 100, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(clock_ms() - t0.began_ms >= 99);
	assert_in_range(span_ms(&t0), 0, 2000);
}

struct worker {
	struct pg_pool *pool;
	int done, number;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	for (int i = 0; i < 100; i++) {
		struct err e = { 0 };
		auto_pg struct pg *db = pg_take(w->pool, 60000, &e);
		if (db == NULL)
			break;
		char text[32];
		(void)snprintf(text, sizeof text, "%d", w->number * 1000 + i);
		auto_res struct pg_res *r = PG(db, &q_echo, &e, text, text);
		if (r != NULL && strcmp(pg_str(r, 0, 0), text) == 0)
			w->done++;
	}
	return NULL;
}

static void eight_threads_share_three_connections(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(3);
	pthread_t threads[8];
	struct worker w[8];
	for (int i = 0; i < 8; i++) {
		w[i] = (struct worker){ .pool = p, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(w[i].done, 100);
	}
}

static void a_restart_costs_an_idle_connection_nothing(void **s) /* REL-2 */
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	assert_int_equal(count(db, "admin"), 1);
	pgtest_down(server);
	struct err e = { 0 };
	assert_null(PG(db, &q_count, &e, "admin"));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	pgtest_up(server);
	assert_int_equal(count(db, "admin"), 1);
	pgtest_down(server);
	pgtest_up(server);
	assert_int_equal(count(db, "admin"), 1);
}

static int times_logged(const char *text)
{
	int n = 0;
	(void)pthread_mutex_lock(&logged.lock);
	for (const char *p = logged.text; (p = strstr(p, text)) != NULL; p++)
		n++;
	(void)pthread_mutex_unlock(&logged.lock);
	return n;
}

static void an_outage_is_told_when_it_begins_and_when_it_ends(void **s) /* REL-2, RUN-2 */
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	int failed = times_logged("connection failed"), works = times_logged("works again");
	pgtest_down(server);
	for (int i = 0; i < 50; i++) {
		struct err e = { 0 };
		assert_null(PG(db, &q_count, &e, "admin"));
	}
	pgtest_up(server);
	assert_int_equal(count(db, "admin"), 1);
	assert_int_equal(times_logged("connection failed") - failed, 1);
	assert_int_equal(times_logged("works again") - works, 1);
}

static void a_transaction_does_not_go_on_over_a_restart(void **s) /* REL-2 */
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	assert_int_equal(pg_begin(db, &e), 0);
	pg_free(PG(db, &q_org, &e, "half"));
	pgtest_down(server);
	pgtest_up(server);
	for (int i = 0; i < 2; i++) {
		assert_null(PG(db, &q_org, &e, "other-half"));
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		err_clear(&e);
	}
	assert_int_equal(pg_commit(db, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(count(db, "half") + count(db, "other-half"), 0);
}

static void a_hanging_server_is_unavailable_in_time(void **s) /* REL-2 */
{
	(void)s;
	int limit_ms = short_ms();
	auto_pool struct pg_pool *p = pg_pool_new(pgtest_conninfo(server), 2, limit_ms);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	pgtest_hang(server);
	struct span t0 = span_begin();
	struct pg_res *r = PG(db, &q_count, &e, "admin");
	int64_t query_ms = clock_ms() - t0.began_ms, query_took_ms = span_ms(&t0);
	struct err e2 = { 0 };
	t0 = span_begin();
	struct pg *other = pg_take(
	    p, 0, &e2); /* a new connection: accepted by the kernel, answered by nobody */
	int64_t connect_ms = clock_ms() - t0.began_ms, connect_took_ms = span_ms(&t0);
	pgtest_resume(server);
	assert_null(r);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(query_ms >= limit_ms);
	assert_in_range(query_took_ms, 0, limit_ms + 2500);
	assert_null(other);
	assert_int_equal(e2.code, ERR_UNAVAILABLE);
	assert_true(connect_ms >= limit_ms - 50);
	assert_in_range(connect_took_ms, 0, limit_ms + 1000);
	assert_int_equal(count(db, "admin"), 1);
}

static void a_schema_change_under_a_prepared_statement_is_not_noticed(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	auto_pg struct pg *db = take(p);
	struct err e = { 0 };
	pgtest_sql(server, "CREATE TABLE changing (a int)");
	pg_free(PG0(db, &q_changes, &e));
	pgtest_sql(server, "ALTER TABLE changing ADD COLUMN b int");
	auto_res struct pg_res *r = PG0(db, &q_changes, &e);
	assert_non_null(r);
	assert_int_equal(pg_col(r, "b"), 1);
	/* In a transaction it is: what went before is gone. */
	assert_int_equal(pg_begin(db, &e), 0);
	pgtest_sql(server, "ALTER TABLE changing ADD COLUMN c int");
	assert_null(PG0(db, &q_changes, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	pg_rollback(db);
}

static void connections_close_on_exec(void **s)
{
	(void)s;
	auto_pool struct pg_pool *p = pool_new(1);
	int before = fcntl(0, F_DUPFD_CLOEXEC, 3); /* the next free descriptor is the connection's */
	assert_true(before >= 0);
	(void)close(before);
	auto_pg struct pg *db = take(p);
	assert_int_equal(fcntl(before, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static int start_server(void **s)
{
	(void)s;
	server = pgtest_start();
	return 0;
}

static int end_server(void **s)
{
	(void)s;
	pgtest_end(server);
	return 0;
}

static void add_server(void *arg, const char *host, uint16_t port)
{
	(void)buf_fmt(arg, "<%s>%u ", host, port);
}

static void a_connection_string_says_where_its_servers_are(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "dbname=x", "<>5432 " },
		{ "host=/run/postgresql port=5433 dbname=x", "</run/postgresql>5433 " },
		{ "host=db.example dbname=x", "<db.example>5432 " },
		{ "postgres://u@db.example:6000/x", "<db.example>6000 " },
		{ "host=db.example hostaddr=10.0.0.7 port=6000", "<10.0.0.7>6000 " },
		{ "host=a,b port=1,2", "<a>1 <b>2 " },
		{ "host=a,b port=7", "<a>7 <b>7 " },
		{ "this is none", "" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_buf struct buf got = BUF(1024);
		pg_servers(rows[i][0], add_server, &got);
		assert_string_equal(buf_c(&got), rows[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_string_says_where_its_servers_are),
		cmocka_unit_test(results_are_read_by_type),
		cmocka_unit_test(errors_are_mapped_by_sqlstate),
		cmocka_unit_test(a_slow_statement_is_unavailable_in_time),
		cmocka_unit_test(a_transaction_is_all_or_nothing),
		cmocka_unit_test(a_connection_put_back_in_a_transaction_is_rolled_back),
		cmocka_unit_test(an_exhausted_pool_is_unavailable),
		cmocka_unit_test(eight_threads_share_three_connections),
		cmocka_unit_test(a_restart_costs_an_idle_connection_nothing),
		cmocka_unit_test(an_outage_is_told_when_it_begins_and_when_it_ends),
		cmocka_unit_test(a_transaction_does_not_go_on_over_a_restart),
		cmocka_unit_test(a_hanging_server_is_unavailable_in_time),
		cmocka_unit_test(a_schema_change_under_a_prepared_statement_is_not_noticed),
		cmocka_unit_test(connections_close_on_exec),
	};
	return cmocka_run_group_tests_name("pg", tests, start_server, end_server);
}
