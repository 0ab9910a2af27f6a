/*
 * queue.h - the job table: claim with FOR UPDATE SKIP LOCKED, a renewable lease, a fencing token, a low-water mark.
 * States: queued → running → done | failed. Every write of a running job carries (id, fence); a stale fence writes nothing.
 * A finished row is only kept for its record; the claim reads a partial index.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/id.h"
#include "io/pg.h"

struct job {
	char id[ID_MAX];
	const char *org, *kind, *subject; /* subject: the run id; in the arena given to job_claim */
	long long fence;                  /* grows with every claim */
	int attempt;                      /* from 1 */
};
/* Enqueue inside the caller's transaction, and NOTIFY gh_job. */
int job_put(struct pg *db, const char *org, const char *kind, const char *subject, struct err *e);
/* 1 with *j, 0 when there is nothing to do, -1 with e. Also takes over jobs whose lease has run out (attempt grows). */
int job_claim(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s, struct job *j, struct err *e);
/* ERR_CONFLICT when the lease was lost: stop at once, write nothing more. */
int job_renew(struct pg *db, const struct job *j, int lease_s, struct err *e);
int job_finish(struct pg *db, const struct job *j, bool ok, struct err *e);
/* Hand it back unfinished (SIGTERM): another runner may claim it at once; the attempt is counted all the same. */
int job_release(struct pg *db, const struct job *j, struct err *e);
