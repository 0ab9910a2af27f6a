/*
 * proxy.h - private to app/egress: the proxy, the sandboxes whose listeners it holds ("guests"), and their connections. All of
 * it belongs to the loop's thread.
 *
 * proxy.c: life, settings, own addresses, metrics.   control.c: the socket sandboxd speaks to.   guest.c: listeners, policy,
 * limits.   conn.c: a connection from its first byte to its end, refusals.   dial.c: decision, resolution, connecting.
 * tunnel.c: ClientHello and relay.   exchange.c: plain HTTP requests and answers.   dns.c: names in transparent mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "egress/ask.h"
#include "egress/audit.h"
#include "egress/brokered.h"
#include "egress/decide.h"
#include "egress/egress.h"
#include "egress/head.h"
#include "egress/hello.h"
#include "egress/loop.h"
#include "egress/policy.h"
#include "egress/resolve.h"
#include "egress/store.h"
#include "io/tls.h"

enum {
	COPY_BYTES = 64 * 1024, /* the one copy buffer; also the most one connection moves in one round */
	GUEST_BUCKETS = 512,
	LISTENERS = 6, /* of one guest: proxy, http and tls, each perhaps for both families */
	FORMS = FORM_TRANSPARENT + 1,
};

#define OWNER(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

struct proxy {
	struct egress_opts o;
	struct loop *loop;
	struct resolver *resolver;
	struct audit *audit;
	struct store *store;
	struct control *control;
	struct tls_client *tls;
	struct ask *ask;
	struct pg_pool *db;
	struct egress_site site; /* the patterns are o's, the own addresses are ours */
	struct timer refresh;
	int64_t full_told_ms; /* when it was logged that nothing can be accepted */
	LIST_HEAD(, guest) guests[GUEST_BUCKETS];
	int n_guests, n_conns, n_listeners;
	int room;   /* connections that the descriptors are enough for */
	char *copy; /* COPY_BYTES, for whoever moves bytes at the moment */
	struct {
		long long decisions[REASONS_], closed[REASONS_], accepted;
		uint64_t out, in;
	} count;
};

struct listener {
	struct watch watch;
	struct guest *guest;
	struct timer pause; /* after a failed accept */
	enum egress_kind kind;
	int type, family; /* of the socket */
};

/* What may be spent: refilled every so often, never above full. */
struct bucket {
	int64_t left, at_ms;
};

enum guest_limit {
	LIMIT_CONNECTIONS,
	LIMIT_REQUESTS,
	LIMIT_RATE,
	LIMIT_BYTES,
	LIMIT_IDLE,
	LIMIT_TOTAL,
	GUEST_LIMITS
};

struct guest {
	struct proxy *proxy;
	struct later grave;
	LIST_ENTRY(guest) in_bucket;
	char sandbox[ID_MAX], org[LIMIT_ORG_SLUG + 1], session[ID_MAX];
	struct egress_policy *policy;
	struct brokered *brokered;
	long long version, applied; /* in force here; as PostgreSQL is told */
	struct listener listeners[LISTENERS];
	LIST_HEAD(, conn) conns;
	int n_conns;
	struct bucket bytes, requests, tells;
	struct timer refill;                 /* set while throttled */
	struct later spent;                  /* its bytes are used up */
	int64_t limit_told_ms[GUEST_LIMITS]; /* 0: never */
	bool throttled;
	uint64_t used_bytes; /* of the lease */
	int untold;          /* refusals that no event told */
};

enum conn_state {
	CONN_HEAD,  /* waiting for a request */
	CONN_JUDGE, /* for a name to be resolved */
	CONN_DIAL,  /* for the origin to accept */
	CONN_HELLO, /* for a tunnel's ClientHello; nothing has gone to the origin */
	CONN_TUNNEL,
	CONN_EXCHANGE,
	CONN_LINGER, /* the last word is said: what the client still sends is thrown away for a moment */
};

struct conn {
	struct watch client, server;
	struct timer timer;
	struct later grave;
	struct guest *guest;
	LIST_ENTRY(conn) in_guest;
	struct resolve_wait wait;
	struct ask_wait asking;
	struct ip *tries; /* screened addresses of the origin, the next at n_tried */
	struct hello *hello;
	struct head *head;   /* of a request whose head has begun */
	struct tls *tls;     /* towards the origin, of a request that is upgraded (EGR-8) */
	struct exchange *x;  /* of plain HTTP */
	struct buf in;       /* from the client, not yet understood */
	struct buf up, down; /* to be written to the origin, to the client */
	struct egress_decision d;
	int64_t since_ms, tried_ms, last_ms; /* of the decision, of dialling, of the last byte */
	uint64_t out, back;                  /* bytes since the decision: from the sandbox, to it */
	uint8_t state, kind, n_tries, n_tried, socks;
	bool passed;                 /* a decision row let it pass: a close row is owed */
	bool client_end, server_end; /* no more bytes come from there */
	bool up_shut, down_shut;     /* told so to the other side */
	bool draining;               /* one of the two */
	bool sniff;                  /* a tunnel whose client has not said anything yet */
	bool upgraded;               /* the present request goes on by TLS, with the org's credentials */
	bool reused;                 /* the origin's connection served a request before */
	bool doomed;                 /* on its way into the grave */
};

