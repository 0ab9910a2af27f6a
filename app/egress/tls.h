/*
 * tls.h - TLS towards an origin, for requests that the proxy upgrades (EGR-8): the certificate is verified in full, for exactly
 * the host that was decided. Non-blocking, over a connected socket that stays the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/host.h"

struct tls_client; /* of the process */
struct tls;        /* one connection */

/* ca_file "": the system's certificates. */
struct tls_client *tls_client_new(const char *ca_file, struct err *e);
void tls_client_free(struct tls_client *c); /* NULL is fine */

struct tls *tls_new(struct tls_client *c, int fd, const struct host *host); /* NULL: no memory */
void tls_free(struct tls *t);
/* 1 when both sides agree, 0 under way, -1: it failed, and why is one sentence. */
int tls_handshake(struct tls *t, const char **why);
/* As recv and send: bytes, 0 at the end that the peer announced, -1 with errno; EAGAIN when the socket has to be waited for. */
ssize_t tls_recv(struct tls *t, void *p, size_t n);
ssize_t tls_send(struct tls *t, const void *p, size_t n);
bool tls_wants_write(const struct tls *t); /* the last call waits for the socket to take something */
bool tls_pending(const struct tls *t);     /* bytes were read from the socket and not handed out */
