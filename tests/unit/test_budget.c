/* Budgets by day and month (BIL-5), and the limits of model calls (ID-7), with clocks that pass midnight and many clients at once. */
#include "../t.h"

#include <stdatomic.h>
#include <string.h>

#include "../moneytest.h"
#include "base/js.h"
#include "money/budget.h"
#include "session/event.h"

struct rush {
	const char *org;
	atomic_int in;
	struct gate_call *calls[64];
};

/* ---- budgets (BIL-5) */

static void it_is(const char *time)
{
	sql("CREATE OR REPLACE FUNCTION money_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$SELECT "
	    "%s$$",
	    time);
}
static void it_is_now(void)
{
	it_is("clock_timestamp()");
}

static void a_budget_begins_anew_with_its_day_and_its_month(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	struct gate_ask one = ask_of(m, slug, 1), six = ask_of(m, slug, 60);
	it_is("timestamptz '2026-11-29 00:00:00Z'");
	budget(slug, "org", "day", -1, 100);
	budget(slug, "org", "month", -1, 150);
	(void)spend(m, slug, 60);
	call_refused(&six, ERR_PAYMENT, "budget_exceeded");
	(void)spend(m, slug, 40); /* exactly the budget may be spent */
	call_refused(&one, ERR_PAYMENT, "budget_exceeded");
	it_is("timestamptz '2026-11-29 23:59:59.999Z'");
	call_refused(&one, ERR_PAYMENT, "budget_exceeded");
	it_is("timestamptz '2026-11-30 00:00:00Z'");
	call_refused(&six, ERR_PAYMENT, "budget_exceeded"); /* the month's */
	(void)spend(m, slug, 50);
	call_refused(&one, ERR_PAYMENT, "budget_exceeded");
	it_is("timestamptz '2026-12-01 00:00:00Z'");
	(void)spend(m, slug, 100);
	call_refused(&one, ERR_PAYMENT, "budget_exceeded"); /* the new day's */
	it_is_now();
	assert_int_equal(BALANCE(slug), 100000 - 250);
}

/* A call that is under way at midnight is reserved in one day's budget and spent in the next one's. */
static void a_call_over_midnight_is_the_new_days(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	it_is("timestamptz '2026-11-29 23:59:59Z'");
	budget(slug, "org", "day", -1, 100);
	struct gate_ask ask = ask_of(m, slug, 90), more = ask_of(m, slug, 11);
	struct gate_call *c = reserve(&ask);
	it_is("timestamptz '2026-11-30 00:00:01Z'");
	call_refused(&more, ERR_PAYMENT, "budget_exceeded"); /* it may still cost its worst case, today */
	(void)settle(c, 90);
	call_refused(&more, ERR_PAYMENT, "budget_exceeded");
	(void)spend(m, slug, 10);
	it_is_now();
}

static void rush_budget(void *arg, int i)
{
	struct rush *r = arg;
	auto_mem struct mem *m = mem_new();
	struct gate_ask ask = ask_of(m, r->org, 10);
	struct err e = { 0 };
	if (gate_reserve(mt.gate, &ask, &r->calls[i], NULL, &e) == 0)
		(void)atomic_fetch_add(&r->in, 1);
	else if (e.code != ERR_PAYMENT || strcmp(e.reason, "budget_exceeded") != 0)
		(void)atomic_fetch_add(&r->in, 1000);
}

static void fifty_at_a_budget_for_one_are_one(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct rush r = { .org = org(m, 100000) };
	budget(r.org, "org", "total", -1, 19);
	at_once(50, rush_budget, &r);
	assert_int_equal(atomic_load(&r.in), 1);
	for (int i = 0; i < 50; i++)
		gate_release(r.calls[i]);
	the_books_are_right();
}

/* The model call's refusal, and the native op's once it is used up. */
static void is_told(const char *slug, const struct gate_ask *ask, const char *words)
{
	struct err call = { 0 }, op = { 0 };
	struct gate_call *c = NULL;
	assert_int_equal(gate_reserve(mt.gate, ask, &c, NULL, &call), -1);
	auto_pg struct pg *db = take();
	assert_int_equal(gate_check(mt.conf, db, slug, NULL, &op), -1);
	if (strstr(call.msg, words) == NULL || strstr(op.msg, words) == NULL)
		fail_msg("%s | %s", call.msg, op.msg);
}

static void who_passes_a_budget_is_told_what_helps(void **s)
{
	(void)s;
	static const char *const all[][2] = { { "day", "; raise it, or wait for its next period." },
		{ "month", "; raise it, or wait for its next period." },
		{ "total", "; raise it, or remove it: it has no next period." } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		auto_mem struct mem *m = mem_new();
		const char *slug = org(m, 100000);
		struct gate_ask ask = ask_of(m, slug, 60);
		budget(slug, "org", all[i][0], -1, 50);
		(void)spend(m, slug, 50);
		is_told(slug, &ask, all[i][1]);
	}
}

