/*
 * door.h - running sandboxes as a compatibility door shows them (ECO-3): the rows of lease.h, with what their client wrote on them.
 */
#pragma once

#include "io/pg.h"
#include "op/op.h"

/* {id, class, createdAt, expiresAt, leftMs, memoryMb, cpuMilli, diskMb, metadata, network (as stored, text)}: new reference.
 * ERR_NOT_FOUND for what does not run, and for another org's. */
json_t *door_get(struct pg *db, const char *org, const char *id, struct err *e);

struct door_filter {
	const char *after; /* the last id that was seen; "": from the start */
	int limit;
	bool oldest_first;
	const json_t *metadata; /* an object of strings, every one of which it must have; NULL: none */
	const char *started_after, *class; /* NULL: any */
};
/* An array of the same. */
json_t *door_list(struct pg *db, const char *org, const struct door_filter *f, struct err *e);
int door_tag(struct pg *db, const char *org, const char *id, const json_t *metadata, struct err *e);

/*
 * A new end for a running lease, ttl_s from now, on its row and in the box; longer: only where that is later than the one it has.
 * ERR_NOT_FOUND when it does not run, ERR_BAD_REQUEST beyond the deployment's longest, ERR_UNAVAILABLE when its node could not be
 * told: then the row has the new end and the sandbox the old one; ask again.
 */
int lease_renew(struct ctx *c, const char *org, const char *id, long long ttl_s, bool longer, struct err *e);
