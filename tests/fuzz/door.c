/* Bodies of the E2B SDK: envelopes of the Connect protocol, and forms. */
#include <string.h>

#include "fuzz.h"
#include "op/connect.h"
#include "op/multipart.h"

void fuzz_envelope(const uint8_t *p, size_t n)
{
	enum { MAX = 4096 };
	for (size_t at = 0; at < n;) {
		struct err e = { 0 };
		struct str message = { 0 };
		unsigned char flags = 0;
		int got = connect_frame(p + at, n - at, MAX, &flags, &message, &e);
		if (got <= 0) {
			HOLDS(got == 0 || e.code == ERR_TOO_LARGE);
			return;
		}
		HOLDS(message.n <= MAX && (const uint8_t *)message.p == p + at + CONNECT_HEAD);
		HOLDS(message.n <= n - at - CONNECT_HEAD && flags == p[at]);
		at += CONNECT_HEAD + message.n;
	}
}

struct source {
	const uint8_t *p;
	size_t n, step;
};

static ssize_t take(void *arg, void *to, size_t n)
{
	struct source *s = arg;
	size_t k = s->n < s->step ? s->n : s->step;
	k = k < n ? k : n;
	memcpy(to, s->p, k);
	s->p += k;
	s->n -= k;
	return (ssize_t)k;
}

/* What a form says, as one number: how it came, and how it is read, must not change it. */
static uint64_t digest(const char *type, const uint8_t *p, size_t n, size_t step, size_t by)
{
	auto_mem struct mem *m = mem_new();
	struct source s = { p, n, step };
	struct err e = { 0 };
	struct multipart_part part;
	uint64_t sum = 14695981039346656037ULL, bytes = 0;
	struct multipart *form = multipart_open(m, type, take, &s, &e);
	int more = form == NULL ? -1 : multipart_next(form, &part, &e);
	for (; more > 0; more = multipart_next(form, &part, &e)) {
		char piece[64];
		sum = (sum ^ (part.filename == NULL ? 0 : strlen(part.filename) + 1)) * 1099511628211ULL;
		for (ssize_t k; (k = multipart_read(form, piece, by)) > 0; bytes += (uint64_t)k)
			for (ssize_t i = 0; i < k; i++)
				sum = (sum ^ (unsigned char)piece[i]) * 1099511628211ULL;
	}
	HOLDS(bytes <= n && (more == 0 || e.code == ERR_BAD_REQUEST || e.code == ERR_MEDIA));
	return sum ^ (uint64_t)more;
}

/* The Content-Type up to the first line feed, then the body. */
void fuzz_form(const uint8_t *p, size_t n)
{
	const uint8_t *body = n == 0 ? NULL : memchr(p, '\n', n);
	if (body == NULL)
		return;
	auto_mem struct mem *m = mem_new();
	const char *type = mem_strn(m, (const char *)p, (size_t)(body - p));
	size_t rest = n - (size_t)(body + 1 - p);
	HOLDS(digest(type, body + 1, rest, 1, 64) == digest(type, body + 1, rest, SIZE_MAX, 3));
}
