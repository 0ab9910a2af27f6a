/*
 * Calls of one account that come together (0025): judged and settled in one statement as one by one, by the functions of the version
 * before, which are in a database that has not been upgraded yet; and that database's upgrade with calls under way.
 */
#include "../t.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../moneytest.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/js.h"
#include "io/migrate.h"

enum { ROUNDS = 12, CALLS = 14, TEXT_BYTES = 1 << 16 };

static struct pg_pool *before; /* the database as the version before has it */

static void run(struct pg_pool *pool, const char *text)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	if (db == NULL || pg_script(db, text, &e) != 0)
		fail_msg("%s: %s", e.msg, text);
}

/* The lines that were said, which are then forgotten. */
static char *said(struct pg_pool *pool)
{
	static const struct pg_stmt q = { "t_said",
		"WITH all_of AS (DELETE FROM said RETURNING n, line) SELECT coalesce(string_agg(line, E'\\n' "
		"ORDER BY n), '') "
		"FROM all_of",
		0 };
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q, &e);
	if (r == NULL)
		fail_msg("%s", e.msg);
	return xstrdup(pg_str(r, 0, 0));
}

static void both(const char *text)
{
	run(before, text);
	run(mt.pool, text);
}

static void assert_same(const char *what, const char *script)
{
	auto_free char *one_by_one = said(before), *together = said(mt.pool);
	if (strcmp(one_by_one, together) == 0 && together[0] != 0)
		return;
	(void)fprintf(stderr, "one by one\n%s\n\ntogether\n%s\n", one_by_one, together);
	fail_msg("%s of %s", what, script);
}

/* All that is known of an org, without times. */
static const char state[] = "INSERT INTO said (line) "
			    "SELECT 'account ' || (subject, balance, reserved, calls)::text FROM accounts "
			    "WHERE org = '%1$s' AND subject <> '$credits' "
			    "AND balance + reserved + calls <> 0 ORDER BY subject; INSERT INTO said (line) "
			    "SELECT 'budget ' || (scope, period, spent, reserved, told)::text FROM budgets "
			    "WHERE org = '%1$s' ORDER BY scope, period; "
			    "INSERT INTO said (line) SELECT 'meter ' || (key, calls, requests, tokens)::text "
			    "FROM meters WHERE org = '%1$s' AND calls + requests + tokens > 0 ORDER BY key; "
			    "INSERT INTO said (line) SELECT 'open ' || (request, amount, tokens, key, run, "
			    "session, cardinality(budgets), metered)::text "
			    "FROM reservations WHERE org = '%1$s' ORDER BY request; INSERT INTO said (line) "
			    "SELECT 'used ' || (request, key, run, provider, model, tokens, millicents, "
			    "estimated)::text FROM usage_rows "
			    "WHERE org = '%1$s' ORDER BY request; INSERT INTO said (line) SELECT 'charge ' "
			    "|| (t.reference, e.amount)::text "
			    "FROM ledger_tx t JOIN entries e ON e.tx = t.id WHERE t.org = '%1$s' AND t.kind "
			    "= 'charge' ORDER BY t.reference, e.amount;";

static void say_state(const char *slug)
{
	auto_buf struct buf b = BUF(TEXT_BYTES);
	(void)buf_fmt(&b, state, slug);
	both(buf_c(&b));
}

struct scene {
	char org[20];
	unsigned seed;
	int calls;
	const char *request[CALLS];
	const char *key[CALLS], *run[CALLS];
	int amount[CALLS], tokens[CALLS];
	const char *mode, *limits;
};

static int any(struct scene *s, int below)
{
	return (int)((unsigned)rand_r(&s->seed) % (unsigned)below);
}

static const char *one_of(struct scene *s, const char *const *names, int n)
{
	return names[any(s, n)];
}

