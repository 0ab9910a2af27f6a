/* e2b_network.h - what a sandbox may reach, in the words of the E2B SDK and in ours. Pure. */
#pragma once

#include "op/op.h"

extern const struct param e2b_network_in[];
extern const struct param e2b_hosts[];
#define E2B_NETWORK_FIELDS                                                                                   \
	{                                                                                                    \
		.name = "allow_internet_access", .type = T_BOOL, .doc = "true: every public address."        \
	}
#define E2B_EGRESS_FIELDS                                                                                    \
	{ .name = "allowOut", .type = T_ARR, .max = 1000, .fields = e2b_hosts, .doc = "Names." },            \
	{                                                                                                    \
		.name = "denyOut", .type = T_ARR, .max = 1000, .fields = e2b_hosts,                          \
		.doc = "Everything, or nothing."                                                             \
	}

/*
 * Our policy {mode, allowedHosts} for a request's `allow_internet_access` and its egress members {allowOut, denyOut, …} (NULL:
 * none). Nothing said is JSON null: what a lease has that says nothing. ERR_BAD_REQUEST names what no policy here says exactly. New
 * reference.
 */
json_t *e2b_network(const json_t *in, const json_t *egress, struct err *e);
/* The other way: `network` and `allowInternetAccess` of a sandbox. */
void e2b_network_tell(const json_t *policy, json_t *out);
