#include "money/balance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "io/http.h"
#include "money/keeper_int.h"
#include "sql/money.h"

enum {
	KEPT_MS = (BALANCE_KEPT_S - 2) * 1000, /* the rest is for the statement that uses it */
	RENEW_MS = BALANCE_KEPT_S * 1000 / 2,
	DOUBT_MS = 1000,
	BACKOFF_MS = 500, /* after a failure, doubling */
	BACKOFF_MAX_MS = 8000,
	CONNECT_MS = 2000,
	TOTAL_MS = 3000,
	TAKE_MS = 2000,
	BUCKETS = 257,
	BUCKET_MAX = 64,
	REPLY_BYTES = 16 * 1024,
};

/* One account. It stays while somebody uses it; of a full bucket the one that was used longest ago goes. */
struct seen {
	TAILQ_ENTRY(seen) in;
	int users;
	bool asking, doubted;
	int64_t asked_ms; /* when the last question that was answered began; 0: none was */
	int64_t rest_ms;  /* until when nobody is asked after a failure */
	int fails;        /* in a row */
	char address[];
};
TAILQ_HEAD(bucket, seen);

static struct {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct bucket buckets[BUCKETS];
	bool ready;          /* the buckets are */
	atomic_bool cleared; /* nothing of an earlier setting stands in the rows */
	struct log_spell spell;
	_Atomic long long asked[2];
} known = { .lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER };
enum { ANSWERED, FAILED };

/* ---- what is known; the lock is held */

static struct bucket *bucket_of(const char *address)
{
	for (int i = 0; !known.ready && i < BUCKETS; i++)
		TAILQ_INIT(&known.buckets[i]);
	known.ready = true;
	return &known.buckets[hash_slot(address, BUCKETS)];
}

static void make_room(struct bucket *b)
{
	int n = 0;
	struct seen *s, *old = NULL;
	TAILQ_FOREACH(s, b, in)
	{
		n++;
		if (s->users == 0)
			old = s;
	}
	if (n < BUCKET_MAX || old == NULL)
		return;
	TAILQ_REMOVE(b, old, in);
	free(old);
}

static struct seen *find(struct bucket *b, const char *address)
{
	struct seen *s;
	TAILQ_FOREACH(s, b, in)
	if (strcmp(s->address, address) == 0)
		return s;
	return NULL;
}

static struct seen *use(const char *address)
{
	struct bucket *b = bucket_of(address);
	struct seen *s = find(b, address);
	if (s != NULL) {
		TAILQ_REMOVE(b, s, in);
	} else {
		make_room(b);
		s = xcalloc(1, sizeof *s + strlen(address) + 1);
		memcpy(s->address, address, strlen(address) + 1);
	}
	TAILQ_INSERT_HEAD(b, s, in);
	s->users++;
	return s;
}

static const char *address_of(struct mem *m, const struct account *a)
{
	return mem_fmt(m, "%s\n%s\n%s\n%d", a->org, a->subject, a->currency, (int)a->test);
}

/* ---- the service */

bool balance_elsewhere(const struct conf *conf)
{
	return conf_str(conf, "BILLING_BALANCE_URL")[0] != 0;
}

int balance_setup(const struct conf *conf, struct err *e)
{
	if (!balance_elsewhere(conf))
		return 0;
	if (conf_str(conf, "BILLING_REPORT_URL")[0] == 0)
		return err_set(e, ERR_BAD_REQUEST,
		    "BILLING_BALANCE_URL needs BILLING_REPORT_URL: who holds the balance must be told what "
		    "is "
		    "used.");
	struct secret *key = NULL;
	int rc = conf_secret(conf, "BILLING_BALANCE_KEY_FILE", &key, e);
	secret_free(key);
	return rc;
}

