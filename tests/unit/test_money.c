/*
 * The gate before calls that cost (BIL-1, BIL-3, BIL-7): many clients at once, crashes of either side. Whatever a test did, the books
 * must prove right afterwards.
 */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "../moneytest.h"
#include "base/clock.h"
#include "base/js.h"
#include "money/keeper.h"
#include "sql/money.h"

/* ---- the gate */

static void a_call_costs_what_it_used(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask ask = ask_of(m, slug, 400);
	struct gate_call *c = reserve(&ask);
	assert_int_equal(BALANCE(slug), 1000);
	assert_int_equal(RESERVED(slug), 400);
	assert_int_equal(settle(c, 150), 150);
	assert_int_equal(BALANCE(slug), 850);
	assert_int_equal(RESERVED(slug), 0);
	the_books_are_right();
}

static void a_call_that_produced_nothing_costs_nothing(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask ask = ask_of(m, slug, 400);
	gate_release(reserve(&ask));
	assert_int_equal(BALANCE(slug), 1000);
	assert_int_equal(RESERVED(slug), 0);
	gate_release(reserve(&ask)); /* nothing was used: its id is free */
	the_books_are_right();
}

/* A charge is never lost, so the balance may go below zero by what was not foreseen. */
static void more_than_was_reserved_is_charged_too(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask ask = ask_of(m, slug, 1000), next = ask_of(m, slug, 1);
	assert_int_equal(settle(reserve(&ask), 1300), 1300);
	assert_int_equal(BALANCE(slug), -300);
	call_refused(&next, ERR_PAYMENT, "insufficient_quota");
	the_books_are_right();
}

static void a_refusal_says_what_is_needed_and_what_is_there(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask first = ask_of(m, slug, 700), second = ask_of(m, slug, 400);
	struct gate_call *c = reserve(&first), *none = NULL;
	struct err e = { 0 };
	assert_int_equal(gate_reserve(mt.gate, &second, &none, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "may cost 400 millicents: 300 are available and 700 reserved"));
	gate_release(c);
}

struct rush {
	const char *org;
	atomic_int in;
	struct gate_call *calls[64];
};
static void rush_in(void *arg, int i)
{
	struct rush *r = arg;
	auto_mem struct mem *m = mem_new();
	struct gate_ask ask = ask_of(m, r->org, 100);
	struct err e = { 0 };
	if (gate_reserve(mt.gate, &ask, &r->calls[i], NULL, &e) == 0)
		(void)atomic_fetch_add(&r->in, 1);
	else if (e.code != ERR_PAYMENT)
		(void)atomic_fetch_add(&r->in, 1000);
}

static void sixty_four_at_once_and_money_for_seven_are_seven(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct rush r = { .org = org(m, 799) };
	at_once(64, rush_in, &r);
	assert_int_equal(atomic_load(&r.in), 7);
	assert_int_equal(RESERVED(r.org), 700);
	for (int i = 0; i < 64; i++)
		if (r.calls[i] != NULL)
			assert_int_equal(settle(r.calls[i], 100), 100);
	assert_int_equal(BALANCE(r.org), 99);
	the_books_are_right();
}

static void one_request_id(void *arg, int i)
{
	struct rush *r = arg;
	struct gate_ask ask = { .org = r->org, .request_id = "the same", .worst_millicents = 10 };
	struct err e = { 0 };
	if (gate_reserve(mt.gate, &ask, &r->calls[i], NULL, &e) == 0)
		(void)atomic_fetch_add(&r->in, 1);
	else if (e.code != ERR_CONFLICT)
		(void)atomic_fetch_add(&r->in, 1000);
}

static void of_calls_with_one_request_id_one_is_let_in(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct rush r = { .org = org(m, 1000) };
	at_once(16, one_request_id, &r);
	assert_int_equal(atomic_load(&r.in), 1);
	for (int i = 0; i < 16; i++)
		if (r.calls[i] != NULL)
			(void)settle(r.calls[i], 10);
	struct gate_ask again = { .org = r.org, .request_id = "the same", .worst_millicents = 10 };
	call_refused(&again, ERR_CONFLICT, "request_id_used"); /* also when it is over */
	assert_int_equal(BALANCE(r.org), 990);
	the_books_are_right();
}

