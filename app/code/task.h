/*
 * task.h - a coding run: posted by the API (task_start), executed by the runner (task_run). See app/README.md, life of a run.
 */
#pragma once

#include <stdbool.h>

#include "io/conf.h"
#include "io/pg.h"
#include "job/queue.h"
#include "op/op.h"

struct task_started {
	char run[ID_MAX], session[ID_MAX];
};
/* Validate COD-1…4, write session + run + job in one transaction. Nothing is written on refusal. */
int task_start(struct ctx *c, const json_t *in, struct task_started *got, struct err *e);

struct runner; /* app/main/runner.c's services: pool, conf, seal key, stop flags */
/* Execute one claimed run to its terminal event. Returns 0 when the job is finished (also when the run failed), -1 with e
 * when it must be handed back (draining, lease lost). */
int task_run(struct runner *r, const struct job *j, struct err *e);
