/* node.h - what the handlers of gatehouse-sandboxd find behind ctx.app. */
#pragma once

#include "op/op.h"
#include "sandbox/fleet.h"
#include "sandbox/node.h"

struct sandboxd {
	struct fleet *fleet;
	struct node *node;
};

/* Tables of the internal door, ended by NULL. */
extern const struct op *const handlers_node[];
