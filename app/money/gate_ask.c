/*
 * gate_ask.c - how calls are let in (gate.h). Who asks for an account that nobody asks for asks at once, for itself; who comes
 * meanwhile waits, and the first of those asks for all of them, in the order in which they came. So a process has one statement
 * under way for an account, whose row no two of its connections wait for.
 */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "base/str.h"
#include "money/balance.h"
#include "money/gate_int.h"
#include "sql/money.h"

enum {
	CALLS_RETRY_S = 1,
	VERDICT_BYTES = 12,
	WHAT_BYTES = 100,
	ARRAY_BYTES = 1 << 20,
	NUMBER_BYTES = 24,
	SKIPS = 31,
	SHORT_TRIES = 2
};

struct gate_verdict {
	char is[VERDICT_BYTES], what[WHAT_BYTES]; /* as money_admit says it */
	long long retry_ms;
	bool warned, metered;
	struct gate_limits limits;
	char *run; /* or NULL */
};
/* One who asks; it is on its own stack. */
struct asking {
	const struct gate_ask *ask;
	const struct gate_call *call;
	enum asking_is { ASKS, LEADS, ANSWERED } is; /* set before turn is posted */
	sem_t turn;                                  /* of one that waits */
	int rc;                                      /* -1: e, else the verdict */
	struct err e;
	struct gate_verdict v;
	TAILQ_ENTRY(asking) in_lane;
};
TAILQ_HEAD(askings, asking);
/* An account that somebody asks for: there is one who leads, and those who wait. */
struct gate_lane {
	const struct gate_call *leads;
	struct askings asking;
	LIST_ENTRY(gate_lane) in_gate;
};

/* ---- what the answer means */

/* Of an error that is set. */
static int refused(struct gate *g, int which, const char *reason, struct err *e)
{
	(void)atomic_fetch_add(&g->refused[which], 1);
	e->reason = reason;
	return -1;
}

static int too_fast(struct gate *g, const struct gate_verdict *v, struct err *e)
{
	bool calls = strcmp(v->is, "calls") == 0;
	if (calls)
		(void)err_set(e, ERR_RATE,
		    "As many model calls as allowed (%.20s) are under way; try again when one has ended.",
		    v->what);
	else if (strcmp(v->is, "requests") == 0)
		(void)err_set(e, ERR_RATE,
		    "The key may make %.20s model calls a minute and has done so; try again later.", v->what);
	else
		(void)err_set(e, ERR_RATE,
		    "%.20s tokens a minute are allowed, and this call does not fit in; try again later.",
		    v->what);
	/* How long a call takes nobody knows. */
	e->retry_s = calls ? CALLS_RETRY_S : (int)((v->retry_ms + 999) / 1000);
	if (e->retry_s < 1)
		e->retry_s = 1;
	return refused(g, GATE_REFUSED_RATE, calls ? "too_many_calls" : "rate_limited", e);
}

/* What is left is read a moment after the refusal, so it may be more by now. */
static int too_poor(struct gate *g, const struct gate_call *c, long long worst, struct err *e)
{
	struct err away = { 0 };
	balance_doubt(g->o.conf, &(struct account){ c->org, c->subject, c->currency, c->test });
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, &away);
	auto_res struct pg_res *r = db == NULL
	    ? NULL
	    : PG(db, &q_money_read, &away, c->org, c->subject, c->currency, c->test ? "true" : "false");
	if (r == NULL)
		(void)err_set(e, ERR_PAYMENT,
		    "The organisation's balance does not cover this call; add credit and try again.");
	else
		(void)err_set(e, ERR_PAYMENT,
		    "The organisation's balance does not cover this call, which may cost %lld millicents: "
		    "%lld are available and %lld reserved for calls under way; add credit and try again.",
		    worst, pg_rows(r) == 0 ? 0 : pg_int(r, 0, 2), pg_rows(r) == 0 ? 0 : pg_int(r, 0, 1));
	return refused(g, GATE_REFUSED_BALANCE, "insufficient_quota", e);
}

