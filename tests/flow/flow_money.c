/*
 * Money over HTTP and by the operator's command, on two API hosts in mode closed: balances, credit, usage, budgets, the gate before
 * a run, and what the runner keeps (BIL-1…7, BIL-9).
 */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "io/http.h"
#include "judge.h"
#include "runs.h"
#include "stack.h"

static struct stack st;
static char operators[128], service[128]; /* an operator's key, and the billing service's */

#define BALANCE "/v1/billing/balance"

static void ask(const char *method, const char *path, const char *key, json_t *body, int api, struct web *w)
{
	auto_json json_t *v = body;
	auto_free char *text = v == NULL ? NULL : json_dumps(v, JSON_COMPACT);
	struct web_req q = { .method = method, .path = path, .key = key, .body = text, .api = api };
	web_do(&st, &q, w);
}

static void get(const char *path, const char *key, int api, struct web *w)
{
	ask("GET", path, key, NULL, api, w);
	if (w->status != 200)
		fail_msg("%s: %ld %s", path, w->status, w->body);
}

static json_t *credit_of(const char *slug, long long millicents, const char *key)
{
	return js_pack(
	    "{s:s, s:I, s:s}", "account", slug, "amountMillicents", (json_int_t)millicents, "key", key);
}

/* What a model call used, as the gateway settles it. */
static void used(const char *slug, const char *request, const char *more, long long millicents)
{
	char sql[600];
	auto_buf struct buf out = BUF(1000);
	(void)snprintf(sql, sizeof sql,
	    "SELECT (money_settle('%s', '%s', '', 'usd', false, %s, '{100,10,0,50,5}', %lld, false, false, "
	    "false)).verdict",
	    slug, request, more, millicents);
	stack_sql(&st, sql, &out);
	assert_string_equal(buf_c(&out), "settled");
}

static void the_books_are_right(void)
{
	auto_buf struct buf out = BUF(4000);
	int status = stack_cli_exit(&st, (const char *const[]){ "ledger", "check", NULL }, &out);
	if (status != 0)
		fail_msg("%d: %s", status, buf_c(&out));
	assert_non_null(strstr(buf_c(&out), "The books are right"));
}

/* BIL-9: the same on both hosts, with the address repeated; other accounts are others. */
static void a_balance_says_whose_it_is(void **s)
{
	(void)s;
	struct stack_org org;
	auto_web struct web none = { 0 }, credited = { 0 }, pool = { 0 }, test = { 0 }, ann = { 0 },
			    bad = { 0 };
	stack_org(&st, &org);
	get(BALANCE, org.member, 0, &none);
	assert_string_equal(js_str(none.json, "org"), org.slug);
	assert_int_equal(js_int(none.json, "balanceMillicents", -1), 0);
	ask("POST", "/v1/billing/credit", operators, credit_of(org.slug, 5000, "k1"), 0, &credited);
	assert_int_equal(credited.status, 200);
	assert_string_equal(js_str(credited.json, "org"), org.slug); /* the credited account's own balance */
	assert_int_equal(js_int(credited.json, "balanceMillicents", -1), 5000);
	assert_true(js_bool(credited.json, "credited", false));
	get(BALANCE "?subject=&currency=usd", org.member, 1, &pool);
	assert_int_equal(js_int(pool.json, "availableMillicents", -1), 5000);
	get(BALANCE "?test=true", org.member, 1, &test);
	assert_int_equal(js_int(test.json, "balanceMillicents", -1), 0);
	assert_true(js_bool(test.json, "test", false));
	get(BALANCE "?subject=ann&currency=eur", org.member, 1, &ann);
	assert_string_equal(js_str(ann.json, "subject"), "ann");
	assert_string_equal(js_str(ann.json, "currency"), "eur");
	assert_int_equal(js_int(ann.json, "balanceMillicents", -1), 0);
	ask("GET", BALANCE "?subject=%24credits", org.member, NULL, 0, &bad);
	judge_field(&st, &bad, 400, "subject");
}

