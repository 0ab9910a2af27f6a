/*
 * The ledger: calls that are reserved and settled on one org's account by 32 clients, and by one, with the API's own code on a
 * PostgreSQL that writes to its disk: as the gateway does it, whose calls are settled by the gate's thread (a round ends when all are on
 * the disk); with each client waiting for the disk; and with the account's row locked until the disk has it, as one would write
 * it first. Afterwards the books must be right.
 */
#include "../t.h"

#include "bench.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../flow/stack.h"
#include "base/id.h"
#include "base/js.h"
#include "io/conf.h"
#include "money/gate.h"
#include "money/ledger.h"

enum { CLIENTS = 32, EACH = 60, ALONE = 300, ROUNDS = 5 };

static struct stack stack;
static struct stack_org org;
static struct pg_pool *pool;
static struct conf *conf;
static struct gate *gate;

/* ---- one call */

struct took {
	double reserve_us, settle_us;
};

static void reserved(struct took *t, struct gate_call **c)
{
	char id[ID_MAX];
	struct err e = { 0 };
	id_make("req", id);
	const struct gate_ask ask = {
		.org = org.slug, .request_id = id, .worst_millicents = 4000, .worst_tokens = 900
	};
	double begin = bench_now_us();
	if (gate_reserve(gate, &ask, c, NULL, &e) != 0)
		fail_msg("%s", e.msg);
	*t = (struct took){ bench_now_us() - begin, 0 };
}

static const struct gate_used used = { .provider = "bench",
	.model = "m",
	.price = { .input = 100000, .output = 200000 },
	.tokens = { .input = 500, .output = 500 } }; /* 150 millicents */

static void call_later(struct took *t)
{
	struct gate_call *c;
	reserved(t, &c);
	gate_settle_later(c, &used);
}

static void call(struct took *t)
{
	struct gate_call *c;
	struct err e = { 0 };
	reserved(t, &c);
	double begin = bench_now_us();
	if (gate_settle(c, &used, NULL, &e) != 0)
		fail_msg("%s", e.msg);
	t->settle_us = bench_now_us() - begin;
}

/* What one would write first: the charge waits for the disk with the row locked. */
static void call_on_disk(struct took *t)
{
	static const struct pg_stmt reserve = { "b_reserve",
		"SELECT * FROM money_reserve($1, $2, '', 'usd', false, NULL, NULL, NULL, 4000, 900, "
		"'closed', 'gat_bench', "
		"'{0,0,0,0,0,0}')",
		2 };
	static const struct pg_stmt settle = { "b_settle",
		"SELECT s.*, set_config('synchronous_commit', 'on', true) FROM money_settle($1, $2, '', "
		"'usd', false, NULL, NULL, "
		"'bench', 'm', '{500,0,0,500,0}', 150, false, false, false) s",
		2 };
	char id[ID_MAX];
	struct err e = { 0 };
	id_make("req", id);
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	double begin = bench_now_us();
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &reserve, &e, org.slug, id);
	double middle = bench_now_us();
	auto_res struct pg_res *s = r == NULL ? NULL : PG(db, &settle, &e, org.slug, id);
	if (s == NULL)
		fail_msg("%s", e.msg);
	*t = (struct took){ middle - begin, bench_now_us() - middle };
}

/* ---- rounds */

struct round {
	void (*call)(struct took *t);
	int clients, each;
	struct took took[CLIENTS * ALONE];
	int n;
};
struct client {
	pthread_t thread;
	struct round *r;
	struct took *took;
};

static void *client(void *arg)
{
	struct client *c = arg;
	for (int i = 0; i < c->r->each; i++)
		c->r->call(&c->took[i]);
	return NULL;
}

/* A reservation goes away with its settlement; the flush of the last ones is not waited for. */
static void until_all_are_settled(void)
{
	static const struct pg_stmt open = { "b_open", "SELECT count(*) FROM reservations", 0 };
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	for (long long n = 1; n > 0; (void)poll(NULL, 0, 1)) {
		auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &open, &e);
		if (r == NULL)
			fail_msg("%s", e.msg);
		n = pg_int(r, 0, 0);
	}
}

