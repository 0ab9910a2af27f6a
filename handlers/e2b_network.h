/* e2b_network.h - what a sandbox may reach, in the words of the E2B SDK and in ours. Pure. */
#pragma once

#include "op/op.h"

extern const struct param e2b_network_in[];
extern const struct param e2b_hosts[];
#define E2B_NETWORK_FIELDS IN(T_BOOL, "allow_internet_access", "true: every public address.", NULL)
#define E2B_EGRESS_FIELDS                                                                                    \
	IN(T_ARR, "allowOut", "Names.", NULL, .max = 1000, .fields = e2b_hosts),                             \
	    IN(T_ARR, "denyOut", "Everything, or nothing.", NULL, .max = 1000, .fields = e2b_hosts)

/*
 * Our policy {mode, allowedHosts} for a request's `allow_internet_access` and its egress members {allowOut, denyOut, …} (NULL:
 * none). Nothing said is JSON null: what a lease has that says nothing. ERR_BAD_REQUEST names what no policy here says exactly. New
 * reference.
 */
json_t *e2b_network(const json_t *in, const json_t *egress, struct err *e);
/* The other way: `network` and `allowInternetAccess` of a sandbox. */
void e2b_network_tell(const json_t *policy, json_t *out);
