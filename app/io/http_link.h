/*
 * http_link.h - private to io/http*.c: a connection of our own to an HTTP server, plain or TLS, and those that nobody uses and that
 * are kept for the next request to the same scheme, host and port. One belongs to one request at a time.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/host.h"
#include "io/http_int.h"
#include "io/tls.h"

enum { HTTP_LINK_WHY = TLS_WHY };

struct http_at {
	bool tls;
	uint16_t port;
	struct host host;
	const char *target; /* in the URL: path and query */
};
bool http_at_of(const char *url, struct http_at *at);

struct http_link;
/* One that was kept and that its peer has not closed by now; NULL: none. */
struct http_link *http_link_kept(const struct http_at *at);
/*
 * A new one, to the host's own address or those of q->pin, tried at once where one does not answer soon. NULL: *why, or where that is
 * HTTP_GOING text, says what happened.
 */
struct http_link *http_link_open(const struct http_req *q, const struct http_at *at, struct http_watch *w,
    enum http_ending *why, char text[HTTP_LINK_WHY]);
void http_link_keep(struct http_link *l); /* to whoever wants it next */
void http_link_free(struct http_link *l); /* NULL is fine */

/* Never wait: -1 with errno EAGAIN when they would; 0: closed by the peer. What follows http_link_send's EAGAIN is the same bytes. */
ssize_t http_link_recv(struct http_link *l, void *p, size_t n);
ssize_t http_link_send(struct http_link *l, const void *p, size_t n);
/* http_link_recv that waits for a byte, up to HTTP_ASK_MS: one call of the system where waiting and reading take two. */
ssize_t http_link_hear(struct http_link *l, void *p, size_t n);
/* Until it may go on, or ms. sends: there is something to send. False: nothing happened. */
bool http_link_wait(const struct http_link *l, bool sends, int ms);
/* Could there be more to read than the n bytes that a read of `room` gave? */
bool http_link_more(const struct http_link *l, size_t n, size_t room);
