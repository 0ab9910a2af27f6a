/*
 * egr.h - what the flow tests of the egress boundary share: a stack whose boundary asks a DNS server of the test's own and may
 * reach an origin of it (EGRESS_ALLOW_INWARD_FOR), and the runtimes that are there.
 */
#pragma once

#include "../dnsserver.h"
#include "../origin.h"
#include "sbx.h"

struct egr {
	struct stack stack;
	struct stack_org acme, other;
	struct dnsserver *dns;
	struct origin *origin;
	int port;      /* the origin's: a.origin.test and b.origin.test are it */
	bool gvisor;   /* is offered */
	char host[48]; /* an address of this host that is not loopback; loopback when it has no other */
};

/* oci: the binary behind the default runtime; conf: further lines, or NULL. */
void egr_up(struct egr *g, int apis, int nodes, const char *oci, const char *conf);
void egr_down(struct egr *g);
/* A lease with these hosts ("{P}" is the origin's port; NULL: deny-all) on this runtime ("": the default). */
void egr_lease(struct egr *g, const char *runtime, const char *hosts, char id[40]);
/* PUT …/network through this api; its status. */
long egr_policy(struct egr *g, const char *key, const char *id, int api, const char *mode, const char *hosts);
/* What `curl` inside prints for this URL: "<status> <body or its own words>". path: of a.origin.test. */
void egr_curl(struct egr *g, const char *id, const char *host, const char *path, struct buf *out);
/* curl inside reaches a.origin.test: the origin itself has answered. */
bool egr_reaches(struct egr *g, const char *id);
/* The same within a few seconds: for when something has just been restarted. */
void egr_await(struct egr *g, const char *id);
