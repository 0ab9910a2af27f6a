/*
 * meta.c - what is about the service itself: /health, /ready, /metrics, GET /v1/openapi.json.
 * Invariant: /health asks nobody, so that a database that is away restarts no process.
 */
#include <string.h>

#include "base/js.h"
#include "handlers/handlers.h"
#include "io/fcgi.h"
#include "io/migrate.h"
#include "io/pg.h"
#include "model/observe.h"
#include "money/balance.h"
#include "money/gate.h"
#include "op/metrics.h"
#include "op/op.h"
#include "sandbox/client.h"
#include "sandbox/lease.h"

enum { TAKE_MS = 2000, NODE_WAIT_MS = 2000, METRICS_MAX_BYTES = 1 << 20 };

static const char *const oks[] = { "ok", NULL };
static const struct param ok_out[] = {
	OUT(T_ENUM, "status", "Always `ok`.", "\"ok\"", .values = oks),
	{ 0 },
};

static const char *const egress_states[] = { "ok", "away", "none", NULL };
static const struct param ready_out[] = {
	OUT(T_ENUM, "status", "Always `ok`.", "\"ok\"", .values = oks),
	OUT(T_ENUM, "egress",
	    "The egress boundary. away: sandboxes reach nothing, and only deny-all is leased, until "
	    "gatehouse-egress is back; all else is served. none: nothing isolates here.",
	    "\"ok\"", .values = egress_states),
	{ 0 },
};

static json_t *get_health(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	return js_pack("{s:s}", "status", "ok");
}

static json_t *get_ready(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	const char *egress;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	int pending = db == NULL ? -1 : migrate_pending(db, migrations, e);
	if (pending > 0)
		err_set(e, ERR_UNAVAILABLE, "The database lacks %d migrations: run `gatehouse migrate`.",
		    pending);
	if (pending != 0 || lease_offered(c->conf, db, e) != 0 ||
	    box_nodes_answer(db, NODE_WAIT_MS, &egress, e) != 0)
		return NULL;
	return js_pack("{s:s,s:s}", "status", "ok", "egress", egress);
}

static json_t *get_openapi(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	const char *text = ((struct api *)c->app)->openapi;
	size_t n = strlen(text);
	reply_header(c, "Content-Length", mem_fmt(c->mem, "%zu", n));
	reply_header(c, "Cache-Control", "no-store");
	(void)reply_begin(c, 200, "application/json");
	(void)reply_write(c, text, n);
	return REPLIED;
}

static json_t *get_metrics(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	struct api *api = c->app;
	struct fcgi *core = atomic_load(&api->core);
	struct fcgi_stats s = { 0 };
	auto_buf struct buf out = BUF(METRICS_MAX_BYTES);
	if (core != NULL)
		fcgi_stats(core, &s);
	(void)buf_fmt(&out,
	    "# TYPE gatehouse_busy_workers gauge\ngatehouse_busy_workers %d\n# TYPE "
	    "gatehouse_queued_requests gauge\ngatehouse_queued_requests %d\n# TYPE gatehouse_streams "
	    "gauge\ngatehouse_streams %d\n# TYPE gatehouse_accepted_total counter\ngatehouse_accepted_total "
	    "%lld\n# TYPE gatehouse_refused_total counter\ngatehouse_refused_total %lld\n",
	    s.busy, s.queued, s.streams, s.accepted, s.refused);
	metrics_print(api->metrics, &out);
	gate_metrics(api->gate, &out);
	balance_metrics(&out);
	observe_metrics(api->observe, &out);
	(void)reply_begin(c, 200, "text/plain; version=0.0.4; charset=utf-8");
	(void)reply_write(c, buf_c(&out), out.n);
	return REPLIED;
}

const struct op meta_ops[] = {
	{
	    .id = "get_health",
	    .routes = { { "GET", "/health" } },
	    .summary = "Is the process alive",
	    .doc = "Answers as long as the process does, whatever else is broken. For supervisors.",
	    .out = ok_out,
	    .status = 200,
	    .flags = OP_PUBLIC,
	    .run = get_health,
	},
	{
	    .id = "get_ready",
	    .routes = { { "GET", "/ready" } },
	    .summary = "Can requests be served",
	    .doc = "200 when the database is reachable and migrated and a node offers sandboxes; else 503 "
		   "with the reason. For load balancers: a boundary that is away is told, and takes no host "
		   "out of service.",
	    .out = ready_out,
	    .status = 200,
	    .flags = OP_PUBLIC,
	    .run = get_ready,
	},
	{
	    .id = "get_openapi",
	    .routes = { { "GET", "/v1/openapi.json" } },
	    .summary = "This document",
	    .doc = "OpenAPI 3.1 of every op, made from the table that the server routes and checks with.",
	    .status = 200,
	    .flags = OP_PUBLIC,
	    .run = get_openapi,
	},
	{
	    .id = "get_metrics",
	    .routes = { { "GET", "/metrics" } },
	    .summary = "Metrics",
	    .doc = "Prometheus text, for the internal server only.",
	    .status = 200,
	    .flags = OP_INTERNAL | OP_RAW_OUT,
	    .run = get_metrics,
	},
	{ 0 },
};