/* BIL-3, BIL-6 */
static void credit_is_for_operators_and_counts_once(void **s)
{
	(void)s;
	struct stack_org org;
	stack_org(&st, &org);
	char scoped[128];
	stack_key(&st, "admin", "member", false, NULL, scoped);
	const char *const others[] = { org.key, org.member, scoped };
	for (int i = 0; i < 3; i++) {
		auto_web struct web w = { 0 };
		ask("POST", "/v1/billing/credit", others[i], credit_of(org.slug, 5000, "mine"), i % 2, &w);
		judge_refusal(&st, &w, 403);
	}
	auto_web struct web first = { 0 }, again = { 0 }, other = { 0 }, nobody = { 0 }, elsewhere = { 0 },
			    unpaid = { 0 };
	ask("POST", "/v1/billing/credit", service, credit_of(org.slug, 700, "inv-1"), 0, &first);
	ask("POST", "/v1/billing/credit", operators, credit_of(org.slug, 700, "inv-1"), 1, &again);
	assert_int_equal(first.status, 200);
	assert_int_equal(again.status, 200);
	assert_false(js_bool(again.json, "credited", true));
	assert_int_equal(js_int(again.json, "balanceMillicents", -1), 700);
	ask("POST", "/v1/billing/credit", service, credit_of(org.slug, 701, "inv-1"), 1, &other);
	judge_refusal(&st, &other, 409);
	assert_string_equal(web_error(&other, "code"), "credit_key_reused");
	json_t *euro = credit_of(org.slug, 5, "inv-3");
	js_set_str(euro, "currency", "eur");
	ask("POST", "/v1/billing/credit", service, euro, 0, &unpaid);
	judge_field(&st, &unpaid, 400, "currency");
	ask("POST", "/v1/billing/credit", service, credit_of("no-such-org", 5, "inv-2"), 0, &nobody);
	judge_refusal(&st, &nobody, 404);
	/* That key can do nothing else. */
	ask("GET", "/v1/keys", service, NULL, 0, &elsewhere);
	judge_refusal(&st, &elsewhere, 403);
	the_books_are_right();
}

/* COD-5, MOD-10 on native ops; COD-12 */
static void a_run_needs_a_balance(void **s)
{
	(void)s;
	struct stack_org org;
	stack_org(&st, &org);
	auto_web struct web no = { 0 }, list = { 0 }, over = { 0 };
	ask("POST", "/v1/coding-tasks", org.key, runs_task("python", NULL, "print(1)"), 1, &no);
	judge_refusal(&st, &no, 402);
	assert_string_equal(web_error(&no, "code"), "insufficient_quota");
	auto_buf struct buf out = BUF(1000);
	stack_cli(
	    &st, (const char *const[]){ "org", "credit", org.slug, "0.50usd", "--key", "k", NULL }, &out);
	assert_string_equal(buf_c(&out), "balance 50000 millicents usd\n");
	auto_flow_run struct flow_run run = { 0 };
	runs_do(&st, &org, runs_task("python", NULL, "print(1)"), &run);
	assert_string_equal(js_str(run.last, "type"), "result");
	char more[100];
	(void)snprintf(more, sizeof more, "NULL, '%s', 'p', 'm'", run.run);
	used(org.slug, "call-of-run", more, 1234);
	get("/v1/bots", org.member, 0, &list);
	assert_int_equal(js_int(json_array_get(js_get(list.json, "data"), 0), "costMillicents", -1), 1234);
	ask("PUT", "/v1/billing/budgets/org", org.key,
	    js_pack("{s:s, s:i}", "period", "month", "hardMillicents", 1234), 0, &over);
	assert_int_equal(over.status, 200);
	auto_web struct web spent = { 0 };
	ask("POST", "/v1/coding-tasks", org.key, runs_task("python", NULL, "print(1)"), 1, &spent);
	judge_refusal(&st, &spent, 402);
	assert_string_equal(web_error(&spent, "code"), "budget_exceeded");
	the_books_are_right();
}

