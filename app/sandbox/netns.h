/*
 * netns.h - an empty network namespace, made before anything runs in it (DRV-1): it holds loopback, up, and nothing else
 * but the listeners of the egress boundary (EGR-10). It is held by a descriptor only, never by a mount, so that nothing of it is
 * left when its last process and its last listener are gone: a listener that stays open keeps the namespace.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Listening sockets inside the namespace; gatehouse-egress accepts on them, and knows by them who asks (EGR-11). */
enum listener {
	LISTEN_PROXY, /* 127.0.0.1:NETNS_PROXY_PORT, for clients that know a proxy */
	/* Transparent ones (EGR-16), for clients that do not: every address of port 80, of 443, and UDP of port 53. A route in the
	 * namespace leads all of IPv4 to loopback, and so to them; other ports are refused as without it. */
	LISTEN_HTTP,
	LISTEN_TLS,
	LISTEN_DNS,
	LISTENERS
};
enum { NETNS_PROXY_PORT = 3128 };
extern const char *const listener_names[LISTENERS]; /* what the control socket calls them */

struct listeners {
	int fd[LISTENERS]; /* close-on-exec, non-blocking; -1: none */
	bool transparent;  /* wanted: also those of EGR-16 */
};
void listeners_none(struct listeners *d);  /* what is wanted stays */
void listeners_close(struct listeners *d); /* and none are left */

/* A close-on-exec descriptor of a fresh namespace, or -1. A runtime opens it as /proc/<our pid>/fd/<fd>. listeners, unless NULL:
 * opened in it. */
int netns_make(struct listeners *listeners, struct err *e);
/* Open the listeners in a namespace that is in use: the transparent ones where there is their route. ERR_CONFLICT when something
 * there has taken a listener's port. */
int netns_open(int ns, struct listeners *listeners, struct err *e);

static inline void auto_listenersp(struct listeners *d)
{
	listeners_close(d);
}
#define auto_listeners AUTO(auto_listenersp)
