#include "moneytest.h"

#include "t.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "money/budget.h"

struct moneytest mt;
struct moneytest_told told;
static int made;

void sql(const char *text, ...)
{
	char s[2000];
	va_list ap;
	va_start(ap, text);
	(void)vsnprintf(s, sizeof s, text, ap);
	va_end(ap);
	pgtest_sql(mt.server, s);
}

struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(mt.pool, 60000, &e);
	assert_non_null(db);
	return db;
}

bool somebody_waits(void)
{
	static const struct pg_stmt q = { "t_waits",
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND "
		"wait_event_type = 'Lock'",
		0 };
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG0(db, &q, &e);
	assert_non_null(r);
	return pg_bool(r, 0, 0);
}

/* A new org with so much in its pool. */
const char *org(struct mem *m, long long millicents)
{
	struct err e = { 0 };
	const char *slug = mem_fmt(m, "org-%d", ++made);
	sql("INSERT INTO orgs (slug) VALUES ('%s')", slug);
	if (millicents == 0)
		return slug;
	auto_pg struct pg *db = take();
	auto_json json_t *v = ledger_credit(
	    db, &(struct account){ slug, "", "usd", false }, millicents, "start", "test", &e);
	assert_non_null(v);
	return slug;
}

json_t *balance_of(const struct account *a)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	json_t *v = ledger_balance(db, a, &e);
	assert_non_null(v);
	return v;
}

long long number(const char *slug, const char *member)
{
	auto_json json_t *v = balance_of(&(struct account){ slug, "", "usd", false });
	return js_int(v, member, -1);
}

const char *fresh(struct mem *m)
{
	char id[ID_MAX];
	id_make("req", id);
	return mem_str(m, id);
}

struct gate_ask ask_of(struct mem *m, const char *slug, long long worst)
{
	return (struct gate_ask){
		.org = slug, .request_id = fresh(m), .worst_millicents = worst, .worst_tokens = 100
	};
}

/* So many millicents: a token costs one. */
struct gate_used used_of(long long millicents)
{
	return (struct gate_used){ .provider = "p",
		.model = "m",
		.price = { .input = PRICE_PER_TOKENS },
		.tokens = { .input = millicents } };
}

struct gate_call *reserve(const struct gate_ask *ask)
{
	struct err e = { 0 };
	struct gate_call *c = NULL;
	if (gate_reserve(mt.gate, ask, &c, NULL, &e) != 0)
		fail_msg("%s", e.msg);
	return c;
}

void call_refused(const struct gate_ask *ask, enum err_code code, const char *reason)
{
	struct err e = { 0 };
	struct gate_call *c = NULL;
	assert_int_equal(gate_reserve(mt.gate, ask, &c, NULL, &e), -1);
	assert_int_equal(e.code, code);
	assert_string_equal(e.reason, reason);
	assert_null(c);
}

long long settle(struct gate_call *c, long long millicents)
{
	struct err e = { 0 };
	long long cost = -1;
	const struct gate_used used = used_of(millicents);
	if (gate_settle(c, &used, &cost, &e) != 0)
		fail_msg("%s", e.msg);
	return cost;
}

void the_books_are_right(void)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	auto_json json_t *wrong = ledger_check(db, MONEYTEST_OLD_S, NULL, &e);
	assert_non_null(wrong);
	if (json_array_size(wrong) > 0)
		fail_msg("%s", json_string_value(json_array_get(wrong, 0)));
}

/* A client is a thread; they all begin at the same moment. */
struct clients {
	pthread_barrier_t start;
	void (*fn)(void *arg, int i);
	void *arg;
	atomic_int next;
};
static void *client(void *arg)
{
	struct clients *c = arg;
	int i = atomic_fetch_add(&c->next, 1);
	(void)pthread_barrier_wait(&c->start);
	c->fn(c->arg, i);
	return NULL;
}
void at_once(int n, void (*fn)(void *arg, int i), void *arg)
{
	pthread_t t[64];
	struct clients c = { .fn = fn, .arg = arg };
	assert_in_range(n, 1, 64);
	assert_int_equal(pthread_barrier_init(&c.start, NULL, (unsigned)n), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&t[i], NULL, client, &c), 0);
	for (int i = 0; i < n; i++)
		(void)pthread_join(t[i], NULL);
	(void)pthread_barrier_destroy(&c.start);
}

/* Until the gate's thread has done what it was given. */
void quiet(const char *slug)
{
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; RESERVED(slug) != 0; (void)poll(NULL, 0, 10))
		assert_true(clock_ms() < end);
}

void budget(const char *slug, const char *scope, const char *period, long long soft, long long hard)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take();
	const struct budget b = { slug, scope, period, "usd", false, soft, hard, "ann" };
	auto_json json_t *v = budget_put(db, &b, &e);
	if (v == NULL)
		fail_msg("%s", e.msg);
}

long long spend(struct mem *m, const char *slug, long long millicents)
{
	struct gate_ask ask = ask_of(m, slug, millicents);
	return settle(reserve(&ask), millicents);
}

void on_soft(void *arg, const struct gate_soft *s)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	(void)arg;
	(void)pthread_mutex_lock(&lock);
	told.n++;
	(void)snprintf(told.last, sizeof told.last, "%s %s %lld of %lld run %s", s->scope, s->period,
	    s->spent, s->soft, s->run == NULL ? "-" : s->run);
	(void)pthread_mutex_unlock(&lock);
}

int moneytest_setup(void **s)
{
	(void)s;
	struct err e = { 0 };
	assert_int_equal(setenv("BILLING_REAP_S", "5", 1), 0);
	assert_int_equal(setenv("BILLING_REPORT_EVERY_S", "1", 1), 0);
	mt.conf = conf_load("/dev/null", &e);
	if (mt.conf == NULL)
		fail_msg("%s", e.msg);
	mt.server = pgtest_start();
	mt.pool = pg_pool_new(pgtest_conninfo(mt.server), MONEYTEST_POOL, 20000);
	mt.gate = gate_new(&(struct gate_opts){ .db = mt.pool, .conf = mt.conf, .on_soft = on_soft });
	return 0;
}

int moneytest_teardown(void **s)
{
	(void)s;
	gate_free(mt.gate, 5000);
	pg_pool_free(mt.pool);
	pgtest_end(mt.server);
	conf_free(mt.conf);
	return 0;
}
