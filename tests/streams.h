/* streams.h - the streams of upstreams in tests/cases/model (NAME.sse; the name begins with its wire), and what is read of them. */
#pragma once

#include "base/buf.h"
#include "model/wire.h"

enum { STREAM_BYTES = 1 << 20 };

struct stream_case {
	char name[64];
	enum provider_wire w;
	struct buf text;
};
typedef void stream_case_fn(const struct stream_case *c, void *arg);
int stream_cases(stream_case_fn *each, void *arg); /* by name; how many */

/*
 * Read a stream that arrives in pieces of `first` bytes and the rest (0: byte by byte). each gets every event with what was read
 * of it. -1 with e where the reader refused.
 */
typedef void stream_event_fn(
    struct wire_in *in, const struct sse_event *ev, const struct wire_read *r, void *arg);
int stream_read(struct wire_in *in, const char *p, size_t n, size_t first, stream_event_fn *each, void *arg,
    struct err *e);

/* A text that `make golden` rewrites. Fails the test when it is another one. */
void golden_is(const char *path, const struct buf *now);
