/*
 * ring.h - the last LIMIT_OUTPUT_BYTES of a stream, by absolute offset. Memory grows with what was written, and a ring that
 * gets none keeps less: it never stops a command (SBX-42).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ring {
	unsigned char *p;
	size_t cap;          /* a power of two, or 0 */
	uint64_t start, end; /* offsets held: [start, end) */
};

/* One read(2) from fd, losing the oldest bytes below `floor` (UINT64_MAX: any) when it must. Bytes, 0 at the end of the
 * stream, -1 with errno (ENOBUFS: no byte can be taken without losing one that is still wanted). */
ssize_t ring_fill(struct ring *r, int fd, uint64_t floor);
/* Can ring_fill take anything? */
int ring_has_room(const struct ring *r, uint64_t floor);
/* The bytes at offset `at` (start <= at < end) that lie together: up to *n of them. */
const unsigned char *ring_at(const struct ring *r, uint64_t at, size_t *n);
/* No more will come: give back what is not needed. */
void ring_trim(struct ring *r);
void ring_free(struct ring *r);
