/* gate_int.h - inside app/money: a process's gate and its open calls. gate.c is what callers use, gate_ask.c how they are let in,
 * gate_settle.c what becomes of it, gate_work.c the thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/id.h"
#include "money/gate.h"

enum {
	GATE_TAKE_MS = 2000,
	GATE_QUEUE_MAX = 10000, /* more that cannot be settled now, and nothing new is let in */
	GATE_BEATS = 6,         /* in the time after which a process counts as dead */
	GATE_TICK_MS = 1000,    /* notes are written so often */
	GATE_BATCH = 128,       /* settled by the thread with one flush */
	GATE_TOGETHER = 64,     /* reserved in one statement */
	/* The thread waits so long for more where nobody waits for it: a settlement alone costs several times its share of ten. Short
	   beside any call of a model, as what it reserved is held meanwhile. */
	GATE_LINGER_MS = 40,
	GATE_ORGS = 64, /* told apart where calls of one of them are let in the short way */
};

enum gate_todo { GATE_OPEN, GATE_SETTLE, GATE_RELEASE };

/* Of who waits for a settlement. */
struct gate_wait {
	enum gate_end { GATE_WAITING, GATE_DURABLE, GATE_LATER } is;
	long long cost;
};
struct gate_call {
	struct gate *g;
	enum gate_todo todo;
	bool test;
	bool
	    prompt; /* a limit counts it while it is open, also at other hosts: it is settled without lingering */
	const char *org, *subject, *currency, *request; /* these and the next three lie behind the struct */
	const char *key, *run, *session;                /* NULL for none */
	char *run_found;                                /* of the session: then `run` is it */
	/* What is known; under the gate's lock while the call is open. */
	bool noted, dirty, estimated;
	char *provider, *model;
	struct tokens tokens;
	long long millicents;
	/* Of its settlement: committed in this round; not before; what it cost; soft budgets as money_settle tells them, or NULL. */
	bool settled, first;
	long long cost;
	char *soft;
	struct gate_wait *wait; /* who waits for it, under the lock; NULL: nobody (any more) */
	long long nth;          /* of those that were queued */
	LIST_ENTRY(gate_call) in_open;
	TAILQ_ENTRY(gate_call) in_queue;
};
TAILQ_HEAD(gate_list, gate_call);
struct gate_lane; /* those who ask for one account (gate_ask.c) */

struct gate {
	struct gate_opts o;
	char id[ID_MAX];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work; /* the queue is not empty any more, or urgent, or full, or ending */
	pthread_cond_t done; /* a round is over, or PostgreSQL is away */
	bool ending;
	long long until_ms; /* ending: give up then */
	LIST_HEAD(, gate_call) open;
	LIST_HEAD(, gate_lane) lanes;
	unsigned char
	    in_the_way[GATE_ORGS]; /* so many askings for such an org do not try the short way (gate_ask.c) */
	struct gate_list queue;    /* for the thread */
	size_t queued;
	bool urgent;                       /* somebody waits for what is queued */
	int64_t first_ms;                  /* when the queue was empty last */
	long long nth;                     /* how many were ever queued */
	struct gate_call *now[GATE_BATCH]; /* what the thread is settling */
	int n_now;
	_Atomic long long settled, released, refused[4], soft, late;
	_Atomic long long rounds; /* of settlements that are over */
};
enum { GATE_REFUSED_BALANCE, GATE_REFUSED_BUDGET, GATE_REFUSED_RATE, GATE_REFUSED_AWAY };

struct gate_call *gate_call_new(struct gate *g, const struct gate_ask *ask);
void gate_call_free(struct gate_call *call);
bool gate_same_account(const struct gate_call *a, const struct gate_call *b);
/* Settle these, which are put in another order, with one flush: 0 when all are durable that PostgreSQL did not refuse; -1 when it is
 * away, then all are to be done again. */
int gate_settle_all(struct gate *g, struct gate_call **calls, int n, struct err *e);
/* Hand a call to the thread, which takes it. */
void gate_queue(struct gate_call *call, enum gate_todo todo);
/* Until what is queued of this org now is settled; false when nothing was, nor a round ended since g->rounds was `seen`. */
bool gate_hurry(struct gate *g, const char *org, long long seen);
void *gate_thread(void *arg);
/* What can be done about a budget that is used up; what: its scope and period, as "org month". */
const char *gate_budget_way_out(const char *what);
/* An array for PostgreSQL, '{"a",NULL' or '{1,2', grows by one; gate_array_end closes it and gives its text. */
void gate_array(struct buf *b, const char *s);
void gate_array_num(struct buf *b, long long v);
const char *gate_array_end(struct buf *b);
/* Tell of the soft budgets in a settlement's answer (gate_soft.c). */
void gate_tell_soft(
    const struct gate_opts *o, const char *org, const char *run, const char *session, const char *json);
