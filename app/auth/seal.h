/*
 * seal.h - secrets at rest (SEC-6): AES-256-GCM with a key from a file that only the service can read.
 * Text form "1:<base64 nonce+tag+ciphertext>"; `what` (e.g. the run id) is authenticated with it, so that a sealed value
 * moved to another row does not open.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"

struct seal_key;
struct seal_key *seal_load(const char *key_file,
    struct err *e); /* 32 bytes, or 64 hex digits; mode must not be group/world readable */
void seal_free(struct seal_key *k);
char *seal(struct mem *m, const struct seal_key *k, const char *what, const struct secret *s);
struct secret *seal_open(const struct seal_key *k, const char *what, const char *text, struct err *e);
