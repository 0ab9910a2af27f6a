/*
 * observe.h - what is told of model calls: counters for /metrics (RUN-3), spans to a collector (RUN-4) and into PostgreSQL (RUN-7),
 * and an event in the session of a run whose call needed more than one attempt (MOD-4). Owner of the process's queues of spans.
 *
 * A call is never held up: it puts its span on queues of OBSERVE_QUEUE places, and what finds no place is counted and gone. The
 * collector and PostgreSQL have a thread and a queue each, so that neither waits for the other.
 */
#pragma once

#include "base/buf.h"
#include "io/conf.h"
#include "io/pg.h"
#include "model/record.h"

enum { OBSERVE_QUEUE = 4096, OBSERVE_BATCH = 200 };

struct observe;
/* NULL with e when the file with the collector's key cannot be read. */
struct observe *observe_start(const struct conf *conf, struct pg_pool *db, struct err *e);
/* Sends and stores what waits, for wait_ms at most. */
void observe_stop(struct observe *o, int wait_ms);

/* call_svc.on_call; observe is a struct observe. */
void observe_call(void *observe, const struct call_record *r);
/* A span of anybody's, taken: filed under its org, and under `admin` when it names none, which is counted (RUN-8). */
void observe_span(struct observe *o, json_t *span);
/* Prometheus text. Labels: provider (the first OBSERVE_PROVIDERS names that are seen, then "other") and a fixed set of outcomes. */
enum { OBSERVE_PROVIDERS = 64 };
void observe_metrics(struct observe *o, struct buf *out);
