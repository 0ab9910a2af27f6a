/*
 * head.h - the head of a proxy request (RFC 9110, RFC 9112), read from a buffer without copying, and the head that is sent on.
 * Whatever two readers could understand differently is refused. Every result points into the caller's buffer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "base/str.h"
#include "egress/decide.h"
#include "egress/reason.h"

enum {
	HEAD_LINE_MAX = 16 * 1024, /* request line: 414 */
	HEAD_MAX = 32 * 1024,      /* whole head: 431 */
	HEAD_FIELDS_MAX = 128,     /* as received: 431. Host and Connection may be added to as many */
	HEAD_ADDED_MAX = 1024,     /* what head_forward may add to a head, besides host and credential */
};

enum head_step { HEAD_MORE, HEAD_DONE, HEAD_BAD };
enum head_body { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_TO_END /* answers only */ };

/* What the readers keep between calls, as offsets: the caller's buffer may move while it grows. */
struct head_scan {
	uint32_t at, scanned;        /* beginning of the line at hand; bytes looked at */
	uint32_t first, first_n;     /* the first line */
	uint32_t fields, fields_end; /* the field lines */
	uint32_t host, host_n;       /* value of Host */
	uint64_t length;
	uint16_t n_fields;
	bool line_done, has_host, has_cl, has_te, close, keep_alive, expect, proxy;
};

struct head {
	enum egress_reason reason; /* HEAD_BAD */
	size_t n;                  /* bytes of the head, its empty line and a skipped leading one included */
	enum egress_form form;     /* FORM_CONNECT or FORM_HTTP; FORM_TRANSPARENT where that is asked for */
	struct str method, path;   /* path: as sent, with its query; it may be empty or begin with '?' */
	struct str fields;         /* the field lines, each with its CRLF */
	struct host host;
	uint16_t port;
	uint8_t minor; /* of HTTP/1.x */
	bool keep;     /* the client's connection may carry another request */
	bool expect_continue;
	enum head_body body;
	uint64_t length; /* BODY_LENGTH */
	struct head_scan scan;
};

/*
 * p[0..n): everything received so far of this request, from its first byte; a zeroed struct begins. Each byte is looked at once
 * and the answer is the same however they were cut. Views are set at HEAD_DONE, into p.
 * transparent: the listener expects origin-form with a Host (EGR-16) and no proxy form; the port is 80 without one.
 */
enum head_step head_read(struct head *h, const char *p, size_t n, bool transparent);

/* Headers to be set whatever the client sent under their names (EGR-8), ended by one without a name; NULL: none. */
struct head_set {
	const char *name, *value;
};
/*
 * The request to the origin: origin-form, Host from the target, hop-by-hop fields and those that Connection names (framing and Host
 * excepted), Proxy-* and Forwarded-style fields left out, `Connection: close` or keep-alive as said. Bytes written, or 0 when it does not
 * fit: HEAD_MAX + HEAD_ADDED_MAX + what set holds is always enough.
 */
size_t head_forward(const struct head *h, const struct head_set *set, bool keep, char *out, size_t size);

/* ---- answers of origins */

struct head_answer {
	enum egress_reason reason; /* HEAD_BAD: REASON_UPSTREAM_BAD */
	size_t n;
	int status;
	struct str fields, phrase;
	uint8_t minor;
	bool keep; /* the origin's connection may carry another request */
	enum head_body body;
	uint64_t length;
	struct head_scan scan;
};

/* head_request: the request was HEAD, so the answer has no body. A 1xx (but 101) is followed by another head. */
enum head_step head_read_answer(struct head_answer *a, const char *p, size_t n, bool head_request);
/* The answer to the client: hop-by-hop fields left out. 0 when it does not fit. */
size_t head_forward_answer(const struct head_answer *a, bool keep, char *out, size_t size);

/* ---- chunked bodies: followed strictly while their bytes are passed on as they are */

struct head_chunks {
	uint64_t left; /* of the chunk at hand */
	uint32_t line; /* bytes of the line at hand, all trailers counted */
	uint8_t state, digits;
	char name[32]; /* of the trailer at hand */
	uint8_t name_n;
};

/*
 * Consumes up to n bytes of p; *used of them belong to the body. HEAD_DONE after the last one; HEAD_BAD is REASON_CHUNK_BAD. Read
 * what came with the head before anything is connected: a body that begins malformed then reaches nobody.
 */
enum head_step head_chunks(struct head_chunks *c, const char *p, size_t n, size_t *used);
