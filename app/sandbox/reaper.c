/* reaper.c - one pass over rows, sandboxes and what is left of either (SBX-60, REL-6). Every step may find its work done. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/fleet_int.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000 };

/* End a box that is in none of the states in which a thread works on it; the lock is held and released meanwhile. */
static void reap(struct fleet *f, struct box *b, const char *verdict, const char *why)
{
	struct err e = { 0 };
	if (b->state == BOX_BUILDING || b->state == BOX_GOING || !b->listed)
		return;
	if (b->state != BOX_RETRY) { /* there the first verdict stands */
		b->verdict = verdict;
		(void)snprintf(b->why, sizeof b->why, "%s", why);
	}
	box_state_set(f, b, BOX_GOING);
	b->users++;
	(void)pthread_mutex_unlock(&f->lock);
	int rc = box_bury(f, b, &e);
	log_kv(rc == 0 ? LOG_INFO_ : LOG_WARN_, rc == 0 ? "sandbox reaped" : "sandbox not reaped yet",
	    "sandbox", b->id, "status", b->verdict, "why", b->why, "error", rc == 0 ? NULL : e.msg,
	    (char *)0);
	(void)pthread_mutex_lock(&f->lock);
	box_let_go(f, b);
}

/* ---- ids that the driver knows */

struct built {
	char id[ID_MAX];
	bool
	    known; /* somebody here knew of it before anything was done: it is no stray, whatever becomes of it */
};
struct ids {
	struct built *l;
	size_t n, room;
};

static struct built *find_id(const struct ids *l, const char *id)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->l[i].id, id) == 0)
			return &l->l[i];
	return NULL;
}

static void add_id(void *arg, const char *id)
{
	struct ids *l = arg;
	if (strlen(id) >= ID_MAX || find_id(l, id) != NULL)
		return;
	if (l->n == l->room) {
		l->room = l->room * 2 + 16;
		l->l = xrealloc(l->l, l->room * sizeof *l->l);
	}
	l->l[l->n] = (struct built){ 0 };
	(void)snprintf(l->l[l->n++].id, ID_MAX, "%s", id);
}

/* ---- the cases */

/* A row whose sandbox this process has not built. The lock is held. */
static void foreign(struct fleet *f, struct box *b, bool pending, bool built, int64_t left_ms, int64_t now)
{
	if (pending && !built && now - b->since_ms < FLEET_PENDING_MS)
		return; /* the API has just written it and is about to ask for it */
	if (pending) {
		reap(f, b, "error", "The sandbox's start was never finished.");
		return;
	}
	struct err e = { 0 };
	b->users++;
	(void)pthread_mutex_unlock(&f->lock);
	int rc = box_adopt(f, b, &e);
	(void)pthread_mutex_lock(&f->lock);
	if (rc == 0)
		log_info("sandbox found again", "sandbox", b->id);
	else if (b->state == BOX_AWAITED &&
	    left_ms <= 0) /* it ended itself, as it does with its lease (SBX-66) */
		reap(f, b, "ended", "");
	else if (b->state == BOX_AWAITED)
		reap(f, b, "error", "The sandbox ended while its node was not watching.");
	box_let_go(f, b);
}

static void live(struct fleet *f, struct box *b, int64_t left_ms, int64_t now)
{
	/* REL-6: the row says so, and we have watched for as long as it then had left. */
	if (left_ms <= 0 && now >= b->expires_ms) {
		reap(f, b, "ended", "");
		return;
	}
	struct err e = { 0 };
	b->users++;
	(void)pthread_mutex_unlock(&f->lock);
	f->o.driver->tidy(f->o.driver, b->id);
	bool held = box_regain(f, b, &e) == 0;
	(void)pthread_mutex_lock(&f->lock);
	if (!held && b->state == BOX_LIVE)
		reap(f, b, "error", e.msg);
	box_let_go(f, b);
}

