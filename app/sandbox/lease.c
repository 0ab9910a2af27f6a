#include "sandbox/lease.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "auth/once.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/id.h"
#include "base/js.h"
#include "sandbox/client_int.h"
#include "sandbox/lease_check.h"
#include "sandbox/lease_volume.h"
#include "sandbox/node.h"
#include "sandbox/volume.h"
#include "sql/sandbox.h"

enum {
	RUNTIMES_MAX = 16,
	START_SLACK_MS = 90 *
	    1000, /* waiting for a turn to start, and cleaning up, beside the start itself */
	END_MS = 40 * 1000,
	HELD_AGAIN_MS = 150,
};

/* ---- rows as clients see them */

static json_t *text_or_null(const struct pg_res *r, int row, int col)
{
	return pg_null(r, row, col) ? json_null() : json_string(pg_str(r, row, col));
}

static json_t *object(const struct conf *conf, const char *org, const struct pg_res *r, int i)
{
	json_t *isolation = js_pack("{s:b,s:s,s:i}", "kernel", pg_bool(r, i, 6), "network", pg_str(r, i, 7),
	    "tier", network_tier(conf, pg_int(r, i, 8)));
	json_t *o = js_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:o,s:s,s:o,s:n,s:s,s:o,s:s,s:s,s:s}", "id",
	    pg_str(r, i, 0), "class", pg_str(r, i, 1), "project", text_or_null(r, i, 2), "status",
	    pg_str(r, i, 3), "image", pg_str(r, i, 4), "runtime", pg_str(r, i, 5), "isolation", isolation,
	    "workdir", pg_str(r, i, 9), "network", network_object(conf, pg_str(r, i, 12)), "volume", "node",
	    pg_str(r, i, 10), "error", text_or_null(r, i, 11), "createdAt", pg_str(r, i, 13), "lastUsedAt",
	    pg_str(r, i, 14), "expiresAt", pg_str(r, i, 15));
	if (pg_null(r, i, 2))
		return o;
	char volume[VOLUME_NAME_MAX];
	volume_name(volume, VOLUME_PROJECT, org, pg_str(r, i, 2));
	js_set_str(o, "volume", volume);
	return o;
}

json_t *lease_get(const struct conf *conf, struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_get, e, org, id);
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 1)
		return object(conf, org, r, 0);
	err_set(e, ERR_NOT_FOUND, "There is no such sandbox.");
	return NULL;
}

json_t *lease_list(
    const struct conf *conf, struct pg *db, const char *org, const char *cursor, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_sandbox_list, e, org, cursor, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, object(conf, org, r, i));
	return rows;
}

/* ---- what the nodes offer */

struct offers {
	const char *runtimes[RUNTIMES_MAX + 1];
	int n;
	bool contained;
	bool unisolated; /* the deployment names DRV-0: nodes of that kind, and no others */
	const char *why; /* of the nodes that offer nothing */
	const char
	    *no_volumes; /* of a node that offers something, when none of those holds volumes; else NULL */
	bool volumes;
};

static void add_runtime(struct offers *o, const char *name)
{
	for (int i = 0; i < o->n; i++)
		if (strcmp(o->runtimes[i], name) == 0)
			return;
	if (o->n < RUNTIMES_MAX)
		o->runtimes[o->n++] = name;
}

static int offers(struct mem *m, const struct conf *conf, struct pg *db, struct offers *o, struct err *e)
{
	int silent = 0;
	*o = (struct offers){ .unisolated = lease_unisolated(conf), .why = "no node is registered" };
	struct pg_res *r = PG(db, &q_node_offers, e, pg_num(m, NODE_SILENT_S));
	if (r == NULL)
		return -1;
	mem_own(m, r, (void (*)(void *))pg_free);
	for (int i = 0; i < pg_rows(r); i++) {
		silent += !pg_bool(r, i, 1);
		if (!pg_bool(r, i, 1))
			o->why = mem_fmt(m, "node %s has not been heard of for a while", pg_str(r, i, 0));
		else if (pg_str(r, i, 2)[0] != '\0')
			o->why = mem_fmt(m, "node %s: %.300s", pg_str(r, i, 0), pg_str(r, i, 2));
		else if (pg_bool(r, i, 5) == o->unisolated)
			o->why = mem_fmt(m,
			    "node %s and the API do not agree about SANDBOX_DRIVER and "
			    "SANDBOX_ALLOW_UNISOLATED",
			    pg_str(r, i, 0));
		else if (!pg_null(r, i, 4)) {
			add_runtime(o, pg_str(r, i, 4));
			o->volumes = o->volumes || pg_str(r, i, 6)[0] == '\0';
			o->no_volumes = mem_fmt(m, "node %s: %.300s", pg_str(r, i, 0), pg_str(r, i, 6));
			o->contained = o->contained || pg_bool(r, i, 3);
		}
	}
	if (o->n > 0)
		return 0;
	(void)err_set(e, ERR_UNAVAILABLE, "No node offers sandboxes: %s", o->why);
	if (silent > 0)
		e->reason = "node_away";
	return -1;
}

