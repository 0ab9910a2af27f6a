#include "sandbox/lease_volume.h"

#include <stdio.h>
#include <string.h>

#include "base/crash.h"
#include "base/js.h"
#include "sandbox/client_int.h"
#include "sandbox/node.h"
#include "sandbox/volume.h"
#include "sql/volume.h"

enum { PURGE_MS = 40 * 1000, MIB = 1 << 20 };

/* What a lease has: NULL for what it has not. */
static const char *project_of(const struct lease_terms *t)
{
	return t->project[0] == '\0' ? NULL : t->project;
}

int lease_state_check(struct pg *db, const struct lease_want *w, struct err *e)
{
	if (w->state_of == NULL)
		return 0;
	auto_res struct pg_res *r = PG(db, &q_volume_session, e, w->org, w->state_of);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_field(e, ERR_NOT_FOUND, "session", "There is no such session.");
	return strcmp(pg_str(r, 0, 0), "open") == 0
	    ? 0
	    : err_field(e, ERR_CONFLICT, "session", "The session is over, and its state is gone with it.");
}

static int lock(
    struct ctx *c, struct pg *db, const char *org, const char *kind, const char *name, struct err *e)
{
	if (name == NULL)
		return 0;
	auto_res struct pg_res *r = PG(db, &q_volume_lock, e, mem_fmt(c->mem, "%s/%s/%s", org, kind, name));
	return r == NULL ? -1 : 0;
}

/* Where it is, into node, which may hold that of another one. */
static int locate(
    struct pg *db, const char *org, const char *kind, const char *name, char node[64], struct err *e)
{
	if (name == NULL)
		return 0;
	auto_res struct pg_res *r = PG(db, &q_volume_find, e, org, kind, name);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return 0;
	if (pg_bool(r, 0, 1)) {
		e->retry_s = 1;
		return err_set(
		    e, ERR_CONFLICT, "The volume of \"%s\" is being deleted: try again shortly.", name);
	}
	if (node[0] != '\0' && strcmp(node, pg_str(r, 0, 0)) != 0)
		return err_set(e, ERR_CONFLICT,
		    "The project's volume is on node %s and the session's state on node %s; one sandbox "
		    "cannot "
		    "have both.",
		    node, pg_str(r, 0, 0));
	(void)snprintf(node, 64, "%s", pg_str(r, 0, 0));
	return 0;
}

static void describe(const struct pg_res *r, struct lease_holder *h)
{
	*h = (struct lease_holder){ .ending = pg_bool(r, 0, 4), .project = pg_bool(r, 0, 5) };
	(void)snprintf(h->id, sizeof h->id, "%s", pg_str(r, 0, 0));
	(void)snprintf(h->class, sizeof h->class, "%s", pg_str(r, 0, 2));
	(void)snprintf(h->runtime, sizeof h->runtime, "%s", pg_str(r, 0, 3));
}

int lease_volumes_begin(struct ctx *c, struct pg *db, const struct lease_want *w, const struct lease_terms *t,
    struct lease_holder *h, char node[64], struct err *e)
{
	const char *project = project_of(t);
	node[0] = '\0';
	if (project == NULL && w->state_of == NULL)
		return 0;
	if (lock(c, db, w->org, VOLUME_PROJECT, project, e) != 0 ||
	    lock(c, db, w->org, VOLUME_SESSION, w->state_of, e) != 0)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_volume_live, e, w->org, project, w->state_of);
	if (r == NULL)
		return -1;
	if (pg_rows(r) > 0) {
		describe(r, h);
		return 1;
	}
	if (locate(db, w->org, VOLUME_PROJECT, project, node, e) != 0 ||
	    locate(db, w->org, VOLUME_SESSION, w->state_of, node, e) != 0)
		return -1;
	if (w->node != NULL && node[0] != '\0' && strcmp(node, w->node) != 0)
		return err_set(e, ERR_CONFLICT, "The volume is on node %s.", node);
	return 0;
}

static int claim(struct ctx *c, struct pg *db, const char *const of[3], long long mb, const char *node,
    const char *sandbox, struct err *e)
{
	if (of[2] == NULL)
		return 0;
	auto_res struct pg_res *r = PG(
	    db, &q_volume_claim, e, of[0], of[1], of[2], node, pg_num(c->mem, mb * MIB), sandbox);
	return r == NULL ? -1 : 0;
}

int lease_volumes_claim(struct ctx *c, struct pg *db, const struct lease_want *w, const struct lease_terms *t,
    const char *node, const char *sandbox, struct err *e)
{
	const char *const project[] = { w->org, VOLUME_PROJECT, project_of(t) };
	const char *const state[] = { w->org, VOLUME_SESSION, w->state_of };
	return claim(c, db, project, conf_int(c->conf, "VOLUME_MB"), node, sandbox, e) != 0
	    ? -1
	    : claim(c, db, state, conf_int(c->conf, "VOLUME_STATE_MB"), node, sandbox, e);
}

/* ---- list and purge */

json_t *volume_rows(struct pg *db, const char *org, const char *cursor, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_volume_list, e, org, cursor, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++) {
		json_t *o = js_pack("{s:s,s:I,s:I,s:s}", "project", pg_str(r, i, 0), "sizeBytes",
		    (json_int_t)pg_int(r, i, 1), "usedBytes", (json_int_t)pg_int(r, i, 2), "node",
		    pg_str(r, i, 4));
		js_set_str(o, "lastLeased", pg_null(r, i, 3) ? NULL : pg_str(r, i, 3));
		js_set_str(o, "sandbox", pg_null(r, i, 5) ? NULL : pg_str(r, i, 5));
		js_push(rows, o);
	}
	return rows;
}

/* The request is written before its node is told: 1 with where that is; 0 when there is none to delete. */
static int ask(
    struct ctx *c, struct pg *db, const char *org, const char *project, struct box_addr *a, struct err *e)
{
	auto_res struct pg_res *live = NULL, *r = NULL;
	if (pg_begin(db, e) != 0 || lock(c, db, org, VOLUME_PROJECT, project, e) != 0 ||
	    (live = PG(db, &q_volume_live, e, org, project, NULL)) == NULL)
		return -1;
	if (pg_rows(live) > 0)
		return err_set(e, ERR_CONFLICT,
		    "The volume of \"%s\" is in use by sandbox %s; end that before you delete it.", project,
		    pg_str(live, 0, 0));
	if ((r = PG(db, &q_volume_ask_purge, e, org, project)) == NULL || pg_commit(db, e) != 0)
		return -1;
	if (pg_rows(r) == 0)
		return 0;
	return client_door(pg_str(r, 0, 1), pg_str(r, 0, 0), a, e) == 0 ? 1 : -1;
}

int volume_purge(struct ctx *c, const char *org, const char *project, struct err *e)
{
	struct box_addr a;
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	int found = db == NULL ? -1 : ask(c, db, org, project, &a, e);
	if (found <= 0)
		return found;
	pg_put(steal(db));
	crash_point("volume.asked");
	auto_json json_t *body = js_pack(
	    "{s:s,s:s,s:s}", "org", org, "kind", VOLUME_PROJECT, "name", project);
	return client_call(&a, "POST", "http://node/v1/node/volumes/purge", body, PURGE_MS, NULL, e) == 0
	    ? 1
	    : -1;
}
