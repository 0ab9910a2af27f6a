/* ndjson.h - lines out of a byte stream that arrives in any pieces, with a bound on one line (STR-1). */
#pragma once

#include "base/buf.h"
#include "base/str.h"

struct ndjson {
	struct buf pending;
	size_t max_line;     /* longest line, without its "\n" */
	size_t taken, whole; /* of pending: already handed out, and ending in "\n" */
	bool broken;         /* a line was too long: nothing more is accepted */
};

struct ndjson ndjson_new(size_t max_line_bytes);
void ndjson_free(struct ndjson *r);
/* Add bytes; -1 when a line is longer than the bound, whichever pieces it came in. Lines that were complete
 * before stay readable. Memory is what was fed and not yet taken. */
int ndjson_feed(struct ndjson *r, const char *p, size_t n);
/* The next whole line without its "\n" or "\r\n"; false when there is none yet. Valid until the next feed. */
bool ndjson_next(struct ndjson *r, struct str *line);
/* Bytes of an unfinished last line. */
struct str ndjson_rest(const struct ndjson *r);
