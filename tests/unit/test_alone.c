/* A call that comes alone (0027, 0029): let in by a statement of its own where nothing is in the way, and at the same cost however much was used. */
#include "../t.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "../moneytest.h"
#include "base/buf.h"
#include "sql/money.h"

enum { TEXT_BYTES = 1 << 16 };

/* The statement for one that comes alone, and that for several, of which another one costs nothing: is it let in? -1 for a conflict. */
static int one(const char *slug, const char *request, const char *key, const char *amount, const char *limits)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG(db, &q_money_admit_one, &e, slug, "", "usd", "false", "closed",
	    "gat_t", limits, request, key, NULL, NULL, amount, "10");
	if (r == NULL)
		assert_int_equal(e.code, ERR_CONFLICT);
	return r == NULL ? -1 : pg_rows(r);
}

static int some(
    const char *slug, const char *request, const char *key, const char *amount, const char *limits)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG(db, &q_money_admit_some, &e, slug, "", "usd", "false", "closed",
	    "gat_t", limits, mem_fmt(m, "{%s,%s}", fresh(m), request),
	    key == NULL ? "{NULL,NULL}" : mem_fmt(m, "{NULL,%s}", key), "{NULL,r}", "{NULL,s}",
	    mem_fmt(m, "{0,%s}", amount), "{0,10}", amount, "2");
	if (r == NULL)
		assert_int_equal(e.code, ERR_CONFLICT);
	if (r != NULL && pg_rows(r) != 0)
		assert_int_equal(pg_rows(r), 2);
	return r == NULL ? -1 : pg_rows(r) / 2;
}
typedef int let_in(
    const char *slug, const char *request, const char *key, const char *amount, const char *limits);

/* BIL-1: whatever is in the way, it does nothing, and who can judge that is asked. */
static void only_where_nothing_is_in_the_way(let_in *alone)
{
	auto_mem struct mem *m = mem_new();
	static const char none[] = "{0,0,0,0,0,0}";
	static const char *const limits[] = { "{1,0,0,0,0,0}", "{0,1,0,0,0,0}", "{0,0,1,0,0,0}",
		"{0,0,0,1,0,0}", "{0,0,0,0,1,0}", "{0,0,0,0,0,1}" };
	static const char *const columns[] = { "tokens_per_minute", "concurrent_calls",
		"requests_per_minute" };
	const char *slug = org(m, 1000), *used = fresh(m), *open = fresh(m);
	char long_id[300];
	memset(long_id, 'x', sizeof long_id - 1);
	long_id[sizeof long_id - 1] = 0;
	sql("INSERT INTO credentials (id, org, kind, name, user_name, hash) VALUES ('%s-k', '%s', 'key', "
	    "'k', 'ann', "
	    "repeat('0', 64))",
	    slug, slug);
	const char *key = mem_fmt(m, "%s-k", slug);
	struct gate_ask ask = ask_of(m, slug, 100);
	ask.request_id = used;
	assert_int_equal(settle(reserve(&ask), 100), 100);
	assert_int_equal(alone(slug, open, key, "100", none), 1);
	assert_int_equal(alone(slug, open, key, "100", none), -1);
	assert_int_equal(alone(slug, used, key, "100", none), 0);
	assert_int_equal(alone(slug, fresh(m), key, "801", none), 0);
	assert_int_equal(alone(slug, fresh(m), key, "-1", none), 0);
	assert_int_equal(alone(slug, long_id, key, "1", none), 0);
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		assert_int_equal(alone(slug, fresh(m), key, "100", limits[i]), 0);
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
		sql("UPDATE orgs SET %s = 5 WHERE slug = '%s'", columns[i], slug);
		assert_int_equal(alone(slug, fresh(m), key, "100", none), 0);
		sql("UPDATE orgs SET %s = NULL WHERE slug = '%s'", columns[i], slug);
		sql("UPDATE credentials SET %s = 5 WHERE id = '%s'", columns[i], key);
		assert_int_equal(alone(slug, fresh(m), key, "100", none), 0);
		sql("UPDATE credentials SET %s = NULL WHERE id = '%s'", columns[i], key);
	}
	assert_int_equal(alone(slug, fresh(m), key, "800", none), 1);
	budget(slug, "org", "total", -1, 5000);
	assert_int_equal(alone(slug, fresh(m), key, "0", none), 0);
	assert_int_equal(RESERVED(slug), 900);
	the_books_are_right();
	sql("SELECT money_release('%s', request) FROM reservations WHERE org = '%s'", slug, slug);
}

static void one_alone_is_let_in_only_where_nothing_is_in_the_way(void **s)
{
	(void)s;
	only_where_nothing_is_in_the_way(one);
	only_where_nothing_is_in_the_way(some);
}

/* Who settles holds the account until the other waits for it. */
struct late {
	let_in *alone;
	const char *slug, *settled, *settling; /* settling: for so much */
	atomic_bool held;
	int rows;
};