static void one_row(struct fleet *f, const struct ids *built, const struct pg_res *r, int i)
{
	const char *id = pg_str(r, i, 0);
	bool pending = strcmp(pg_str(r, i, 1), "pending") == 0, end_asked = pg_bool(r, i, 3);
	int64_t left_ms = pg_int(r, i, 2), whole_ms = pg_int(r, i, 4);
	int64_t now = clock_ms();
	struct box *b = box_by_id(f, id);
	if (b == NULL) {
		b = box_new(f, id, BOX_AWAITED);
		/* Where the row says that it is over, or longer than it ever was, its clock has stepped, or the box, which ends by
		 * its own, is about to say so: it is given its whole time. */
		b->expires_ms = now + (left_ms > 0 && left_ms < whole_ms ? left_ms : whole_ms);
	}
	struct built *there = find_id(built, id);
	if (there != NULL)
		there->known = true;
	b->has_row = true;
	/* No clock is asked: whoever wrote that wants it gone now. */
	if (end_asked && (b->state == BOX_AWAITED || b->state == BOX_LIVE))
		reap(f, b, "ended", "");
	else if (b->state == BOX_AWAITED)
		foreign(f, b, pending, there != NULL, left_ms, now);
	b = box_by_id(f, id); /* it may be gone, or found again */
	if (b != NULL && b->state == BOX_LIVE)
		live(f, b, left_ms, now);
}

static void retry(struct fleet *f)
{
	/* From the start after each: the list may have changed while the lock was released. A box stays RETRY at most once a
	 * round, as reap() is asked only for those not tried yet. */
	for (bool more = true; more;) {
		more = false;
		for (struct box *b = f->boxes; b != NULL; b = b->next)
			if (b->state == BOX_RETRY && !b->has_row) {
				b->has_row = more = true;
				reap(f, b, b->verdict, b->why);
				break;
			}
	}
}

/* Does the row of a box still want it? Unknown is yes. */
static bool wanted(struct fleet *f, const char *id)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_sandbox_n_pending, &e, f->o.node, id);
	return r == NULL ||
	    (pg_rows(r) == 1 &&
		(strcmp(pg_str(r, 0, 0), "running") == 0 || strcmp(pg_str(r, 0, 0), "pending") == 0));
}

/* Boxes without a live row. Those that came after the rows were read are asked about again. */
static void without_row(struct fleet *f)
{
	for (bool more = true; more;) {
		struct box *b = f->boxes;
		while (b != NULL && (b->has_row || (b->state != BOX_LIVE && b->state != BOX_AWAITED)))
			b = b->next;
		more = b != NULL;
		if (b == NULL)
			return;
		b->has_row = true;
		b->users++;
		(void)pthread_mutex_unlock(&f->lock);
		bool keep = wanted(f, b->id);
		(void)pthread_mutex_lock(&f->lock);
		if (!keep)
			reap(f, b, "ended", "");
		box_let_go(f, b);
	}
}

/* What stands on the host without anybody knowing of it: nothing builds without being in the list first. */
static void strays(struct fleet *f, const struct ids *built)
{
	for (size_t i = 0; i < built->n; i++)
		if (!built->l[i].known && box_by_id(f, built->l[i].id) == NULL)
			reap(f, box_new(f, built->l[i].id, BOX_AWAITED), "ended", "");
}

int fleet_round(struct fleet *f)
{
	struct err e = { 0 };
	struct ids built = { 0 };
	(void)pthread_mutex_lock(&f->lock);
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		b->has_row = false;
	retry(f);
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		b->has_row = false;
	(void)pthread_mutex_unlock(&f->lock);

	/* Before the rows: whatever is built and has no row then was not begun in between. */
	if (f->o.driver != NULL)
		f->o.driver->each(f->o.driver, add_id, &built);
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_sandbox_n_live, &e, f->o.node);
	auto_free void *owned = built.l;
	if (r == NULL) {
		log_warn("sandboxes not looked after: the database does not answer", "error", e.msg);
		return -1;
	}
	pg_put(steal(db));
	(void)pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < built.n; i++)
		built.l[i].known = box_by_id(f, built.l[i].id) != NULL;
	for (int i = 0; i < pg_rows(r); i++)
		one_row(f, &built, r, i);
	without_row(f);
	strays(f, &built);
	f->looked = true;
	(void)pthread_mutex_unlock(&f->lock);
	fleet_strays(f);
	fleet_volumes(f);
	return 0;
}

int fleet_leave(struct fleet *f, struct err *e)
{
	struct ids built = { 0 };
	struct driver *d = f->o.driver;
	if (d == NULL)
		return 0;
	d->each(d, add_id, &built);
	auto_free void *owned = built.l;
	for (size_t i = 0; i < built.n; i++)
		if (fleet_end(f, built.l[i].id, e) != 0)
			return -1;
	return d->leave(d, clock_ms() + FLEET_END_MS, e);
}
