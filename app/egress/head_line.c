#include <string.h>

#include "egress/head_int.h"

bool head_token(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = p[i];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
		if (!alnum && (c == 0 || strchr("!#$%&'*+-.^_`|~", c) == NULL))
			return false;
	}
	return n > 0;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool head_is(struct str s, const char *text)
{
	size_t i = 0;
	for (; i < s.n && text[i] != 0; i++)
		if (lower(s.p[i]) != text[i])
			return false;
	return i == s.n && text[i] == 0;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

static enum egress_reason too_long(const struct head_scan *s, size_t end)
{
	if (!s->line_done && end - s->at > HEAD_LINE_MAX)
		return REASON_TARGET_TOO_LONG;
	return end > HEAD_MAX ? REASON_HEAD_TOO_LONG : REASON_OK;
}

static enum egress_reason characters(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f)
			return REASON_BAD_CHAR;
	return REASON_OK;
}

enum head_step head_line(
    struct head_scan *s, const char *p, size_t n, size_t *line, size_t *line_n, enum egress_reason *why)
{
	/* A longer buffer than may be read is read as far as that, so that the answer does not depend on how much came at once. */
	size_t seen = n > HEAD_MAX + 1 ? HEAD_MAX + 1 : n;
	const char *lf = seen > s->scanned ? memchr(p + s->scanned, '\n', seen - s->scanned) : NULL;
	size_t end = lf == NULL ? seen : (size_t)(lf - p);
	s->scanned = (uint32_t)end;
	*why = too_long(s, end);
	if (*why != REASON_OK)
		return HEAD_BAD;
	if (lf == NULL)
		return HEAD_MORE;
	*line = s->at;
	*line_n = end - s->at;
	bool crlf = *line_n > 0 && p[end - 1] == '\r';
	*line_n -= crlf;
	*why = characters(p + *line, *line_n);
	if (*why == REASON_OK && !crlf)
		*why = REASON_BARE_LF;
	s->at = s->scanned = (uint32_t)end + 1;
	return *why == REASON_OK ? HEAD_DONE : HEAD_BAD;
}

/* ---- fields */

/* RFC 9112 6.3: one decimal number, and no second opinion on it. */
static enum egress_reason content_length(struct head_scan *s, struct str v)
{
	if (s->has_cl)
		return REASON_CL_DUPLICATE;
	s->has_cl = true;
	if (v.n > 0 && memchr(v.p, ',', v.n) != NULL)
		return REASON_CL_LIST;
	if (v.n == 0 || v.n > 18 || (v.n > 1 && v.p[0] == '0'))
		return REASON_CL_BAD;
	s->length = 0;
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return REASON_CL_BAD;
		s->length = s->length * 10 + (uint64_t)(v.p[i] - '0');
	}
	return REASON_OK;
}

static enum egress_reason transfer_encoding(struct head_scan *s, struct str v)
{
	if (s->has_te || !head_is(v, "chunked"))
		return REASON_TE_BAD;
	s->has_te = true;
	return REASON_OK;
}

static void connection(struct head_scan *s, struct str v)
{
	for (struct str one; str_cut(&v, ',', &one);) {
		one = str_trim(one);
		s->close = s->close || head_is(one, "close");
		s->keep_alive = s->keep_alive || head_is(one, "keep-alive");
	}
}

static enum egress_reason host_field(struct head_scan *s, const char *p, struct str v)
{
	if (s->has_host)
		return REASON_HOST_DUPLICATE;
	s->has_host = true;
	s->host = (uint32_t)(v.p - p);
	s->host_n = (uint32_t)v.n;
	return REASON_OK;
}

enum egress_reason head_field(struct head_scan *s, const char *p, size_t line, size_t line_n)
{
	const char *begin = p + line, *colon = memchr(begin, ':', line_n);
	if (blank(begin[0]))
		return REASON_OBS_FOLD;
	if (colon == NULL || !head_token(begin, (size_t)(colon - begin)))
		return REASON_BAD_HEADER;
	if (++s->n_fields > HEAD_FIELDS_MAX)
		return REASON_HEAD_TOO_LONG;
	struct str name = { begin, (size_t)(colon - begin) };
	struct str v = str_trim((struct str){ colon + 1, line_n - name.n - 1 });
	if (head_is(name, "host"))
		return host_field(s, p, v);
	if (head_is(name, "content-length"))
		return content_length(s, v);
	if (head_is(name, "transfer-encoding"))
		return transfer_encoding(s, v);
	if (head_is(name, "connection") || head_is(name, "proxy-connection"))
		connection(s, v);
	if (head_is(name, "expect")) {
		if (!head_is(v, "100-continue"))
			return REASON_EXPECTATION;
		s->expect = true;
	}
	return REASON_OK;
}

bool head_next(struct str *fields, struct str *name, struct str *value)
{
	struct str line;
	if (!str_cut(fields, '\n', &line))
		return false;
	line.n -= line.n > 0; /* the CR */
	const char *colon = memchr(line.p, ':', line.n);
	if (colon == NULL)
		return false; /* never: they were read already */
	*name = (struct str){ line.p, (size_t)(colon - line.p) };
	*value = str_trim((struct str){ colon + 1, line.n - name->n - 1 });
	return true;
}

/* ---- what is not sent on */

static bool one_of(struct str name, const char *const *list)
{
	for (; *list != NULL; list++)
		if (head_is(name, *list))
			return true;
	return false;
}

static bool named_by_connection(struct str fields, struct str name)
{
	static const char *const kept[] = { "host", "content-length", "transfer-encoding", NULL };
	if (one_of(name, kept))
		return false;
	for (struct str field, value; head_next(&fields, &field, &value);) {
		if (!head_is(field, "connection"))
			continue;
		for (struct str one; str_cut(&value, ',', &one);) {
			one = str_trim(one);
			if (one.n == name.n && strncasecmp(one.p, name.p, name.n) == 0)
				return true;
		}
	}
	return false;
}

bool head_hop(struct str fields, struct str name)
{
	static const char *const hop[] = { "connection", "keep-alive", "te", "upgrade", "http2-settings",
		NULL };
	if (name.n >= 6 && head_is((struct str){ name.p, 6 }, "proxy-"))
		return true;
	return one_of(name, hop) || named_by_connection(fields, name);
}

void head_put(struct head_out *o, const char *p, size_t n)
{
	o->full = o->full || n > o->size - o->n;
	if (o->full)
		return;
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

void head_puts(struct head_out *o, const char *s)
{
	head_put(o, s, strlen(s));
}
