/*
 * The tar reader of the box: what a client uploads, and what an archive made elsewhere holds. Two forms of input, so that a mutation gets
 * past the checksums: after 'C' short records {type, flags, name, target, body}, each text with a byte of length in front, of which an
 * archive is made; anything else is the archive itself, its checksums put right.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "box/tar.h"
#include "fuzz.h"

enum { ARCHIVE_MAX = 256 * 1024, OLD_FORM = 1, OWN_SIZE = 2 };

struct archive {
	uint8_t *p;
	size_t n;
};

static void right_sum(uint8_t *b)
{
	unsigned sum = 0;
	memset(b + 148, ' ', 8);
	for (int i = 0; i < TAR_BLOCK; i++)
		sum += b[i];
	for (int i = 5; i >= 0; i--, sum /= 8)
		b[148 + i] = (uint8_t)('0' + sum % 8);
	b[154] = 0;
}

static struct str take(struct str *in)
{
	size_t n = in->n == 0 ? 0 : (uint8_t)in->p[0];
	if (in->n > 0)
		*in = (struct str){ in->p + 1, in->n - 1 };
	n = n < in->n ? n : in->n;
	struct str out = { in->p, n };
	*in = (struct str){ in->p + n, in->n - n };
	return out;
}

static void add(struct archive *a, struct str *in)
{
	uint8_t type = (uint8_t)in->p[0], flags = (uint8_t)in->p[1], *b = a->p + a->n;
	*in = (struct str){ in->p + 2, in->n - 2 };
	struct str name = take(in), target = take(in), body = take(in);
	if (a->n + 3 * TAR_BLOCK > ARCHIVE_MAX)
		return;
	memcpy(b, name.p, name.n < 100 ? name.n : 100);
	memcpy(b + 100, "0000644", 7);
	memcpy(b + 136, "07346545000", 11);
	for (size_t i = 0, v = body.n; i < 11; i++, v /= 8)
		b[134 - i] = (uint8_t)('0' + v % 8);
	if ((flags & OWN_SIZE) != 0)
		memcpy(b + 124, target.p, target.n < 12 ? target.n : 12);
	b[156] = type;
	memcpy(b + 157, target.p, target.n < 100 ? target.n : 100);
	if ((flags & OLD_FORM) == 0)
		memcpy(b + 257, "ustar\00000", 8);
	if (name.n > 100)
		memcpy(b + 345, name.p + 100, name.n - 100 < 155 ? name.n - 100 : 155);
	right_sum(b);
	memcpy(b + TAR_BLOCK, body.p, body.n);
	a->n += TAR_BLOCK + body.n + tar_pad(body.n);
}

static bool is_plain(const char *path)
{
	struct str rest = str_of(path), part;
	if (path[0] == '/')
		return false;
	while (str_cut(&rest, '/', &part))
		if (part.n == 0 || str_eq(part, ".") || str_eq(part, ".."))
			return false;
	return true;
}

/* A number that stands for everything that was read. */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * UINT64_C(1099511628211);
	return h;
}

static uint64_t read_all(const struct archive *a, size_t piece)
{
	struct tar_in *t = xcalloc(1, sizeof *t);
	uint64_t h = 7, data = 0, open = 0;
	bool ended = false;
	for (size_t at = 0; at < a->n && !ended; at += piece) {
		struct str in = { (const char *)a->p + at, a->n - at < piece ? a->n - at : piece };
		for (enum tar_got got; !ended && (got = tar_next(t, &in)) != TAR_MORE;) {
			HOLDS(got == TAR_BAD ||
			    is_plain(t->entry.path)); /* what is refused is shown as it came */
			if (got == TAR_ENTRY) {
				HOLDS(open == 0 && t->entry.mode <= 0777 && t->entry.size <= INT64_MAX);
				HOLDS(t->entry.kind != TAR_HARD_LINK || is_plain(t->entry.target));
				HOLDS(t->entry.path[0] != 0 || t->entry.kind == TAR_DIR);
				open = 1;
				h = mix(mix(h, t->entry.path, strlen(t->entry.path)), t->entry.target,
				    strlen(t->entry.target));
			} else if (got == TAR_DATA) {
				HOLDS(open == 1 && t->data.n > 0);
				data += t->data.n;
				h = mix(h, t->data.p, t->data.n);
			} else if (got == TAR_DONE) {
				HOLDS(open == 1);
				open = 0;
			} else if (got == TAR_BAD) {
				HOLDS(t->why != NULL && tar_next(t, &in) == TAR_BAD);
				h = mix(h, t->why, strlen(t->why));
				ended = true;
			}
		}
		HOLDS(ended || in.n == 0);
	}
	HOLDS(data <= a->n);
	h += tar_is_whole(t);
	free(t);
	return h;
}

void fuzz_tar(const uint8_t *p, size_t n)
{
	struct archive a = { .p = xcalloc(1, ARCHIVE_MAX) };
	if (n > 0 && p[0] == 'C') {
		struct str in = { (const char *)p + 1, n - 1 };
		while (in.n >= 2)
			add(&a, &in);
		a.n += a.n + (size_t)2 * TAR_BLOCK <= ARCHIVE_MAX ? 2 * TAR_BLOCK : 0;
	} else {
		a.n = n < ARCHIVE_MAX ? n : ARCHIVE_MAX;
		memcpy(a.p, p, a.n);
		for (size_t at = 0; at + TAR_BLOCK <= a.n; at += TAR_BLOCK)
			if (memcmp(a.p + at + 257, "ustar", 5) == 0)
				right_sum(a.p + at);
	}
	uint64_t whole = read_all(&a, ARCHIVE_MAX);
	HOLDS(read_all(&a, 1 + n % 700) == whole);
	free(a.p);
}
