/*
 * exchange.c - plain HTTP: one request and its answer at a time over a kept pair of connections. Framing is followed strictly
 * on both sides: what is passed on ends where both peers agree that it ends, or the connections do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/secret.h"
#include "egress/proxy.h"

/* A body whose bytes are followed. */
struct body {
	enum head_body kind;
	uint64_t left;
	struct head_chunks chunks;
	bool done;
};

struct exchange {
	struct head h; /* its views point into c->in until it is sent */
	struct head_answer a;
	struct body request, answer;
	struct buf ahead; /* of the answer, until its head is whole */
	size_t consumed;  /* of c->in, dropped when the request cannot be asked for again */
	bool stuck;       /* the origin takes no more of the request */
	bool answered;    /* the answer's head is on its way */
	bool keep;        /* the client's connection */
	bool may_repeat, head_request;
};

/* A credential is at most 4096 bytes, its name 64. */
enum { HEAD_OUT = HEAD_MAX + HEAD_ADDED_MAX + BROKERED_MAX * (4096 + 64 + 4) };

/* The part of p[0..n) that belongs to the body; -1 when it is malformed. */
static ssize_t follow(struct body *b, const char *p, size_t n)
{
	size_t used = n;
	switch (b->kind) {
	case BODY_NONE:
		b->done = true;
		return 0;
	case BODY_LENGTH:
		used = n < b->left ? n : (size_t)b->left;
		b->left -= used;
		b->done = b->left == 0;
		return (ssize_t)used;
	case BODY_CHUNKED: {
		enum head_step step = head_chunks(&b->chunks, p, n, &used);
		b->done = step == HEAD_DONE;
		return step == HEAD_BAD ? -1 : (ssize_t)used;
	}
	default:
		return (ssize_t)n;
	}
}

static struct body body_of(enum head_body kind, uint64_t length)
{
	return (struct body){ .kind = kind, .left = length, .done = kind == BODY_NONE };
}

void exchange_free(struct conn *c)
{
	if (c->x == NULL)
		return;
	buf_free(&c->x->ahead);
	free(c->x);
	c->x = NULL;
}

bool exchange_unanswered(const struct conn *c)
{
	return !c->x->answered && (c->x->request.done || c->x->stuck);
}

bool exchange_wants_body(const struct conn *c)
{
	return !c->x->request.done && !c->x->stuck;
}

void exchange_begin(struct conn *c, const struct head *h)
{
	struct exchange *x = xcalloc(1, sizeof *x);
	x->h = *h;
	x->ahead = BUF(HEAD_MAX + 1);
	x->request = body_of(h->body, h->length);
	x->head_request = str_eq(h->method, "HEAD");
	x->may_repeat = h->body == BODY_NONE && (x->head_request || str_eq(h->method, "GET"));
	exchange_free(c);
	c->x = x;
	/* What came with the head is judged before anybody is called. */
	struct body early = x->request;
	if (c->in.n > h->n && follow(&early, c->in.p + h->n, c->in.n - h->n) < 0)
		conn_refuse_bad(c, REASON_CHUNK_BAD);
	else
		dial(c, h->form, &h->host, h->port);
}

/* ---- the request */

/* The origin takes no more: it may have answered already, and its answer counts. */
static void stuck(struct conn *c)
{
	c->x->stuck = true;
	c->x->keep = false;
	buf_free(&c->up);
}

static void request_bad(struct conn *c)
{
	if (c->x->answered)
		conn_close(c, REASON_CHUNK_BAD, true);
	else
		conn_refuse(c, REASON_CHUNK_BAD);
}

/* -1: the connection is over. */
static int send_body(struct conn *c, const char *p, size_t n, size_t *used)
{
	ssize_t k = follow(&c->x->request, p, n);
	*used = k < 0 ? 0 : (size_t)k;
	if (k < 0) {
		request_bad(c);
		return -1;
	}
	c->out += *used;
	guest_moved(c->guest, *used);
	if (*used > 0 && conn_to_server(c, p, *used) != 0)
		stuck(c);
	return 0;
}

