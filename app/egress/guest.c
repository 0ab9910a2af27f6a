/* guest.c - a sandbox as the proxy sees it: its listeners, its policy, what it may use. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "egress/proxy.h"
#include "egress/refuse.h"

enum {
	ACCEPTS = 32, /* of one listener in one round */
	PAUSE_MS = 100,
	REFILL_MS = 50,
	LIMIT_AGAIN_MS = 10 * 1000, /* between two events of one limit */
	TELLS = 20,                 /* events of refusals at once; then one a second */
	REFUSAL_BYTES = 4096,
};

struct guest *guest_find(struct proxy *p, const char *sandbox)
{
	struct guest *g;
	LIST_FOREACH(g, &p->guests[hash_slot(sandbox, GUEST_BUCKETS)], in_bucket)
	if (strcmp(g->sandbox, sandbox) == 0)
		return g;
	return NULL;
}

/* ---- what may be used */

static int64_t refilled(struct bucket *b, int64_t now_ms, int64_t per_s, int64_t most)
{
	int64_t add = (now_ms - b->at_ms) * per_s / 1000;
	if (add > 0) {
		b->left = b->left + add < most ? b->left + add : most;
		b->at_ms = now_ms;
	}
	return b->left;
}

static bool spend(struct bucket *b, int64_t now_ms, int64_t per_s, int64_t most)
{
	if (refilled(b, now_ms, per_s, most) <= 0)
		return false;
	b->left--;
	return true;
}

bool guest_may_ask(struct guest *g)
{
	int64_t per_s = g->proxy->o.requests_s;
	return per_s == 0 || spend(&g->requests, loop_now_ms(g->proxy->loop), per_s, 2 * per_s);
}

static void all_events(struct guest *g)
{
	struct conn *c, *next;
	for (c = LIST_FIRST(&g->conns); c != NULL; c = next) {
		next = LIST_NEXT(c, in_guest);
		conn_events(c);
	}
}

static void on_refill(struct timer *t)
{
	struct guest *g = OWNER(t, struct guest, refill);
	int64_t per_s = g->proxy->o.bytes_s;
	if (refilled(&g->bytes, loop_now_ms(g->proxy->loop), per_s, per_s) <= 0) {
		loop_timer(g->proxy->loop, t, REFILL_MS);
		return;
	}
	g->throttled = false;
	all_events(g);
}

static void cut_all(struct guest *g, enum egress_reason why)
{
	struct conn *c, *next;
	for (c = LIST_FIRST(&g->conns); c != NULL; c = next) {
		next = LIST_NEXT(c, in_guest);
		conn_close(c, why, true);
	}
}

/* A lease whose bytes are used up: its connections are cut after this round, whoever is in the middle of one now. */
static void on_spent(struct later *l)
{
	struct guest *g = OWNER(l, struct guest, spent);
	guest_limit(g, LIMIT_BYTES);
	cut_all(g, REASON_LIMIT_EXCEEDED);
}

void guest_moved(struct guest *g, size_t n)
{
	const struct egress_opts *o = &g->proxy->o;
	uint64_t most = (uint64_t)o->lease_bytes;
	bool before = g->used_bytes >= most;
	g->used_bytes += n;
	if (most > 0 && !before && g->used_bytes >= most)
		loop_bury(g->proxy->loop, &g->spent);
	if (o->bytes_s == 0)
		return;
	g->bytes.left -= (int64_t)n;
	if (g->throttled || refilled(&g->bytes, loop_now_ms(g->proxy->loop), o->bytes_s, o->bytes_s) > 0)
		return;
	g->throttled = true;
	guest_limit(g, LIMIT_RATE);
	loop_timer(g->proxy->loop, &g->refill, REFILL_MS);
	all_events(g);
}

/* ---- the record */

/* Refusals are told to the session as they come, but not in a flood. */
static bool tells(struct guest *g, int *more)
{
	if (g->session[0] == '\0')
		return false;
	if (!spend(&g->tells, loop_now_ms(g->proxy->loop), 1, TELLS)) {
		g->untold++;
		return false;
	}
	*more = g->untold;
	g->untold = 0;
	return true;
}

