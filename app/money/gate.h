/*
 * gate.h - the gate before work that costs (BIL-1): reserve the worst case, work, settle to what was used. Owner of the
 * process's open calls. Everything here may be called from any thread; one call is used by one thread at a time.
 *
 * A reservation is one statement, which calls of one account that come at the same time share; settlements of a process are done by
 * its thread, which lingers some milliseconds where nobody waits, those of an account that wait together in one statement. Commits of the gate wait for no disk, so an account's row is locked for the statement only; a settlement is
 * acknowledged (0) after a later flush that all of a round share. PostgreSQL crashing loses none that was acknowledged; one that was
 * not is done again from the process's memory, also where its reservation is lost.
 *
 * A call is charged at most once, by its request id: settled twice, by two at once, after the reaper, the first counts.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "io/conf.h"
#include "io/pg.h"
#include "money/price.h"

#define GATE_CURRENCY "usd" /* where none is named (BIL-9) */

struct gate;

/* A soft budget was reached (BIL-5): told once a period. Strings live as long as the call of on_soft. */
struct gate_soft {
	const char *org, *run, *session; /* run, session: of the call that reached it; NULL for none */
	const char *scope;               /* "org", or the id of the key or run it is for */
	const char *period;              /* "day", "month", "total" */
	long long spent, soft;           /* millicents */
};
struct gate_opts {
	struct pg_pool *db;
	const struct conf *conf;
	/* Besides the log line. From whichever thread settled; it holds no connection. May be NULL. */
	void (*on_soft)(void *arg, const struct gate_soft *s);
	void *arg;
};
/* Starts a thread that keeps this process alive in the database, writes notes, and settles what could not be settled at
 * once. Never fails here: PostgreSQL may come later. */
struct gate *gate_new(const struct gate_opts *o);
/* Settles what waits, at most wait_ms; calls still open after that are the reaper's. No call may be under way. */
void gate_free(struct gate *g, int wait_ms);

struct gate_ask {
	const char *org;
	const char *subject;  /* whose account; NULL or "": the org's pool */
	const char *currency; /* NULL: GATE_CURRENCY */
	bool test;            /* the test books */
	const char *key;      /* id of the credential, for its limits and budgets; NULL: none */
	const char *run;      /* NULL: the one that `session` belongs to, if it belongs to one */
	const char *session;  /* for on_soft, and to find the run; NULL: none */
	const char *request_id;
	long long worst_millicents; /* price_worst */
	long long worst_tokens;     /* counted against tokens per minute until the settlement corrects it */
};
/* The tightest of the org's and the key's own limits, for headers (MOD-11); limit 0: there is none. */
struct gate_limits {
	struct {
		long long limit, left;
		int reset_s;
	} requests, tokens;
};
struct gate_call; /* a reservation; ended by exactly one of gate_settle, gate_settle_later, gate_release */

/*
 * 0 with *call, or -1 with e:
 *   ERR_PAYMENT "insufficient_quota"  mode closed, and the account has not got the worst case; one that costs nothing passes
 *                                     unless the account is overdrawn
 *   ERR_PAYMENT "budget_exceeded"     a hard budget of the org, key or run, in any mode
 *   ERR_RATE "rate_limited"           requests or tokens a minute; e->retry_s says when
 *   ERR_RATE "too_many_calls"         calls at the same time
 *   ERR_CONFLICT "request_id_used"    such a call is open or settled
 *   ERR_UNAVAILABLE                   the ledger, or who holds the balance (balance.h), cannot be reached, or too much waits to be settled
 * In mode warn a call without balance passes and is logged. *limits (may be NULL) is filled in both cases, zero when unknown.
 */
int gate_reserve(struct gate *g, const struct gate_ask *ask, struct gate_call **call,
    struct gate_limits *limits, struct err *e);

/* What was used, or so far. */
struct gate_used {
	const char *provider, *model; /* that answered */
	struct price price;           /* of that model */
	struct tokens tokens;
	bool estimated; /* the upstream did not say */
};
/* What is known by now: memory only, written to the reservation within a second. It is what the reaper charges should this
 * process die, so note the input as soon as the upstream has taken it. Never lower than before. */
void gate_note(struct gate_call *call, const struct gate_used *used);
/*
 * Charge, usage row and report in one transaction; the reservation is closed. Charges what was used also when that is more
 * than was reserved: then the balance may end below zero by the difference. Takes the call in any case. 0 when it is durable;
 * -1 with e when PostgreSQL is away: the process tries again until it is, so the caller has nothing to do. Waits for a flush:
 * call it after the answer was sent. *millicents (may be NULL): what it cost.
 */
int gate_settle(struct gate_call *call, const struct gate_used *used, long long *millicents, struct err *e);
/* The same by the gate's own thread, for callers that must not wait. */
void gate_settle_later(struct gate_call *call, const struct gate_used *used);
/* Nothing was produced: nothing is charged. Takes the call; never waits for PostgreSQL to come back. NULL is fine. */
void gate_release(struct gate_call *call);

/* gatehouse_money_…: calls by how they ended, refusals by reason, soft budgets, what waits; as Prometheus text. */
void gate_metrics(struct gate *g, struct buf *out);

/* COD-5, native ops: may the org begin work whose price is not known yet? The read of the balance route. Refusals as above:
 * mode closed without balance, or a hard budget of org or key that is used up. key may be NULL. Call balance_gate before. */
int gate_check(const struct conf *conf, struct pg *db, const char *org, const char *key, struct err *e);
