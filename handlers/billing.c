/*
 * billing.c - an org's money as its users see it: balance and usage (BIL-6, BIL-9), budgets (BIL-5), and the one op that names an
 * org: an operator, or the billing service, gives it credit.
 */
#include <string.h>

#include "auth/principal.h"
#include "base/js.h"
#include "handlers/handlers.h"
#include "money/balance.h"
#include "money/budget.h"
#include "money/gate.h"
#include "money/ledger.h"

enum { SUBJECT_BYTES = 128, KEY_BYTES = 255, CURRENCY_BYTES = 3 };

static const char *const periods[] = { "day", "month", "total", NULL };
static const char *const groups[] = { "day", "model", "key", "run", NULL };

#define CURRENCY_IN                                                                                          \
	IN(T_STR, "currency", "Three lower-case letters; usd when not given.", "\"usd\"",                    \
	    .min = CURRENCY_BYTES, .max = CURRENCY_BYTES),                                                   \
	    IN(T_BOOL, "test", "The test books instead of the live ones.", "false")
#define SUBJECT_IN                                                                                           \
	IN(T_STR, "subject", "Whose account; the org's pool when not given.", "\"\"", .max = SUBJECT_BYTES)
#define ADDRESS_OUT                                                                                          \
	OUT(T_STR, "org", "Whose account it is.", "\"acme\""),                                               \
	    OUT(T_STR, "subject", "Of whom in the org; empty: its pool.", "\"\""),                           \
	    OUT(T_STR, "currency", "Of its amounts.", "\"usd\""),                                            \
	    OUT(T_BOOL, "test", "Is it of the test books?", "false"),                                        \
	    OUT(T_INT, "balanceMillicents", "What it holds, in thousandths of a cent.", "50000000"),         \
	    OUT(T_INT, "reservedMillicents", "What calls under way have reserved of it.", "0"),              \
	    OUT(T_INT, "availableMillicents", "What is left for further calls.", "50000000")

static const struct param balance_in[] = { SUBJECT_IN, CURRENCY_IN, { 0 } };
static const struct param balance_out[] = { ADDRESS_OUT, { 0 } };
static const struct param credit_in[] = {
	IN_REQUIRED(
	    T_STR, "account", "The organisation that is given credit.", "\"acme\"", .min = 1, .max = 40),
	SUBJECT_IN,
	CURRENCY_IN,
	IN_REQUIRED(T_INT, "amountMillicents", "How much, in thousandths of a cent.", "50000000", .min = 1,
	    .max = LEDGER_AMOUNT_MAX),
	IN_REQUIRED(T_STR, "key",
	    "What this credit is called where it comes from. It counts once for its key and org.",
	    "\"invoice-2026-0042\"", .min = 1, .max = KEY_BYTES),
	{ 0 },
};
static const struct param credit_out[] = {
	ADDRESS_OUT,
	OUT(T_BOOL, "credited", "False: this key was credited before, and nothing has changed.", "true"),
	{ 0 },
};
static const struct param usage_in[] = {
	IN(T_ENUM, "by", "What the rows are for; day when not given.", "\"model\"", .values = groups),
	CURRENCY_IN,
	IN(T_TIME, "from", "Calls that ended at or after this; 31 days ago when not given.", NULL),
	IN(T_TIME, "to", "Calls that ended before this.", NULL),
	LIST_PARAMS,
	{ 0 },
};
static const struct param usage_row[] = {
	OUT_NULL(
	    T_STR, "name", "The day (UTC), model, key or run; null: calls without one.", "\"2026-01-31\""),
	OUT(T_INT, "calls", "How many calls.", "12"),
	OUT(T_INT, "inputTokens", "All tokens that went in.", "3400"),
	OUT(T_INT, "cachedTokens", "Those of them that came from a cache.", "0"),
	OUT(T_INT, "cacheWriteTokens", "Those of them that were written to one.", "0"),
	OUT(T_INT, "outputTokens", "All tokens that came out.", "560"),
	OUT(T_INT, "reasoningTokens", "Those of them that were reasoning.", "0"),
	OUT(T_INT, "costMillicents", "What was charged, in thousandths of a cent.", "1860"),
	OUT(T_INT, "estimatedCalls", "Calls whose tokens were estimated, as the provider did not say.", "0"),
	{ 0 },
};
static const struct param usage_out[] = { LIST_OUT(usage_row, "Highest name first."), { 0 } };

#define SCOPE_IN                                                                                             \
	IN_REQUIRED(T_STR, "scope", "`org`, or the id of a key or run.", "\"org\"", .min = 1, .max = 64)