/* As by two processes that both believe the call to be theirs. */
static void settle_in_sql(void *arg, int i)
{
	struct rush *r = arg;
	struct err e = { 0 };
	(void)i;
	auto_pg struct pg *db = pg_take(mt.pool, 60000, &e);
	auto_res struct pg_res *q = db == NULL
	    ? NULL
	    : PG(db, &q_money_close, &e, r->org, "", "usd", "false", "false", "{twice}", "{NULL}", "{NULL}",
		  "{p}", "{m}", "{30}", "{0}", "{0}", "{0}", "{0}", "{30}", "{f}");
	if (q != NULL && strcmp(pg_str(q, 0, 1), "settled") == 0)
		(void)atomic_fetch_add(&r->in, 1);
	else if (q == NULL || strcmp(pg_str(q, 0, 1), "again") != 0 || pg_int(q, 0, 2) != 30)
		(void)atomic_fetch_add(&r->in, 1000);
}

static void a_call_is_charged_once_however_often_it_is_settled(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct rush r = { .org = org(m, 1000) };
	struct gate_ask ask = { .org = r.org, .request_id = "twice", .worst_millicents = 10 };
	struct gate_call *c = reserve(&ask);
	at_once(16, settle_in_sql, &r);
	assert_int_equal(atomic_load(&r.in), 1);
	assert_int_equal(settle(c, 700), 30); /* the first counts */
	assert_int_equal(BALANCE(r.org), 970);
	assert_int_equal(RESERVED(r.org), 0);
	the_books_are_right();
}

/* ---- modes, books */

static void mode(const char *value)
{
	struct err e = { 0 };
	assert_int_equal(setenv("BILLING_MODE", value, 1), 0);
	assert_int_equal(conf_reload(mt.conf, &e), 0);
}

static int check(const char *slug, struct err *e)
{
	auto_pg struct pg *db = take();
	err_clear(e);
	return gate_check(mt.conf, db, slug, NULL, e);
}

static void the_mode_says_what_becomes_of_calls_without_balance(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const char *slug = org(m, 0);
	struct gate_ask ask = ask_of(m, slug, 10), free_ = ask_of(m, slug, 0);
	call_refused(&ask, ERR_PAYMENT, "insufficient_quota");
	assert_int_equal(settle(reserve(&free_), 0), 0); /* what costs nothing needs no money */
	assert_int_equal(check(slug, &e), -1);
	assert_int_equal(e.code, ERR_PAYMENT);
	static const char *const others[] = { "warn", "open" };
	for (int i = 0; i < 2; i++) {
		mode(others[i]);
		struct gate_ask one = ask_of(m, slug, 10);
		assert_int_equal(settle(reserve(&one), 10), 10);
		assert_int_equal(BALANCE(slug), -10 * (i + 1)); /* charged in any mode */
		assert_int_equal(check(slug, &e), 0);
	}
	mode("closed");
	struct gate_ask overdrawn = ask_of(m, slug, 0);
	call_refused(&overdrawn, ERR_PAYMENT, "insufficient_quota");
	the_books_are_right();
}

/* ---- the hammer */

enum { HAMMERS = 32, BLOWS = 40 };
struct hammer {
	const char *orgs[3];
	long long credited[3];
	pthread_mutex_t lock;
	bool failed;
};

static void blow(struct hammer *h, unsigned *seed, struct mem *m)
{
	struct err e = { 0 };
	int at = (int)(rand_r(seed) % 3), what = (int)(rand_r(seed) % 10);
	long long amount = 1 + (long long)(rand_r(seed) % 50);
	if (what == 0) {
		auto_pg struct pg *db = pg_take(mt.pool, 60000, &e);
		const struct account a = { h->orgs[at], "", "usd", false };
		auto_json json_t *v = db == NULL ? NULL
						 : ledger_credit(db, &a, amount, fresh(m), "hammer", &e);
		(void)pthread_mutex_lock(&h->lock);
		h->credited[at] += v == NULL ? 0 : amount;
		h->failed = h->failed || v == NULL;
		(void)pthread_mutex_unlock(&h->lock);
		return;
	}
	struct gate_ask ask = ask_of(m, h->orgs[at], amount);
	struct gate_call *c;
	if (gate_reserve(mt.gate, &ask, &c, NULL, &e) != 0) {
		h->failed = h->failed || e.code != ERR_PAYMENT;
		return;
	}
	const struct gate_used used = used_of((long long)(rand_r(seed) % (int)(amount + 1)));
	if (what < 3)
		gate_release(c);
	else if (what < 5)
		gate_settle_later(c, &used);
	else
		h->failed = gate_settle(c, &used, NULL, &e) != 0 || h->failed;
}