/* An org with or without money, budgets and limits; in every third nothing is in the way. */
static void make(struct scene *s, int nth)
{
	static const char *const modes[] = { "closed", "closed", "warn", "open" };
	bool free_way = nth % 3 == 0;
	auto_buf struct buf b = BUF(TEXT_BYTES);
	(void)snprintf(s->org, sizeof s->org, "scene-%d", nth);
	s->mode = one_of(s, modes, 4);
	s->limits = free_way || any(s, 2) ? "{0,0,0,0,0,0}" : "{900,0,6,500,3,40}";
	(void)buf_fmt(&b,
	    "INSERT INTO orgs (slug%1$s) VALUES ('%2$s'%3$s); SELECT money_credit('%2$s', '', 'usd', false, "
	    "%4$d, 'k', 'x'); ",
	    free_way ? "" : ", tokens_per_minute, concurrent_calls", s->org, free_way ? "" : ", 1500, 7",
	    free_way ? 100000 : 200 + any(s, 1200));
	for (int k = 0; k < 2 && !free_way; k++)
		(void)buf_fmt(&b,
		    "INSERT INTO credentials (id, org, kind, name, user_name, hash, concurrent_calls) VALUES "
		    "('%s-k%d', '%s', "
		    "'key', 'k', 'ann', repeat('0', 64), %s); ",
		    s->org, k, s->org, any(s, 2) ? "2" : "NULL");
	if (!free_way && any(s, 3))
		(void)buf_fmt(&b,
		    "SELECT money_budget('%1$s', 'org', 'day', 'usd', false, 150, %2$d, 'ann'); "
		    "SELECT money_budget('%1$s', '%1$s-k1', 'month', 'usd', false, 60, 300, 'ann'); "
		    "SELECT money_budget('%1$s', 'run-a', 'total', 'usd', false, 40, NULL, 'ann'); ",
		    s->org, 300 + any(s, 500));
	both(buf_c(&b));
}

static void ask(struct scene *s)
{
	static const char *const ids[] = { "a", "b", "c", "d\"e", "f\\", "g{,}", "h", "i", "j", "k", "l",
		"NULL" };
	static const char *const keys[] = { NULL, "k0", "k1", "k1" }, *const runs[] = { NULL, NULL, "run-a" };
	s->calls = 2 + any(s, CALLS - 1);
	for (int i = 0; i < s->calls; i++) {
		s->request[i] = one_of(s, ids, 12); /* some of them twice */
		s->key[i] = one_of(s, keys, 4);
		s->run[i] = one_of(s, runs, 3);
		s->amount[i] = any(s, 5) * 50;
		s->tokens[i] = any(s, 4) * 100;
	}
}

static void text(struct buf *b, const struct scene *s, const char *name, bool of_org)
{
	if (name == NULL)
		(void)buf_str(b, "NULL");
	else
		(void)buf_fmt(b, "'%s%s%s'", of_org ? s->org : "", of_org ? "-" : "", name);
}

enum column { REQUEST, KEY, RUN, PROVIDER, AMOUNT, TOKENS, ZERO, HALF, ESTIMATED };
static void value(struct buf *b, const struct scene *s, enum column what, int i)
{
	switch (what) {
	case REQUEST:
		text(b, s, s->request[i], false);
		return;
	case KEY:
		text(b, s, s->key[i], true);
		return;
	case RUN:
		text(b, s, s->run[i], false);
		return;
	case PROVIDER:
		text(b, s, "p", false);
		return;
	case AMOUNT:
		(void)buf_fmt(b, "%d::bigint", s->amount[i]);
		return;
	case TOKENS:
		(void)buf_fmt(b, "%d::bigint", s->tokens[i]);
		return;
	case ZERO:
		(void)buf_str(b, "0::bigint");
		return;
	case HALF:
		(void)buf_fmt(b, "%d::bigint", s->amount[i] / 2);
		return;
	case ESTIMATED:
		(void)buf_str(b, i % 2 ? "true" : "false");
		return;
	}
}

