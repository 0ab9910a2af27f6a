/*
 * origin.h - an origin server for tests, on one port of 127.0.0.1: it answers HTTP requests, echoes what is not HTTP, and does
 * what bad origins do where the request's path says so. What reaches it is written down.
 *
 * Paths: /silent never answers, /headers never ends its headers, /early closes after half of the body, /slow?ms=N waits,
 * /chunked and /to-end frame the body so, /big?n=N is N bytes, /two-lengths and the like are answers that are not to be passed
 * on, /decide is a policy resolver that allows hosts yes.…, /100 sends an interim answer first. A connection whose first byte is '!' is reset, '~' is closed, '#' is never read.
 */
#pragma once

#include "base/buf.h"

struct origin;

struct origin *origin_start(void);
int origin_port(const struct origin *o);
void origin_seen(struct origin *o, struct buf *out); /* all bytes since the last origin_forget */
void origin_forget(struct origin *o);
int origin_accepted(const struct origin *o); /* connections so far */
int origin_open(const struct origin *o);     /* connections now */
void origin_end(struct origin *o);
