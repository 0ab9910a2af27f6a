/* cli_money.c - subcommands about money: org credit, key limit, ledger check. */
#include <stdio.h>

#include "auth/limit.h"
#include "base/id.h"
#include "base/js.h"
#include "cli.h"
#include "money/balance.h"
#include "money/gate.h"
#include "money/ledger.h"
#include "op/cli.h"

/* A call may last as long as the door lets it; the reaper is much faster with those of dead processes. */
enum { OLDEST_S = 24 * 3600 };

struct credit_ask {
	const char *args[2]; /* slug, amount */
	const char *subject, *key;
	struct account to;
	long long millicents;
};

static int credit_act(struct pg *db, void *arg, struct err *e)
{
	const struct credit_ask *ask = arg;
	auto_json json_t *v = ledger_credit(db, &ask->to, ask->millicents, ask->key, "operator", e);
	if (v == NULL)
		return -1;
	long long balance = js_int(v, "balanceMillicents", 0);
	(void)printf("balance %lld millicents %s%s%s\n", balance, ask->to.currency,
	    js_bool(v, "credited", true) ? "" : " (this key was credited before)",
	    balance < 0 ? " (overdrawn: nothing is paid from it until it is credited)" : "");
	return 0;
}

int cli_org_credit(char **args, struct err *e)
{
	struct credit_ask ask = { 0 };
	char key[ID_MAX];
	bool test = false;
	const struct cli_option all[] = {
		{ "subject", &ask.subject, NULL },
		{ "key", &ask.key, NULL },
		{ "test", NULL, &test },
		{ 0 },
	};
	if (cli_options(args, all, ask.args, 2, e) != 0)
		return -1;
	if (ledger_amount(ask.args[1], &ask.millicents, e) != 0)
		return -1;
	if (ask.subject != NULL && ask.subject[0] == '$')
		return err_set(e, ERR_BAD_REQUEST, "A subject does not begin with `$`.");
	if (ask.key == NULL && ask.millicents < 0)
		return err_set(e, ERR_BAD_REQUEST,
		    "A negative amount takes a credit back: give it a --key of its own, so that it counts "
		    "once.");
	struct conf *conf = conf_load(NULL, e);
	int refused = conf == NULL ? -1 : balance_credit_refused(conf, e);
	conf_free(conf);
	if (refused != 0)
		return -1;
	if (ask.key == NULL) {
		id_make("crd", key);
		ask.key = key;
	}
	ask.to = (struct account){ ask.args[0], ask.subject == NULL ? "" : ask.subject, GATE_CURRENCY, test };
	return cli_with_database(credit_act, &ask, e);
}

struct key_ask {
	const char *org, *id;
	struct limit_key limits;
};

static int limit_act(struct pg *db, void *arg, struct err *e)
{
	struct key_ask *ask = arg;
	auto_res struct pg_res *row = NULL;
	if (limit_key_set(db, ask->org, ask->id, &ask->limits, &row, e) != 0)
		return -1;
	(void)printf("requests-per-minute %s\ntokens-per-minute %s\nconcurrent-calls %s\n",
	    ask->limits.requests_per_minute, ask->limits.tokens_per_minute, ask->limits.concurrent_calls);
	return 0;
}

int cli_key_limit(char **args, struct err *e)
{
	struct key_ask ask = { 0 };
	const struct cli_option all[] = {
		{ "org", &ask.org, NULL },
		{ "requests-per-minute", &ask.limits.requests_per_minute, NULL },
		{ "tokens-per-minute", &ask.limits.tokens_per_minute, NULL },
		{ "concurrent-calls", &ask.limits.concurrent_calls, NULL },
		{ 0 },
	};
	if (cli_options(args, all, &ask.id, 1, e) != 0)
		return -1;
	if (ask.org == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG.");
	return cli_with_database(limit_act, &ask, e);
}

/* BIL-7. What is wrong is the output; the exit status says that something is. */
static int check_act(struct pg *db, void *arg, struct err *e)
{
	(void)arg;
	json_t *n = NULL, *v;
	size_t i;
	auto_json json_t *wrong = ledger_check(db, OLDEST_S, &n, e);
	auto_json json_t *looked = n;
	if (wrong == NULL)
		return -1;
	json_array_foreach(wrong, i, v)
		(void)printf("%s\n", json_string_value(v));
	if (json_array_size(wrong) > 0)
		return err_set(e, ERR_CONFLICT, "The books are wrong in %zu places.", json_array_size(wrong));
	(void)printf(
	    "The books are right: %lld accounts, %lld transactions, %lld entries, %lld open reservations.\n",
	    js_int(looked, "accounts", 0), js_int(looked, "transactions", 0), js_int(looked, "entries", 0),
	    js_int(looked, "reservations", 0));
	return 0;
}

int cli_ledger_check(char **args, struct err *e)
{
	static const struct cli_option none[] = { { 0 } };
	return cli_options(args, none, NULL, 0, e) != 0 ? -1 : cli_with_database(check_act, NULL, e);
}
