/* secret.h - a value that is never printed: opaque, zeroed when freed, compared in constant time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct secret;

struct secret *secret_new(const void *p, size_t n); /* copies; never NULL */
void secret_free(struct secret *s);                 /* zeroes; NULL is fine */
size_t secret_len(const struct secret *s);
bool secret_equal(const struct secret *s, const void *p, size_t n);
/* The bytes, NUL-terminated, for the one act they are for. Valid until secret_free; never log or store them. */
const char *secret_use(const struct secret *s);
/* Zero memory in a way the compiler keeps. */
void secret_wipe(void *p, size_t n);

static inline void auto_secretp(struct secret **p)
{
	secret_free(*p);
}
#define auto_secret AUTO(auto_secretp)
