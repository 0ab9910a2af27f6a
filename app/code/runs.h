/* runs.h - coding runs as rows: what the API shows (COD-12), and asking for an end (COD-11, COD-15). */
#pragma once

#include <jansson.h>

#include "io/pg.h"

struct principal;

/* {id, kind, tool, repo, cloneUrl, base, branch, state, session, commit, createdBy, createdAt, endedAt, stopRequestedAt,
 * stopRequestedBy, durationMs, costMillicents}. New reference; ERR_NOT_FOUND for another org's too. */
json_t *runs_get(struct pg *db, const char *org, const char *id, struct err *e);
/* Newest first, ids below `before` ("" for the start). */
json_t *runs_list(struct pg *db, const char *org, const char *before, int limit, struct err *e);
/* Ask for the end of a run: ERR_FORBIDDEN for somebody who may not. Idempotent; a run that has ended stays as it is. */
json_t *runs_stop(struct pg *db, const struct principal *who, const char *id, struct err *e);
