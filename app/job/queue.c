#include "job/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "sql/job.h"

/*
 * The low-water mark: where the claim's index scan begins. Under a snapshot held for long (a backup, a
 * forgotten psql) the index entries of finished jobs cannot be removed, and a scan from 0 would step over all
 * of them at every claim. Rows may still become ready behind the mark (late commits, jobs handed back): most
 * of them lie within MARK_MARGIN, the rest is found by a scan from 0 once in RESCAN_MS.
 */
enum { MARK_MARGIN = 250, RESCAN_MS = 1000, KINDS_MAX = 16, STEP_MS = 1500, JUDGE_MS = 5000 };

struct mark {
	char kind[32];
	long long low;   /* n of the last job claimed */
	long long high;  /* the largest n ever claimed here */
	int64_t scanned; /* clock_ms of the last scan from 0; 0: never */
};
/*
 * Leases are in the database's time, which may step (REL-6). Ours does not: a look at both tells a step, and after one no lease
 * counts as run out for as long as a lease takes, in which whoever is alive renews its own. A process that starts right after
 * a step cannot know of it.
 */
struct steady {
	int64_t db_ms, at_ms, took_ms; /* the last look, and how long its answer took; at_ms 0: none yet */
	int64_t hold_ms;               /* no lease is judged before */
};
/* The module's state: a mark for each kind that this process claims, and its view of the database's clock. */
static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark marks[KINDS_MAX];
static struct steady steady;

static struct mark *mark_of(const char *kind)
{
	struct mark *m = marks;
	while (m->kind[0] != 0 && strcmp(m->kind, kind) != 0) {
		m++;
		assert(m < marks + KINDS_MAX);
	}
	int n = snprintf(m->kind, sizeof m->kind, "%s", kind);
	assert(n > 0 && (size_t)n < sizeof m->kind);
	return m;
}

/* Where to scan from; *due when this claim should look at everything: one of the process's threads at a time, as the scan from
 * 0 is the dear one under a held snapshot. */
static long long mark_from(const char *kind, bool *due)
{
	(void)pthread_mutex_lock(&marks_lock);
	struct mark *m = mark_of(kind);
	int64_t now = clock_ms();
	*due = m->scanned == 0 || now - m->scanned >= RESCAN_MS;
	if (*due)
		m->scanned = now;
	long long from = *due ? 0 : m->low - MARK_MARGIN;
	(void)pthread_mutex_unlock(&marks_lock);
	return from;
}

/* The look at everything did not come to its end, or found something and may find more: the next claim looks again. */
static void mark_due(const char *kind)
{
	(void)pthread_mutex_lock(&marks_lock);
	mark_of(kind)->scanned = 0;
	(void)pthread_mutex_unlock(&marks_lock);
}

/* n: of the claimed job, 0 when the scan found none. */
static void mark_set(const char *kind, long long n)
{
	(void)pthread_mutex_lock(&marks_lock);
	struct mark *m = mark_of(kind);
	if (n > m->high)
		m->high = n;
	m->low = n > 0 ? n : m->high;
	(void)pthread_mutex_unlock(&marks_lock);
}

int job_put(struct pg *db, const char *org, const char *kind, const char *subject, struct err *e)
{
	char id[ID_MAX];
	id_make("job", id);
	auto_res struct pg_res *r = PG(db, &q_job_put, e, id, org, kind, subject);
	return r == NULL ? -1 : 0;
}

static int take_row(const struct pg_res *r, struct mem *m, struct job *j)
{
	if (pg_rows(r) == 0)
		return 0;
	*j = (struct job){
		.org = mem_str(m, pg_str(r, 0, 1)),
		.kind = mem_str(m, pg_str(r, 0, 2)),
		.subject = mem_str(m, pg_str(r, 0, 3)),
		.fence = pg_int(r, 0, 4),
		.attempt = (int)pg_int(r, 0, 5),
		.poisoned = pg_int(r, 0, 6) >= JOB_MAX_CRASHES,
	};
	(void)snprintf(j->id, sizeof j->id, "%s", pg_str(r, 0, 0));
	return 1;
}

