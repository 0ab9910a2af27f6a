/* ndjson.h - lines out of a byte stream that arrives in any pieces, with a bound on one line (STR-1). */
#pragma once

#include "base/buf.h"
#include "base/str.h"

struct ndjson {
	struct buf pending;
	size_t taken; /* bytes of pending already handed out */
};

struct ndjson ndjson_new(size_t max_line_bytes);
void ndjson_free(struct ndjson *r);
/* Add bytes; -1 when the unread data would pass the bound (a line too long). */
int ndjson_feed(struct ndjson *r, const char *p, size_t n);
/* The next whole line without its "\n" or "\r\n"; false when there is none yet. Valid until the next feed. */
bool ndjson_next(struct ndjson *r, struct str *line);
/* Bytes of an unfinished last line. */
struct str ndjson_rest(const struct ndjson *r);
