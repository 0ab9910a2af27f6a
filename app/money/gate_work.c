/* gate_work.c - the gate's thread: signs of life, notes, and what could not be settled when it was due. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/log.h"
#include "money/gate_int.h"
#include "sql/money.h"

enum { AGAIN_MS = 100 };

struct gate *gate_new(const struct gate_opts *o)
{
	struct gate *g = xcalloc(1, sizeof *g);
	g->o = *o;
	id_make("gat", g->id);
	LIST_INIT(&g->open);
	LIST_INIT(&g->lanes);
	TAILQ_INIT(&g->queue);
	(void)pthread_mutex_init(&g->lock, NULL);
	(void)pthread_cond_init(&g->work, NULL);
	(void)pthread_cond_init(&g->done, NULL);
	if (pthread_create(&g->thread, NULL, gate_thread, g) != 0)
		abort();
	return g;
}

/* The thread is woken for the first, to see how long it may linger, and where it may no longer. */
static void queue(struct gate_call *call, enum gate_todo todo, bool urgent)
{
	struct gate *g = call->g;
	call->todo = todo;
	(void)pthread_mutex_lock(&g->lock);
	call->nth = ++g->nth;
	if (g->queued == 0)
		g->first_ms = clock_ms();
	TAILQ_INSERT_TAIL(&g->queue, call, in_queue);
	g->queued++;
	if (g->queued == 1 || g->queued == GATE_BATCH || (urgent && !g->urgent))
		(void)pthread_cond_signal(&g->work);
	g->urgent = g->urgent || urgent;
	(void)pthread_mutex_unlock(&g->lock);
}

void gate_queue(struct gate_call *call, enum gate_todo todo)
{
	queue(call, todo, call->prompt || call->wait != NULL || todo == GATE_RELEASE);
}

/* The lock is held. Also what the thread has taken from the queue and not answered yet. */
static bool waits(const struct gate *g, const char *org, long long nth)
{
	const struct gate_call *c;
	for (int i = 0; i < g->n_now; i++)
		if (strcmp(g->now[i]->org, org) == 0)
			return true;
	TAILQ_FOREACH(c, &g->queue, in_queue)
	if (c->nth <= nth && strcmp(c->org, org) == 0)
		return true;
	return false;
}

bool gate_hurry(struct gate *g, const char *org, long long seen)
{
	int64_t until_ms = clock_ms() + GATE_TAKE_MS;
	(void)pthread_mutex_lock(&g->lock);
	long long nth = g->nth;
	bool any = waits(g, org, nth);
	if (any) {
		g->urgent = true;
		(void)pthread_cond_signal(&g->work);
	}
	while (waits(g, org, nth) && cond_wait_until(&g->done, &g->lock, until_ms))
		;
	any = any || atomic_load(&g->rounds) != seen;
	(void)pthread_mutex_unlock(&g->lock);
	return any;
}

/* ---- the queue */

/* A batch to settle is in g->now; what is only to be let go is in *others. */
static void take(struct gate *g, struct gate_list *others)
{
	struct gate_call *c;
	TAILQ_INIT(others);
	(void)pthread_mutex_lock(&g->lock);
	while (g->n_now < GATE_BATCH && (c = TAILQ_FIRST(&g->queue)) != NULL) {
		TAILQ_REMOVE(&g->queue, c, in_queue);
		g->queued--;
		if (c->todo == GATE_SETTLE)
			g->now[g->n_now++] = c;
		else
			TAILQ_INSERT_TAIL(others, c, in_queue);
	}
	g->urgent = g->queued > 0;
	(void)pthread_mutex_unlock(&g->lock);
}

static int release(struct gate_call *c, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->g->o.db, GATE_TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_money_release, e, c->org, c->request);
	if (r == NULL)
		return -1;
	(void)atomic_fetch_add(&c->g->released, 1);
	return 0;
}

/* A round is over: who waits for one of its calls need not wait any longer. */
static void answer(struct gate *g, bool there)
{
	(void)pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->n_now; i++) {
		struct gate_call *c = g->now[i];
		if (c->wait != NULL)
			*c->wait = (struct gate_wait){ .is = there && c->settled ? GATE_DURABLE : GATE_LATER,
				.cost = c->cost };
		c->wait = NULL;
	}
	(void)atomic_fetch_add(&g->rounds, g->n_now > 0);
	g->n_now = 0;
	(void)pthread_cond_broadcast(&g->done);
	(void)pthread_mutex_unlock(&g->lock);
}

static bool let_go(struct gate_list *others, struct err *e)
{
	bool there = true;
	for (struct gate_call *c; (c = TAILQ_FIRST(others)) != NULL;) {
		TAILQ_REMOVE(others, c, in_queue);
		there = there && (release(c, e) == 0 || e->code != ERR_UNAVAILABLE);
		if (there)
			gate_call_free(c);
		else
			queue(c, c->todo, false);
	}
	return there;
}

