/* conn.c - a connection of a sandbox: its first bytes, the states it goes through, refusals, its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "egress/proxy.h"
#include "egress/refuse.h"
#include "egress/socks.h"

enum {
	REFUSAL_BYTES = 4096,
	LINGER_MS = 2000,
	LINGER_BYTES = 256 * 1024,
	KEPT_MS = 60 * 1000, /* between two requests of a kept connection */
	IN_MAX = HELLO_RAW_MAX,
	FIRST_ROOM = 2048,
	NOTHING = EPOLLPRI, /* errors and hang-ups are told whenever a descriptor is watched at all */
};

enum { SOCKS_NO, SOCKS_GREETING, SOCKS_REQUEST };

/* ---- bytes */

/* What can be written now, without waiting. */
static int send_some(int fd, struct tls *tls, const char *p, size_t n, size_t *done)
{
	ssize_t k = fd < 0 ? 0 : tls != NULL ? tls_send(tls, p, n) : send(fd, p, n, MSG_NOSIGNAL);
	*done = k > 0 ? (size_t)k : 0;
	return k >= 0 || errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* Behind what is waiting already, or at once. TLS takes a record at a time. */
static int put(int fd, struct tls *tls, struct buf *waiting, const char *p, size_t n)
{
	for (size_t done = 1; waiting->n == 0 && n > 0 && done > 0; p += done, n -= done)
		if (send_some(fd, tls, p, n, &done) != 0)
			return -1;
	return n == 0 ? 0 : buf_add(waiting, p, n);
}

int conn_to_client(struct conn *c, const void *p, size_t n)
{
	return put(c->client.fd, NULL, &c->down, p, n);
}

int conn_to_server(struct conn *c, const void *p, size_t n)
{
	return put(c->server.fd, c->tls, &c->up, p, n);
}

int conn_to_client2(struct conn *c, struct str a, struct str b)
{
	struct iovec part[2] = { { .iov_base = (void *)(uintptr_t)a.p, .iov_len = a.n },
		{ .iov_base = (void *)(uintptr_t)b.p, .iov_len = b.n } };
	const struct msghdr m = { .msg_iov = part, .msg_iovlen = 2 };
	size_t done = 0;
	if (a.n == 0 || c->down.n > 0)
		return conn_to_client(c, a.p, a.n) != 0 ? -1 : conn_to_client(c, b.p, b.n);
	ssize_t n = sendmsg(c->client.fd, &m, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return -1;
	done = n > 0 ? (size_t)n : 0;
	if (done < a.n)
		return buf_add(&c->down, a.p + done, a.n - done) != 0 ? -1 : buf_add(&c->down, b.p, b.n);
	done -= a.n;
	return done == b.n ? 0 : buf_add(&c->down, b.p + done, b.n - done);
}

static int flush(int fd, struct tls *tls, struct buf *waiting)
{
	size_t done = 0;
	if (waiting->n > 0 && send_some(fd, tls, waiting->p, waiting->n, &done) != 0)
		return -1;
	if (done > 0)
		buf_drop(waiting, done);
	if (waiting->n == 0)
		buf_free(waiting);
	return 0;
}

int conn_flush_client(struct conn *c)
{
	return flush(c->client.fd, NULL, &c->down);
}

int conn_flush_server(struct conn *c)
{
	return flush(c->server.fd, c->tls, &c->up);
}

ssize_t conn_recv_server(struct conn *c, void *p, size_t n)
{
	return c->tls != NULL ? tls_recv(c->tls, p, n) : recv(c->server.fd, p, n, 0);
}

void conn_close_server(struct conn *c)
{
	tls_free(steal(c->tls));
	loop_close(c->guest->proxy->loop, &c->server);
}

ssize_t conn_fill(struct conn *c, size_t most)
{
	size_t have = c->in.cap > c->in.n + 1 ? c->in.cap - c->in.n - 1 : 0;
	size_t room = have >= FIRST_ROOM / 2 ? have : c->in.n == 0 ? FIRST_ROOM : c->in.n;
	if (c->in.n >= most) {
		errno = ENOBUFS;
		return -1;
	}
	if (room > most - c->in.n)
		room = most - c->in.n;
	char *to = buf_room(&c->in, room);
	ssize_t n = to == NULL ? -1 : recv(c->client.fd, to, room, 0);
	if (n > 0)
		buf_grew(&c->in, (size_t)n);
	return n;
}

/* ---- the end */

static void on_grave(struct later *l)
{
	free(OWNER(l, struct conn, grave));
}

void conn_passed_end(struct conn *c, enum egress_reason why)
{
	struct guest *g = c->guest;
	if (!c->passed)
		return;
	c->passed = false;
	(void)audit_put(g->proxy->audit,
	    &(struct audit_row){ .org = g->org,
		.sandbox = g->sandbox,
		.session = g->session,
		.close = true,
		.form = decide_form_name(c->d.form),
		.host = c->d.host.name,
		.port = c->d.port,
		.reason = why,
		.out = c->out,
		.in = c->back,
		.duration_ms = loop_now_ms(g->proxy->loop) - c->since_ms });
	g->proxy->count.closed[why]++;
	g->proxy->count.out += c->out;
	g->proxy->count.in += c->back;
}

/* The other side's end is passed on as it was: an error as a reset. */
static void drop(struct conn *c, struct watch *w, bool reset)
{
	const struct linger now = { .l_onoff = 1 };
	if (reset && w->fd >= 0)
		(void)setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	loop_close(c->guest->proxy->loop, w);
}

void conn_close(struct conn *c, enum egress_reason why, bool reset)
{
	struct proxy *p = c->guest->proxy;
	if (c->doomed)
		return;
	conn_passed_end(c, why);
	resolve_forget(&c->wait);
	ask_forget(&c->asking);
	exchange_free(c);
	drop(c, &c->client, reset);
	tls_free(steal(c->tls));
	drop(c, &c->server, reset);
	loop_untimer(p->loop, &c->timer);
	buf_free(&c->in);
	buf_free(&c->up);
	buf_free(&c->down);
	free(c->hello);
	free(c->head);
	free(c->tries);
	LIST_REMOVE(c, in_guest);
	c->guest->n_conns--;
	p->n_conns--;
	c->doomed = true;
	loop_bury(p->loop, &c->grave);
}

/* Say the last word: it is sent out, then what still comes is thrown away for a moment, so that no reset overtakes it. */
static void linger(struct conn *c)
{
	c->state = CONN_LINGER;
	c->out = 0;
	conn_close_server(c);
	buf_free(&c->in);
	buf_free(&c->up);
	exchange_free(c);
	if (c->down.n == 0 && shutdown(c->client.fd, SHUT_WR) != 0) {
		conn_close(c, REASON_EOF, false);
		return;
	}
	c->down_shut = c->down.n == 0;
	conn_deadline(c, c->down_shut ? LINGER_MS : c->guest->proxy->o.drain_ms);
	conn_events(c);
}

void conn_finish(struct conn *c)
{
	conn_passed_end(c, REASON_EOF);
	linger(c);
}

void conn_refuse(struct conn *c, enum egress_reason why)
{
	char room[REFUSAL_BYTES];
	struct buf text = { .p = room, .cap = sizeof room, .max = sizeof room - 1 };
	if (c->doomed)
		return;
	c->guest->proxy->count.decisions[why]++;
	conn_passed_end(c, why);
	c->down.n = 0; /* nothing has been answered yet */
	if (c->state == CONN_HELLO || (c->kind == KIND_TLS)) {
		bool tls = why != REASON_NOT_TLS && why != REASON_TIMEOUT && why != REASON_EOF;
		if (tls)
			(void)buf_add(&text, refuse_alert, sizeof refuse_alert);
	} else if (c->socks != SOCKS_NO) {
		unsigned char reply[SOCKS_REPLY_BYTES];
		socks_reply(why, reply);
		(void)buf_add(&text, reply, sizeof reply);
	} else {
		refuse_http(&text, &c->d, why);
	}
	if (conn_to_client(c, text.p, text.n) != 0)
		conn_close(c, REASON_EOF, false);
	else
		linger(c);
}

/* Not a request: it never came to a decision, and is recorded as it is. */
void conn_refuse_bad(struct conn *c, enum egress_reason why)
{
	c->d = (struct egress_decision){ .reason = why,
		.form = c->socks != SOCKS_NO ? FORM_SOCKS
		    : c->kind == KIND_PROXY  ? FORM_HTTP
					     : FORM_TRANSPARENT };
	if (!guest_may_ask(c->guest))
		why = REASON_LIMIT_EXCEEDED;
	else if (guest_record(c->guest, &c->d) != REASON_NONE)
		why = REASON_AUDIT_UNAVAILABLE;
	conn_refuse(c, why);
}

/* ---- time */

void conn_deadline(struct conn *c, int64_t ms)
{
	struct loop *l = c->guest->proxy->loop;

	c->last_ms = loop_now_ms(l);
	loop_timer(l, &c->timer, ms);
}

void conn_moving(struct conn *c)
{
	const struct egress_opts *o = &c->guest->proxy->o;
	conn_deadline(c, o->idle_ms < o->total_ms ? o->idle_ms : o->total_ms);
}

/* A connection that moves bytes: silence, and its whole time. The timer is set anew only when it fires. */
static void moving_time(struct conn *c)
{
	const struct egress_opts *o = &c->guest->proxy->o;
	int64_t now = loop_now_ms(c->guest->proxy->loop);
	bool half = c->client_end || c->server_end;
	int64_t idle = c->last_ms + (half ? o->drain_ms : o->idle_ms), end = c->since_ms + o->total_ms;
	if (now < idle && now < end) {
		loop_timer(c->guest->proxy->loop, &c->timer, (idle < end ? idle : end) - now);
		return;
	}
	if (c->state == CONN_EXCHANGE && now >= idle && exchange_unanswered(c)) {
		conn_refuse(c, REASON_UPSTREAM_TIMEOUT);
		return;
	}
	if (!half || now >= end)
		guest_limit(c->guest, now >= end ? LIMIT_TOTAL : LIMIT_IDLE);
	conn_close(c, now >= end ? REASON_TOTAL_TIMEOUT : REASON_IDLE_TIMEOUT, true);
}

static void on_timer(struct timer *t)
{
	struct conn *c = OWNER(t, struct conn, timer);
	switch (c->state) {
	case CONN_HEAD:
		if (c->in.n > 0 && c->kind != KIND_DNS)
			conn_refuse(c, REASON_HEAD_TIMEOUT);
		else
			conn_close(c, REASON_IDLE_TIMEOUT, false);
		break;
	case CONN_DIAL:
		dial_timeout(c);
		break;
	case CONN_HELLO:
		conn_refuse(c, hello_cut(c->hello));
		break;
	case CONN_TUNNEL:
	case CONN_EXCHANGE:
		moving_time(c);
		break;
	default:
		conn_close(c, REASON_EOF, false);
		break;
	}
}

/* ---- requests */

static void socks_step(struct conn *c)
{
	const uint8_t *p = (const uint8_t *)c->in.p;
	if (c->socks == SOCKS_GREETING) {
		uint8_t reply[2];
		size_t used = 0;
		enum socks_step step = socks_greeting(p, c->in.n, &used, reply);
		if (step == SOCKS_MORE)
			return;
		if (conn_to_client(c, reply, sizeof reply) != 0 || step == SOCKS_BAD) {
			linger(c);
			return;
		}
		buf_drop(&c->in, used);
		c->socks = SOCKS_REQUEST;
	}
	struct socks_request r = { 0 };
	p = (const uint8_t *)buf_c(&c->in);
	switch (socks_read(&r, p, c->in.n)) {
	case SOCKS_MORE:
		return;
	case SOCKS_BAD:
		conn_refuse_bad(c, r.reason);
		return;
	default:
		buf_drop(&c->in, r.used);
		dial(c, FORM_SOCKS, &r.host, r.port);
	}
}

/* A head that comes in pieces is read on from where it was. */
static void head_step(struct conn *c)
{
	struct head h = { 0 };
	if (c->head != NULL) {
		h = *c->head;
		free(steal(c->head));
	}
	switch (head_read(&h, c->in.p, c->in.n, c->kind == KIND_HTTP)) {
	case HEAD_MORE:
		c->head = xcalloc(1, sizeof *c->head);
		*c->head = h;
		return;
	case HEAD_BAD:
		conn_refuse_bad(c, h.reason);
		return;
	default:
		break;
	}
	if (h.form == FORM_CONNECT) {
		buf_drop(&c->in, h.n);
		dial(c, FORM_CONNECT, &h.host, h.port);
	} else {
		exchange_begin(c, &h);
	}
}

static void conn_client(struct conn *c)
{
	if (c->in.n == 0)
		return;
	if (c->kind == KIND_DNS) {
		dns_stream(c);
		return;
	}
	if (c->socks == SOCKS_NO && c->kind == KIND_PROXY && (unsigned char)c->in.p[0] == SOCKS_VERSION)
		c->socks = SOCKS_GREETING;
	if (c->socks != SOCKS_NO)
		socks_step(c);
	else
		head_step(c);
}

void conn_next(struct conn *c)
{
	c->state = CONN_HEAD;
	conn_deadline(c, c->in.n > 0 ? c->guest->proxy->o.head_ms : KEPT_MS);
	conn_client(c);
}

/* ---- events */

static void head_event(struct conn *c)
{
	bool first = c->in.n == 0;
	ssize_t n = conn_fill(c, HEAD_MAX + 1);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* nothing was decided: no row */
		conn_close(c, REASON_EOF, false);
		return;
	}
	if (first && c->since_ms != 0) /* a further request of a kept connection */
		conn_deadline(c, c->guest->proxy->o.head_ms);
	conn_client(c);
}

static void linger_event(struct conn *c, uint32_t events)
{
	char *copy = c->guest->proxy->copy;
	if ((events & EPOLLOUT) != 0 && conn_flush_client(c) != 0) {
		conn_close(c, REASON_EOF, false);
		return;
	}
	if (c->down.n == 0 && !c->down_shut) {
		c->down_shut = true;
		(void)shutdown(c->client.fd, SHUT_WR);
		conn_deadline(c, LINGER_MS);
	}
	ssize_t n = recv(c->client.fd, copy, COPY_BYTES, 0);
	c->out += n > 0 ? (uint64_t)n : 0; /* of nothing that was let pass: counts what is thrown away */
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || c->out > LINGER_BYTES)
		conn_close(c, REASON_EOF, false);
}