static void column(struct buf *b, const struct scene *s, enum column what, const char *type)
{
	(void)buf_str(b, ", ARRAY[");
	for (int i = 0; i < s->calls; i++) {
		(void)buf_str(b, i == 0 ? "" : ", ");
		value(b, s, what, i);
	}
	(void)buf_fmt(b, "]::%s[]", type);
}

#define SAID                                                                                                 \
	"INSERT INTO said (line) SELECT (m.verdict, m.what, m.warned, m.limits[1:2], m.limits[4:5], "        \
	"m.run)::text FROM "

static void one_by_one(const struct scene *s, struct buf *b)
{
	for (int i = 0; i < s->calls; i++) {
		(void)buf_fmt(b, SAID "money_reserve('%s', ", s->org);
		value(b, s, REQUEST, i);
		(void)buf_str(b, ", '', 'usd', false, ");
		value(b, s, KEY, i);
		(void)buf_str(b, ", ");
		value(b, s, RUN, i);
		(void)buf_fmt(b, ", NULL, %d, %d, '%s', 'gat_t', '%s') m; ", s->amount[i], s->tokens[i],
		    s->mode, s->limits);
	}
}

static void together(const struct scene *s, struct buf *b)
{
	(void)buf_fmt(
	    b, SAID "money_admit('%s', '', 'usd', false, '%s', 'gat_t', '%s'", s->org, s->mode, s->limits);
	column(b, s, REQUEST, "text");
	column(b, s, KEY, "text");
	column(b, s, RUN, "text");
	(void)buf_fmt(b, ", array_fill(NULL::text, ARRAY[%d])", s->calls);
	column(b, s, AMOUNT, "bigint");
	column(b, s, TOKENS, "bigint");
	(void)buf_str(b, ") m ORDER BY m.at; ");
}

static void settle_one_by_one(const struct scene *s, struct buf *b)
{
	for (int i = 0; i < s->calls; i++) {
		(void)buf_fmt(b, "INSERT INTO said (line) SELECT (m)::text FROM money_settle('%s', ", s->org);
		value(b, s, REQUEST, i);
		(void)buf_str(b, ", '', 'usd', false, ");
		value(b, s, KEY, i);
		(void)buf_str(b, ", ");
		value(b, s, RUN, i);
		(void)buf_fmt(b, ", 'p', 'p', '{%d,0,0,%d,0}', %d, %s, false, true) m; ", s->tokens[i],
		    s->amount[i] / 2, s->amount[i], i % 2 ? "true" : "false");
	}
}

static void settle_together(const struct scene *s, struct buf *b)
{
	static const enum column tokens[] = { TOKENS, ZERO, ZERO, HALF, ZERO, AMOUNT };
	(void)buf_fmt(b,
	    "INSERT INTO said (line) SELECT (m.verdict, m.cost, m.soft)::text FROM money_close('%s', '', "
	    "'usd', false, false, true",
	    s->org);
	column(b, s, REQUEST, "text");
	column(b, s, KEY, "text");
	column(b, s, RUN, "text");
	column(b, s, PROVIDER, "text");
	column(b, s, PROVIDER, "text");
	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
		column(b, s, tokens[i], "bigint");
	column(b, s, ESTIMATED, "boolean");
	(void)buf_str(b, ") m ORDER BY m.at; ");
}

static void compare(struct scene *s, const char *what, void (*old)(const struct scene *s, struct buf *b),
    void (*new)(const struct scene *s, struct buf *b))
{
	auto_buf struct buf a = BUF(TEXT_BYTES), b = BUF(TEXT_BYTES);
	old(s, &a);
	new (s, &b);
	run(before, buf_c(&a));
	run(mt.pool, buf_c(&b));
	assert_same(what, buf_c(&b));
	say_state(s->org);
	assert_same("what is known after verdicts", buf_c(&b));
}

/* BIL-1, BIL-5, MOD-11: verdicts, limits, and all that is written. Some are settled that were never let in, and some twice. */
static void together_is_as_one_by_one(void **state_)
{
	(void)state_;
	for (int i = 0; i < ROUNDS; i++) {
		struct scene s = { .seed = (unsigned)i + 1 };
		make(&s, i);
		for (int k = 0; k < 2; k++) {
			ask(&s);
			compare(&s, "verdicts", one_by_one, together);
			compare(&s, "settlements", settle_one_by_one, settle_together);
		}
	}
	the_books_are_right();
}

