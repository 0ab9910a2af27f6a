/*
 * A request on a connection of our own (RFC 9112): what a model call makes, so that it costs little time, and its open stream little
 * memory. One thread, one connection; all waits end at the limits of the watch.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>

#include "io/http_link.h"
#include "io/http_read.h"
#include "io/http_unpack.h"

enum {
	HEAD_BYTES = 65536,  /* of a request */
	TOGETHER = 16384,    /* a body of at most this leaves with its head in one piece */
	PIECE_BYTES = 32768, /* of what is read, on the stack: what has come goes on in few pieces */
};

struct exchange {
	const struct http_req *q;
	struct http_res *res;
	struct http_watch watch;
	struct http_link *link;
	struct http_read read;
	struct http_unpack *unpack;
	struct str send[2]; /* what is left of it */
	struct buf *out;    /* what it is sent from, until it is answered */
	enum http_ending why;
	bool came;     /* a byte of an answer */
	bool whole;    /* all of it */
	bool unusable; /* there was more than it, or the request was not taken */
	const char *broken;
};

static void auto_wipep(struct buf *b)
{
	if (b->p != NULL)
		secret_wipe(b->p, b->cap);
	buf_free(b);
}

static bool can(const struct http_req *q, struct http_at *at)
{
	return q->keep && q->unix_socket == NULL && q->ca_file == NULL && q->body_read == NULL &&
	    http_at_of(q->url, at) && (at->host.literal || q->pin != NULL);
}

/* ---- the request */

static void host_line(const struct http_at *at, struct buf *out)
{
	bool v6 = at->host.literal && strchr(at->host.name, ':') != NULL;
	(void)buf_str(out, v6 ? "Host: [" : "Host: ");
	(void)buf_str(out, at->host.name);
	(void)buf_str(out, v6 ? "]" : "");
	if (at->port != (at->tls ? 443 : 80)) {
		(void)buf_chr(out, ':');
		(void)buf_num(out, at->port);
	}
	(void)buf_str(out, "\r\n");
}

static size_t head_size(const struct http_req *q)
{
	size_t n = 1024 + strlen(q->url);
	for (const char *const *h = q->headers; h != NULL && *h != NULL; h++)
		n += strlen(*h) + 2;
	return n + (q->bearer == NULL ? 0 : secret_len(q->bearer));
}

/* All room at once: growing would leave copies that nobody wipes. */
static int request(
    const struct http_req *q, const struct http_at *at, bool together, struct buf *out, struct err *e)
{
	if (buf_room(out, head_size(q) + (together ? q->body_n : 0)) == NULL)
		return err_set(e, ERR_INTERNAL, "A request to another service is too long.");
	(void)buf_str(out, q->method);
	(void)buf_chr(out, ' ');
	(void)buf_str(out, at->target);
	(void)buf_str(out, " HTTP/1.1\r\n");
	host_line(at, out);
	(void)buf_str(out, "User-Agent: gatehouse\r\nAccept: */*\r\n");
	for (const char *const *h = q->headers; h != NULL && *h != NULL; h++) {
		if (http_line_ok(*h, e) != 0)
			return -1;
		(void)buf_str(out, *h);
		(void)buf_str(out, "\r\n");
	}
	/* What is packed although it was not asked for is unpacked all the same; a packed stream would come late. */
	if (q->decode)
		(void)buf_str(out, "Accept-Encoding: identity\r\n");
	if (q->bearer != NULL) {
		if (http_line_ok(secret_use(q->bearer), e) != 0)
			return -1;
		(void)buf_str(out, "Authorization: Bearer ");
		(void)buf_str(out, secret_use(q->bearer));
		(void)buf_str(out, "\r\n");
	}
	if (q->body_n > 0 || strcmp(q->method, "GET") != 0) {
		(void)buf_str(out, "Content-Length: ");
		(void)buf_num(out, (long long)q->body_n);
		(void)buf_str(out, "\r\n");
	}
	(void)buf_str(out, "\r\n");
	if (together)
		(void)buf_add(out, q->body, q->body_n);
	return 0;
}

