/* dial.c - from a request that is understood to a connection to its origin: decision, one resolution, screened addresses only. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/proxy.h"
#include "egress/socks.h"

static const char connected_text[] = "HTTP/1.1 200 Connection established\r\n\r\n";

static void go_on(struct conn *c)
{
	unsigned char reply[SOCKS_REPLY_BYTES];
	const void *text = connected_text;
	size_t n = sizeof connected_text - 1;
	free(steal(c->tries));
	if (c->d.form == FORM_HTTP || c->kind == KIND_HTTP) {
		exchange_connected(c);
		return;
	}
	if (c->d.form == FORM_SOCKS) {
		socks_reply(REASON_OK, reply);
		text = reply;
		n = sizeof reply;
	}
	if (c->kind == KIND_TLS)
		tunnel_relay(c);
	else if (conn_to_client(c, text, n) != 0)
		conn_close(c, REASON_EOF, true);
	else
		tunnel_begin(c);
}

/* ---- connecting */

static void secure(struct conn *c)
{
	char why[TLS_WHY];
	int rc = tls_handshake(c->tls, why);
	if (rc == 1) {
		go_on(c);
	} else if (rc < 0) {
		log_warn("an origin's TLS was not accepted", "sandbox", c->guest->sandbox, "host",
		    c->d.host.name, "why", why);
		conn_refuse(c, REASON_UPSTREAM_TLS);
	}
}

static void connected(struct conn *c)
{
	if (!c->upgraded) {
		go_on(c);
		return;
	}
	c->tls = tls_new(c->guest->proxy->tls, c->server.fd, &c->d.host);
	if (c->tls == NULL)
		conn_refuse(c, REASON_OVERLOADED);
	else
		secure(c);
}

/* 1 connected, 0 under way, -1 not this address. */
static int attempt(struct conn *c, const struct ip *to)
{
	const int on = 1;
	struct sockaddr_storage a;
	socklen_t size = addr_to_sockaddr(to, c->d.port, &a);
	c->server.fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->server.fd < 0)
		return -1;
	(void)setsockopt(c->server.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(c->server.fd, (const struct sockaddr *)&a, size) == 0)
		return 1;
	if (errno == EINPROGRESS)
		return 0;
	conn_close_server(c);
	return -1;
}

/* The next address; when there is none, why says what the last one did. */
static void try_next(struct conn *c, enum egress_reason why)
{
	int64_t left = c->tried_ms + c->guest->proxy->o.connect_ms - loop_now_ms(c->guest->proxy->loop);
	conn_close_server(c);
	while (c->n_tried < c->n_tries && left > 0) {
		int more = c->n_tries - c->n_tried;
		c->d.address = c->tries[c->n_tried++];
		int rc = attempt(c, &c->d.address);
		if (rc < 0 && (errno == EMFILE || errno == ENFILE)) {
			why = REASON_OVERLOADED;
			break;
		}
		if (rc < 0)
			continue;
		c->state = CONN_DIAL;
		conn_deadline(c, left / more);
		if (rc == 1)
			connected(c);
		return;
	}
	conn_refuse(c, why);
}

