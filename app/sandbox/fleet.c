#include "sandbox/fleet.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/mem.h"
#include "sandbox/fleet_int.h"

enum { WHY_MS = 3000, STOP_MS = 400, WATCH_MS = 60000 };

/* ---- the table; f->lock is held */

struct box *box_by_id(struct fleet *f, const char *id)
{
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		if (strcmp(b->id, id) == 0)
			return b;
	return NULL;
}

struct box *box_new(struct fleet *f, const char *id, enum box_state state)
{
	struct box *b = xcalloc(1, sizeof *b);
	(void)snprintf(b->id, sizeof b->id, "%s", id);
	b->state = state;
	b->at.pidfd = -1;
	b->since_ms = b->expires_ms = clock_ms();
	b->listed = b->keeps = true;
	(void)pthread_mutex_init(&b->dial, NULL);
	b->next = f->boxes;
	f->boxes = b;
	return b;
}

static void box_free(struct box *b)
{
	assert(b->line == NULL);
	(void)pthread_mutex_destroy(&b->dial);
	free(b->marks);
	free(b);
}

void box_let_go(struct fleet *f, struct box *b)
{
	b->users--;
	(void)pthread_cond_broadcast(&f->moved);
	if (b->users == 0 && !b->listed)
		box_free(b);
}

void box_state_set(struct fleet *f, struct box *b, enum box_state state)
{
	b->state = state;
	(void)pthread_cond_broadcast(&f->moved);
}

bool box_wait(struct fleet *f, struct box *b, bool (*fn)(const struct box *b), int64_t deadline_ms)
{
	while (!fn(b))
		if (!cond_wait_until(&f->moved, &f->lock, deadline_ms))
			return fn(b);
	return true;
}

void fleet_wake(struct fleet *f)
{
	uint64_t one = 1;
	(void)!write(f->wake, &one, sizeof one);
}

/* ---- use */

static void line_drop(struct box *b)
{
	struct line *l = b->line;
	b->line = NULL;
	if (l == NULL)
		return;
	l->retired = true;
	if (l->users == 0) {
		channel_close(l->channel);
		free(l);
	}
}

/* A channel that works, opened when there is none; b->dial is held, the box is LIVE and has a user. */
static int dial(struct fleet *f, struct box *b, struct err *e)
{
	struct channel_wait w = { .deadline_ms = clock_ms() + FLEET_CALL_MS };
	(void)pthread_mutex_lock(&f->lock);
	bool good = b->line != NULL && !channel_lost(b->line->channel);
	if (!good)
		line_drop(b);
	(void)pthread_mutex_unlock(&f->lock);
	if (good)
		return 0;
	struct channel *c = channel_open(&b->at.channel, &w, e);
	if (c == NULL)
		return err_replace(e, ERR_UNAVAILABLE, "The sandbox does not answer: try again.");
	struct line *l = xcalloc(1, sizeof *l);
	l->channel = c;
	(void)pthread_mutex_lock(&f->lock);
	b->line = l;
	(void)pthread_mutex_unlock(&f->lock);
	return 0;
}

/* The row says running, or nobody would ask; what this process has yet to learn is no answer about the sandbox (SBX-40). */
static int not_yet(const char *why, struct err *e)
{
	(void)err_set(e, ERR_UNAVAILABLE, "%s: try again.", why);
	e->reason = "node_starting";
	return -1;
}

