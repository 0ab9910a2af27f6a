#include <string.h>

#include "egress/head_int.h"

static enum head_step bad(struct head_answer *a)
{
	a->reason = REASON_UPSTREAM_BAD;
	return HEAD_BAD;
}

/* "HTTP/1.1 200 OK"; the phrase may be empty, and its space missing. */
static bool status_line(struct head_answer *a, struct str line)
{
	if (line.n < 12 || memcmp(line.p, "HTTP/1.", 7) != 0 || line.p[8] != ' ' ||
	    (line.n > 12 && line.p[12] != ' '))
		return false;
	a->status = 0;
	for (int i = 9; i < 12; i++) {
		if (line.p[i] < '0' || line.p[i] > '9')
			return false;
		a->status = a->status * 10 + (line.p[i] - '0');
	}
	a->minor = line.p[7] == '1';
	a->phrase = (struct str){ line.p + (line.n > 12 ? 13 : 12), line.n > 12 ? line.n - 13 : 0 };
	return a->status >= 100 && (line.p[7] == '0' || line.p[7] == '1');
}

/* RFC 9112 6.3, but for what is ambiguous. */
static bool framing(struct head_answer *a, bool head_request)
{
	const struct head_scan *s = &a->scan;
	if (s->has_te && (s->has_cl || a->minor == 0))
		return false;
	bool empty = head_request || a->status < 200 || a->status == 204 || a->status == 304;
	a->length = s->has_cl ? s->length : 0;
	a->body = empty     ? BODY_NONE
	    : s->has_te     ? BODY_CHUNKED
	    : !s->has_cl    ? BODY_TO_END
	    : s->length > 0 ? BODY_LENGTH
			    : BODY_NONE;
	a->keep = a->body != BODY_TO_END && !s->close && (a->minor == 1 || s->keep_alive);
	return true;
}

static enum head_step complete(struct head_answer *a, const char *p, bool head_request)
{
	const struct head_scan *s = &a->scan;
	(void)status_line(a, (struct str){ p + s->first, s->first_n }); /* again, for the view */
	a->fields = (struct str){ p + s->fields, s->fields_end - s->fields };
	a->n = s->at;
	return framing(a, head_request) ? HEAD_DONE : bad(a);
}

enum head_step head_read_answer(struct head_answer *a, const char *p, size_t n, bool head_request)
{
	struct head_scan *s = &a->scan;
	enum egress_reason why;
	size_t line, line_n;
	for (;;) {
		enum head_step step = head_line(s, p, n, &line, &line_n, &why);
		if (step != HEAD_DONE)
			return step == HEAD_MORE ? step : bad(a);
		if (!s->line_done) {
			s->line_done = true;
			s->first = (uint32_t)line;
			s->first_n = (uint32_t)line_n;
			s->fields = s->fields_end = s->at;
			if (!status_line(a, (struct str){ p + line, line_n }))
				return bad(a);
			continue;
		}
		if (line_n == 0)
			return complete(a, p, head_request);
		why = head_field(s, p, line, line_n);
		if (why != REASON_OK && why != REASON_EXPECTATION) /* which means nothing in an answer */
			return bad(a);
		s->fields_end = s->at;
	}
}

size_t head_forward_answer(const struct head_answer *a, bool keep, char *out, size_t size)
{
	struct head_out o = { .p = out, .size = size };
	struct str fields = a->fields, name, value;
	const char status[] = { ' ', (char)('0' + a->status / 100), (char)('0' + a->status / 10 % 10),
		(char)('0' + a->status % 10), ' ' };
	head_puts(&o, "HTTP/1.1");
	head_put(&o, status, sizeof status);
	head_put(&o, a->phrase.p, a->phrase.n);
	head_puts(&o, "\r\n");
	while (head_next(&fields, &name, &value)) {
		if (head_hop(a->fields, name))
			continue;
		head_put(&o, name.p, name.n);
		head_puts(&o, ": ");
		head_put(&o, value.p, value.n);
		head_puts(&o, "\r\n");
	}
	if (a->status >= 200)
		head_puts(&o, keep ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
	head_puts(&o, "\r\n");
	return o.full ? 0 : o.n;
}
