/* node_lease.c - the internal door of a node: a lease's new end. Like node.c it knows no org. */
#include "base/id.h"
#include "base/js.h"
#include "handlers/node.h"
#include "sandbox/fleet.h"

static const struct param lease_in[] = {
	IN_REQUIRED(T_STR, "id", "The sandbox.", NULL, .min = ID_TAIL, .max = ID_MAX),
	IN_REQUIRED(T_INT, "leftMs", "So long from now.", NULL, .min = 1, .max = INT64_MAX / 2),
	{ 0 },
};

static json_t *renew(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = js_str_or(in, "id", "");
	if (!id_is("sbx", id)) {
		err_set(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
		return NULL;
	}
	auto_held struct held *h = fleet_take(((struct sandboxd *)c->app)->fleet, id, e);
	if (h == NULL || held_renew(h, js_int(in, "leftMs", 1), e) != 0)
		return NULL;
	return json_object();
}

const struct op node_lease_ops[] = {
	{ .id = "node_lease",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/lease" } },
	    .summary = "A new end of a lease",
	    .scope = "node",
	    .status = 200,
	    .in = lease_in,
	    .out = op_none,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_LONG,
	    .run = renew },
	{ 0 },
};