static void on_client(struct watch *w, uint32_t events)
{
	struct conn *c = OWNER(w, struct conn, client);
	switch (c->state) {
	case CONN_HEAD:
		head_event(c);
		break;
	case CONN_HELLO:
		tunnel_hello_event(c);
		break;
	case CONN_TUNNEL:
		tunnel_client(c, events);
		break;
	case CONN_EXCHANGE:
		exchange_client(c, events);
		break;
	case CONN_LINGER:
		linger_event(c, events);
		break;
	default: /* it is still being decided or dialled: only its going away matters */
		if ((events & (EPOLLHUP | EPOLLERR)) != 0)
			conn_close(c, REASON_EOF, true);
		break;
	}
	conn_events(c);
}

static void on_server(struct watch *w, uint32_t events)
{
	struct conn *c = OWNER(w, struct conn, server);
	switch (c->state) {
	case CONN_DIAL:
		dial_event(c);
		break;
	case CONN_TUNNEL:
		tunnel_server(c, events);
		break;
	case CONN_EXCHANGE:
		exchange_server(c, events);
		break;
	case CONN_HELLO:
		if ((events & (EPOLLHUP | EPOLLERR)) != 0)
			conn_close(c, REASON_UPSTREAM_CLOSED, true);
		break;
	default: /* kept between two requests: whatever it says ends it */
		conn_close_server(c);
		break;
	}
	conn_events(c);
}