static long all_call(struct bench_side *s)
{
	struct round *r = s->arg;
	struct client c[CLIENTS];
	for (int i = 0; i < r->clients; i++) {
		c[i] = (struct client){ .r = r, .took = r->took + (ptrdiff_t)i * r->each };
		assert_int_equal(pthread_create(&c[i].thread, NULL, client, &c[i]), 0);
	}
	for (int i = 0; i < r->clients; i++)
		assert_int_equal(pthread_join(c[i].thread, NULL), 0);
	r->n = r->clients * r->each;
	if (r->call == call_later)
		until_all_are_settled();
	for (int i = 0; i < r->n; i++)
		bench_took(s, r->took[i].reserve_us + r->took[i].settle_us);
	return r->n;
}

static double p50_of_reserves(const struct round *r)
{
	double *v = calloc((size_t)r->n, sizeof *v);
	assert_non_null(v);
	for (int i = 0; i < r->n; i++)
		v[i] = r->took[i].reserve_us;
	double p50 = bench_median(v, (size_t)r->n);
	free(v);
	return p50;
}

static struct bench_side side_of(struct round *r, const char *name)
{
	return (struct bench_side){ .name = name,
		.round = all_call,
		.arg = r,
		.meters = { { "PostgreSQL", stack_pid(&stack, "pg") }, { "the gate", 0 } } };
}

static void the_books_are_right(void)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_json json_t *wrong = db == NULL ? NULL : ledger_check(db, 3600, NULL, &e);
	if (json_array_size(wrong) != 0 || wrong == NULL)
		fail_msg("%s", wrong == NULL ? e.msg : json_string_value(json_array_get(wrong, 0)));
	bench_say("Afterwards the books were right: the sum of all entries is zero, nothing is overspent or "
		  "left reserved.");
}

static void measure(void **state)
{
	(void)state;
	static struct round later = { .call = call_later, .clients = CLIENTS, .each = EACH },
			    many = { .call = call, .clients = CLIENTS, .each = EACH },
			    disk = { .call = call_on_disk, .clients = CLIENTS, .each = EACH },
			    one = { .call = call, .clients = 1, .each = ALONE };
	struct bench_side sides[] = { side_of(&later, "32 clients, settled by the gate's thread"),
		side_of(&many, "32 clients, each waits for the disk"),
		side_of(&disk, "32 clients, the row locked until the disk has it") };
	bench_compare("Calls reserved and settled on one account", "call", sides, 3, ROUNDS);
	bench_at_least("Settled calls per second, 32 clients that each wait until it is durable, one account",
	    1e6 / sides[1].us, 500, "/s");
	bench_note(
	    "… none waiting, as the gateway does it, until the last is settled", 1e6 / sides[0].us, "/s");
	bench_note("… the row locked until the disk has it", 1e6 / sides[2].us, "/s");
	bench_note("Reservation, 32 clients, p50", p50_of_reserves(&later), "us");
	struct bench_side alone[] = { side_of(&one, "one client") };
	bench_compare("Calls by one client", "call", alone, 1, ROUNDS);
	bench_note("Reservation, one client, p50", p50_of_reserves(&one), "us");
	bench_note("Reservation and durable settlement, one client, p50", alone[0].p50_us, "us");
	bench_note("CPU of the gate's own process a call, both steps", alone[0].cpu_us[1], "us");
	the_books_are_right();
}

static int setup(void **state)
{
	(void)state;
	struct err e = { 0 };
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &org);
	stack_cli(
	    &stack, (const char *const[]){ "org", "credit", org.slug, "1000000.00usd", NULL }, &BUF(1000));
	assert_int_equal(setenv("BILLING_MODE", "closed", 1), 0);
	conf = conf_load("/dev/null", &e);
	assert_non_null(conf);
	pool = stack_pool(&stack, CLIENTS + 2);
	gate = gate_new(&(struct gate_opts){ .db = pool, .conf = conf });
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gate_free(gate, 5000);
	pg_pool_free(pool);
	conf_free(conf);
	stack_down(&stack);
	return 0;
}

int main(void)
{
	return bench_main("ledger", setup, measure, teardown);
}
