/* node_lease.c - the internal door of a node: a lease's new end. Like node.c it knows no org. */
#include "base/id.h"
#include "base/js.h"
#include "handlers/node.h"
#include "sandbox/fleet.h"

static const struct param lease_in[] = {
	{ .name = "id",
	    .type = T_STR,
	    .required = true,
	    .min = ID_TAIL,
	    .max = ID_MAX,
	    .doc = "The sandbox." },
	{ .name = "leftMs",
	    .type = T_INT,
	    .required = true,
	    .min = 1,
	    .max = INT64_MAX / 2,
	    .doc = "So long from now." },
	{ 0 },
};
static const struct param no_out[] = { { 0 } };

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
	return js_pack("{}");
}

const struct op node_lease_ops[] = {
	{ .id = "node_lease",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/lease" } },
	    .summary = "A new end of a lease",
	    .scope = "node",
	    .status = 200,
	    .in = lease_in,
	    .out = no_out,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_LONG,
	    .run = renew },
	{ 0 },
};
