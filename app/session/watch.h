/*
 * watch.h - live watching (STR-1…6, SES-2): one LISTEN connection per process fans out to every watcher; an event is read
 * from PostgreSQL once per process and shared. A watcher is a thread that sleeps until there is something for it: it holds no
 * connection and no copy of an event. A slow reader only delays itself; one that is far behind does not keep in memory what
 * others have read long ago.
 */
#pragma once

#include "io/pg.h"
#include "op/op.h"

struct watch_hub;
struct watch_hub *watch_start(const char *conninfo, struct pg_pool *db);
/* Every stream ends itself at once with a hint where to resume (RUN-6): the server core's on_drain. */
void watch_drain(struct watch_hub *h);
/* When no stream runs any more. */
void watch_stop(struct watch_hub *h);
/*
 * Answer the request with the session's events after `after` as NDJSON or SSE, live, until the terminal line, the client's
 * departure, or draining (then a {"type":"reconnect","after":N} hint). Pings every LIMIT_PING_S of silence, the first at once
 * when there is nothing to tell yet. The caller has checked that
 * the session is the org's, and holds no connection of the pool. Returns REPLIED.
 */
json_t *watch_session(
    struct watch_hub *h, struct ctx *c, const char *org, const char *session, long long after);
/*
 * The same for many sessions: lines carry "session". A tree (root) is told from its beginning until every session of it is
 * closed; the whole org (root NULL) from now on, for ever: new sessions from their first event. There is no common order over
 * sessions: who comes back to a tree names its place in each session (place.h); the whole org has no place. NULL with e when
 * nothing was sent.
 */
struct places;
json_t *watch_tree(struct watch_hub *h, struct ctx *c, const char *org, const char *root_or_null,
    const struct places *places_or_null, struct err *e);