/* The request is past asking for again. */
static void consume(struct conn *c)
{
	buf_drop(&c->in, c->x->consumed);
	c->x->consumed = 0;
}

void exchange_connected(struct conn *c)
{
	struct exchange *x = c->x;
	char out[HEAD_OUT];
	struct head_set set[BROKERED_MAX + 1] = { 0 };
	size_t used = 0;
	if (c->upgraded && brokered_find(c->guest->brokered, &c->d.host, c->d.port, set) < 0) {
		conn_refuse(c, REASON_POLICY_UNAVAILABLE);
		return;
	}
	size_t n = head_forward(&x->h, set, true, out, sizeof out);
	c->state = CONN_EXCHANGE;
	conn_moving(c);
	if (n == 0) {
		conn_refuse(c, REASON_HEAD_TOO_LONG);
		return;
	}
	x->keep = x->h.keep;
	c->out += n;
	guest_moved(c->guest, n);
	if (conn_to_server(c, out, n) != 0)
		stuck(c);
	secret_wipe(out, n);
	if (!x->request.done && c->in.n > x->h.n &&
	    send_body(c, c->in.p + x->h.n, c->in.n - x->h.n, &used) != 0)
		return;
	x->consumed = x->h.n + used;
	if (!x->may_repeat)
		consume(c);
}

/* ---- the answer */

static void over(struct conn *c)
{
	struct exchange *x = c->x;
	consume(c);
	if (!x->keep || !x->request.done || c->client_end) {
		conn_finish(c);
		return;
	}
	conn_passed_end(c, REASON_OK);
	exchange_free(c);
	conn_next(c);
}

/* The origin's part is done; what is still to be written to the client is. */
static void answered(struct conn *c)
{
	struct exchange *x = c->x;
	x->answer.done = true;
	if (!x->a.keep || !x->request.done || !x->keep)
		conn_close_server(c);
	if (c->down.n == 0)
		over(c);
}

static void answer_bad(struct conn *c, enum egress_reason why)
{
	struct exchange *x = c->x;
	if (x->answered)
		conn_close(c, why, true);
	else if (why == REASON_UPSTREAM_CLOSED && c->reused && x->may_repeat && x->ahead.n == 0)
		dial_again(c); /* the origin ended the kept connection while the request was on its way */
	else
		conn_refuse(c, why);
}

/* Bytes of the body, behind `head`. */
static void answer_body(struct conn *c, struct str head, const char *p, size_t n)
{
	struct exchange *x = c->x;
	ssize_t used = x->answer.done ? 0 : follow(&x->answer, p, n);
	if (used < 0) {
		conn_close(c, REASON_UPSTREAM_BAD, true);
		return;
	}
	if ((size_t)used < n)
		x->a.keep = false; /* more than the answer: nobody knows what it is */
	c->back += head.n + (size_t)used;
	guest_moved(c->guest, head.n + (size_t)used);
	if (conn_to_client2(c, head, (struct str){ p, (size_t)used }) != 0)
		conn_close(c, REASON_EOF, true);
	else if (x->answer.done)
		answered(c);
}

/* The head of the answer proper is whole, and more may be behind it. */
static void answer_head(struct conn *c)
{
	struct exchange *x = c->x;
	char out[HEAD_OUT];
	/* Chunks are nothing that an old client can read. */
	bool foreign = x->h.minor == 0 && x->a.body == BODY_CHUNKED;
	if (x->a.body == BODY_TO_END || !x->request.done)
		x->keep = false;
	size_t n = foreign ? 0 : head_forward_answer(&x->a, x->keep, out, sizeof out), behind = x->a.n;
	if (n == 0) {
		answer_bad(c, REASON_UPSTREAM_BAD);
		return;
	}
	struct buf ahead = x->ahead;
	x->ahead = BUF(HEAD_MAX + 1);
	x->answered = true;
	x->answer = body_of(x->a.body, x->a.length);
	answer_body(c, (struct str){ out, n }, ahead.p + behind, ahead.n - behind);
	buf_free(&ahead);
}

