/*
 * seal.h - secrets at rest (SEC-6): AES-256-GCM with keys from a file that only the service can read.
 * Text form "2:<key id>:<base64 nonce+tag+ciphertext>"; `what` (e.g. the run id) is authenticated with it, so that a sealed value
 * moved to another row does not open. "1:<base64>" is the form from before keys had ids; it still opens.
 *
 * The file holds 32 bytes, or lines of 64 hex digits ('#' begins a comment): the last line is the newest key and seals, all
 * open. A changed file is noticed at the next seal, and at an open that meets an unknown key id, also without a SIGHUP; it
 * adds keys. A key goes away by seal_forget only, after somebody has made sure that no row needs it (auth/reseal).
 * Any thread may call everything at any time, besides seal_free.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"

enum { SEAL_KEYS_MAX = 16, SEAL_ID = 9 /* 8 hex digits of a hash of the key, and a NUL */ };

struct seal_key;                                                 /* the keys of one file */
struct seal_key *seal_load(const char *key_file, struct err *e); /* mode must not be group/world readable */
void seal_free(struct seal_key *k);
char *seal(struct mem *m, const struct seal_key *k, const char *what, const struct secret *s);
struct secret *seal_open(const struct seal_key *k, const char *what, const char *text, struct err *e);

/* Read the file again; -1 with e keeps everything as it is. Keys that the file no longer has stay until seal_forget. */
int seal_reload(const struct seal_key *k, struct err *e);
struct seal_info {
	char id[SEAL_ID];
	bool in_file, newest;
};
/* The keys, oldest first; how many. */
int seal_list(const struct seal_key *k, struct seal_info out[2 * SEAL_KEYS_MAX]);
/* Forget a key that the file no longer has. */
void seal_forget(const struct seal_key *k, const char *id);
/* Overwrite a key's line in the file, in place (its directory need not be writable). Never the newest one's. */
int seal_drop(const struct seal_key *k, const char *id, struct err *e);
/*
 * A fingerprint of bytes that cannot be guessed at without the key: HMAC-SHA-256, of which 224 bits are kept, with a key derived
 * from a sealing key for `what`. Text form: key id, then the digits. Made with the newest key.
 */
enum { SEAL_MAC = 65 };
void seal_mac(const struct seal_key *k, const char *what, const void *p, size_t n, char out[SEAL_MAC]);
/* Is `text` the fingerprint of these bytes, with whichever key it was made? SEAL_MAC_LOST: that key is not there any more. */
enum seal_mac_verdict { SEAL_MAC_SAME, SEAL_MAC_OTHER, SEAL_MAC_LOST };
enum seal_mac_verdict seal_mac_is(
    const struct seal_key *k, const char *what, const void *p, size_t n, const char *text);
/* "2:<newest id>:", with which every value begins that needs no resealing. */
void seal_prefix(const struct seal_key *k, char out[SEAL_ID + 3]);
