#include "money/ledger.h"

#include <string.h>

#include "base/js.h"
#include "money/gate.h"
#include "sql/money.h"

static const char *yes_no(bool b)
{
	return b ? "true" : "false";
}

static json_t *balance_json(const struct account *a, long long balance, long long reserved)
{
	return js_pack("{s:s, s:s, s:b, s:I, s:I, s:I}", "subject", a->subject, "currency", a->currency,
	    "test", (int)a->test, "balanceMillicents", (json_int_t)balance, "reservedMillicents",
	    (json_int_t)reserved, "availableMillicents", (json_int_t)(balance - reserved));
}

json_t *ledger_balance(struct pg *db, const struct account *a, struct err *e)
{
	auto_res struct pg_res *r = PG(
	    db, &q_money_read, e, a->org, a->subject, a->currency, yes_no(a->test));
	if (r == NULL)
		return NULL;
	bool none = pg_rows(r) == 0;
	return balance_json(a, none ? 0 : pg_int(r, 0, 0), none ? 0 : pg_int(r, 0, 1));
}

static int key_reused(struct err *e)
{
	(void)err_replace(
	    e, ERR_CONFLICT, "This key was used for a credit of another amount or account; take a new one.");
	e->reason = "credit_key_reused";
	return -1;
}

json_t *ledger_credit(struct pg *db, const struct account *a, long long millicents, const char *key,
    const char *by, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *org = PG(db, &q_money_org, e, a->org);
	if (org == NULL)
		return NULL;
	if (pg_rows(org) == 0) {
		(void)err_set(e, ERR_NOT_FOUND, "There is no such organisation.");
		return NULL;
	}
	auto_res struct pg_res *r = PG(db, &q_money_credit, e, a->org, a->subject, a->currency,
	    yes_no(a->test), pg_num(m, millicents), key, by);
	/* The same key for another account, at the same time. */
	if (r == NULL && e->code == ERR_CONFLICT)
		(void)key_reused(e);
	if (r == NULL)
		return NULL;
	if (strcmp(pg_str(r, 0, 0), "other") == 0) {
		(void)key_reused(e);
		return NULL;
	}
	json_t *v = balance_json(a, pg_int(r, 0, 1), pg_int(r, 0, 2));
	js_set(v, "credited", json_boolean(strcmp(pg_str(r, 0, 0), "credited") == 0));
	return v;
}

json_t *ledger_check(struct pg *db, int max_age_s, json_t **looked, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_ledger_check, e, pg_num(m, max_age_s));
	auto_res struct pg_res *n = r == NULL ? NULL : PG0(db, &q_ledger_count, e);
	if (n == NULL)
		return NULL;
	json_t *wrong = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(wrong, js_text(pg_str(r, i, 0), strlen(pg_str(r, i, 0))));
	if (looked != NULL)
		*looked = js_pack("{s:I, s:I, s:I, s:I}", "accounts", (json_int_t)pg_int(n, 0, 0),
		    "transactions", (json_int_t)pg_int(n, 0, 1), "entries", (json_int_t)pg_int(n, 0, 2),
		    "reservations", (json_int_t)pg_int(n, 0, 3));
	return wrong;
}

enum { DECIMALS = 5, DIGITS_MAX = 17 };

/* Without sign; what follows it is at *end. -1 with e: it is none, or has too many digits. */
static int number(const char *text, long long *millicents, const char **end, struct err *e)
{
	long long v = 0;
	int digits = 0, decimals = -1;
	const char *p = text;
	for (; (*p >= '0' && *p <= '9') || (*p == '.' && decimals < 0); p++) {
		if (*p == '.') {
			decimals = 0;
			continue;
		}
		if (decimals >= 0 && ++decimals > DECIMALS)
			return err_set(e, ERR_BAD_REQUEST,
			    "An amount has at most five decimals: 0.00001 is a thousandth of a cent.");
		if (++digits <= DIGITS_MAX)
			v = 10 * v + (*p - '0');
	}
	if (digits == 0 || decimals == 0)
		return err_set(
		    e, ERR_BAD_REQUEST, "An amount is a number and its currency, such as 500.00usd.");
	for (int i = decimals < 0 ? 0 : decimals; i < DECIMALS; i++)
		v *= v > LEDGER_AMOUNT_MAX ? 1 : 10;
	if (digits > DIGITS_MAX || v > LEDGER_AMOUNT_MAX)
		return err_set(e, ERR_BAD_REQUEST, "An amount is at most %lld.", LEDGER_AMOUNT_MAX / 100000);
	*millicents = v;
	*end = p;
	return 0;
}

int ledger_amount(const char *text, long long *millicents, struct err *e)
{
	bool negative = text[0] == '-';
	const char *currency;
	long long v;
	if (number(text + negative, &v, &currency, e) != 0 || ledger_currency(currency, e) != 0)
		return -1;
	if (v == 0)
		return err_set(e, ERR_BAD_REQUEST, "An amount is not zero.");
	*millicents = negative ? -v : v;
	return 0;
}

int ledger_currency(const char *currency, struct err *e)
{
	return strcmp(currency, GATE_CURRENCY) == 0
	    ? 0
	    : err_field(e, ERR_BAD_REQUEST, "currency",
		  "`%.20s` is no currency that calls are paid in: an amount ends with `" GATE_CURRENCY
		  "`, such as 500.00" GATE_CURRENCY ".",
		  currency);
}

json_t *usage_list(struct pg *db, const struct usage_ask *ask, int limit, struct err *e)
{
	static const char *const names[] = { "calls", "inputTokens", "cachedTokens", "cacheWriteTokens",
		"outputTokens", "reasoningTokens", "costMillicents", "estimatedCalls" };
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_money_usage, e, ask->org, ask->by, ask->currency,
	    yes_no(ask->test), ask->from, ask->to, ask->before, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++) {
		json_t *v = json_object();
		js_set_str(v, "name", pg_str(r, i, 0)[0] == 0 ? NULL : pg_str(r, i, 0));
		for (int k = 0; k < (int)(sizeof names / sizeof names[0]); k++)
			js_set(v, names[k], json_integer(pg_int(r, i, k + 1)));
		js_push(rows, v);
	}
	return rows;
}