/* As much as is taken at once. A peer that takes no more may have answered already. */
static void push(struct exchange *x)
{
	for (int i = 0; i < 2; i++) {
		if (x->send[i].n == 0)
			continue;
		ssize_t n = http_link_send(x->link, x->send[i].p, x->send[i].n);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			x->send[0].n = x->send[1].n = 0;
			x->unusable = true;
		}
		if (n <= 0)
			return;
		http_watch_moved(&x->watch);
		x->send[i].p += n;
		x->send[i].n -= (size_t)n;
		if (x->send[i].n > 0)
			return;
	}
}

/* ---- the answer */

static int64_t retry_after_ms(const struct http_read *r)
{
	long long n = 0;
	if (str_int(r->retry_after_ms, 0, INT_MAX, &n)) /* some model vendors', finer than seconds */
		return n;
	if (r->retry_after[0] == 0)
		return -1;
	if (str_int(r->retry_after, 0, INT_MAX, &n))
		return n * 1000 < INT_MAX ? n * 1000 : INT_MAX;
	time_t at = curl_getdate(r->retry_after, NULL);
	int64_t s = at < 0 ? -1 : (int64_t)at - (int64_t)time(NULL);
	return at < 0 ? -1 : s <= 0 ? 0 : s < INT_MAX / 1000 ? s * 1000 : INT_MAX;
}

static void head(struct exchange *x)
{
	const struct http_read *r = &x->read;
	struct http_res *res = x->res;
	res->status = r->status;
	memcpy(res->content_type, r->content_type, sizeof res->content_type);
	memcpy(res->location, r->location, sizeof res->location);
	res->retry_after_ms = retry_after_ms(r);
	if (x->q->decode && r->foreign)
		x->broken = "Unrecognized or bad HTTP Content or Transfer-Encoding";
	else if (x->q->decode && r->packed)
		x->unpack = http_unpack_new();
	if (x->broken == NULL && x->q->on_head != NULL && x->q->on_head(x->q->arg, res) != 0)
		x->why = HTTP_CANCELLED;
}

static int give(void *arg, const char *p, size_t n)
{
	struct exchange *x = arg;
	x->why = http_take(x->q, x->res, p, n);
	return x->why == HTTP_GOING ? 0 : -1;
}

static void body(struct exchange *x, struct str piece)
{
	if (x->unpack == NULL)
		(void)give(x, piece.p, piece.n);
	else if (http_unpack_feed(x->unpack, piece, give, x) != 0 && x->why == HTTP_GOING)
		x->broken = "Unrecognized or bad HTTP Content or Transfer-Encoding";
}

static void ends(struct exchange *x, enum http_step step)
{
	if (step == HTTP_BAD || (x->unpack != NULL && !http_unpack_whole(x->unpack)))
		x->broken = "Transferred a partial file";
	else
		x->whole = true;
}

static void feed(struct exchange *x, struct str in)
{
	struct str piece;
	enum http_step step;
	while (x->why == HTTP_GOING && x->broken == NULL && !x->whole &&
	    (step = http_read_next(&x->read, &in, &piece)) != HTTP_MORE)
		if (step == HTTP_HEAD)
			head(x);
		else if (step == HTTP_BODY)
			body(x, piece);
		else
			ends(x, step);
	x->unusable = x->unusable || in.n > 0;
}

/* An answer may last for long, and the request is not sent again. */
static void forget_request(struct exchange *x)
{
	if (x->out->p == NULL || x->send[0].n + x->send[1].n > 0)
		return;
	auto_wipep(x->out);
	if (x->q->on_sent != NULL)
		x->q->on_sent(x->q->arg);
}

