#include "egress/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/log.h"
#include "sql/egress.h"

enum { TAKE_MS = 2000, RETRY_MS = 300 };

enum task_kind { TASK_OPEN, TASK_RELOAD, TASK_APPLIED };

struct task {
	STAILQ_ENTRY(task) next;
	enum task_kind kind;
	char sandbox[ID_MAX], org[LIMIT_ORG_SLUG + 1];
	long long version;
};

/* Readings in their order, and beside them, so that no lease waits for a commit, what PostgreSQL is told. */
enum { LANE_READ, LANE_TELL, LANES };

struct lane {
	struct store *store;
	pthread_t thread;
	pthread_cond_t some;
	STAILQ_HEAD(, task) tasks;
};

struct store {
	struct store_opts o;
	struct pg_listen *listen;
	pthread_mutex_t lock;
	struct lane lanes[LANES];
	bool stop;
};

/* What goes to the loop. */
struct note {
	struct later later;
	struct store *store;
	enum note_kind { NOTE_POLICY, NOTE_CHANGED, NOTE_CREDENTIALS, NOTE_AGAIN } kind;
	struct store_policy policy; /* NOTE_CHANGED: only sandbox; NOTE_CREDENTIALS: only org */
};

static void deliver(struct later *l)
{
	struct note *n = (struct note *)(void *)l;
	const struct store_opts *o = &n->store->o;
	if (n->store->stop) { /* nobody is there any more */
		policy_unref(n->policy.policy);
		brokered_unref(n->policy.brokered);
		free(n);
		return;
	}
	if (n->kind == NOTE_POLICY)
		o->on_policy(o->arg, &n->policy);
	else if (n->kind == NOTE_CHANGED)
		o->on_changed(o->arg, n->policy.sandbox);
	else if (n->kind == NOTE_CREDENTIALS)
		o->on_credentials(o->arg, n->policy.org);
	else
		o->on_again(o->arg);
	free(n);
}

static struct note *note(struct store *s, enum note_kind kind)
{
	struct note *n = xcalloc(1, sizeof *n);
	n->later.run = deliver;
	n->store = s;
	n->kind = kind;
	return n;
}

static void put(struct store *s, enum task_kind kind, const char *org, const char *sandbox, long long version)
{
	struct task *t = xcalloc(1, sizeof *t);
	t->kind = kind;
	t->version = version;
	(void)snprintf(t->sandbox, sizeof t->sandbox, "%s", sandbox);
	(void)snprintf(t->org, sizeof t->org, "%s", org);
	struct lane *l = &s->lanes[kind == TASK_APPLIED ? LANE_TELL : LANE_READ];
	(void)pthread_mutex_lock(&s->lock);
	if (kind == TASK_OPEN) /* a lease waits for it */
		STAILQ_INSERT_HEAD(&l->tasks, t, next);
	else
		STAILQ_INSERT_TAIL(&l->tasks, t, next);
	(void)pthread_cond_signal(&l->some);
	(void)pthread_mutex_unlock(&s->lock);
}

void store_open(struct store *s, const char *sandbox)
{
	put(s, TASK_OPEN, "", sandbox, 0);
}

void store_reload(struct store *s, const char *sandbox)
{
	put(s, TASK_RELOAD, "", sandbox, 0);
}

void store_applied(struct store *s, const char *org, const char *sandbox, long long version)
{
	put(s, TASK_APPLIED, org, sandbox, version);
}

/* ---- the thread */

static struct brokered *credentials(struct store *s, const char *text, struct err *e)
{
	struct brokered *b = brokered_new();
	const json_t *row;
	size_t i;
	auto_json json_t *rows = text[0] == '\0' ? NULL : js_parse(text, strlen(text), e);
	json_array_foreach(rows, i, row) {
		const char *cell[4];
		for (size_t k = 0; k < 4; k++)
			cell[k] = json_string_value(json_array_get(row, k));
		brokered_add(b, s->o.seal, cell[0], cell[1], cell[2], cell[3]);
	}
	if (rows != NULL || text[0] == '\0')
		return b;
	brokered_unref(b);
	return NULL;
}

static struct egress_policy *policy(const char *sandbox, const char *text)
{
	struct err bad = { 0 };
	auto_json json_t *stored = js_parse(text, strlen(text), &bad);
	struct egress_policy *p = stored == NULL ? NULL : policy_parse(stored, &bad);
	if (p != NULL)
		return p;
	log_error("a policy makes no sense: the sandbox reaches nothing", "sandbox", sandbox, "why", bad.msg);
	return policy_unavailable();
}

