#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct str str_of(const char *s)
{
	return (struct str){ s, s == NULL ? 0 : strlen(s) };
}

bool str_cut(struct str *s, char sep, struct str *out)
{
	if (s->n == 0)
		return false;
	const char *at = memchr(s->p, sep, s->n);
	size_t n = at == NULL ? s->n : (size_t)(at - s->p);
	*out = (struct str){ s->p, n };
	size_t used = at == NULL ? n : n + 1;
	s->p += used;
	s->n -= used;
	return true;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

ssize_t str_read(void *str, void *p, size_t n)
{
	struct str *s = str;
	n = n < s->n ? n : s->n;
	if (n == 0)
		return 0;
	memcpy(p, s->p, n);
	s->p += n;
	s->n -= n;
	return (ssize_t)n;
}

struct str str_trim(struct str s)
{
	while (s.n > 0 && blank(s.p[0]))
		s.p++, s.n--;
	while (s.n > 0 && blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);
	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_only(const char *s, const char *allowed)
{
	return s[0] != 0 && s[strspn(s, allowed)] == 0;
}

bool str_one_of(const char *s, const char *const *list)
{
	for (; *list != NULL; list++)
		if (strcmp(s, *list) == 0)
			return true;
	return false;
}

bool str_int(const char *s, long long min, long long max, long long *out)
{
	if (s == NULL || s[0] == 0 || !str_only(s[0] == '-' ? s + 1 : s, "0123456789"))
		return false;
	errno = 0;
	long long v = strtoll(s, NULL, 10);
	if (errno != 0 || v < min || v > max)
		return false;
	*out = v;
	return true;
}

size_t str_num(long long v, char out[STR_NUM])
{
	char digits[STR_NUM];
	size_t at = sizeof digits;
	unsigned long long left = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
	do
		digits[--at] = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (v < 0)
		digits[--at] = '-';
	memcpy(out, digits + at, sizeof digits - at);
	out[sizeof digits - at] = 0;
	return sizeof digits - at;
}

void str_put(char *out, size_t size, const char *a, const char *b, const char *c)
{
	const char *const all[] = { a, b, c };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		size_t n = strlen(all[i]);
		n = n < size ? n : size - 1;
		memcpy(out, all[i], n);
		out += n;
		size -= n;
	}
	*out = 0;
}

/* Bytes of the character starting at p (n > 0): its length, 0 when invalid, -1 when cut short but possible so far. */
static int utf8_char(const unsigned char *p, size_t n)
{
	unsigned char c = p[0];
	if (c < 0x80)
		return 1;
	int len = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
	if (len == 0)
		return 0;
	unsigned char lo = 0x80,
		      hi = 0xBF; /* bounds of the second byte: overlong, surrogate and range rules */
	if (c == 0xE0)
		lo = 0xA0;
	else if (c == 0xED)
		hi = 0x9F;
	else if (c == 0xF0)
		lo = 0x90;
	else if (c == 0xF4)
		hi = 0x8F;
	for (int i = 1; i < len; i++) {
		if ((size_t)i >= n)
			return -1;
		if (p[i] < lo || p[i] > hi)
			return 0;
		lo = 0x80;
		hi = 0xBF;
	}
	return len;
}

static const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;

/* The first byte of w, as it was loaded, that is a quote, a backslash or a control character; 8: none is. */
static size_t stops(uint64_t w)
{
	uint64_t quote = w ^ (ones * '"'), back = w ^ (ones * '\\');
	/* A byte of x - ones whose high bit is set where x has it clear was 0 (or follows one that was, so the first is true). */
	uint64_t stop = high &
	    (((quote - ones) & ~quote) | ((back - ones) & ~back) | ((w - ones * 0x20) & ~w));
	return stop == 0 ? 8 : (size_t)__builtin_ctzll(stop) / 8;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest");

/* Eight bytes at a time; the last ones of a longer text once more with those before them. */
size_t str_plain(const char *p, size_t n, bool *ascii)
{
	uint64_t w, seen = 0;
	size_t i = 0, at = 8;
	for (; n - i >= 8 && at == 8; i += at) {
		memcpy(&w, p + i, 8);
		seen |= w;
		at = stops(w);
	}
	if (at == 8 && i < n && n > 8) {
		memcpy(&w, p + n - 8, 8);
		seen |= w;
		i = n - 8 + stops(w);
	} else if (at == 8) {
		for (; i < n && p[i] != '"' && p[i] != '\\' && (unsigned char)p[i] >= 0x20; i++)
			seen |= (unsigned char)p[i];
	}
	*ascii = *ascii && (seen & high) == 0;
	return i;
}

/* Most text is ASCII, which is seen eight bytes at a time. */
static size_t ascii(const char *p, size_t n)
{
	uint64_t w;
	size_t i = 0;
	for (; n - i >= 8; i += 8) {
		memcpy(&w, p + i, 8);
		if ((w & high) != 0)
			break;
	}
	return i;
}

size_t utf8_valid(const char *p, size_t n)
{
	size_t at = 0;
	while (at < n) {
		at += ascii(p + at, n - at);
		if (at == n)
			break;
		int len = utf8_char((const unsigned char *)p + at, n - at);
		if (len <= 0)
			break;
		at += (size_t)len;
	}
	return at;
}

size_t utf8_tail(const char *p, size_t n)
{
	for (size_t back = 1; back <= 3 && back <= n; back++)
		if (utf8_char((const unsigned char *)p + n - back, back) == -1)
			return back;
	return 0;
}

static uint32_t utf8_code(const unsigned char *p, int len)
{
	uint32_t c = len == 1 ? p[0] : p[0] & (0xFFU >> (len + 1));
	for (int i = 1; i < len; i++)
		c = c << 6 | (p[i] & 0x3FU);
	return c;
}

/* Control characters, line and paragraph ends, and what turns the direction of text around. */
static bool is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x2028 && c <= 0x202E) ||
	    (c >= 0x2066 && c <= 0x2069);
}

static bool is_blank(uint32_t c)
{
	return c == ' ' || c == 0xA0 || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
	    c == 0x202F || (c >= 0x205F && c <= 0x2064) || c == 0x3000 || c == 0xFEFF;
}

bool str_shows(const char *s)
{
	size_t n = strlen(s);
	bool shown = false;
	for (size_t at = 0; at < n;) {
		const unsigned char *p = (const unsigned char *)s + at;
		int len = utf8_char(p, n - at);
		if (len <= 0 || is_control(utf8_code(p, len)))
			return false;
		shown = shown || !is_blank(utf8_code(p, len));
		at += (size_t)len;
	}
	return shown;
}

bool bytes_equal_ct(const void *a, const void *b, size_t n)
{
	const volatile unsigned char *x = a, *y = b;
	unsigned char diff = 0;
	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)(x[i] ^ y[i]);
	return diff == 0;
}

static bool slug_char(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool str_slug(const char *s, char *out, size_t size)
{
	size_t n = 0;
	for (; *s != 0; s++) {
		unsigned char c = (unsigned char)*s;
		if (c >= 'A' && c <= 'Z')
			c = (unsigned char)(c + 32);
		if (!slug_char(c)) {
			if (n == 0 || out[n - 1] == '-')
				continue;
			c = '-';
		}
		if (n + 1 >= size)
			return false;
		out[n++] = (char)c;
	}
	if (n > 0 && out[n - 1] == '-')
		n--;
	out[n] = 0;
	return n > 0;
}
