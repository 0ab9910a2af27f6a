#include "io/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct tls_client {
	SSL_CTX *ctx;
};

struct tls {
	SSL *ssl;
	bool wants_write;
};

struct tls_client *tls_client_new(const char *ca_file)
{
	struct tls_client *c = xcalloc(1, sizeof *c);
	c->ctx = SSL_CTX_new(TLS_client_method());
	bool good = c->ctx != NULL && SSL_CTX_set_min_proto_version(c->ctx, TLS1_2_VERSION) == 1 &&
	    (ca_file[0] != '\0' ? SSL_CTX_load_verify_locations(c->ctx, ca_file, NULL)
				: SSL_CTX_set_default_verify_paths(c->ctx)) == 1;
	ERR_clear_error();
	if (!good) {
		tls_client_free(c);
		return NULL;
	}
	SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
	/* A connection that is quiet holds no buffers. */
	(void)SSL_CTX_set_mode(c->ctx,
	    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
	(void)SSL_CTX_set_session_cache_mode(c->ctx, SSL_SESS_CACHE_OFF);
	return c;
}

void tls_client_free(struct tls_client *c)
{
	if (c == NULL)
		return;
	SSL_CTX_free(c->ctx);
	free(c);
}

/* The name it has to prove, and asks for. */
static bool expects(SSL *ssl, const struct host *host)
{
	static const unsigned char alpn[] = "\010http/1.1";
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
	if (SSL_set_alpn_protos(ssl, alpn, sizeof alpn - 1) != 0)
		return false;
	if (host->literal)
		return X509_VERIFY_PARAM_set1_ip_asc(param, host->name) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	char name[HOST_TEXT]; /* OpenSSL's macro takes the const away */
	memcpy(name, host->name, sizeof name);
	return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

struct tls *tls_new(struct tls_client *c, int fd, const struct host *host)
{
	struct tls *t = xcalloc(1, sizeof *t);
	t->ssl = SSL_new(c->ctx);
	if (t->ssl != NULL && expects(t->ssl, host) && SSL_set_fd(t->ssl, fd) == 1)
		return t;
	tls_free(t);
	return NULL;
}

void tls_free(struct tls *t)
{
	if (t == NULL)
		return;
	SSL_free(t->ssl);
	free(t);
}

/* After a call that did not succeed: errno, and what it waits for. */
static ssize_t waits(struct tls *t, int rc)
{
	int why = SSL_get_error(t->ssl, rc);
	t->wants_write = why == SSL_ERROR_WANT_WRITE;
	ERR_clear_error();
	if (why == SSL_ERROR_ZERO_RETURN)
		return 0;
	/* An end without notice may be somebody else's doing: an error, never an end. */
	errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
	return -1;
}

int tls_handshake(struct tls *t, char why[TLS_WHY])
{
	ERR_clear_error();
	t->wants_write = false;
	int rc = SSL_connect(t->ssl);
	if (rc == 1)
		return 1;
	long verdict = SSL_get_verify_result(t->ssl);
	if (waits(t, rc) < 0 && errno == EAGAIN)
		return 0;
	if (verdict != X509_V_OK)
		(void)snprintf(why, TLS_WHY, "its certificate is not accepted: %s",
		    X509_verify_cert_error_string(verdict));
	else
		(void)snprintf(why, TLS_WHY, "no TLS could be agreed on");
	return -1;
}

ssize_t tls_recv(struct tls *t, void *p, size_t n)
{
	size_t got = 0;
	ERR_clear_error();
	t->wants_write = false;
	int rc = SSL_read_ex(t->ssl, p, n, &got);
	return rc == 1 ? (ssize_t)got : waits(t, rc);
}

ssize_t tls_send(struct tls *t, const void *p, size_t n)
{
	size_t put = 0;
	ERR_clear_error();
	t->wants_write = false;
	int rc = SSL_write_ex(t->ssl, p, n, &put);
	if (rc == 1)
		return (ssize_t)put;
	if (waits(t, rc) == 0) /* closed by the peer */
		errno = EPIPE;
	return -1;
}

bool tls_wants_write(const struct tls *t)
{
	return t->wants_write;
}

bool tls_pending(const struct tls *t)
{
	return SSL_pending(t->ssl) > 0;
}

bool tls_silent(struct tls *t)
{
	char c;
	size_t got = 0;
	ERR_clear_error();
	int rc = SSL_peek_ex(t->ssl, &c, 1, &got);
	return rc != 1 && waits(t, rc) < 0 && errno == EAGAIN;
}
