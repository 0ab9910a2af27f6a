#include "egress/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* A wheel of SLOTS ticks; what is due later than one turn is looked at once a turn. */
enum { ROUND = 256, SLOTS = 512 };

LIST_HEAD(slot, timer);

struct loop {
	int epoll;
	bool stop;
	int64_t now_ms, tick; /* tick: the next slot to be looked at, as a number of ticks since the epoch */
	int timers;           /* that are set */
	struct slot wheel[SLOTS];
	struct later *graves, **last_grave;
	struct watch wake;
	pthread_mutex_t lock; /* of posted and last */
	struct later *posted, **last;
};

static void run_all(struct later *l)
{
	while (l != NULL) {
		struct later *next = l->next; /* run() may free it */
		l->run(l);
		l = next;
	}
}

/* In the order they came; who is run may bury more, for the next time. */
static void dig(struct loop *l)
{
	struct later *all = steal(l->graves);
	l->last_grave = &l->graves;
	run_all(all);
}

static void on_wake(struct watch *w, uint32_t events)
{
	struct loop *l = (struct loop *)(void *)((char *)w - offsetof(struct loop, wake));
	uint64_t n;
	(void)events;
	(void)!read(w->fd, &n, sizeof n);
	(void)pthread_mutex_lock(&l->lock);
	struct later *all = l->posted;
	l->posted = NULL;
	l->last = &l->posted;
	(void)pthread_mutex_unlock(&l->lock);
	run_all(all);
}

void loop_drain(struct loop *l)
{
	on_wake(&l->wake, 0);
}

struct loop *loop_new(struct err *e)
{
	struct loop *l = xcalloc(1, sizeof *l);
	l->now_ms = clock_ms();
	l->tick = l->now_ms / LOOP_TICK_MS;
	l->last = &l->posted;
	l->last_grave = &l->graves;
	(void)pthread_mutex_init(&l->lock, NULL);
	for (int i = 0; i < SLOTS; i++)
		LIST_INIT(&l->wheel[i]);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->wake = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .on = on_wake };
	if (l->epoll >= 0 && l->wake.fd >= 0 && loop_watch(l, &l->wake, EPOLLIN) == 0)
		return l;
	err_set(e, ERR_UNAVAILABLE, "The event loop cannot be made: %s.", strerrordesc_np(errno));
	loop_free(l);
	return NULL;
}

void loop_free(struct loop *l)
{
	if (l == NULL)
		return;
	loop_drain(l); /* what was posted still owns memory */
	while (l->graves != NULL)
		dig(l);
	if (l->wake.fd >= 0)
		(void)close(l->wake.fd);
	if (l->epoll >= 0)
		(void)close(l->epoll);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

int64_t loop_now_ms(const struct loop *l)
{
	return l->now_ms;
}

int loop_watch(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };
	int op = events == 0 ? EPOLL_CTL_DEL : w->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	if (w->fd < 0 || events == w->events)
		return 0;
	if (epoll_ctl(l->epoll, op, w->fd, &ev) != 0)
		return -1;
	w->events = events;
	return 0;
}

void loop_close(struct loop *l, struct watch *w)
{
	/* Taken out first: closing does not do that while another process has the socket, too (a listener's giver, a child
	 * between fork and exec). */
	(void)loop_watch(l, w, 0);
	if (w->fd >= 0)
		(void)close(w->fd);
	w->fd = -1;
	w->events = 0;
}

/* ---- timers */

void loop_timer(struct loop *l, struct timer *t, int64_t after_ms)
{
	loop_untimer(l, t);
	t->due_ms = l->now_ms + (after_ms > 0 ? after_ms : 0) + 1;
	/* Never before l->tick, which is at most one tick after now. */
	LIST_INSERT_HEAD(&l->wheel[(t->due_ms / LOOP_TICK_MS + 1) % SLOTS], t, in_slot);
	l->timers++;
}

void loop_untimer(struct loop *l, struct timer *t)
{
	if (t->due_ms == 0)
		return;
	LIST_REMOVE(t, in_slot);
	t->due_ms = 0;
	l->timers--;
}

static void slot_due(struct loop *l, struct slot *s)
{
	struct slot due = LIST_HEAD_INITIALIZER(due);
	struct timer *t, *next;
	for (t = LIST_FIRST(s); t != NULL; t = next) {
		next = LIST_NEXT(t, in_slot);
		if (t->due_ms > l->now_ms)
			continue;
		LIST_REMOVE(t, in_slot);
		LIST_INSERT_HEAD(&due, t, in_slot);
	}
	/* A callback may set or unset any other timer, these included. */
	while ((t = LIST_FIRST(&due)) != NULL) {
		loop_untimer(l, t);
		t->on(t);
	}
}

static void timers_due(struct loop *l)
{
	int64_t end = l->now_ms / LOOP_TICK_MS;
	if (end - l->tick > SLOTS)
		l->tick = end - SLOTS;
	for (; l->tick <= end; l->tick++)
		if (l->timers > 0)
			slot_due(l, &l->wheel[l->tick % SLOTS]);
}

void loop_bury(struct loop *l, struct later *what)
{
	what->next = NULL;
	*l->last_grave = what;
	l->last_grave = &what->next;
}

void loop_post(struct loop *l, struct later *what)
{
	const uint64_t one = 1;
	what->next = NULL;
	(void)pthread_mutex_lock(&l->lock);
	*l->last = what;
	l->last = &what->next;
	(void)pthread_mutex_unlock(&l->lock);
	(void)!write(l->wake.fd, &one, sizeof one);
}

void loop_run(struct loop *l)
{
	struct epoll_event got[ROUND];
	while (!l->stop) {
		int n = epoll_wait(l->epoll, got, ROUND, l->timers > 0 ? LOOP_TICK_MS : 1000);
		l->now_ms = clock_ms();
		for (int i = 0; i < n; i++) {
			struct watch *w = got[i].data.ptr;
			/* An earlier event of this round may have closed it. */
			if (w->fd >= 0 && w->events != 0)
				w->on(w, got[i].events);
		}
		timers_due(l);
		dig(l);
	}
}
