/* metrics.h - what the requests of a process cost, as Prometheus text (RUN-3). Labels are op ids and status classes only. */
#pragma once

#include "base/buf.h"
#include "op/op.h"

struct metrics;

struct metrics *metrics_new(const struct op *const *tables);
void metrics_free(struct metrics *m);
/* Any thread; op NULL is a request that found none. */
void metrics_count(struct metrics *m, const struct op *op, int status, int64_t duration_us);
/* gatehouse_requests_total{op,class} and, for what is not a stream, the histogram gatehouse_request_seconds{op}. */
void metrics_print(const struct metrics *m, struct buf *out);
