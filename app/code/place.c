#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "code/run.h"
#include "code/tool.h"
#include "sandbox/lease.h"
#include "sql/run.h"

enum {
	/* Beside the tool's time: fetch, checkout, commit, check and push, each with a deadline of its own. */
	LEASE_SLACK_S = 1800,
	END_AGAIN_MS = 500,
	/* A node that is being restarted is back within seconds; a run need not fail for that. */
	NODE_WAIT_MS = 30 * 1000,
	NODE_AGAIN_MS = 500,
	FULL_AGAIN_MS = 1000,
};

static int put_sandbox(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return run_set(r, db, &q_run_set_sandbox, arg, e);
}

static int find_box(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return box_find(db, r->org, arg, &r->box, e);
}

static bool because(const struct err *e, const char *reason)
{
	return e->code == ERR_UNAVAILABLE && err_is(e, reason);
}

/* The node or PostgreSQL, here or there, is being restarted; anything else is an answer. */
static bool passes(const struct err *e)
{
	return because(e, "node_away") || because(e, "node_cut") || because(e, "node_starting") ||
	    because(e, "database_away");
}

/* What a run goes through while it waits for its lease: each cause has its own patience, from when it first came up. */
struct patience {
	int64_t away_ms, full_ms; /* until when; full 0: not met yet */
};

/* After a failed lease: 0 when it is to be asked for again, after a pause. Places become free, so a run waits for one as
 * long as it may work itself; its runner's thread waits with it, as no other run would get a place either. */
static int bear(struct run *r, struct patience *p, const struct err *one, struct err *e)
{
	int64_t now = clock_ms();
	if (because(one, "nodes_full")) {
		if (p->full_ms == 0 &&
		    run_step(r, "lease", "running", e, "All nodes are full; waiting for a free place") != 0)
			return -1;
		if (p->full_ms == 0)
			p->full_ms = now + r->timeout_s * 1000;
		p->away_ms = now + NODE_WAIT_MS;
		if (now < p->full_ms)
			return poll(NULL, 0, FULL_AGAIN_MS);
	} else if (passes(one) && now < p->away_ms) {
		return poll(NULL, 0, NODE_AGAIN_MS);
	}
	*e = *one;
	return -1;
}

/*
 * A lease; while its node or PostgreSQL is away the run waits a little and asks again, and longer while all are full. What failed half-way may stand there
 * all the same, built and unknown to us: it is ended before the next is asked for, as never two may live.
 */
static json_t *lease_patiently(struct run *r, const struct lease_want *want, struct err *e)
{
	struct patience patience = { .away_ms = clock_ms() + NODE_WAIT_MS };
	for (;;) {
		struct ctx c = run_ctx(r);
		bool created;
		struct err one = { 0 };
		if (run_go(r, e) != 0)
			return NULL;
		json_t *got = lease_take(&c, want, &created, &one);
		if (got != NULL)
			return got;
		struct err left = { 0 };
		int n, swept = err_http(one.code) >= 500 ? run_sweep_leases(r, &n, &left) : 0;
		if (swept != 0) {
			*e = left;
			return NULL;
		}
		if (bear(r, &patience, &one, e) != 0)
			return NULL;
	}
}

int run_lease(struct run *r, struct err *e)
{
	long long ttl_s = r->timeout_s + LEASE_SLACK_S, most = conf_int(r->svc->conf, "SANDBOX_MAX_TTL_S");
	const struct lease_want want = {
		.org = r->org,
		.user = r->created_by,
		.class = r->desktop ? "desktop" : tool_find(r->tool)->class,
		.session = r->session,
		.ttl_s = ttl_s < most ? ttl_s : most,
		.cancelled = run_cancelled,
		.arg = r,
	};
	auto_json json_t *got = lease_patiently(r, &want, e);
	if (got == NULL)
		return -1;
	const char *id = js_str_or(got, "id", ""), *runtime = js_str_or(got, "runtime", "");
	(void)snprintf(r->box.id, sizeof r->box.id, "%s", id);
	r->leased = true;
	/* Refused by the fence: another runner has the run, and swept before this lease existed. run.c ends it. */
	if (run_try(r, put_sandbox, r->box.id, e) != 0)
		return -1;
	crash_point("run.leased");
	if (run_step(r, "leased", "ok", e, "Sandbox %s on %s, boundary %s", id, js_str_or(got, "node", "?"),
		runtime[0] == 0 ? "of the host's default runtime" : runtime) != 0)
		return -1;
	return run_try(r, find_box, mem_str(r->mem, id), e);
}

/* Until it is gone, the node stays away for too long, or the job is lost. */
static int end_one(struct run *r, const char *id, struct err *e)
{
	int64_t until = clock_ms() + r->svc->end_ms;
	for (;;) {
		struct ctx c = run_ctx(r);
		struct err one = { 0 };
		if (lease_end(&c, r->org, id, &one) == 0 || one.code == ERR_NOT_FOUND)
			return 0;
		if (clock_ms() >= until || run_why(r) == TASK_LOST) {
			*e = one;
			return -1;
		}
		(void)poll(NULL, 0, END_AGAIN_MS);
	}
}

static int ask_end(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return lease_ask_end(db, r->org, arg, e);
}

int run_unlease(struct run *r, struct err *e)
{
	if (!r->leased)
		return 0;
	struct err one = { 0 };
	r->leased = false;
	int rc = end_one(r, r->box.id, &one);
	if (run_why(r) == TASK_LOST)
		return rc;
	if (rc == 0)
		return run_step(r, "ended", "ok", e, "Sandbox %s is gone", r->box.id);
	if (run_try(r, ask_end, r->box.id, e) != 0)
		return -1;
	log_warn("lease not ended", "run", r->id, "org", r->org, "sandbox", r->box.id, "error", one.msg);
	return run_step(r, "ended", "failed", e,
	    "Sandbox %s could not be confirmed gone; its node ends it as soon as it can: %s", r->box.id,
	    one.msg);
}

struct ids {
	char id[16][sizeof((struct box_addr *)0)->id];
	int n;
};

static int list_sandboxes(struct run *r, struct pg *db, void *arg, struct err *e)
{
	struct ids *ids = arg;
	/* Under the fence: what is listed was leased by us or before us, never by who took the job over. */
	if (pg_begin(db, e) != 0 || run_hold(r, db, e) != 0)
		return -1;
	auto_res struct pg_res *q = PG(db, &q_run_sandboxes, e, r->org, r->session);
	if (q == NULL || pg_commit(db, e) != 0)
		return -1;
	ids->n = pg_rows(q) < 16 ? pg_rows(q) : 16;
	for (int i = 0; i < ids->n; i++)
		(void)snprintf(ids->id[i], sizeof ids->id[i], "%s", pg_str(q, i, 0));
	return 0;
}

int run_sweep_leases(struct run *r, int *n, struct err *e)
{
	struct ids ids = { 0 };
	*n = 0;
	if (run_try(r, list_sandboxes, &ids, e) != 0)
		return -1;
	for (*n = 0; *n < ids.n; ++*n)
		if (end_one(r, ids.id[*n], e) != 0 ||
		    run_step(r, "ended", "ok", e, "Sandbox %s, left from before, is gone", ids.id[*n]) != 0)
			return -1;
	return 0;
}