/* A fault of one is told of, and the others are none: it is asked one by one. */
static void a_call_that_the_database_refuses_takes_no_other_with_it(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	char long_id[300];
	memset(long_id, 'x', sizeof long_id - 1);
	long_id[sizeof long_id - 1] = 0;
	struct gate_ask bad = ask_of(m, slug, 10), good = ask_of(m, slug, 10);
	bad.request_id = long_id;
	struct err e = { 0 };
	struct gate_call *none = NULL;
	assert_int_equal(gate_reserve(mt.gate, &bad, &none, NULL, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_int_equal(settle(reserve(&good), 10), 10);
	the_books_are_right();
}

/*
 * From here on that table refuses rows of requests "bad-…". Rows are counted as they are tried, those of a statement that fails too: a
 * sequence is not rolled back.
 */
static void refuse_bad(const char *table)
{
	sql("CREATE SEQUENCE tried_%1$s; CREATE FUNCTION try_%1$s() RETURNS trigger LANGUAGE plpgsql AS $$ "
	    "BEGIN PERFORM "
	    "nextval('tried_%1$s'); IF NEW.request LIKE 'bad-%%' THEN RAISE EXCEPTION 'bad'; END IF; RETURN "
	    "NEW; END $$; "
	    "CREATE TRIGGER tried BEFORE INSERT ON %1$s FOR EACH ROW EXECUTE FUNCTION try_%1$s()",
	    table);
}

/* Since it was asked last; asking counts, too. */
static long long tries(const char *table)
{
	static const struct pg_stmt q = { "t_tries", "SELECT nextval($1::regclass)", 1 };
	static long long last_of[2];
	long long *last = &last_of[strcmp(table, "reservations") == 0];
	struct err e = { 0 };
	char name[40];
	(void)snprintf(name, sizeof name, "tried_%s", table);
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG(db, &q, &e, name);
	assert_non_null(r);
	long long n = pg_int(r, 0, 0) - *last - 1;
	*last += n + 1;
	return n;
}

enum { MIXED = 9, BAD = 4 };
struct mixed {
	const char *slug;
	struct gate_ask asks[MIXED];
	struct gate_call *calls[MIXED];
	struct err errs[MIXED];
	atomic_int here, back;
};

/* The last one holds the account's row until all others have come, so that they are asked for together. */
static void come(void *arg, int i)
{
	struct mixed *x = arg;
	if (i < MIXED) {
		(void)atomic_fetch_add(&x->here, 1);
		(void)gate_reserve(mt.gate, &x->asks[i], &x->calls[i], NULL, &x->errs[i]);
		(void)atomic_fetch_add(&x->back, 1);
		return;
	}
	static const struct pg_stmt q = { "t_lock", "SELECT 1 FROM accounts WHERE org = $1 FOR UPDATE", 1 };
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	assert_int_equal(pg_begin(db, &e), 0);
	auto_res struct pg_res *r = PG(db, &q, &e, x->slug);
	assert_non_null(r);
	/* All may be back before the row was held: then they come again. */
	while (atomic_load(&x->back) < MIXED && (atomic_load(&x->here) < MIXED || !somebody_waits()))
		(void)poll(NULL, 0, 5);
	assert_int_equal(pg_commit(db, &e), 0);
}

/* refused: one of nine is, by the database; each of the others has its reservation. */
static void come_together(struct mem *m, struct mixed *x, bool refused)
{
	atomic_store(&x->here, 0);
	atomic_store(&x->back, 0);
	for (int i = 0; i < MIXED; i++) {
		x->asks[i] = ask_of(m, x->slug, 10);
		x->calls[i] = NULL;
		x->errs[i] = (struct err){ 0 };
	}
	x->asks[BAD].request_id = mem_fmt(m, "bad-%s", x->asks[BAD].request_id);
	at_once(MIXED + 1, come, x);
	for (int i = 0; i < MIXED; i++) {
		bool is_bad = refused && i == BAD;
		assert_int_equal(x->errs[i].code, is_bad ? ERR_INTERNAL : ERR_NONE);
		assert_true((x->calls[i] == NULL) == is_bad);
	}
}

/*
 * A statement for many fails for one of them, and nothing of it is kept: each is asked for by itself, so that nobody else fails and
 * nobody is there twice. Who comes when is the machine's choice: it is done until some were seen tried again.
 */
static void one_of_many_that_is_refused_neither_fails_nor_doubles_the_others(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct mixed x = { .slug = org(m, 100000) };
	long long good = 0, again = 0;
	refuse_bad("reservations");
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; again <= 0; good += MIXED - 1) {
		assert_true(clock_ms() < end);
		come_together(m, &x, true);
		again = tries("reservations") - MIXED; /* each once, the bad one too */
		assert_int_equal(RESERVED(x.slug), 10 * (MIXED - 1));
		for (int i = 0; i < MIXED; i++)
			if (x.calls[i] != NULL)
				assert_int_equal(settle(x.calls[i], 10), 10);
		quiet(x.slug);
	}
	assert_int_equal(BALANCE(x.slug), 100000 - 10 * good);
	sql("DROP TRIGGER tried ON reservations");
	the_books_are_right();
}

/* The same of settlements. What a call of ours cannot be charged for is in the log, and its reservation is the reaper's. */
static void one_of_many_that_cannot_be_settled_neither_fails_nor_doubles_the_others(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct mixed x = { .slug = org(m, 100000) };
	const struct gate_used used = used_of(10);
	long long good = 0, again = 0;
	refuse_bad("usage_rows");
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; again <= 0; good += MIXED - 1) {
		assert_true(clock_ms() < end);
		come_together(m, &x, false);
		for (int i = 0; i < MIXED; i++)
			gate_settle_later(x.calls[i], &used);
		int64_t deadline = clock_ms() + MONEYTEST_PATIENCE_MS;
		while (BALANCE(x.slug) != 100000 - 10 * (good + MIXED - 1) && clock_ms() < deadline)
			(void)poll(NULL, 0, 10);
		again = tries("usage_rows") - MIXED;
		assert_int_equal(BALANCE(x.slug), 100000 - 10 * (good + MIXED - 1));
	}
	sql("DROP TRIGGER tried ON usage_rows");
	sql("SELECT money_release('%1$s', request) FROM reservations WHERE org = '%1$s'", x.slug);
	the_books_are_right();
}

