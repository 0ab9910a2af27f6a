#include "model/sse.h"

#include <string.h>

struct sse sse_new(size_t max_event_bytes)
{
	/* Of one feed there may be many events; a single one is bounded in sse_feed. */
	return (
	    struct sse){ .pending = BUF(64u << 20), .joined = BUF(64u << 20), .max_event = max_event_bytes };
}

void sse_free(struct sse *s)
{
	buf_free(&s->pending);
	buf_free(&s->joined);
}

static int broken(struct sse *s, struct err *e)
{
	s->broken = true;
	return err_set(
	    e, ERR_UPSTREAM, "The model provider sent an event of more than %zu bytes.", s->max_event);
}

/* What was given out goes. */
static void drop_taken(struct sse *s)
{
	buf_drop(&s->pending, s->taken);
	s->line -= s->taken;
	s->scanned -= s->taken;
	s->name_at -= s->name_at < s->taken ? s->name_at : s->taken;
	s->data_at -= s->data_at < s->taken ? s->data_at : s->taken;
	s->taken = 0;
}

void sse_rest(struct sse *s)
{
	if (s->pending.n == s->taken) {
		drop_taken(s);
		buf_free(&s->pending);
	}
	if (s->data_lines < 2)
		buf_free(&s->joined);
}

int sse_feed(struct sse *s, const char *p, size_t n, struct err *e)
{
	if (s->broken)
		return broken(s, e);
	drop_taken(s);
	if (buf_add(&s->pending, p, n) != 0)
		return broken(s, e);
	/* All events of earlier feeds were taken, so what is older than this feed is of one frame. */
	if (s->pending.n - n > s->max_event)
		return broken(s, e);
	return 0;
}

/* The end of the line that begins at s->line: its length in *n, and of its end in *ends. False: not there yet. */
static bool line_end(struct sse *s, bool at_eof, size_t *n, size_t *ends)
{
	const struct buf *b = &s->pending;
	const char *from = b->p + s->scanned, *lf = memchr(from, '\n', b->n - s->scanned);
	size_t upto = lf == NULL ? b->n - s->scanned : (size_t)(lf - from);
	const char *cr = memchr(from, '\r', upto);
	size_t i = s->scanned + (cr == NULL ? upto : (size_t)(cr - from));
	s->scanned = i;
	if (i == b->n)
		return false;
	*n = i - s->line;
	*ends = 1;
	if (b->p[i] == '\n')
		return true;
	/* The LF that may follow belongs to this end. Only a blank line of a stream that ends its lines with CR need not wait for it. */
	if (i + 1 == b->n)
		return at_eof || (s->bare_cr && *n == 0);
	if (b->p[i + 1] != '\n')
		s->bare_cr = true;
	else if (!(s->bare_cr && *n == 0))
		*ends = 2;
	return true;
}

static void data_line(struct sse *s, size_t at, size_t n)
{
	if (s->data_lines++ == 0) {
		s->data_at = at;
		s->now.data.n = n;
		return;
	}
	if (s->data_lines == 2) {
		buf_reset(&s->joined);
		(void)buf_add(&s->joined, s->pending.p + s->data_at, s->now.data.n);
	}
	(void)buf_chr(&s->joined, '\n');
	(void)buf_add(&s->joined, s->pending.p + at, n);
}

static void field(struct sse *s, size_t n)
{
	const char *line = s->pending.p + s->line;
	const char *colon = memchr(line, ':', n);
	size_t key = colon == NULL ? n : (size_t)(colon - line);
	size_t value = colon == NULL ? n : key + 1;
	if (value < n && line[value] == ' ')
		value++;
	if (key == 4 && memcmp(line, "data", 4) == 0) {
		data_line(s, s->line + value, n - value);
	} else if (key == 5 && memcmp(line, "event", 5) == 0) {
		s->name_at = s->line + value;
		s->now.name.n = n - value;
	}
}

static void give(struct sse *s, size_t upto, struct sse_event *ev)
{
	const char *p = s->pending.p;
	bool several = s->data_lines > 1;
	*ev = (struct sse_event){
		.name = { p + s->name_at, s->now.name.n },
		.data = { several ? s->joined.p : p + s->data_at, several ? s->joined.n : s->now.data.n },
		.raw = { p + s->taken, upto - s->taken },
		.has_data = s->data_lines > 0,
	};
	s->now = (struct sse_event){ 0 };
	s->name_at = s->data_at = 0;
	s->data_lines = 0;
	s->taken = s->line = s->scanned = upto;
}

/* What is no part of any frame: a byte order mark, and the LF behind a CR at which a frame was given out. */
static bool before(struct sse *s)
{
	const struct buf *b = &s->pending;
	if (!s->started) {
		size_t have = b->n < 3 ? b->n : 3;
		if (memcmp(b->p, "\xEF\xBB\xBF", have) == 0 && have < 3)
			return false;
		s->started = true;
		if (memcmp(b->p, "\xEF\xBB\xBF", have) == 0)
			s->taken = s->line = s->scanned = 3;
	}
	if (s->skip_lf && s->taken < b->n) {
		s->skip_lf = false;
		if (s->line == s->taken && b->p[s->taken] == '\n')
			s->line = s->scanned = ++s->taken;
	}
	return true;
}

static bool next(struct sse *s, bool at_eof, struct sse_event *ev)
{
	size_t n, ends;
	if (s->broken || s->pending.n == s->taken || !before(s))
		return false;
	while (line_end(s, at_eof, &n, &ends)) {
		size_t upto = s->line + n + ends;
		if (n > 0) {
			field(s, n);
			s->line = s->scanned = upto;
			continue;
		}
		s->skip_lf = s->pending.p[upto - 1] == '\r';
		give(s, upto, ev);
		return true;
	}
	return false;
}

bool sse_next(struct sse *s, struct sse_event *ev)
{
	return next(s, false, ev);
}

bool sse_end(struct sse *s, struct sse_event *ev)
{
	if (next(s, true, ev))
		return true;
	if (s->broken || s->pending.n == s->taken)
		return false;
	s->started = true; /* less than a byte order mark: an unfinished line */
	/* Behind a CR an LF would end the same line once more. */
	const char *ending = s->line < s->pending.n  ? "\n\n"
	    : s->pending.p[s->pending.n - 1] == '\r' ? "\r"
						     : "\n";
	if (buf_str(&s->pending, ending) != 0)
		return false;
	return next(s, true, ev);
}

int sse_write(struct buf *out, const char *name, const char *data, size_t n)
{
	if (name != NULL && name[0] != 0) {
		(void)buf_str(out, "event: ");
		(void)buf_str(out, name);
		(void)buf_chr(out, '\n');
	}
	for (;;) {
		const char *nl = n == 0 ? NULL : memchr(data, '\n', n);
		size_t part = nl == NULL ? n : (size_t)(nl - data);
		(void)buf_str(out, "data: ");
		(void)buf_add(out, data, part);
		(void)buf_chr(out, '\n');
		if (nl == NULL)
			break;
		data += part + 1;
		n -= part + 1;
	}
	return buf_chr(out, '\n');
}
