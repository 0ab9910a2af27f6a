/*
 * pg_conn.h - private to io/pg*.c: one libpq connection whose every wait has a deadline.
 * libpq's own blocking calls are never used: a PostgreSQL that accepts and then hangs must cost a bounded
 * time (REL-2). What cannot be bounded here is name resolution inside libpq; a deployment that cares names an
 * address or a socket.
 */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/pg.h"

/* How long to wait, and for what else: readable stop_fd (-1: none) ends a wait like a passed deadline. */
struct pg_until {
	int64_t deadline_ms; /* clock_ms() */
	int stop_fd;
};

/* A connection in non-blocking mode, UTC and UTF-8; NULL with e set (ERR_UNAVAILABLE, or ERR_INTERNAL for a
 * bad conninfo). */
PGconn *pg_conn_open(const char *conninfo, int statement_timeout_ms, struct pg_until until, struct err *e);
/* An idle connection that its server closed or has something to say on is not worth a query. */
bool pg_conn_stale(const PGconn *c);
/* Send what libpq has queued, then read to the end of the command. The first failure among its results, else
 * the last result; NULL when the connection broke or the deadline passed: then only PQfinish is left. */
PGresult *pg_conn_finish(PGconn *c, struct pg_until until);
/* 0 for a result that is no failure; else -1 with e set from its SQLSTATE. `what` names the statement in the
 * log. */
int pg_conn_check(const PGresult *r, const char *what, struct err *e);
int pg_conn_lost(struct err *e); /* always -1: ERR_UNAVAILABLE */

/* pg_listen_start with times of the caller's: after keepalive_ms of silence the server must answer within answer_ms. */
struct pg_listen_times {
	int keepalive_ms, answer_ms;
};
struct pg_listen *pg_listen_start_with(const char *conninfo, const char *const *channels, pg_event_fn *fn,
    void *arg, struct pg_listen_times times);
