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
enum { MARK_MARGIN = 1000, RESCAN_MS = 1000, KINDS_MAX = 16 };

struct mark {
	char kind[32];
	long long low;   /* n of the last job claimed */
	long long high;  /* the largest n ever claimed here */
	int64_t scanned; /* clock_ms of the last scan from 0; 0: never */
};
/* The module's one piece of state: a mark for each kind that this process claims. */
static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark marks[KINDS_MAX];

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

/* Where to scan from; *due when this claim should look at everything. */
static long long mark_from(const char *kind, bool *due)
{
	(void)pthread_mutex_lock(&marks_lock);
	const struct mark *m = mark_of(kind);
	*due = m->scanned == 0 || clock_ms() - m->scanned >= RESCAN_MS;
	long long from = *due ? 0 : m->low - MARK_MARGIN;
	(void)pthread_mutex_unlock(&marks_lock);
	return from;
}

/* n: of the claimed job, 0 when the scan found none. */
static void mark_set(const char *kind, bool was_full, long long n)
{
	(void)pthread_mutex_lock(&marks_lock);
	struct mark *m = mark_of(kind);
	if (was_full)
		m->scanned = clock_ms();
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

static int take_lapsed(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s,
    struct job *j, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_job_claim_lapsed, e, kind, worker, pg_num(m, lease_s));
	return r == NULL ? -1 : take_row(r, m, j);
}

int job_claim(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s, struct job *j,
    struct err *e)
{
	bool due;
	long long from = mark_from(kind, &due);
	/* With work always ready, lapsed leases still get their turn once in RESCAN_MS; the mark stays due
	 * until none is left. */
	if (due) {
		int rc = take_lapsed(db, m, worker, kind, lease_s, j, e);
		if (rc != 0)
			return rc;
	}
	auto_res struct pg_res *r = PG(
	    db, &q_job_claim_ready, e, kind, pg_num(m, from), worker, pg_num(m, lease_s));
	if (r == NULL)
		return -1;
	int got = take_row(r, m, j);
	mark_set(kind, due, got == 1 ? pg_int(r, 0, 7) : 0);
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
