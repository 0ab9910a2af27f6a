/*
 * migrate.h - forward-only migrations: sql/schema/NNNN_topic.sql in order of their names, compiled into the binary.
 * Each runs in one transaction with its record (name, SHA-256). What is recorded must be exactly the beginning of the set:
 * a changed file, an unknown or newer one, or one that was skipped, is refused before anything is done.
 */
#pragma once

#include "base/err.h"
#include "io/pg.h"

struct migration {
	const char *name; /* "0001_identity" */
	const char *sql;
};
extern const struct migration migrations[]; /* ended by a row without name; made from sql/schema */

/*
 * Apply what is missing; several callers at once wait for each other. The pool's statement timeout bounds each file and
 * that wait, so give it minutes. The number applied here, or -1 with e set: ERR_CONFLICT when the record and the set
 * disagree; files before the failed one stay applied.
 */
int migrate_up(struct pg_pool *pool, const struct migration *set, struct err *e);
/*
 * For /ready: how many of the set the database lacks (or holds changed), or -1 with e set. A newer database lacks nothing:
 * during an upgrade the old processes still serve.
 */
int migrate_pending(struct pg *db, const struct migration *set, struct err *e);
