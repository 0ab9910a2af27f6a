#include "box/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/limits.h"

enum { RING_MIN = 4096, READ_MAX = 64 * 1024 };
_Static_assert((LIMIT_OUTPUT_BYTES & (LIMIT_OUTPUT_BYTES - 1)) == 0, "offsets are masked");

const unsigned char *ring_at(const struct ring *r, uint64_t at, size_t *n)
{
	size_t pos = (size_t)at & (r->cap - 1), together = r->cap - pos;
	uint64_t held = r->end - at;
	if (*n > together)
		*n = together;
	if (*n > held)
		*n = (size_t)held;
	return r->p + pos;
}

/* Move what is held into memory of another size, at the places its offsets have there. */
static int resize(struct ring *r, size_t cap)
{
	unsigned char *p = malloc(cap);
	if (p == NULL)
		return -1;
	for (uint64_t at = r->start; at < r->end;) {
		size_t pos = (size_t)at & (cap - 1), n = cap - pos;
		const unsigned char *from = ring_at(r, at, &n);
		memcpy(p + pos, from, n);
		at += n;
	}
	free(r->p);
	r->p = p;
	r->cap = cap;
	return 0;
}

static void grow(struct ring *r)
{
	size_t held = (size_t)(r->end - r->start);
	if (r->cap == 0)
		(void)resize(r, RING_MIN);
	/* Twice as much whenever half is full: reads stay large while a small output keeps a small ring. */
	while (r->cap > 0 && held > r->cap / 2 && r->cap < LIMIT_OUTPUT_BYTES)
		if (resize(r, r->cap * 2) != 0)
			return;
}

static size_t room(const struct ring *r, size_t cap, uint64_t floor)
{
	if (floor >= r->end)
		return cap;
	uint64_t wanted = r->end - (floor > r->start ? floor : r->start);
	return wanted >= cap ? 0 : cap - (size_t)wanted;
}

int ring_has_room(const struct ring *r, uint64_t floor)
{
	return room(r, LIMIT_OUTPUT_BYTES, floor) > 0;
}

/* Not even the first page: the bytes are counted and lost. */
static ssize_t skip(struct ring *r, int fd)
{
	char lost[RING_MIN];
	ssize_t n = read(fd, lost, sizeof lost);
	if (n > 0)
		r->start = r->end += (uint64_t)n;
	return n;
}

ssize_t ring_fill(struct ring *r, int fd, uint64_t floor)
{
	grow(r);
	if (r->cap == 0)
		return skip(r, fd);
	size_t want = room(r, r->cap, floor), held = (size_t)(r->end - r->start);
	if (r->cap < LIMIT_OUTPUT_BYTES && held < r->cap && want > r->cap - held)
		want = r->cap - held; /* the next call grows it */
	if (want > READ_MAX)
		want = READ_MAX;
	if (want == 0) {
		errno = ENOBUFS;
		return -1;
	}
	size_t pos = (size_t)r->end & (r->cap - 1), first = r->cap - pos;
	if (first > want)
		first = want;
	struct iovec v[2] = { { r->p + pos, first }, { r->p, want - first } };
	ssize_t n = readv(fd, v, 2);
	if (n <= 0)
		return n;
	r->end += (uint64_t)n;
	if (r->end - r->start > r->cap)
		r->start = r->end - r->cap;
	return n;
}

void ring_trim(struct ring *r)
{
	size_t held = (size_t)(r->end - r->start), cap = 64;
	while (cap < held)
		cap *= 2;
	if (held == 0) {
		free(r->p);
		r->p = NULL;
		r->cap = 0;
	} else if (cap < r->cap) {
		(void)resize(r, cap);
	}
}

void ring_free(struct ring *r)
{
	free(r->p);
	*r = (struct ring){ .cap = 0 };
}
