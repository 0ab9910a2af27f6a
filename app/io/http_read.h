/* http_read.h - private to io/http*.c: an HTTP/1.1 answer as it comes (RFC 9112), piece by piece; pure, and bounded. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum http_step {
	HTTP_MORE, /* all was taken; more is to come */
	HTTP_HEAD, /* of the final answer: status and fields are set */
	HTTP_BODY, /* a piece of the body */
	HTTP_END,  /* the answer is whole; what is left in `in` is none of it */
	HTTP_BAD,  /* it is none */
};
enum { HTTP_LINE_BYTES = 16384, HTTP_HEAD_BYTES = 131072 };

struct http_read {
	int at;
	bool no_body;    /* it answers HEAD */
	struct buf line; /* the beginning of one that has not come whole */
	bool line_taken; /* it was made whole, and taken */
	size_t head_bytes;
	uint64_t left; /* of the body, or of its chunk */
	int status;
	bool closes;          /* the connection is of no more use afterwards */
	bool packed, foreign; /* Content-Encoding: one of ours, or another */
	bool chunked, sized;
	/* Of each the first, where it fits. */
	char content_type[80], location[512], retry_after[40], retry_after_ms[24];
};

struct http_read http_read_new(bool no_body);
void http_read_free(struct http_read *r);
/* Takes from the front of in. Call it until HTTP_MORE, HTTP_END or HTTP_BAD. *body is a part of in. */
enum http_step http_read_next(struct http_read *r, struct str *in, struct str *body);
/* The peer has closed: HTTP_END where an answer may end so, else HTTP_BAD. */
enum http_step http_read_closed(const struct http_read *r);
