/* handlers.h - what the handlers of gatehouse-api find behind ctx.app, and the tables they make up. */
#pragma once

#include <stdatomic.h>

#include "op/op.h"

struct watch_hub; /* session/watch.h */
struct seal_key;  /* auth/seal.h */
struct metrics;   /* op/metrics.h */
struct fcgi;      /* io/fcgi.h */

struct api {
	struct conf *conf;
	struct watch_hub *hub;
	struct seal_key *seal;
	struct metrics *metrics;
	json_t *openapi; /* the document */
	_Atomic(struct fcgi *)
	    core; /* NULL in the first moments: requests come before fcgi_start has returned */
};

/* Every table, ended by NULL (all.c). */
extern const struct op *const handlers_all[];
