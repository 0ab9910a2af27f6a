#include "egress/head.h"

#include <stdio.h>
#include <string.h>

#include "egress/head_int.h"

enum { METHOD_MAX = 32, HTTP_PORT = 80 };

static enum head_step bad(struct head *h, enum egress_reason why)
{
	h->reason = why;
	return HEAD_BAD;
}

/* ---- the request line */

static bool is_method(struct str m, const char *what)
{
	return str_eq(m, what); /* RFC 9110 9.1: with case */
}

static enum egress_reason connect_target(struct head *h, struct str target)
{
	h->form = FORM_CONNECT;
	h->path = (struct str){ target.p, 0 };
	for (size_t i = 0; i < target.n; i++)
		if (strchr("/?#", target.p[i]) != NULL)
			return REASON_BAD_TARGET;
	return decide_target(target, 0, &h->host, &h->port);
}

static bool scheme(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		bool alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
		if (!alpha && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.')))
			return false;
	}
	return s.n > 0;
}

static enum egress_reason absolute_target(struct head *h, struct str target)
{
	h->form = FORM_HTTP;
	const char *colon = memchr(target.p, ':', target.n);
	struct str name = { target.p, colon == NULL ? 0 : (size_t)(colon - target.p) };
	if (!scheme(name) || target.n < name.n + 3 || memcmp(colon, "://", 3) != 0)
		return REASON_BAD_TARGET;
	if (!head_is(name, "http"))
		return REASON_BAD_SCHEME;
	struct str rest = { colon + 3, target.n - name.n - 3 };
	size_t n = 0;
	while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
		n++;
	h->path = (struct str){ rest.p + n, rest.n - n };
	return decide_target((struct str){ rest.p, n }, HTTP_PORT, &h->host, &h->port);
}

static enum egress_reason target(struct head *h, struct str t, bool transparent)
{
	for (size_t i = 0; i < t.n; i++)
		if ((unsigned char)t.p[i] <= ' ' || (unsigned char)t.p[i] >= 0x7f)
			return REASON_BAD_CHAR;
	if (is_method(h->method, "CONNECT"))
		return transparent ? REASON_BAD_TARGET : connect_target(h, t);
	if (memchr(t.p, '#', t.n) != NULL)
		return REASON_BAD_TARGET;
	if (!transparent)
		return absolute_target(h, t);
	h->form = FORM_TRANSPARENT;
	h->path = t;
	return t.n > 0 && (t.p[0] == '/' || (t.p[0] == '*' && t.n == 1)) ? REASON_OK : REASON_BAD_TARGET;
}

/* METHOD SP target SP version. Which of them is at fault when there are more or fewer spaces is a matter of taste. */
static enum egress_reason request_line(struct head *h, struct str line, bool transparent)
{
	struct str part[3] = { 0 };
	size_t spaces = 0;
	for (size_t i = 0; i < line.n; i++)
		spaces += line.p[i] == ' ';
	for (size_t i = 0; i < 3 && str_cut(&line, ' ', &part[i]); i++)
		continue;
	h->method = part[0];
	if (!head_token(part[0].p, part[0].n) || part[0].n > METHOD_MAX)
		return REASON_BAD_REQUEST_LINE;
	if (spaces != 2 || part[1].n == 0)
		return spaces == 1 && part[1].n > 0 ? REASON_BAD_VERSION : REASON_BAD_REQUEST_LINE;
	if (!str_eq(part[2], "HTTP/1.1") && !str_eq(part[2], "HTTP/1.0"))
		return REASON_BAD_VERSION;
	h->minor = part[2].p[7] == '1';
	if (is_method(h->method, "TRACE") || is_method(h->method, "TRACK"))
		return REASON_METHOD_NOT_ALLOWED;
	return target(h, part[1], transparent);
}

/* ---- the whole head */

static enum egress_reason framing(struct head *h)
{
	const struct head_scan *s = &h->scan;
	bool connect = h->form == FORM_CONNECT;
	if (connect && (s->has_cl || s->has_te))
		return REASON_CONNECT_BODY;
	if (s->has_te && h->minor == 0)
		return REASON_TE_IN_10;
	if (s->has_te && s->has_cl)
		return REASON_TE_AND_CL;
	h->body = s->has_te ? BODY_CHUNKED : s->has_cl && s->length > 0 ? BODY_LENGTH : BODY_NONE;
	h->length = s->has_cl ? s->length : 0;
	h->keep = !connect && !s->close && (h->minor == 1 || s->keep_alive);
	h->expect_continue = s->expect && h->minor == 1 && h->body != BODY_NONE;
	return REASON_OK;
}

/*
 * Host: where CONNECT has one it names the target, with its port or without; where the target is absolute the target counts and
 * Host is written anew (RFC 9112 3.2.2); where there is only Host it is the target.
 */
static enum egress_reason host_agrees(struct head *h, const char *p)
{
	const struct head_scan *s = &h->scan;
	struct host named;
	uint16_t port = h->port;
	if (!s->has_host)
		return h->minor == 1 || h->form == FORM_TRANSPARENT ? REASON_HOST_MISSING : REASON_OK;
	struct str text = { p + s->host, s->host_n };
	if (h->form == FORM_HTTP)
		return REASON_OK;
	if (h->form == FORM_TRANSPARENT)
		return decide_target(text, HTTP_PORT, &h->host, &h->port);
	enum egress_reason why = decide_target(text, port, &named, &port);
	if (why != REASON_OK)
		return why;
	return host_equal(&named, &h->host) && port == h->port ? REASON_OK : REASON_HOST_MISMATCH;
}

