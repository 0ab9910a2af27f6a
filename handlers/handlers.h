/* handlers.h - what the handlers of gatehouse-api find behind ctx.app, and the tables they make up. */
#pragma once

#include <stdatomic.h>

#include "io/pg.h"
#include "op/op.h"

struct watch_hub; /* session/watch.h */
struct seal_key;  /* auth/seal.h */
struct metrics;   /* op/metrics.h */
struct gate;      /* money/gate.h */
struct observe;   /* model/observe.h */
struct fcgi;      /* io/fcgi.h */
struct catalog;   /* model/catalog.h */

struct api {
	struct conf *conf;
	struct pg_pool *db; /* for what the process does by itself */
	struct watch_hub *hub;
	struct seal_key *seal;
	struct catalog *catalog;
	struct metrics *metrics;
	struct gate *gate;
	struct observe *observe;
	const char *openapi; /* the document's text, written once: doing it anew costs 1.5 ms */
	_Atomic(struct fcgi *)
	    core; /* NULL in the first moments: requests come before fcgi_start has returned */
};

/* A connection for what a request asks: 503 where none becomes free in 5 s. */
static inline struct pg *handler_db(struct ctx *c, struct err *e)
{
	return pg_take(c->db, 5000, e);
}

/* Every table, ended by NULL (all.c). */
extern const struct op *const handlers_all[];
