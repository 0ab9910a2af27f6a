#include "io/http_unpack.h"

#include <stdint.h>
#include <stdlib.h>

#define ZLIB_CONST
#include <zlib.h>

#include "base/mem.h"

enum { EITHER = 15 + 32, OUT_BYTES = 8192 }; /* zlib: the largest window, and gzip's head or its own */

struct http_unpack {
	z_stream z;
	bool begun, ended;
};

struct http_unpack *http_unpack_new(void)
{
	struct http_unpack *u = xcalloc(1, sizeof *u);
	if (inflateInit2(&u->z, EITHER) != Z_OK)
		abort();
	return u;
}

void http_unpack_free(struct http_unpack *u)
{
	if (u == NULL)
		return;
	(void)inflateEnd(&u->z);
	free(u);
}

int http_unpack_feed(
    struct http_unpack *u, struct str p, int (*give)(void *arg, const char *p, size_t n), void *arg)
{
	char out[OUT_BYTES];
	u->begun = u->begun || p.n > 0;
	u->z.next_in = (const Bytef *)p.p;
	u->z.avail_in = (uInt)p.n;
	do {
		if (u->ended)
			return 0; /* what stands behind the end is nothing */
		u->z.next_out = (Bytef *)out;
		u->z.avail_out = sizeof out;
		int rc = inflate(&u->z, Z_SYNC_FLUSH);
		u->ended = rc == Z_STREAM_END;
		if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
			return -1;
		size_t n = sizeof out - u->z.avail_out;
		if (n > 0 && give(arg, out, n) != 0)
			return -1;
		if (rc == Z_BUF_ERROR)
			break;
	} while (u->z.avail_in > 0 || u->z.avail_out == 0);
	return 0;
}

bool http_unpack_whole(const struct http_unpack *u)
{
	return u->ended || !u->begun;
}
