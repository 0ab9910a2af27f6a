#include "model/scan.h"

#include <string.h>

#include "base/limits.h"

struct scan scan_of(struct str json)
{
	return (struct scan){ .p = json.p, .end = json.p + json.n };
}

static bool fail(struct scan *s)
{
	s->bad = true;
	return false;
}

static void blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
		s->p++;
}

char scan_peek(struct scan *s)
{
	if (s->p < s->end && *s->p <= ' ')
		blanks(s);
	if (s->bad || s->p == s->end)
		return 0;
	return *s->p;
}

bool scan_hex4(const char *p, unsigned *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		unsigned v = c >= '0' && c <= '9' ? (unsigned)(c - '0')
		    : c >= 'a' && c <= 'f'        ? (unsigned)(c - 'a' + 10)
		    : c >= 'A' && c <= 'F'        ? (unsigned)(c - 'A' + 10)
						  : 16;
		if (v == 16)
			return false;
		*out = *out << 4 | v;
	}
	return true;
}

static bool escape_ok(struct scan *s, const char **at)
{
	const char *p = *at + 1;
	unsigned u;
	if (p == s->end)
		return false;
	if (*p == 'u') {
		if (s->end - p < 5 || !scan_hex4(p + 1, &u))
			return false;
		*at = p + 5;
		return true;
	}
	*at = p + 1;
	return memchr("\"\\/bfnrt", *p, 8) != NULL;
}

/* At an opening quote. */
static bool string(struct scan *s, struct scan_text *out)
{
	const char *p = ++s->p, *from = p;
	bool escaped = false, ascii = true;
	for (;;) {
		p += str_plain(p, (size_t)(s->end - p), &ascii);
		if (p == s->end || (unsigned char)*p < 0x20)
			return fail(s);
		if (*p == '"')
			break;
		escaped = true;
		if (!escape_ok(s, &p))
			return fail(s);
	}
	*out = (struct scan_text){ { from, (size_t)(p - from) }, escaped };
	s->p = p + 1;
	s->fresh = false;
	return true;
}

static const char *digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

/* RFC 8259, section 6. */
static bool number(struct scan *s, bool *whole)
{
	const char *p = s->p, *from;
	*whole = true;
	if (p < s->end && *p == '-')
		p++;
	from = p;
	p = digits(p, s->end);
	if (p == from || (p - from > 1 && *from == '0'))
		return fail(s);
	if (p < s->end && *p == '.') {
		*whole = false;
		from = ++p;
		p = digits(p, s->end);
		if (p == from)
			return fail(s);
	}
	if (p < s->end && (*p == 'e' || *p == 'E')) {
		*whole = false;
		if (++p < s->end && (*p == '+' || *p == '-'))
			p++;
		from = p;
		p = digits(p, s->end);
		if (p == from)
			return fail(s);
	}
	s->p = p;
	s->fresh = false;
	return true;
}

static bool word(struct scan *s, const char *w)
{
	size_t n = strlen(w);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
		return fail(s);
	s->p += n;
	s->fresh = false;
	return true;
}

static bool scalar(struct scan *s)
{
	struct scan_text t;
	bool whole;
	switch (scan_peek(s)) {
	case '"':
		return string(s, &t);
	case 't':
		return word(s, "true");
	case 'f':
		return word(s, "false");
	case 'n':
		return word(s, "null");
	default:
		return s->p < s->end ? number(s, &whole) : fail(s);
	}
}

static bool open_(struct scan *s, char c)
{
	if (scan_peek(s) != c) {
		(void)scan_value(s, NULL);
		return false;
	}
	s->p++;
	s->fresh = true;
	return true;
}

/* Before the next member of what closes with c: false at that bracket, which is taken. */
static bool more(struct scan *s, char c)
{
	if (s->bad)
		return false;
	char at = scan_peek(s);
	if (at == c) {
		s->p++;
		s->fresh = false;
		return false;
	}
	if (s->fresh) {
		s->fresh = false;
		return at != 0 || fail(s);
	}
	if (at != ',')
		return fail(s);
	s->p++;
	return true;
}

bool scan_object(struct scan *s)
{
	return open_(s, '{');
}

bool scan_array(struct scan *s)
{
	return open_(s, '[');
}

bool scan_key(struct scan *s, struct str *key)
{
	struct scan_text t;
	if (!more(s, '}'))
		return false;
	if (scan_peek(s) != '"')
		return fail(s);
	if (!string(s, &t))
		return false;
	if (scan_peek(s) != ':')
		return fail(s);
	s->p++;
	*key = t.raw;
	return true;
}

bool scan_item(struct scan *s)
{
	return more(s, ']');
}