void dial_event(struct conn *c)
{
	int error = 0;
	socklen_t size = sizeof error;
	if (c->tls != NULL)
		secure(c);
	else if (getsockopt(c->server.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
		try_next(c, error == ETIMEDOUT ? REASON_CONNECT_TIMEOUT : REASON_CONNECT_FAILED);
	else
		connected(c);
}

void dial_timeout(struct conn *c)
{
	try_next(c, REASON_CONNECT_TIMEOUT);
	conn_events(c);
}

void dial_again(struct conn *c)
{
	c->reused = false;
	free(c->tries);
	c->tries = xcalloc(1, sizeof *c->tries);
	c->tries[0] = c->d.address;
	c->n_tries = 1;
	c->n_tried = 0;
	c->tried_ms = loop_now_ms(c->guest->proxy->loop);
	try_next(c, REASON_CONNECT_FAILED);
}

/* ---- deciding */

/* Recorded first, then done. */
static bool may_pass(struct conn *c)
{
	enum egress_reason why = guest_record(c->guest, &c->d);
	bool passes = c->d.step == DECIDE_CONNECT && why == REASON_NONE;
	c->passed = passes;
	if (!passes)
		conn_refuse(c, c->d.step == DECIDE_CONNECT ? why : c->d.reason);
	return passes;
}

static void connect_to(struct conn *c, const struct ip *addrs, int n)
{
	if (!may_pass(c))
		return;
	/* All of them passed the screen; the decision's own comes first. */
	free(c->tries);
	c->tries = xcalloc((size_t)n, sizeof *c->tries);
	c->tries[0] = c->d.address;
	c->n_tries = 1;
	c->n_tried = 0;
	c->reused = false;
	c->tried_ms = loop_now_ms(c->guest->proxy->loop);
	for (int i = 0; i < n && c->n_tries < n; i++)
		if (!addr_equal(&addrs[i], &c->d.address))
			c->tries[c->n_tries++] = addrs[i];
	try_next(c, REASON_CONNECT_FAILED);
}

/* The policy may have changed while an answer was waited for: what is decided now obeys the present one. */
static void refuse_if_changed(struct conn *c, bool waited)
{
	if (waited && c->d.step != DECIDE_REFUSE &&
	    !decide_still(&c->guest->proxy->site, c->guest->policy, &c->d)) {
		c->d.step = DECIDE_REFUSE;
		c->d.reason = REASON_POLICY_CHANGED;
	}
}

static void on_resolved(struct resolve_wait *w, enum resolve_status status, const struct ip *addrs, int n)
{
	struct conn *c = OWNER(w, struct conn, wait);
	const struct egress_site *site = &c->guest->proxy->site;
	bool later = c->state == CONN_JUDGE; /* not called from within dial() */
	if (status == RESOLVE_OK || status == RESOLVE_EMPTY)
		decide_addresses(site, addrs, (size_t)n, &c->d);
	else
		decide_unresolved(status == RESOLVE_NXDOMAIN ? REASON_DNS_NXDOMAIN : REASON_DNS_ERROR, &c->d);
	refuse_if_changed(c, later);
	connect_to(c, addrs, n);
	if (later)
		conn_events(c);
}

/* The kept connection of the request before leads to the same origin, and its address passes the screen again. */
static bool same_origin(struct conn *c, const struct egress_decision *before)
{
	bool same = (c->tls != NULL) == c->upgraded;
	if (c->server.fd < 0)
		return false;
	same = same && before->port == c->d.port && host_equal(&before->host, &c->d.host);
	if (same && c->d.step == DECIDE_RESOLVE) {
		struct egress_decision d = c->d;
		decide_addresses(&c->guest->proxy->site, &before->address, 1, &d);
		if (d.step == DECIDE_CONNECT) {
			c->d = d;
			return true;
		}
	}
	if (same && c->d.step == DECIDE_CONNECT && addr_equal(&before->address, &c->d.address))
		return true;
	conn_close_server(c);
	return false;
}

/* The name rules have spoken. before: the decision of the request before on this connection, NULL for none to build on. */
static void decided(struct conn *c, const struct egress_decision *before)
{
	struct proxy *p = c->guest->proxy;
	if (before == NULL)
		conn_close_server(c);
	else if (same_origin(c, before)) {
		c->reused = true;
		if (may_pass(c))
			go_on(c);
		return;
	}
	if (c->d.step != DECIDE_RESOLVE) {
		connect_to(c, &c->d.address, 1);
		return;
	}
	loop_untimer(p->loop, &c->timer); /* the resolver has a time of its own */
	c->wait.on = on_resolved;
	c->state = CONN_HEAD; /* an answer that is there already is not a late one */
	resolve(p->resolver, c->d.host.name, &c->wait);
	if (c->wait.waiting)
		c->state = CONN_JUDGE;
}

static void on_asked(struct ask_wait *w, enum decide_answer answer)
{
	struct conn *c = OWNER(w, struct conn, asking);
	const struct egress_site *site = &c->guest->proxy->site;
	bool later = c->state == CONN_JUDGE;
	decide_asked(site, answer, &c->d);
	refuse_if_changed(c, later);
	decided(c, NULL);
	if (later)
		conn_events(c);
}

static void ask_resolver(struct conn *c)
{
	struct guest *g = c->guest;
	loop_untimer(g->proxy->loop, &c->timer);
	c->asking.on = on_asked;
	ask(g->proxy->ask,
	    &(struct ask_question){ .org = g->org,
		.sandbox = g->sandbox,
		.form = decide_form_name(c->d.form),
		.host = c->d.host.name,
		.port = c->d.port },
	    &c->asking);
	if (c->asking.job != NULL)
		c->state = CONN_JUDGE;
}

/* What is refused before the rules are looked at: it could not be recorded, or the sandbox's rate or share is used up. */
static bool within_limits(struct conn *c)
{
	struct guest *g = c->guest;
	int64_t most = g->proxy->o.lease_bytes;
	if (!audit_ready(g->proxy->audit)) {
		conn_refuse(c, REASON_AUDIT_UNAVAILABLE);
		return false;
	}
	if (!guest_may_ask(g))
		guest_limit(g, LIMIT_REQUESTS);
	else if (most > 0 && g->used_bytes >= (uint64_t)most)
		guest_limit(g, LIMIT_BYTES);
	else
		return true;
	conn_refuse(c, REASON_LIMIT_EXCEEDED);
	return false;
}

/*
 * EGR-8: a plain request for a host with credentials goes on by TLS: to 443 where it named 80. How many credentials there are, or
 * -1 when one cannot be opened; where there are some and the request is not upgraded it is to be refused.
 */
static int brokered(struct conn *c, uint16_t *port)
{
	struct head_set set[BROKERED_MAX + 1];
	uint16_t onward = c->x != NULL && *port == 80 ? 443 : *port;
	int n = brokered_find(c->guest->brokered, &c->d.host, onward, set);
	c->upgraded = c->x != NULL && n > 0;
	if (c->upgraded)
		*port = onward;
	return n;
}

void dial(struct conn *c, enum egress_form form, const struct host *host, uint16_t port)
{
	struct proxy *p = c->guest->proxy;
	struct egress_decision before = c->d;
	c->since_ms = loop_now_ms(p->loop);
	c->out = c->back = 0;
	c->d = (struct egress_decision){ .form = form, .host = *host, .port = port };
	if (!within_limits(c))
		return;
	int keys = brokered(c, &port);
	decide_name(&p->site, c->guest->policy, form, host, port, &c->d);
	if (c->d.step != DECIDE_REFUSE && keys != 0 && !c->upgraded) {
		c->d.step = DECIDE_REFUSE;
		c->d.reason = keys < 0 ? REASON_POLICY_UNAVAILABLE : REASON_BROKER_TUNNEL;
	}
	if (c->d.step == DECIDE_ASK)
		ask_resolver(c);
	else
		decided(c, &before);
}
