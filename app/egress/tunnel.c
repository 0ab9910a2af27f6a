/*
 * tunnel.c - bytes both ways. A tunnel to a TLS port passes nothing on before its ClientHello has been read and names the host
 * that was decided (EGR-7); elsewhere the same holds for whatever begins like TLS.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "egress/proxy.h"

enum { HANDSHAKE = 0x16, MAJOR = 3 };

static bool tls_port(const struct egress_opts *o, uint16_t port)
{
	for (int i = 0; i < o->n_tls_ports; i++)
		if (o->tls_ports[i] == port)
			return true;
	return false;
}

/* What the client has sent so far goes on, and the buffer with it. */
void tunnel_relay(struct conn *c)
{
	c->state = CONN_TUNNEL;
	free(steal(c->hello));
	conn_moving(c);
	if (c->in.n > 0) {
		c->out += c->in.n;
		guest_moved(c->guest, c->in.n);
		if (conn_to_server(c, c->in.p, c->in.n) != 0) {
			conn_close(c, REASON_UPSTREAM_CLOSED, true);
			return;
		}
	}
	buf_free(&c->in);
	c->in.max = COPY_BYTES;
}

/* EGR-16: the target is what the ClientHello names, or the address that was connected to. */
static enum egress_reason transparent_target(struct conn *c)
{
	struct sockaddr_storage a = { 0 };
	socklen_t size = sizeof a;
	struct sockaddr_in in;
	char text[ADDR_TEXT];
	struct ip to;
	if (getsockname(c->client.fd, (struct sockaddr *)&a, &size) != 0 ||
	    !addr_from_sockaddr((const struct sockaddr *)&a, &to))
		return REASON_BAD_HOST;
	addr_fmt(&to, text);
	struct str name = c->hello->has_name ? (struct str){ c->hello->name, c->hello->name_n }
					     : str_of(text);
	memcpy(&in, &a, sizeof in); /* both families have the port at one place */
	c->d = (struct egress_decision){ .form = FORM_TRANSPARENT, .port = ntohs(in.sin_port) };
	return host_canon(name, HOST_BARE, &c->d.host) ? REASON_OK : REASON_BAD_SNI;
}

static void tunnel_hello(struct conn *c)
{
	const struct egress_site *site = &c->guest->proxy->site;
	enum egress_reason why = REASON_OK;
	switch (hello_read(c->hello, (const uint8_t *)c->in.p, c->in.n)) {
	case HELLO_MORE:
		return;
	case HELLO_BAD:
		why = c->hello->reason;
		break;
	default:
		if (c->kind == KIND_TLS)
			why = transparent_target(c);
		if (why == REASON_OK)
			why = hello_judge(site, &c->d.host, c->hello);
		break;
	}
	if (reason_verdict(why) == EGRESS_ALLOW) {
		struct host host = c->d.host;
		if (c->kind == KIND_TLS)
			dial(c, FORM_TRANSPARENT, &host, c->d.port);
		else
			tunnel_relay(c);
		return;
	}
	c->d.step = DECIDE_REFUSE;
	c->d.reason = why;
	(void)guest_record(c->guest, &c->d);
	conn_refuse(c, why);
}

static void hello_begin(struct conn *c)
{
	c->state = CONN_HELLO;
	c->sniff = false;
	c->hello = xcalloc(1, sizeof *c->hello);
	conn_deadline(c, c->guest->proxy->o.hello_ms);
	if (c->in.n > 0)
		tunnel_hello(c);
}

/* The first bytes on a port that is not TLS's: may be of a protocol in which the server speaks first. */
static void sniff(struct conn *c)
{
	const unsigned char *p = (const unsigned char *)c->in.p;
	if (c->in.n == 0 || (c->in.n == 1 && p[0] == HANDSHAKE))
		return;
	c->sniff = false;
	if (p[0] == HANDSHAKE && p[1] == MAJOR)
		hello_begin(c);
	else
		tunnel_relay(c);
}

