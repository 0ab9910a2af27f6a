/*
 * node.c - the internal door of a node (gatehouse-sandboxd): what app/sandbox/client.c and lease.c speak, nobody else.
 * Invariant: ids come from the API, which has looked them up by org; nothing here knows an org.
 */
#include "handlers/node.h"

#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "io/conf.h"
#include "io/egress_ctl.h"

enum { EGRESS_MS = 2000 };

static const struct param id_in[] = { NODE_ID, { 0 } };
static const struct param purge_in[] = {
	IN_REQUIRED(T_STR, "org", "Whose.", NULL, .min = 1, .max = LIMIT_ORG_SLUG),
	IN_REQUIRED(T_STR, "kind", "What of.", NULL, .min = 1, .max = 16),
	IN_REQUIRED(T_STR, "name", "Its name.", NULL, .min = 1, .max = 64),
	{ 0 },
};

static struct fleet *fleet(struct ctx *c)
{
	return ((struct sandboxd *)c->app)->fleet;
}

/* Ids name directories and groups of this host. */
static const char *sandbox_id(const json_t *in, struct err *e)
{
	const char *id = js_str_or(in, "id", "");
	if (id_is("sbx", id))
		return id;
	err_set(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	return NULL;
}

struct held *node_take(struct ctx *c, const json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	return id == NULL ? NULL : fleet_take(fleet(c), id, e);
}

static json_t *build(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	if (id == NULL || fleet_build(fleet(c), id, e) != 0)
		return NULL;
	return js_pack("{s:s}", "id", id);
}

static json_t *end(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	if (id == NULL || fleet_end(fleet(c), id, e) != 0)
		return NULL;
	return json_object();
}

/* The names are looked up in the row before they become a path. */
static json_t *purge(struct ctx *c, json_t *in, struct err *e)
{
	return fleet_purge(fleet(c), js_str(in, "org"), js_str(in, "kind"), js_str(in, "name"), e) == 0
	    ? json_object()
	    : NULL;
}

static json_t *ready(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	const struct sandboxd *app = c->app;
	return node_ready(app->node, e) == 0
	    ? js_pack("{s:s,s:s}", "status", "ok", "egress", fleet_egress(app->fleet))
	    : NULL;
}

/* The boundary's own socket is for root only; whoever reads metrics stands at this door. */
static json_t *egress_metrics(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	auto_buf struct buf text = BUF(EGRESS_CTL_BYTES);
	auto_fd int ctl = egress_ctl_dial(conf_str(c->conf, "EGRESS_SOCKET"), EGRESS_MS, e);
	if (ctl < 0 || egress_ctl_metrics(ctl, &text, e) != 0)
		return NULL;
	(void)reply_begin(c, 200, "text/plain; version=0.0.4; charset=utf-8");
	(void)reply_write(c, buf_c(&text), text.n);
	return REPLIED;
}

#define INTERNAL .scope = "node", .status = 200
static const struct op node_ops[] = {
	{ .id = "node_ready",
	    .routes = { { "GET", "/v1/node/ready" } },
	    .summary = "Is this node registered",
	    INTERNAL,
	    .flags = OP_INTERNAL | OP_PUBLIC,
	    .run = ready },
	{ .id = "node_egress_metrics",
	    .routes = { { "GET", "/v1/node/egress/metrics" } },
	    .summary = "Metrics of the egress boundary",
	    INTERNAL,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_RAW_OUT,
	    .run = egress_metrics },
	{ .id = "node_build",
	    .routes = { { "POST", "/v1/node/sandboxes" } },
	    .summary = "Build a pending sandbox",
	    INTERNAL,
	    .in = id_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = build },
	{ .id = "node_end",
	    .routes = { { "DELETE", "/v1/node/sandboxes/{id}" } },
	    .summary = "Remove a sandbox",
	    INTERNAL,
	    .in = id_in,
	    .out = op_none,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = end },
	{ .id = "node_purge",
	    .routes = { { "POST", "/v1/node/volumes/purge" } },
	    .summary = "Delete a volume that was asked to be",
	    INTERNAL,
	    .in = purge_in,
	    .out = op_none,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = purge },
	{ 0 },
};
const struct op *const handlers_node[] = { node_ops, node_lease_ops, node_commands_ops, node_files_ops,
	NULL };
