/* The database's clock steps by an hour under the jobs, both ways (REL-6). */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <string.h>

#include "../pgtest.h"
#include "../skew.h"
#include "base/clock.h"
#include "job/queue.h"

enum { WAIT_MS = 60000 };
static int lease_s; /* 1, and longer where who renews it may be late */

static struct pgtest *server;
static struct pg_pool *pool;

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	return db;
}

static int try(struct pg *db, struct mem *m, const char *kind, struct job *j)
{
	struct err e = { 0 };
	int rc = job_claim(db, m, "w2", kind, lease_s, j, &e);
	if (rc < 0)
		fail_msg("%s", e.msg);
	return rc;
}

/* A job that somebody holds, and a look by which we know the clock from before its step. */
static struct job held(struct pg *db, struct mem *m, const char *kind)
{
	struct err e = { 0 };
	struct job j = { 0 }, none;
	assert_int_equal(job_put(db, "admin", kind, "s", &e), 0);
	assert_int_equal(job_claim(db, m, "w1", kind, lease_s, &j, &e), 1);
	assert_int_equal(try(db, m, kind, &none), 0);
	return j;
}

/* Whoever holds it renews as a runner does, three times in a lease; nobody else gets it, for that long. */
static void keeps(struct pg *db, struct mem *m, const struct job *j, int ms)
{
	struct job got;
	for (int64_t until = clock_ms() + ms; clock_ms() < until; (void)poll(NULL, 0, lease_s * 1000 / 3)) {
		struct err e = { 0 };
		assert_int_equal(try(db, m, j->kind, &got), 0);
		if (job_renew(db, j, lease_s, &e) != 0)
			fail_msg("%s", e.msg);
	}
}

/* Nobody renews it: somebody else gets it, as soon as a lease has passed and not an hour later. Since when it was waited for. */
static struct span taken(struct pg *db, struct mem *m, const struct job *j)
{
	struct job got = { 0 };
	struct span begin = span_begin();
	while (try(db, m, j->kind, &got) == 0) {
		assert_true(clock_ms() - begin.began_ms < WAIT_MS);
		(void)poll(NULL, 0, 20);
	}
	assert_string_equal(got.id, j->id);
	assert_true(got.fence > j->fence);
	return begin;
}

static void step(const char *sql)
{
	pgtest_sql(server, sql);
}

static void a_step_forward_takes_no_job_from_who_is_alive(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct job j = held(db, m, "forward");
	step(SKEW_STEP("1 hour"));
	keeps(db, m, &j, 3 * lease_s * 1000);
}

static void a_step_back_takes_no_job_from_who_is_alive(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct job j = held(db, m, "back");
	step(SKEW_STEP("-1 hour"));
	keeps(db, m, &j, 3 * lease_s * 1000);
}

static void who_is_dead_loses_its_job_within_a_lease_of_a_step(void **s)
{
	(void)s;
	static const char *const steps[] = { SKEW_STEP("1 hour"), SKEW_STEP("-1 hour"), SKEW_STEP("0") };
	for (size_t i = 0; i < 3; i++) {
		auto_pg struct pg *db = take();
		auto_mem struct mem *m = mem_new();
		const char *kind = mem_fmt(m, "dead%zu", i);
		struct job j = held(db, m, kind);
		step(steps[i]);
		struct span since = taken(db, m, &j);
		assert_true(clock_ms() - since.began_ms >=
		    lease_s * 1000 - 100); /* not at once: it could have been alive */
		assert_true(span_ms(&since) < 5 * lease_s * 1000);
	}
}

static int up(void **s)
{
	(void)s;
	lease_s = 1 + span_room_ms(100) / 1000;
	server = pgtest_start();
	pgtest_sql(server, SKEW_SQL);
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	return 0;
}

static int down(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_forward_takes_no_job_from_who_is_alive),
		cmocka_unit_test(a_step_back_takes_no_job_from_who_is_alive),
		cmocka_unit_test(who_is_dead_loses_its_job_within_a_lease_of_a_step),
	};
	return cmocka_run_group_tests_name("job_clock", tests, up, down);
}