static int usable(const struct fleet *f, const struct box *b, struct err *e)
{
	if (b == NULL && !f->looked)
		return not_yet("This node has just started and is still looking for its sandboxes", e);
	if (b == NULL)
		return err_set(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	switch (b->state) {
	case BOX_AWAITED:
		return not_yet("The sandbox is still being looked for on its node", e);
	case BOX_BUILDING:
		return not_yet("The sandbox is still starting", e);
	case BOX_LIVE:
		return 0;
	case BOX_GOING:
	case BOX_RETRY:
		break;
	}
	return err_set(e, ERR_CONFLICT, "The sandbox is ending.");
}

struct held *fleet_take(struct fleet *f, const char *id, struct err *e)
{
	struct held *h = NULL;
	(void)pthread_mutex_lock(&f->lock);
	struct box *b = box_by_id(f, id);
	if (usable(f, b, e) != 0) {
		(void)pthread_mutex_unlock(&f->lock);
		return NULL;
	}
	b->users++;
	(void)pthread_mutex_unlock(&f->lock);

	(void)pthread_mutex_lock(&b->dial);
	bool dialled = dial(f, b, e) == 0;
	(void)pthread_mutex_lock(&f->lock);
	if (dialled && usable(f, b, e) == 0 && b->line != NULL) {
		h = xcalloc(1, sizeof *h);
		*h = (struct held){ f, b, b->line };
		b->line->users++;
	}
	(void)pthread_mutex_unlock(&f->lock);
	(void)pthread_mutex_unlock(&b->dial);
	if (h == NULL) {
		(void)pthread_mutex_lock(&f->lock);
		box_let_go(f, b);
		(void)pthread_mutex_unlock(&f->lock);
		err_set(e, ERR_UNAVAILABLE, "The sandbox does not answer: try again.");
	}
	return h;
}

void fleet_give(struct held *h)
{
	if (h == NULL)
		return;
	struct fleet *f = h->f;
	(void)pthread_mutex_lock(&f->lock);
	if (--h->line->users == 0 && h->line->retired) {
		channel_close(h->line->channel);
		free(h->line);
	}
	box_let_go(f, h->box);
	(void)pthread_mutex_unlock(&f->lock);
	free(h);
}

struct channel *held_channel(struct held *h)
{
	return h->line->channel;
}

int held_place(struct held *h, const char *cmd, pid_t inner, struct err *e)
{
	if (!h->box->at.groups)
		return 0;
	pid_t pid = channel_host_pid(h->box->at.pid, inner);
	if (pid <= 0)
		return err_set(e, ERR_UNAVAILABLE, "The command's process could not be found.");
	return h->f->o.driver->place(h->f->o.driver, h->box->id, cmd, pid, e);
}

void held_sweep(struct held *h, const char *cmd)
{
	struct err ignored = { 0 };
	struct driver *d = h->f->o.driver;
	/* What cannot be killed now is found by the next round, or takes the sandbox with it at its end. */
	(void)d->kill(d, h->box->id, cmd, clock_ms() + FLEET_CALL_MS, &ignored);
}

void held_condemn(struct held *h, const char *why)
{
	(void)pthread_mutex_lock(&h->f->lock);
	if (h->box->state == BOX_LIVE) {
		(void)snprintf(h->box->why, sizeof h->box->why, "%s", why);
		(void)kill(h->box->at.pid,
		    SIGKILL); /* the watcher sees its end; while the pidfd is open the pid is its own */
	}
	(void)pthread_mutex_unlock(&h->f->lock);
}

long long held_oom_kills(struct held *h)
{
	struct driver *d = h->f->o.driver;
	return d->oom_kills(d, h->box->id);
}

bool held_ending(struct held *h)
{
	(void)pthread_mutex_lock(&h->f->lock);
	bool ending = h->box->state != BOX_LIVE;
	(void)pthread_mutex_unlock(&h->f->lock);
	return ending;
}

/* Its end is known and, unless the database is away, on its row. */
static bool judged(const struct box *b)
{
	return !b->listed || b->state == BOX_RETRY;
}

void held_why(struct held *h, struct buf *out)
{
	struct fleet *f = h->f;
	fleet_wake(f);
	(void)pthread_mutex_lock(&f->lock);
	if (!box_wait(f, h->box, judged, clock_ms() + WHY_MS))
		(void)buf_str(out, "The channel to the sandbox was lost.");
	else
		(void)buf_str(out, h->box->why[0] != '\0' ? h->box->why : "The sandbox was ended.");
	(void)pthread_mutex_unlock(&f->lock);
}

int held_find(struct held *h, const char *cmd, uint32_t *number, struct err *e)
{
	struct channel_wait w = { .deadline_ms = clock_ms() + FLEET_CALL_MS };
	struct channel_item *items = NULL;
	int n = channel_list(held_channel(h), 0, &w, &items, e);
	auto_free struct channel_item *mine = items;
	for (int i = 0; i < n; i++)
		if (strcmp(mine[i].label, cmd) == 0) {
			*number = mine[i].cmd;
			return 0;
		}
	return n < 0
	    ? -1
	    : err_set(e, ERR_NOT_FOUND, "There is no such command, or its output is no longer held.");
}

int held_renew(struct held *h, int64_t left_ms, struct err *e)
{
	struct channel_wait w = { .deadline_ms = clock_ms() + FLEET_CALL_MS };
	int64_t end_ms = clock_ms() + left_ms;
	if (channel_lease(held_channel(h), left_ms, &w, e) != 0)
		return -1;
	(void)pthread_mutex_lock(&h->f->lock);
	h->box->expires_ms = end_ms;
	(void)pthread_mutex_unlock(&h->f->lock);
	return 0;
}

static int ask_to_stop(struct held *h, uint32_t number, int64_t deadline_ms, int *ended, struct err *e)
{
	struct channel_wait w = { .deadline_ms = deadline_ms };
	return number == 0 ? channel_stop(held_channel(h), &w, ended, e)
			   : channel_stop_one(held_channel(h), number, &w, ended, e);
}

int held_stop(struct held *h, const char *cmd, int *ended, struct err *e)
{
	uint32_t number = 0;
	int late = 0;
	*ended = 0;
	if (cmd != NULL && held_find(h, cmd, &number, e) != 0)
		return -1;
	int rc = ask_to_stop(h, number, clock_ms() + STOP_MS, ended, e);
	/* What the box cannot reach in time the groups can; and whatever left the box's sight goes with them (SBX-41). */
	held_sweep(h, cmd);
	if (rc == 0 || e->code != ERR_TIMEOUT)
		return rc;
	err_clear(e);
	rc = ask_to_stop(h, number, clock_ms() + FLEET_CALL_MS, &late, e);
	*ended += late;
	return rc;
}

/* ---- watching for deaths */

/* The dead box is this thread's from here on; NULL when somebody else ends it already. */
static bool claim_dead(struct fleet *f, struct box *b)
{
	if (b->state != BOX_LIVE)
		return false;
	auto_buf struct buf words = BUF(ERR_MSG_MAX / 2);
	/* Its own end of the lease and ours are the same moment, seen by two clocks. */
	bool over = clock_ms() + 2000 >= b->expires_ms;
	long long oom = f->o.driver->oom_kills(f->o.driver, b->id);
	f->o.driver->words(f->o.driver, b->id, &words);
	b->verdict = over ? "ended" : "error";
	if (!over && b->why[0] == '\0')
		(void)snprintf(b->why, sizeof b->why, "The sandbox ended by itself%s: %.300s",
		    oom > 0 ? " (its memory ran out)" : "", buf_c(&words));
	box_state_set(f, b, BOX_GOING);
	return true;
}

static void bury_dead(struct fleet *f, struct box *b)
{
	struct err ignored = { 0 }; /* what could not be removed stays listed for the next round */
	(void)pthread_mutex_lock(&f->lock);
	bool mine = claim_dead(f, b);
	(void)pthread_mutex_unlock(&f->lock);
	if (mine)
		(void)box_bury(f, b, &ignored);
	(void)pthread_mutex_lock(&f->lock);
	box_let_go(f, b);
	(void)pthread_mutex_unlock(&f->lock);
}

/* Fill p and which with the live boxes' descriptors; each box gains a user. Returns how many. */
static int collect(struct fleet *f, struct pollfd **p, struct box ***which)
{
	int n = 1;
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		n += b->state == BOX_LIVE;
	*p = xcalloc((size_t)n, sizeof **p);
	*which = xcalloc((size_t)n, sizeof **which);
	(*p)[0] = (struct pollfd){ .fd = f->wake, .events = POLLIN };
	n = 1;
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		if (b->state == BOX_LIVE) {
			b->users++;
			(*which)[n] = b;
			(*p)[n++] = (struct pollfd){ .fd = b->at.pidfd, .events = POLLIN };
		}
	return n;
}

static void watch_once(struct fleet *f)
{
	struct pollfd *p;
	struct box **which;
	uint64_t drained;
	(void)pthread_mutex_lock(&f->lock);
	int n = collect(f, &p, &which);
	(void)pthread_mutex_unlock(&f->lock);
	if (poll(p, (nfds_t)n, WATCH_MS) > 0 && p[0].revents != 0)
		(void)!read(f->wake, &drained, sizeof drained);
	for (int i = 1; i < n; i++)
		if (p[i].revents & POLLIN) {
			bury_dead(f, which[i]);
		} else {
			(void)pthread_mutex_lock(&f->lock);
			box_let_go(f, which[i]);
			(void)pthread_mutex_unlock(&f->lock);
		}
	free(p);
	free(which);
}

void *fleet_watch(void *arg)
{
	struct fleet *f = arg;
	for (;;) {
		(void)pthread_mutex_lock(&f->lock);
		bool stop = f->stop;
		(void)pthread_mutex_unlock(&f->lock);
		if (stop)
			return NULL;
		watch_once(f);
	}
}

/* ---- life */

void fleet_times(struct fleet *f, int start_s, int idle_s)
{
	f->start_s = start_s;
	f->idle_s = idle_s;
}

struct fleet *fleet_new(const struct fleet_opts *o)
{
	struct fleet *f = xcalloc(1, sizeof *f);
	f->o = *o;
	fleet_times(f, o->start_s, o->idle_s);
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->moved, NULL);
	f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = pthread_create(&f->watcher, NULL, fleet_watch, f);
	assert(f->wake >= 0 && rc == 0); /* at start there is room for one of each */
	return f;
}

void fleet_free(struct fleet *f)
{
	if (f == NULL)
		return;
	(void)pthread_mutex_lock(&f->lock);
	f->stop = true;
	(void)pthread_mutex_unlock(&f->lock);
	fleet_wake(f);
	(void)pthread_join(f->watcher, NULL);
	for (struct box *b = f->boxes, *next; b != NULL; b = next) {
		next = b->next;
		line_drop(b);
		if (b->at.pidfd >= 0)
			(void)close(b->at.pidfd);
		box_free(b);
	}
	(void)pthread_mutex_destroy(&f->lock);
	(void)pthread_cond_destroy(&f->moved);
	(void)close(f->wake);
	free(f);
}