void tunnel_transparent(struct conn *c)
{
	c->d.form = FORM_TRANSPARENT;
	hello_begin(c);
	tunnel_hello_event(c); /* it has mostly come by now */
}

void tunnel_begin(struct conn *c)
{
	if (tls_port(&c->guest->proxy->o, c->d.port)) {
		hello_begin(c);
		return;
	}
	c->state = CONN_TUNNEL;
	c->sniff = true;
	if (c->in.n == 0)
		buf_free(&c->in);
	conn_moving(c);
	sniff(c);
}

void tunnel_hello_event(struct conn *c)
{
	ssize_t n = conn_fill(c, HELLO_RAW_MAX);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		tunnel_hello(c);
	else
		conn_refuse(c, n < 0 && errno == ENOBUFS ? REASON_HELLO_TOO_LARGE : hello_cut(c->hello));
}

/* ---- the relay */

/* Ends that can be passed on now, and the end of it all. */
static void ends(struct conn *c)
{
	if (c->client_end && c->up.n == 0 && !c->up_shut) {
		c->up_shut = true;
		(void)shutdown(c->server.fd, SHUT_WR);
	}
	if (c->server_end && c->down.n == 0 && !c->down_shut) {
		c->down_shut = true;
		(void)shutdown(c->client.fd, SHUT_WR);
	}
	if (c->up_shut && c->down_shut) {
		conn_close(c, REASON_EOF, false);
		return;
	}
	/* The drain of what is half closed is bounded (drain_ms of silence): its timer may be due far later. */
	if ((c->up_shut || c->down_shut) && !c->draining) {
		c->draining = true;
		conn_deadline(c, c->guest->proxy->o.drain_ms);
	}
}

/* -1: this side is gone. */
static int pump(struct conn *c, bool up)
{
	struct proxy *p = c->guest->proxy;
	struct watch *from = up ? &c->client : &c->server;
	bool *end = up ? &c->client_end : &c->server_end;
	ssize_t n = recv(from->fd, p->copy, COPY_BYTES, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0) {
		*end = true;
		return 0;
	}
	c->last_ms = loop_now_ms(p->loop);
	*(up ? &c->out : &c->back) += (uint64_t)n;
	guest_moved(c->guest, (size_t)n);
	return up ? conn_to_server(c, p->copy, (size_t)n) : conn_to_client(c, p->copy, (size_t)n);
}

static void sniff_event(struct conn *c)
{
	ssize_t n = conn_fill(c, HELLO_RAW_MAX);
	if (n > 0) {
		sniff(c);
	} else if (n == 0) {
		c->sniff = false;
		c->client_end = true;
		ends(c);
	} else if (errno != EAGAIN && errno != EINTR) {
		conn_close(c, REASON_EOF, true);
	}
}

static bool readable(const struct conn *c, uint32_t events, bool ended, const struct buf *towards)
{
	return (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !ended && towards->n == 0 &&
	    !c->guest->throttled;
}

void tunnel_client(struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && conn_flush_client(c) != 0) {
		conn_close(c, REASON_EOF, true);
		return;
	}
	if (c->sniff && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
		sniff_event(c);
		return;
	}
	bool may = readable(c, events, c->client_end, &c->up);
	if (may ? pump(c, true) != 0 : (events & (EPOLLERR | EPOLLHUP)) != 0)
		conn_close(c, REASON_EOF, true);
	else
		ends(c);
}

void tunnel_server(struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && conn_flush_server(c) != 0) {
		conn_close(c, REASON_UPSTREAM_CLOSED, true);
		return;
	}
	bool may = readable(c, events, c->server_end, &c->down);
	if (may ? pump(c, false) != 0 : (events & (EPOLLERR | EPOLLHUP)) != 0 && c->down.n == 0)
		conn_close(c, REASON_UPSTREAM_CLOSED, true);
	else
		ends(c);
}