/* 1 when leases may be judged now; 0 for a while after a step; -1 with e. */
static int clock_is_steady(struct pg *db, int lease_s, int64_t *db_ms, struct err *e)
{
	int64_t before = clock_ms();
	auto_res struct pg_res *r = PG0(db, &q_job_clock, e);
	if (r == NULL)
		return -1;
	int64_t now = clock_ms(), took = now - before;
	*db_ms = pg_int(r, 0, 0);
	(void)pthread_mutex_lock(&marks_lock);
	int64_t slack = STEP_MS + took + steady.took_ms;
	int64_t step = steady.at_ms == 0 ? 0 : *db_ms - steady.db_ms - (now - steady.at_ms);
	if (step > slack || step < -slack)
		steady.hold_ms = now + lease_s * 1000LL;
	if (steady.at_ms < now) { /* another thread may have looked later */
		steady.db_ms = *db_ms;
		steady.at_ms = now;
		steady.took_ms = took;
	}
	int may = now >= steady.hold_ms;
	(void)pthread_mutex_unlock(&marks_lock);
	return may;
}

static int take_lapsed(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s,
    struct job *j, struct err *e)
{
	int64_t db_ms;
	int may = clock_is_steady(db, lease_s, &db_ms, e);
	if (may <= 0)
		return may;
	auto_res struct pg_res *r = PG(
	    db, &q_job_claim_lapsed, e, kind, worker, pg_num(m, lease_s), pg_num(m, db_ms + JUDGE_MS));
	return r == NULL ? -1 : take_row(r, m, j);
}

int job_claim(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s, struct job *j,
    struct err *e)
{
	bool due;
	long long from = mark_from(kind, &due);
	/* With work always ready, lapsed leases still get their turn once in RESCAN_MS; the mark stays due
	 * until none is left. */
	int rc = due ? take_lapsed(db, m, worker, kind, lease_s, j, e) : 0;
	auto_res struct pg_res *r = rc != 0
	    ? NULL
	    : PG(db, &q_job_claim_ready, e, kind, pg_num(m, from), worker, pg_num(m, lease_s));
	if (r == NULL) {
		if (due)
			mark_due(kind);
		return rc != 0 ? rc : -1;
	}
	int got = take_row(r, m, j);
	mark_set(kind, got == 1 ? pg_int(r, 0, 7) : 0);
	if (got == 1 || due)
		return got;
	return take_lapsed(db, m, worker, kind, lease_s, j, e);
}

static int fenced(const struct pg_res *r, long long hits, struct err *e)
{
	if (r == NULL)
		return -1;
	if (hits > 0)
		return 0;
	(void)err_set(e, ERR_CONFLICT, "This worker no longer holds the job.");
	e->reason = "fenced";
	return -1;
}

int job_renew(struct pg *db, const struct job *j, int lease_s, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(
	    db, &q_job_renew, e, j->id, j->org, pg_num(m, j->fence), pg_num(m, lease_s));
	return fenced(r, r == NULL ? 0 : pg_affected(r), e);
}

int job_finish(struct pg *db, const struct job *j, bool ok, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(
	    db, &q_job_finish, e, j->id, j->org, pg_num(m, j->fence), ok ? "done" : "failed");
	return fenced(r, r == NULL ? 0 : pg_affected(r), e);
}

int job_release(struct pg *db, const struct job *j, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_job_release, e, j->id, j->org, pg_num(m, j->fence));
	return fenced(r, r == NULL ? 0 : pg_rows(r), e);
}

int job_withdraw(struct pg *db, const char *org, const char *kind, const char *subject, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_job_withdraw, e, org, kind, subject);
	return r == NULL ? -1 : pg_affected(r) > 0;
}
