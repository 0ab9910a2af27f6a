#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/str.h"

/* The first block is what a request needs at least, and all that thousands of idle streams need; the others are for work. */
enum { FIRST_BYTES = 1024, BLOCK_BYTES = 4000, FMT_BYTES = 256, NEAR_BYTES = 1024 };

struct block {
	struct block *next;
	size_t used, size;
	alignas(max_align_t) unsigned char data[];
};
struct owned {
	struct owned *next;
	void *obj;
	void (*destroy)(void *);
};
struct mem {
	struct block *head;
	struct owned *owned;
};

static struct block *block_new(size_t size)
{
	struct block *b = malloc(sizeof *b + size);
	if (b == NULL)
		abort();
	b->next = NULL;
	b->used = 0;
	b->size = size;
	return b;
}

struct mem *mem_new(void)
{
	return xcalloc(1, sizeof(struct mem));
}

void *mem_alloc(struct mem *m, size_t n)
{
	assert(n < SIZE_MAX / 2);
	size_t need = (n + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	struct block *b = m->head;
	if (b == NULL || b->size - b->used < need) {
		size_t least = b == NULL ? FIRST_BYTES : BLOCK_BYTES;
		b = block_new(need > least ? need : least);
		b->next = m->head;
		m->head = b;
	}
	void *p = b->data + b->used;
	b->used += need;
	return memset(p, 0, need);
}

char *mem_str(struct mem *m, const char *s)
{
	return mem_strn(m, s, strlen(s));
}

char *mem_strn(struct mem *m, const char *p, size_t n)
{
	char *s = mem_alloc(m, n + 1);
	if (n > 0)
		memcpy(s, p, n);
	return s;
}

char *mem_vfmt(struct mem *m, const char *fmt, va_list ap)
{
	char some[FMT_BYTES]; /* mostly enough: formatting twice is what costs */
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(some, sizeof some, fmt, ap);
	assert(n >= 0);
	bool fits = (size_t)n < sizeof some;
	char *s = fits ? mem_strn(m, some, (size_t)n) : mem_alloc(m, (size_t)n + 1);
	if (!fits)
		(void)vsnprintf(s, (size_t)n + 1, fmt, again);
	va_end(again);
	return s;
}

char *mem_fmt(struct mem *m, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *s = mem_vfmt(m, fmt, ap);
	va_end(ap);
	return s;
}

char *mem_join(struct mem *m, const char *a, const char *b, const char *c)
{
	size_t size = strlen(a) + strlen(b) + strlen(c) + 1;
	char *to = mem_alloc(m, size);
	str_put(to, size, a, b, c);
	return to;
}

char *mem_num(struct mem *m, long long v)
{
	char digits[STR_NUM];
	size_t n = str_num(v, digits);
	return mem_strn(m, digits, n);
}

void mem_own(struct mem *m, void *obj, void (*destroy)(void *))
{
	struct owned *o = mem_alloc(m, sizeof *o);
	*o = (struct owned){ .next = m->owned, .obj = obj, .destroy = destroy };
	m->owned = o;
}

static void json_drop(void *v)
{
	json_decref(v);
}

json_t *mem_json(struct mem *m, json_t *v)
{
	if (v != NULL)
		mem_own(m, v, json_drop);
	return v;
}

void mem_free(struct mem *m)
{
	if (m == NULL)
		return;
	for (struct owned *o = m->owned; o != NULL; o = o->next)
		o->destroy(o->obj);
	for (struct block *b = m->head, *next; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	free(m);
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (p == NULL)
		abort();
	return p;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);
	if (p == NULL)
		abort();
	return p;
}

void *xrealloc(void *p, size_t n)
{
	void *q = realloc(p, n);
	if (q == NULL)
		abort();
	return q;
}

void mem_stack_rest(void)
{
	pthread_attr_t a;
	void *low;
	size_t size;
	if (pthread_getattr_np(pthread_self(), &a) != 0)
		return;
	int rc = pthread_attr_getstack(&a, &low, &size);
	(void)pthread_attr_destroy(&a);
	/* The distance is for this frame and madvise's; a signal's frame is not there while madvise works. */
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)low;
	uintptr_t to = ((uintptr_t)__builtin_frame_address(0) - NEAR_BYTES) & ~(page - 1);
	if (rc == 0 && to > from && to - from < size)
		(void)madvise(low, to - from, MADV_DONTNEED);
}
