/*
 * billing.h - an organisation's billing service for tests, on one port of localhost: a function of the test's says what it answers. It
 * has the files that its clients are given: its key, and with TLS the certificate that they are to trust. Failures end the test.
 */
#pragma once

#include <stddef.h>

#include "base/buf.h"

#define BILLING_KEY "the-key"

/*
 * One whole request, of which `head` bytes are its head, blank line included; the bytes of the answer into out: billing_say, or nothing,
 * and the connection is closed without a word. Called by one thread, one request after the other; it may take its time.
 */
typedef void billing_fn(const struct buf *request, size_t head, struct buf *out);
struct billing;
struct billing *billing_start(bool tls, billing_fn *answer);
void billing_end(struct billing *b);
/* "http://127.0.0.1:port" or "https://localhost:port", and the path. */
const char *billing_url(struct billing *b, const char *path);
const char *billing_key_file(const struct billing *b); /* 0600, the test's own user's */
const char *billing_ca_file(const struct billing *b);  /* with TLS only */
/* Let this user, by name, have the key file. */
void billing_for(const struct billing *b, const char *user);
/* An answer: status as "200 OK". */
void billing_say(struct buf *out, const char *status, const char *body);
/* What stands behind `name` in the request's first line, up to the next parameter. */
void billing_value(const struct buf *request, const char *name, char out[64]);
bool billing_authorised(const struct buf *request);
