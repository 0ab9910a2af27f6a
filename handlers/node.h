/* node.h - what the handlers of gatehouse-sandboxd find behind ctx.app. */
#pragma once

#include "base/id.h"
#include "op/op.h"
#include "sandbox/fleet.h"
#include "sandbox/node.h"

struct sandboxd {
	struct fleet *fleet;
	struct node *node;
};

#define NODE_ID IN_REQUIRED(T_STR, "id", "The sandbox.", NULL, .min = ID_TAIL, .max = ID_MAX)
/* The sandbox of input field `id`; NULL with e. Given back with fleet_give. */
struct held *node_take(struct ctx *c, const json_t *in, struct err *e);

extern const struct op node_files_ops[];    /* node_files.c */
extern const struct op node_commands_ops[]; /* node_commands.c */

/* Tables of the internal door, ended by NULL. */
extern const struct op *const handlers_node[];
extern const struct op node_lease_ops[];
