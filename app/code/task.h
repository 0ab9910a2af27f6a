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
void task_raise(atomic_int *why, enum task_why to);

struct runner { /* services of the process */
	struct pg_pool *db;
	const struct conf *conf;
	const struct seal_key *seal; /* NULL when not configured */
};
/* Execute one claimed run to its terminal event. Returns 0 when the job is finished (also when the run failed), -1 with e
 * when it was handed back or lost. `why` may be raised by other threads at any time. */
int task_run(const struct runner *r, const struct job *j, atomic_int *why, struct err *e);
/* Remove what killed runners left under RUNNER_DIR; directories of living ones are locked. */
void task_sweep(const struct conf *conf);