enum egress_reason guest_record(struct guest *g, const struct egress_decision *d)
{
	struct proxy *p = g->proxy;
	char address[ADDR_TEXT];
	bool passes = d->step == DECIDE_CONNECT;
	enum egress_reason why = d->would != REASON_NONE && passes ? d->would : d->reason;
	struct audit_row row = { .org = g->org,
		.sandbox = g->sandbox,
		.session = g->session,
		.form = decide_form_name(d->form),
		.host = d->host.name,
		.port = d->port,
		.reason = why,
		.passes = passes,
		.observed = passes && d->would != REASON_NONE };
	if (d->has_address) {
		addr_fmt(&d->address, address);
		row.address = address;
		row.class = addr_class_name(d->class);
	}
	row.tell = !passes && tells(g, &row.more);
	if (audit_put(p->audit, &row) != 0)
		return REASON_AUDIT_UNAVAILABLE;
	if (passes)
		p->count.decisions[why]++;
	return REASON_NONE;
}

void guest_limit(struct guest *g, enum guest_limit which)
{
	static const char *const names[GUEST_LIMITS] = { [LIMIT_CONNECTIONS] = "connections",
		[LIMIT_REQUESTS] = "requests_per_s",
		[LIMIT_RATE] = "bytes_per_s",
		[LIMIT_BYTES] = "bytes",
		[LIMIT_IDLE] = "idle_time",
		[LIMIT_TOTAL] = "total_time" };
	int64_t now = loop_now_ms(g->proxy->loop);
	char host[32];
	(void)snprintf(host, sizeof host, AUDIT_LIMIT "%s", names[which]);
	struct audit_row row = { .org = g->org,
		.sandbox = g->sandbox,
		.session = g->session,
		.form = "limit",
		.host = host,
		.reason = which == LIMIT_IDLE ? REASON_IDLE_TIMEOUT
		    : which == LIMIT_TOTAL    ? REASON_TOTAL_TIMEOUT
					      : REASON_LIMIT_EXCEEDED };
	if (g->limit_told_ms[which] != 0 && now - g->limit_told_ms[which] < LIMIT_AGAIN_MS)
		return;
	g->limit_told_ms[which] = now;
	row.tell = tells(g, &row.more);
	log_info("a sandbox has reached a limit", "sandbox", g->sandbox, "limit", names[which]);
	(void)audit_put(g->proxy->audit, &row);
}

/* ---- accepting */

/* No connection is made of it: the answer goes out, and that is all. */
static void turn_away(struct guest *g, enum egress_kind kind, int fd, enum egress_reason why)
{
	const struct egress_decision none = { .reason = why };
	char room[REFUSAL_BYTES];
	struct buf text = { .p = room, .cap = sizeof room, .max = sizeof room - 1 };
	if (kind == KIND_PROXY || kind == KIND_HTTP) {
		refuse_http(&text, &none, why);
		(void)send(fd, text.p, text.n, MSG_NOSIGNAL);
	}
	(void)shutdown(fd, SHUT_WR);
	/* What has come is read, so that closing does not overtake the answer with a reset. */
	(void)!recv(fd, g->proxy->copy, COPY_BYTES, 0);
	(void)close(fd);
	g->proxy->count.decisions[why]++;
}

static void accepted(struct listener *l, int fd)
{
	struct guest *g = l->guest;
	struct proxy *p = g->proxy;
	if (p->o.connections > 0 && g->n_conns >= p->o.connections) {
		guest_limit(g, LIMIT_CONNECTIONS);
		turn_away(g, l->kind, fd, REASON_LIMIT_EXCEEDED);
	} else if (p->n_conns >= p->room) {
		turn_away(g, l->kind, fd, REASON_OVERLOADED);
	} else {
		conn_new(g, l->kind, fd);
	}
}

static void on_listener(struct watch *w, uint32_t events)
{
	struct listener *l = OWNER(w, struct listener, watch);
	struct loop *loop = l->guest->proxy->loop;
	(void)events;
	if (l->type == SOCK_DGRAM) {
		dns_packets(l);
		return;
	}
	for (int i = 0; i < ACCEPTS; i++) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			accepted(l, fd);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno == ECONNABORTED || errno == EINTR)
			continue;
		/* No descriptor or memory: the queue waits, and the loop does not spin. */
		if (loop_now_ms(loop) - l->guest->proxy->full_told_ms >= LIMIT_AGAIN_MS) {
			l->guest->proxy->full_told_ms = loop_now_ms(loop);
			log_warn("connections cannot be accepted now", "why", strerrordesc_np(errno));
		}
		(void)loop_watch(loop, w, 0);
		loop_timer(loop, &l->pause, PAUSE_MS);
		return;
	}
}