/* BIL-4, BIL-6 */
static void usage_is_summed_by_day_model_key_and_run(void **s)
{
	(void)s;
	struct stack_org org, other;
	stack_org(&st, &org);
	stack_org(&st, &other);
	static const char *const calls[] = { "'key_a', 'run_a', 'p', 'm1'", "'key_a', NULL, 'p', 'm1'",
		"'key_b', 'run_a', 'p', 'm2'", "NULL, NULL, 'q', 'm3'" };
	for (int i = 0; i < 4; i++) {
		char id[20];
		(void)snprintf(id, sizeof id, "u%d", i);
		used(org.slug, id, calls[i], 10 * (i + 1));
	}
	static const struct {
		const char *by, *names;
	} rows[] = { { "model", "q/m3:40 p/m2:30 p/m1:30 " }, { "key", "key_b:30 key_a:30 -:40 " },
		{ "run", "run_a:40 -:60 " } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char path[200] = "", got[300] = "", cursor[120] = "";
		int pages = 0;
		do { /* one row a page */
			auto_web struct web w = { 0 };
			(void)snprintf(path, sizeof path, "/v1/billing/usage?by=%s&limit=1%s%s", rows[i].by,
			    cursor[0] == 0 ? "" : "&cursor=", cursor);
			get(path, org.member, pages++ % 2, &w);
			const json_t *row = json_array_get(js_get(w.json, "data"), 0);
			(void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s:%lld ",
			    js_str_or(row, "name", "-"), js_int(row, "costMillicents", -1));
			(void)snprintf(cursor, sizeof cursor, "%s", js_str_or(w.json, "next", ""));
		} while (cursor[0] != 0 && pages < 9);
		assert_string_equal(got, rows[i].names);
	}
	auto_web struct web day = { 0 }, past = { 0 }, theirs = { 0 };
	get("/v1/billing/usage", org.member, 1, &day);
	const json_t *row = json_array_get(js_get(day.json, "data"), 0);
	assert_int_equal(json_array_size(js_get(day.json, "data")), 1);
	assert_int_equal(js_int(row, "calls", -1), 4);
	assert_int_equal(js_int(row, "inputTokens", -1), 440); /* with what was cached */
	assert_int_equal(js_int(row, "cachedTokens", -1), 40);
	assert_int_equal(js_int(row, "outputTokens", -1), 220);
	assert_int_equal(js_int(row, "reasoningTokens", -1), 20);
	get("/v1/billing/usage?to=2026-01-01T00:00:00.000Z", org.member, 0, &past);
	assert_int_equal(json_array_size(js_get(past.json, "data")), 0);
	auto_web struct web back = { 0 };
	ask("GET", "/v1/billing/usage?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00.000Z", org.member,
	    NULL, 0, &back);
	judge_field(&st, &back, 400, "to");
	get("/v1/billing/usage", other.member, 0, &theirs);
	assert_int_equal(json_array_size(js_get(theirs.json, "data")), 0);
}

