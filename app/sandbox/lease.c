#include "sandbox/lease.h"

#include <stdio.h>
#include <string.h>

#include "base/crash.h"
#include "base/id.h"
#include "base/js.h"
#include "sandbox/client_int.h"
#include "sandbox/lease_check.h"
#include "sandbox/node.h"
#include "sql/sandbox.h"

enum {
	RUNTIMES_MAX = 16,
	START_SLACK_MS = 90 *
	    1000, /* waiting for a turn to start, and cleaning up, beside the start itself */
	END_MS = 40 * 1000,
};

/* ---- rows as clients see them */

static json_t *text_or_null(const struct pg_res *r, int row, int col)
{
	return pg_null(r, row, col) ? json_null() : json_string(pg_str(r, row, col));
}

static json_t *object(const struct pg_res *r, int i)
{
	json_t *isolation = js_pack("{s:b,s:s,s:I}", "kernel", pg_bool(r, i, 6), "network", pg_str(r, i, 7),
	    "tier", (json_int_t)pg_int(r, i, 8));
	return js_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:o,s:s,s:{s:s},s:n,s:s,s:o,s:s,s:s,s:s}", "id",
	    pg_str(r, i, 0), "class", pg_str(r, i, 1), "project", text_or_null(r, i, 2), "status",
	    pg_str(r, i, 3), "image", pg_str(r, i, 4), "runtime", pg_str(r, i, 5), "isolation", isolation,
	    "workdir", pg_str(r, i, 9), "network", "mode", "deny-all", "volume", "node", pg_str(r, i, 10),
	    "error", text_or_null(r, i, 11), "createdAt", pg_str(r, i, 12), "lastUsedAt", pg_str(r, i, 13),
	    "expiresAt", pg_str(r, i, 14));
}

json_t *lease_get(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_get, e, org, id);
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 1)
		return object(r, 0);
	err_set(e, ERR_NOT_FOUND, "There is no such sandbox.");
	return NULL;
}

json_t *lease_list(struct pg *db, const char *org, const char *cursor, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_sandbox_list, e, org, cursor, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, object(r, i));
	return rows;
}

/* ---- what the nodes offer */

struct offers {
	const char *runtimes[RUNTIMES_MAX + 1];
	int n;
	bool contained;
	const char *why; /* of the nodes that offer nothing */
};

static void add_runtime(struct offers *o, const char *name)
{
	for (int i = 0; i < o->n; i++)
		if (strcmp(o->runtimes[i], name) == 0)
			return;
	if (o->n < RUNTIMES_MAX)
		o->runtimes[o->n++] = name;
}

static int offers(struct mem *m, struct pg *db, struct offers *o, struct err *e)
{
	*o = (struct offers){ .why = "no node is registered" };
	struct pg_res *r = PG(db, &q_node_offers, e, pg_num(m, NODE_SILENT_S));
	if (r == NULL)
		return -1;
	mem_own(m, r, (void (*)(void *))pg_free);
	for (int i = 0; i < pg_rows(r); i++) {
		if (!pg_bool(r, i, 1))
			o->why = mem_fmt(m, "node %s has not been heard of for a while", pg_str(r, i, 0));
		else if (pg_str(r, i, 2)[0] != '\0')
			o->why = mem_fmt(m, "node %s: %.300s", pg_str(r, i, 0), pg_str(r, i, 2));
		else if (!pg_null(r, i, 4)) {
			add_runtime(o, pg_str(r, i, 4));
			o->contained = o->contained || pg_bool(r, i, 3);
		}
	}
	return o->n > 0 ? 0 : err_set(e, ERR_UNAVAILABLE, "No node offers sandboxes: %s", o->why);
}

int lease_offered(struct pg *db, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct offers o;
	return offers(m, db, &o, e);
}

/* ---- resuming */

/* SBX-3: 1 with *got when the named sandbox is the org's, running and what is asked for; 0 when a new one is to be leased. */
static int resume(struct pg *db, const struct lease_want *w, json_t **got, struct err *e)
{
	struct err absent = { 0 };
	auto_json json_t *live = lease_get(db, w->org, w->id, &absent);
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
		    "Sandbox %s runs on \"%s\"; end it, or leave `id` out for another.", w->id,
		    js_str_or(live, "runtime", ""));
	*got = steal(live);
	return 1;
}

/* ---- a new one */

struct plan {
	char id[ID_MAX];
	struct lease_terms terms;
	struct boundary boundary;
	struct box_addr node;
};

static int derive(
    struct ctx *c, struct pg *db, const struct lease_want *w, struct boundary *got, struct err *e)
{
	struct offers o;
	if (offers(c->mem, db, &o, e) != 0)
		return -1;
	return boundary_derive(
	    &(struct boundary_ask){
		.org = w->org,
		.requested = w->runtime,
		.preference = conf_str(c->conf, "SANDBOX_RUNTIME_CLASS"),
		.contained = o.contained,
		.offered = o.runtimes,
	    },
	    got, e);
}

