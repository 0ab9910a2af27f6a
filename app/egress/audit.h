/*
 * audit.h - one row a decision, one a close (EGR-15): a bounded queue, and a thread of its own that writes batches. What is let
 * pass is on the queue first: when the queue has no room, or PostgreSQL refuses the rows, nothing more is let pass. With
 * PostgreSQL away the queue fills up until it is back. Refusals are told to the lease's session as well (EGR-5).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "egress/decide.h"
#include "io/pg.h"

enum {
	AUDIT_QUEUE = 32768,
	AUDIT_BATCH = 500,
	AUDIT_PAUSE_MS = 50,
	AUDIT_RETRY_MS = 1000,
	AUDIT_PRUNE_MS = 3600 * 1000
};

#define AUDIT_LIMIT "limit:" /* begins what stands for the host in a row about a limit that was reached */

struct audit;

struct audit_row {
	const char *org, *sandbox, *session; /* session "": none */
	bool close;              /* of a connection or request that was let pass: then the last three count */
	const char *form, *host; /* host: printable ASCII, at most 253 bytes */
	uint16_t port;
	enum egress_reason reason;
	bool passes;                 /* a close row will follow */
	bool observed;               /* let pass though the reason says no (EGR-13) */
	const char *class, *address; /* NULL: no address was judged */
	bool tell;                   /* an event of the session */
	int more;                    /* refusals before it that were not told */
	uint64_t out, in;            /* bytes from the sandbox, to it */
	int64_t duration_ms;
};

/* keep_days: older rows are removed, some every hour; 0: none. */
struct audit *audit_start(struct pg_pool *db, int keep_days);
/* Writes what is queued, for at most wait_ms. */
void audit_stop(struct audit *a, int wait_ms);
/* Is there room for a decision and, should it be to let pass, for its close? */
bool audit_ready(const struct audit *a);
/* A row of something that was let pass always has room after audit_ready; -1: another row was dropped, and counted. */
int audit_put(struct audit *a, const struct audit_row *row);

struct audit_stats {
	int queued;
	long long written, dropped;
	bool refused; /* PostgreSQL's last word */
};
void audit_stats(struct audit *a, struct audit_stats *out);
