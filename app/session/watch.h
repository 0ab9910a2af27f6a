/*
 * watch.h - live watching (STR-1…6, SES-2): one LISTEN connection per process fans out to every watcher; an event is read
 * from PostgreSQL once per process and shared. A slow reader only delays itself.
 */
#pragma once

#include "io/pg.h"
#include "op/op.h"

struct watch_hub;
struct watch_hub *watch_start(const char *conninfo, struct pg_pool *db);
void watch_stop(struct watch_hub *h);
/*
 * Answer the request with the session's events after `after` as NDJSON, live, until the terminal line, the client's
 * departure, or draining (then a {"type":"reconnect","after":N} hint). Pings every LIMIT_PING_S. The caller has checked that
 * the session is the caller's org's. Returns REPLIED, or NULL with e when nothing was sent yet.
 */
json_t *watch_session(struct watch_hub *h, struct ctx *c, const char *session, long long after, struct err *e);
/* The same for every session of a tree (root) or of the whole org (root NULL): lines carry "session". */
json_t *watch_tree(struct watch_hub *h, struct ctx *c, const char *root_or_null, struct err *e);
/* Other gh_* channels of the same connection: the hub's owner may ask to be told (runner: gh_job, gh_stop). */
