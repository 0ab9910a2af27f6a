/*
 * The job table: claims with a million finished rows beside an empty table, under a snapshot that somebody holds, and how soon
 * an idle runner has a job. Claims are made by threads of this process, with the runner's own code, each on its connection.
 */
#include "../t.h"

#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../flow/stack.h"
#include "base/buf.h"
#include "base/clock.h"
#include "io/migrate.h"
#include "job/queue.h"

enum {
	THREADS = 8,
	JOBS = 3000,
	ROUNDS = 7,
	HELD_ROUNDS = 44,
	HELD_JOBS = 1500,
	FINISHED = 1000000,
	WAKES = 80
};

static struct stack stack;
static struct stack_org org;

struct
    table { /* a database with a job table of its own: a snapshot holds back the vacuum of its database only */
	char database[16], kind[16];
	struct pg_pool *pool;
	int jobs, round;
	bool finish; /* each claimed job at once */
	atomic_int claimed;
};

static void sql_in(const char *database, const char *text)
{
	char info[200];
	(void)snprintf(info, sizeof info, "host=%s/run/pg user=postgres dbname=%s", stack.dir, database);
	struct pg_pool *p = pg_pool_new(info, 1, 120000);
	struct err e = { 0 };
	struct pg *db = pg_take(p, 10000, &e);
	if (db == NULL || pg_script(db, text, &e) != 0)
		fail_msg("%s: %s", text, e.msg);
	pg_put(db);
	pg_pool_free(p);
}

static void table_make(struct table *t, const char *database, int jobs, bool finish)
{
	char info[200];
	auto_buf struct buf text = BUF(2048);
	*t = (struct table){ .jobs = jobs, .finish = finish };
	(void)snprintf(t->database, sizeof t->database, "%s", database);
	(void)snprintf(t->kind, sizeof t->kind, "%s", database);
	(void)buf_fmt(&text, "CREATE DATABASE %s OWNER gatehouse", database);
	sql_in("postgres", buf_c(&text));
	(void)snprintf(info, sizeof info, "host=%s/run/pg user=gatehouse dbname=%s", stack.dir, database);
	struct err e = { 0 };
	t->pool = pg_pool_new(info, THREADS + 1, 60000);
	if (migrate_up(t->pool, migrations, &e) <= 0)
		fail_msg("%s", e.msg);
	sql_in(database, "INSERT INTO orgs (slug) VALUES ('bench')");
}

static void fill_finished(const struct table *t)
{
	sql_in(t->database,
	    "INSERT INTO jobs (id, org, kind, subject, state, attempt, fence, finished_at) "
	    "SELECT 'old_' || g, 'bench', 'b_full', 'old_' || g, 'done', 1, nextval('job_fence'), now() "
	    "FROM generate_series(1, 1000000) g");
	sql_in(t->database, "VACUUM ANALYZE jobs");
}

/* What the round before left running is finished, and new jobs are put, all at once: neither is what is measured. */
static void put_jobs(struct bench_side *s)
{
	struct table *t = s->arg;
	auto_buf struct buf text = BUF(2048);
	t->round++;
	(void)buf_fmt(&text,
	    "UPDATE jobs SET state = 'done', lease_until = NULL, finished_at = now() WHERE state = 'running';"
	    "INSERT INTO jobs (id, org, kind, subject) SELECT 'j%d_' || g, 'bench', '%s', 'j%d_' || g "
	    "FROM generate_series(1, %d) g",
	    t->round, t->kind, t->round, t->jobs);
	sql_in(t->database, buf_c(&text));
	atomic_store(&t->claimed, 0);
}

static void *claimer(void *arg)
{
	struct table *t = arg;
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(t->pool, 10000, &e);
	assert_non_null(db);
	while (atomic_load(&t->claimed) < t->jobs) {
		auto_mem struct mem *m = mem_new();
		struct job j;
		int got = job_claim(db, m, "bench", t->kind, 60, &j, &e);
		if (got < 0 || (got == 1 && t->finish && job_finish(db, &j, true, &e) != 0))
			fail_msg("%s", e.msg);
		if (got == 1)
			(void)atomic_fetch_add(&t->claimed, 1);
	}
	return NULL;
}

static long claim_all(struct bench_side *s)
{
	struct table *t = s->arg;
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, claimer, t), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	return t->jobs;
}

static struct bench_side side_of(struct table *t, const char *name)
{
	return (struct bench_side){ .name = name,
		.prepare = put_jobs,
		.round = claim_all,
		.arg = t,
		.meters = { { "PostgreSQL", stack_pid(&stack, "pg") }, { "claimers", 0 } } };
}

