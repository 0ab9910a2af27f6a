/*
 * budget.h - budgets (BIL-5): what an org, one of its keys, or a run may spend in a day, a month (UTC), or in all. Reaching the soft
 * one is told (gate.h, on_soft); beyond the hard one the gate refuses. What is spent counts when it is settled, so a call that
 * is under way at midnight is the new day's.
 */
#pragma once

#include "money/ledger.h"

struct budget {
	const char *org;
	const char *scope;  /* "org", or the id of a key or run of the org */
	const char *period; /* "day", "month", "total" */
	const char *currency;
	bool test;
	long long soft, hard; /* millicents; -1: none */
	const char *by;
};
/* Make or change. ERR_NOT_FOUND naming `scope`, ERR_BAD_REQUEST without soft and hard, with a soft beyond
 * the hard, or in a currency that no call is paid in. The row as budget_list gives it. */
json_t *budget_put(struct pg *db, const struct budget *b, struct err *e);
/* Rows {id, scope, period, currency, test, softMillicents, hardMillicents, spentMillicents, reservedMillicents, since, createdBy},
 * newest first, ids below `before` ("" for the start); scope may be NULL. New reference. */
json_t *budget_list(
    struct pg *db, const char *org, const char *scope, const char *before, int limit, struct err *e);
/* ERR_NOT_FOUND when there is none. */
int budget_remove(struct pg *db, const struct budget *b, struct err *e);
