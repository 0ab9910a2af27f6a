/* fleet_build.c - from a pending row to a running sandbox, and from there to nothing. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/js.h"
#include "sandbox/fleet_int.h"
#include "sandbox/image.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000, ASK_FIRST_MS = 4, ASK_MS = 150, ENV_MAX = 1024 };

/* ---- the row */

static const char *const *environment(struct mem *m, const char *lease_env, long long tier, struct err *e)
{
	auto_json json_t *env = js_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "PATH", "/usr/local/bin:/usr/bin:/bin",
	    "HOME", IMAGE_HOME, "USER", "agent", "LOGNAME", "agent", "LANG", "C.UTF-8", "SHELL", "/bin/bash");
	auto_json json_t *asked = js_parse(lease_env, strlen(lease_env), e);
	const char *name;
	json_t *v;
	size_t n = 0;
	json_object_foreach(asked, name, v)
		js_set(env, name, json_incref(v));
	js_set(env, "SANDBOX_TIER", json_sprintf("%lld", tier));
	const char **list = mem_alloc(m, (json_object_size(env) + 1) * sizeof *list);
	json_object_foreach(env, name, v)
		list[n++] = mem_fmt(m, "%s=%s", name, json_string_value(v));
	return e->code == ERR_NONE ? list : NULL;
}

/* What the row asks for, in the arena. ERR_CONFLICT when it is not pending (any more). */
static int read_row(struct fleet *f, struct mem *m, const char *id, struct driver_spec *s, struct err *e)
{
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_sandbox_n_pending, e, f->o.node, id);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	if (strcmp(pg_str(r, 0, 0), "pending") != 0)
		return err_set(e, ERR_CONFLICT, "The sandbox is %s.", pg_str(r, 0, 0));
	auto_json json_t *limits = js_parse(pg_str(r, 0, 5), strlen(pg_str(r, 0, 5)), e);
	*s = (struct driver_spec){
		.id = mem_str(m, id),
		.class = mem_str(m, pg_str(r, 0, 1)),
		.runtime = mem_str(m, pg_str(r, 0, 2)),
		.workdir = mem_str(m, pg_str(r, 0, 3)),
		.env = environment(m, pg_str(r, 0, 4), pg_int(r, 0, 7), e),
		.slot = (int)pg_int(r, 0, 6),
		.limits = { js_int(limits, "memoryMb", 0), js_int(limits, "cpuMilli", 0),
		    js_int(limits, "pids", 0), js_int(limits, "diskMb", 0) },
		.lease_ms = pg_int(r, 0, 8),
		.idle_ms = f->idle_s * 1000LL,
	};
	if (e->code == ERR_NONE && s->lease_ms <= 0)
		return err_set(e, ERR_CONFLICT, "The lease ended before the sandbox was built.");
	return e->code == ERR_NONE ? 0 : -1;
}

static int set_running(struct fleet *f, const char *id, struct err *e)
{
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_sandbox_n_running, e, f->o.node, id);
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1
	    ? 0
	    : err_set(e, ERR_CONFLICT, "The lease was ended while the sandbox was being built.");
}

int box_close_row(struct fleet *f, const char *id, const char *verdict, const char *why, struct err *e)
{
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = PG(
	    db, &q_sandbox_n_close, e, f->o.node, id, verdict, why[0] == '\0' ? NULL : why);
	return r == NULL ? -1 : 0;
}

/* ---- readiness: the box answering, its death noticed (SBX-63, SBX-65) */

static bool dead(const struct driver_box *at, int wait_ms)
{
	struct pollfd p = { .fd = at->pidfd, .events = POLLIN };
	return poll(&p, 1, wait_ms) > 0;
}

static bool cancelled(struct fleet *f, const struct box *b)
{
	(void)pthread_mutex_lock(&f->lock);
	bool yes = b->cancel;
	(void)pthread_mutex_unlock(&f->lock);
	return yes;
}