/* ---- guest.c */
struct guest *guest_find(struct proxy *p, const char *sandbox);
struct guest *guest_new(struct proxy *p, const struct store_policy *got);
/* Take over fd; one of that kind and type is replaced. -1 (fd closed) when there are too many. */
int guest_listen(struct guest *g, enum egress_kind kind, int fd);
void guest_policy(struct guest *g, const struct store_policy *got);
void guest_free(struct guest *g, enum egress_reason why); /* its connections are cut */
void guest_moved(struct guest *g, size_t n);              /* n bytes were moved for it */
bool guest_may_ask(struct guest *g);                      /* one more request within its rate */
/* The decision into the audit. REASON_NONE, or why nothing may pass: it could not be recorded. */
enum egress_reason guest_record(struct guest *g, const struct egress_decision *d);
void guest_limit(struct guest *g, enum guest_limit which); /* it was reached: an event, not too often */

/* ---- conn.c */
void conn_new(struct guest *g, enum egress_kind kind, int fd);
void conn_events(
    struct conn *c); /* ask for the events that its state wants; closes it when the kernel will not */
/* Refuse the request at hand in the language it came in, then close. The decision is recorded already. */
void conn_refuse(struct conn *c, enum egress_reason why);
void conn_refuse_bad(struct conn *c, enum egress_reason why); /* what is not a request: recorded as that */
void conn_close(struct conn *c, enum egress_reason why, bool reset);
void conn_finish(struct conn *c); /* the last answer is given: close when the client has it */
void conn_next(struct conn *c);   /* the answer is given and the connection kept: the next request */
void conn_passed_end(struct conn *c, enum egress_reason why); /* the close row of what was let pass */
void conn_deadline(struct conn *c, int64_t ms);               /* from now; what happens then is its state's */
void conn_moving(struct conn *c); /* bytes flow: silence and total time are bounded */
/* Write now what can be written, keep the rest. -1: the peer is gone. */
int conn_to_client(struct conn *c, const void *p, size_t n);
int conn_to_client2(struct conn *c, struct str a, struct str b);
int conn_to_server(struct conn *c, const void *p, size_t n);
int conn_flush_client(struct conn *c);
int conn_flush_server(struct conn *c);
ssize_t conn_recv_server(struct conn *c, void *p, size_t n); /* as recv */
void conn_close_server(struct conn *c);
/* Into c->in, up to `most` bytes there: how many came, 0 at the end, -1 with errno (ENOBUFS: no room). */
ssize_t conn_fill(struct conn *c, size_t most);

/* ---- dial.c */
/* A request for host:port is understood: decide, resolve, connect; then the tunnel or exchange begins, or it is refused. */
void dial(struct conn *c, enum egress_form form, const struct host *host, uint16_t port);
void dial_again(struct conn *c);   /* to the same address */
void dial_event(struct conn *c);   /* of the origin's socket in CONN_DIAL */
void dial_timeout(struct conn *c); /* the time of one address is up */

/* ---- tunnel.c */
void tunnel_begin(struct conn *c);
void tunnel_hello_event(struct conn *c);
void tunnel_transparent(struct conn *c); /* a fresh one whose ClientHello says where to (EGR-16) */
void tunnel_relay(struct conn *c);       /* what was read so far goes on, and everything after it */
void tunnel_client(struct conn *c, uint32_t events);
void tunnel_server(struct conn *c, uint32_t events);

/* ---- dns.c */
void dns_packets(struct listener *l); /* questions are waiting */
void dns_stream(struct conn *c);      /* the same over TCP, in c->in */

/* ---- exchange.c */
void exchange_begin(
    struct conn *c, const struct head *h); /* a head is read: it and what came with it is in c->in */
void exchange_connected(struct conn *c);
void exchange_client(struct conn *c, uint32_t events);
void exchange_server(struct conn *c, uint32_t events);
bool exchange_unanswered(const struct conn *c); /* all is said, and the origin is silent */
bool exchange_wants_body(const struct conn *c);
void exchange_free(struct conn *c);

/* ---- control.c */
struct control *control_new(struct proxy *p, struct err *e);
void control_free(struct control *c);
void control_policy(
    struct control *c, const struct store_policy *got, struct guest *g); /* answers who waits */

/* ---- proxy.c */
void proxy_metrics(struct proxy *p, struct buf *out);
