/*
 * socks.h - SOCKS5 (RFC 1928) without authentication, CONNECT only, read from a buffer. Names are raw bytes and judged like
 * every other host; literals may come as addresses or as names.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "egress/reason.h"

enum { SOCKS_VERSION = 5, SOCKS_REPLY_BYTES = 10 };

enum socks_step { SOCKS_MORE, SOCKS_DONE, SOCKS_BAD };

/* The greeting at p[0..n). Send reply in both cases but SOCKS_MORE; SOCKS_BAD: then close. */
enum socks_step socks_greeting(const uint8_t *p, size_t n, size_t *used, uint8_t reply[2]);

struct socks_request {
	enum egress_reason reason; /* SOCKS_BAD */
	size_t used;               /* bytes of the request */
	struct host host;
	uint16_t port;
};
enum socks_step socks_read(struct socks_request *r, const uint8_t *p, size_t n);

/* The reply that tells a reason (REASON_OK and the other allowing ones: success); always SOCKS_REPLY_BYTES. */
void socks_reply(enum egress_reason reason, uint8_t out[SOCKS_REPLY_BYTES]);
