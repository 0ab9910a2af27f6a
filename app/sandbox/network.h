/*
 * network.h - what a sandbox may reach, as the API sees it: checked, written down, told, and changed while it runs (EGR-1, EGR-9,
 * SBX-33). Enforcing it is gatehouse-egress's, who reads what is written here.
 */
#pragma once

#include "io/conf.h"
#include "io/pg.h"
#include "op/op.h"

struct network {
	json_t *policy;    /* {mode, allowedHosts}, every default filled in; new reference */
	const char *reach; /* isolation.network */
	int tier;
};
/*
 * asked: {mode, allowedHosts} or NULL. field: what its members are called in an error, e.g. "network.". ERR_BAD_REQUEST names the
 * member, and of allowedHosts the entry; ERR_UNAVAILABLE when a setting of the deployment stands against every policy.
 */
int network_check(
    const struct conf *conf, const json_t *asked, const char *field, struct network *got, struct err *e);
/* Of a sandbox that nothing isolates (DRV-0). */
struct network network_open(void);
/* What is stored, as clients see it: {mode, allowedHosts, observe}. New reference. */
json_t *network_object(const struct conf *conf, const char *stored);
/* SBX-33: of what is stored, under the deployment's settings of now. */
int network_tier(const struct conf *conf, long long stored_tier);
/* EGR-10: the variables that lead every command to the boundary, into env and over what it holds. No lease may set them. */
void network_env(json_t *env);
/*
 * Change the policy of a live sandbox; returns once it is in force, as network_object. ERR_NOT_FOUND for another org's;
 * ERR_CONFLICT when it does not run, or its driver cannot enforce a policy; ERR_UNAVAILABLE when the boundary has not confirmed
 * it in time: it is written then, and nothing passes that boundary until it has read it.
 */
json_t *network_set(struct ctx *c, const char *org, const char *id, const json_t *asked, struct err *e);
/* What the boundary decided about it: rows as GET /v1/sandboxes/{id}/egress gives them, newest first, ids below `before` ("" for the
 * start); verdict NULL: every one, and closes. ERR_NOT_FOUND for another org's. New reference. */
json_t *network_audit(struct pg *db, const char *org, const char *id, const char *verdict, const char *before,
    int limit, struct err *e);
