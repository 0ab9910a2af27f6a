/*
 * lease.h - sandboxes as rows: lease, look up, list, end (SBX-1…5, 44, 45). The only code that writes the sandboxes table
 * for a caller; sandboxd (sandbox/node_side) writes what it built.
 */
#pragma once

#include "io/conf.h"
#include "io/pg.h"
#include "op/op.h"
#include "sandbox/boundary.h"
#include "sandbox/client.h"

struct lease_want { /* strings borrowed; 0/NULL means not said */
	const char *org, *user;
	const char *class, *project, *image, *runtime, *id; /* id: resume */
	const char *session;  /* of the run that leases; a run needs no project (SBX-62) */
	const char *state_of; /* the session whose state directory it gets (SBX-35) */
	long long ttl_s;
	const char *node; /* on this node only: for `gatehouse doctor`, no caller can say it */
	const json_t *network, *env, *limits, *mounts;
	/* Asked while it is being built; true gives up (reason "cancelled"), and the caller ends what may have been built.
	 * May be NULL. */
	bool (*cancelled)(void *arg);
	void *arg;
};
/* Validate, derive, place, build (SBX-4): a new reference to the sandbox object of 05-routes; NULL with e. *created says
 * whether a new one was built (201) or a live one returned (200). Reason "nodes_full": there is no free place now. */
json_t *lease_take(struct ctx *c, const struct lease_want *want, bool *created, struct err *e);
json_t *lease_get(const struct conf *conf, struct pg *db, const char *org, const char *id, struct err *e);
json_t *lease_list(
    const struct conf *conf, struct pg *db, const char *org, const char *cursor, int limit, struct err *e);
/* box_find for a caller that is about to use it: says so on the row (lastUsedAt). */
int lease_use(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e);
/* 0 when some node offers sandboxes now; ERR_UNAVAILABLE with the nodes' own reasons otherwise (COD-14). */
int lease_offered(const struct conf *conf, struct pg *db, struct err *e);
/* Write down that it is to end: its node does so at its next round. Nothing for another org's or one that has ended. */
int lease_ask_end(struct pg *db, const char *org, const char *id, struct err *e);
/* lease_ask_end, then end it on its node and mark the row; idempotent; 404 for another org's. Waits until it is really gone. */
int lease_end(struct ctx *c, const char *org, const char *id, struct err *e);
