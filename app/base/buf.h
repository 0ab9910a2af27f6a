/*
 * buf.h - the one string builder: bytes that grow up to a stated maximum.
 * Going past the maximum is remembered (buf_full) and appends nothing: never a silent truncation.
 * Always NUL-terminated once there is memory, but may hold NULs; use p and n.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"

struct buf {
	char *p;
	size_t n, cap, max;
	bool full; /* something did not fit */
};

#define BUF(max_bytes)                                                                                       \
	(struct buf)                                                                                         \
	{                                                                                                    \
		.max = (max_bytes)                                                                           \
	}

/* Behind buf_room and buf_add, where there is no memory for it yet, or no room. */
char *buf_more(struct buf *b, size_t n);
int buf_add_more(struct buf *b, const void *p, size_t n);

static inline bool buf_has(const struct buf *b, size_t n)
{
	return b->p != NULL && !b->full && n < b->cap - b->n && n <= b->max - b->n;
}
/* Room for n more bytes at the end, to be filled by the caller and then counted with buf_grew; NULL when it does not fit. */
static inline char *buf_room(struct buf *b, size_t n)
{
	return buf_has(b, n) ? b->p + b->n : buf_more(b, n);
}
/* 0, or -1 when it does not fit. */
static inline int buf_add(struct buf *b, const void *p, size_t n)
{
	if (n == 0 || !buf_has(b, n))
		return buf_add_more(b, p, n);
	memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = 0;
	return 0;
}
static inline int buf_str(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}
static inline int buf_chr(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}
int buf_fmt(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_num(struct buf *b, long long v);
void buf_grew(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* forget the first n bytes */
void buf_reset(struct buf *b);          /* empty, memory kept */
void buf_free(struct buf *b);
const char *buf_c(const struct buf *b); /* as a C string, "" when empty */

static inline void auto_bufp(struct buf *b)
{
	buf_free(b);
}
#define auto_buf AUTO(auto_bufp)