/* Its buffer is gone while the request waits for long. True: there may be more at once. */
__attribute__((noinline)) static bool pull(struct exchange *x, bool waits)
{
	char p[PIECE_BYTES];
	ssize_t n = waits ? http_link_hear(x->link, p, sizeof p) : http_link_recv(x->link, p, sizeof p);
	if (n > 0) {
		x->came = true;
		forget_request(x);
		http_watch_moved(&x->watch);
		feed(x, (struct str){ p, (size_t)n });
		return http_link_more(x->link, (size_t)n, sizeof p);
	}
	if (n == 0)
		ends(x, http_read_closed(&x->read));
	else if (errno != EAGAIN && errno != EINTR)
		x->broken = "Failure when receiving data from the peer";
	return false;
}

static void run(struct exchange *x)
{
	bool more = false;
	while (x->why == HTTP_GOING && x->broken == NULL && !x->whole) {
		bool sends = x->send[0].n + x->send[1].n > 0;
		if (sends)
			push(x);
		sends = x->send[0].n + x->send[1].n > 0;
		if ((x->why = http_watch_look(&x->watch)) != HTTP_GOING)
			return;
		int ms = http_watch_wait_ms(&x->watch);
		/* Most answers come soon: they are waited for where they are read. */
		bool soon = !more && !sends && !x->watch.rests && ms >= HTTP_ASK_MS;
		if (more || soon || http_link_wait(x->link, sends, ms))
			more = pull(x, soon);
	}
}

/* A connection that was kept may have been closed in the moment of its use: then nothing has come. */
static bool stale(const struct exchange *x)
{
	return x->why == HTTP_GOING && !x->whole && !x->came;
}

static bool again(const struct exchange *x)
{
	bool sent = x->send[0].n + x->send[1].n == 0;
	return stale(x) && (!sent || x->q->on_again == NULL || x->q->on_again(x->q->arg) == 0);
}

static void try(struct exchange *x, struct str first, struct str second)
{
	x->send[0] = first;
	x->send[1] = second;
	x->broken = NULL;
	x->unusable = x->came = false;
	x->read = http_read_new(strcmp(x->q->method, "HEAD") == 0);
	run(x);
	http_read_free(&x->read);
	if (x->whole && !x->read.closes && !x->unusable && x->send[0].n + x->send[1].n == 0)
		http_link_keep(x->link);
	else
		http_link_free(x->link);
	x->link = NULL;
}

static int exchange(const struct http_req *q, const struct http_at *at, struct http_res *res, struct err *e)
{
	struct buf out AUTO(auto_wipep) = BUF(HEAD_BYTES + TOGETHER);
	bool together = q->body_n <= TOGETHER;
	if (request(q, at, together, &out, e) != 0)
		return err_set(e, ERR_INTERNAL, "A request to another service could not be made.");
	struct str first = { out.p, out.n }, second = { q->body, together ? 0 : q->body_n };
	struct exchange x = { .q = q, .res = res, .watch = http_watch_new(q), .out = &out };
	char text[HTTP_LINK_WHY];
	bool kept = (x.link = http_link_kept(at)) != NULL;
	if (kept)
		try(&x, first, second);
	bool fresh = !kept || again(&x);
	if (fresh && (x.link = http_link_open(q, at, &x.watch, &x.why, text)) != NULL)
		try(&x, first, second);
	else if (fresh && x.why == HTTP_GOING)
		return err_set(e, ERR_UNAVAILABLE,
		    "Another service cannot be reached (%s); try again in a moment.", text);
	http_unpack_free(x.unpack);
	if (x.why != HTTP_GOING)
		return http_ended(x.why, e);
	if (!x.whole)
		return err_set(e, ERR_UPSTREAM, "Another service broke off its answer (%s).", x.broken);
	return 0;
}

bool http_keep_do(const struct http_req *q, struct http_res *res, int *rc, struct err *e)
{
	struct http_at at;
	if (!can(q, &at))
		return false;
	*rc = exchange(q, &at, res, e);
	return true;
}
