/*
 * span.h - a model call as a span of the GenAI conventions (AGT-6, RUN-4). Pure. What was said in a call is never on it.
 *
 * A span is a JSON object: {trace, span, parent?, name, start_us, end_us, error?, session?, user?, org?, attrs{}, events[{name, atUs,
 * attributes{}}]}. Whose it is says the attribute SPAN_ORG and nothing else (RUN-8); org is where it is filed.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "model/record.h"

#define SPAN_ORG "gatehouse.org"

enum { SPAN_TRACE_HEX = 33, SPAN_HEX = 17 };

/* The trace of a W3C traceparent and the span in it; false: it is none, or all zeroes. */
bool span_traceparent(const char *text, char trace[SPAN_TRACE_HEX], char parent[SPAN_HEX]);
/* The trace that all calls of a run share when nobody names one. */
void span_trace_of_session(const char *org, const char *session, char trace[SPAN_TRACE_HEX]);

/* wall_us: CLOCK_REALTIME at the moment mono_us of CLOCK_MONOTONIC, in which the record's times are. Appended as text,
 * filed under the record's org; b is large enough for any. */
void span_of_call(struct buf *b, const struct call_record *r, int64_t wall_us, int64_t mono_us);
/* Whose it is: the attribute; NULL when there is none, which is a fault of whoever made the span. */
const char *span_org(const json_t *span);
/* An ExportTraceServiceRequest in OTLP's JSON of n spans. New reference. */
json_t *span_otlp(json_t *const *spans, size_t n);
