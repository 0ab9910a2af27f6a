#include <string.h>

#include "egress/head_int.h"

enum { CHUNK_LINE_MAX = 1024, TRAILERS_MAX = 8192, SIZE_DIGITS = 8, CHUNK_MAX = 0x7fffffff };

enum state {
	SIZE,    /* at least one digit */
	EXT,     /* after the size, up to CR */
	SIZE_LF, /* the LF after it */
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER, /* at the beginning of a line */
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	END_LF,
	DONE,
	BAD,
};

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0'
	    : c >= 'a' && c <= 'f'  ? c - 'a' + 10
	    : c >= 'A' && c <= 'F'  ? c - 'A' + 10
				    : -1;
}

static bool plain(char c)
{
	return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

static enum state size_char(struct head_chunks *c, char ch)
{
	int v = digit(ch);
	if (v >= 0) {
		c->left = c->left << 4 | (unsigned)v;
		return ++c->digits > SIZE_DIGITS || c->left > CHUNK_MAX ? BAD : SIZE;
	}
	if (c->digits == 0)
		return BAD;
	return ch == '\r' ? SIZE_LF : ch == ';' || ch == ' ' || ch == '\t' ? EXT : BAD;
}

/* RFC 9110 6.5.1: what frames, routes or authorises does not come after the body. */
static bool trailer_ok(const struct head_chunks *c)
{
	static const char *const never[] = { "host", "content-length", "transfer-encoding", "connection",
		"te", "trailer", "authorization", "proxy-authorization", "proxy-connection", "cookie",
		"set-cookie", "content-type", "content-encoding", "expect", "upgrade", NULL };
	struct str name = { c->name, c->name_n };
	for (const char *const *n = never; *n != NULL; n++)
		if (head_is(name, *n))
			return false;
	return head_token(c->name, c->name_n);
}

static enum state trailer_char(struct head_chunks *c, char ch)
{
	if (c->state == TRAILER) {
		c->name_n = 0;
		if (ch == '\r')
			return END_LF;
	}
	if (ch == ':')
		return trailer_ok(c) ? TRAILER_VALUE : BAD;
	if (c->name_n == sizeof c->name)
		return BAD;
	c->name[c->name_n++] = ch;
	return TRAILER_NAME;
}

static enum state next(struct head_chunks *c, char ch)
{
	switch ((enum state)c->state) {
	case SIZE:
		return size_char(c, ch);
	case EXT:
		return ch == '\r' ? SIZE_LF : plain(ch) ? EXT : BAD;
	case SIZE_LF:
		c->line = 0;
		c->digits = 0;
		return ch != '\n' ? BAD : c->left > 0 ? DATA : TRAILER;
	case DATA_CR:
		return ch == '\r' ? DATA_LF : BAD;
	case DATA_LF:
		return ch == '\n' ? SIZE : BAD;
	case TRAILER:
	case TRAILER_NAME:
		return trailer_char(c, ch);
	case TRAILER_VALUE:
		return ch == '\r' ? TRAILER_LF : plain(ch) ? TRAILER_VALUE : BAD;
	case TRAILER_LF:
		return ch == '\n' ? TRAILER : BAD;
	case END_LF:
		return ch == '\n' ? DONE : BAD;
	default:
		return BAD;
	}
}

enum head_step head_chunks(struct head_chunks *c, const char *p, size_t n, size_t *used)
{
	size_t at = 0;
	while (at < n && c->state != DONE && c->state != BAD) {
		if (c->state == DATA) {
			size_t take = n - at < c->left ? n - at : (size_t)c->left;
			c->left -= take;
			at += take;
			c->state = c->left > 0 ? DATA : DATA_CR;
			continue;
		}
		c->state = (uint8_t)next(c, p[at++]);
		if (++c->line > (c->state >= TRAILER ? TRAILERS_MAX : CHUNK_LINE_MAX))
			c->state = BAD;
	}
	*used = at;
	return c->state == DONE ? HEAD_DONE : c->state == BAD ? HEAD_BAD : HEAD_MORE;
}
