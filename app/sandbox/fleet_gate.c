/* fleet_gate.c - the sandboxes of this node and the egress boundary (EGR-9, 10, 11). */
#include <string.h>

#include "base/js.h"
#include "base/log.h"
#include "sandbox/fleet_int.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000 };

bool fleet_gated(const struct fleet *f)
{
	return f->o.gate != NULL && f->o.driver != NULL && f->o.driver->listen != NULL;
}

const char *fleet_egress(const struct fleet *f)
{
	return !fleet_gated(f) ? "none" : gate_known(f->o.gate) ? "ok" : "away";
}

/* What cannot be read is not deny-all: it is refused while egress cannot say so itself. */
static bool deny_all(const char *network)
{
	struct err e = { 0 };
	auto_json json_t *policy = js_parse(network, strlen(network), &e);
	return strcmp(js_str_or(policy, "mode", ""), "deny-all") == 0;
}

int box_admit(struct fleet *f, const char *network, struct err *e)
{
	if (network == NULL || deny_all(network))
		return 0;
	if (!fleet_gated(f))
		return err_field(e, ERR_BAD_REQUEST, "network",
		    "The driver of this node cannot enforce a policy; only \"deny-all\" can be given.");
	return gate_known(f->o.gate)
	    ? 0
	    : err_set(e, ERR_UNAVAILABLE,
		  "The egress boundary of this node is away, and only \"deny-all\" can be leased without "
		  "it: try again.");
}

bool box_transparent(const struct fleet *f, const char *network)
{
	return f->o.transparent && network != NULL && !deny_all(network);
}

static void *hand_over(void *arg)
{
	struct handing *h = arg;
	h->rc = gate_open(h->f->o.gate, h->b->id, &h->l, &h->why);
	return NULL;
}

void box_hand_over(void *handing)
{
	struct handing *h = handing;
	h->begun = true;
	h->threaded = pthread_create(&h->thread, NULL, hand_over, h) == 0;
	if (!h->threaded)
		(void)hand_over(h);
}

int box_handed_over(struct handing *h, const char *network, bool *held, struct err *e)
{
	if (h->threaded)
		(void)pthread_join(h->thread, NULL);
	h->threaded = false;
	*held = h->begun;
	if (network == NULL || (h->begun && h->rc == 0) || deny_all(network))
		return 0;
	if (!h->begun)
		return err_field(e, ERR_BAD_REQUEST, "network",
		    "This runtime cannot enforce a policy here; only \"deny-all\" can be given, or another "
		    "runtime.");
	return err_set(
	    e, ERR_UNAVAILABLE, "The egress boundary did not take the sandbox: %.300s", h->why.msg);
}

int box_regain(struct fleet *f, struct box *b, struct err *e)
{
	auto_listeners struct listeners l = { 0 };
	struct err why = { 0 }, ignored = { 0 };
	listeners_none(&l);
	if (!fleet_gated(f))
		return 0;
	/* Before the look: what egress gives back after it counts as not known yet. */
	bool known = gate_known(f->o.gate);
	if (gate_has(f->o.gate, b->id) || gate_claim(f->o.gate, b->id))
		return 0;
	if (f->o.driver->listen(f->o.driver, b->id, &b->at, &l, &why) == 0) {
		log_info("listeners of a sandbox opened again", "sandbox", b->id);
		(void)gate_open(f->o.gate, b->id, &l, &ignored); /* else as soon as egress is there */
		return 0;
	}
	/* Egress has them when it cannot be asked; otherwise nobody but the sandbox itself can. */
	if (why.code == ERR_CONFLICT && known)
		return err_set(e, ERR_CONFLICT, "%s", why.msg);
	return 0;
}

static enum gate_verdict stray(void *arg, const char *id)
{
	struct fleet *f = arg;
	struct err e = { 0 };
	(void)pthread_mutex_lock(&f->lock);
	bool listed = box_by_id(f, id) != NULL;
	(void)pthread_mutex_unlock(&f->lock);
	if (listed)
		return GATE_KEEP;
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_sandbox_n_pending, &e, f->o.node, id);
	if (r == NULL)
		return GATE_KEEP;
	/* Without a row of this node it may be another node's that uses the same egress. */
	bool over = pg_rows(r) == 1 &&
	    (strcmp(pg_str(r, 0, 0), "ended") == 0 || strcmp(pg_str(r, 0, 0), "error") == 0);
	return over ? GATE_CLOSE : GATE_FORGET;
}

void fleet_strays(struct fleet *f)
{
	if (f->o.gate != NULL)
		gate_strays(f->o.gate, stray, f);
}
