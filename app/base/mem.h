/*
 * mem.h - the request arena. Two lifetimes only: a scope (auto_*, below) and a request (mem_*).
 * Out of memory ends the process: its supervisor starts it again and runs resume.
 */
#pragma once

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

struct mem;

void mem_free(struct mem *m); /* runs owned destructors, newest first; NULL is fine */

/* gcc checks that a constructor's result reaches its destructor; clang refuses the attribute's argument form. */
#if defined(__GNUC__) && !defined(__clang__)
#define MADE_FOR(dtor) __attribute__((malloc(dtor, 1), returns_nonnull, warn_unused_result))
#else
#define MADE_FOR(dtor) __attribute__((warn_unused_result))
#endif

struct mem *mem_new(void) MADE_FOR(mem_free);
void *mem_alloc(struct mem *m, size_t n) __attribute__((alloc_size(2), returns_nonnull)); /* zeroed */
char *mem_str(struct mem *m, const char *s) __attribute__((returns_nonnull));
/* The n bytes at p, with a NUL after them. */
char *mem_strn(struct mem *m, const char *p, size_t n) __attribute__((returns_nonnull));
char *mem_fmt(struct mem *m, const char *fmt, ...) __attribute__((format(printf, 2, 3), returns_nonnull));
/* a, b and c behind one another. */
char *mem_join(struct mem *m, const char *a, const char *b, const char *c) __attribute__((returns_nonnull));
/* A number in decimal digits. */
char *mem_num(struct mem *m, long long v) __attribute__((returns_nonnull));
char *mem_vfmt(struct mem *m, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0), returns_nonnull));
/* Hand a foreign object to the arena: destroy(obj) runs in mem_free. */
void mem_own(struct mem *m, void *obj, void (*destroy)(void *));
/* Give a JSON value to the arena and return it: for values that must live as long as the request. */
json_t *mem_json(struct mem *m, json_t *v);

/* Heap that outlives requests (process-long state): never NULL, the caller frees. */
void *xcalloc(size_t n, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));

/* For a thread of ours (not the first) that will now sleep for long: the pages of its stack below the caller's frame, used by
 * what it called before, go back to the kernel. */
void mem_stack_rest(void);

#define AUTO(fn) __attribute__((cleanup(fn)))
static inline void auto_freep(void *p)
{
	free(*(void **)p);
}
static inline void auto_jsonp(json_t **p)
{
	json_decref(*p);
}
static inline void auto_memp(struct mem **p)
{
	mem_free(*p);
}
static inline void auto_fdp(const int *p)
{
	if (*p >= 0)
		(void)close(*p);
}
#define auto_free AUTO(auto_freep)
#define auto_json AUTO(auto_jsonp)
#define auto_mem  AUTO(auto_memp)
#define auto_fd   AUTO(auto_fdp)

/* steal(p): give p away and forget it. */
#define steal(p)                                                                                             \
	__extension__({                                                                                      \
		__typeof__(p) *pp_ = &(p);                                                                   \
		__typeof__(p) v_ = *pp_;                                                                     \
		*pp_ = NULL;                                                                                 \
		v_;                                                                                          \
	})
static inline int steal_fd(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}
