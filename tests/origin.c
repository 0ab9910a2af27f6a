#include "t.h"

#include "origin.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SEEN_MAX = 8 << 20, HEAD_BYTES = 256 * 1024, STACK = 128 * 1024, WAIT_S = 60 };

struct origin {
	pthread_t thread;
	pthread_mutex_t lock;
	struct buf seen;
	int fd, port;
	_Atomic int accepted, open;
	_Atomic bool over;
};

struct served {
	struct origin *o;
	int fd;
	struct buf in;
	bool yes; /* the body asks for a host yes.… (/decide) */
};

static void noted(struct origin *o, const void *p, size_t n)
{
	(void)pthread_mutex_lock(&o->lock);
	if (o->seen.n + n < SEEN_MAX)
		(void)buf_add(&o->seen, p, n);
	(void)pthread_mutex_unlock(&o->lock);
}

static ssize_t more(struct served *s)
{
	char *to = buf_room(&s->in, 16384);
	ssize_t n = to == NULL ? -1 : recv(s->fd, to, 16384, 0);
	if (n > 0) {
		noted(s->o, to, (size_t)n);
		buf_grew(&s->in, (size_t)n);
	}
	return n;
}

static int say(struct served *s, const char *text)
{
	return send(s->fd, text, strlen(text), MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static long query(const char *path, const char *name)
{
	const char *at = strstr(path, name);
	return at == NULL ? 0 : atol(at + strlen(name));
}

static int big(struct served *s, long n)
{
	static char block[65536];
	char head[128];
	(void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", n);
	if (say(s, head) != 0)
		return -1;
	for (; n > 0;) {
		ssize_t k = send(
		    s->fd, block, n < (long)sizeof block ? (size_t)n : sizeof block, MSG_NOSIGNAL);
		if (k <= 0)
			return -1;
		n -= k;
	}
	return 0;
}

/* Fields without an end: until the reader has enough. */
static int headers(struct served *s)
{
	char line[1024];
	memset(line, 'a', sizeof line);
	memcpy(line, "X-Long: ", 8);
	memcpy(line + sizeof line - 2, "\r\n", 2);
	if (say(s, "HTTP/1.1 200 OK\r\n") != 0)
		return -1;
	for (long i = 0; i < 1024 * 1024; i++)
		if (send(s->fd, line, sizeof line, MSG_NOSIGNAL) < 0)
			return -1;
	return -1;
}

static void hold(struct served *s)
{
	while (more(s) > 0)
		s->in.n = 0;
}

static int misdeed(struct served *s, const char *path)
{
	static const struct {
		const char *path, *answer;
		bool keep;
	} texts[] = {
		{ "/early", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf-", false },
		{ "/chunked",
		    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n "
		    "world\r\n0\r\n\r\n",
		    true },
		{ "/bad-chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
		    false },
		{ "/to-end", "HTTP/1.1 200 OK\r\n\r\nuntil the end", false },
		{ "/two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		    false },
		{ "/both",
		    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		    false },
		{ "/junk", "220 mail.example ESMTP\r\n", false },
		{ "/101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", false },
		{ "/more",
		    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: "
		    "4\r\n\r\nevil",
		    true },
		{ "/none", "", false },
		{ "/redirect",
		    "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nContent-Length: 0\r\n\r\n",
		    true },
	};
	if (strncmp(path, "/silent", 7) == 0) {
		hold(s);
		return -1;
	}
	if (strncmp(path, "/headers", 8) == 0)
		return headers(s);
	if (strncmp(path, "/big", 4) == 0)
		return big(s, query(path, "n="));
	if (strncmp(path, "/decide", 7) == 0)
		return say(s,
		    s->yes ? "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"allow\":true}"
			   : "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"allow\":false}");
	if (strncmp(path, "/slow", 5) == 0)
		(void)usleep((unsigned)query(path, "ms=") * 1000);
	if (strncmp(path, "/100", 4) == 0)
		(void)say(s, "HTTP/1.1 100 Continue\r\n\r\n");
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (strncmp(path, texts[i].path, strlen(texts[i].path)) == 0)
			return say(s, texts[i].answer) == 0 && texts[i].keep ? 0 : -1;
	return 1;
}

/* The body's length, or until its last chunk; the tests' own requests are well formed when they get here. */
static bool body(struct served *s, const char *head, size_t head_n)
{
	const char *length = strcasestr(head, "\r\nContent-Length:");
	size_t want = length == NULL ? 0 : (size_t)atol(length + 17);
	bool chunked = strcasestr(head, "\r\nTransfer-Encoding:") != NULL;
	for (;;) {
		if (!chunked && s->in.n >= head_n + want)
			break;
		if (chunked && s->in.n >= head_n + 5 &&
		    memmem(s->in.p + head_n, s->in.n - head_n, "0\r\n\r\n", 5) != NULL) {
			want = s->in.n - head_n;
			break;
		}
		if (more(s) <= 0)
			return false;
	}
	s->yes = memmem(s->in.p + head_n, want, "\"host\":\"yes.", 12) != NULL;
	buf_drop(&s->in, head_n + want);
	return true;
}

static int http(struct served *s)
{
	const char *end;
	while ((end = s->in.n < 4 ? NULL : memmem(s->in.p, s->in.n, "\r\n\r\n", 4)) == NULL)
		if (s->in.n > HEAD_BYTES || more(s) <= 0)
			return -1;
	size_t n = (size_t)(end + 4 - s->in.p);
	auto_free char *head = strndup(s->in.p, n);
	char method[16] = "", path[512] = "";
	(void)sscanf(head, "%15s %511s", method, path);
	if (!body(s, head, n))
		return -1;
	int rc = misdeed(s, path);
	if (rc <= 0)
		return rc;
	if (strcmp(method, "HEAD") == 0)
		return say(s, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
	return say(s,
	    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\nX-Origin: "
	    "yes\r\n\r\norigin");
}

static void echo(struct served *s)
{
	const struct linger now = { .l_onoff = 1 };
	if (s->in.p[0] == '!')
		(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	if (s->in.p[0] == '!' || s->in.p[0] == '~')
		return;
	while (s->in.p[0] == '#' && !atomic_load(&s->o->over))
		(void)usleep(20000);
	do {
		if (send(s->fd, s->in.p, s->in.n, MSG_NOSIGNAL) < 0)
			return;
		s->in.n = 0;
	} while (more(s) > 0);
}

static bool is_http(const struct served *s)
{
	static const char *const methods[] = { "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS " };
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (s->in.n >= strlen(methods[i]) && memcmp(s->in.p, methods[i], strlen(methods[i])) == 0)
			return true;
	return false;
}

static void *serve(void *arg)
{
	struct served *s = arg;
	if (more(s) > 0) {
		if (!is_http(s))
			echo(s);
		else
			while (http(s) == 0 && (s->in.n > 0 || more(s) > 0))
				continue;
	}
	(void)close(s->fd);
	buf_free(&s->in);
	(void)atomic_fetch_sub(&s->o->open, 1);
	free(s);
	return NULL;
}

static void *accepting(void *arg)
{
	struct origin *o = arg;
	const struct timeval wait = { .tv_sec = WAIT_S };
	const int on = 1;
	pthread_attr_t attr;
	pthread_t thread;
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept4(o->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			break;
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		(void)atomic_fetch_add(&o->accepted, 1);
		(void)atomic_fetch_add(&o->open, 1);
		struct served *s = xcalloc(1, sizeof *s);
		*s = (struct served){ .o = o, .fd = fd, .in = BUF(SEEN_MAX) };
		assert_int_equal(pthread_create(&thread, &attr, serve, s), 0);
	}
	(void)pthread_attr_destroy(&attr);
	return NULL;
}

struct origin *origin_start(void)
{
	struct origin *o = xcalloc(1, sizeof *o);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof a;
	o->seen = BUF(SEEN_MAX);
	(void)pthread_mutex_init(&o->lock, NULL);
	o->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(o->fd, (struct sockaddr *)&a, size), 0);
	assert_int_equal(listen(o->fd, 4096), 0);
	assert_int_equal(getsockname(o->fd, (struct sockaddr *)&a, &size), 0);
	o->port = ntohs(a.sin_port);
	assert_int_equal(pthread_create(&o->thread, NULL, accepting, o), 0);
	return o;
}

int origin_port(const struct origin *o)
{
	return o->port;
}

void origin_seen(struct origin *o, struct buf *out)
{
	(void)pthread_mutex_lock(&o->lock);
	(void)buf_add(out, buf_c(&o->seen), o->seen.n);
	(void)pthread_mutex_unlock(&o->lock);
}

void origin_forget(struct origin *o)
{
	(void)pthread_mutex_lock(&o->lock);
	buf_reset(&o->seen);
	(void)pthread_mutex_unlock(&o->lock);
}

int origin_accepted(const struct origin *o)
{
	return o->accepted;
}

int origin_open(const struct origin *o)
{
	return o->open;
}

void origin_end(struct origin *o)
{
	atomic_store(&o->over, true);
	(void)shutdown(o->fd, SHUT_RDWR);
	(void)pthread_join(o->thread, NULL);
	(void)close(o->fd);
	for (int i = 0; i < 500 && atomic_load(&o->open) > 0; i++)
		(void)usleep(20000);
	assert_int_equal(o->open, 0);
	buf_free(&o->seen);
	(void)pthread_mutex_destroy(&o->lock);
	free(o);
}
