#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "base/buf.h"
#include "base/clock.h"
#include "job/queue.h"
#include "sql/job.h"

enum { CLAIMERS = 8, JOBS = 160, LEASE_S = 60 };

static struct pgtest *server;
static struct pg_pool *pool;

static const struct pg_stmt q_lapse = { "lapse",
	"UPDATE jobs SET lease_until = now() - interval '1 second' WHERE id = $1", 1 };
static const struct pg_stmt q_old = { "old",
	"SELECT pg_postmaster_start_time() < now() - interval '3 seconds'", 0 };
static const struct pg_stmt q_state = { "state", "SELECT state, attempt, crashes FROM jobs WHERE id = $1",
	1 };
static const struct pg_stmt q_twice = { "twice",
	"SELECT count(*) FILTER (WHERE state = 'done' AND attempt = 1), count(*) FROM jobs WHERE kind = $1",
	1 };
static const struct pg_stmt q_history = { "history",
	"INSERT INTO jobs (id, org, kind, subject, state, finished_at) SELECT $1 || i, 'admin', $1, i, "
	"'done', now() "
	"FROM generate_series(1, 30000) i",
	1 };

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	return db;
}

static void put(struct pg *db, const char *kind, const char *subject)
{
	struct err e = { 0 };
	assert_int_equal(job_put(db, "admin", kind, subject, &e), 0);
}

static struct job claim(struct pg *db, struct mem *m, const char *kind)
{
	struct err e = { 0 };
	struct job j = { 0 };
	assert_int_equal(job_claim(db, m, "w1", kind, LEASE_S, &j, &e), 1);
	return j;
}

static void claim_none(struct pg *db, struct mem *m, const char *kind)
{
	struct err e = { 0 };
	struct job j;
	assert_int_equal(job_claim(db, m, "w1", kind, LEASE_S, &j, &e), 0);
}

static void lapse(struct pg *db, const struct job *j)
{
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_lapse, &e, j->id);
	assert_non_null(r);
	assert_int_equal(pg_affected(r), 1);
}

static void state_is(struct pg *db, const struct job *j, const char *state)
{
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_state, &e, j->id);
	assert_non_null(r);
	assert_string_equal(pg_str(r, 0, 0), state);
}

static void jobs_are_claimed_in_order_once_and_finished(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	claim_none(db, m, "order");
	put(db, "order", "first");
	put(db, "order", "second");
	put(db, "other", "third");
	struct job a = claim(db, m, "order"), b = claim(db, m, "order");
	claim_none(db, m, "order");
	assert_string_equal(a.subject, "first");
	assert_string_equal(b.subject, "second");
	assert_string_equal(b.org, "admin");
	assert_true(b.fence > a.fence);
	assert_int_equal(a.attempt, 1);
	assert_false(a.poisoned);
	assert_int_equal(job_finish(db, &a, true, &e), 0);
	assert_int_equal(job_finish(db, &b, false, &e), 0);
	state_is(db, &a, "done");
	state_is(db, &b, "failed");
	claim_none(db, m, "order");
}

