/*
 * pg.h - the only code that touches libpq: a pool of connections, named statements, transactions, and LISTEN.
 *
 * Statements come from sql/query/MODULE.sql; the Makefile makes "sql/MODULE.h" with one `extern const struct
 * pg_stmt q_NAME;` each. They are prepared once per connection by name. Parameters and results are text.
 *
 * Errors: PostgreSQL away, restarting or too slow is ERR_UNAVAILABLE (503, Retry-After; REL-2), reason
 * "database_away"; a unique
 * violation is ERR_CONFLICT; anything else that PostgreSQL refuses is ERR_INTERNAL, with the detail in the
 * log only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

struct pg_stmt {
	const char *name, *sql;
	int n_params;
};

struct pg_pool;
struct pg;     /* one checked-out connection */
struct pg_res; /* rows */

/* conninfo holds no password (peer or a passfile). Connects lazily; never fails here. */
struct pg_pool *pg_pool_new(const char *conninfo, int max, int statement_timeout_ms);
void pg_pool_free(struct pg_pool *p);
/* Where conninfo leads: each server's host (a name or an address; "" or a directory: a unix socket) and its port. None when it
 * is malformed. */
void pg_servers(const char *conninfo, void (*fn)(void *arg, const char *host, uint16_t port), void *arg);

/* A connection, waiting at most wait_ms for a free one; NULL with e set. Give it back with pg_put (auto_pg
 * does). A connection given back inside a transaction is rolled back; a broken one is replaced at the next
 * take. */
struct pg *pg_take(struct pg_pool *p, int wait_ms, struct err *e);
void pg_put(struct pg *db);

/* Run a statement; NULL with e set. The result is freed with pg_free (auto_res). A NULL parameter is SQL
 * NULL. */
struct pg_res *pg_query(
    struct pg *db, const struct pg_stmt *q, struct err *e, int n, const char *const *params);
#define PG(db, q, e, ...)                                                                                    \
	pg_query(db, q, e, (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *)),       \
	    (const char *const[]){ __VA_ARGS__ })
#define PG0(db, q, e) pg_query(db, q, e, 0, NULL)
void pg_free(struct pg_res *r);

int pg_rows(const struct pg_res *r);
long long pg_affected(const struct pg_res *r);
const char *pg_str(const struct pg_res *r, int row, int col); /* "" for NULL; lives as long as r */
bool pg_null(const struct pg_res *r, int row, int col);
long long pg_int(const struct pg_res *r, int row, int col);
bool pg_bool(const struct pg_res *r, int row, int col);
int pg_col(const struct pg_res *r, const char *name); /* asserts that it exists */

int pg_begin(struct pg *db, struct err *e);
int pg_commit(struct pg *db,
    struct err *e); /* -1: not committed, or nobody can know (connection lost: ERR_UNAVAILABLE) */
void pg_rollback(struct pg *db); /* fine outside a transaction */

/* Plain text of several statements (migrations only). */
int pg_script(struct pg *db, const char *sql, struct err *e);

/* ---- LISTEN: one connection and one thread per process, reconnecting for ever.
 * on_event(arg, channel, payload) is called from that thread; after every (re)connect it is called once with
 * channel "" so that whoever waits looks again (notifications sent meanwhile are lost). */
struct pg_listen;
typedef void pg_event_fn(void *arg, const char *channel, const char *payload);
struct pg_listen *pg_listen_start(
    const char *conninfo, const char *const *channels, pg_event_fn *fn, void *arg);
void pg_listen_stop(struct pg_listen *l); /* joins the thread */

static inline void auto_pgp(struct pg **p)
{
	if (*p != NULL)
		pg_put(*p);
}
static inline void auto_resp(struct pg_res **p)
{
	pg_free(*p);
}
#define auto_pg  AUTO(auto_pgp)
#define auto_res AUTO(auto_resp)

/* A number as a parameter: PG(db, &q, e, pg_num(m, 5)). */
const char *pg_num(struct mem *m, long long v);
