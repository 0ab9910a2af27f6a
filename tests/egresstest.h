/*
 * egresstest.h - the real gatehouse-egress as a child of a test: a PostgreSQL and a DNS server of its own, a listener handed
 * over as sandboxd does, an origin that writes down what reaches it. Failures end the test (assertions).
 *
 * The sandbox is EGT_SANDBOX of the org `acme`, its session EGT_SESSION. a.origin.test and its like are what the test's DNS rows
 * say; EGRESS_ALLOW_INWARD_FOR lists .origin.test at the origin's port, so that loopback can be an origin.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "dnsserver.h"
#include "origin.h"
#include "pgtest.h"

#define EGT_SANDBOX "sbx_00000000000000000000000001"
#define EGT_SESSION "ses_00000000000000000000000001"

struct egtest {
	struct pgtest *pg;
	struct dnsserver *dns;
	struct origin *origin;
	char dir[64], socket[96], log[96];
	pid_t pid;
	int ctl;      /* the control connection */
	int listener; /* the sandbox's, ours as well as the proxy's */
	int port;     /* where it listens */
	const char *const *extra;
};

/* extra: further settings as KEY=value, ended by NULL; NULL for none. The policy is deny-all. */
void egt_start(struct egtest *t, const struct dns_row *rows, const char *const *extra);
/* The same in two steps; between them t->dir and the origin are there, and {DIR} in a setting will be the directory. */
void egt_prepare(struct egtest *t, const struct dns_row *rows, const char *const *extra);
void egt_begin(struct egtest *t);
void egt_end(struct egtest *t);
/* The process alone: ends (by signal), comes up again, is given the listener. */
void egt_kill(struct egtest *t, int sig);
void egt_up(struct egtest *t);
void egt_give(struct egtest *t);
/* Another sandbox with a listener of its own: its descriptor, and where it listens. */
int egt_sandbox(struct egtest *t, const char *id, const char *policy, int *port);
/* The policy as JSON; {P} is the origin's port. Returns when it is in force. */
void egt_policy(struct egtest *t, const char *policy);
void egt_sql(struct egtest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Waits until the statement's first column says so, at most 10 s. */
void egt_until(struct egtest *t, const char *sql, const char *value);

int egt_connect(int port); /* a blocking socket with a time limit of 10 s */
int egt_try(int port);     /* the same, or -1 when nobody listens */
void egt_say(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Everything until the peer ends or `until` has come; false when the time is up. */
bool egt_hear(int fd, struct buf *out, const char *until);
/* One request, and the whole answer until the proxy closes. */
void egt_ask(struct egtest *t, struct buf *answer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A tunnel to host:port, open: what the proxy said is checked to be 200. */
int egt_tunnel(struct egtest *t, const char *host, int port);
int egt_listener(int *port);             /* a fresh one on loopback */
long egt_cpu_ms(const struct egtest *t); /* processor time of the proxy so far */
int egt_fds(const struct egtest *t);     /* open descriptors of the proxy */
long egt_rss_kib(const struct egtest *t);
