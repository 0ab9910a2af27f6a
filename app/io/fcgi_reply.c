/*
 * reply_vt over a FastCGI request. A failed write is remembered (`gone`) and everything after it is dropped: a handler may go
 * on without asking, and finds out from reply_gone or the next write. One thread at a time uses a call, so no lock.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "io/fcgi_int.h"

/* The first of that name from p on: as FCGX_GetParam, without a call for each of those that begin otherwise. */
static char **param_from(char **p, const char *name, size_t n)
{
	for (; p != NULL && *p != NULL; p++)
		if ((*p)[0] == name[0] && strncmp(*p, name, n) == 0 && (*p)[n] == '=')
			return p;
	return NULL;
}

const char *fcgi_param(const struct fcgi_call *k, const char *name)
{
	size_t n = strlen(name);
	char **p = param_from(k->req.envp, name, n);
	return p == NULL ? NULL : *p + n + 1;
}

static struct fcgi_call *call_of(struct reply *r)
{
	return (struct fcgi_call *)r;
}

static int put(struct fcgi_call *k, const char *p, size_t n)
{
	if (k->wire)
		return fcgi_wire_write(k, p, n);
	while (n > 0 && !k->gone) {
		int some = n > 1 << 20 ? 1 << 20 : (int)n;
		if (FCGX_PutStr(p, some, k->req.out) != some)
			k->gone = true;
		p += some;
		n -= (size_t)some;
	}
	return k->gone ? -1 : 0;
}