static int load(struct store *s, struct store_policy *p, struct err *e)
{
	auto_pg struct pg *db = pg_take(s->o.db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL
	    ? NULL
	    : PG(db, &q_egress_policy, e, p->sandbox, p->first ? "t" : "f");
	if (r == NULL)
		return -1;
	p->found = pg_rows(r) == 1 && pg_bool(r, 0, 4) ? STORE_FOUND : STORE_ABSENT;
	if (p->found == STORE_ABSENT)
		return 0;
	(void)snprintf(p->org, sizeof p->org, "%s", pg_str(r, 0, 0));
	(void)snprintf(p->session, sizeof p->session, "%s", pg_str(r, 0, 1));
	p->brokered = credentials(s, pg_str(r, 0, 6), e);
	if (p->brokered == NULL)
		return -1;
	p->policy = policy(p->sandbox, pg_str(r, 0, 2));
	p->version = pg_int(r, 0, 3);
	p->used_bytes = (uint64_t)pg_int(r, 0, 5);
	return 0;
}

/* False: to be tried again. */
static bool do_load(struct store *s, const struct task *t)
{
	struct err e = { 0 };
	struct note *n = note(s, NOTE_POLICY);
	n->policy.first = t->kind == TASK_OPEN;
	memcpy(n->policy.sandbox, t->sandbox, sizeof n->policy.sandbox);
	if (load(s, &n->policy, &e) != 0) {
		if (!n->policy.first) {
			free(n);
			return false;
		}
		n->policy.found = STORE_AWAY;
	}
	loop_post(s->o.loop, &n->later);
	return true;
}

static bool do_applied(struct store *s, const struct task *t)
{
	struct err e = { 0 };
	char version[24];
	(void)snprintf(version, sizeof version, "%lld", t->version);
	auto_pg struct pg *db = pg_take(s->o.db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &q_egress_applied, &e, t->org, t->sandbox, version);
	return r != NULL;
}

/* What failed goes behind whatever else there is, after a moment. */
static void again(struct lane *l, struct task *t)
{
	struct store *s = l->store;
	(void)pthread_mutex_lock(&s->lock);
	if (!s->stop)
		(void)cond_wait_until(&l->some, &s->lock, clock_ms() + RETRY_MS);
	STAILQ_INSERT_TAIL(&l->tasks, t, next);
	(void)pthread_mutex_unlock(&s->lock);
}

static struct task *next_task(struct lane *l)
{
	struct store *s = l->store;
	(void)pthread_mutex_lock(&s->lock);
	while (STAILQ_EMPTY(&l->tasks) && !s->stop)
		(void)pthread_cond_wait(&l->some, &s->lock);
	struct task *t = s->stop ? NULL : STAILQ_FIRST(&l->tasks);
	if (t != NULL)
		STAILQ_REMOVE_HEAD(&l->tasks, next);
	(void)pthread_mutex_unlock(&s->lock);
	return t;
}

static void *work(void *arg)
{
	struct lane *l = arg;
	struct store *s = l->store;
	for (struct task *t; (t = next_task(l)) != NULL;) {
		if (t->kind == TASK_APPLIED ? do_applied(s, t) : do_load(s, t))
			free(t);
		else
			again(l, t);
	}
	return NULL;
}

/* From the listening thread. */
static void on_event(void *arg, const char *channel, const char *payload)
{
	struct store *s = arg;
	bool policy = strcmp(channel, "egress_policy") == 0;
	struct note *n = note(s, policy ? NOTE_CHANGED : channel[0] != '\0' ? NOTE_CREDENTIALS : NOTE_AGAIN);
	char *to = policy ? n->policy.sandbox : n->policy.org;
	(void)snprintf(to, policy ? sizeof n->policy.sandbox : sizeof n->policy.org, "%s",
	    payload == NULL ? "" : payload);
	loop_post(s->o.loop, &n->later);
}

struct store *store_start(const struct store_opts *o)
{
	static const char *const channels[] = { "egress_policy", "egress_credentials", NULL };
	struct store *s = xcalloc(1, sizeof *s);
	s->o = *o;
	(void)pthread_mutex_init(&s->lock, NULL);
	for (struct lane *l = s->lanes; l < s->lanes + LANES; l++) {
		l->store = s;
		STAILQ_INIT(&l->tasks);
		(void)pthread_cond_init(&l->some, NULL);
		if (pthread_create(&l->thread, NULL, work, l) != 0)
			abort();
	}
	s->listen = pg_listen_start(o->conninfo, channels, on_event, s);
	return s;
}

void store_stop(struct store *s)
{
	pg_listen_stop(s->listen);
	(void)pthread_mutex_lock(&s->lock);
	s->stop = true;
	for (struct lane *l = s->lanes; l < s->lanes + LANES; l++)
		(void)pthread_cond_signal(&l->some);
	(void)pthread_mutex_unlock(&s->lock);
	for (struct lane *l = s->lanes; l < s->lanes + LANES; l++) {
		(void)pthread_join(l->thread, NULL);
		for (struct task *t; (t = STAILQ_FIRST(&l->tasks)) != NULL;) {
			STAILQ_REMOVE_HEAD(&l->tasks, next);
			free(t);
		}
		(void)pthread_cond_destroy(&l->some);
	}
	loop_drain(s->o.loop); /* notes of ours */
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}
