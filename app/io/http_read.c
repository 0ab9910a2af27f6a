#include "io/http_read.h"

#include <string.h>
#include <strings.h>

#include "base/coding.h"

enum at {
	AT_STATUS,
	AT_FIELD,
	AT_SIZED,
	AT_CHUNK_SIZE,
	AT_CHUNK,
	AT_CHUNK_END,
	AT_TRAILER,
	AT_CLOSE,
	AT_DONE
};

struct http_read http_read_new(bool no_body)
{
	return (struct http_read){ .no_body = no_body, .line = BUF(HTTP_LINE_BYTES) };
}

void http_read_free(struct http_read *r)
{
	buf_free(&r->line);
}

/* A line without its end; false: not there yet, or too long (then line.full). It is valid until the next is taken. */
static bool take_line(struct http_read *r, struct str *in, struct str *line)
{
	const char *lf = in->n == 0 ? NULL : memchr(in->p, '\n', in->n);
	size_t n = lf == NULL ? in->n : (size_t)(lf - in->p);
	if (r->line_taken)
		buf_reset(&r->line);
	r->line_taken = false;
	bool part = r->line.n > 0;
	if ((lf == NULL || part) && buf_add(&r->line, in->p, n) != 0)
		return false;
	*line = part ? (struct str){ r->line.p, r->line.n } : (struct str){ in->p, n };
	in->p += n + (lf != NULL);
	in->n -= n + (lf != NULL);
	if (lf == NULL)
		return false;
	r->line_taken = true;
	r->line.full = line->n > HTTP_LINE_BYTES;
	if (r->line.full)
		return false;
	if (line->n > 0 && line->p[line->n - 1] == '\r')
		line->n--;
	return true;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK"; whatever came before was an interim answer. */
static enum http_step status(struct http_read *r, struct str l)
{
	if (l.n < 12 || memcmp(l.p, "HTTP/1.", 7) != 0 || !digit(l.p[7]) || l.p[8] != ' ' || !digit(l.p[9]) ||
	    !digit(l.p[10]) || !digit(l.p[11]) || (l.n > 12 && l.p[12] != ' ') || l.p[9] == '0')
		return HTTP_BAD;
	*r = (struct http_read){ .at = AT_FIELD,
		.no_body = r->no_body,
		.line = r->line,
		.line_taken = r->line_taken,
		.head_bytes = r->head_bytes,
		.status = (l.p[9] - '0') * 100 + (l.p[10] - '0') * 10 + (l.p[11] - '0'),
		.closes = l.p[7] == '0' };
	return HTTP_MORE;
}

static bool same(struct str a, const char *b)
{
	return a.n == strlen(b) && strncasecmp(a.p, b, a.n) == 0;
}

static void keep(struct str v, char *out, size_t size)
{
	if (out[0] != 0 || v.n >= size || memchr(v.p, 0, v.n) != NULL)
		return;
	memcpy(out, v.p, v.n);
	out[v.n] = 0;
}

/* Told twice it is the same, or none: two readers could disagree about where the answer ends. */
static enum http_step length(struct http_read *r, struct str v)
{
	uint64_t n = 0;
	if (v.n == 0 || v.n > 18)
		return HTTP_BAD;
	for (size_t i = 0; i < v.n; i++) {
		if (!digit(v.p[i]))
			return HTTP_BAD;
		n = n * 10 + (uint64_t)(v.p[i] - '0');
	}
	if (r->sized && r->left != n)
		return HTTP_BAD;
	r->sized = true;
	r->left = n;
	return HTTP_MORE;
}

static bool lists(struct str v, const char *word)
{
	struct str one;
	while (str_cut(&v, ',', &one))
		if (same(str_trim(one), word))
			return true;
	return false;
}

static enum http_step field(struct http_read *r, struct str l)
{
	const char *colon = memchr(l.p, ':', l.n);
	if (colon == NULL || colon == l.p || l.p[0] == ' ' || l.p[0] == '\t' || colon[-1] == ' ' ||
	    colon[-1] == '\t')
		return HTTP_BAD; /* a folded line too, which nobody may send any more */
	struct str name = { l.p, (size_t)(colon - l.p) },
		   v = str_trim((struct str){ colon + 1, l.n - name.n - 1 });
	if (same(name, "content-length"))
		return length(r, v);
	if (same(name, "transfer-encoding")) {
		if (!same(v, "chunked") || r->chunked)
			return HTTP_BAD;
		r->chunked = true;
	} else if (same(name, "connection")) {
		r->closes = r->closes || lists(v, "close");
	} else if (same(name, "content-encoding")) {
		enum coding coding = coding_of(v);
		r->foreign = r->foreign || r->packed || coding == CODING_OTHER;
		r->packed = r->packed || coding == CODING_GZIP || coding == CODING_DEFLATE;
	} else if (same(name, "content-type")) {
		keep(v, r->content_type, sizeof r->content_type);
	} else if (same(name, "location")) {
		keep(v, r->location, sizeof r->location);
	} else if (same(name, "retry-after")) {
		keep(v, r->retry_after, sizeof r->retry_after);
	} else if (same(name, "retry-after-ms")) {
		keep(v, r->retry_after_ms, sizeof r->retry_after_ms);
	}
	return HTTP_MORE;
}

static enum http_step head_ends(struct http_read *r)
{
	if (r->status < 200) {
		r->at = AT_STATUS;
		return r->status == 101 ? HTTP_BAD : HTTP_MORE; /* nobody asked for another protocol */
	}
	if (r->no_body || r->status == 204 || r->status == 304) {
		r->at = AT_DONE;
	} else if (r->chunked) {
		r->closes = r->closes || r->sized;
		r->at = AT_CHUNK_SIZE;
	} else if (r->sized) {
		r->at = AT_SIZED;
	} else {
		r->closes = true;
		r->at = AT_CLOSE;
	}
	return HTTP_HEAD;
}

static enum http_step chunk_size(struct http_read *r, struct str l)
{
	static const char hex[] = "0123456789abcdef";
	size_t i = 0;
	uint64_t n = 0;
	for (; i < l.n && i < 15; i++) {
		const char *d = memchr(hex, l.p[i] | ('A' <= l.p[i] && l.p[i] <= 'F' ? 0x20 : 0), 16);
		if (d == NULL)
			break;
		n = n << 4 | (uint64_t)(d - hex);
	}
	if (i == 0 || (i < l.n && l.p[i] != ';' && l.p[i] != ' ' && l.p[i] != '\t'))
		return HTTP_BAD;
	r->left = n;
	r->at = n > 0 ? AT_CHUNK : AT_TRAILER;
	return HTTP_MORE;
}

static enum http_step line(struct http_read *r, struct str l)
{
	if (r->at == AT_CHUNK_SIZE)
		return chunk_size(r, l);
	if (r->at == AT_CHUNK_END) {
		r->at = AT_CHUNK_SIZE;
		return l.n == 0 ? HTTP_MORE : HTTP_BAD;
	}
	r->head_bytes += l.n + 2;
	if (r->head_bytes > HTTP_HEAD_BYTES)
		return HTTP_BAD;
	if (r->at == AT_STATUS)
		return status(r, l);
	if (r->at == AT_FIELD)
		return l.n == 0 ? head_ends(r) : field(r, l);
	if (l.n == 0)
		r->at = AT_DONE;
	return HTTP_MORE;
}

static enum http_step body_part(struct http_read *r, struct str *in, struct str *body)
{
	size_t n = r->at == AT_CLOSE || in->n < r->left ? in->n : (size_t)r->left;
	*body = (struct str){ in->p, n };
	in->p += n;
	in->n -= n;
	r->left -= r->at == AT_CLOSE ? 0 : n;
	return HTTP_BODY;
}

enum http_step http_read_next(struct http_read *r, struct str *in, struct str *body)
{
	for (;;) {
		struct str l;
		enum http_step step = HTTP_MORE;
		if (r->at == AT_DONE || (r->at == AT_SIZED && r->left == 0)) {
			r->at = AT_DONE;
			return HTTP_END;
		}
		if (r->at == AT_CHUNK && r->left == 0)
			r->at = AT_CHUNK_END;
		if (in->n == 0)
			return HTTP_MORE;
		if (r->at == AT_SIZED || r->at == AT_CHUNK || r->at == AT_CLOSE)
			return body_part(r, in, body);
		if (take_line(r, in, &l))
			step = line(r, l);
		else if (r->line.full)
			step = HTTP_BAD;
		if (step != HTTP_MORE)
			return step;
	}
}

enum http_step http_read_closed(const struct http_read *r)
{
	return r->at == AT_CLOSE || r->at == AT_DONE ? HTTP_END : HTTP_BAD;
}
