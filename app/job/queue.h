/*
 * queue.h - the job table: claim with FOR UPDATE SKIP LOCKED, a renewable lease, a fencing token, a low-water mark.
 * States: queued → running → done | failed. Every write of a running job carries (id, fence); a stale fence writes nothing
 * and is ERR_CONFLICT with reason "fenced": stop at once, write nothing more.
 * A finished row is only kept for its record; the claim reads partial indexes.
 * A worker claims again at once after a job, when told on channel gh_job (payload: the kind), and once a second besides.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/id.h"
#include "io/pg.h"

enum { JOB_MAX_CRASHES = 5 };

struct job {
	char id[ID_MAX];
	const char *org, *kind, *subject; /* subject: the run id; in the arena given to job_claim */
	long long fence;                  /* grows with every claim */
	int attempt;                      /* from 1; counts claims of any sort */
	/* Its lease ran out JOB_MAX_CRASHES times, PostgreSQL being up: it kills its runner. Do not execute it: tell its subject, finish it as failed. */
	bool poisoned;
};
/* Enqueue inside the caller's transaction, and NOTIFY gh_job. */
int job_put(struct pg *db, const char *org, const char *kind, const char *subject, struct err *e);
/* 1 with *j, 0 when there is nothing to do, -1 with e. Also takes over jobs whose lease has run out (attempt grows). Not
 * inside a transaction: a job must not be worked on before its claim is committed. */
int job_claim(struct pg *db, struct mem *m, const char *worker, const char *kind, int lease_s, struct job *j,
    struct err *e);
int job_renew(struct pg *db, const struct job *j, int lease_s, struct err *e);
int job_finish(struct pg *db, const struct job *j, bool ok, struct err *e);
/* Hand it back unfinished (SIGTERM): another runner may claim it at once. Counts as an attempt, not as a crash. */
int job_release(struct pg *db, const struct job *j, struct err *e);
/* Inside the caller's transaction: 1 when the job had never been claimed, and now never is (its state is failed); 0 otherwise. */
int job_withdraw(struct pg *db, const char *org, const char *kind, const char *subject, struct err *e);
