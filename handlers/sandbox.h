/* sandbox.h - what the handlers of sandboxes share. */
#pragma once

#include "auth/principal.h"
#include "op/op.h"
#include "sandbox/lease.h"

#define SBX        "sbx_01jdq3v8m5c7x2k9f4t6w0b1ra"
#define CMD        "cmd_01jdq3v8m5c7x2k9f4t6w0b1ra"
#define SANDBOX_ID IN_ID("id", "The sandbox.", "\"" SBX "\"")

extern const struct param network_in[],
    network_out[]; /* egress.c: a policy as it is asked for, and in force */

/* Where the caller's sandbox of input field `id` is; it counts as used now. */
int sandbox_use(struct ctx *c, const json_t *in, struct box_addr *a, struct err *e);
/* Bytes as text where they are text, else as base64 with *enc "base64". New reference. */
json_t *sandbox_bytes(const char *p, size_t n, const char **enc);