/* An answer about another account is none. */
static int read_answer(
    const struct http_res *res, const struct account *a, long long *available, struct err *e)
{
	struct err bad = { 0 };
	if (res->status != 200)
		return err_set(e, ERR_UNAVAILABLE, "The balance's service answered %d.", res->status);
	auto_json json_t *v = js_parse(buf_c(&res->body), res->body.n, &bad);
	const json_t *amount = js_get(v, "availableMillicents"), *test = js_get(v, "test");
	if (!json_is_integer(amount) || json_integer_value(amount) > LEDGER_AMOUNT_MAX ||
	    json_integer_value(amount) < -LEDGER_AMOUNT_MAX)
		return err_set(e, ERR_UNAVAILABLE, "The balance's service did not answer with a balance.");
	if (strcmp(js_str_or(v, "org", ""), a->org) != 0 ||
	    strcmp(js_str_or(v, "subject", "?"), a->subject) != 0 ||
	    strcmp(js_str_or(v, "currency", ""), a->currency) != 0 || !json_is_boolean(test) ||
	    json_is_true(test) != a->test)
		return err_set(e, ERR_UNAVAILABLE, "The balance's service answered for another account.");
	*available = json_integer_value(amount);
	return 0;
}

int balance_ask(const struct conf *conf, const struct account *a, long long *available, struct err *e)
{
	static const char *const headers[] = { "Accept: application/json", "Cache-Control: no-store", NULL };
	auto_mem struct mem *m = mem_new();
	const char *ca = conf_str(conf, "BILLING_BALANCE_CA_FILE");
	struct secret *key = NULL;
	struct http_res res = { 0 };
	if (conf_secret(conf, "BILLING_BALANCE_KEY_FILE", &key, e) != 0)
		return -1;
	int rc = http_do(
	    &(struct http_req){
		.method = "GET",
		.url = mem_fmt(m, "%s?org=%s&subject=%s&currency=%s&test=%s",
		    conf_str(conf, "BILLING_BALANCE_URL"), http_escape(m, a->org), http_escape(m, a->subject),
		    http_escape(m, a->currency), a->test ? "true" : "false"),
		.ca_file = ca[0] == 0 ? NULL : ca,
		.headers = headers,
		.bearer = key,
		.connect_ms = CONNECT_MS,
		.total_ms = TOTAL_MS,
		.max_reply_bytes = REPLY_BYTES,
	    },
	    &res, e);
	if (rc == 0)
		rc = read_answer(&res, a, available, e);
	http_res_free(&res);
	secret_free(key);
	return rc;
}

/*
 * What was charged before the question and not acknowledged, and what is charged from then on, may be unknown to whoever answers, so it
 * is subtracted: it can be missing twice until the next answer, and never be there twice.
 */