/* Inside a transaction: the node's row is locked, so that its free slot is ours. */
static int insert(struct ctx *c, struct pg *db, const struct lease_want *w, struct plan *p, struct err *e)
{
	struct mem *m = c->mem;
	const struct boundary *b = &p->boundary;
	bool by_name = b->runtime[0] != '\0' &&
	    !b->kernel; /* a shared kernel given by name is given where it is contained only */
	auto_res struct pg_res *node = PG(
	    db, &q_node_pick, e, b->runtime, by_name ? "true" : "false", pg_num(m, NODE_SILENT_S));
	if (node == NULL)
		return -1;
	if (pg_rows(node) == 0)
		return err_set(e, ERR_UNAVAILABLE, "The node that offered the runtime is gone: try again.");
	const char *env = p->terms.env == NULL ? "{}" : js_dump(m, p->terms.env);
	/* Tier 2: there is nothing that the sandbox could reach (SBX-33). */
	auto_res struct pg_res *r = PG(db, &q_sandbox_insert, e, p->id, w->org, p->terms.class,
	    p->terms.image, b->runtime, b->kernel ? "true" : "false", "none", "2", pg_str(node, 0, 0),
	    pg_str(node, 0, 1), p->terms.workdir, env, js_dump(m, p->terms.limits), w->session, w->user,
	    pg_num(m, p->terms.ttl_s));
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1
	    ? 0
	    : err_set(e, ERR_UNAVAILABLE, "All nodes are full: try again when a lease has ended.");
}

static int place(struct ctx *c, struct pg *db, const struct lease_want *w, struct plan *p, struct err *e)
{
	id_make("sbx", p->id);
	if (pg_begin(db, e) != 0)
		return -1;
	if (insert(c, db, w, p, e) != 0) {
		pg_rollback(db);
		return -1;
	}
	if (pg_commit(db, e) != 0)
		return -1; /* if it was written after all, nobody asks for it and the reaper closes it */
	crash_point("sandbox.row");
	char status[CLIENT_STATUS_MAX];
	return client_reach(db, w->org, p->id, &p->node, status, e);
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

static int build(struct ctx *c, const struct lease_want *w, const struct plan *p, struct err *e)
{
	int total_ms = (int)conf_int(c->conf, "SANDBOX_START_TIMEOUT_S") * 1000 + START_SLACK_MS;
	auto_json json_t *body = js_pack("{s:s}", "id", p->id);
	if (client_call(&p->node, "POST", "http://node/v1/node/sandboxes", body, total_ms, NULL, e) == 0)
		return 0;
	if (e->reason != NULL && strcmp(e->reason, "node_away") == 0)
		unbuilt(c, w, p, e->msg);
	char msg[ERR_MSG_MAX];
	const char *reason = e->reason;
	(void)snprintf(msg, sizeof msg, "%s", e->msg);
	(void)err_replace(e, ERR_UNAVAILABLE, "%s", msg);
	e->reason = reason;
	return -1;
}

json_t *lease_take(struct ctx *c, const struct lease_want *w, bool *created, struct err *e)
{
	struct plan p = { 0 };
	json_t *live = NULL;
	*created = false;
	if (lease_check(c->conf, w, &p.terms, e) != 0)
		return NULL;
	auto_json json_t *limits = p.terms.limits;
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL)
		return NULL;
	int found = w->id == NULL ? 0 : resume(db, w, &live, e);
	if (found != 0)
		return live;
	if (derive(c, db, w, &p.boundary, e) != 0 || place(c, db, w, &p, e) != 0)
		return NULL;
	pg_put(steal(db)); /* building takes long, and connections are few */
	if (build(c, w, &p, e) != 0)
		return NULL;
	*created = true;
	db = pg_take(c->db, CLIENT_TAKE_MS, e);
	return db == NULL ? NULL : lease_get(db, w->org, p.id, e);
}

int lease_ask_end(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_ask_end, e, org, id);
	return r == NULL ? -1 : 0;
}

int lease_end(struct ctx *c, const char *org, const char *id, struct err *e)
{
	struct box_addr a;
	char status[CLIENT_STATUS_MAX];
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL || lease_ask_end(db, org, id, e) != 0 || client_reach(db, org, id, &a, status, e) != 0)
		return -1;
	pg_put(steal(db));
	if (strcmp(status, "ended") == 0 || strcmp(status, "error") == 0)
		return 0;
	return client_call(&a, "DELETE", client_url(c->mem, &a, ""), NULL, END_MS, NULL, e);
}

int lease_use(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e)
{
	if (box_find(db, org, id, a, e) != 0)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_sandbox_used, e, org, id);
	return r == NULL ? -1 : 0;
}
