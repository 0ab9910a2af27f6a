/*
 * e2b.h - what the facades of the E2B SDK share (ECO-1, ECO-3). They stand at a door of their own, call what the native handlers
 * call, and tell errors in that SDK's shapes.
 */
#pragma once

#include "auth/principal.h"
#include "op/op.h"
#include "sandbox/client.h"

/* A version of their in-sandbox daemon whose features are what is offered here: octet-stream uploads and closing of standard input,
 * but no metadata of files (0.6.2), which their SDK then refuses by itself. */
#define E2B_ENVD_VERSION "0.6.1"

enum {
	E2B_CONTROL = OP_E2B | OP_HIDDEN | OP_LAX | OP_LONG,         /* with a key */
	E2B_INSIDE = OP_E2B | OP_HIDDEN | OP_LAX | OP_LONG | OP_BOX, /* with the sandbox's own token */
};

/* op.refuse of the control plane and of files: {"code": <status>, "message": "…"}. */
bool e2b_refuse(struct ctx *c, const struct err *why);
/* op.refuse of unary and of streaming calls. */
bool e2b_refuse_unary(struct ctx *c, const struct err *why);
bool e2b_refuse_stream(struct ctx *c, const struct err *why);

/* Where the caller's sandbox is, who must be its credential's; it counts as used now. ERR_UPSTREAM when it is not running. */
int e2b_use(struct ctx *c, struct box_addr *a, struct err *e);
/* There is one user in a sandbox, "agent": none, it, and the SDK's own default "user" are that; others are refused. */
int e2b_user(const char *name, struct err *e);
/* The same for what Basic carries. */
int e2b_basic_user(struct ctx *c, struct err *e);