/* BIL-5 */
static void budgets_are_set_listed_and_removed_by_admins(void **s)
{
	(void)s;
	struct stack_org org;
	stack_org(&st, &org);
	auto_web struct web no = { 0 }, set = { 0 }, none = { 0 }, list = { 0 }, gone = { 0 }, twice = { 0 },
			    bad = { 0 }, above = { 0 };
	ask("PUT", "/v1/billing/budgets/org", org.member,
	    js_pack("{s:s, s:i}", "period", "day", "hardMillicents", 5), 0, &no);
	judge_refusal(&st, &no, 403);
	used(org.slug, "before", "NULL, NULL, 'p', 'm'", 3);
	ask("PUT", "/v1/billing/budgets/org", org.key,
	    js_pack("{s:s, s:i}", "period", "day", "hardMillicents", 5), 0, &set);
	assert_int_equal(set.status, 200);
	assert_int_equal(js_int(set.json, "spentMillicents", -1), 3);
	ask("PUT", "/v1/billing/budgets/key_of_nobody", org.key,
	    js_pack("{s:s, s:i}", "period", "day", "hardMillicents", 5), 0, &none);
	judge_field(&st, &none, 404, "scope");
	ask("PUT", "/v1/billing/budgets/org", org.key, js_pack("{s:s}", "period", "day"), 0, &bad);
	judge_field(&st, &bad, 400, "hardMillicents");
	ask("PUT", "/v1/billing/budgets/org", org.key,
	    js_pack("{s:s, s:i, s:i}", "period", "day", "softMillicents", 10, "hardMillicents", 5), 1,
	    &above);
	judge_field(&st, &above, 400, "softMillicents");
	get("/v1/billing/budgets?scope=org", org.member, 1, &list);
	assert_int_equal(json_array_size(js_get(list.json, "data")), 1);
	ask("DELETE", "/v1/billing/budgets/org?period=day", org.key, NULL, 1, &gone);
	assert_int_equal(gone.status, 200);
	ask("DELETE", "/v1/billing/budgets/org?period=day", org.key, NULL, 0, &twice);
	judge_refusal(&st, &twice, 404);
}

static void the_operators_command_says_what_is_wrong(void **s)
{
	(void)s;
	struct stack_org org;
	stack_org(&st, &org);
	auto_buf struct buf limits = BUF(1000), key = BUF(1000), wrong = BUF(4000);
	stack_cli(&st, (const char *const[]){ "org", "limit", org.slug, "--tokens-per-minute", "500", NULL },
	    &limits);
	assert_string_equal(buf_c(&limits),
	    "requests-per-minute default\nconcurrent-runs default\ntokens-per-minute 500\nconcurrent-calls "
	    "default\n");
	char id[40];
	(void)snprintf(id, sizeof id, "key_%.26s", org.key + 3);
	stack_cli(&st,
	    (const char *const[]){ "key", "limit", id, "--org", org.slug, "--concurrent-calls", "3", NULL },
	    &key);
	assert_string_equal(
	    buf_c(&key), "requests-per-minute default\ntokens-per-minute default\nconcurrent-calls 3\n");
	assert_int_not_equal(
	    stack_cli_exit(&st, (const char *const[]){ "org", "credit", org.slug, "5", NULL }, NULL), 0);
	assert_int_not_equal(
	    stack_cli_exit(&st, (const char *const[]){ "org", "credit", "no-such-org", "5usd", NULL }, NULL),
	    0);
	assert_int_not_equal(
	    stack_cli_exit(&st, (const char *const[]){ "org", "credit", org.slug, "1.00xyz", NULL }, NULL),
	    0);
	assert_int_not_equal(
	    stack_cli_exit(&st, (const char *const[]){ "org", "credit", org.slug, "-2usd", NULL }, NULL), 0);
	/* A correction counts once, too, and may leave less than nothing. */
	for (int i = 0; i < 2; i++) {
		auto_buf struct buf back = BUF(1000);
		stack_cli(&st,
		    (const char *const[]){ "org", "credit", org.slug, "-2usd", "--key", "back", NULL },
		    &back);
		assert_non_null(strstr(buf_c(&back), "balance -200000 millicents usd"));
		assert_non_null(strstr(buf_c(&back), "overdrawn"));
	}
	stack_cli(&st, (const char *const[]){ "org", "credit", org.slug, "7usd", NULL }, NULL);
	char sql[200];
	(void)snprintf(sql, sizeof sql,
	    "UPDATE accounts SET balance = balance + 7 WHERE org = '%s' AND subject = ''", org.slug);
	stack_sql(&st, sql, NULL);
	assert_int_not_equal(
	    stack_cli_exit(&st, (const char *const[]){ "ledger", "check", NULL }, &wrong), 0);
	assert_non_null(strstr(buf_c(&wrong), "says 500007, its entries 500000"));
	(void)snprintf(sql, sizeof sql,
	    "UPDATE accounts SET balance = balance - 7 WHERE org = '%s' AND subject = ''", org.slug);
	stack_sql(&st, sql, NULL);
	the_books_are_right();
}

