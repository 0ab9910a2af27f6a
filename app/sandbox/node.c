#include "sandbox/node.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/mem.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000, RETRY_MS = 500, RUNTIMES_MAX = 256 };

struct node {
	struct node_opts o;
	pthread_mutex_t lock; /* the four below */
	pthread_cond_t moved;
	bool stop, looked, registered;
	int capacity;
	pthread_t beat, reaper, minder;
};

/* Sleep until the node stops or the time is over; false when it stops. */
static bool pause_for(struct node *n, int ms)
{
	int64_t until_ms = clock_ms() + ms;
	(void)pthread_mutex_lock(&n->lock);
	while (!n->stop && cond_wait_until(&n->moved, &n->lock, until_ms))
		;
	bool go_on = !n->stop;
	(void)pthread_mutex_unlock(&n->lock);
	return go_on;
}

/* {"","gvisor"}: names of our own table, which need no escaping. */
static void array_text(const char *const *list, struct buf *out)
{
	(void)buf_chr(out, '{');
	for (const char *const *r = list; *r != NULL; r++)
		(void)buf_fmt(out, "%s\"%s\"", r == list ? "" : ",", *r);
	(void)buf_chr(out, '}');
}

static int call(struct node *n, bool first, struct err *e)
{
	const struct node_opts *o = &n->o;
	auto_buf struct buf runtimes = BUF(RUNTIMES_MAX);
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = pg_take(o->db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	(void)pthread_mutex_lock(&n->lock);
	int capacity = n->capacity;
	(void)pthread_mutex_unlock(&n->lock);
	array_text(o->runtimes, &runtimes);
	auto_res struct pg_res *r = first
	    ? PG(db, &q_node_register, e, o->name, o->instance, o->address, buf_c(&runtimes),
		  pg_num(m, capacity), o->refusal, o->isolated ? "true" : "false", o->volumes)
	    : PG(db, &q_node_beat, e, o->name, o->instance, pg_num(m, capacity));
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1
	    ? 0
	    : err_set(e, ERR_CONFLICT, "NODE_NAME \"%.60s\" belongs to another deployment of this database.",
		  o->name);
}

static void registered(struct node *n, bool yes)
{
	(void)pthread_mutex_lock(&n->lock);
	n->registered = yes;
	(void)pthread_mutex_unlock(&n->lock);
}

/* What an earlier process left is sorted out before anything new is taken on. False when the node stops. */
static bool await_first_round(struct node *n)
{
	(void)pthread_mutex_lock(&n->lock);
	while (!n->stop && !n->looked)
		(void)pthread_cond_wait(&n->moved, &n->lock);
	bool go_on = !n->stop;
	(void)pthread_mutex_unlock(&n->lock);
	return go_on;
}

static void *beat(void *arg)
{
	struct node *n = arg;
	bool known = false, said = false;
	for (bool go_on = await_first_round(n); go_on;) {
		struct err e = { 0 };
		int wait_ms = RETRY_MS;
		if (call(n, !known, &e) == 0) {
			if (!known)
				log_info("node registered", "node", n->o.name, "refusal",
				    n->o.refusal[0] ? n->o.refusal : NULL);
			known = true;
			said = false;
			wait_ms = NODE_BEAT_S * 1000;
		} else {
			known = known && e.code != ERR_CONFLICT; /* the row is gone: register again */
			if (!said)
				log_warn("no heartbeat", "node", n->o.name, "error", e.msg);
			said = true;
		}
		registered(n, known);
		go_on = pause_for(n, wait_ms);
	}
	return NULL;
}

static void *reaper(void *arg)
{
	struct node *n = arg;
	do {
		bool ok = fleet_round(n->o.fleet) == 0;
		(void)pthread_mutex_lock(&n->lock);
		n->looked = n->looked || ok;
		bool first = !n->looked;
		(void)pthread_cond_broadcast(&n->moved);
		(void)pthread_mutex_unlock(&n->lock);
		if (!pause_for(n, first ? RETRY_MS : NODE_BEAT_S * 1000))
			return NULL;
	} while (true);
}

/* Beside the reaper: boxes that do not answer must not hold that up. */
static void *minder(void *arg)
{
	struct node *n = arg;
	for (bool go_on = await_first_round(n); go_on; go_on = pause_for(n, NODE_BEAT_S * 1000))
		fleet_mind(n->o.fleet);
	return NULL;
}

struct node *node_start(const struct node_opts *o)
{
	struct node *n = xcalloc(1, sizeof *n);
	n->o = *o;
	n->capacity = o->capacity;
	(void)pthread_mutex_init(&n->lock, NULL);
	(void)pthread_cond_init(&n->moved, NULL);
	int rc = pthread_create(&n->reaper, NULL, reaper, n);
	assert(rc == 0); /* at start there is room for three threads */
	rc = pthread_create(&n->minder, NULL, minder, n);
	assert(rc == 0);
	rc = pthread_create(&n->beat, NULL, beat, n);
	assert(rc == 0);
	return n;
}

void node_capacity(struct node *n, int capacity)
{
	(void)pthread_mutex_lock(&n->lock);
	n->capacity = capacity;
	(void)pthread_mutex_unlock(&n->lock);
}

int node_ready(struct node *n, struct err *e)
{
	(void)pthread_mutex_lock(&n->lock);
	bool yes = n->registered;
	(void)pthread_mutex_unlock(&n->lock);
	return yes
	    ? 0
	    : err_set(e, ERR_UNAVAILABLE, "This node is not registered yet: its database does not answer.");
}

/* Nothing is sent to a node that stops on purpose; one that died is found out by its silence. */
static void away(struct node *n)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(n->o.db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_node_away, &e, n->o.name, n->o.instance);
	if (r == NULL)
		log_warn("node not signed off", "node", n->o.name, "error", e.msg);
}

void node_stop(struct node *n)
{
	if (n == NULL)
		return;
	(void)pthread_mutex_lock(&n->lock);
	n->stop = true;
	(void)pthread_cond_broadcast(&n->moved);
	(void)pthread_mutex_unlock(&n->lock);
	(void)pthread_join(n->beat, NULL);
	(void)pthread_join(n->reaper, NULL);
	(void)pthread_join(n->minder, NULL);
	if (n->registered)
		away(n);
	(void)pthread_mutex_destroy(&n->lock);
	(void)pthread_cond_destroy(&n->moved);
	free(n);
}