static int judge(
    struct gate *g, const struct gate_call *c, long long worst, const struct gate_verdict *v, struct err *e)
{
	if (strcmp(v->is, "ok") == 0)
		return 0;
	if (strcmp(v->is, "balance") == 0)
		return too_poor(g, c, worst, e);
	if (strcmp(v->is, "budget") == 0) {
		(void)err_set(e, ERR_PAYMENT, "This call would pass the budget of %.80s; %s.", v->what,
		    gate_budget_way_out(v->what));
		return refused(g, GATE_REFUSED_BUDGET, "budget_exceeded", e);
	}
	if (strcmp(v->is, "used") != 0)
		return too_fast(g, v, e);
	(void)err_set(e, ERR_CONFLICT, "A call with this request id was made already; take a new one.");
	e->reason = "request_id_used";
	return -1;
}

/* ---- asking */

/* What the settings say where a row says nothing, as money_admit takes it. */
static void settings(const struct conf *conf, struct buf *limits)
{
	static const char *const keys[] = { "ORG_TOKENS_PER_MINUTE", "ORG_CONCURRENT_CALLS",
		"KEY_REQUESTS_PER_MINUTE", "KEY_TOKENS_PER_MINUTE", "KEY_CONCURRENT_CALLS",
		"ORG_REQUESTS_PER_MINUTE" };
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		gate_array_num(limits, conf_int(conf, keys[i]));
}

/* The columns of calls, as all statements for several take them. */
enum { REQUESTS, KEYS, RUNS, SESSIONS, AMOUNTS, TOKENS, COLUMNS };
struct columns {
	struct buf of[COLUMNS];
	const char *text[COLUMNS];
};

static void columns_free(struct columns *c)
{
	for (size_t i = 0; i < COLUMNS; i++)
		buf_free(&c->of[i]);
}

static void columns_fill(struct columns *to, struct asking *const *all, int n)
{
	for (size_t i = 0; i < COLUMNS; i++)
		to->of[i] = BUF(ARRAY_BYTES);
	for (int i = 0; i < n; i++) {
		const struct gate_call *c = all[i]->call;
		gate_array(&to->of[REQUESTS], c->request);
		gate_array(&to->of[KEYS], c->key);
		gate_array(&to->of[RUNS], c->run);
		gate_array(&to->of[SESSIONS], c->session);
		gate_array_num(&to->of[AMOUNTS], all[i]->ask->worst_millicents);
		gate_array_num(&to->of[TOKENS], all[i]->ask->worst_tokens);
	}
	for (size_t i = 0; i < COLUMNS; i++)
		to->text[i] = gate_array_end(&to->of[i]);
}

static struct pg_res *ask_ledger(struct gate *g, struct asking *const *all, int n, struct err *e)
{
	const struct gate_call *first = all[0]->call;
	auto_buf struct buf limits = BUF(ARRAY_BYTES);
	AUTO(columns_free) struct columns c;
	settings(g->o.conf, &limits);
	columns_fill(&c, all, n);
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, e);
	return db == NULL ? NULL
			  : PG(db, &q_money_admit, e, first->org, first->subject, first->currency,
				first->test ? "true" : "false", conf_str(g->o.conf, "BILLING_MODE"), g->id,
				gate_array_end(&limits), c.text[REQUESTS], c.text[KEYS], c.text[RUNS],
				c.text[SESSIONS], c.text[AMOUNTS], c.text[TOKENS]);
}