/* BIL-1: what its last call has reserved is let go before the next is judged, though its settlement lingers. */
static void who_calls_one_after_the_other_is_not_in_its_own_way(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *poor = org(m, 150), *limited = org(m, 100000), *budgeted = org(m, 100000);
	const struct gate_used used = used_of(1);
	sql("UPDATE orgs SET concurrent_calls = 1 WHERE slug = '%s'", limited);
	budget(budgeted, "org", "total", -1, 150);
	const char *const orgs[] = { poor, limited, budgeted };
	for (int i = 0; i < 3 * 30; i++) {
		struct gate_ask ask = ask_of(m, orgs[i % 3], 100);
		gate_settle_later(reserve(&ask), &used);
	}
	for (int i = 0; i < 3; i++)
		quiet(orgs[i]);
	assert_int_equal(BALANCE(poor), 120);
	the_books_are_right();
}

/* REL-5, REL-6: calls of the version before are under way, and its processes go on for a while. */
static void an_upgrade_finds_calls_under_way(void **s)
{
	(void)s;
	struct err e = { 0 };
	run(before,
	    "INSERT INTO orgs (slug, concurrent_calls) VALUES ('up', 9); SELECT money_credit('up', '', "
	    "'usd', false, 1000, 'k', 'x'); "
	    "SELECT money_budget('up', 'org', 'day', 'usd', false, NULL, 900, 'ann'); "
	    "SELECT money_reserve('up', 'c' || i, '', 'usd', false, NULL, NULL, NULL, 100, 10, 'closed', "
	    "'gat_old', '{0,0,0,0,0,0}') "
	    "FROM generate_series(1, 5) i; "
	    "UPDATE reservations SET noted = true, provider = 'p', model = 'm', used = '{7,0,0,0,0}', "
	    "millicents = 7, estimated = true "
	    "WHERE org = 'up' AND request = 'c5'");
	assert_true(migrate_up(before, migrations, &e) > 0);
	run(before,
	    "SELECT money_settle('up', 'c1', '', 'usd', false, NULL, NULL, 'p', 'm', '{5,0,0,0,0}', 5, "
	    "false, false, false); "
	    "SELECT money_reserve('up', 'c6', '', 'usd', false, NULL, NULL, NULL, 100, 10, 'closed', "
	    "'gat_old', '{0,0,0,0,0,0}'); "
	    "SELECT money_close('up', '', 'usd', false, false, false, '{c2,c6}', '{NULL,NULL}', "
	    "'{NULL,NULL}', '{p,p}', '{m,m}', "
	    "'{6,6}', '{0,0}', '{0,0}', '{0,0}', '{0,0}', '{6,6}', '{f,f}'); "
	    "SELECT money_release('up', 'c3'); SELECT money_reap('gat_old', false); SELECT "
	    "money_reap('gat_old', false); "
	    "INSERT INTO said (line) SELECT (balance, reserved, calls)::text FROM accounts WHERE org = 'up' "
	    "AND subject = ''; "
	    "INSERT INTO said (line) SELECT (spent, reserved)::text FROM budgets WHERE org = 'up'; "
	    "INSERT INTO said (line) SELECT (calls)::text FROM meters WHERE org = 'up'");
	auto_free char *text = said(before);
	assert_string_equal(text, "(976,0,0)\n(24,0)\n0");
	auto_pg struct pg *db = pg_take(before, 60000, &e);
	auto_json json_t *wrong = ledger_check(db, MONEYTEST_OLD_S, NULL, &e);
	if (json_array_size(wrong) != 0 || wrong == NULL)
		fail_msg("%s", wrong == NULL ? e.msg : json_string_value(json_array_get(wrong, 0)));
}