static void hammer(void *arg, int i)
{
	unsigned seed = (unsigned)i * 7919u + 1;
	auto_mem struct mem *m = mem_new();
	for (int k = 0; k < BLOWS; k++)
		blow(arg, &seed, m);
}

/* BIL-7 */
static void whatever_thirty_two_clients_do_the_books_are_right(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct hammer h = { .orgs = { org(m, 300), org(m, 3000), org(m, 100000) },
		.credited = { 300, 3000, 100000 } };
	(void)pthread_mutex_init(&h.lock, NULL);
	at_once(HAMMERS, hammer, &h);
	assert_false(h.failed);
	for (int i = 0; i < 3; i++) {
		quiet(h.orgs[i]);
		struct err e = { 0 };
		auto_pg struct pg *db = take();
		auto_json json_t *rows = usage_list(db,
		    &(struct usage_ask){
			h.orgs[i], "day", "usd", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "", false },
		    9, &e);
		long long cost = 0;
		size_t k;
		json_t *v;
		json_array_foreach(rows, k, v)
			cost += js_int(v, "costMillicents", 0);
		assert_true(BALANCE(h.orgs[i]) >= 0); /* none overspent */
		assert_int_equal(BALANCE(h.orgs[i]), h.credited[i] - cost);
	}
	(void)pthread_mutex_destroy(&h.lock);
	the_books_are_right();
}

enum { LATERS = 32, EACH_LATER = 20 };

static void call_and_settle_later(void *arg, int i)
{
	(void)i;
	auto_mem struct mem *m = mem_new();
	for (int k = 0; k < EACH_LATER; k++) {
		struct gate_ask ask = ask_of(m, arg, 3);
		const struct gate_used used = used_of(2);
		gate_settle_later(reserve(&ask), &used);
	}
}

static void what_is_settled_later_is_settled(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 100000);
	at_once(LATERS, call_and_settle_later, mem_str(m, slug));
	quiet(slug);
	assert_int_equal(BALANCE(slug), 100000 - 2 * LATERS * EACH_LATER);
	the_books_are_right();
}

/* ---- bad days */

