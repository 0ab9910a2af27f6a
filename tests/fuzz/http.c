/* What answers our own requests: HTTP/1.1 as it comes. */
#include "fuzz.h"

#include <string.h>

#include "io/http_read.h"

struct told {
	int status;
	bool head;
	struct buf body;
	size_t used;
};

static enum http_step part(struct http_read *r, const char *p, size_t n, struct told *t)
{
	struct str in = { p, n }, body;
	enum http_step step;
	while ((step = http_read_next(r, &in, &body)) == HTTP_HEAD || step == HTTP_BODY) {
		HOLDS(step == HTTP_BODY ? t->head && body.n > 0 && body.p + body.n == in.p : !t->head);
		t->head = true;
		if (step == HTTP_BODY)
			HOLDS(buf_add(&t->body, body.p, body.n) == 0);
	}
	HOLDS(step != HTTP_MORE || in.n == 0 || r->line.full);
	t->status = r->status;
	t->used += n - in.n;
	return step;
}

static void same(const char *p, size_t n, size_t step, const struct http_read *a, const struct told *whole,
    enum http_step ending)
{
	struct told cut = { .body = BUF(1 << 24) };
	struct http_read b = http_read_new(false);
	enum http_step other = HTTP_MORE;
	for (size_t at = 0; at < n && other == HTTP_MORE; at += step)
		other = part(&b, p + at, n - at < step ? n - at : step, &cut);
	HOLDS(ending == other && whole->status == cut.status && whole->head == cut.head);
	HOLDS(a->closes == b.closes && (ending == HTTP_BAD || whole->used == cut.used));
	HOLDS(whole->body.n == cut.body.n && memcmp(buf_c(&whole->body), buf_c(&cut.body), cut.body.n) == 0);
	HOLDS(strcmp(a->content_type, b.content_type) == 0 && strcmp(a->retry_after, b.retry_after) == 0);
	HOLDS(http_read_closed(a) == http_read_closed(&b));
	http_read_free(&b);
	buf_free(&cut.body);
}

/* Wherever it is cut it is the same answer. */
void fuzz_http(const uint8_t *bytes, size_t n)
{
	const char *p = (const char *)bytes;
	struct told whole = { .body = BUF(1 << 24) };
	struct http_read a = http_read_new(false);
	enum http_step ending = part(&a, p, n, &whole);
	same(p, n, 1, &a, &whole, ending);
	same(p, n, n / 3 + 1, &a, &whole, ending);
	HOLDS(ending != HTTP_END || (whole.head && a.status >= 200));
	/* Whoever reads the length otherwise does not get to use the connection again. */
	HOLDS(!a.chunked || !a.sized || !whole.head || a.at == 0 || a.closes || a.status == 204 ||
	    a.status == 304);
	http_read_free(&a);
	buf_free(&whole.body);
}
