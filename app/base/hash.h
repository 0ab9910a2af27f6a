/* hash.h - SHA-256, SipHash, random bytes, hex and base64 (RFC 4648); over OpenSSL where it is cryptography. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 };

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES]);
void sha256_hex(const void *p, size_t n, char out[SHA256_HEX]);

enum { SIPHASH_KEY = 16 };
/* SipHash-1-3 (Aumasson, Bernstein): the same for the same key on every host. No signature: 64 bits. */
uint64_t siphash(const unsigned char key[SIPHASH_KEY], const void *p, size_t n);
/*
 * Where s belongs in a table of so many slots, in this process: under a key of its own, so that nobody outside can choose names that
 * meet in one slot. Every table of the tree that is looked up by a name uses it, but those of hash_own.
 */
size_t hash_slot(const char *s, size_t slots);
/* FNV-1a, a tenth of the work: for tables of our own names (settings, routes), in which nobody from outside can put one. */
static inline uint32_t hash_own(const char *p, size_t n)
{
	uint32_t x = 2166136261u;
	for (size_t i = 0; i < n; i++)
		x = (x ^ (unsigned char)p[i]) * 16777619u;
	return x;
}

void random_bytes(void *p, size_t n); /* from the kernel; aborts when it has none */
/* As random, for what is no secret and made many times a second (ids, spans): the kernel is asked once for many of them. */
void random_some(void *p, size_t n);
void hex_encode(const void *p, size_t n, char *out);                /* 2n + 1 bytes */
ssize_t hex_decode(const char *s, unsigned char *out, size_t size); /* bytes written, or -1 */

/* b64_encode needs 4 * ((n + 2) / 3) + 1 bytes at out and returns the length without the NUL. */
size_t b64_encode(const void *p, size_t n, char *out);
#define B64_SIZE(n) (4 * (((n) + 2) / 3) + 1)
/* Strict: standard alphabet, padding required, nothing else. Bytes written (out holds at least 3 * n / 4), or -1. */
ssize_t b64_decode(const char *s, size_t n, unsigned char *out);
/* base64url without padding (RFC 7515, section 2), as strict: canonical, nothing else. Room as for b64_decode. */
ssize_t b64url_decode(const char *s, size_t n, unsigned char *out);
