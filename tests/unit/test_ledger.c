/* Accounts, credits and entries (BIL-2, BIL-3, BIL-7, BIL-9): what the database refuses, and what a check finds. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../moneytest.h"
#include "base/js.h"

/* BIL-2, BIL-9 */
static void every_account_is_its_own(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 500);
	struct err e = { 0 };
	const struct account test = { slug, "", "usd", true }, ann = { slug, "ann", "usd", false },
			     euro = { slug, "", "eur", false };
	const struct account *all[] = { &test, &ann, &euro };
	for (int i = 0; i < 3; i++) {
		auto_json json_t *before = balance_of(all[i]);
		assert_int_equal(js_int(before, "balanceMillicents", -1), 0);
		auto_pg struct pg *db = take();
		auto_json json_t *v = ledger_credit(db, all[i], 7 + i, mem_fmt(m, "k%d", i), "test", &e);
		assert_int_equal(js_int(v, "balanceMillicents", -1), 7 + i);
		assert_string_equal(js_str(v, "subject"), all[i]->subject);
		assert_string_equal(js_str(v, "currency"), all[i]->currency);
		assert_int_equal(js_bool(v, "test", !all[i]->test), all[i]->test);
	}
	struct gate_ask ask = ask_of(m, slug, 5);
	ask.test = true;
	(void)settle(reserve(&ask), 5);
	struct gate_ask more = ask_of(m, slug, 5);
	more.test = true;
	call_refused(&more, ERR_PAYMENT, "insufficient_quota"); /* live money does not help */
	assert_int_equal(BALANCE(slug), 500);
	the_books_are_right();
}