/* The first channel, or NULL: what went wrong, with the sandbox's last words. */
static struct channel *await(struct fleet *f, struct box *b, struct err *e)
{
	int64_t deadline = clock_ms() + f->start_s * 1000LL;
	char what[ERR_MSG_MAX / 2] = "did not answer in time";
	/* A box answers within a few milliseconds of its start as a rule: ask soon, then every 150 ms. */
	for (int pause = ASK_FIRST_MS;; pause = pause * 2 > ASK_MS ? ASK_MS : pause * 2) {
		struct channel_wait w = { .deadline_ms = deadline };
		struct channel *c = channel_open(&b->at.channel, &w, e);
		if (c != NULL)
			return c;
		if (e->code != ERR_UNAVAILABLE && e->code != ERR_TIMEOUT)
			(void)snprintf(what, sizeof what, "did not answer as it should (%.180s)", e->msg);
		if (e->code != ERR_UNAVAILABLE || clock_ms() >= deadline)
			break;
		err_clear(e);
		if (cancelled(f, b)) {
			err_set(e, ERR_CONFLICT, "The lease was ended while the sandbox was being built.");
			return NULL;
		}
		if (dead(&b->at, pause)) {
			(void)snprintf(what, sizeof what, "ended before it answered");
			break;
		}
	}
	auto_buf struct buf words = BUF(ERR_MSG_MAX / 2);
	f->o.driver->words(f->o.driver, b->id, &words);
	err_replace(e, ERR_UNAVAILABLE, "The sandbox %s: %s", what, buf_c(&words));
	return NULL;
}

/* ---- building */

static int start(struct fleet *f, struct box *b, const struct driver_spec *s, struct err *e)
{
	struct driver *d = f->o.driver;
	assert(d != NULL); /* our caller has asked */
	if (d->create(d, s, &b->at, e) != 0) {
		b->at.pidfd = -1;
		return -1;
	}
	struct channel *c = await(f, b, e);
	if (c == NULL)
		return -1;
	b->line = xcalloc(1, sizeof *b->line);
	b->line->channel = c;
	if (d->settle(d, b->id, e) != 0)
		return -1;
	crash_point("sandbox.ready");
	if (set_running(f, b->id, e) != 0)
		return -1;
	crash_point("sandbox.running");
	return 0;
}

/* The box that this thread builds, or NULL: somebody does already (*running: and is done). */
static struct box *claim(struct fleet *f, const char *id, bool *running, struct err *e)
{
	(void)pthread_mutex_lock(&f->lock);
	struct box *b = box_by_id(f, id);
	*running = b != NULL && b->state == BOX_LIVE;
	if (b == NULL)
		b = box_new(f, id, BOX_BUILDING);
	else if (b->state == BOX_AWAITED)
		box_state_set(f, b, BOX_BUILDING);
	else
		b = NULL;
	(void)pthread_mutex_unlock(&f->lock);
	if (b == NULL && !*running)
		err_set(e, ERR_CONFLICT, "The sandbox is being built or ended already.");
	return b;
}

static void now_live(struct fleet *f, struct box *b, const struct driver_spec *s, int64_t read_ms)
{
	(void)pthread_mutex_lock(&f->lock);
	b->expires_ms = read_ms + s->lease_ms;
	box_state_set(f, b, BOX_LIVE);
	(void)pthread_mutex_unlock(&f->lock);
	fleet_wake(f);
}

static int fail(struct fleet *f, struct box *b, struct err *e)
{
	struct err later = { 0 };
	(void)pthread_mutex_lock(&f->lock);
	b->verdict = b->cancel ? "ended" : "error";
	(void)snprintf(b->why, sizeof b->why, "%s", b->cancel ? "" : e->msg);
	box_state_set(f, b, BOX_GOING);
	(void)pthread_mutex_unlock(&f->lock);
	(void)box_bury(f, b, &later); /* what it could not remove is removed by the reaper */
	return -1;
}

int fleet_build(struct fleet *f, const char *id, struct err *e)
{
	bool running;
	struct driver_spec s;
	auto_mem struct mem *m = mem_new();
	struct box *b = claim(f, id, &running, e);
	if (b == NULL)
		return running ? 0 : -1;
	int64_t read_ms = clock_ms();
	if (read_row(f, m, id, &s, e) != 0) {
		box_forget(f, b); /* nothing was built, and the row is none of ours or says so itself */
		return -1;
	}
	if (f->o.driver == NULL)
		(void)err_set(e, ERR_UNAVAILABLE, "This node cannot build sandboxes: %s", f->o.refusal);
	if (e->code != ERR_NONE || start(f, b, &s, e) != 0)
		return fail(f, b, e);
	now_live(f, b, &s, read_ms);
	return 0;
}

