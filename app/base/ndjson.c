#include "base/ndjson.h"

#include <stdint.h>
#include <string.h>

struct ndjson ndjson_new(size_t max_line_bytes)
{
	/* The bound is on a line; how much is pending is up to who feeds and takes. */
	return (struct ndjson){ .pending = BUF(SIZE_MAX / 8), .max_line = max_line_bytes };
}

void ndjson_free(struct ndjson *r)
{
	buf_free(&r->pending);
	r->taken = r->whole = 0;
}

/* The part of p[0..n) up to which no line is too long, given `have` bytes of an unfinished line before it. */
static size_t within(const char *p, size_t n, size_t have, size_t max_line)
{
	for (size_t at = 0; at < n;) {
		const char *nl = memchr(p + at, '\n', n - at);
		size_t end = nl == NULL ? n : (size_t)(nl - p);
		if (have + (end - at) > max_line)
			return at;
		have = 0;
		at = nl == NULL ? n : end + 1;
	}
	return n;
}

int ndjson_feed(struct ndjson *r, const char *p, size_t n)
{
	if (r->broken)
		return -1;
	buf_drop(&r->pending, r->taken);
	r->whole -= r->taken;
	r->taken = 0;
	size_t good = within(p, n, r->pending.n - r->whole, r->max_line);
	size_t before = r->pending.n;
	if (buf_add(&r->pending, p, good) != 0)
		good = 0;
	const char *nl = good == 0 ? NULL : memrchr(p, '\n', good);
	if (nl != NULL)
		r->whole = before + (size_t)(nl - p) + 1;
	r->broken = good < n;
	return r->broken ? -1 : 0;
}

bool ndjson_next(struct ndjson *r, struct str *line)
{
	if (r->taken >= r->whole)
		return false;
	const char *from = r->pending.p + r->taken;
	const char *nl = memchr(from, '\n', r->whole - r->taken);
	size_t n = (size_t)(nl - from);
	r->taken += n + 1;
	if (n > 0 && from[n - 1] == '\r')
		n--;
	*line = (struct str){ from, n };
	return true;
}

struct str ndjson_rest(const struct ndjson *r)
{
	if (r->pending.p == NULL)
		return (struct str){ "", 0 };
	return (struct str){ r->pending.p + r->whole, r->pending.n - r->whole };
}
