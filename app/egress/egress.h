/*
 * egress.h - gatehouse-egress as a whole: the proxy through which sandboxes reach the outside, and its settings. One thread
 * moves all bytes; threads of their own read policies, write the audit and ask the deployment's resolver.
 */
#pragma once

#include <stdint.h>

#include "auth/seal.h"
#include "base/err.h"
#include "egress/policy.h"

/* What a listener speaks: http and tls are transparent, told apart by their ports (EGR-16). */
enum egress_kind { KIND_PROXY, KIND_HTTP, KIND_TLS, KIND_DNS, KINDS };

struct egress_opts {
	const char *socket, *conninfo, *dns;
	const char *ca_file;         /* of origins that requests are upgraded to (EGR-8); "": the system's */
	const struct seal_key *seal; /* stays the caller's */
	const char *resolver, *resolver_ca_file; /* of mode resolver: ask.h; "" for none */
	int statement_ms, resolver_ms, audit_days;
	/* How long each may take. */
	int64_t head_ms, hello_ms, dns_ms, connect_ms, idle_ms, drain_ms, total_ms;
	/* Of one sandbox (EGR-12); 0: none. */
	int connections, requests_s;
	int64_t bytes_s, lease_bytes;
	struct egress_site site;   /* lists stay the caller's */
	const uint16_t *tls_ports; /* EGR-7: nothing but TLS is spoken there */
	int n_tls_ports;
};

struct proxy;
/* Serves the control socket at once. NULL with e set. */
struct proxy *proxy_start(const struct egress_opts *o, struct err *e);
/* Until a SIGTERM or SIGINT is pending, which the caller has blocked. */
void proxy_run(struct proxy *p);
void proxy_free(struct proxy *p);