#define PERIOD_IN                                                                                            \
	IN_REQUIRED(T_ENUM, "period", "A day or month (UTC), or all time.", "\"month\"", .values = periods)
static const struct param budget_in[] = {
	SCOPE_IN,
	PERIOD_IN,
	CURRENCY_IN,
	IN(T_INT, "softMillicents",
	    "Reaching this is told: in the log, and in the session of the run that reaches it.", "8000000",
	    .max = LEDGER_AMOUNT_MAX),
	IN(T_INT, "hardMillicents", "Calls that could pass this are refused.", "10000000",
	    .max = LEDGER_AMOUNT_MAX),
	{ 0 },
};
static const struct param budget_out[] = {
	OUT(T_STR, "id", "The budget's number.", "\"0000000000000000001\""),
	OUT(T_STR, "scope", "`org`, or the id of a key or run.", "\"org\""),
	OUT(T_STR, "period", "day, month or total.", "\"month\""),
	OUT(T_STR, "currency", "Of its amounts.", "\"usd\""),
	OUT(T_BOOL, "test", "Is it of the test books?", "false"),
	OUT_NULL(T_INT, "softMillicents", "Reaching this is told; null: nothing is.", "8000000"),
	OUT_NULL(
	    T_INT, "hardMillicents", "Calls that could pass this are refused; null: none are.", "10000000"),
	OUT(T_INT, "spentMillicents", "What was charged in this period.", "0"),
	OUT(T_INT, "reservedMillicents", "What calls under way have reserved.", "0"),
	OUT(T_TIME, "since", "When this period began.", "\"2026-01-01T00:00:00.000Z\""),
	OUT(T_STR, "createdBy", "Who made it.", "\"ann\""),
	{ 0 },
};
static const struct param budgets_in[] = {
	IN(T_STR, "scope", "Only those of this scope.", NULL, .min = 1, .max = 64),
	LIST_PARAMS,
	{ 0 },
};
static const struct param budgets_out[] = { LIST_OUT(budget_out, "Newest first."), { 0 } };
static const struct param remove_in[] = { SCOPE_IN, PERIOD_IN, CURRENCY_IN, { 0 } };

/* ---- */

/* The other sides of credits and charges are nobody's to name. */
static int address_of(const json_t *in, const char *org, struct account *a, struct err *e)
{
	*a = (struct account){ .org = org,
		.subject = js_str_or(in, "subject", ""),
		.currency = js_str_or(in, "currency", GATE_CURRENCY),
		.test = js_bool(in, "test", false) };
	if (a->subject[0] == '$')
		return err_field(e, ERR_BAD_REQUEST, "subject", "A subject does not begin with `$`.");
	if (strspn(a->currency, "abcdefghijklmnopqrstuvwxyz") != CURRENCY_BYTES)
		return err_field(
		    e, ERR_BAD_REQUEST, "currency", "A currency is three lower-case letters, such as usd.");
	return 0;
}

static json_t *with_org(json_t *v, const char *org)
{
	if (v != NULL)
		js_set_str(v, "org", org);
	return v;
}

static json_t *get_balance(struct ctx *c, json_t *in, struct err *e)
{
	struct account a;
	auto_pg struct pg *db = address_of(in, c->who->org, &a, e) != 0 ||
		balance_fresh(c->conf, c->db, &a, e) != 0
	    ? NULL
	    : handler_db(c, e);
	return db == NULL ? NULL : with_org(ledger_balance(db, &a, e), a.org);
}

/* BIL-6: an operator; or the billing service, whose key is one of the operators' org that can do nothing else. */
static bool may_credit(const struct principal *p)
{
	return principal_super(p) ||
	    (principal_member(p, "admin") && principal_is_user(p) && strcmp(p->scopes, "billing") == 0);
}

static json_t *credit_account(struct ctx *c, json_t *in, struct err *e)
{
	struct account a;
	if (!may_credit(c->who)) {
		(void)err_set(e, ERR_FORBIDDEN, "Only the operators of this service may do this.");
		return NULL;
	}
	auto_pg struct pg *db = address_of(in, js_str(in, "account"), &a, e) != 0 ||
		ledger_currency(a.currency, e) != 0 || balance_credit_refused(c->conf, e) != 0
	    ? NULL
	    : handler_db(c, e);
	return db == NULL ? NULL
			  : with_org(ledger_credit(db, &a, js_int(in, "amountMillicents", 0),
					 js_str(in, "key"), c->who->user, e),
				a.org);
}

