#include "money/gate_int.h"

#include <string.h>

#include "base/log.h"
#include "money/balance.h"
#include "sql/money.h"

/* ---- calls */

void gate_call_free(struct gate_call *call)
{
	free(call->run_found);
	free(call->soft);
	free(call->provider);
	free(call->model);
	free(call);
}

static const char *put(char **at, const char *s)
{
	if (s == NULL)
		return NULL;
	size_t n = strlen(s) + 1;
	char *mine = memcpy(*at, s, n);
	*at += n;
	return mine;
}

static size_t room(const char *s)
{
	return s == NULL ? 0 : strlen(s) + 1;
}

struct gate_call *gate_call_new(struct gate *g, const struct gate_ask *ask)
{
	const char *subject = ask->subject == NULL ? "" : ask->subject,
		   *currency = ask->currency == NULL ? GATE_CURRENCY : ask->currency;
	struct gate_call *c = xcalloc(1,
	    sizeof *c + room(ask->org) + room(subject) + room(currency) + room(ask->request_id) +
		room(ask->key) + room(ask->run) + room(ask->session));
	char *at = (char *)(c + 1);
	c->g = g;
	c->test = ask->test;
	c->org = put(&at, ask->org);
	c->subject = put(&at, subject);
	c->currency = put(&at, currency);
	c->request = put(&at, ask->request_id);
	c->key = put(&at, ask->key);
	c->run = put(&at, ask->run);
	c->session = put(&at, ask->session);
	return c;
}

bool gate_same_account(const struct gate_call *a, const struct gate_call *b)
{
	return a->test == b->test && strcmp(a->org, b->org) == 0 && strcmp(a->subject, b->subject) == 0 &&
	    strcmp(a->currency, b->currency) == 0;
}

/* ---- what was used */

static void take_name(char **to, const char *name)
{
	if (*to != NULL && strcmp(*to, name) == 0)
		return;
	free(*to);
	*to = xstrdup(name);
}

/* The lock is held, or nobody else knows the call any more. */
static void take_used(struct gate_call *c, const struct gate_used *used)
{
	take_name(&c->provider, used->provider);
	take_name(&c->model, used->model);
	c->tokens = used->tokens;
	c->millicents = price_of(&used->price, &used->tokens);
	c->estimated = used->estimated;
	c->noted = true;
}

void gate_note(struct gate_call *c, const struct gate_used *used)
{
	(void)pthread_mutex_lock(&c->g->lock);
	if (!c->noted || price_of(&used->price, &used->tokens) >= c->millicents) {
		take_used(c, used);
		c->dirty = true;
	}
	(void)pthread_mutex_unlock(&c->g->lock);
}

static void close_call(struct gate_call *c, const struct gate_used *used)
{
	(void)pthread_mutex_lock(&c->g->lock);
	LIST_REMOVE(c, in_open);
	(void)pthread_mutex_unlock(&c->g->lock);
	if (used != NULL)
		take_used(c, used);
}

/* ---- ending a call */

/* From here on the call is the thread's, which answers once. */
static void queue_for(struct gate_call *c, struct gate_wait *w)
{
	c->wait = w;
	gate_queue(c, GATE_SETTLE);
}

int gate_settle(struct gate_call *c, const struct gate_used *used, long long *millicents, struct err *e)
{
	struct gate *g = c->g;
	struct gate_wait wait = { .is = GATE_WAITING };
	close_call(c, used);
	queue_for(c, &wait);
	(void)pthread_mutex_lock(&g->lock);
	while (wait.is == GATE_WAITING)
		(void)pthread_cond_wait(&g->done, &g->lock);
	(void)pthread_mutex_unlock(&g->lock);
	if (wait.is == GATE_LATER)
		return err_set(e, ERR_UNAVAILABLE, "The charge is not stored yet; it will be.");
	if (millicents != NULL)
		*millicents = wait.cost;
	return 0;
}

void gate_settle_later(struct gate_call *c, const struct gate_used *used)
{
	close_call(c, used);
	gate_queue(c, GATE_SETTLE);
}

void gate_release(struct gate_call *c)
{
	if (c == NULL)
		return;
	close_call(c, NULL);
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(c->g->o.db, GATE_TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_money_release, &e, c->org, c->request);
	if (r == NULL) {
		gate_queue(c, GATE_RELEASE);
		return;
	}
	(void)atomic_fetch_add(&c->g->released, 1);
	gate_call_free(c);
}

/* ---- budgets */

const char *gate_budget_way_out(const char *what)
{
	const char *period = strrchr(what, ' ');
	return period != NULL && strcmp(period, " total") == 0
	    ? "raise it, or remove it: it has no next period"
	    : "raise it, or wait for its next period";
}

/* ---- native ops */

int gate_check(const struct conf *conf, struct pg *db, const char *org, const char *key, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_money_check, e, org, key);
	if (r == NULL)
		return -1;
	const char *mode = conf_str(conf, "BILLING_MODE");
	if (!pg_null(r, 0, 1)) {
		(void)err_set(e, ERR_PAYMENT, "The budget of %.80s is used up; %s.", pg_str(r, 0, 1),
		    gate_budget_way_out(pg_str(r, 0, 1)));
		e->reason = "budget_exceeded";
		return -1;
	}
	if (pg_int(r, 0, 0) > 0 || strcmp(mode, "open") == 0)
		return 0;
	if (strcmp(mode, "warn") == 0) {
		log_warn("work without balance was let begin", "org", org);
		return 0;
	}
	balance_doubt(conf, &(struct account){ org, "", GATE_CURRENCY, false });
	(void)err_set(e, ERR_PAYMENT, "The organisation has no balance; add credit and try again.");
	e->reason = "insufficient_quota";
	return -1;
}