/* ---- history */

static void history(void)
{
	struct table empty, full;
	table_make(&empty, "b_empty", JOBS, false);
	table_make(&full, "b_full", JOBS, false);
	fill_finished(&full);
	struct bench_side sides[] = { side_of(&empty, "empty table"),
		side_of(&full, "1 000 000 finished rows") };
	bench_compare("Claims by 8 threads", "claim", sides, 2, ROUNDS);
	bench_note("Claims per second, 8 threads, empty table", 1e6 / sides[0].us, "/s");
	bench_at_least("… with 1 000 000 finished rows, of that", sides[0].us / sides[1].us, 0.7, "×");
	pg_pool_free(empty.pool);
	pg_pool_free(full.pool);
}

/* ---- a snapshot that is held */

static void held(void)
{
	struct table free_one, held_one;
	struct err e = { 0 };
	table_make(&free_one, "b_free", HELD_JOBS, true);
	table_make(&held_one, "b_held", HELD_JOBS, true);
	struct pg *holder = pg_take(held_one.pool, 10000, &e);
	assert_non_null(holder);
	assert_int_equal(
	    pg_script(holder,
		"SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; "
		"SELECT count(*) FROM jobs",
		&e),
	    0);
	int64_t begin = clock_ms();
	struct bench_side sides[] = { side_of(&free_one, "nobody looks on"),
		side_of(&held_one, "a snapshot is held") };
	bench_compare("Jobs claimed and finished at once by 8 threads", "job", sides, 2, HELD_ROUNDS);
	double seconds = (double)(clock_ms() - begin) / 1000;
	enum { LAST = HELD_ROUNDS / 4 };
	double late = bench_median(sides[1].round_us + HELD_ROUNDS - LAST, LAST);
	double late_free = bench_median(sides[0].round_us + HELD_ROUNDS - LAST, LAST);
	bench_note("The snapshot was held for", seconds, "s");
	bench_at_least(
	    "Jobs per second in its last quarter, of those without it", late_free / late, 0.5, "×");
	pg_put(holder);
	pg_pool_free(free_one.pool);
	pg_pool_free(held_one.pool);
}

/* ---- waking up */

/* From the put's transaction to the claim, by PostgreSQL's clock: a trigger writes down when a job begins to run. */
static void wake(void)
{
	sql_in("gatehouse",
	    "CREATE TABLE woken (subject text, us float8); GRANT ALL ON woken TO gatehouse;"
	    "CREATE FUNCTION woke() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO woken VALUES "
	    "(new.subject, "
	    "extract(epoch FROM clock_timestamp() - new.created_at) * 1e6); RETURN new; END $$;"
	    "CREATE TRIGGER woke AFTER UPDATE ON jobs FOR EACH ROW WHEN (old.state = 'queued' AND new.state "
	    "= 'running') "
	    "EXECUTE FUNCTION woke()");
	char info[200];
	(void)snprintf(info, sizeof info, "host=%s/run/pg user=gatehouse dbname=gatehouse", stack.dir);
	struct pg_pool *pool = pg_pool_new(info, 1, 10000);
	for (int i = 0; i < WAKES; i++) {
		struct err e = { 0 };
		char subject[32];
		(void)snprintf(subject, sizeof subject, "run_none_%d", i);
		auto_pg struct pg *db = pg_take(pool, 1000, &e);
		assert_non_null(db);
		assert_int_equal(job_put(db, org.slug, "coding", subject, &e), 0);
		/* Not in step with the runner's own look once a second. */
		(void)usleep((useconds_t)(40000 + i * 7919 % 30000));
	}
	pg_pool_free(pool);
	auto_buf struct buf got = BUF(4096);
	stack_sql(&stack,
	    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY us), percentile_cont(0.99) WITHIN GROUP "
	    "(ORDER BY us), "
	    "count(*) FROM woken",
	    &got);
	double p50, p99;
	int n;
	assert_int_equal(sscanf(buf_c(&got), "%lf|%lf|%d", &p50, &p99, &n), 3);
	assert_true(n >= WAKES * 9 / 10);
	bench_at_most("From a put to the claim by an idle runner, p50", p50 / 1000, 15, "ms");
	bench_note("… p99", p99 / 1000, "ms");
	stack_sql(&stack, "DROP TABLE woken; DROP FUNCTION woke CASCADE; DELETE FROM jobs", NULL);
}

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &org);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	return 0;
}

static void jobs(void **state)
{
	(void)state;
	wake();
	history();
	held();
}

int main(void)
{
	return bench_main("jobs", setup, jobs, teardown);
}
