#include "auth/limit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "auth/principal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/str.h"
#include "io/conf.h"
#include "sql/limit.h"

enum {
	TAKE_MS = 2000,
	FREE_MS = 5000,   /* how long it is believed that an org has no limit */
	DENIED_MS = 1000, /* and that it has nothing left: a raised limit is seen then */
	BUCKETS = 1024,
	LIMIT_MAX = 1000000000,
};

/* What this process knows of an org. */
struct tally {
	char org[LIMIT_ORG_SLUG + 1];
	long long most;
	int left;                              /* taken in advance, for use until minute_ms */
	int64_t minute_ms, free_ms, denied_ms; /* monotonic ends; what is past does not hold */
	SLIST_ENTRY(tally) in_bucket;
};
/* The module's one piece of state: an entry for every org that was seen, some hundred bytes each. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, tally) tallies[BUCKETS];

/* The lock is held. */
static struct tally *tally_of(const char *org)
{
	size_t at = hash_slot(org, BUCKETS);
	struct tally *t;
	SLIST_FOREACH(t, &tallies[at], in_bucket)
	if (strcmp(t->org, org) == 0)
		return t;
	t = xcalloc(1, sizeof *t);
	(void)snprintf(t->org, sizeof t->org, "%s", org);
	SLIST_INSERT_HEAD(&tallies[at], t, in_bucket);
	return t;
}

static int denied(const struct tally *t, int64_t now, struct err *e)
{
	(void)err_set(e, ERR_RATE,
	    "Your organisation may send %lld requests a minute and has done so; try again later.", t->most);
	e->retry_s = (int)((t->minute_ms - now + 999) / 1000);
	if (e->retry_s < 1)
		e->retry_s = 1;
	return -1;
}

/* 1: may pass; 0: ask the database; -1 with e: may not. */
static int known(const char *org, struct err *e)
{
	int64_t now = clock_ms();
	(void)pthread_mutex_lock(&lock);
	struct tally *t = tally_of(org);
	int rc = 1;
	if (t->free_ms > now)
		;
	else if (t->minute_ms > now && t->left > 0)
		t->left--;
	else if (t->denied_ms > now)
		rc = denied(t, now, e);
	else
		rc = 0;
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

/* now: from before the question, so that nothing is used after its minute. */
static int learn(const char *org, const struct pg_res *r, int64_t now, struct err *e)
{
	long long most = pg_int(r, 0, 0);
	int64_t minute_ms = now + pg_int(r, 0, 2);
	int rc = 0;
	(void)pthread_mutex_lock(&lock);
	struct tally *t = tally_of(org);
	t->most = most;
	if (most == 0) {
		t->free_ms = now + FREE_MS;
	} else if (pg_null(r, 0, 1)) {
		t->minute_ms = minute_ms;
		t->left = 0;
		t->denied_ms = now + DENIED_MS;
		rc = denied(t, now, e);
	} else {
		/* Another thread may have taken some of the same minute; this request is one of ours. */
		bool same = t->minute_ms > now && minute_ms - t->minute_ms < DENIED_MS;
		t->left = (same ? t->left : 0) + (int)pg_int(r, 0, 1) - 1;
		t->minute_ms = same && t->minute_ms < minute_ms ? t->minute_ms : minute_ms;
	}
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

int limit_request(struct ctx *c, const struct op *op, struct err *e)
{
	const struct principal *who = c->who;
	if (who == NULL || who->session != NULL || (op->flags & (OP_PUBLIC | OP_INTERNAL)) != 0)
		return 0;
	int rc = known(who->org, e);
	if (rc != 0)
		return rc > 0 ? 0 : -1;
	int64_t now = clock_ms();
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL
	    ? NULL
	    : PG(db, &q_limit_take, e, who->org,
		  pg_num(c->mem, conf_int(c->conf, "ORG_REQUESTS_PER_MINUTE")));
	if (r == NULL)
		return -1;
	return pg_rows(r) == 0 ? 0 : learn(who->org, r, now, e);
}

long long limit_known(const char *org)
{
	(void)pthread_mutex_lock(&lock);
	long long most = tally_of(org)->most;
	(void)pthread_mutex_unlock(&lock);
	return most;
}

int limit_runs(struct ctx *c, struct pg *db, long long *most, struct err *e)
{
	auto_res struct pg_res *r = PG(
	    db, &q_limit_runs, e, c->who->org, pg_num(c->mem, conf_int(c->conf, "ORG_CONCURRENT_RUNS")));
	*most = r == NULL || pg_rows(r) == 0 ? 0 : pg_int(r, 0, 0);
	return r == NULL ? -1 : 0;
}

/* As the statement wants it; NULL with e. */
static const char *wanted(const char *value, const char *option, struct err *e)
{
	long long n;
	if (value == NULL)
		return "keep";
	if (strcmp(value, "default") == 0 || str_int(value, 0, LIMIT_MAX, &n))
		return value;
	(void)err_set(e, ERR_BAD_REQUEST, "--%s takes a number from 0 (none) to %d, or \"default\".", option,
	    LIMIT_MAX);
	return NULL;
}

int limit_set(struct pg *db, const char *org, struct limit_org *limits, struct pg_res **row, struct err *e)
{
	const char *requests = wanted(limits->requests_per_minute, "requests-per-minute", e),
		   *runs = wanted(limits->concurrent_runs, "concurrent-runs", e),
		   *tokens = wanted(limits->tokens_per_minute, "tokens-per-minute", e),
		   *calls = wanted(limits->concurrent_calls, "concurrent-calls", e);
	auto_res struct pg_res *r = e->code != ERR_NONE
	    ? NULL
	    : PG(db, &q_limit_set, e, org, requests, runs, tokens, calls);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no org %.60s.", org);
	*limits = (struct limit_org){ pg_str(r, 0, 0), pg_str(r, 0, 1), pg_str(r, 0, 2), pg_str(r, 0, 3) };
	*row = steal(r);
	return 0;
}

int limit_key_set(struct pg *db, const char *org, const char *key, struct limit_key *limits,
    struct pg_res **row, struct err *e)
{
	const char *requests = wanted(limits->requests_per_minute, "requests-per-minute", e),
		   *tokens = wanted(limits->tokens_per_minute, "tokens-per-minute", e),
		   *calls = wanted(limits->concurrent_calls, "concurrent-calls", e);
	auto_res struct pg_res *r = e->code != ERR_NONE
	    ? NULL
	    : PG(db, &q_limit_key_set, e, org, key, requests, tokens, calls);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "The org %.60s has no key %.60s.", org, key);
	*limits = (struct limit_key){ pg_str(r, 0, 0), pg_str(r, 0, 1), pg_str(r, 0, 2) };
	*row = steal(r);
	return 0;
}
