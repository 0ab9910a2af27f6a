/*
 * limit.h - what an org may use at most (ID-7), in the database, so that it holds across hosts: requests a minute, and runs at the
 * same time. Settings are the defaults, `gatehouse org limit` overrules them for one org; 0 is no limit. Limits of model calls, of
 * an org and of a key, stand beside them; the gate of those calls keeps them (money/gate.h).
 */
#pragma once

#include "io/pg.h"
#include "op/op.h"

/* Count a request: 0, or ERR_RATE with the seconds until the minute is over. Requests without identity, of the internal door, and
 * with a credential that belongs to a run are not counted. A hundredth of the limit is taken in advance by each process, so most
 * requests cost no look at the database; that much may be left over when the limit is reached. */
int limit_request(struct ctx *c, const struct op *op, struct err *e);
/* How many requests a minute that org may send, as limit_request last learnt here; 0: no limit, or it was never looked. */
long long limit_known(const char *org);
/* May the org start a run, with so many at work? Inside the transaction that starts it, before they are counted: it locks the org's
 * row. 0 with the limit in *most, 0 for none. */
int limit_runs(struct ctx *c, struct pg *db, long long *most, struct err *e);

/* Set an org's own limits: digits, "default", or NULL to leave it; the result as text, valid as long as *row, which the caller
 * frees. ERR_NOT_FOUND when there is no such org. */
struct limit_org {
	const char *requests_per_minute, *concurrent_runs, *tokens_per_minute, *concurrent_calls;
};
int limit_set(struct pg *db, const char *org, struct limit_org *limits, struct pg_res **row, struct err *e);
/* The same for the model calls of a key; ERR_NOT_FOUND when that org has no such key. */
struct limit_key {
	const char *requests_per_minute, *tokens_per_minute, *concurrent_calls;
};
int limit_key_set(struct pg *db, const char *org, const char *key, struct limit_key *limits,
    struct pg_res **row, struct err *e);