/* BIL-1, BIL-5: by the runner; the soft budget is told in the run's session. */
static void calls_of_a_dead_process_are_settled_by_the_runner(void **s)
{
	(void)s;
	struct stack_org org;
	stack_org(&st, &org);
	stack_cli(&st, (const char *const[]){ "org", "credit", org.slug, "1usd", NULL }, NULL);
	auto_flow_run struct flow_run run = { 0 };
	runs_start(&st, &org, runs_task("python", NULL, "import time; time.sleep(600)"), &run);
	auto_web struct web set = { 0 }, balance = { 0 };
	ask("PUT", "/v1/billing/budgets/org", org.key,
	    js_pack("{s:s, s:i}", "period", "total", "softMillicents", 40), 0, &set);
	assert_int_equal(set.status, 200);
	char sql[700];
	(void)snprintf(sql, sizeof sql,
	    "SELECT money_reserve('%s', 'dead', '', 'usd', false, NULL, '%s', NULL, 900, 9, 'closed', "
	    "'gat_dead', '{0,0,0,0,0,0}'); "
	    "UPDATE reservations SET noted = true, provider = 'p', model = 'm', used = '{1,0,0,1,0}', "
	    "millicents = 45, estimated = "
	    "true WHERE org = '%s'",
	    org.slug, run.run, org.slug);
	stack_sql(&st, sql, NULL);
	runs_until(&st, &org, &run, "The soft budget of org (total) is reached: 45 of 40 millicents");
	get(BALANCE, org.member, 0, &balance);
	assert_int_equal(js_int(balance.json, "balanceMillicents", -1), 100000 - 45);
	assert_int_equal(js_int(balance.json, "reservedMillicents", -1), 0);
	auto_web struct web stop = { 0 };
	char path[100];
	(void)snprintf(path, sizeof path, "/v1/bots/%s/stop", run.run);
	ask("POST", path, org.key, NULL, 0, &stop);
	runs_watch(&st, &org, &run, 0, 1);
	the_books_are_right();
}

static void the_internal_door_counts_it(void **s)
{
	(void)s;
	char door[120];
	struct err e = { 0 };
	struct http_res res = { 0 };
	(void)snprintf(door, sizeof door, "%s/run/internal/door1.sock", st.dir);
	assert_int_equal(http_do(&(struct http_req){ .method = "GET",
				     .url = "http://internal/metrics",
				     .unix_socket = door,
				     .connect_ms = 60000,
				     .total_ms = 60000 },
			     &res, &e),
	    0);
	assert_non_null(strstr(buf_c(&res.body), "gatehouse_money_calls_total{end=\"settled\"} 0\n"));
	assert_non_null(strstr(buf_c(&res.body), "gatehouse_money_refused_total{reason=\"balance\"} 0\n"));
	http_res_free(&res);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, "BILLING_MODE=closed\nBILLING_REAP_S=5\n");
	stack_key(&st, "admin", "ops", true, NULL, operators);
	stack_key(&st, "admin", "billing service", false, "billing", service);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_balance_says_whose_it_is),
		cmocka_unit_test(credit_is_for_operators_and_counts_once),
		cmocka_unit_test(a_run_needs_a_balance),
		cmocka_unit_test(usage_is_summed_by_day_model_key_and_run),
		cmocka_unit_test(budgets_are_set_listed_and_removed_by_admins),
		cmocka_unit_test(the_operators_command_says_what_is_wrong),
		cmocka_unit_test(calls_of_a_dead_process_are_settled_by_the_runner),
		cmocka_unit_test(the_internal_door_counts_it),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
