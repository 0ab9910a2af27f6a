/* runs.h - coding runs as rows: what the API shows (COD-12), and asking for an end (COD-11, COD-15). */
#pragma once

#include <jansson.h>

#include "io/pg.h"

struct cred;
struct principal;

/* {id, kind, tool, repo, cloneUrl, base, branch, state, session, commit, createdBy, createdAt, endedAt, stopRequestedAt,
 * stopRequestedBy, durationMs, costMillicents}. New reference; ERR_NOT_FOUND for another org's too. */
json_t *runs_get(struct pg *db, const char *org, const char *id, struct err *e);
/* Newest first, ids below `before` ("" for the start). */
json_t *runs_list(struct pg *db, const char *org, const char *before, int limit, struct err *e);
/* Ask for the end of a run: ERR_FORBIDDEN for somebody who may not. Idempotent; a run that has ended stays as it is; one that nobody
 * has begun ends at once. */
json_t *runs_stop(struct pg *db, const struct principal *who, const char *id, struct err *e);
/*
 * A token for the run's model calls (MOD-9), for who may stop it: it reaches the gateway's routes and nothing else, its calls are
 * the run's in usage, budgets and traces, and it ends with the run. ERR_CONFLICT when the run has ended. Inside a transaction that
 * the caller has opened and commits.
 */
int runs_token(
    struct pg *db, const struct principal *who, const char *id, int ttl_s, struct cred *got, struct err *e);