static void a_job_of_a_transaction_that_is_rolled_back_never_existed(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	assert_int_equal(pg_begin(db, &e), 0);
	put(db, "rolled", "back");
	pg_rollback(db);
	claim_none(db, m, "rolled");
	put(db, "rolled", "once");
	assert_int_equal(job_put(db, "admin", "rolled", "once", &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
}

struct claimer {
	pthread_t thread;
	int claimed;
	struct err e;
};

static void *claim_all(void *arg)
{
	struct claimer *c = arg;
	struct pg *db = pg_take(pool, 60000, &c->e);
	if (db == NULL)
		return NULL;
	struct mem *m = mem_new();
	struct job j;
	int rc;
	while ((rc = job_claim(db, m, "w", "crowd", LEASE_S, &j, &c->e)) == 1) {
		c->claimed++;
		if (job_finish(db, &j, true, &c->e) != 0)
			break;
	}
	mem_free(m);
	pg_put(db);
	return NULL;
}

static void two_claimers_never_get_one_job(void **s)
{
	(void)s;
	char subject[16];
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	assert_int_equal(pg_begin(db, &e), 0);
	for (int i = 0; i < JOBS; i++) {
		(void)snprintf(subject, sizeof subject, "run_%d", i);
		put(db, "crowd", subject);
	}
	assert_int_equal(pg_commit(db, &e), 0);
	struct claimer crowd[CLAIMERS] = { 0 };
	for (int i = 0; i < CLAIMERS; i++)
		assert_int_equal(pthread_create(&crowd[i].thread, NULL, claim_all, &crowd[i]), 0);
	int claimed = 0;
	for (int i = 0; i < CLAIMERS; i++) {
		(void)pthread_join(crowd[i].thread, NULL);
		assert_int_equal(crowd[i].e.code, ERR_NONE);
		claimed += crowd[i].claimed;
	}
	assert_int_equal(claimed, JOBS);
	auto_res struct pg_res *r = PG(db, &q_twice, &e, "crowd");
	assert_int_equal(pg_int(r, 0, 0), JOBS);
	assert_int_equal(pg_int(r, 0, 1), JOBS);
}

static void a_renewed_lease_is_not_taken(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	put(db, "renew", "r");
	struct job j = claim(db, m, "renew");
	lapse(db, &j);
	assert_int_equal(job_renew(db, &j, LEASE_S, &e), 0);
	claim_none(db, m, "renew");
	assert_int_equal(job_finish(db, &j, true, &e), 0);
}

/* REL-1: the worker that lost its job writes nothing more. */
static void a_lapsed_lease_is_taken_over_with_a_new_fence(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	put(db, "lapse", "r");
	struct job dead = claim(db, m, "lapse");
	lapse(db, &dead);
	struct job j = claim(db, m, "lapse");
	assert_string_equal(j.id, dead.id);
	assert_true(j.fence > dead.fence);
	assert_int_equal(j.attempt, 2);
	struct err e[3] = { 0 };
	assert_int_equal(job_renew(db, &dead, LEASE_S, &e[0]), -1);
	assert_int_equal(job_finish(db, &dead, true, &e[1]), -1);
	assert_int_equal(job_release(db, &dead, &e[2]), -1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(e[i].code, ERR_CONFLICT);
		assert_string_equal(e[i].reason, "fenced");
	}
	state_is(db, &j, "running");
	struct err none = { 0 };
	assert_int_equal(job_finish(db, &j, true, &none), 0);
}

static void a_finished_job_is_never_taken_over(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	put(db, "late", "r");
	struct job j = claim(db, m, "late");
	lapse(db, &j);
	assert_int_equal(job_finish(db, &j, true, &e), 0);
	claim_none(db, m, "late");
	state_is(db, &j, "done");
}

static void a_job_handed_back_is_claimed_at_once_and_is_no_crash(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	put(db, "back", "r");
	for (int i = 1; i <= 2 * JOB_MAX_CRASHES; i++) {
		struct job j = claim(db, m, "back");
		assert_int_equal(j.attempt, i);
		assert_false(j.poisoned);
		assert_int_equal(job_release(db, &j, &e), 0);
	}
}

/* The lease was last renewed LEASE_S before its end: before PostgreSQL had started. REL-2 */
static void a_lease_that_postgresql_was_away_for_is_no_crash(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	put(db, "excused", "r");
	struct job j = claim(db, m, "excused");
	for (int i = 0; i < 2 * JOB_MAX_CRASHES; i++) {
		lapse(db, &j);
		j = claim(db, m, "excused");
		assert_false(j.poisoned);
	}
	assert_int_equal(job_finish(db, &j, true, &e), 0);
}

static void a_job_that_kills_its_runner_comes_back_poisoned(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct job j = { 0 };
	put(db, "poison", "r");
	/* Leases so short that all of them lie after PostgreSQL's start. */
	for (bool old = false; !old; (void)poll(NULL, 0, 20)) {
		auto_res struct pg_res *r = PG0(db, &q_old, &e);
		old = pg_bool(r, 0, 0);
	}
	assert_int_equal(job_claim(db, m, "w1", "poison", 1, &j, &e), 1);
	for (int i = 1; i <= JOB_MAX_CRASHES; i++) {
		assert_false(j.poisoned);
		lapse(db, &j);
		assert_int_equal(job_claim(db, m, "w1", "poison", 1, &j, &e), 1);
	}
	assert_true(j.poisoned);
	/* Also when who was to report it hands it back. */
	assert_int_equal(job_release(db, &j, &e), 0);
	j = claim(db, m, "poison");
	assert_true(j.poisoned);
	assert_int_equal(job_finish(db, &j, false, &e), 0);
	claim_none(db, m, "poison");
}

static void a_job_far_behind_the_mark_is_found_by_the_next_rescan(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	put(db, "behind", "old");
	struct job old = claim(db, m, "behind");
	/* Push the mark beyond its margin: the numbers between are another kind's. */
	auto_res struct pg_res *r = PG(db, &q_history, &e, "between");
	assert_non_null(r);
	put(db, "behind", "new");
	struct job new = claim(db, m, "behind");
	assert_string_equal(new.subject, "new");
	assert_int_equal(job_release(db, &old, &e), 0);
	struct job j = { 0 };
	int64_t until = clock_ms() + 60000;
	int rc;
	/* A worker asks again until there is something: the contract is one second. */
	do
		rc = job_claim(db, m, "w1", "behind", LEASE_S, &j, &e);
	while (rc == 0 && clock_ms() < until);
	assert_int_equal(rc, 1);
	assert_string_equal(j.subject, "old");
}

/* A prepared statement is known by its address and name: they live as long as the pool. */
struct explained {
	char name[64], sql[4096];
	struct pg_stmt stmt;
};

static struct pg_res *explain(
    struct pg *db, struct explained *x, const struct pg_stmt *q, int n, const char *const *params)
{
	struct err e = { 0 };
	(void)snprintf(x->name, sizeof x->name, "explain_%s", q->name);
	(void)snprintf(x->sql, sizeof x->sql, "EXPLAIN %s", q->sql);
	x->stmt = (struct pg_stmt){ x->name, x->sql, n };
	struct pg_res *r = pg_query(db, &x->stmt, &e, n, params);
	assert_non_null(r);
	return r;
}

static bool names(const struct pg_res *plan, const char *what)
{
	for (int i = 0; i < pg_rows(plan); i++)
		if (strstr(pg_str(plan, i, 0), what) != NULL)
			return true;
	return false;
}

/* REL-4: history is not read by a claim. */
static void claims_read_only_the_indexes_of_unfinished_jobs(void **s)
{
	(void)s;
	static struct explained ready, lapsed;
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG(db, &q_history, &e, "history");
	assert_non_null(r);
	/* What the statistics of a quiet deployment say: nearly everything is finished. */
	pgtest_sql(server, "DELETE FROM jobs WHERE state IN ('queued', 'running')");
	pgtest_sql(server, "VACUUM ANALYZE jobs");
	auto_res struct pg_res *one = explain(
	    db, &ready, &q_job_claim_ready, 4, (const char *const[]){ "history", "0", "w", "60" });
	assert_true(names(one, "jobs_ready"));
	assert_true(names(one, "jobs_pkey")); /* to write what was picked: not through the whole queue */
	assert_false(names(one, "Seq Scan"));
	auto_res struct pg_res *two = explain(db, &lapsed, &q_job_claim_lapsed, 4,
	    (const char *const[]){ "history", "w", "60", "9999999999999" });
	assert_true(names(two, "jobs_running"));
	assert_true(names(two, "jobs_pkey"));
	assert_false(names(two, "Seq Scan"));
}

static int setup(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), CLAIMERS + 2, 60000);
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
		cmocka_unit_test(jobs_are_claimed_in_order_once_and_finished),
		cmocka_unit_test(a_job_of_a_transaction_that_is_rolled_back_never_existed),
		cmocka_unit_test(two_claimers_never_get_one_job),
		cmocka_unit_test(a_renewed_lease_is_not_taken),
		cmocka_unit_test(a_lapsed_lease_is_taken_over_with_a_new_fence),
		cmocka_unit_test(a_finished_job_is_never_taken_over),
		cmocka_unit_test(a_job_handed_back_is_claimed_at_once_and_is_no_crash),
		cmocka_unit_test(a_lease_that_postgresql_was_away_for_is_no_crash),
		cmocka_unit_test(a_job_that_kills_its_runner_comes_back_poisoned),
		cmocka_unit_test(a_job_far_behind_the_mark_is_found_by_the_next_rescan),
		cmocka_unit_test(claims_read_only_the_indexes_of_unfinished_jobs),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