bool scan_string(struct scan *s, struct scan_text *out)
{
	if (scan_peek(s) == '"')
		return string(s, out);
	(void)scan_value(s, NULL);
	return false;
}

bool scan_int(struct scan *s, long long *out)
{
	char c = scan_peek(s);
	if (c != '-' && (c < '0' || c > '9')) {
		(void)scan_value(s, NULL);
		return false;
	}
	const char *from = s->p;
	bool whole;
	char text[24];
	if (!number(s, &whole))
		return false;
	size_t n = (size_t)(s->p - from);
	if (!whole || n >= sizeof text)
		return false;
	memcpy(text, from, n);
	text[n] = 0;
	/* 19 digits and a sign always fit; "-0" is 0. */
	return str_int(text, -999999999999999999LL, 999999999999999999LL, out);
}

bool scan_bool(struct scan *s, bool *out)
{
	char c = scan_peek(s);
	if (!scan_value(s, NULL) || (c != 't' && c != 'f'))
		return false;
	*out = c == 't';
	return true;
}

/* Iterative: what an upstream nests costs no stack. `kinds` has a bit a level: 1 is an object. */
bool scan_value(struct scan *s, struct str *out)
{
	_Static_assert(LIMIT_JSON_DEPTH < 64, "a bit a level");
	unsigned long long kinds = 0;
	int depth = 0;
	struct str key;
	(void)scan_peek(s);
	const char *from = s->p;
	do {
		char c = scan_peek(s);
		if (c == '{' || c == '[') {
			if (++depth > LIMIT_JSON_DEPTH)
				return fail(s);
			kinds = kinds << 1 | (c == '{');
			(void)open_(s, c);
		} else if (!scalar(s)) {
			return false;
		}
		while (depth > 0 && !(kinds & 1 ? scan_key(s, &key) : scan_item(s))) {
			if (s->bad)
				return false;
			depth--;
			kinds >>= 1;
		}
	} while (depth > 0);
	if (out != NULL)
		*out = (struct str){ from, (size_t)(s->p - from) };
	return true;
}

bool scan_done(struct scan *s)
{
	blanks(s);
	return !s->bad && s->p == s->end;
}

bool scan_whole(struct str json)
{
	struct scan s = scan_of(json);
	return scan_value(&s, NULL) && scan_done(&s);
}

static int utf8_out(unsigned u, struct buf *out)
{
	char b[4];
	size_t n;
	if (u < 0x80) {
		b[0] = (char)u;
		n = 1;
	} else if (u < 0x800) {
		b[0] = (char)(0xC0 | u >> 6);
		b[1] = (char)(0x80 | (u & 0x3F));
		n = 2;
	} else if (u < 0x10000) {
		b[0] = (char)(0xE0 | u >> 12);
		b[1] = (char)(0x80 | (u >> 6 & 0x3F));
		b[2] = (char)(0x80 | (u & 0x3F));
		n = 3;
	} else {
		b[0] = (char)(0xF0 | u >> 18);
		b[1] = (char)(0x80 | (u >> 12 & 0x3F));
		b[2] = (char)(0x80 | (u >> 6 & 0x3F));
		b[3] = (char)(0x80 | (u & 0x3F));
		n = 4;
	}
	return buf_add(out, b, n);
}

/* p is behind "\u"; returns what is behind the escape, a pair included. */
static const char *unicode(const char *p, const char *end, struct buf *out)
{
	unsigned u, low;
	if (!scan_hex4(p, &u))
		return end; /* not reached: the string was checked */
	p += 4;
	if (u >= 0xD800 && u < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' &&
	    scan_hex4(p + 2, &low) && low >= 0xDC00 && low < 0xE000) {
		u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
		p += 6;
	} else if ((u >= 0xD800 && u < 0xE000) ||
	    u == 0) { /* what no C string and no JSON tree here can hold */
		u = 0xFFFD;
	}
	(void)utf8_out(u, out);
	return p;
}

int scan_unescape(struct scan_text t, struct buf *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *p = t.raw.p, *end = p + t.raw.n;
	while (p < end) {
		const char *back = memchr(p, '\\', (size_t)(end - p));
		const char *stop = back == NULL ? end : back;
		(void)buf_add(out, p, (size_t)(stop - p));
		if (back == NULL || end - back < 2)
			break;
		if (back[1] == 'u') {
			p = end - back < 6 ? end : unicode(back + 2, end, out);
			continue;
		}
		const char *which = memchr(from, back[1], sizeof from - 1);
		if (which != NULL)
			(void)buf_chr(out, to[which - from]);
		p = back + 2;
	}
	return out->full ? -1 : 0;
}