int lease_offered(const struct conf *conf, struct pg *db, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct offers o;
	return offers(m, conf, db, &o, e);
}

static const char *runtime_name(const char *runtime)
{
	return runtime[0] == '\0' ? "the host's default" : runtime;
}

/* ---- resuming */

/* SBX-3: 1 with *got when the named sandbox is the org's, running and what is asked for; 0 when a new one is to be leased. */
static int resume(const struct conf *conf, struct pg *db, const struct lease_want *w, const char *project,
    json_t **got, struct err *e)
{
	struct err absent = { 0 };
	auto_json json_t *live = lease_get(conf, db, w->org, w->id, &absent);
	if (live == NULL && absent.code != ERR_NOT_FOUND) {
		*e = absent;
		return -1;
	}
	if (live == NULL || strcmp(js_str_or(live, "status", ""), "running") != 0)
		return 0;
	if (w->class != NULL && strcmp(w->class, js_str_or(live, "class", "")) != 0)
		return err_field(e, ERR_CONFLICT, "class",
		    "Sandbox %s is of class \"%s\"; end it, or leave `id` out for another.", w->id,
		    js_str_or(live, "class", ""));
	if (w->runtime != NULL && strcmp(w->runtime, js_str_or(live, "runtime", "")) != 0)
		return err_field(e, ERR_CONFLICT, "runtime",
		    "Sandbox %s runs on %s; end it, or leave `id` out for another.", w->id,
		    runtime_name(js_str_or(live, "runtime", "")));
	if (project[0] != '\0' && strcmp(project, js_str_or(live, "project", "")) != 0)
		return err_field(e, ERR_CONFLICT, "project",
		    "Sandbox %s does not have this project; leave `id` out for the one that has.", w->id);
	*got = steal(live);
	return 1;
}

/* ---- a new one */

struct plan {
	char id[ID_MAX];
	struct lease_terms terms;
	struct boundary boundary;
	struct box_addr node;
	struct lease_holder holder;
};

/* Something of its own outlives the lease on some node. */
static bool keeps(const struct lease_want *w)
{
	return w->project != NULL || w->state_of != NULL;
}

static int derive(
    struct ctx *c, struct pg *db, const struct lease_want *w, struct boundary *got, struct err *e)
{
	struct offers o;
	if (offers(c->mem, c->conf, db, &o, e) != 0)
		return -1;
	if (keeps(w) && !o.volumes)
		return err_set(e, ERR_UNAVAILABLE, "No node holds volumes: %s", o.no_volumes);
	return boundary_derive(
	    &(struct boundary_ask){
		.org = w->org,
		.volume = keeps(w) || w->mounts != NULL,
		.requested = w->runtime,
		.preference = conf_str(c->conf, "SANDBOX_RUNTIME_CLASS"),
		.contained = o.contained,
		.offered = o.runtimes,
	    },
	    got, e);
}

/* The chosen node's name and capacity; its row is locked, so that its free slot is ours. */
static struct pg_res *pick(struct ctx *c, struct pg *db, const struct lease_want *w, const struct plan *p,
    const char *at, struct err *e)
{
	const struct boundary *b = &p->boundary;
	bool by_name = b->runtime[0] != '\0' &&
	    !b->kernel; /* a shared kernel given by name is given where it is contained only */
	auto_res struct pg_res *node = PG(db, &q_node_pick, e, b->runtime, by_name ? "true" : "false",
	    pg_num(c->mem, NODE_SILENT_S), lease_unisolated(c->conf) ? "false" : "true",
	    at[0] != '\0' ? at : w->node, keeps(w) ? "true" : "false");
	if (node == NULL || pg_rows(node) == 1)
		return steal(node);
	if (at[0] == '\0') {
		err_set(e, ERR_UNAVAILABLE, "The node that offered the runtime is gone: try again.");
		return NULL;
	}
	err_set(e, ERR_UNAVAILABLE,
	    "What the lease keeps is on node %.60s, which is away or does not offer the runtime.", at);
	e->reason = "node_away";
	return NULL;
}