/* What is first in the queue, a batch of it. False when PostgreSQL is away: it waits for the next round. */
static bool work_off(struct gate *g, struct log_spell *spell)
{
	struct gate_call *calls[GATE_BATCH];
	struct gate_list others;
	long long times;
	struct err e = { 0 };
	take(g, &others);
	int n = g->n_now; /* only this thread writes it */
	bool worked = n > 0 || !TAILQ_EMPTY(&others), there = let_go(&others, &e);
	memcpy(calls, g->now, sizeof calls);
	there = there && (n == 0 || gate_settle_all(g, calls, n, &e) == 0);
	answer(g, there);
	for (int i = 0; i < n; i++) {
		if (there)
			gate_call_free(calls[i]);
		else
			queue(calls[i], GATE_SETTLE, false);
	}
	if (!there && log_spell_fails(spell, clock_ms(), &times))
		log_warn("model calls wait to be settled", "error", e.msg);
	if (there && worked && log_spell_works(spell, &times))
		log_info("model calls are settled again");
	return there;
}

/* ---- notes */

static json_t *note_of(const struct gate_call *c)
{
	const struct tokens *t = &c->tokens;
	return js_pack("{s:s, s:s, s:s, s:s, s:[I,I,I,I,I], s:I, s:b}", "org", c->org, "request", c->request,
	    "provider", c->provider, "model", c->model, "tokens", (json_int_t)t->input, (json_int_t)t->cached,
	    (json_int_t)t->cache_write, (json_int_t)t->output, (json_int_t)t->reasoning, "millicents",
	    (json_int_t)c->millicents, "estimated", (int)c->estimated);
}

static void write_notes(struct gate *g)
{
	auto_json json_t *notes = json_array();
	struct gate_call *c;
	(void)pthread_mutex_lock(&g->lock);
	LIST_FOREACH(c, &g->open, in_open)
	if (c->dirty) {
		js_push(notes, note_of(c));
		c->dirty = false;
	}
	(void)pthread_mutex_unlock(&g->lock);
	if (json_array_size(notes) == 0)
		return;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_money_note, &e, js_dump(m, notes));
	if (r != NULL)
		return;
	/* Not written: all of them once more. */
	(void)pthread_mutex_lock(&g->lock);
	LIST_FOREACH(c, &g->open, in_open)
	c->dirty = c->noted;
	(void)pthread_mutex_unlock(&g->lock);
}

static void beat(struct gate *g)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_money_beat, &e, g->id);
	if (r == NULL)
		log_debug("no sign of life was written", "error", e.msg);
}

/* ---- the thread */

/* The lock is held. When the thread begins with what is queued. */
static int64_t due_ms(const struct gate *g)
{
	if (TAILQ_EMPTY(&g->queue))
		return INT64_MAX;
	return g->urgent || g->queued >= GATE_BATCH ? 0 : g->first_ms + GATE_LINGER_MS;
}

/* Until there is work or a tick is over. False: it is time to end. */
static bool rest(struct gate *g, bool working)
{
	int64_t tick_ms = clock_ms() + GATE_TICK_MS;
	(void)pthread_mutex_lock(&g->lock);
	/* With PostgreSQL away new work is no reason to hurry, and an end none to spin. */
	for (int64_t now; !g->ending && (now = clock_ms()) < tick_ms;) {
		int64_t due = working ? due_ms(g) : INT64_MAX;
		if (due <= now)
			break;
		(void)cond_wait_until(&g->work, &g->lock, due < tick_ms ? due : tick_ms);
	}
	bool more = !g->ending || (!TAILQ_EMPTY(&g->queue) && clock_ms() < g->until_ms);
	(void)pthread_mutex_unlock(&g->lock);
	if (more && !working && g->ending)
		(void)poll(NULL, 0, AGAIN_MS);
	return more;
}

void *gate_thread(void *arg)
{
	struct gate *g = arg;
	struct log_spell spell = { 0 };
	int64_t beaten_ms = 0, noted_ms = 0;
	bool working = true;
	do {
		int64_t now = clock_ms(), every = 1000 * conf_int(g->o.conf, "BILLING_REAP_S") / GATE_BEATS;
		if (beaten_ms == 0 || now - beaten_ms >= every) {
			beaten_ms = now;
			beat(g);
		}
		if (now - noted_ms >= GATE_TICK_MS) {
			noted_ms = now;
			write_notes(g);
		}
		working = work_off(g, &spell);
	} while (rest(g, working));
	return NULL;
}

void gate_free(struct gate *g, int wait_ms)
{
	(void)pthread_mutex_lock(&g->lock);
	g->ending = true;
	g->until_ms = clock_ms() + wait_ms;
	(void)pthread_cond_signal(&g->work);
	(void)pthread_mutex_unlock(&g->lock);
	(void)pthread_join(g->thread, NULL);
	if (g->queued > 0)
		log_warn("model calls were left to be settled by what is known of them");
	for (struct gate_call *c; (c = TAILQ_FIRST(&g->queue)) != NULL;) {
		TAILQ_REMOVE(&g->queue, c, in_queue);
		gate_call_free(c);
	}
	(void)pthread_mutex_destroy(&g->lock);
	(void)pthread_cond_destroy(&g->work);
	(void)pthread_cond_destroy(&g->done);
	free(g);
}
