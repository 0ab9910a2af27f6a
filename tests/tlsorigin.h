/* tlsorigin.h - an origin that speaks TLS with a certificate of its own, and writes down what it is asked. */
#pragma once

#include "base/buf.h"

struct tlsorigin;

/* On address:port; the certificate is for `name`, self-signed, written to ca_path as PEM. */
struct tlsorigin *tlsorigin_start(const char *address, int port, const char *name, const char *ca_path);
/* The same, and its certificate was good until an hour ago. */
struct tlsorigin *tlsorigin_expired(const char *address, int port, const char *name, const char *ca_path);
/* What such a server is made with, for another one; good for ends_s. Free with SSL_CTX_free. */
struct ssl_ctx_st *tlsorigin_ctx(const char *name, const char *ca_path, long ends_s);
void tlsorigin_seen(struct tlsorigin *o, struct buf *out); /* everything so far */
int tlsorigin_handshakes(const struct tlsorigin *o);
void tlsorigin_end(struct tlsorigin *o);