static void settle_beside(void *arg, int i)
{
	struct late *l = arg;
	if (i > 0) {
		while (!atomic_load(&l->held))
			(void)poll(NULL, 0, 1);
		l->rows = l->alone(l->slug, l->settled, NULL, "100", "{0,0,0,0,0,0}");
		return;
	}
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = take();
	assert_int_equal(pg_begin(db, &e), 0);
	if (pg_script(db,
		mem_fmt(m,
		    "SELECT money_close('%s', '', 'usd', false, false, false, '{%s}', '{NULL}', '{NULL}', "
		    "'{p}', "
		    "'{m}', '{0}', '{0}', '{0}', '{0}', '{0}', '{%s}', '{f}')",
		    l->slug, l->settled, l->settling),
		&e) != 0)
		fail_msg("%s", e.msg);
	atomic_store(&l->held, true);
	while (!somebody_waits())
		(void)poll(NULL, 0, 1);
	assert_int_equal(pg_commit(db, &e), 0);
}

/* BIL-2: it began before the request was settled, and sees of it only that the account's row is another; also where nothing was charged and
 * no reservation ended. */
static void one_alone_that_waited_for_a_settlement_is_judged_anew(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	static const char *const costs[] = { "7", "0" };
	for (size_t i = 0; i < 8; i++) {
		struct late l = { .alone = i < 4 ? one : some,
			.slug = slug,
			.settled = fresh(m),
			.settling = costs[i % 2] };
		if (i % 4 < 2)
			assert_int_equal(l.alone(slug, l.settled, NULL, "100", "{0,0,0,0,0,0}"), 1);
		at_once(2, settle_beside, &l);
		assert_int_equal(l.rows, 0);
		assert_int_equal(l.alone(slug, l.settled, NULL, "100", "{0,0,0,0,0,0}"), 0);
		assert_int_equal(RESERVED(slug), 0);
	}
	assert_int_equal(BALANCE(slug), 1000 - 28);
	the_books_are_right();
}

/* A plan that was made with an empty table lives as long as its connection. */
static void a_call_costs_the_same_however_much_its_org_has_used(void **s)
{
	(void)s;
	auto_buf struct buf b = BUF(TEXT_BYTES);
	(void)buf_fmt(&b,
	    "SET LOCAL plan_cache_mode = force_generic_plan; PREPARE flush AS %s; PREPARE one AS %s; PREPARE "
	    "several AS %s; ",
	    q_money_flush.sql, q_money_admit_one.sql, q_money_admit_some.sql);
	(void)buf_str(&b,
	    "EXECUTE flush('{x}', '{y}'); EXECUTE one('x', '', 'usd', 'f', 'closed', 'g', '{0,0,0,0,0,0}', "
	    "'r', 'k', "
	    "NULL, NULL, '1', '1'); "
	    "INSERT INTO orgs (slug) VALUES ('much'); SELECT money_credit('much', '', 'usd', false, 9000, "
	    "'k', 'x'); "
	    "EXECUTE one('much', '', 'usd', 'f', 'closed', 'g', '{0,0,0,0,0,0}', 'r', 'k', NULL, 's', '1', "
	    "'1'); "
	    "EXECUTE several('much', '', 'usd', 'f', 'closed', 'g', '{0,0,0,0,0,0}', '{q,t}', '{k,k}', "
	    "'{NULL,NULL}', '{s,s}', '{1,1}', '{1,1}', '2', '2'); "
	    "SELECT money_admit('much', '', 'usd', false, 'closed', 'g', '{0,0,0,0,0,0}', '{a,b}', '{k,k}', "
	    "'{NULL,NULL}', "
	    "'{s,s}', '{1,1}', '{1,1}'); "
	    "SELECT money_close('much', '', 'usd', false, false, false, '{a,b,a}', '{NULL,NULL,NULL}', "
	    "'{NULL,NULL,NULL}', "
	    "'{p,p,p}', '{m,m,m}', '{1,1,1}', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{1,1,1}', "
	    "'{f,f,f}'); "
	    "EXECUTE flush('{much}', '{a}'); "
	    "DO $$ DECLARE v text; BEGIN SELECT string_agg(c.relname, ' ') INTO v FROM pg_class c WHERE "
	    "c.relname IN "
	    "('usage_rows', 'usage_rows_at', 'usage_rows_run', 'credentials', 'credentials_org') "
	    "AND pg_stat_get_xact_numscans(c.oid) > 0; IF v IS NOT NULL THEN RAISE EXCEPTION '% was read', "
	    "v; END IF; END $$");
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	if (pg_script(db, buf_c(&b), &e) != 0)
		fail_msg("%s", e.msg);
	sql("SELECT money_release(org, request) FROM reservations WHERE org = 'much'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_call_costs_the_same_however_much_its_org_has_used), /* while the tables are empty */
		cmocka_unit_test(one_alone_is_let_in_only_where_nothing_is_in_the_way),
		cmocka_unit_test(one_alone_that_waited_for_a_settlement_is_judged_anew),
	};
	return cmocka_run_group_tests_name("alone", tests, moneytest_setup, moneytest_teardown);
}
