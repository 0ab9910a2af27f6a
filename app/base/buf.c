#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

char *buf_more(struct buf *b, size_t n)
{
	assert(b->max > 0 && b->max < SIZE_MAX / 4);
	if (b->full || n > b->max - b->n) {
		b->full = true;
		return NULL;
	}
	size_t need = b->n + n + 1;
	if (need > b->cap) {
		size_t cap = b->cap == 0 ? 256 : b->cap * 2;
		if (cap > b->max + 1)
			cap = b->max + 1;
		if (cap < need)
			cap = need;
		b->p = xrealloc(b->p, cap);
		b->cap = cap;
		b->p[b->n] = 0; /* also a string when the caller then has nothing to count */
	}
	return b->p + b->n;
}

void buf_grew(struct buf *b, size_t n)
{
	assert(b->p != NULL && n <= b->cap - b->n - 1);
	b->n += n;
	b->p[b->n] = 0;
}

int buf_add_more(struct buf *b, const void *p, size_t n)
{
	char *to = buf_more(b, n);
	if (to == NULL)
		return -1;
	if (n > 0)
		memcpy(to, p, n);
	buf_grew(b, n);
	return 0;
}

int buf_num(struct buf *b, long long v)
{
	char digits[STR_NUM];
	size_t n = str_num(v, digits);
	return buf_add(b, digits, n);
}

int buf_fmt(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	/* Into what is there, which mostly is enough: formatting twice is what costs. */
	size_t room = b->full ? 0 : b->cap - b->n;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(room == 0 ? NULL : b->p + b->n, room, fmt, ap);
	va_end(ap);
	assert(n >= 0);
	bool fits = (size_t)n < room;
	if (room > 0 && !fits)
		b->p[b->n] = 0;
	char *to = fits ? b->p + b->n : buf_room(b, (size_t)n);
	if (to != NULL && !fits)
		(void)vsnprintf(to, (size_t)n + 1, fmt, again);
	va_end(again);
	if (to != NULL)
		b->n += (size_t)n;
	return to == NULL ? -1 : 0;
}

void buf_drop(struct buf *b, size_t n)
{
	assert(n <= b->n);
	if (n == 0)
		return;
	b->n -= n;
	memmove(b->p, b->p + n, b->n + 1);
}

void buf_reset(struct buf *b)
{
	b->n = 0;
	b->full = false;
	if (b->p != NULL)
		b->p[0] = 0;
}

void buf_free(struct buf *b)
{
	free(b->p);
	*b = (struct buf){ .max = b->max };
}

const char *buf_c(const struct buf *b)
{
	return b->p == NULL ? "" : b->p;
}
