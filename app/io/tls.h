/*
 * tls.h - TLS 1.2 or later towards a server of HTTP/1.1: its certificate is verified in full, for exactly the host that was meant.
 * Non-blocking, over a connected socket that stays the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/host.h"

struct tls_client; /* what is trusted: once a process, as reading it takes time and memory */
struct tls;        /* one connection */

/* ca_file "": the system's certificates. NULL: they cannot be read. */
struct tls_client *tls_client_new(const char *ca_file);
void tls_client_free(struct tls_client *c); /* NULL is fine */

enum { TLS_WHY = 160 };

struct tls *tls_new(struct tls_client *c, int fd, const struct host *host); /* NULL: no memory */
void tls_free(struct tls *t);                                               /* NULL is fine */
/* 1 when both sides agree, 0 under way, -1: it failed, and why says it in words that may be shown to whoever names the host. */
int tls_handshake(struct tls *t, char why[TLS_WHY]);
/*
 * As recv and send: bytes, 0 at the end that the peer announced, -1 with errno; EAGAIN when the socket has to be waited for. What
 * follows EAGAIN of tls_send begins with the same bytes.
 */
ssize_t tls_recv(struct tls *t, void *p, size_t n);
ssize_t tls_send(struct tls *t, const void *p, size_t n);
bool tls_wants_write(const struct tls *t); /* the last call waits for the socket to take something */
bool tls_pending(const struct tls *t);     /* bytes were read from the socket and not handed out */
bool tls_silent(struct tls *t); /* the peer has neither ended it nor sent anything for us to read */
