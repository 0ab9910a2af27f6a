/*
 * moneytest.h - the ledger and its gate for unit tests: a PostgreSQL of their own, orgs with money, calls, many clients at once. Failures
 * end the test.
 */
#pragma once

#include "money/gate.h"
#include "money/ledger.h"
#include "pgtest.h"

enum { MONEYTEST_POOL = 40, MONEYTEST_OLD_S = 3600, MONEYTEST_PATIENCE_MS = 60000 };

/* What a group of tests shares. The gate's mode is closed. */
struct moneytest {
	struct pgtest *server;
	struct pg_pool *pool;
	struct conf *conf;
	struct gate *gate;
};
extern struct moneytest mt;
int moneytest_setup(void **s);
int moneytest_teardown(void **s);

void sql(const char *text, ...) __attribute__((format(printf, 1, 2)));
struct pg *take(void);
bool somebody_waits(void); /* for a lock, in this database */
/* A new org with so much in its pool. */
const char *org(struct mem *m, long long millicents);
json_t *balance_of(const struct account *a); /* new reference */
/* A member of the balance of an org's pool. */
long long number(const char *slug, const char *member);
#define BALANCE(slug)  number(slug, "balanceMillicents")
#define RESERVED(slug) number(slug, "reservedMillicents")
/* Until nothing of an org is reserved any more. */
void quiet(const char *slug);

const char *fresh(struct mem *m); /* a request id */
struct gate_ask ask_of(struct mem *m, const char *slug, long long worst);
struct gate_used used_of(long long millicents); /* a token costs one */
struct gate_call *reserve(const struct gate_ask *ask);
void call_refused(const struct gate_ask *ask, enum err_code code, const char *reason);
long long settle(struct gate_call *c, long long millicents);
/* Reserve and settle. */
long long spend(struct mem *m, const char *slug, long long millicents);
void the_books_are_right(void);
void budget(const char *slug, const char *scope, const char *period, long long soft, long long hard);

/* fn(arg, 0…n-1), each in a thread; they all begin at the same moment. */
void at_once(int n, void (*fn)(void *arg, int i), void *arg);

/* Soft budgets that were told. */
struct moneytest_told {
	int n;
	char last[200];
};
extern struct moneytest_told told;
void on_soft(void *arg, const struct gate_soft *s);