static void postgresql_restarting_in_the_middle_costs_no_charge(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct err e = { 0 };
	struct gate_ask ask = ask_of(m, slug, 100), other = ask_of(m, slug, 100),
			third = ask_of(m, slug, 100);
	struct gate_call *c = reserve(&ask), *d = reserve(&other);
	const struct gate_used used = used_of(60);
	(void)settle(d, 50); /* acknowledged: on the disk */
	pgtest_down(mt.server);
	struct gate_call *none = NULL;
	assert_int_equal(gate_reserve(mt.gate, &third, &none, NULL, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	assert_int_equal(gate_settle(c, &used, NULL, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	pgtest_up(mt.server);
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; BALANCE(slug) != 890; (void)poll(NULL, 0, 20))
		assert_true(clock_ms() < end);
	quiet(slug);
	the_books_are_right();
}

/* A commit that waits for no disk may be undone by a crash: the call is then charged without its reservation. */
static void a_reservation_that_was_lost_loses_no_charge(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask ask = ask_of(m, slug, 100);
	struct gate_call *c = reserve(&ask);
	sql("DELETE FROM reservations WHERE org = '%s'", slug);
	sql("UPDATE accounts SET reserved = 0, calls = 0 WHERE org = '%s'", slug);
	assert_int_equal(settle(c, 40), 40);
	assert_int_equal(BALANCE(slug), 960);
	the_books_are_right();
}

/* A process with three calls: what one has used is noted, another's not, the third is settled. It says when it is ready. */
static void victim(const char *slug, int ready)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	const char one = '!';
	mt.pool = pg_pool_new(pgtest_conninfo(mt.server), 2, 60000);
	mt.gate = gate_new(&(struct gate_opts){ .db = mt.pool, .conf = mt.conf });
	struct gate_ask a = { .org = slug, .request_id = "noted", .worst_millicents = 300, .run = "run_v" },
			b = { .org = slug, .request_id = "not noted", .worst_millicents = 300 },
			c = { .org = slug, .request_id = "settled", .worst_millicents = 300 };
	struct gate_call *noted = NULL, *plain = NULL, *settled = NULL;
	const struct gate_used ten = used_of(10), hundred = used_of(100), five = used_of(5);
	if (gate_reserve(mt.gate, &a, &noted, NULL, &e) != 0 ||
	    gate_reserve(mt.gate, &b, &plain, NULL, &e) != 0 ||
	    gate_reserve(mt.gate, &c, &settled, NULL, &e) != 0 || gate_settle(settled, &five, NULL, &e) != 0)
		_exit(1);
	gate_note(noted, &ten);
	gate_note(noted, &hundred);
	gate_note(noted, &ten);    /* never less than before */
	(void)poll(NULL, 0, 2500); /* two rounds of its thread, were it the only one here */
	_exit(write(ready, &one, 1) == 1 && poll(NULL, 0, 600000) == 0);
}

static void await_noted(const char *slug, const char *millicents)
{
	static const struct pg_stmt q = { "noted",
		"SELECT count(*) FROM reservations WHERE org = $1 AND noted AND millicents = $2::bigint", 2 };
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS;; (void)poll(NULL, 0, 20)) {
		struct err e = { 0 };
		auto_pg struct pg *db = take();
		auto_res struct pg_res *r = PG(db, &q, &e, slug, millicents);
		assert_non_null(r);
		if (pg_int(r, 0, 0) == 1)
			return;
		assert_true(clock_ms() < end);
	}
}

static void a_killed_process_leaves_what_is_known_and_once(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 1000);
	struct gate_ask mine = ask_of(m, slug, 50);
	struct gate_call *alive = reserve(&mine);
	budget(slug, "org", "day", 100, -1);
	int ready[2], status;
	char one;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		victim(slug, ready[1]);
	assert_int_equal(read(ready[0], &one, 1), 1);
	await_noted(slug, "100");
	assert_int_equal(RESERVED(slug), 650);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)close(ready[0]);
	(void)close(ready[1]);
	struct err e = { 0 };
	told.n = 0;
	struct keeper *k[2];
	for (int i = 0; i < 2; i++) /* of two hosts */
		k[i] = keeper_start(
		    &(struct gate_opts){ .db = mt.pool, .conf = mt.conf, .on_soft = on_soft }, &e);
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; RESERVED(slug) != 50; (void)poll(NULL, 0, 50))
		assert_true(clock_ms() < end);
	assert_int_equal(BALANCE(slug), 1000 - 5 - 100); /* our own call, which is alive, goes on */
	assert_int_equal(told.n, 1);
	assert_string_equal(told.last, "org day 105 of 100 run run_v");
	(void)settle(alive, 20);
	for (int i = 0; i < 2; i++)
		keeper_stop(k[i]);
	assert_int_equal(BALANCE(slug), 1000 - 5 - 100 - 20);
	the_books_are_right();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_costs_what_it_used),
		cmocka_unit_test(a_call_that_produced_nothing_costs_nothing),
		cmocka_unit_test(more_than_was_reserved_is_charged_too),
		cmocka_unit_test(a_refusal_says_what_is_needed_and_what_is_there),
		cmocka_unit_test(sixty_four_at_once_and_money_for_seven_are_seven),
		cmocka_unit_test(of_calls_with_one_request_id_one_is_let_in),
		cmocka_unit_test(a_call_is_charged_once_however_often_it_is_settled),
		cmocka_unit_test(the_mode_says_what_becomes_of_calls_without_balance),
		cmocka_unit_test(whatever_thirty_two_clients_do_the_books_are_right),
		cmocka_unit_test(what_is_settled_later_is_settled),
		cmocka_unit_test(postgresql_restarting_in_the_middle_costs_no_charge),
		cmocka_unit_test(a_reservation_that_was_lost_loses_no_charge),
		cmocka_unit_test(a_killed_process_leaves_what_is_known_and_once),
	};
	return cmocka_run_group_tests_name("money", tests, moneytest_setup, moneytest_teardown);
}