static void read_verdict(const struct pg_res *r, int row, struct gate_verdict *v)
{
	(void)snprintf(v->is, sizeof v->is, "%s", pg_str(r, row, 1));
	(void)snprintf(v->what, sizeof v->what, "%s", pg_str(r, row, 2));
	v->retry_ms = pg_int(r, row, 3);
	v->warned = pg_bool(r, row, 4);
	v->limits.requests.limit = pg_int(r, row, 5);
	v->limits.requests.left = pg_int(r, row, 6);
	v->limits.requests.reset_s = (int)((pg_int(r, row, 7) + 999) / 1000);
	v->limits.tokens.limit = pg_int(r, row, 8);
	v->limits.tokens.left = pg_int(r, row, 9);
	v->limits.tokens.reset_s = (int)((pg_int(r, row, 10) + 999) / 1000);
	free(v->run);
	v->run = pg_null(r, row, 11) ? NULL : xstrdup(pg_str(r, row, 11));
	v->metered = pg_bool(r, row, 12);
}

/* ---- the short way */

/* Whether something was in the way of an org's last calls: then the next ones are not tried in the short way. */
static unsigned char *in_the_way(struct gate *g, const char *org)
{
	unsigned x = 2166136261u; /* FNV-1a */
	for (const char *s = org; *s != 0; s++)
		x = (x ^ (unsigned char)*s) * 16777619u;
	return &g->in_the_way[x % GATE_ORGS];
}

static bool try_short(struct gate *g, const char *org)
{
	(void)pthread_mutex_lock(&g->lock);
	unsigned char *left = in_the_way(g, org);
	bool is = *left == 0;
	if (!is)
		--*left;
	(void)pthread_mutex_unlock(&g->lock);
	return is;
}

static void not_short(struct gate *g, const char *org)
{
	(void)pthread_mutex_lock(&g->lock);
	*in_the_way(g, org) = SKIPS;
	(void)pthread_mutex_unlock(&g->lock);
}

static struct pg_res *ask_alone(struct gate *g, const struct asking *a, struct err *e)
{
	const struct gate_call *c = a->call;
	char amount[STR_NUM], tokens[STR_NUM];
	auto_buf struct buf limits = BUF(ARRAY_BYTES);
	settings(g->o.conf, &limits);
	(void)str_num(a->ask->worst_millicents, amount);
	(void)str_num(a->ask->worst_tokens, tokens);
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, e);
	return db == NULL
	    ? NULL
	    : PG(db, &q_money_admit_one, e, c->org, c->subject, c->currency, c->test ? "true" : "false",
		  conf_str(g->o.conf, "BILLING_MODE"), g->id, gate_array_end(&limits), c->request, c->key,
		  c->run, c->session, amount, tokens);
}

static struct pg_res *ask_some(struct gate *g, struct asking *const *all, int n, struct err *e)
{
	const struct gate_call *first = all[0]->call;
	char sum_text[NUMBER_BYTES], n_text[NUMBER_BYTES];
	auto_buf struct buf limits = BUF(ARRAY_BYTES);
	AUTO(columns_free) struct columns c;
	long long sum = 0;
	settings(g->o.conf, &limits);
	columns_fill(&c, all, n);
	for (int i = 0; i < n; i++)
		sum += all[i]->ask->worst_millicents;
	(void)snprintf(sum_text, sizeof sum_text, "%lld", sum);
	(void)snprintf(n_text, sizeof n_text, "%d", n);
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, e);
	return db == NULL ? NULL
			  : PG(db, &q_money_admit_some, e, first->org, first->subject, first->currency,
				first->test ? "true" : "false", conf_str(g->o.conf, "BILLING_MODE"), g->id,
				gate_array_end(&limits), c.text[REQUESTS], c.text[KEYS], c.text[RUNS],
				c.text[SESSIONS], c.text[AMOUNTS], c.text[TOKENS], sum_text, n_text);
}

/* Which run a session is of, the short way does not look up. */
static bool runs_known(struct asking *const *all, int n)
{
	for (int i = 0; i < n; i++)
		if (all[i]->call->session != NULL && all[i]->call->run == NULL)
			return false;
	return true;
}