/* Heads in x->ahead: any number of interim ones, then that of the answer. */
static void answer_heads(struct conn *c)
{
	struct exchange *x = c->x;
	char out[HEAD_OUT];
	for (;;) {
		switch (head_read_answer(&x->a, buf_c(&x->ahead), x->ahead.n, x->head_request)) {
		case HEAD_MORE:
			return;
		case HEAD_BAD:
			answer_bad(c, REASON_UPSTREAM_BAD);
			return;
		default:
			break;
		}
		if (x->a.status >= 200) {
			answer_head(c);
			return;
		}
		size_t n = x->a.status == 101 ? 0 : head_forward_answer(&x->a, true, out, sizeof out);
		if (n == 0) {
			answer_bad(c, REASON_UPSTREAM_BAD);
			return;
		}
		if (x->h.minor > 0 && conn_to_client(c, out, n) != 0) {
			conn_close(c, REASON_EOF, true);
			return;
		}
		buf_drop(&x->ahead, x->a.n);
		x->a = (struct head_answer){ 0 };
	}
}

static void server_ended(struct conn *c)
{
	struct exchange *x = c->x;
	if (x->answered && x->answer.kind == BODY_TO_END)
		answered(c);
	else
		answer_bad(c, REASON_UPSTREAM_CLOSED);
}

static void server_event(struct conn *c, uint32_t events)
{
	struct exchange *x = c->x;
	char *to = c->guest->proxy->copy;
	size_t room = COPY_BYTES;
	if ((events & EPOLLOUT) != 0 && c->up.n > 0 && conn_flush_server(c) != 0)
		stuck(c);
	if ((c->tls == NULL && (events & ~(uint32_t)EPOLLOUT) == 0) || c->down.n > 0)
		return;
	if (!x->answered) {
		room = HEAD_MAX + 1 - x->ahead.n < 4096 ? HEAD_MAX + 1 - x->ahead.n : 4096;
		to = buf_room(&x->ahead, room);
	}
	ssize_t n = to == NULL ? -1 : conn_recv_server(c, to, room);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->last_ms = loop_now_ms(c->guest->proxy->loop);
	if (n < 0 && x->answered)
		conn_close(c, REASON_UPSTREAM_CLOSED, true);
	else if (n <= 0)
		server_ended(c);
	else if (x->answered)
		answer_body(c, (struct str){ "", 0 }, to, (size_t)n);
	else {
		buf_grew(&x->ahead, (size_t)n);
		answer_heads(c);
	}
}

void exchange_server(struct conn *c, uint32_t events)
{
	server_event(c, events);
	/* What TLS has read ahead is told by no event. */
	while (!c->doomed && c->state == CONN_EXCHANGE && c->tls != NULL && c->down.n == 0 &&
	    tls_pending(c->tls))
		server_event(c, EPOLLIN);
}

/* ---- the client */

static void client_body(struct conn *c)
{
	char *copy = c->guest->proxy->copy;
	size_t used;
	ssize_t n = recv(c->client.fd, copy, COPY_BYTES, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_close(c, REASON_EOF, true);
		return;
	}
	c->last_ms = loop_now_ms(c->guest->proxy->loop);
	/* What is behind the body is the next request; c->in is empty and takes it all. */
	if (send_body(c, copy, (size_t)n, &used) == 0 && used < (size_t)n &&
	    buf_add(&c->in, copy + used, (size_t)n - used) != 0)
		conn_close(c, REASON_EOF, true);
}

void exchange_client(struct conn *c, uint32_t events)
{
	struct exchange *x = c->x;
	if ((events & EPOLLOUT) != 0 && conn_flush_client(c) != 0) {
		conn_close(c, REASON_EOF, true);
		return;
	}
	if (x->answered && x->answer.done && c->down.n == 0) {
		over(c);
		return;
	}
	if ((events & EPOLLOUT) != 0 && c->tls != NULL && tls_pending(c->tls)) {
		exchange_server(c, EPOLLIN);
		return;
	}
	if ((events & EPOLLIN) != 0 && exchange_wants_body(c) && c->up.n == 0)
		client_body(c);
	else if ((events & (EPOLLHUP | EPOLLERR)) != 0)
		conn_close(c, REASON_EOF, true);
}
