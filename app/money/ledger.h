/*
 * ledger.h - accounts and their entries (BIL-2, BIL-3, BIL-7, BIL-9), usage rows (BIL-4), as operators and the ops see them.
 * Amounts are millicents: thousandths of a cent.
 */
#pragma once

#include <jansson.h>

#include "io/pg.h"

/* An account's address. */
struct account {
	const char *org;
	const char *
	    subject; /* "": the org's pool; never one that begins with '$': those are the other sides of credits and charges */
	const char *currency; /* three lower-case letters */
	bool test;
};
/* {subject, currency, test, balanceMillicents, reservedMillicents, availableMillicents}; zeros where nothing was ever moved. New
 * reference. */
json_t *ledger_balance(struct pg *db, const struct account *a, struct err *e);
/*
 * Give an account money, once for its key (1 to 255 characters) in its org: a repetition changes nothing, one with another amount
 * or account is ERR_CONFLICT, reason "credit_key_reused". ERR_NOT_FOUND when there is no such org. Answers as ledger_balance, of
 * that account, with `credited` false for a repetition. `by` is for people. A negative amount takes a wrong credit back, also where the
 * balance ends below zero by it.
 */
json_t *ledger_credit(struct pg *db, const struct account *a, long long millicents, const char *key,
    const char *by, struct err *e);

/* What can be wrong with the books, a sentence each; an empty array when nothing is. max_age_s: how old a reservation may be. New
 * reference. *looked (may be NULL): how much was looked at, a new reference. */
json_t *ledger_check(struct pg *db, int max_age_s, json_t **looked, struct err *e);

/* "500.00usd", "-0.00001usd": whole millicents but zero, at most LEDGER_AMOUNT_MAX of them. ERR_BAD_REQUEST saying what is wrong. */
#define LEDGER_AMOUNT_MAX 1000000000000000LL
int ledger_amount(const char *text, long long *millicents, struct err *e);
/* Credit is given in what calls are paid in, GATE_CURRENCY. ERR_BAD_REQUEST naming `currency`. */
int ledger_currency(const char *currency, struct err *e);

/* Usage by "day", "model", "key" or "run", between two moments (RFC 3339; NULL: 31 days ago, and now), names below `before` ("" for the start), highest
 * first: rows {name, calls, inputTokens, cachedTokens, cacheWriteTokens, outputTokens, reasoningTokens, costMillicents,
 * estimatedCalls}; input and output are whole, the others parts of them. New reference. */
struct usage_ask {
	const char *org, *by, *currency, *from, *to, *before;
	bool test;
};
json_t *usage_list(struct pg *db, const struct usage_ask *ask, int limit, struct err *e);
