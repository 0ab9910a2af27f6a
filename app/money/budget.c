#include "money/budget.h"

#include <string.h>

#include "base/js.h"
#include "money/gate.h"
#include "sql/money.h"

static const char *yes_no(bool b)
{
	return b ? "true" : "false";
}

static int scope_exists(struct pg *db, const struct budget *b, struct err *e)
{
	if (strcmp(b->scope, "org") == 0)
		return 0;
	auto_res struct pg_res *r = PG(db, &q_money_budget_scope, e, b->org, b->scope);
	if (r == NULL)
		return -1;
	return pg_bool(r, 0, 0) ? 0
				: err_field(e, ERR_NOT_FOUND, "scope",
				      "scope is \"org\", or the id of a key or run of your organisation.");
}

static json_t *number(const struct pg_res *r, int i, int col)
{
	return pg_null(r, i, col) ? NULL : json_integer(pg_int(r, i, col));
}

static json_t *row_json(const struct pg_res *r, int i)
{
	json_t *v = js_pack("{s:s, s:s, s:s, s:s, s:b}", "id", pg_str(r, i, 0), "scope", pg_str(r, i, 1),
	    "period", pg_str(r, i, 2), "currency", pg_str(r, i, 3), "test", (int)pg_bool(r, i, 4));
	js_set(v, "softMillicents", number(r, i, 5));
	js_set(v, "hardMillicents", number(r, i, 6));
	js_set(v, "spentMillicents", number(r, i, 7));
	js_set(v, "reservedMillicents", number(r, i, 8));
	js_set_str(v, "since", pg_str(r, i, 9));
	js_set_str(v, "createdBy", pg_str(r, i, 10));
	return v;
}

json_t *budget_list(
    struct pg *db, const char *org, const char *scope, const char *before, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_money_budget_list, e, org, scope, before, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, row_json(r, i));
	return rows;
}

json_t *budget_put(struct pg *db, const struct budget *b, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	if (b->soft < 0 && b->hard < 0) {
		(void)err_field(
		    e, ERR_BAD_REQUEST, "hardMillicents", "Say softMillicents, hardMillicents or both.");
		return NULL;
	}
	if (b->hard >= 0 && b->soft > b->hard) {
		(void)err_field(e, ERR_BAD_REQUEST, "softMillicents",
		    "softMillicents is at most hardMillicents: nothing is spent beyond that.");
		return NULL;
	}
	if (strcmp(b->currency, GATE_CURRENCY) != 0) {
		(void)err_field(e, ERR_BAD_REQUEST, "currency",
		    "Calls are paid in " GATE_CURRENCY ": a budget in another currency would limit nothing.");
		return NULL;
	}
	if (scope_exists(db, b, e) != 0)
		return NULL;
	auto_res struct pg_res *r = PG(db, &q_money_budget_put, e, b->org, b->scope, b->period, b->currency,
	    yes_no(b->test), b->soft < 0 ? NULL : pg_num(m, b->soft), b->hard < 0 ? NULL : pg_num(m, b->hard),
	    b->by);
	auto_res struct pg_res *row = r == NULL
	    ? NULL
	    : PG(db, &q_money_budget_get, e, b->org, b->scope, b->period, b->currency, yes_no(b->test));
	if (row == NULL)
		return NULL;
	if (pg_rows(row) == 0) {
		(void)err_set(e, ERR_NOT_FOUND, "The budget was removed meanwhile.");
		return NULL;
	}
	return row_json(row, 0);
}

int budget_remove(struct pg *db, const struct budget *b, struct err *e)
{
	auto_res struct pg_res *r = PG(
	    db, &q_money_budget_remove, e, b->org, b->scope, b->period, b->currency, yes_no(b->test));
	if (r == NULL)
		return -1;
	return pg_affected(r) > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "There is no such budget.");
}
