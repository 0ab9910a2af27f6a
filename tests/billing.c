#include "t.h"

#include "billing.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "tlsorigin.h"

enum { REQUEST_BYTES = 1 << 20, ANSWER_BYTES = 1 << 16, SILENT_S = 10, DAY_S = 86400 };

struct billing {
	int fd;
	pthread_t thread;
	SSL_CTX *tls; /* or NULL */
	billing_fn *answer;
	char dir[64], key[96], ca[96], base[64], url[128];
};

static bool whole(const struct buf *b, size_t *head)
{
	const char *end = strstr(buf_c(b), "\r\n\r\n"), *length = strcasestr(buf_c(b), "\r\ncontent-length:");
	if (end == NULL)
		return false;
	*head = (size_t)(end - buf_c(b)) + 4;
	return b->n >=
	    *head + (length == NULL ? 0 : strtoul(length + strlen("\r\ncontent-length:"), NULL, 10));
}

static ssize_t hear(SSL *ssl, int fd, char *p, size_t n)
{
	return ssl != NULL ? SSL_read(ssl, p, (int)n) : read(fd, p, n);
}

static void serve_one(struct billing *b, SSL *ssl, int fd)
{
	auto_buf struct buf request = BUF(REQUEST_BYTES), out = BUF(ANSWER_BYTES);
	size_t head;
	char p[8192];
	while (!whole(&request, &head)) {
		ssize_t n = hear(ssl, fd, p, sizeof p);
		if (n <= 0 || buf_add(&request, p, (size_t)n) != 0)
			return;
	}
	b->answer(&request, head, &out);
	if (out.n == 0)
		return;
	if (ssl != NULL)
		(void)SSL_write(ssl, out.p, (int)out.n);
	else
		(void)send(fd, out.p, out.n, MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
	struct billing *b = arg;
	const struct timeval limit = { .tv_sec = SILENT_S };
	for (int fd; (fd = accept4(b->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; (void)close(fd)) {
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		SSL *ssl = b->tls == NULL ? NULL : SSL_new(b->tls);
		if (ssl == NULL || (SSL_set_fd(ssl, fd) == 1 && SSL_accept(ssl) == 1))
			serve_one(b, ssl, fd);
		SSL_free(ssl);
	}
	return NULL;
}

struct billing *billing_start(bool tls, billing_fn *answer)
{
	struct err e = { 0 };
	struct billing *b = xcalloc(1, sizeof *b);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof at;
	b->answer = answer;
	b->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(b->fd, (const struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(b->fd, 64), 0);
	assert_int_equal(getsockname(b->fd, (struct sockaddr *)&at, &n), 0);
	(void)snprintf(b->base, sizeof b->base, "%s:%d", tls ? "https://localhost" : "http://127.0.0.1",
	    ntohs(at.sin_port));
	assert_int_equal(file_tmpdir("/tmp", b->dir, sizeof b->dir, &e), 0);
	assert_int_equal(chmod(b->dir, 0755), 0);
	(void)snprintf(b->key, sizeof b->key, "%s/key", b->dir);
	(void)snprintf(b->ca, sizeof b->ca, "%s/ca.pem", b->dir);
	assert_int_equal(file_write(b->key, BILLING_KEY "\n", strlen(BILLING_KEY) + 1, 0600, &e), 0);
	if (tls) {
		b->tls = tlsorigin_ctx("localhost", b->ca, DAY_S);
		assert_int_equal(chmod(b->ca, 0644), 0);
	}
	assert_int_equal(pthread_create(&b->thread, NULL, serve, b), 0);
	return b;
}

void billing_end(struct billing *b)
{
	struct err e = { 0 };
	(void)shutdown(b->fd, SHUT_RDWR);
	(void)pthread_join(b->thread, NULL);
	(void)close(b->fd);
	SSL_CTX_free(b->tls);
	assert_int_equal(file_rmtree(b->dir, &e), 0);
	free(b);
}

const char *billing_url(struct billing *b, const char *path)
{
	(void)snprintf(b->url, sizeof b->url, "%s%s", b->base, path);
	return b->url;
}

const char *billing_key_file(const struct billing *b)
{
	return b->key;
}

const char *billing_ca_file(const struct billing *b)
{
	return b->ca;
}

void billing_for(const struct billing *b, const char *user)
{
	const struct passwd *pw = getpwnam(user);
	assert_non_null(pw);
	assert_int_equal(chown(b->key, pw->pw_uid, pw->pw_gid), 0);
}

void billing_say(struct buf *out, const char *status, const char *body)
{
	assert_int_equal(
	    buf_fmt(out, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status, strlen(body), body), 0);
}

void billing_value(const struct buf *request, const char *name, char out[64])
{
	size_t n = strcspn(buf_c(request), "\r\n");
	const char *at = strstr(buf_c(request), name);
	out[0] = 0;
	if (at != NULL && at < request->p + n)
		(void)snprintf(out, 64, "%.*s", (int)strcspn(at + strlen(name), "& \r\n"), at + strlen(name));
}

bool billing_authorised(const struct buf *request)
{
	return strstr(buf_c(request), "\r\nAuthorization: Bearer " BILLING_KEY "\r\n") != NULL;
}