/* To the second: both are times in UTC as the check took them. */
static int range_ok(const json_t *in, struct err *e)
{
	const char *from = js_str(in, "from"), *to = js_str(in, "to");
	if (from == NULL || to == NULL || strncmp(from, to, sizeof "2030-01-31T12:00:00" - 1) <= 0)
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "to", "`to` is before `from`.");
}

static json_t *list_usage(struct ctx *c, json_t *in, struct err *e)
{
	struct account a;
	const char *before = list_cursor(c, in, e);
	if (before == NULL || range_ok(in, e) != 0)
		return NULL;
	auto_pg struct pg *db = address_of(in, c->who->org, &a, e) != 0 ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	const struct usage_ask ask = { .org = a.org,
		.by = js_str_or(in, "by", "day"),
		.currency = a.currency,
		.test = a.test,
		.from = js_str(in, "from"),
		.to = js_str(in, "to"),
		.before = before };
	json_t *rows = usage_list(db, &ask, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "name");
}

static int budget_of(struct ctx *c, const json_t *in, struct budget *b, struct err *e)
{
	struct account a;
	if (address_of(in, c->who->org, &a, e) != 0)
		return -1;
	*b = (struct budget){ .org = a.org,
		.scope = js_str(in, "scope"),
		.period = js_str(in, "period"),
		.currency = a.currency,
		.test = a.test,
		.soft = js_int(in, "softMillicents", -1),
		.hard = js_int(in, "hardMillicents", -1),
		.by = c->who->user };
	return 0;
}

static json_t *set_budget(struct ctx *c, json_t *in, struct err *e)
{
	struct budget b;
	auto_pg struct pg *db = budget_of(c, in, &b, e) != 0 ? NULL : handler_db(c, e);
	return db == NULL ? NULL : budget_put(db, &b, e);
}

static json_t *list_budgets(struct ctx *c, json_t *in, struct err *e)
{
	const char *before = list_cursor(c, in, e);
	auto_pg struct pg *db = before == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = budget_list(db, c->who->org, js_str(in, "scope"), before, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *remove_budget(struct ctx *c, json_t *in, struct err *e)
{
	struct budget b;
	auto_pg struct pg *db = budget_of(c, in, &b, e) != 0 ? NULL : handler_db(c, e);
	return db == NULL || budget_remove(db, &b, e) != 0 ? NULL : json_object();
}

const struct op billing_ops[] = {
	{ .id = "get_balance",
	    .routes = { { "GET", "/v1/billing/balance" } },
	    .summary = "Read a balance",
	    .doc = "Of exactly the account that is asked for, with its address; zeros where nothing was ever "
		   "moved. Where another service holds it, what that said a minute ago at most, less what "
		   "was used meanwhile.",
	    .scope = "billing",
	    .in = balance_in,
	    .out = balance_out,
	    .status = 200,
	    .run = get_balance },
	{ .id = "list_usage",
	    .routes = { { "GET", "/v1/billing/usage" } },
	    .summary = "List usage",
	    .doc = "What your org's model calls used and cost, by day, model, key or run.",
	    .scope = "billing",
	    .in = usage_in,
	    .out = usage_out,
	    .status = 200,
	    .run = list_usage },
	{ .id = "credit_account",
	    .routes = { { "POST", "/v1/billing/credit" } },
	    .summary = "Give an organisation credit",
	    .doc = "For operators of this service, and for a key of theirs whose only scope is billing. The "
		   "same `key` again changes nothing; with another amount or account it is refused (409).",
	    .scope = "billing",
	    .in = credit_in,
	    .out = credit_out,
	    .status = 200,
	    .flags = OP_ONCE,
	    .run = credit_account },
	{ .id = "set_budget",
	    .routes = { { "PUT", "/v1/billing/budgets/{scope}" } },
	    .summary = "Set a budget",
	    .doc = "What the org, one of its keys, or a run may spend in a period. One budget for each "
		   "scope, period, currency and book; what was spent in the period before counts.",
	    .scope = "billing",
	    .in = budget_in,
	    .out = budget_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = set_budget },
	{ .id = "list_budgets",
	    .routes = { { "GET", "/v1/billing/budgets" } },
	    .summary = "List budgets",
	    .doc = "Your org's budgets, with what is spent of them.",
	    .scope = "billing",
	    .in = budgets_in,
	    .out = budgets_out,
	    .status = 200,
	    .run = list_budgets },
	{ .id = "remove_budget",
	    .routes = { { "DELETE", "/v1/billing/budgets/{scope}" } },
	    .summary = "Remove a budget",
	    .doc = "From now on it limits nothing.",
	    .scope = "billing",
	    .in = remove_in,
	    .out = op_none,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = remove_budget },
	{ 0 },
};