/* Inside a transaction. 1: somebody has the project or the session's state already. */
static int insert(struct ctx *c, struct pg *db, const struct lease_want *w, struct plan *p, struct err *e)
{
	struct mem *m = c->mem;
	const struct boundary *b = &p->boundary;
	char at[64];
	int held = lease_volumes_begin(c, db, w, &p->terms, &p->holder, at, e);
	if (held != 0)
		return held;
	auto_res struct pg_res *node = pick(c, db, w, p, at, e);
	if (node == NULL)
		return -1;
	const char *env = p->terms.env == NULL ? "{}" : js_dump(m, p->terms.env);
	const struct network *net = &p->terms.network;
	auto_res struct pg_res *r = PG(db, &q_sandbox_insert, e, p->id, w->org, p->terms.class,
	    p->terms.image, b->runtime, b->kernel ? "true" : "false", net->reach, pg_num(m, net->tier),
	    pg_str(node, 0, 0), pg_str(node, 0, 1), p->terms.workdir, env, js_dump(m, p->terms.limits),
	    w->session, w->user, pg_num(m, p->terms.ttl_s), js_dump(m, net->policy),
	    p->terms.project[0] == '\0' ? NULL : p->terms.project, w->state_of,
	    p->terms.mounts == NULL ? "" : js_dump(m, p->terms.mounts));
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 1)
		return lease_volumes_claim(c, db, w, &p->terms, pg_str(node, 0, 0), p->id, e);
	(void)err_set(e, ERR_UNAVAILABLE,
	    at[0] == '\0' ? "All nodes are full: try again when a lease has ended."
			  : "The node that holds the volume is full: try again when a lease has ended.");
	e->reason = "nodes_full";
	return -1;
}

/* A crash of PostgreSQL may lose a row until sandbox_n_running has made it last: nothing is left of it, and who asked asks again. */
static int row_lost(struct err *e)
{
	(void)err_replace(e, ERR_UNAVAILABLE, "The database has lost the lease in a crash: try again.");
	e->reason = "database_away";
	return -1;
}

/* As insert(). */
static int place(struct ctx *c, struct pg *db, const struct lease_want *w, struct plan *p, struct err *e)
{
	id_make("sbx", p->id);
	if (once_begin(c, db, e) != 0)
		return -1;
	int rc = insert(c, db, w, p, e);
	if (rc != 0) {
		pg_rollback(db);
		return rc;
	}
	if (once_commit(c, db, false, js_pack("{s:s}", "id", p->id), e) != 0)
		return -1; /* if it was written after all, nobody asks for it and the reaper closes it */
	crash_point("sandbox.row");
	char status[CLIENT_STATUS_MAX];
	if (client_reach(db, w->org, p->id, &p->node, status, e) == 0)
		return 0;
	return e->code == ERR_NOT_FOUND ? row_lost(e) : -1;
}

/* The node was never reached, so nothing was built; whatever else went wrong there it writes into the row itself. */
static void unbuilt(struct ctx *c, const struct lease_want *w, const struct plan *p, const char *why)
{
	struct err ignored = { 0 }; /* then the node's reaper closes the row */
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, &ignored);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &q_sandbox_unbuilt, &ignored, w->org, p->id, why);
	(void)r;
}

static int start_ms(const struct ctx *c)
{
	return (int)conf_int(c->conf, "SANDBOX_START_TIMEOUT_S") * 1000 + START_SLACK_MS;
}

static int build(struct ctx *c, const struct lease_want *w, const struct plan *p, struct err *e)
{
	int total_ms = start_ms(c);
	auto_json json_t *body = js_pack("{s:s}", "id", p->id);
	struct client_until until = { total_ms, w->cancelled, w->arg };
	if (client_call_until(&p->node, "POST", "http://node/v1/node/sandboxes", body, &until, NULL, e) == 0)
		return 0;
	if (err_is(e, "node_away"))
		unbuilt(c, w, p, e->msg);
	/* DRV-5: what its driver cannot enforce; a host whose disk is full. */
	if (e->code == ERR_BAD_REQUEST || e->code == ERR_STORAGE)
		return -1;
	if (e->code == ERR_NOT_FOUND)
		return row_lost(e);
	char msg[ERR_MSG_MAX];
	const char *reason = e->reason;
	(void)snprintf(msg, sizeof msg, "%s", e->msg);
	(void)err_replace(e, ERR_UNAVAILABLE, "%s", msg);
	e->reason = reason;
	return -1;
}

/* ---- somebody has the project already (SBX-3) */

/* 0 when the live one is what is asked for. */
static int agrees(const struct lease_want *w, const struct lease_holder *h, struct err *e)
{
	if (!h->project)
		return err_field(e, ERR_CONFLICT, "session",
		    "Sandbox %s has this session, and only one at a time can; use that one, or end it.",
		    h->id);
	if (w->class != NULL && strcmp(w->class, h->class) != 0)
		return err_field(e, ERR_CONFLICT, "class",
		    "Sandbox %s has this project, and is of class \"%s\"; use that one, or end it.", h->id,
		    h->class);
	if (w->runtime != NULL && strcmp(w->runtime, h->runtime) != 0)
		return err_field(e, ERR_CONFLICT, "runtime",
		    "Sandbox %s has this project, and runs on %s; use that one, or end it.", h->id,
		    runtime_name(h->runtime));
	return 0;
}

