/* trace.h - the spans of model calls as they can be read (RUN-7), by the org that they are filed under and nobody else. */
#pragma once

#include "io/pg.h"

enum { TRACE_SPANS_MAX = 1000 };

/* Rows {id, name, startedAt, durationMs, spans, errors, inputTokens, outputTokens, session, user}, newest first, behind the row
 * whose `_key` is `before` ("" for the start); session NULL: of all. New reference. */
json_t *trace_list(
    struct pg *db, const char *org, const char *before, int limit, const char *session, struct err *e);
/* {id, spans [{id, parent, name, startedAt, offsetUs, durationUs, error, session, user, attributes, events}]} in the order of time, at
 * most TRACE_SPANS_MAX, with `more` where there are more. ERR_NOT_FOUND. New reference. */
json_t *trace_get(struct pg *db, const char *org, const char *id, struct err *e);
