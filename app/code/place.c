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
};

static int put_sandbox(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return run_set(r, db, &q_run_set_sandbox, arg, e);
}

static int find_box(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return box_find(db, r->org, arg, &r->box, e);
}

static bool passes(const struct err *e)
{
	return e->code == ERR_UNAVAILABLE && e->reason != NULL &&
	    (strcmp(e->reason, "node_away") == 0 || strcmp(e->reason, "database_away") == 0);
}

/*
 * A lease; while its node or PostgreSQL is away the run waits a little and asks again. What failed half-way may stand there
 * all the same, built and unknown to us: it is ended before the next is asked for, as never two may live.
 */
static json_t *lease_patiently(struct run *r, const struct lease_want *want, struct err *e)
{
	int64_t until = clock_ms() + NODE_WAIT_MS;
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
		if (swept != 0 || !passes(&one) || clock_ms() >= until) {
			*e = swept != 0 ? left : one;
			return NULL;
		}
		(void)poll(NULL, 0, NODE_AGAIN_MS);
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
	auto_res struct pg_res *q = PG(db, &q_run_sandboxes, e, r->org, r->session);
	if (q == NULL)
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
