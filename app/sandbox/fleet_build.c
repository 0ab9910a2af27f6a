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
#include "sandbox/network.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000, ASK_SOON_MS = 2, SOON_MS = 200, ASK_MS = 100, ENV_MAX = 1024 };

/* ---- the row */

/* Programs count the host's processors, not what they may use of them: nproc, OpenMP and older Go read these. */
static void processors_env(json_t *env, long long cpu_milli)
{
	long long whole = (cpu_milli + 999) / 1000;
	if (whole == 0 || whole >= sysconf(_SC_NPROCESSORS_ONLN))
		return;
	js_set(env, "OMP_NUM_THREADS", json_sprintf("%lld", whole));
	js_set(env, "GOMAXPROCS", json_sprintf("%lld", whole));
}

static const char *const *environment(
    struct mem *m, const char *lease_env, long long tier, bool gated, long long cpu_milli, struct err *e)
{
	auto_json json_t *env = js_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "PATH", "/usr/local/bin:/usr/bin:/bin",
	    "HOME", IMAGE_HOME, "USER", "agent", "LOGNAME", "agent", "LANG", "C.UTF-8", "SHELL", "/bin/bash");
	auto_json json_t *asked = js_parse(lease_env, strlen(lease_env), e);
	const char *name;
	json_t *v;
	size_t n = 0;
	processors_env(env, cpu_milli);
	json_object_foreach(asked, name, v)
		js_set(env, name, json_incref(v));
	js_set(env, "SANDBOX_TIER", json_sprintf("%lld", tier));
	if (gated)
		network_env(env);
	const char **list = mem_alloc(m, (json_object_size(env) + 1) * sizeof *list);
	json_object_foreach(env, name, v)
		list[n++] = mem_fmt(m, "%s=%s", name, json_string_value(v));
	return e->code == ERR_NONE ? list : NULL;
}

static const char *text_or_null(struct mem *m, const struct pg_res *r, int col)
{
	return pg_null(r, 0, col) ? NULL : mem_str(m, pg_str(r, 0, col));
}

/* What the row asks for, in the arena. ERR_CONFLICT when it is not pending (any more). */
static int read_row(struct fleet *f, struct mem *m, const char *id, struct driver_spec *s,
    const char **network, struct err *e)
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
	*network = pg_int(r, 0, 7) == 0 ? NULL : mem_str(m, pg_str(r, 0, 9)); /* tier 0 promises nothing */
	const struct row_keeps keeps = { mem_str(m, pg_str(r, 0, 10)), text_or_null(m, r, 11),
		text_or_null(m, r, 12), mem_str(m, pg_str(r, 0, 13)), pg_int(r, 0, 14), pg_int(r, 0, 15) };
	auto_json json_t *limits = js_parse(pg_str(r, 0, 5), strlen(pg_str(r, 0, 5)), e);
	*s = (struct driver_spec){
		.id = mem_str(m, id),
		.class = mem_str(m, pg_str(r, 0, 1)),
		.runtime = mem_str(m, pg_str(r, 0, 2)),
		.workdir = mem_str(m, pg_str(r, 0, 3)),
		.env = environment(
		    m, pg_str(r, 0, 4), pg_int(r, 0, 7), fleet_gated(f), js_int(limits, "cpuMilli", 0), e),
		.slot = (int)pg_int(r, 0, 6),
		.limits = { js_int(limits, "memoryMb", 0), js_int(limits, "cpuMilli", 0),
		    js_int(limits, "pids", 0), js_int(limits, "diskMb", 0) },
		.lease_ms = pg_int(r, 0, 8),
		.idle_ms = f->idle_s * 1000LL,
		.start_ms = f->start_s * 1000LL,
	};
	if (e->code == ERR_NONE && s->lease_ms <= 0)
		return err_set(e, ERR_CONFLICT, "The lease ended before the sandbox was built.");
	return e->code == ERR_NONE ? box_mounts(f, m, &keeps, s, e) : -1;
}

/* Why there was no pending row to make running: ended meanwhile, or lost by a crash of PostgreSQL. */
static int not_pending(struct fleet *f, struct pg *db, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_n_pending, e, f->o.node, id);
	if (r == NULL)
		return -1;
	return pg_rows(r) == 0
	    ? err_set(e, ERR_NOT_FOUND, "The sandbox's row is gone.")
	    : err_set(e, ERR_CONFLICT, "The lease was ended while the sandbox was being built.");
}

static int set_running(struct fleet *f, const struct box *b, bool held, struct err *e)
{
	const char *workdir = b->at.workdir;
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_sandbox_n_running, e, f->o.node, b->id,
	    workdir[0] == '\0' ? NULL : workdir, held ? "true" : "false");
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1 ? 0 : not_pending(f, db, b->id, e);
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

struct asked {
	struct fleet *f;
	const struct box *b;
};

static bool cancelled(void *arg)
{
	const struct asked *a = arg;
	struct fleet *f = a->f;
	const struct box *b = a->b;
	(void)pthread_mutex_lock(&f->lock);
	bool yes = b->cancel;
	(void)pthread_mutex_unlock(&f->lock);
	return yes;
}

