/*
 * sse.h - server-sent events out of bytes that arrive in any pieces, and back (the WHATWG HTML standard, section 9.2).
 *
 * Read: lines end in LF, CRLF or CR; several `data` lines are joined; comments, unknown fields, a byte order mark and a missing
 * space behind the colon are understood; a last event without its blank line is given at the end. Every frame also comes as the
 * bytes it was, so that it can be passed on exactly.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/* Valid until the next sse_feed, sse_next or sse_end. */
struct sse_event {
	struct str name; /* the `event` field; empty when there was none */
	struct str data; /* the `data` lines, joined with \n */
	struct str raw;  /* all bytes of the frame, its blank line included */
	bool has_data;   /* false: comments, or other fields alone */
};

struct sse {
	struct buf pending;
	struct buf joined; /* the data of an event that has several lines of it */
	size_t max_event;
	size_t taken; /* of pending: bytes of frames already given out */
	size_t line,
	    scanned; /* of pending: where the unfinished line begins, and up to where it has no end */
	struct sse_event now; /* of the unfinished frame; offsets, not pointers, until it is given out */
	size_t name_at, data_at;
	int data_lines;
	bool started, broken;
	bool bare_cr; /* a CR without LF ended a line: a CR is an end by itself here */
	bool skip_lf; /* a frame was given out at its CR */
};

struct sse sse_new(size_t max_event_bytes);
void sse_free(struct sse *s);
/* Add bytes. Take all events before the next feed. -1 (ERR_UPSTREAM) once a frame is longer than the bound; nothing more is read then. */
int sse_feed(struct sse *s, const char *p, size_t n, struct err *e);
bool sse_next(struct sse *s, struct sse_event *ev);
/* All events were taken and nothing may come for long: memory that it can do without is given back. */
void sse_rest(struct sse *s);
/* The stream has ended: the last event, if one stands there without its blank line. Its raw gets the line ends that it lacks. */
bool sse_end(struct sse *s, struct sse_event *ev);

/* "event: NAME\ndata: DATA\n\n"; name NULL or "": without the first line. Line ends inside data become several lines. -1: no room. */
int sse_write(struct buf *out, const char *name, const char *data, size_t n);