/* BIL-3 */
static void a_credit_counts_once_for_its_key(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 500);
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	const struct account pool_ = { slug, "", "usd", false }, ann = { slug, "ann", "usd", false };
	auto_json json_t *again = ledger_credit(db, &pool_, 500, "start", "test", &e);
	assert_int_equal(js_int(again, "balanceMillicents", -1), 500);
	assert_false(js_bool(again, "credited", true));
	assert_null(ledger_credit(db, &pool_, 501, "start", "test", &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_string_equal(e.reason, "credit_key_reused");
	err_clear(&e);
	assert_null(ledger_credit(db, &ann, 500, "start", "test", &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_null(ledger_credit(db, &(struct account){ "nobody", "", "usd", false }, 5, "x", "test", &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	the_books_are_right();
}

/* ---- proving the books: every way in which they can be wrong is found */

/* By its rules, and not for a mistake in the statement. */
static void database_refuses(const char *text)
{
	sql("DO $$ BEGIN %s; RAISE 'it lets this in'; EXCEPTION WHEN check_violation OR restrict_violation "
	    "THEN NULL; END $$",
	    text);
}

/* The database lets nobody in who would break the books. */
static void entries_are_only_added_and_only_in_balance(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100), *other = org(m, 100);
	const char *pool = mem_fmt(m,
		       "(SELECT id FROM accounts WHERE org = '%s' AND subject = '' AND currency = 'usd')",
		       slug),
		   *credits = mem_fmt(
		       m, "(SELECT id FROM accounts WHERE org = '%s' AND subject = '$credits')", slug),
		   *theirs = mem_fmt(m, "(SELECT id FROM accounts WHERE org = '%s' AND subject = '')", other);
	sql("INSERT INTO accounts (org, currency) VALUES ('%s', 'eur')", slug);
	const char *euro = mem_fmt(
	    m, "(SELECT id FROM accounts WHERE org = '%s' AND currency = 'eur')", slug);
	static const char *const never[] = { "UPDATE entries SET amount = amount + 1", "DELETE FROM entries",
		"TRUNCATE entries", "DELETE FROM usage_rows", "UPDATE ledger_tx SET reference = 'x'" };
	for (size_t i = 0; i < sizeof never / sizeof *never; i++)
		database_refuses(never[i]);
	database_refuses(
	    mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (900001, %s, 5), (900001, %s, -4)",
		pool, credits));
	database_refuses(
	    mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (900001, %s, 5)", pool));
	database_refuses(mem_fmt(
	    m, "INSERT INTO entries (tx, account, amount) VALUES (900001, %s, 5), (900001, -1, -5)", pool));
	/* In balance, but of two orgs, or of two currencies. */
	database_refuses(
	    mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (900001, %s, 5), (900001, %s, -5)",
		pool, theirs));
	database_refuses(
	    mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (900001, %s, 5), (900001, %s, -5)",
		pool, euro));
	/* In balance by itself, and added to a transaction that is complete. */
	database_refuses(mem_fmt(m,
	    "INSERT INTO entries (tx, account, amount) SELECT t.id, v.account, v.amount FROM (SELECT min(id) "
	    "AS id FROM ledger_tx "
	    "WHERE org = '%s') t, (VALUES (%s, 5), (%s, -5)) AS v (account, amount)",
	    slug, pool, credits));
	assert_int_equal(BALANCE(slug), 100);
	the_books_are_right();
}

static void finds(const char *breaks, const char *says, const char *repairs)
{
	struct err e = { 0 };
	sql("SET session_replication_role = replica; %s", breaks);
	auto_pg struct pg *db = take();
	auto_json json_t *wrong = ledger_check(db, MONEYTEST_OLD_S, NULL, &e);
	bool found = false;
	size_t i;
	json_t *v;
	json_array_foreach(wrong, i, v)
		found = found || strstr(json_string_value(v), says) != NULL;
	if (!found)
		fail_msg("%s: not found", breaks);
	sql("SET session_replication_role = replica; %s", repairs);
	the_books_are_right();
}

static void a_check_finds_whatever_is_wrong(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	(void)spend(m, slug, 10);
	struct gate_ask ask = ask_of(m, slug, 7);
	struct gate_call *c = reserve(&ask);
	budget(slug, "org", "day", 5, -1);
	the_books_are_right();
	const char *account = mem_fmt(
	    m, "(SELECT id FROM accounts WHERE org = '%s' AND subject = '' AND currency = 'usd')", slug);
	finds(mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (99, %s, 5)", account), "sum to 5",
	    "DELETE FROM entries WHERE tx = 99 AND amount = 5");
	finds(
	    mem_fmt(m, "INSERT INTO entries (tx, account, amount) VALUES (1000099, %s, 5), (1000099, %s, -5)",
		account, account),
	    "transaction 1000099 does not balance", "DELETE FROM entries WHERE tx = 1000099");
	finds("INSERT INTO ledger_tx (org, kind, reference, at) VALUES ('x', 'credit', 'empty', now())",
	    "does not balance", "DELETE FROM ledger_tx WHERE reference = 'empty'");
	finds("INSERT INTO entries (tx, account, amount) VALUES (1000098, 1000098, 5)", "of no account",
	    "DELETE FROM entries WHERE tx = 1000098");
	finds(mem_fmt(m, "UPDATE accounts SET balance = balance + 1 WHERE id = %s", account),
	    "says 991, its entries 990",
	    mem_fmt(m, "UPDATE accounts SET balance = balance - 1 WHERE id = %s", account));
	finds(mem_fmt(m, "UPDATE accounts SET reserved = reserved + 1 WHERE id = %s", account),
	    "has reserved 8 for 1 calls",
	    mem_fmt(m, "UPDATE accounts SET reserved = reserved - 1 WHERE id = %s", account));
	finds(mem_fmt(m, "UPDATE accounts SET calls = calls + 1 WHERE id = %s", account),
	    "has reserved 7 for 2 calls",
	    mem_fmt(m, "UPDATE accounts SET calls = calls - 1 WHERE id = %s", account));
	finds(mem_fmt(m, "UPDATE budgets SET reserved = 3 WHERE org = '%s'", slug), "has reserved 3",
	    mem_fmt(m, "UPDATE budgets SET reserved = 0 WHERE org = '%s'", slug));
	finds(mem_fmt(m, "UPDATE usage_rows SET millicents = 9 WHERE org = '%s'", slug),
	    "used 9, it was charged 10",
	    mem_fmt(m, "UPDATE usage_rows SET millicents = 10 WHERE org = '%s'", slug));
	finds(mem_fmt(m, "UPDATE reservations SET at = at - interval '2 hours' WHERE org = '%s'", slug),
	    "is open since",
	    mem_fmt(m, "UPDATE reservations SET at = at + interval '2 hours' WHERE org = '%s'", slug));
	gate_release(c);
}

static void amounts_are_read_exactly_or_not_at_all(void **s)
{
	(void)s;
	static const struct {
		const char *text;
		long long millicents;
	} rows[] = { { "500.00usd", 50000000 }, { "1usd", 100000 }, { "0.00001usd", 1 }, { "0.5usd", 50000 },
		{ "-5.00usd", -500000 }, { "10000000000usd", 1000000000000000 } };
	static const struct {
		const char *text, *says;
	} bad[] = { { "0usd", "not zero" }, { "-0.00usd", "not zero" }, { "0.000001usd", "five decimals" },
		{ "usd", "number" }, { "5", "currency" }, { "5 usd", "currency" }, { "5USD", "currency" },
		{ "1.00xyz", "`xyz`" }, { "1eur", "`eur`" }, { "5.usd", "number" },
		{ "1.2.3usd", "currency" }, { "5usdx", "currency" },
		{ "10000000000.00001usd", "at most 10000000000." },
		{ "99999999999999999999usd", "at most 10000000000." }, { "", "number" },
		{ "--5usd", "number" }, { "1e3usd", "currency" } };
	long long v;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		assert_int_equal(ledger_amount(rows[i].text, &v, &e), 0);
		assert_int_equal(v, rows[i].millicents);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = { 0 };
		if (ledger_amount(bad[i].text, &v, &e) == 0 || strstr(e.msg, bad[i].says) == NULL)
			fail_msg("%s: %s", bad[i].text, e.msg);
	}
}

/* BIL-3 */
static void a_wrong_credit_is_taken_back_once(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const struct account pool_ = { org(m, 500), "", "usd", false };
	auto_pg struct pg *db = take();
	struct err e = { 0 };
	for (int i = 0; i < 2; i++) {
		auto_json json_t *v = ledger_credit(db, &pool_, -700, "back", "test", &e);
		assert_int_equal(js_int(v, "balanceMillicents", 0), -200);
		assert_int_equal(js_bool(v, "credited", i == 1), i == 0);
	}
	pg_put(steal(db));
	the_books_are_right();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_account_is_its_own),
		cmocka_unit_test(a_credit_counts_once_for_its_key),
		cmocka_unit_test(entries_are_only_added_and_only_in_balance),
		cmocka_unit_test(a_check_finds_whatever_is_wrong),
		cmocka_unit_test(a_wrong_credit_is_taken_back_once),
		cmocka_unit_test(amounts_are_read_exactly_or_not_at_all),
	};
	return cmocka_run_group_tests_name("ledger", tests, moneytest_setup, moneytest_teardown);
}