static void wanted(const struct conn *c, uint32_t *client, uint32_t *server)
{
	bool flows = !c->guest->throttled;
	/* Where bytes flow, nobody is watched who cannot be heard or spoken to: a hang-up would be told over and over. */
	*client = *server = NOTHING;
	if (c->state == CONN_TUNNEL)
		*client = *server = 0;
	else if (c->state == CONN_EXCHANGE)
		*server = 0;
	switch (c->state) {
	case CONN_HEAD:
		*client = EPOLLIN;
		*server = EPOLLIN | EPOLLRDHUP;
		break;
	case CONN_DIAL:
		*server = c->tls == NULL || tls_wants_write(c->tls) ? EPOLLOUT : EPOLLIN;
		break;
	case CONN_HELLO:
		*client = EPOLLIN;
		break;
	case CONN_TUNNEL:
		*client |= !c->client_end && c->up.n == 0 && flows ? EPOLLIN : 0;
		*server |= !c->server_end && c->down.n == 0 && flows ? EPOLLIN : 0;
		break;
	case CONN_EXCHANGE:
		*client |= exchange_wants_body(c) && c->up.n == 0 && flows ? EPOLLIN : 0;
		*server |= c->down.n == 0 && flows ? EPOLLIN : 0;
		*server |= c->tls != NULL && tls_wants_write(c->tls) ? EPOLLOUT : 0;
		break;
	case CONN_LINGER:
		*client = EPOLLIN;
		break;
	default:
		break;
	}
	if (c->down.n > 0)
		*client |= EPOLLOUT;
	if (c->up.n > 0)
		*server |= EPOLLOUT;
}

