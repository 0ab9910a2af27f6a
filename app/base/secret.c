#include "base/secret.h"

#include <string.h>

#include "base/str.h"

struct secret {
	size_t n;
	char bytes[];
};

struct secret *secret_new(const void *p, size_t n)
{
	struct secret *s = xcalloc(1, sizeof *s + n + 1);
	s->n = n;
	if (n > 0)
		memcpy(s->bytes, p, n);
	return s;
}

void secret_free(struct secret *s)
{
	if (s == NULL)
		return;
	secret_wipe(s->bytes, s->n);
	free(s);
}

size_t secret_len(const struct secret *s)
{
	return s->n;
}

bool secret_equal(const struct secret *s, const void *p, size_t n)
{
	return s->n == n && bytes_equal_ct(s->bytes, p, n);
}

const char *secret_use(const struct secret *s)
{
	return s->bytes;
}

void secret_wipe(void *p, size_t n)
{
	explicit_bzero(p, n);
}
