#include "base/id.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

void id_make(const char *prefix, char out[ID_MAX])
{
	size_t n = strlen(prefix);
	assert(n > 0 && n <= 4);
	unsigned char rnd[10];
	random_some(rnd, sizeof rnd);
	memcpy(out, prefix, n);
	out[n++] = '_';
	uint64_t ms = (uint64_t)clock_wall_ms();
	for (int i = 9; i >= 0; i--) {
		out[n + (size_t)i] = alphabet[ms & 31];
		ms >>= 5;
	}
	n += 10;
	for (int half = 0; half < 2; half++) { /* 5 bytes are 8 characters */
		uint64_t v = 0;
		for (int i = 0; i < 5; i++)
			v = v << 8 | rnd[half * 5 + i];
		for (int i = 7; i >= 0; i--) {
			out[n + (size_t)i] = alphabet[v & 31];
			v >>= 5;
		}
		n += 8;
	}
	out[n] = 0;
}

bool id_is(const char *prefix, const char *s)
{
	size_t n = strlen(prefix);
	return s != NULL && strncmp(s, prefix, n) == 0 && s[n] == '_' && strlen(s + n + 1) == ID_TAIL &&
	    str_only(s + n + 1, alphabet);
}

const char *id_tail(const char *id)
{
	const char *u = strchr(id, '_');
	return u == NULL ? id : u + 1;
}