static enum head_step complete(struct head *h, const char *p, bool transparent)
{
	const struct head_scan *s = &h->scan;
	/* Again, for the views: the buffer may have moved since the line was judged. */
	enum egress_reason why = request_line(h, (struct str){ p + s->first, s->first_n }, transparent);
	h->fields = (struct str){ p + s->fields, s->fields_end - s->fields };
	h->n = s->at;
	if (why == REASON_OK)
		why = framing(h);
	if (why == REASON_OK)
		why = host_agrees(h, p);
	return why == REASON_OK ? HEAD_DONE : bad(h, why);
}

/* The request line, after at most one empty line (RFC 9112 2.2). */
static enum egress_reason first_line(struct head *h, const char *p, size_t line, size_t n, bool transparent)
{
	struct head_scan *s = &h->scan;
	if (n == 0 && line == 0)
		return REASON_OK;
	s->first = (uint32_t)line;
	s->first_n = (uint32_t)n;
	s->fields = s->fields_end = s->at;
	s->line_done = true;
	return request_line(h, (struct str){ p + line, n }, transparent);
}

enum head_step head_read(struct head *h, const char *p, size_t n, bool transparent)
{
	struct head_scan *s = &h->scan;
	enum egress_reason why;
	size_t line, line_n;
	if (n > 0 && p[0] != '\r' && p[0] != '\n' && !head_token(p, 1))
		return bad(h, REASON_NOT_HTTP);
	for (;;) {
		enum head_step step = head_line(s, p, n, &line, &line_n, &why);
		if (step != HEAD_DONE)
			return step == HEAD_MORE ? step : bad(h, why);
		if (s->line_done && line_n == 0)
			return complete(h, p, transparent);
		why = s->line_done ? head_field(s, p, line, line_n)
				   : first_line(h, p, line, line_n, transparent);
		if (why != REASON_OK)
			return bad(h, why);
		if (s->line_done)
			s->fields_end = s->at;
	}
}

/* ---- sending it on */

/* Host, framing and expectation are written from what was understood; the others say where a request comes from. */
static bool left_out(struct str name)
{
	static const char *const out[] = { "host", "content-length", "transfer-encoding", "forwarded",
		"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip",
		"expect" };
	for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
		if (head_is(name, out[i]))
			return true;
	return false;
}

static void put_host(struct head_out *o, const struct head *h)
{
	char port[8];
	bool v6 = h->host.literal && !addr_is4(&h->host.ip);
	head_puts(o, v6 ? "Host: [" : "Host: ");
	head_put(o, h->host.name, h->host.n);
	head_puts(o, v6 ? "]" : "");
	if (h->port != HTTP_PORT) {
		(void)snprintf(port, sizeof port, ":%u", h->port);
		head_puts(o, port);
	}
	head_puts(o, "\r\n");
}

static void put_framing(struct head_out *o, enum head_body body, bool has_length, uint64_t length)
{
	char text[48];
	if (body == BODY_CHUNKED)
		head_puts(o, "Transfer-Encoding: chunked\r\n");
	else if (has_length) {
		(void)snprintf(text, sizeof text, "Content-Length: %llu\r\n", (unsigned long long)length);
		head_puts(o, text);
	}
}

static void put_field(struct head_out *o, struct str name, struct str value)
{
	head_put(o, name.p, name.n);
	head_puts(o, ": ");
	head_put(o, value.p, value.n);
	head_puts(o, "\r\n");
}

static bool is_set(const struct head_set *set, struct str name)
{
	for (; set != NULL && set->name != NULL; set++)
		if (name.n == strlen(set->name) && strncasecmp(name.p, set->name, name.n) == 0)
			return true;
	return false;
}

/* What stands before the path as it was sent: an empty one is the root, and of OPTIONS the whole server (RFC 9112 3.2.4). */
static const char *before_path(const struct head *h)
{
	if (h->path.n > 0)
		return h->path.p[0] == '?' ? " /" : " ";
	return is_method(h->method, "OPTIONS") ? " *" : " /";
}

size_t head_forward(const struct head *h, const struct head_set *set, bool keep, char *out, size_t size)
{
	struct head_out o = { .p = out, .size = size };
	struct str fields = h->fields, name, value;
	head_put(&o, h->method.p, h->method.n);
	head_puts(&o, before_path(h));
	head_put(&o, h->path.p, h->path.n);
	head_puts(&o, h->minor == 1 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
	put_host(&o, h);
	while (head_next(&fields, &name, &value))
		if (!left_out(name) && !head_hop(h->fields, name) && !is_set(set, name))
			put_field(&o, name, value);
	put_framing(&o, h->body, h->scan.has_cl, h->length);
	if (h->expect_continue)
		head_puts(&o, "Expect: 100-continue\r\n");
	for (; set != NULL && set->name != NULL; set++)
		put_field(&o, str_of(set->name), str_of(set->value));
	head_puts(&o, keep ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
	return o.full ? 0 : o.n;
}