static int ask_and_keep(const struct conf *conf, struct pg_pool *pool, const struct account *a, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *test = a->test ? "true" : "false", *at;
	long long available = 0, ours;
	{
		auto_pg struct pg *db = pg_take(pool, TAKE_MS, e);
		auto_res struct pg_res *r = db == NULL
		    ? NULL
		    : PG(db, &q_balance_begin, e, a->org, a->subject, a->currency, test);
		if (r == NULL)
			return -1;
		ours = pg_int(r, 0, 0) + pg_int(r, 0, 1);
		at = mem_str(m, pg_str(r, 0, 2));
	}
	if (balance_ask(conf, a, &available, e) != 0)
		return -1;
	auto_pg struct pg *db = pg_take(pool, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL
	    ? NULL
	    : PG(db, &q_balance_keep, e, a->org, a->subject, a->currency, test, pg_num(m, available - ours),
		  at, available == 0 ? "false" : "true");
	return r == NULL ? -1 : 0;
}

/* ---- when to ask */

/* The lock is held, and is let go of while somebody is asked. */
static void ask_now(struct seen *s, const struct conf *conf, struct pg_pool *db, const struct account *a)
{
	struct err why = { 0 };
	long long times;
	int64_t begin = clock_ms();
	s->asking = true;
	(void)pthread_mutex_unlock(&known.lock);
	int rc = ask_and_keep(conf, db, a, &why);
	(void)atomic_fetch_add(&known.asked[rc == 0 ? ANSWERED : FAILED], 1);
	(void)pthread_mutex_lock(&known.lock);
	s->asking = false;
	if (rc == 0) {
		s->asked_ms = begin;
		s->doubted = false;
		s->fails = 0;
		s->rest_ms = 0;
	} else {
		int ms = s->fails > 4 ? BACKOFF_MAX_MS : BACKOFF_MS << s->fails;
		s->fails++;
		s->rest_ms = clock_ms() + ms;
	}
	if (rc == 0 && log_spell_works(&known.spell, &times))
		log_info("balances are answered again");
	if (rc != 0 && log_spell_fails(&known.spell, clock_ms(), &times))
		log_warn("a balance cannot be read", "org", a->org, "why", why.msg);
	(void)pthread_cond_broadcast(&known.answered);
}

static int64_t age(const struct seen *s)
{
	return s->asked_ms == 0 ? INT64_MAX : clock_ms() - s->asked_ms;
}

/* The lock is held. Waiting for who asks ends with TOTAL_MS and two statements. */
static int fresh(
    struct seen *s, const struct conf *conf, struct pg_pool *db, const struct account *a, struct err *e)
{
	for (;;) {
		bool doubt = s->doubted && age(s) >= DOUBT_MS, good = age(s) < KEPT_MS;
		if (!doubt && age(s) < RENEW_MS)
			return 0;
		if (s->asking && good && !doubt)
			return 0;
		if (s->asking) {
			(void)pthread_cond_wait(&known.answered, &known.lock);
			continue;
		}
		if (clock_ms() >= s->rest_ms)
			ask_now(s, conf, db, a);
		if (age(s) < KEPT_MS)
			return 0;
		return err_set(
		    e, ERR_UNAVAILABLE, "The balance cannot be read right now; try again in a moment.");
	}
}

/* The setting may have been there before this process. */
static int clear(struct pg_pool *pool, struct err *e)
{
	if (atomic_load(&known.cleared))
		return 0;
	auto_pg struct pg *db = pg_take(pool, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_balance_clear, e);
	if (r == NULL)
		return -1;
	atomic_store(&known.cleared, true);
	return 0;
}

int balance_fresh(const struct conf *conf, struct pg_pool *db, const struct account *a, struct err *e)
{
	if (!balance_elsewhere(conf))
		return clear(db, e);
	auto_mem struct mem *m = mem_new();
	const char *address = address_of(m, a);
	(void)pthread_mutex_lock(&known.lock);
	struct seen *s = use(address);
	int rc = fresh(s, conf, db, a, e);
	s->users--;
	(void)pthread_mutex_unlock(&known.lock);
	return rc;
}

int balance_gate(const struct conf *conf, struct pg_pool *db, const struct account *a, struct err *e)
{
	struct err why = { 0 };
	const char *mode = conf_str(conf, "BILLING_MODE");
	if (strcmp(mode, "open") == 0 || balance_fresh(conf, db, a, &why) == 0)
		return 0;
	if (strcmp(mode, "warn") != 0) {
		*e = why;
		return -1;
	}
	log_warn("work was let begin without knowing the balance", "org", a->org);
	return 0;
}

void balance_doubt(const struct conf *conf, const struct account *a)
{
	if (!balance_elsewhere(conf))
		return;
	auto_mem struct mem *m = mem_new();
	const char *address = address_of(m, a);
	(void)pthread_mutex_lock(&known.lock);
	struct seen *s = use(address);
	s->doubted = true;
	s->users--;
	(void)pthread_mutex_unlock(&known.lock);
}

int balance_credit_refused(const struct conf *conf, struct err *e)
{
	if (!balance_elsewhere(conf))
		return 0;
	(void)err_set(e, ERR_CONFLICT,
	    "Balances are held by another service (BILLING_BALANCE_URL); credit is given there.");
	e->reason = "balance_elsewhere";
	return -1;
}

void balance_metrics(struct buf *out)
{
	(void)buf_fmt(out,
	    "# TYPE gatehouse_money_balance_asked_total counter\n"
	    "gatehouse_money_balance_asked_total{result=\"answered\"} %lld\n"
	    "gatehouse_money_balance_asked_total{result=\"failed\"} %lld\n",
	    atomic_load(&known.asked[ANSWERED]), atomic_load(&known.asked[FAILED]));
}