/* ---- ending */

void box_forget(struct fleet *f, struct box *b)
{
	(void)pthread_mutex_lock(&f->lock);
	for (struct box **p = &f->boxes; *p != NULL; p = &(*p)->next)
		if (*p == b) {
			*p = b->next;
			break;
		}
	b->listed = false;
	b->users++;
	box_let_go(f, b);
	(void)pthread_mutex_unlock(&f->lock);
}

static int again_later(struct fleet *f, struct box *b)
{
	(void)pthread_mutex_lock(&f->lock);
	box_state_set(f, b, BOX_RETRY);
	(void)pthread_mutex_unlock(&f->lock);
	return -1;
}

/* The box is gone from the host: nobody can use its channel any more. Forget it, or keep it for its row's sake. */
static int put_away(struct fleet *f, struct box *b, struct err *e)
{
	(void)pthread_mutex_lock(&f->lock);
	struct line *l = b->line;
	b->line = NULL;
	if (l != NULL)
		l->retired = true;
	bool mine = l != NULL && l->users == 0;
	if (b->at.pidfd >= 0)
		(void)close(b->at.pidfd);
	b->at.pidfd = -1;
	(void)pthread_mutex_unlock(&f->lock);
	if (mine) {
		channel_close(l->channel);
		free(l);
	}
	if (box_close_row(f, b->id, b->verdict, b->why, e) != 0)
		return again_later(f, b);
	box_forget(f, b);
	return 0;
}

int box_bury(struct fleet *f, struct box *b, struct err *e)
{
	struct driver *d = f->o.driver;
	if (d != NULL && d->destroy(d, b->id, clock_ms() + FLEET_END_MS, e) != 0)
		return again_later(f, b);
	crash_point("sandbox.gone");
	return put_away(f, b, e);
}

static bool settled(const struct box *b)
{
	return b->state == BOX_LIVE || b->state == BOX_RETRY || !b->listed;
}

/* Make the box GOING for this thread; false when it is gone or somebody else ended it meanwhile. f->lock is held. */
static bool claim_end(struct fleet *f, struct box *b, int64_t deadline_ms, struct err *e)
{
	b->cancel = b->cancel || b->state == BOX_BUILDING;
	if (b->state == BOX_BUILDING || b->state == BOX_GOING) {
		(void)box_wait(f, b, settled, deadline_ms);
		if (!settled(b)) {
			err_set(e, ERR_UNAVAILABLE, "The sandbox is still being ended: try again.");
			return false;
		}
	}
	if (!b->listed)
		return false;
	if (b->state != BOX_RETRY) {
		b->verdict = "ended";
		b->why[0] = '\0';
	}
	box_state_set(f, b, BOX_GOING);
	return true;
}

int fleet_end(struct fleet *f, const char *id, struct err *e)
{
	(void)pthread_mutex_lock(&f->lock);
	struct box *b = box_by_id(f, id);
	if (b == NULL) /* perhaps of an earlier process, perhaps long gone: the same work either way */
		b = box_new(f, id, BOX_AWAITED);
	b->users++;
	bool mine = claim_end(f, b, clock_ms() + FLEET_END_MS, e);
	(void)pthread_mutex_unlock(&f->lock);
	int rc = mine ? box_bury(f, b, e) : e->code == ERR_NONE ? 0 : -1;
	(void)pthread_mutex_lock(&f->lock);
	box_let_go(f, b);
	(void)pthread_mutex_unlock(&f->lock);
	return rc;
}

int box_adopt(struct fleet *f, struct box *b, struct err *e)
{
	struct driver *d = f->o.driver;
	struct driver_box at;
	if (d == NULL || d->find(d, b->id, &at, e) != 0)
		return -1;
	(void)pthread_mutex_lock(&f->lock);
	b->at = at;
	b->at.channel.socket_path = b->at.socket;
	box_state_set(f, b, BOX_LIVE);
	(void)pthread_mutex_unlock(&f->lock);
	fleet_wake(f);
	return 0;
}
