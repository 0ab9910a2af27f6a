/*
 * broker.h - brokered credentials (EGR-8): what gatehouse-egress adds to the requests that an org's sandboxes send to a host. A
 * row binds (org, host pattern) to one header; its value is sealed, bound to the row's id, and never shown again.
 */
#pragma once

#include "auth/principal.h"
#include "auth/seal.h"
#include "base/id.h"

struct broker_new {
	const char *org, *user, *name;
	const char *host;   /* a pattern (base/host.h) */
	const char *header; /* its name */
	const struct secret *value;
};
/* ERR_BAD_REQUEST naming `host`, `header` or `value`; ERR_CONFLICT when that org has one for this host and header. The row, as
 * broker_list gives it. New reference. */
json_t *broker_bind(struct pg *db, const struct seal_key *k, const struct broker_new *want, struct err *e);
/* Rows {id, name, host, header, createdBy, createdAt}, newest first, ids below `before` ("" for the start). New reference. */
json_t *broker_list(struct pg *db, const char *org, const char *before, int limit, struct err *e);
/* ERR_NOT_FOUND when that org has none of this id. The boundary of every host is told at once. */
int broker_remove(struct pg *db, const char *org, const char *id, struct err *e);
