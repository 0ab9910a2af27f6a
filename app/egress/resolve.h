/*
 * resolve.h - names into addresses: c-ares in the loop, nothing else knows it. One question of a name at a time however many
 * wait for it; positive answers are kept for their time to live, at most RESOLVE_KEEP_S; failures are never kept. What is
 * answered is every record, unjudged: whoever asked screens them all (EGR-3), and asks for allowed names only.
 */
#pragma once

#include <sys/queue.h>

#include "base/addr.h"
#include "base/err.h"
#include "egress/loop.h"

enum {
	RESOLVE_RECORDS = 64, /* a name with more is refused */
	RESOLVE_NAMES = 1024, /* questions under way; more fail at once */
	RESOLVE_KEPT = 4096,  /* answers in the cache */
	RESOLVE_KEEP_S = 60,
};

enum resolve_status {
	RESOLVE_OK,
	RESOLVE_NXDOMAIN,
	RESOLVE_EMPTY, /* the name exists and has no address */
	RESOLVE_FAILED /* the resolver does not answer, in time or with sense, or with too many records */
};

struct resolver;
struct resolve_wait { /* embedded in who asks */
	void (*on)(struct resolve_wait *w, enum resolve_status status, const struct ip *addrs, int n);
	LIST_ENTRY(resolve_wait) in_name;
	bool waiting;
};

struct resolve_stats {
	long long asked, kept, failed; /* questions to the resolver, answers from the cache, failures */
};

/* servers: "address[:port],…", or "" for the host's own configuration with its hosts file. timeout_ms bounds an answer. */
struct resolver *resolver_new(struct loop *l, const char *servers, int timeout_ms, struct err *e);
void resolver_free(struct resolver *r);    /* nobody may be waiting */
void resolver_refresh(struct resolver *r); /* the host's configuration may have changed */
/* Ask; w->on is called once, perhaps before this returns. `host` is canonical (base/host.h). */
void resolve(struct resolver *r, const char *host, struct resolve_wait *w);
void resolve_forget(struct resolve_wait *w); /* w->on will not be called; fine when it was */
void resolve_stats(const struct resolver *r, struct resolve_stats *out);