/* Those that nothing is in the way of, in half the time of what can judge all. False: nothing was done, ask that. The first try does
 * nothing also where another process, or a settlement, is at the account at this moment. */
static bool let_in_short(struct gate *g, struct asking *const *all, int n)
{
	if (!runs_known(all, n) || !try_short(g, all[0]->call->org))
		return false;
	for (int try = 0; try < SHORT_TRIES; try++) {
		struct err why = { 0 };
		auto_res struct pg_res *r = n == 1 ? ask_alone(g, all[0], &why) : ask_some(g, all, n, &why);
		if (r == NULL && why.code != ERR_UNAVAILABLE)
			return false;
		if (r != NULL && pg_rows(r) == 0)
			continue;
		for (int i = 0; i < n; i++) {
			free(all[i]->v.run);
			all[i]->v = (struct gate_verdict){ .is = "ok" };
			all[i]->rc = r == NULL ? -1 : 0;
			all[i]->e = why;
		}
		return true;
	}
	not_short(g, all[0]->call->org);
	return false;
}

/* ---- all who ask */

/* One that PostgreSQL refuses, our own fault, takes no other with it. */
static void ask_for(struct gate *g, struct asking *const *all, int n)
{
	struct err why = { 0 };
	if (let_in_short(g, all, n))
		return;
	auto_res struct pg_res *r = ask_ledger(g, all, n, &why);
	if (r == NULL && n > 1 && why.code != ERR_UNAVAILABLE) {
		for (int i = 0; i < n; i++)
			ask_for(g, &all[i], 1);
		return;
	}
	for (int i = 0; i < n; i++) {
		all[i]->rc = -1;
		all[i]->e = why;
	}
	for (int i = 0; r != NULL && i < pg_rows(r); i++) {
		struct asking *a = all[pg_int(r, i, 0)];
		read_verdict(r, i, &a->v);
		a->rc = 0;
	}
}

/* The lock is held. */
static struct gate_lane *lane_of(struct gate *g, const struct gate_call *c)
{
	struct gate_lane *l;
	LIST_FOREACH(l, &g->lanes, in_gate)
	if (gate_same_account(l->leads, c))
		return l;
	return NULL;
}

/* The lock is held. Whoever waits longest leads from now on, and is to be woken; NULL: nobody waits. */
static struct asking *pass_on(struct gate_lane *l)
{
	struct asking *next = TAILQ_FIRST(&l->asking);
	if (next == NULL) {
		LIST_REMOVE(l, in_gate);
		free(l);
		return NULL;
	}
	TAILQ_REMOVE(&l->asking, next, in_lane);
	l->leads = next->call;
	return next;
}

/* It may be gone as soon as it knows. */
static void wake(struct asking *a, enum asking_is is)
{
	a->is = is;
	(void)sem_post(&a->turn);
}

/* For oneself and all that wait. They are woken without the lock, and need none: woken under it, each would only wait for it. */
static void lead(struct gate *g, struct gate_lane *l, struct asking *me)
{
	struct asking *all[GATE_TOGETHER] = { me };
	int n = 1;
	(void)pthread_mutex_lock(&g->lock);
	for (struct asking *a; n < GATE_TOGETHER && (a = TAILQ_FIRST(&l->asking)) != NULL; all[n++] = a)
		TAILQ_REMOVE(&l->asking, a, in_lane);
	(void)pthread_mutex_unlock(&g->lock);
	ask_for(g, all, n);
	(void)pthread_mutex_lock(&g->lock);
	struct asking *next = pass_on(l);
	(void)pthread_mutex_unlock(&g->lock);
	if (next != NULL)
		wake(next, LEADS);
	for (int i = 1; i < n; i++)
		wake(all[i], ANSWERED);
}