static void a_budget_is_its_orgs_keys_or_runs(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	sql("INSERT INTO credentials (id, org, kind, user_name, hash) SELECT 'key_%s_' || i, '%s', 'key', "
	    "'ann', repeat('0', 64) "
	    "FROM generate_series(1, 2) i",
	    slug, slug);
	const char *one = mem_fmt(m, "key_%s_1", slug), *two = mem_fmt(m, "key_%s_2", slug);
	budget(slug, one, "total", -1, 50);
	struct gate_ask ask = ask_of(m, slug, 60), other = ask_of(m, slug, 60);
	ask.key = one;
	other.key = two;
	call_refused(&ask, ERR_PAYMENT, "budget_exceeded");
	(void)settle(reserve(&other), 60);
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	const struct budget nobodys = { slug, "run_of_another_org", "day", "usd", false, 5, -1, "ann" };
	assert_null(budget_put(db, &nobodys, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_string_equal(e.param, "scope");
	the_books_are_right();
}

/* A run's credential knows its session only. */
static void a_call_in_a_runs_session_is_the_runs(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	char session[ID_MAX];
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	assert_int_equal(pg_begin(db, &e), 0);
	assert_int_equal(session_open(db, slug, "coding", "t", "ann", NULL, session, &e), 0);
	assert_int_equal(pg_commit(db, &e), 0);
	sql("INSERT INTO runs (id, org, tool, session, prompt, timeout_s, created_by) VALUES ('run_%s', "
	    "'%s', 'python', '%s', 'p', 9, 'ann')",
	    slug, slug, session);
	const char *run = mem_fmt(m, "run_%s", slug);
	budget(slug, run, "total", 10, 15);
	told.n = 0;
	struct gate_ask ask = ask_of(m, slug, 10), more = ask_of(m, slug, 10);
	ask.session = more.session = session;
	(void)settle(reserve(&ask), 10);
	call_refused(&more, ERR_PAYMENT, "budget_exceeded");
	assert_int_equal(told.n, 1);
	assert_string_equal(told.last, mem_fmt(m, "%s total 10 of 10 run %s", run, run));
	auto_json json_t *rows = usage_list(
	    db, &(struct usage_ask){ .org = slug, .by = "run", .currency = "usd", .before = "" }, 9, &e);
	assert_string_equal(js_str(json_array_get(rows, 0), "name"), run);
}

static void a_soft_budget_is_told_once_a_period(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	it_is("timestamptz '2026-11-29 12:00:00Z'");
	(void)spend(m, slug, 60); /* before there was a budget: it counts */
	budget(slug, "org", "day", 100, -1);
	told.n = 0;
	(void)spend(m, slug, 39);
	assert_int_equal(told.n, 0);
	struct gate_ask ask = ask_of(m, slug, 1);
	ask.run = "run_a";
	(void)settle(reserve(&ask), 1);
	assert_int_equal(told.n, 1);
	assert_string_equal(told.last, "org day 100 of 100 run run_a");
	(void)spend(m, slug, 500);
	assert_int_equal(told.n, 1);
	it_is("timestamptz '2026-11-30 12:00:00Z'");
	(void)spend(m, slug, 500);
	assert_int_equal(told.n, 2);
	budget(slug, "org", "day", 900, -1); /* another one: told anew */
	(void)spend(m, slug, 500);
	assert_int_equal(told.n, 3);
	it_is_now();
	the_books_are_right();
}

/* ---- limits (ID-7) */

static const char *limited(struct mem *m, const char *slug, const char *columns)
{
	const char *key = mem_fmt(m, "key_l_%s", slug);
	sql("INSERT INTO credentials (id, org, kind, user_name, hash) VALUES ('%s', '%s', 'key', 'ann', "
	    "repeat('0', 64))",
	    key, slug);
	sql("UPDATE credentials SET %s WHERE id = '%s'", columns, key);
	return key;
}

static void a_key_has_its_own_requests_a_minute(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	const char *key = limited(m, slug, "requests_per_minute = 3");
	for (int i = 0; i < 3; i++) {
		struct gate_ask ask = ask_of(m, slug, 1);
		struct gate_limits l;
		struct gate_call *c;
		struct err e = { 0 };
		ask.key = key;
		assert_int_equal(gate_reserve(mt.gate, &ask, &c, &l, &e), 0);
		assert_int_equal(l.requests.limit, 3);
		assert_int_equal(l.requests.left, 2 - i);
		assert_int_equal(l.tokens.limit, 0);
		assert_in_range(l.requests.reset_s, 1, 60);
		gate_release(c);
	}
	struct gate_ask ask = ask_of(m, slug, 1), other = ask_of(m, slug, 1);
	struct gate_call *c;
	struct err e = { 0 };
	ask.key = key;
	assert_int_equal(gate_reserve(mt.gate, &ask, &c, NULL, &e), -1);
	assert_int_equal(e.code, ERR_RATE);
	assert_in_range(e.retry_s, 1, 60);
	gate_release(reserve(&other)); /* without that key */
	sql("UPDATE meters SET until = clock_timestamp() WHERE org = '%s'", slug);
	gate_release(reserve(&ask));
	the_books_are_right();
}

/* MOD-11: what the door has counted of the org's own limit, where that is the tighter one. */
static void the_orgs_requests_are_told_beside_the_keys(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	struct gate_ask ask = ask_of(m, slug, 1);
	struct gate_limits l;
	struct gate_call *c;
	struct err e = { 0 };
	ask.key = limited(m, slug, "requests_per_minute = 50");
	sql("UPDATE orgs SET requests_per_minute = 40 WHERE slug = '%s'", slug);
	sql("INSERT INTO org_requests (org, until, most, used, took) VALUES ('%s', clock_timestamp() + "
	    "interval '30 s', 40, 33, 1)",
	    slug);
	assert_int_equal(gate_reserve(mt.gate, &ask, &c, &l, &e), 0);
	gate_release(c);
	assert_int_equal(l.requests.limit, 40);
	assert_int_equal(l.requests.left, 7);
	assert_in_range(l.requests.reset_s, 1, 30);
}

/* What is let in counts with its worst case until it is known. */
static void tokens_a_minute_are_corrected_by_what_was_used(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	sql("UPDATE orgs SET tokens_per_minute = 1000 WHERE slug = '%s'", slug);
	struct gate_ask a = ask_of(m, slug, 1), b = ask_of(m, slug, 1), c = ask_of(m, slug, 1);
	a.worst_tokens = b.worst_tokens = c.worst_tokens = 600;
	struct gate_call *first = reserve(&a);
	call_refused(&b, ERR_RATE, "rate_limited");
	(void)settle(first, 300); /* 300 tokens */
	(void)settle(reserve(&b), 500);
	call_refused(&c, ERR_RATE, "rate_limited"); /* 800 and 600 */
	c.worst_tokens = 200;
	(void)settle(reserve(&c), 1);
	/* One that alone is more than the minute's is let in when nothing else is. */
	sql("UPDATE meters SET until = clock_timestamp() WHERE org = '%s'", slug);
	struct gate_ask large = ask_of(m, slug, 1);
	large.worst_tokens = 50000;
	(void)settle(reserve(&large), 1);
	the_books_are_right();
}

static void rush_calls(void *arg, int i)
{
	struct rush *r = arg;
	auto_mem struct mem *m = mem_new();
	struct gate_ask ask = ask_of(m, r->org, 1);
	struct err e = { 0 };
	if (gate_reserve(mt.gate, &ask, &r->calls[i], NULL, &e) == 0)
		(void)atomic_fetch_add(&r->in, 1);
	else if (e.code != ERR_RATE || strcmp(e.reason, "too_many_calls") != 0 || e.retry_s < 1)
		(void)atomic_fetch_add(&r->in, 1000);
}

static void so_many_calls_at_once_and_no_more(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct rush r = { .org = org(m, 100000) };
	sql("UPDATE orgs SET concurrent_calls = 5 WHERE slug = '%s'", r.org);
	for (int round = 0; round < 3; round++) {
		atomic_store(&r.in, 0);
		at_once(32, rush_calls, &r);
		assert_int_equal(atomic_load(&r.in), 5);
		for (int i = 0; i < 32; i++) {
			if (r.calls[i] != NULL && i % 2 == 0)
				gate_release(r.calls[i]);
			else if (r.calls[i] != NULL)
				(void)settle(r.calls[i], 1);
			r.calls[i] = NULL;
		}
	}
	the_books_are_right();
}

/* It would limit nothing. */
static void a_budget_is_in_what_calls_are_paid_in(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const struct budget b = { org(m, 0), "org", "day", "eur", false, -1, 100, "ann" };
	auto_pg struct pg *db = take();
	assert_null(budget_put(db, &b, &e));
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_string_equal(e.param, "currency");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_budget_is_in_what_calls_are_paid_in),
		cmocka_unit_test(a_budget_begins_anew_with_its_day_and_its_month),
		cmocka_unit_test(a_call_over_midnight_is_the_new_days),
		cmocka_unit_test(fifty_at_a_budget_for_one_are_one),
		cmocka_unit_test(who_passes_a_budget_is_told_what_helps),
		cmocka_unit_test(a_budget_is_its_orgs_keys_or_runs),
		cmocka_unit_test(a_call_in_a_runs_session_is_the_runs),
		cmocka_unit_test(a_soft_budget_is_told_once_a_period),
		cmocka_unit_test(a_key_has_its_own_requests_a_minute),
		cmocka_unit_test(the_orgs_requests_are_told_beside_the_keys),
		cmocka_unit_test(tokens_a_minute_are_corrected_by_what_was_used),
		cmocka_unit_test(so_many_calls_at_once_and_no_more),
	};
	return cmocka_run_group_tests_name("budget", tests, moneytest_setup, moneytest_teardown);
}