static int setup(void **s)
{
	struct err e = { 0 };
	char conninfo[600];
	size_t n = 0;
	if (moneytest_setup(s) != 0)
		return -1;
	sql("CREATE DATABASE before");
	(void)snprintf(conninfo, sizeof conninfo, "%s dbname=before", pgtest_conninfo(mt.server));
	before = pg_pool_new(conninfo, 2, 60000);
	while (migrations[n].name != NULL && strncmp(migrations[n].name, "0025", 4) != 0)
		n++;
	struct migration *set = xcalloc(n + 1, sizeof *set);
	memcpy(set, migrations, n * sizeof *set);
	if (migrate_up(before, set, &e) != (int)n)
		fail_msg("%s", e.msg);
	free(set);
	both("CREATE TABLE said (n bigint GENERATED ALWAYS AS IDENTITY, line text)");
	return 0;
}

static int teardown(void **s)
{
	pg_pool_free(before);
	return moneytest_teardown(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_is_as_one_by_one),
		cmocka_unit_test(a_call_that_the_database_refuses_takes_no_other_with_it),
		cmocka_unit_test(one_of_many_that_is_refused_neither_fails_nor_doubles_the_others),
		cmocka_unit_test(one_of_many_that_cannot_be_settled_neither_fails_nor_doubles_the_others),
		cmocka_unit_test(who_calls_one_after_the_other_is_not_in_its_own_way),
		cmocka_unit_test(an_upgrade_finds_calls_under_way),
	};
	return cmocka_run_group_tests_name("admit", tests, setup, teardown);
}
