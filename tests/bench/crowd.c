#include "../t.h"

#include "crowd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { CONNECTORS = 4, EVENTS = 256, PIECE = 16 * 1024 };
static const char mark[] = "\"seq\":"; /* once in each event's line, and in nothing else */

struct watcher {
	int fd;
	SSL *ssl;
	int lines;
	unsigned matched; /* of mark, across reads */
};
struct crowd {
	SSL_CTX *tls;
	int epoll, n, deaf, port;
	char request[512];
	struct watcher w[];
};
struct share {
	struct crowd *c;
	int from, to;
};

/* Nothing is lost that comes with the head: a session is told from its last event on. */
static void read_head(struct watcher *w)
{
	char text[4096];
	size_t n = 0;
	while (n < sizeof text - 1) {
		int got = SSL_read(w->ssl, text + n, (int)(sizeof text - 1 - n));
		assert_true(got > 0);
		n += (size_t)got;
		text[n] = 0;
		if (strstr(text, "\r\n\r\n") != NULL)
			break;
	}
	if (strncmp(text, "HTTP/1.1 200", 12) != 0)
		fail_msg("a watcher was answered: %.200s", text);
}

static void watcher_open(struct crowd *c, struct watcher *w)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)c->port) };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(w->fd >= 0);
	assert_int_equal(connect(w->fd, (const struct sockaddr *)&a, sizeof a), 0);
	/* The last word of the handshake and the request are two small writes. */
	assert_int_equal(setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)), 0);
	w->ssl = SSL_new(c->tls);
	assert_non_null(w->ssl);
	assert_int_equal(SSL_set_fd(w->ssl, w->fd), 1);
	if (w != c->w)
		assert_int_equal(SSL_set_session(w->ssl, SSL_get_session(c->w[0].ssl)), 1);
	assert_int_equal(SSL_connect(w->ssl), 1);
	assert_true(SSL_write(w->ssl, c->request, (int)strlen(c->request)) > 0);
	read_head(w);
	assert_int_equal(fcntl(w->fd, F_SETFL, O_NONBLOCK), 0);
}

static void *open_share(void *arg)
{
	const struct share *s = arg;
	for (int i = s->from; i < s->to; i++)
		watcher_open(s->c, &s->c->w[i]);
	return NULL;
}

struct crowd *crowd_new(const struct stack *s, const char *key, const char *session, int n, int deaf)
{
	struct crowd *c = xcalloc(1, sizeof *c + (size_t)n * sizeof c->w[0]);
	c->n = n;
	c->deaf = deaf;
	c->port = (int)strtol(strrchr(s->url[0], ':') + 1, NULL, 10);
	/* 1.0: without chunks, whose sizes would stand in the middle of what is looked for. */
	(void)snprintf(c->request, sizeof c->request,
	    "GET /v1/agents/sessions/%s/stream HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
	    "%s\r\n\r\n",
	    session, key);
	c->tls = SSL_CTX_new(TLS_client_method());
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_true(
	    c->tls != NULL && c->epoll >= 0 && SSL_CTX_load_verify_locations(c->tls, s->ca, NULL) == 1);
	SSL_CTX_set_verify(c->tls, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_mode(c->tls, SSL_MODE_RELEASE_BUFFERS);
	/* One session for all of them, which only 1.2 allows: ten thousand whole handshakes would take a minute and measure nothing. */
	assert_int_equal(SSL_CTX_set_max_proto_version(c->tls, TLS1_2_VERSION), 1);
	watcher_open(c, &c->w[0]);
	pthread_t threads[CONNECTORS];
	struct share shares[CONNECTORS];
	for (int i = 0; i < CONNECTORS; i++) {
		shares[i] = (struct share){ c, 1 + (n - 1) * i / CONNECTORS,
			1 + (n - 1) * (i + 1) / CONNECTORS };
		assert_int_equal(pthread_create(&threads[i], NULL, open_share, &shares[i]), 0);
	}
	for (int i = 0; i < CONNECTORS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = deaf; i < n; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &c->w[i] };
		assert_int_equal(epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->w[i].fd, &ev), 0);
	}
	return c;
}

void crowd_free(struct crowd *c)
{
	for (int i = 0; i < c->n; i++) {
		SSL_free(c->w[i].ssl);
		(void)close(c->w[i].fd);
	}
	(void)close(c->epoll);
	SSL_CTX_free(c->tls);
	free(c);
}

static void count(struct watcher *w, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		w->matched = p[i] == mark[w->matched] ? w->matched + 1 : p[i] == mark[0] ? 1 : 0;
		if (mark[w->matched] == 0) {
			w->lines++;
			w->matched = 0;
		}
	}
}

static void hear(struct watcher *w)
{
	char piece[PIECE];
	int got;
	while ((got = SSL_read(w->ssl, piece, sizeof piece)) > 0)
		count(w, piece, (size_t)got);
	if (SSL_get_error(w->ssl, got) != SSL_ERROR_WANT_READ)
		fail_msg("a watcher's stream ended");
}

int crowd_read(struct crowd *c, int lines, int wait_ms)
{
	int64_t deadline = clock_ms() + wait_ms;
	int done = 0;
	for (int i = c->deaf; i < c->n; i++)
		done += c->w[i].lines >= lines;
	while (done < c->n - c->deaf && clock_left_ms(deadline) > 0) {
		struct epoll_event ev[EVENTS];
		int n = epoll_wait(c->epoll, ev, EVENTS, clock_left_ms(deadline));
		assert_true(n >= 0 || errno == EINTR);
		for (int i = 0; i < n; i++) {
			struct watcher *w = ev[i].data.ptr;
			bool was = w->lines >= lines;
			hear(w);
			done += !was && w->lines >= lines;
		}
	}
	return done;
}
