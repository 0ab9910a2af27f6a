/*
 * jwks.h - a set of public keys (RFC 7517) for checking signatures: RSA of 2048 bits and more, and EC on P-256. Everything
 * else in a document is left out: other key types and curves, keys for something else (`use`, `key_ops`, `alg`), keys
 * without a `kid`, and every key of a `kid` that stands there twice.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum jwks_alg { JWKS_RS256, JWKS_ES256 };
enum jwks_verdict { JWKS_GOOD, JWKS_BAD, JWKS_NO_KEY };

struct jwks;
/* ERR_UPSTREAM when the text is no key set; one without a usable key is fine. */
struct jwks *jwks_parse(const char *text, size_t n, struct err *e);
void jwks_free(struct jwks *set); /* NULL is fine */
size_t jwks_count(const struct jwks *set);
/*
 * Is `sig` the signature of p[0..n) by the key `kid`, with exactly this algorithm? An ES256 signature is the 64 bytes r || s
 * (RFC 7518, 3.4). A key of another type than the algorithm's is JWKS_BAD, so that no key is used in a way it is not for.
 */
enum jwks_verdict jwks_verify(const struct jwks *set, const char *kid, enum jwks_alg alg, const void *p,
    size_t n, const unsigned char *sig, size_t sig_n);
