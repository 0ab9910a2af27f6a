/*
 * chaos.h - many coding runs over a whole stack while its processes are killed (REL-1), for flow_chaos.c.
 *
 * Clients (threads) post runs and follow their streams as a careful client would: they try again after a 503 or a cut, on the
 * other host, from the last `seq` they have. The director (the test's own thread) kills by a schedule that the seed fixes: what is
 * killed, in which order, and after how many events that clients have seen; what died is started again as a supervisor would.
 * At the end the judge compares what was acknowledged with what is there.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/id.h"
#include "stack.h"

enum { CHAOS_CLIENTS = 4, CHAOS_FAULT = 400, CHAOS_BOXES_MAX = 4096 };

/* What a run is asked for; by its number, so that a seed's schedule always meets the same. */
enum chaos_task { TASK_EDIT, TASK_NOTHING, TASK_FAILS, TASK_SLOW, TASK_LOUD, TASK_STOPPED, CHAOS_TASKS };

struct chaos_line {
	long long seq;
	char *text;
};
struct chaos_run {
	int n;
	enum chaos_task task;
	char run[ID_MAX], session[ID_MAX]; /* session "": never acknowledged */
	struct chaos_line *lines;          /* as the client received them, in this order */
	int n_lines, cuts, posts;
	enum { STOP_NOT, STOP_DUE, STOP_ASKED } stop;
	bool ended;
	char end[16];            /* the terminal line's type */
	char fault[CHAOS_FAULT]; /* what a client saw that may never be; "" for nothing */
};

enum chaos_part {
	AT_PG,
	AT_BACKEND,
	AT_NGINX,
	AT_WORKER,
	AT_API,
	AT_RUNNER,
	AT_NODE,
	AT_EGRESS,
	AT_BOX,
	CHAOS_PARTS
};
extern const char *const chaos_part_names[CHAOS_PARTS];

struct chaos {
	struct stack stack;
	struct stack_org org;
	unsigned long long seed;
	int runs;
	struct chaos_run *all;
	pthread_t clients[CHAOS_CLIENTS];
	atomic_int next;    /* the number of the next run to post */
	atomic_int events;  /* distinct events that clients have received: the clock of the schedule */
	atomic_int living;  /* clients that are still at it */
	atomic_int cut;     /* streams that ended before their run had */
	atomic_int refused; /* 503s and broken connections that clients met */
	char refusal[200];  /* one of them, to be shown */

	int kills[CHAOS_PARTS], missed,
	    exits; /* missed: it was down already, or there was none; exits: by itself */
	char boxes[CHAOS_BOXES_MAX][ID_MAX]; /* sandboxes whose box was killed: their runs may fail */
	int n_boxes;
	int given_up; /* runs that had lost JOB_MAX_CRASHES runners */
};

#define CHAOS_REPO "chaos"

/* SplitMix64: the same numbers for the same seed, everywhere. */
unsigned long long chaos_next(unsigned long long *state);
/* Two of each process, an org and a repository; further lines of configuration. Fails the test. */
void chaos_stack(struct chaos *c, const char *conf);
/* Clients begin to post runs and follow them to their end, `runs` of them. */
void chaos_begin(struct chaos *c, int runs);
/* Wait until they have seen that many events in all; in the end it fails the test. */
void chaos_wait_events(struct chaos *c, int events);
/* Wait until all clients are through, until nothing is under way, judge, and forget the runs. */
void chaos_end(struct chaos *c);
/* Kill and restart until all clients are through, then bring everything back. */
void chaos_direct(struct chaos *c);
/* Fails the test for whatever does not hold once nothing is under way. */
void chaos_judge(struct chaos *c);
