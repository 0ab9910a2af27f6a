/*
 * connect.h - the Connect protocol over HTTP with JSON messages, as a compatibility door speaks it (ECO-1): unary calls, and calls
 * that take one message and answer with a stream. https://connectrpc.com/docs/protocol
 * A message of a stream is an envelope: a flag byte, four bytes of length (big-endian), JSON. The last one has flag 2 and says how
 * it ended.
 */
#pragma once

#include "base/str.h"
#include "op/op.h"

enum { CONNECT_HEAD = 5, CONNECT_END = 2, CONNECT_COMPRESSED = 1 };

/* The first envelope of p[0..n): 1 with *flags and the message (inside p), 0 when more bytes are needed, -1 with e when its message
 * is longer than max_bytes. */
int connect_frame(
    const void *p, size_t n, size_t max_bytes, unsigned char *flags, struct str *message, struct err *e);

/* The one message of a streaming call, from the body of an OP_RAW_IN op. New reference, an object; NULL with e. */
json_t *connect_read(struct ctx *c, size_t max_bytes, struct err *e);
/* `Connect-Timeout-Ms`: 0 with *ms 0 when there is none, -1 with e when it is malformed. */
int connect_timeout(struct ctx *c, long long *ms, struct err *e);

/* The head of a stream, and its messages; connect_send takes the reference and flushes. -1 when the client is gone. */
int connect_begin(struct ctx *c);
int connect_send(struct ctx *c, json_t *message);
/* The last message, with the error (code ERR_NONE: none); begins the stream where that has not been done. */
void connect_end(struct ctx *c, const struct err *e);

/* The answer of a unary call that failed. */
void connect_refuse(struct ctx *c, const struct err *e);
/* The reason of an error that says: what the call was about is over. */
#define CONNECT_OVER "over"
/* What an error of ours is there. */
const char *connect_code(const struct err *e);
