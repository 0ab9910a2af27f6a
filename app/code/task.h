/*
 * task.h - a coding run: posted by the API (task_start), executed by the runner (task_run). See app/README.md, life of a run.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "auth/seal.h"
#include "io/conf.h"
#include "io/pg.h"
#include "job/queue.h"
#include "op/op.h"

#define TASK_JOB_KIND "coding"

struct task_started {
	char run[ID_MAX], session[ID_MAX];
};
/* Validate COD-1…4 (every violation in details[]), write session + run + job in one transaction. Nothing is written on
 * refusal. `seal` may be NULL: then a credential is refused. */
int task_start(
    struct ctx *c, const struct seal_key *seal, const json_t *in, struct task_started *got, struct err *e);

/* ---- the runner's side */

/* Why a run must not go on, in rising order: a later one overrides. */
enum task_why {
	TASK_GO,
	TASK_STOP,  /* somebody asked (COD-11): end it and say so */
	TASK_DRAIN, /* the runner is ending: end the lease and hand the job back */
	TASK_LOST,  /* the job is another runner's now: write nothing more */
};
/* What others tell a run while it works. */
struct task_hold {
	atomic_int why; /* enum task_why */
	_Atomic(int64_t)
	    until_ms; /* monotonic: past it the job's lease may have run out, which is TASK_LOST too */
};
void task_raise(struct task_hold *h, enum task_why to);
enum task_why task_held(struct task_hold *h);

struct runner { /* services of the process */
	struct pg_pool *db;
	const struct conf *conf;
	const struct seal_key *seal; /* NULL when not configured */
	int end_ms; /* how long to try to end a lease whose node is away; afterwards the node's reaper has it */
};
/* Execute one claimed run to its terminal event. Returns 0 when the job is finished (also when the run failed), -1 with e
 * when it was handed back or lost. `hold` may be changed by other threads at any time. */
int task_run(const struct runner *r, const struct job *j, struct task_hold *hold, struct err *e);
/* Remove what killed runners left under RUNNER_DIR; directories of living ones are locked. */
void task_sweep(const struct conf *conf);
