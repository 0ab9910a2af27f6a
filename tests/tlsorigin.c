#include "t.h"

#include "tlsorigin.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEEN_MAX = 1 << 20, BIG = 100000 };

struct tlsorigin {
	pthread_t thread;
	pthread_mutex_t lock;
	struct buf seen;
	SSL_CTX *ctx;
	int fd;
	_Atomic int handshakes;
};

struct ssl_ctx_st *tlsorigin_ctx(const char *name, const char *ca_path, long ends_s)
{
	char san[128];
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	X509_NAME *subject = X509_get_subject_name(x);
	(void)X509_set_version(x, X509_VERSION_3);
	(void)ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	(void)X509_gmtime_adj(X509_getm_notBefore(x), -7200);
	(void)X509_gmtime_adj(X509_getm_notAfter(x), ends_s);
	(void)X509_set_pubkey(x, key);
	(void)X509_NAME_add_entry_by_txt(
	    subject, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
	(void)X509_set_issuer_name(x, subject);
	(void)snprintf(san, sizeof san, "DNS:%s", name);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
	(void)X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	FILE *f = fopen(ca_path, "w");
	assert_non_null(f);
	assert_int_equal(PEM_write_X509(f, x), 1);
	(void)fclose(f);
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	assert_int_equal(SSL_CTX_use_certificate(ctx, x), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
	X509_free(x);
	EVP_PKEY_free(key);
	return ctx;
}

static int answer(struct tlsorigin *o, SSL *ssl, const char *head)
{
	static char body[BIG];
	char text[256];
	bool big = strstr(head, " /big") != NULL;
	const char *extra = strstr(head, " /redirect") != NULL ? "Location: http://a.origin.test/\r\n" : "";
	int n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", extra,
	    big ? BIG : 6, big ? "" : "secure");
	(void)pthread_mutex_lock(&o->lock);
	(void)buf_str(&o->seen, head);
	(void)pthread_mutex_unlock(&o->lock);
	return SSL_write(ssl, text, n) == n && (!big || SSL_write(ssl, body, BIG) == BIG) ? 0 : -1;
}

static void serve(struct tlsorigin *o, SSL *ssl)
{
	char head[16384];
	int n = 0;
	for (int k; (k = SSL_read(ssl, head + n, (int)sizeof head - 1 - n)) > 0;) {
		n += k;
		head[n] = '\0';
		if (strstr(head, "\r\n\r\n") == NULL)
			continue;
		if (answer(o, ssl, head) != 0)
			return;
		n = 0;
	}
}

static void *accepting(void *arg)
{
	struct tlsorigin *o = arg;
	for (int fd; (fd = accept4(o->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; (void)close(fd)) {
		SSL *ssl = SSL_new(o->ctx);
		if (SSL_set_fd(ssl, fd) == 1 && SSL_accept(ssl) == 1) {
			(void)atomic_fetch_add(&o->handshakes, 1);
			serve(o, ssl);
			(void)SSL_shutdown(ssl);
		}
		SSL_free(ssl);
	}
	return NULL;
}

static struct tlsorigin *start(
    const char *address, int port, const char *name, const char *ca_path, long ends_s)
{
	struct tlsorigin *o = xcalloc(1, sizeof *o);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	const int on = 1;
	assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
	o->seen = BUF(SEEN_MAX);
	(void)pthread_mutex_init(&o->lock, NULL);
	o->ctx = tlsorigin_ctx(name, ca_path, ends_s);
	o->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)setsockopt(o->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_int_equal(bind(o->fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(o->fd, 64), 0);
	assert_int_equal(pthread_create(&o->thread, NULL, accepting, o), 0);
	return o;
}

struct tlsorigin *tlsorigin_start(const char *address, int port, const char *name, const char *ca_path)
{
	return start(address, port, name, ca_path, 3600);
}

struct tlsorigin *tlsorigin_expired(const char *address, int port, const char *name, const char *ca_path)
{
	return start(address, port, name, ca_path, -3600);
}

void tlsorigin_seen(struct tlsorigin *o, struct buf *out)
{
	(void)pthread_mutex_lock(&o->lock);
	(void)buf_add(out, buf_c(&o->seen), o->seen.n);
	(void)pthread_mutex_unlock(&o->lock);
}

int tlsorigin_handshakes(const struct tlsorigin *o)
{
	return o->handshakes;
}

/* After its clients: an open connection is served to its end. */
void tlsorigin_end(struct tlsorigin *o)
{
	(void)shutdown(o->fd, SHUT_RDWR);
	(void)pthread_join(o->thread, NULL);
	(void)close(o->fd);
	SSL_CTX_free(o->ctx);
	buf_free(&o->seen);
	(void)pthread_mutex_destroy(&o->lock);
	free(o);
}
