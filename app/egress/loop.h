/*
 * loop.h - the one epoll loop of gatehouse-egress: descriptors, timers, and calls from other threads. Everything but
 * loop_post is for the loop's own thread only.
 *
 * A watch or timer is embedded in its owner, which removes it before it goes. Events are level-triggered. An owner that ends
 * inside a callback frees itself by loop_bury, after the events of this round: another event of it may be in the round still.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"

struct loop;

struct watch {
	int fd;          /* -1: none; the owner's to close */
	uint32_t events; /* EPOLL* that are asked for */
	void (*on)(struct watch *w, uint32_t events);
};

struct timer {
	int64_t due_ms; /* 0: not set */
	void (*on)(struct timer *t);
	LIST_ENTRY(timer) in_slot;
};

/* What is to be freed or called later. */
struct later {
	void (*run)(struct later *l);
	struct later *next;
};

struct loop *loop_new(struct err *e);
void loop_free(struct loop *l);
/* Until loop_stop, which may be called from a callback. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
int64_t loop_now_ms(const struct loop *l); /* clock_ms at the start of the round */

/* Ask for these events of w->fd; 0 takes it out. -1: the kernel has no room for it (ENOSPC, ENOMEM). */
int loop_watch(struct loop *l, struct watch *w, uint32_t events);
/* Take it out and close it; fine without a descriptor. */
void loop_close(struct loop *l, struct watch *w);

/* Call t->on once, after_ms from now, up to LOOP_TICK_MS late; moves one that is set. */
enum { LOOP_TICK_MS = 20 };
void loop_timer(struct loop *l, struct timer *t, int64_t after_ms);
void loop_untimer(struct loop *l, struct timer *t);

/* Run it after the events of this round, in the order of the calls. */
void loop_bury(struct loop *l, struct later *what);
/* From any thread: run it in the loop's thread soon, in the order of the calls. */
void loop_post(struct loop *l, struct later *what);
/* Run what was posted so far: for who posts and is about to go. */
void loop_drain(struct loop *l);