/* Its turn comes: each statement before it ends by its deadline. */
static void ask_in_turn(struct gate *g, struct asking *me)
{
	me->is = ASKS;
	(void)sem_init(&me->turn, 0, 0);
	(void)pthread_mutex_lock(&g->lock);
	struct gate_lane *l = lane_of(g, me->call);
	bool waits = l != NULL;
	if (waits) {
		TAILQ_INSERT_TAIL(&l->asking, me, in_lane);
	} else {
		l = xcalloc(1, sizeof *l);
		TAILQ_INIT(&l->asking);
		l->leads = me->call;
		LIST_INSERT_HEAD(&g->lanes, l, in_gate);
	}
	(void)pthread_mutex_unlock(&g->lock);
	while (waits && sem_wait(&me->turn) != 0)
		continue;
	if (!waits || me->is == LEADS)
		lead(g, l, me);
	(void)sem_destroy(&me->turn);
}

/* What lingers here until it is settled may be all that is in the way: then it is settled first. */
static bool may_be_held(const struct asking *a)
{
	static const char *const by[] = { "balance", "budget", "calls", "tokens" };
	for (size_t i = 0; a->rc == 0 && i < sizeof by / sizeof by[0]; i++)
		if (strcmp(a->v.is, by[i]) == 0)
			return true;
	return false;
}

static bool overfull(struct gate *g)
{
	(void)pthread_mutex_lock(&g->lock);
	bool is = g->queued >= GATE_QUEUE_MAX;
	(void)pthread_mutex_unlock(&g->lock);
	return is;
}

static int away(struct gate *g, struct err *e)
{
	(void)atomic_fetch_add(&g->refused[GATE_REFUSED_AWAY], 1);
	(void)err_set(e, ERR_UNAVAILABLE, "The ledger cannot be reached right now; try again in a moment.");
	return -1;
}

static int let_in(struct gate *g, struct asking *a, struct gate_call *c, struct err *e)
{
	if (a->rc != 0)
		*e = a->e;
	if (a->rc != 0 || judge(g, c, a->ask->worst_millicents, &a->v, e) != 0)
		return -1;
	if (a->v.warned)
		log_warn("a model call without balance was let pass", "org", c->org, "request", c->request);
	if (c->run == NULL && a->v.run != NULL) {
		c->run = c->run_found = a->v.run;
		a->v.run = NULL;
	}
	c->prompt = a->v.metered;
	return 0;
}

int gate_reserve(struct gate *g, const struct gate_ask *ask, struct gate_call **call,
    struct gate_limits *limits, struct err *e)
{
	if (limits != NULL)
		*limits = (struct gate_limits){ 0 };
	if (overfull(g))
		return away(g, e);
	struct gate_call *c = gate_call_new(g, ask);
	const struct account account = { c->org, c->subject, c->currency, c->test };
	if (balance_gate(g->o.conf, g->o.db, &account, e) != 0) {
		(void)atomic_fetch_add(&g->refused[GATE_REFUSED_AWAY], 1);
		gate_call_free(c);
		return -1;
	}
	struct asking a = { .ask = ask, .call = c };
	long long rounds = atomic_load(
	    &g->rounds); /* what is settled while it is judged is too late for its verdict */
	ask_in_turn(g, &a);
	if (may_be_held(&a) && gate_hurry(g, c->org, rounds))
		ask_in_turn(g, &a);
	if (a.rc != 0 && a.e.code == ERR_UNAVAILABLE) {
		/* It may have been written: then nobody else knows of it. */
		free(a.v.run);
		gate_queue(c, GATE_RELEASE);
		return away(g, e);
	}
	if (a.rc == 0 && limits != NULL)
		*limits = a.v.limits;
	int rc = let_in(g, &a, c, e);
	free(a.v.run);
	if (rc != 0) {
		gate_call_free(c);
		return -1;
	}
	(void)pthread_mutex_lock(&g->lock);
	LIST_INSERT_HEAD(&g->open, c, in_open);
	(void)pthread_mutex_unlock(&g->lock);
	*call = c;
	crash_point("money.reserved");
	return 0;
}
