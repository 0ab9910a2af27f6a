/*
 * policy.h - what one sandbox may reach (EGR-1, EGR-2), and what the deployment says for all of them. Both are immutable once
 * made; a policy is counted, so that a change replaces it under connections that still hold the old one.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/host.h"

enum { POLICY_HOSTS_MAX = 1000 };

enum policy_mode { POLICY_UNAVAILABLE, POLICY_DENY_ALL, POLICY_ALLOW_ALL, POLICY_STATIC, POLICY_RESOLVER };

struct egress_policy {
	enum policy_mode mode;
	struct host_pattern *hosts;
	size_t n_hosts;
	int refs;
};

/*
 * From what is stored and what a caller writes: {"mode": "static", "allowedHosts": ["api.example.com", ".example.org:8443"]}.
 * No mode: static when there are hosts, deny-all when there are none. NULL: ERR_BAD_REQUEST naming the field at fault; e->reason
 * is "bad_entry" for a host pattern.
 */
struct egress_policy *policy_parse(const json_t *stored, struct err *e);
/* The policy of a sandbox whose own cannot be read: refuses everything and says so. */
struct egress_policy *policy_unavailable(void);
struct egress_policy *policy_ref(struct egress_policy *p);
void policy_unref(struct egress_policy *p); /* NULL is fine; one thread's counts only */
const char *policy_mode_name(enum policy_mode mode);

/* An address and port that is ours (port 0: every port): never reached, whoever lists it. */
struct egress_self {
	struct ip ip;
	uint16_t port;
};

/* Services of ours on this host; the port counts on every loopback address, also where a host is inward. */
enum { SITE_OWN_PORTS = 16 };

/* The deployment's settings. */
struct egress_site {
	struct host_pattern *inward; /* EGR-4: allowed hosts that may resolve to private addresses */
	size_t n_inward;
	struct egress_self *self;
	size_t n_self;
	uint16_t own_ports[SITE_OWN_PORTS];
	size_t n_own_ports;
	bool observe;    /* EGR-13: name rules are reported, not enforced */
	bool nat64;      /* 64:ff9b::/96 is judged as the IPv4 in it */
	bool smtp;       /* port 25 may be listed */
	bool sni_absent; /* EGR-7: a tunnel to a name may have a ClientHello without one */
	bool ech;        /* EGR-7: a ClientHello may hide its name */
};

/* Patterns separated by commas or spaces into *out; -1 names the first that is wrong. */
int policy_patterns(const char *list, struct host_pattern **out, size_t *n, struct err *e);
void policy_patterns_free(struct host_pattern *p, size_t n);
void policy_site_free(struct egress_site *s); /* what it points to */
