#include "t.h"

#include "issuer.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/rsa.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"

enum { EC_MAX = 66, RSA_SMALL_BITS = 1024, RSA_BITS = 2048, HELD_MAX = 64 };

/* ---- keys */

char *issuer_b64url(struct mem *m, const void *p, size_t n)
{
	char *text = mem_alloc(m, B64_SIZE(n));
	(void)b64_encode(p, n, text);
	for (char *c = text; *c != 0; c++)
		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
	text[strcspn(text, "=")] = 0;
	return text;
}

static void put_number(json_t *jwk, const char *name, const EVP_PKEY *key, const char *param, int bytes)
{
	BIGNUM *n = NULL;
	unsigned char raw[512];
	auto_mem struct mem *m = mem_new();
	assert_int_equal(EVP_PKEY_get_bn_param(key, param, &n), 1);
	if (bytes == 0)
		bytes = BN_num_bytes(n);
	assert_int_equal(BN_bn2binpad(n, raw, bytes), bytes);
	BN_free(n);
	js_set_str(jwk, name, issuer_b64url(m, raw, (size_t)bytes));
}

void issuer_key_make(struct issuer_key *k, enum issuer_key_type type, const char *kid)
{
	if (type == KEY_RSA || type == KEY_RSA_SMALL) {
		k->key = EVP_RSA_gen(type == KEY_RSA ? RSA_BITS : RSA_SMALL_BITS);
		k->jwk = js_pack(
		    "{s:s, s:s, s:s, s:s}", "kty", "RSA", "kid", kid, "use", "sig", "alg", "RS256");
		put_number(k->jwk, "n", k->key, OSSL_PKEY_PARAM_RSA_N, 0);
		put_number(k->jwk, "e", k->key, OSSL_PKEY_PARAM_RSA_E, 0);
		return;
	}
	int bytes = type == KEY_P256 ? 32 : 48;
	k->key = EVP_EC_gen(type == KEY_P256 ? "P-256" : "P-384");
	k->jwk = js_pack("{s:s, s:s, s:s, s:s}", "kty", "EC", "crv", type == KEY_P256 ? "P-256" : "P-384",
	    "kid", kid, "alg", type == KEY_P256 ? "ES256" : "ES384");
	put_number(k->jwk, "x", k->key, OSSL_PKEY_PARAM_EC_PUB_X, bytes);
	put_number(k->jwk, "y", k->key, OSSL_PKEY_PARAM_EC_PUB_Y, bytes);
}

void issuer_key_free(struct issuer_key *k)
{
	EVP_PKEY_free(k->key);
	json_decref(k->jwk);
	*k = (struct issuer_key){ 0 };
}

/* ---- tokens */

char *issuer_unsigned(struct mem *m, const json_t *head, const json_t *claims)
{
	const char *h = js_dump(m, head), *c = js_dump(m, claims);
	return mem_fmt(m, "%s.%s", issuer_b64url(m, h, strlen(h)), issuer_b64url(m, c, strlen(c)));
}

/* DER to r || s. */
static unsigned char *raw_ecdsa(
    struct mem *m, const struct issuer_key *k, const unsigned char *der, size_t *n)
{
	const unsigned char *at = der;
	int bytes = (EVP_PKEY_get_bits(k->key) + 7) / 8;
	unsigned char *out = mem_alloc(m, (size_t)(2 * EC_MAX));
	ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &at, (long)*n);
	assert_non_null(sig);
	assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, bytes), bytes);
	assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + bytes, bytes), bytes);
	ECDSA_SIG_free(sig);
	*n = (size_t)(2 * bytes);
	return out;
}

unsigned char *issuer_sign(struct mem *m, const struct issuer_key *k, const char *text, size_t *n)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	assert_int_equal(EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, k->key), 1);
	assert_int_equal(EVP_DigestSign(c, NULL, n, (const unsigned char *)text, strlen(text)), 1);
	unsigned char *sig = mem_alloc(m, *n);
	assert_int_equal(EVP_DigestSign(c, sig, n, (const unsigned char *)text, strlen(text)), 1);
	EVP_MD_CTX_free(c);
	return EVP_PKEY_is_a(k->key, "EC") ? raw_ecdsa(m, k, sig, n) : sig;
}

char *issuer_token(struct mem *m, const struct issuer_key *k, const json_t *head, const json_t *claims)
{
	size_t n;
	const char *text = issuer_unsigned(m, head, claims);
	const unsigned char *sig = issuer_sign(m, k, text, &n);
	return mem_fmt(m, "%s.%s", text, issuer_b64url(m, sig, n));
}

json_t *issuer_head(const struct issuer_key *k)
{
	return js_pack("{s:s, s:s, s:s}", "alg", EVP_PKEY_is_a(k->key, "EC") ? "ES256" : "RS256", "kid",
	    js_str(k->jwk, "kid"), "typ", "JWT");
}

json_t *issuer_claims(const char *iss, const char *aud, const char *org, const char *sub)
{
	json_int_t now = clock_wall_ms() / 1000;
	return js_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "iss", iss, "aud", aud, "org", org, "sub", sub,
	    "iat", now, "exp", now + 600);
}

