/*
 * hello.h - the server name of a TLS ClientHello (EGR-7), read and not decrypted, across records (RFC 8446 5.1, RFC 6066 3).
 * The reader looks at the bytes that the caller has buffered to forward them; it keeps counters, and of the message only the
 * name. Nothing is passed on before HELLO_DONE.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "egress/policy.h"
#include "egress/reason.h"

enum {
	HELLO_MAX = 60 * 1024,     /* bytes of handshake message; browsers send 0.5 to 4 KiB */
	HELLO_RAW_MAX = 64 * 1024, /* bytes with record headers: what a caller buffers at most */
};

enum hello_step { HELLO_MORE, HELLO_DONE, HELLO_BAD };

struct hello {
	enum egress_reason reason; /* HELLO_BAD; and what is wrong so far */
	bool has_name, ech;
	char name[256]; /* of the host_name, as sent, when has_name */
	uint8_t name_n;
	/* the reader's own */
	size_t at;             /* raw bytes consumed */
	uint32_t seen, length; /* of the message: consumed, announced */
	uint32_t value, left;  /* of the number at hand, of the bytes to skip or keep */
	uint16_t record;       /* bytes left of the record */
	uint16_t list;         /* of the server_name extension */
	uint32_t exts;         /* bytes left of the extensions */
	uint8_t state, have, header;
	bool later, sni_seen; /* a record was taken */
};

/* p[0..n): everything received so far, from the first byte. A zeroed struct begins. The same answer however it is cut. */
enum hello_step hello_read(struct hello *h, const uint8_t *p, size_t n);
/* The client closed (fin), or nothing more comes: REASON_EOF inside a record, REASON_TIMEOUT between records. */
enum egress_reason hello_cut(const struct hello *h);
/* Of a whole hello: REASON_OK, or why the tunnel to host is closed. */
enum egress_reason hello_judge(
    const struct egress_site *site, const struct host *host, const struct hello *h);
