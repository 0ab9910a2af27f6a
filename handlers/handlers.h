/* handlers.h - what the handlers of gatehouse-api find behind ctx.app, and the tables they make up. */
#pragma once

#include "op/op.h"

struct watch_hub; /* session/watch.h */
struct seal_key;  /* auth/seal.h */
struct metrics;   /* op/metrics.h */
struct fcgi;      /* io/fcgi.h */

struct api {
	struct watch_hub *hub;
	struct seal_key *seal; /* NULL when SEAL_KEY_FILE is not configured */
	struct metrics *metrics;
	_Atomic(struct fcgi *) core; /* NULL in the first moments, before the server core has started */
};

/* Every table, ended by NULL (all.c). */
extern const struct op *const handlers_all[];
