#include "base/hash.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/secret.h"

/* OpenSSL looks an algorithm up by its name, which takes longer than hashing a key: once is enough. */
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_md;

static void sha256_fetch(void)
{
	sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (sha256_md == NULL)
		abort();
}

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
	(void)pthread_once(&sha256_once, sha256_fetch);
	if (EVP_Digest(p, n, out, NULL, sha256_md, NULL) != 1)
		abort();
}

void hex_encode(const void *p, size_t n, char *out)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *b = p;
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = hex[b[i] >> 4];
		out[2 * i + 1] = hex[b[i] & 15];
	}
	out[2 * n] = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

ssize_t hex_decode(const char *s, unsigned char *out, size_t size)
{
	size_t n = strlen(s);
	if (n % 2 != 0 || n / 2 > size)
		return -1;
	for (size_t i = 0; i < n / 2; i++) {
		int hi = hex_digit(s[2 * i]), lo = hex_digit(s[2 * i + 1]);
		if (hi < 0 || lo < 0)
			return -1;
		out[i] = (unsigned char)(hi << 4 | lo);
	}
	return (ssize_t)(n / 2);
}

void sha256_hex(const void *p, size_t n, char out[SHA256_HEX])
{
	unsigned char sum[SHA256_BYTES];
	sha256(p, n, sum);
	hex_encode(sum, sizeof sum, out);
}

void random_bytes(void *p, size_t n)
{
	unsigned char *to = p;
	while (n > 0) {
		ssize_t got = getrandom(to, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			abort();
		to += got;
		n -= (size_t)got;
	}
}

/* What was drawn and not handed out. A child begins without: it would hand out the same. */
enum { STORE_BYTES = 512 };
static struct {
	pthread_mutex_t lock;
	unsigned char bytes[STORE_BYTES];
	size_t left;
} store = { .lock = PTHREAD_MUTEX_INITIALIZER };
static pthread_once_t store_once = PTHREAD_ONCE_INIT;

static void store_lock(void)
{
	(void)pthread_mutex_lock(&store.lock);
}

static void store_unlock(void)
{
	(void)pthread_mutex_unlock(&store.lock);
}

static void store_empty(void)
{
	store.left = 0;
	store_unlock();
}

static void store_setup(void)
{
	if (pthread_atfork(store_lock, store_unlock, store_empty) != 0)
		abort();
}

void random_some(void *p, size_t n)
{
	if (n > STORE_BYTES / 4) {
		random_bytes(p, n);
		return;
	}
	(void)pthread_once(&store_once, store_setup);
	store_lock();
	if (store.left < n) {
		random_bytes(store.bytes, sizeof store.bytes);
		store.left = sizeof store.bytes;
	}
	store.left -= n;
	memcpy(p, store.bytes + store.left, n);
	secret_wipe(store.bytes + store.left, n);
	store_unlock();
}

/* ---- SipHash-1-3 */

static uint64_t turned(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = turned(v[1], 13) ^ v[0];
	v[3] = turned(v[3], 16) ^ v[2];
	v[0] = turned(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = turned(v[1], 17) ^ v[2];
	v[3] = turned(v[3], 21) ^ v[0];
	v[2] = turned(v[2], 32);
}

/* n <= 8 bytes, the first the least. */
static uint64_t little(const unsigned char *p, size_t n)
{
	uint64_t x = 0;
	memcpy(&x, p, n);
	return le64toh(x);
}

uint64_t siphash(const unsigned char key[SIPHASH_KEY], const void *p, size_t n)
{
	const unsigned char *at = p;
	uint64_t k0 = little(key, 8), k1 = little(key + 8, 8);
	uint64_t v[4] = { k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
		k1 ^ 0x7465646279746573 };
	for (size_t left = n;; left -= 8, at += 8) {
		uint64_t m = left >= 8 ? little(at, 8) : little(at, left) | (uint64_t)n << 56;
		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
		if (left < 8)
			break;
	}
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The module's one piece of state. */
static unsigned char slot_key[SIPHASH_KEY];
static pthread_once_t slot_once = PTHREAD_ONCE_INIT;

static void slot_setup(void)
{
	random_bytes(slot_key, sizeof slot_key);
}

size_t hash_slot(const char *s, size_t slots)
{
	(void)pthread_once(&slot_once, slot_setup);
	return siphash(slot_key, s, strlen(s)) % slots;
}

/* ---- base64 */

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t b64_encode(const void *p, size_t n, char *out)
{
	const unsigned char *b = p;
	size_t o = 0;
	for (size_t i = 0; i < n; i += 3) {
		size_t have = n - i < 3 ? n - i : 3;
		uint32_t v = (uint32_t)b[i] << 16;
		if (have > 1)
			v |= (uint32_t)b[i + 1] << 8;
		if (have > 2)
			v |= b[i + 2];
		out[o++] = b64[v >> 18];
		out[o++] = b64[v >> 12 & 63];
		out[o++] = have > 1 ? b64[v >> 6 & 63] : '=';
		out[o++] = have > 2 ? b64[v & 63] : '=';
	}
	out[o] = 0;
	return o;
}

static int b64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ssize_t b64_decode(const char *s, size_t n, unsigned char *out)
{
	if (n % 4 != 0)
		return -1;
	size_t o = 0;
	for (size_t i = 0; i < n; i += 4) {
		size_t pad = 0;
		if (i + 4 == n)
			pad = s[i + 2] == '=' && s[i + 3] == '=' ? 2 : s[i + 3] == '=' ? 1 : 0;
		uint32_t v = 0;
		for (size_t k = 0; k < 4; k++) {
			int d = k < 4 - pad ? b64_digit(s[i + k]) : 0;
			if (d < 0)
				return -1;
			v = v << 6 | (uint32_t)d;
		}
		if ((pad == 1 && (v & 0xFF) != 0) || (pad == 2 && (v & 0xFFFF) != 0))
			return -1; /* bits that would be lost */
		out[o++] = (unsigned char)(v >> 16);
		if (pad < 2)
			out[o++] = (unsigned char)(v >> 8);
		if (pad < 1)
			out[o++] = (unsigned char)v;
	}
	return (ssize_t)o;
}

static int b64url_digit(char c)
{
	return c == '-' ? 62 : c == '_' ? 63 : c == '+' || c == '/' ? -1 : b64_digit(c);
}

ssize_t b64url_decode(const char *s, size_t n, unsigned char *out)
{
	size_t o = 0;
	uint32_t v = 0;
	unsigned bits = 0;
	if (n % 4 == 1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		int d = b64url_digit(s[i]);
		if (d < 0)
			return -1;
		v = (v << 6 | (uint32_t)d) & 0xFFFF;
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		out[o++] = (unsigned char)(v >> bits);
	}
	if ((v & ((1U << bits) - 1)) != 0)
		return -1; /* bits that would be lost */
	return (ssize_t)o;
}
