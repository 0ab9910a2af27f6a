/*
 * issuer.h - an identity provider for tests: keys made with OpenSSL, tokens signed with them, and a scripted server on
 * 127.0.0.1 that publishes a discovery document and a key set. Failures end the test.
 */
#pragma once

#include <jansson.h>
#include <openssl/evp.h>

#include "base/mem.h"

/* ---- keys and tokens */
enum issuer_key_type { KEY_RSA, KEY_RSA_SMALL, KEY_P256, KEY_P384 };
struct issuer_key {
	EVP_PKEY *key;
	json_t *jwk; /* public, with its kid; to be changed by a test */
};
void issuer_key_make(struct issuer_key *k, enum issuer_key_type type, const char *kid);
void issuer_key_free(struct issuer_key *k);

/* base64url of bytes. */
char *issuer_b64url(struct mem *m, const void *p, size_t n);
/* header.claims, not signed. */
char *issuer_unsigned(struct mem *m, const json_t *head, const json_t *claims);
/* The signature of text as JWS wants it: PKCS#1 for RSA, r || s for EC. */
unsigned char *issuer_sign(struct mem *m, const struct issuer_key *k, const char *text, size_t *n);
/* A whole token. */
char *issuer_token(struct mem *m, const struct issuer_key *k, const json_t *head, const json_t *claims);
/* The usual head for a key: its alg and kid. New reference. */
json_t *issuer_head(const struct issuer_key *k);
/* {iss, aud, sub, org, iat, exp in ten minutes}; new reference. */
json_t *issuer_claims(const char *iss, const char *aud, const char *org, const char *sub);

/* ---- the server */
enum issuer_mode {
	ISSUER_OK,
	ISSUER_DOWN,  /* connections are closed at once */
	ISSUER_HANGS, /* they are taken and nothing is said */
	ISSUER_FAILS, /* 500 */
};
struct issuer_server;
struct issuer_server *issuer_serve(void);
void issuer_end(struct issuer_server *s);
const char *issuer_url(const struct issuer_server *s); /* "http://127.0.0.1:port", the issuer's name too */
void issuer_set_mode(struct issuer_server *s, enum issuer_mode mode);
/* What /jwks answers: taken. For the keys of a list: issuer_publish_keys(s, &a, &b, NULL). */
void issuer_publish(struct issuer_server *s, json_t *jwks);
void issuer_publish_keys(struct issuer_server *s, const struct issuer_key *first, ...)
    __attribute__((sentinel));
/* The discovery document; taken. Without it: this issuer and its /jwks. */
void issuer_discovery(struct issuer_server *s, json_t *doc);
/* How often /jwks was asked for. */
int issuer_asked(struct issuer_server *s);