/* The first channel, or NULL: what went wrong, with the sandbox's last words. */
static struct channel *await(struct fleet *f, struct box *b, struct err *e)
{
	int64_t deadline = clock_ms() + f->start_s * 1000LL;
	struct asked asked = { f, b };
	char what[ERR_MSG_MAX / 2] = "did not answer in time";
	/* A box answers within some ten milliseconds of its start as a rule: until then a look every 2 ms, which is one system call,
	 * so that hardly any of the wait is ours. */
	int64_t soon = clock_ms() + SOON_MS;
	for (int pause = ASK_SOON_MS;; pause = clock_ms() < soon ? ASK_SOON_MS : ASK_MS) {
		struct channel_wait w = { .deadline_ms = deadline };
		struct channel *c = channel_open(&b->at.channel, &w, e);
		if (c != NULL)
			return c;
		if (e->code != ERR_UNAVAILABLE && e->code != ERR_TIMEOUT)
			(void)snprintf(what, sizeof what, "did not answer as it should (%.180s)", e->msg);
		if (e->code != ERR_UNAVAILABLE || clock_ms() >= deadline)
			break;
		err_clear(e);
		if (cancelled(&asked)) {
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

/* Started, and its box has answered: the first channel. */
static struct channel *bring_up(struct fleet *f, struct box *b, const struct driver_spec *s, struct err *e)
{
	if (f->o.driver->create(f->o.driver, s, &b->at, e) == 0)
		return await(f, b, e);
	b->at.pidfd = -1;
	return NULL;
}

static int start(
    struct fleet *f, struct box *b, const struct driver_spec *want, const char *network, struct err *e)
{
	struct driver *d = f->o.driver;
	struct driver_spec s = *want;
	struct asked asked = { f, b };
	struct handing h = { .f = f, .b = b, .l = { .transparent = box_transparent(f, network) } };
	bool held;
	listeners_none(&h.l);
	assert(d != NULL); /* our caller has asked */
	if (box_admit(f, network, e) != 0)
		return -1;
	s.listeners = fleet_gated(f) ? &h.l : NULL;
	s.listening = box_hand_over;
	s.listening_arg = &h;
	s.cancelled = cancelled;
	s.arg = &asked;
	struct channel *c = bring_up(f, b, &s, e);
	int rc = box_handed_over(&h, network, &held, e);
	listeners_close(&h.l);
	if (c != NULL) {
		b->line = xcalloc(1, sizeof *b->line);
		b->line->channel = c;
	}
	if (c == NULL || rc != 0 || d->settle(d, b->id, e) != 0)
		return -1;
	crash_point("sandbox.ready");
	if (set_running(f, b, held, e) != 0)
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

static int fail(struct fleet *f, struct box *b, bool keeps, struct err *e)
{
	struct err later = { 0 };
	(void)pthread_mutex_lock(&f->lock);
	b->verdict = b->cancel ? "ended" : "error";
	(void)snprintf(b->why, sizeof b->why, "%s", b->cancel ? "" : e->msg);
	box_state_set(f, b, BOX_GOING);
	(void)pthread_mutex_unlock(&f->lock);
	(void)box_bury(f, b, &later); /* what it could not remove is removed by the reaper */
	if (keeps)
		fleet_volumes_unmade(f);
	return -1;
}

int fleet_build(struct fleet *f, const char *id, struct err *e)
{
	bool running;
	struct driver_spec s;
	const char *network;
	auto_mem struct mem *m = mem_new();
	struct box *b = claim(f, id, &running, e);
	if (b == NULL)
		return running ? 0 : -1;
	int64_t read_ms = clock_ms();
	if (read_row(f, m, id, &s, &network, e) != 0) {
		box_forget(f, b); /* nothing was built, and the row is none of ours or says so itself */
		return -1;
	}
	b->keeps = s.n_mounts > 0; /* nobody else looks while it is BUILDING */
	if (f->o.driver == NULL)
		(void)err_set(e, ERR_UNAVAILABLE, "This node cannot build sandboxes: %s", f->o.refusal);
	if (e->code != ERR_NONE || start(f, b, &s, network, e) != 0)
		return fail(f, b, s.n_mounts > 0, e);
	now_live(f, b, &s, read_ms);
	if (s.n_mounts > 0)
		fleet_volumes_used(f);
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
	if (b->keeps)
		fleet_volumes_left(f, b->id);
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
	if (f->o.gate != NULL)
		gate_close(f->o.gate, b->id); /* the last that holds its namespace */
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
	bool still = b->state == BOX_AWAITED && b->listed; /* nobody has ended it while it was looked for */
	if (still) {
		b->at = at;
		b->at.channel.socket_path = b->at.socket;
		box_state_set(f, b, BOX_LIVE);
	}
	(void)pthread_mutex_unlock(&f->lock);
	if (!still) {
		(void)close(at.pidfd);
		return err_set(e, ERR_CONFLICT, "The sandbox is being ended.");
	}
	fleet_wake(f);
	return 0;
}
