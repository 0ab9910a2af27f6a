/*
 * balance.h - a balance that another service holds (BILLING_BALANCE_URL, the end of BIL-1). It is asked
 *
 *     GET URL?org=&subject=&currency=&test=   ->   200 {org, subject, currency, test, availableMillicents}
 *
 * with the address repeated, and what it says stands in the account's row for BALANCE_KEPT_S at most, less everything that was charged and
 * that it may not know of. So the gate's statement and the balance route judge as ever, and what others take from that balance within one
 * such period is all that can be overspent. Without the setting nothing here does anything.
 *
 * Owner of what this process knows of when it asked for which account.
 */
#pragma once

#include "base/buf.h"
#include "io/conf.h"
#include "money/ledger.h"

enum { BALANCE_KEPT_S = 60 };

bool balance_elsewhere(const struct conf *conf);
/* The settings, at start: ERR_BAD_REQUEST where usage is reported nowhere, or the key file cannot be read or others can read it. */
int balance_setup(const struct conf *conf, struct err *e);
/*
 * Before an account is read: 0 when its row says what is true. Asks when the last answer is half of its time old (others go on with that
 * one meanwhile), or was doubted. ERR_UNAVAILABLE when the service does not answer and its last answer is too old. Do not hold a
 * connection of `db` meanwhile.
 */
int balance_fresh(const struct conf *conf, struct pg_pool *db, const struct account *a, struct err *e);
/* The same for work that is to begin: in mode open nobody is asked, in mode warn a failure is logged and passes. */
int balance_gate(const struct conf *conf, struct pg_pool *db, const struct account *a, struct err *e);
/* Work was refused by it: the next who asks is not answered from memory if that is older than a second. */
void balance_doubt(const struct conf *conf, const struct account *a);
/* Asked once, past all memory, and kept nowhere: for `gatehouse doctor`. */
int balance_ask(const struct conf *conf, const struct account *a, long long *available, struct err *e);
/* ERR_CONFLICT "balance_elsewhere": credit is given there. */
int balance_credit_refused(const struct conf *conf, struct err *e);
/* gatehouse_money_balance_asked_total by result, as Prometheus text. */
void balance_metrics(struct buf *out);