void conn_events(struct conn *c)
{
	struct loop *l = c->guest->proxy->loop;
	uint32_t client, server;
	if (c->doomed)
		return;
	wanted(c, &client, &server);
	if (loop_watch(l, &c->client, client) != 0 || loop_watch(l, &c->server, server) != 0)
		conn_close(c, REASON_OVERLOADED, true);
}

void conn_new(struct guest *g, enum egress_kind kind, int fd)
{
	struct proxy *p = g->proxy;
	struct conn *c = xcalloc(1, sizeof *c);
	c->client = (struct watch){ .fd = fd, .on = on_client };
	c->server = (struct watch){ .fd = -1, .on = on_server };
	c->timer.on = on_timer;
	c->grave.run = on_grave;
	c->guest = g;
	c->kind = (uint8_t)kind;
	c->in = BUF(IN_MAX);
	c->up = c->down = BUF(COPY_BYTES + REFUSAL_BYTES + HEAD_MAX + HEAD_ADDED_MAX);
	LIST_INSERT_HEAD(&g->conns, c, in_guest);
	g->n_conns++;
	p->n_conns++;
	p->count.accepted++;
	conn_deadline(c, p->o.head_ms);
	if (kind == KIND_TLS)
		tunnel_transparent(c);
	else
		head_event(c); /* most clients have sent something by now */
	conn_events(c);
}
