/*
 * peers.h - for the gateway's benches: one upstream, and what stands beside us in front of it: nginx's proxy_pass and the npm package
 * @portkey-ai/gateway (BENCH_PORTKEY is its start script; bench.sh sees to it), each asked in plain HTTP and behind an nginx that
 * speaks TLS and HTTP/2 as ours does. And clients of all of them. Failures end the bench.
 */
#pragma once

#include "bench.h"
#include "fetch.h"

enum { PEERS_AT_ONCE = 16, PEERS_EVENTS = 102 };

/* Who is asked. */
enum peer {
	PEER_GATEHOUSE,
	PEER_PROXY,
	PEER_UPSTREAM,
	PEER_PORTKEY,
	PEER_PROXY_TLS,
	PEER_PORTKEY_TLS,
	PEERS
};
/* For what: a static answer, a static stream of PEERS_EVENTS events, or a stream of pace.h. */
enum ask { ASK_WHOLE, ASK_STREAM, ASK_PACED };

/* The upstream and who stands in front of it. What has TLS has the stack's certificate, so it comes after stack_up.
 * paced_port: where pace.h listens; 0: nobody is asked for ASK_PACED. */
void peers_start(int paced_port);
void peers_start_tls(const struct stack *s);
void peers_end(void);
int peers_upstream_port(void);
bool peers_have(enum peer p); /* portkey may not be there */
/* Providers of the org's that lead to the upstream: "whole", "stream" and "paced", each with the model "bench". */
void peers_providers(const struct stack *s, const struct stack_org *org);

/* n clients of one of them, each with a connection of its own, which ask `calls` times a round. */
struct target {
	struct stack at; /* only its address is used */
	char body[400];
	struct fetch *f[PEERS_AT_ONCE];
	int n, calls;
};
void target_open(struct target *t, enum peer p, enum ask ask, int n, int calls);
void target_close(struct target *t);
/* The side with its name, meters and round; it tells how long each call took where one client asks. */
void target_side(struct bench_side *s, enum peer p, struct target *t);