/* ---- the server: one thread, one connection after the other, but for those that hang */

struct issuer_server {
	int fd, stop[2];
	pthread_t thread;
	char url[64];
	pthread_mutex_t lock;
	enum issuer_mode mode;
	json_t *jwks, *discovery;
	int asked;
	int held[HELD_MAX], n_held; /* of the thread */
};

static void answer(int fd, const char *status, const json_t *doc)
{
	auto_mem struct mem *m = mem_new();
	const char *body = doc == NULL ? "{}" : js_dump(m, doc);
	const char *text = mem_fmt(m,
	    "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: "
	    "close\r\n\r\n%s",
	    status, strlen(body), body);
	(void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void serve_one(struct issuer_server *s, int fd)
{
	char head[4096] = "";
	size_t n = 0;
	struct timeval limit = { .tv_sec = 5 };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	while (n < sizeof head - 1 && strstr(head, "\r\n\r\n") == NULL) {
		ssize_t got = recv(fd, head + n, sizeof head - 1 - n, 0);
		if (got <= 0)
			return;
		n += (size_t)got;
	}
	(void)pthread_mutex_lock(&s->lock);
	bool keys = strncmp(head, "GET /jwks ", 10) == 0;
	s->asked += keys;
	if (s->mode == ISSUER_FAILS)
		answer(fd, "500 Internal Server Error", NULL);
	else if (keys)
		answer(fd, "200 OK", s->jwks);
	else if (strncmp(head, "GET /.well-known/openid-configuration ", 38) == 0)
		answer(fd, "200 OK", s->discovery);
	else
		answer(fd, "404 Not Found", NULL);
	(void)pthread_mutex_unlock(&s->lock);
}

static void take(struct issuer_server *s, int fd)
{
	(void)pthread_mutex_lock(&s->lock);
	enum issuer_mode mode = s->mode;
	(void)pthread_mutex_unlock(&s->lock);
	if (mode == ISSUER_HANGS && s->n_held < HELD_MAX) {
		s->held[s->n_held++] = fd;
		return;
	}
	if (mode != ISSUER_DOWN)
		serve_one(s, fd);
	(void)close(fd);
}

static void *serve(void *arg)
{
	struct issuer_server *s = arg;
	struct pollfd p[2] = { { .fd = s->fd, .events = POLLIN }, { .fd = s->stop[0], .events = POLLIN } };
	while (poll(p, 2, -1) > 0 && p[1].revents == 0) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			take(s, fd);
	}
	for (int i = 0; i < s->n_held; i++)
		(void)close(s->held[i]);
	return NULL;
}

struct issuer_server *issuer_serve(void)
{
	struct issuer_server *s = xcalloc(1, sizeof *s);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(s->fd, 64), 0);
	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
	(void)snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(a.sin_port));
	assert_int_equal(pipe(s->stop), 0);
	(void)pthread_mutex_init(&s->lock, NULL);
	char keys[80];
	(void)snprintf(keys, sizeof keys, "%s/jwks", s->url);
	s->discovery = js_pack("{s:s, s:s}", "issuer", s->url, "jwks_uri", keys);
	s->jwks = js_pack("{s:[]}", "keys");
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
	return s;
}

void issuer_end(struct issuer_server *s)
{
	assert_int_equal(write(s->stop[1], "x", 1), 1);
	(void)pthread_join(s->thread, NULL);
	(void)close(s->fd);
	(void)close(s->stop[0]);
	(void)close(s->stop[1]);
	json_decref(s->jwks);
	json_decref(s->discovery);
	free(s);
}

const char *issuer_url(const struct issuer_server *s)
{
	return s->url;
}

void issuer_set_mode(struct issuer_server *s, enum issuer_mode mode)
{
	(void)pthread_mutex_lock(&s->lock);
	s->mode = mode;
	(void)pthread_mutex_unlock(&s->lock);
}

static void replace(struct issuer_server *s, json_t **what, json_t *by)
{
	(void)pthread_mutex_lock(&s->lock);
	json_decref(*what);
	*what = by;
	(void)pthread_mutex_unlock(&s->lock);
}

void issuer_publish(struct issuer_server *s, json_t *jwks)
{
	replace(s, &s->jwks, jwks);
}

void issuer_publish_keys(struct issuer_server *s, const struct issuer_key *first, ...)
{
	va_list more;
	json_t *keys = js_pack("[]");
	va_start(more, first);
	for (const struct issuer_key *k = first; k != NULL; k = va_arg(more, const struct issuer_key *))
		js_push(keys, json_deep_copy(k->jwk));
	va_end(more);
	issuer_publish(s, js_pack("{s:o}", "keys", keys));
}

void issuer_discovery(struct issuer_server *s, json_t *doc)
{
	replace(s, &s->discovery, doc);
}

int issuer_asked(struct issuer_server *s)
{
	(void)pthread_mutex_lock(&s->lock);
	int n = s->asked;
	(void)pthread_mutex_unlock(&s->lock);
	return n;
}