/* Until it runs or is gone. 1 with *got: it runs; 0: try again; -1: it could not be built, or takes too long. */
static int await(struct ctx *c, const struct lease_want *w, const struct lease_holder *h, int64_t deadline_ms,
    json_t **got, struct err *e)
{
	while (clock_ms() < deadline_ms && (w->cancelled == NULL || !w->cancelled(w->arg))) {
		auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
		auto_json json_t *now = db == NULL ? NULL : lease_get(c->conf, db, w->org, h->id, e);
		if (now == NULL && e->code == ERR_NOT_FOUND) { /* row_lost() */
			err_clear(e);
			return 0;
		}
		if (now == NULL)
			return -1;
		pg_put(steal(db));
		const char *status = js_str_or(now, "status", "");
		if (strcmp(status, "error") == 0)
			return err_set(e, ERR_UNAVAILABLE, "%s",
			    js_str_or(now, "error", "The sandbox could not be built."));
		if (strcmp(status, "ended") == 0)
			return 0;
		if (strcmp(status, "running") == 0 && !h->ending) {
			*got = steal(now);
			return 1;
		}
		(void)poll(NULL, 0, HELD_AGAIN_MS);
	}
	e->retry_s = 1;
	return err_set(e, ERR_CONFLICT,
	    "Sandbox %s has what the lease asks for and is %s: try again shortly.", h->id,
	    h->ending ? "ending" : "being built");
}

/* As place(), but what is held is waited for, and *live given back when it is what is asked for. */
static int place_or_find(
    struct ctx *c, const struct lease_want *w, struct plan *p, json_t **live, struct err *e)
{
	int64_t deadline = clock_ms() + start_ms(c);
	for (;;) {
		auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
		int rc = db == NULL ? -1 : place(c, db, w, p, e);
		if (rc <= 0)
			return rc;
		pg_put(steal(db)); /* waiting takes long, and connections are few */
		if (!p->holder.ending && agrees(w, &p->holder, e) != 0)
			return -1;
		rc = await(c, w, &p->holder, deadline, live, e);
		if (rc != 0)
			return rc;
	}
}

/* SBX-4: everything that can be refused is refused before anything is written. */
static int judge(struct ctx *c, const struct lease_want *w, struct plan *p, json_t **live, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL)
		return -1;
	int found = w->id == NULL ? 0 : resume(c->conf, db, w, p->terms.project, live, e);
	if (found != 0)
		return found;
	return lease_state_check(db, w, e) != 0 ? -1 : derive(c, db, w, &p->boundary, e);
}

json_t *lease_take(struct ctx *c, const struct lease_want *w, bool *created, struct err *e)
{
	struct plan p = { 0 };
	json_t *live = NULL;
	*created = false;
	if (lease_check(c->conf, w, &p.terms, e) != 0)
		return NULL;
	(void)mem_json(c->mem, p.terms.limits);
	(void)mem_json(c->mem, p.terms.network.policy);
	if (p.terms.mounts != NULL)
		(void)mem_json(c->mem, p.terms.mounts);
	if (judge(c, w, &p, &live, e) != 0 || place_or_find(c, w, &p, &live, e) != 0)
		return live;
	if (build(c, w, &p, e) != 0)
		return NULL;
	*created = true;
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	return db == NULL ? NULL : lease_get(c->conf, db, w->org, p.id, e);
}

int lease_ask_end(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_ask_end, e, org, id);
	return r == NULL ? -1 : 0;
}

/* The end is written down: the node does it when it is back, whether or not it is asked again. */
static int ended_later(struct err *e)
{
	if (!err_is(e, "node_away"))
		return -1;
	(void)err_replace(e, ERR_UNAVAILABLE,
	    "The sandbox's node does not answer; the sandbox will be ended as soon as it is back.");
	e->reason = "node_away";
	return -1;
}

int lease_end(struct ctx *c, const char *org, const char *id, struct err *e)
{
	struct box_addr a;
	char status[CLIENT_STATUS_MAX];
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL || lease_ask_end(db, org, id, e) != 0)
		return -1;
	if (client_reach(db, org, id, &a, status, e) != 0)
		return ended_later(e);
	pg_put(steal(db));
	if (strcmp(status, "ended") == 0 || strcmp(status, "error") == 0)
		return 0;
	return client_call(&a, "DELETE", client_url(c->mem, &a, ""), NULL, END_MS, NULL, e) == 0
	    ? 0
	    : ended_later(e);
}

int lease_use(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e)
{
	if (box_find(db, org, id, a, e) != 0)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_sandbox_used, e, org, id);
	return r == NULL ? -1 : 0;
}
