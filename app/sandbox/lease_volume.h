/* lease_volume.h - the volumes of a lease, as rows: who has them, where they are, whose they become. For sandbox/lease.c. */
#pragma once

#include "io/pg.h"
#include "op/op.h"
#include "sandbox/lease.h"
#include "sandbox/lease_check.h"

struct lease_holder { /* the live sandbox that has what a lease wants */
	char id[40], class[12], runtime[16];
	bool project; /* it has the project; else only the session's state */
	bool ending;  /* else it runs or is being built */
};

/* SBX-35: the session is the org's and open. */
int lease_state_check(struct pg *db, const struct lease_want *w, struct err *e);
/* In the transaction of the lease, first: nobody else leases or purges these meanwhile. 1 with *h: somebody has one of them. 0: with
 * the one node that they are on, or empty. */
int lease_volumes_begin(struct ctx *c, struct pg *db, const struct lease_want *w, const struct lease_terms *t,
    struct lease_holder *h, char node[64], struct err *e);
/* Then, once the node is chosen: the rows, made when absent. */
int lease_volumes_claim(struct ctx *c, struct pg *db, const struct lease_want *w, const struct lease_terms *t,
    const char *node, const char *sandbox, struct err *e);

/* ---- volumes as an org sees them (SBX-61) */
/* Rows {project, sizeBytes, usedBytes, lastLeased, node, sandbox}, by project, after `cursor`. New reference. */
json_t *volume_rows(struct pg *db, const char *org, const char *cursor, int limit, struct err *e);
/* SBX-45: delete a project's volume: 1; 0 when there is none; -1 with e. ERR_CONFLICT, naming it, while a sandbox has it; ERR_UNAVAILABLE while its node is
 * away, which deletes it then when it is back. */
int volume_purge(struct ctx *c, const char *org, const char *project, struct err *e);