/* nginx passes the line on as it is, and HTTP/1.1 wants at least a space after the number. */
static const char *phrase(int status)
{
	static const struct {
		int status;
		const char *text;
	} known[] = { { 200, "OK" }, { 201, "Created" }, { 202, "Accepted" }, { 204, "No Content" },
		{ 206, "Partial Content" }, { 304, "Not Modified" }, { 400, "Bad Request" },
		{ 401, "Unauthorized" }, { 402, "Payment Required" }, { 403, "Forbidden" },
		{ 404, "Not Found" }, { 405, "Method Not Allowed" }, { 409, "Conflict" },
		{ 413, "Content Too Large" }, { 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" }, { 429, "Too Many Requests" },
		{ 500, "Internal Server Error" }, { 502, "Bad Gateway" }, { 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" }, { 507, "Insufficient Storage" } };
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (known[i].status == status)
			return known[i].text;
	return "Status";
}

static int on_head(struct reply *r, int status, const char *headers)
{
	char line[64];
	struct fcgi_call *k = call_of(r);
	/* A reply that may last, to a request that is read. */
	if (r->unbuffered && k->streaming && (k->op->flags & OP_RAW_IN) == 0)
		fcgi_wire_begin(k);
	size_t n = strlen(headers);
	struct str said = str_of(phrase(status));
	char *at = mempcpy(line, "Status: ", 8);
	at += str_num(status, at);
	*at++ = ' ';
	at = mempcpy(at, said.p, said.n);
	/* nginx keeps a flushed head back (postpone_output) when padding follows it in its FastCGI record; spaces at the end of the
	 * status, which it strips, bring the head to a multiple of 8, and a stream's reader sees it at once. */
	while (((size_t)(at - line) + 2 + n + 2) % 8 != 0)
		*at++ = ' ';
	at = mempcpy(at, "\r\n", 2);
	(void)put(k, line, (size_t)(at - line));
	(void)put(k, headers, n);
	return put(k, "\r\n", 2);
}

static int on_write(struct reply *r, const void *p, size_t n)
{
	struct fcgi_call *k = call_of(r);
	return k->head ? 0 : put(k, p, n);
}

static int on_flush(struct reply *r)
{
	struct fcgi_call *k = call_of(r);
	if (k->wire)
		return fcgi_wire_flush(k);
	if (!k->gone && FCGX_FFlush(k->req.out) != 0)
		k->gone = true;
	return k->gone ? -1 : 0;
}

/* What has arrived, at least a byte: FCGX_GetStr alone waits until all n are there. */
static int get_some(FCGX_Stream *in, char *p, size_t n)
{
	assert(n > 0);
	int first = FCGX_GetChar(in);
	if (first < 0)
		return 0;
	p[0] = (char)first;
	size_t more = (size_t)(in->stop - in->rdNext);
	more = more < n - 1 ? more : n - 1;
	return 1 + (more == 0 ? 0 : FCGX_GetStr(p + 1, (int)more, in));
}

static ssize_t on_read(struct reply *r, void *p, size_t n)
{
	struct fcgi_call *k = call_of(r);
	if (k->wire)
		return 0;
	int got = get_some(k->req.in, p, n);
	if (got > 0)
		k->body_read += (size_t)got;
	if (k->body_read > k->body_max)
		k->too_large = true;
	/* nginx tells the end of an unfinished body by closing, or by fewer bytes than were announced. */
	else if (got <= 0 &&
	    (FCGX_GetError(k->req.in) != 0 ||
		(k->body_announced >= 0 && (size_t)k->body_announced != k->body_read)))
		k->cut = true;
	else if (got <= 0)
		k->read = true;
	return k->too_large || k->cut ? -1 : got;
}

static bool on_gone(struct reply *r)
{
	struct fcgi_call *k = call_of(r);
	struct pollfd fd = { .fd = k->req.ipcFd, .events = POLLRDHUP };
	if (!k->gone && poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
		k->gone = true;
	return k->gone;
}

static const char *on_param(struct reply *r, const char *name)
{
	return fcgi_param(call_of(r), name);
}

static bool on_twice(struct reply *r, const char *name)
{
	size_t n = strlen(name);
	char **p = param_from(call_of(r)->req.envp, name, n);
	return p != NULL && param_from(p + 1, name, n) != NULL;
}

static bool on_draining(struct reply *r)
{
	return fcgi_draining(call_of(r)->f);
}

const struct reply_vt fcgi_reply_vt = {
	.head = on_head,
	.write = on_write,
	.flush = on_flush,
	.read = on_read,
	.gone = on_gone,
	.param = on_param,
	.twice = on_twice,
	.draining = on_draining,
};

void fcgi_reply_json(struct fcgi_call *k, int status, const json_t *v)
{
	struct ctx *c = &k->c;
	auto_buf struct buf text = BUF(SIZE_MAX / 8);
	if (js_dump_buf(&text, v) != 0)
		abort();
	reply_header(c, "Content-Length", mem_num(k->mem, (long long)text.n));
	reply_header(c, "Cache-Control", "no-store");
	/* One JSON value is buffered by nginx: a slow client must not hold a worker. */
	k->reply.unbuffered = false;
	(void)reply_begin(c, status, "application/json");
	(void)reply_write(c, text.p, text.n);
}

void fcgi_reply_error(struct fcgi_call *k, const struct err *e)
{
	struct ctx *c = &k->c;
	if (e->code == ERR_UNAVAILABLE || e->code == ERR_RATE || e->retry_s > 0)
		reply_header(
		    c, "Retry-After", mem_fmt(k->mem, "%d", e->retry_s > 0 ? e->retry_s : FCGI_RETRY_S));
	bool challenged = k->reply.headers != NULL && strstr(k->reply.headers, "WWW-Authenticate:") != NULL;
	if (e->code == ERR_UNAUTHORIZED && !challenged)
		reply_header(c, "WWW-Authenticate",
		    k->op != NULL && (k->op->flags & OP_HIDDEN) != 0
			? "Basic realm=\"gatehouse\", charset=\"UTF-8\""
			: "Bearer realm=\"gatehouse\"");
	auto_json json_t *v = op_envelope(e, c->request_id);
	fcgi_reply_json(k, err_http(e->code), v);
}