static void on_pause(struct timer *t)
{
	struct listener *l = OWNER(t, struct listener, pause);
	struct loop *loop = l->guest->proxy->loop;
	if (loop_watch(loop, &l->watch, EPOLLIN) != 0)
		loop_timer(loop, t, PAUSE_MS);
}

/* ---- life */

static void on_grave(struct later *l)
{
	free(OWNER(l, struct guest, grave));
}

static void unlisten(struct listener *l)
{
	struct proxy *p = l->guest->proxy;
	if (l->watch.fd < 0)
		return;
	loop_untimer(p->loop, &l->pause);
	loop_close(p->loop, &l->watch);
	p->n_listeners--;
}

int guest_listen(struct guest *g, enum egress_kind kind, int fd)
{
	struct listener *at = NULL;
	int type = 0, family = 0;
	const int on = 1;
	socklen_t size = sizeof type;
	(void)getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
	size = sizeof family;
	(void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
	for (int i = 0; i < LISTENERS; i++) {
		struct listener *l = &g->listeners[i];
		bool same = l->watch.fd >= 0 && l->kind == kind && l->type == type && l->family == family;
		if (same || (at == NULL && l->watch.fd < 0))
			at = l;
		if (same)
			break;
	}
	/* Whoever made it may have left it blocking, and one accept would hold everybody up. */
	bool waits = fcntl(fd, F_SETFL, O_NONBLOCK) != 0;
	if (waits || at == NULL || (type != SOCK_STREAM && (type != SOCK_DGRAM || kind != KIND_DNS))) {
		(void)close(fd);
		return -1;
	}
	unlisten(at);
	*at = (struct listener){ .watch = { .fd = fd, .on = on_listener },
		.guest = g,
		.pause = { .on = on_pause },
		.kind = kind,
		.type = type,
		.family = family };
	g->proxy->n_listeners++;
	if (type == SOCK_STREAM)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted ones inherit it */
	else if (family == AF_INET)
		(void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
	on_pause(&at->pause);
	return 0;
}

struct guest *guest_new(struct proxy *p, const struct store_policy *got)
{
	struct guest *g = xcalloc(1, sizeof *g);
	int64_t now = loop_now_ms(p->loop);
	g->proxy = p;
	g->grave.run = on_grave;
	memcpy(g->sandbox, got->sandbox, sizeof g->sandbox);
	for (int i = 0; i < LISTENERS; i++)
		g->listeners[i] = (struct listener){ .watch = { .fd = -1 }, .guest = g };
	g->refill.on = on_refill;
	g->spent.run = on_spent;
	g->bytes = (struct bucket){ p->o.bytes_s, now };
	g->requests = (struct bucket){ 2LL * p->o.requests_s, now };
	g->tells = (struct bucket){ TELLS, now };
	g->used_bytes = got->used_bytes;
	LIST_INSERT_HEAD(&p->guests[hash_slot(g->sandbox, GUEST_BUCKETS)], g, in_bucket);
	p->n_guests++;
	guest_policy(g, got);
	return g;
}

void guest_policy(struct guest *g, const struct store_policy *got)
{
	struct conn *c, *next;
	if (g->policy != NULL && got->version < g->version) /* answers of two questions may cross */
		return;
	policy_unref(g->policy);
	g->policy = policy_ref(got->policy);
	brokered_unref(g->brokered);
	g->brokered = brokered_ref(got->brokered);
	g->version = got->version;
	memcpy(g->org, got->org, sizeof g->org);
	memcpy(g->session, got->session, sizeof g->session);
	/* EGR-9: what stands and is no longer allowed is cut now. */
	for (c = LIST_FIRST(&g->conns); c != NULL; c = next) {
		next = LIST_NEXT(c, in_guest);
		if (c->passed && !decide_still(&g->proxy->site, g->policy, &c->d))
			conn_close(c, REASON_POLICY_CHANGED, true);
	}
}

void guest_free(struct guest *g, enum egress_reason why)
{
	struct proxy *p = g->proxy;
	cut_all(g, why);
	for (int i = 0; i < LISTENERS; i++)
		unlisten(&g->listeners[i]);
	loop_untimer(p->loop, &g->refill);
	policy_unref(g->policy);
	brokered_unref(g->brokered);
	LIST_REMOVE(g, in_bucket);
	p->n_guests--;
	loop_bury(p->loop, &g->grave);
}
