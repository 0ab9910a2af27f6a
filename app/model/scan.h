/*
 * scan.h - reading one JSON text of an upstream in place: no tree, no allocation. Strict as RFC 8259; what is wrong is remembered in
 * `bad`, after which every call says no. A value of another type than the one asked for is skipped, and the answer is no.
 * For the events of streams, which come by the hundred and of which little is needed, and for plain answers (answer_scan.c); other bodies are
 * read with base/js.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

struct scan {
	const char *p, *end;
	bool bad, fresh; /* fresh: behind an opening bracket, where no comma stands */
};

/* A string as it stands between its quotes. */
struct scan_text {
	struct str raw;
	bool escaped; /* holds a backslash: scan_unescape makes the text of it */
};

struct scan scan_of(struct str json);
/* The first byte of the value that stands here; 0 at the end. */
char scan_peek(struct scan *s);
/* Enter an object; then `while (scan_key(s, &key))`, whose body takes exactly one value. Keys are compared as they are written. */
bool scan_object(struct scan *s);
bool scan_key(struct scan *s, struct str *key);
/* Enter an array; then `while (scan_item(s))`, likewise. */
bool scan_array(struct scan *s);
bool scan_item(struct scan *s);
bool scan_string(struct scan *s, struct scan_text *out);
/* A number without fraction and exponent that fits. */
bool scan_int(struct scan *s, long long *out);
bool scan_bool(struct scan *s, bool *out);
/* Take one value of any kind; at most LIMIT_JSON_DEPTH deep. Its bytes in *out when that is not NULL. */
bool scan_value(struct scan *s, struct str *out);
/* Nothing but blanks is left, and nothing was wrong. */
bool scan_done(struct scan *s);
/* Is it one JSON value and nothing more? */
bool scan_whole(struct str json);
/* Append the text of a string; half a surrogate pair, and U+0000, become U+FFFD. Never more bytes than t.raw.n. -1: does not fit. */
int scan_unescape(struct scan_text t, struct buf *out);
bool scan_hex4(const char *p, unsigned *out); /* four hex digits */
