/*
 * store.h - what PostgreSQL knows about a sandbox's boundary: policies and brokered credentials, read by a thread of its own
 * and handed to the loop. A change is told by NOTIFY; what was told while the connection was away is read again after it.
 * With PostgreSQL away the last policy stands and the question is repeated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/limits.h"
#include "egress/brokered.h"
#include "egress/loop.h"
#include "egress/policy.h"
#include "io/pg.h"

struct store;

enum store_found { STORE_FOUND, STORE_ABSENT, STORE_AWAY };

struct store_policy {
	enum store_found found;
	char sandbox[ID_MAX], org[LIMIT_ORG_SLUG + 1], session[ID_MAX];
	struct egress_policy
	    *policy; /* one reference, the receiver's; policy_unavailable() for a row that makes no sense */
	struct brokered *brokered; /* the org's credentials; the receiver's, too */
	long long version;
	uint64_t used_bytes; /* of connections that have ended; only when asked by store_open */
	bool first;          /* answers store_open */
};

struct store_opts {
	struct pg_pool *db;
	const char *conninfo;
	const struct seal_key *seal;
	struct loop *loop;
	/* In the loop's thread. */
	void (*on_policy)(void *arg, const struct store_policy *p);
	void (*on_changed)(void *arg, const char *sandbox); /* of some sandbox, perhaps not one of ours */
	void (*on_credentials)(void *arg, const char *org);
	void (*on_again)(void *arg); /* notifications may have been lost: whatever is known may be old */
	void *arg;
};

struct store *store_start(const struct store_opts *o);
void store_stop(struct store *s);
/* Ask once; on_policy answers, STORE_AWAY when PostgreSQL cannot be asked. */
void store_open(struct store *s, const char *sandbox);
/* Ask again, until there is an answer; never STORE_AWAY. */
void store_reload(struct store *s, const char *sandbox);
/* The policy of this version is in force: whoever waits for it (network_applied) is told. */
void store_applied(struct store *s, const char *org, const char *sandbox, long long version);
