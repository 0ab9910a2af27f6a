/*
 * relay.h - a command's events from the box's channel as NDJSON lines of the answer (SBX-42): start, stdout, stderr, exit;
 * `ping` in silence, `reconnect` when this process is about to end, `lost` (never an exit) when the channel was.
 * A line's data are whole characters (enc utf8) or any bytes (enc base64); its offset is that of its first byte.
 */
#pragma once

#include "op/op.h"
#include "sandbox/fleet.h"

struct relay_opts { /* borrowed for the call */
	struct held *held;
	const char *cmd; /* our name of the command */
	uint32_t number; /* the box's */
	bool tail; /* only the kept tail, after the end (LIMIT_OUTPUT_BYTES each); else everything, live */
	uint64_t from[2]; /* first byte wanted of stdout and stderr */
	int only;         /* PROTO_STDOUT or PROTO_STDERR; 0: both */
};
/* Answer with lines until the last one. k: the reading handle, taken (it is closed); NULL: the channel
 * was lost once the command had begun. Never fails: what goes wrong after the
 * reply has begun is a line. */
void relay_run(struct ctx *c, const struct relay_opts *o, struct channel_cmd *k);
