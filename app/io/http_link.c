#include "io/http_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/tls.h"

enum {
	POOL_MAX = 128,
	IDLE_MS = 30000,
	ADDRESSES = 8,
	NEXT_MS = 250, /* RFC 8305, 5: before the next address is tried beside the one that does not answer */
};

struct http_link {
	int fd;
	struct tls *tls; /* NULL: plain */
	int64_t since_ms;
	struct http_at at; /* without target */
};

/* The module's state: connections that nobody uses, the newest last; and what TLS trusts, read once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct http_link *idle[POOL_MAX];
static int n_idle;
static pthread_once_t trust_once = PTHREAD_ONCE_INIT;
static struct tls_client *trust;

bool http_at_of(const char *url, struct http_at *at)
{
	bool clear = str_starts(url, "http://"), has_port;
	*at = (struct http_at){ .tls = !clear, .port = clear ? 80 : 443 };
	if (!clear && !str_starts(url, "https://"))
		return false;
	struct str authority = { url + (clear ? 7 : 8), 0 }, name, port;
	authority.n = strcspn(authority.p, "/?#");
	at->target = authority.p + authority.n;
	return at->target[0] == '/' && strpbrk(at->target, " #\r\n\t") == NULL &&
	    host_split(authority, &name, &port, &has_port) &&
	    host_canon(name, HOST_IN_AUTHORITY, &at->host) && (!has_port || host_port(port, &at->port));
}

void http_link_free(struct http_link *l)
{
	if (l == NULL)
		return;
	tls_free(l->tls);
	(void)close(l->fd);
	free(l);
}

/* ---- bytes */

ssize_t http_link_recv(struct http_link *l, void *p, size_t n)
{
	return l->tls != NULL ? tls_recv(l->tls, p, n) : recv(l->fd, p, n, MSG_DONTWAIT);
}

bool http_link_wait(const struct http_link *l, bool sends, int ms)
{
	bool out = l->tls != NULL ? tls_wants_write(l->tls) : sends;
	struct pollfd p = { .fd = l->fd, .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
	return poll(&p, 1, ms) > 0;
}

ssize_t http_link_hear(struct http_link *l, void *p, size_t n)
{
	if (l->tls == NULL)
		return recv(l->fd, p, n, 0);
	if (http_link_wait(l, false, HTTP_ASK_MS))
		return tls_recv(l->tls, p, n);
	errno = EAGAIN;
	return -1;
}

ssize_t http_link_send(struct http_link *l, const void *p, size_t n)
{
	return l->tls != NULL ? tls_send(l->tls, p, n) : send(l->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool http_link_more(const struct http_link *l, size_t n, size_t room)
{
	return l->tls != NULL ? tls_pending(l->tls) : n == room;
}

/* ---- those that are kept */

static bool same_origin(const struct http_at *a, const struct http_at *b)
{
	return a->tls == b->tls && a->port == b->port && host_equal(&a->host, &b->host);
}

static struct http_link *taken(const struct http_at *at)
{
	struct http_link *l = NULL;
	(void)pthread_mutex_lock(&lock);
	for (int i = n_idle - 1; i >= 0 && l == NULL; i--) {
		if (!same_origin(&idle[i]->at, at))
			continue;
		l = idle[i];
		memmove(&idle[i], &idle[i + 1], (size_t)(n_idle - i - 1) * sizeof idle[0]);
		n_idle--;
	}
	(void)pthread_mutex_unlock(&lock);
	return l;
}

/* Nobody has asked, so whatever is there to read is an end, or nothing that we want; TLS may have news of its own. */
static bool alive(struct http_link *l)
{
	char c;
	if (l->tls != NULL)
		return tls_silent(l->tls);
	return recv(l->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

struct http_link *http_link_kept(const struct http_at *at)
{
	struct http_link *l;
	while ((l = taken(at)) != NULL && !alive(l))
		http_link_free(l);
	return l;
}

void http_link_keep(struct http_link *l)
{
	struct http_link *old[POOL_MAX + 1];
	int n_old = 0, n = 0;
	l->since_ms = clock_ms();
	(void)pthread_mutex_lock(&lock);
	while (n < n_idle && (n_idle - n == POOL_MAX || l->since_ms - idle[n]->since_ms > IDLE_MS)) {
		old[n_old++] = idle[n++];
	}
	n_idle -= n;
	memmove(&idle[0], &idle[n], (size_t)n_idle * sizeof idle[0]);
	idle[n_idle++] = l;
	(void)pthread_mutex_unlock(&lock);
	for (int i = 0; i < n_old; i++)
		http_link_free(old[i]);
}

/* ---- a new one */

struct race {
	struct ip ip[ADDRESSES];
	struct pollfd fd[ADDRESSES];
	int n, begun, open;
	int64_t next_ms; /* when the next is begun although others are under way */
};

/* The addresses of "host:port:address,…", which reach_pin made, or the host's own. */
static void addresses(const struct http_req *q, const struct http_at *at, struct race *r)
{
	if (at->host.literal) {
		r->ip[r->n++] = at->host.ip;
		return;
	}
	const char *list = strchr(q->pin, ':');
	list = list == NULL ? NULL : strchr(list + 1, ':');
	struct str rest = str_of(list == NULL ? "" : list + 1), one;
	while (r->n < ADDRESSES && str_cut(&rest, ',', &one))
		if (addr_parse(one, &r->ip[r->n]))
			r->n++;
}

static int begin(const struct ip *ip, uint16_t port)
{
	struct sockaddr_storage a;
	socklen_t n = addr_to_sockaddr(ip, port, &a);
	int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, n) == 0 || errno == EINPROGRESS)
		return fd;
	(void)close(fd);
	return -1;
}

static void begin_more(struct race *r, uint16_t port)
{
	int64_t now = clock_ms();
	while (r->begun < r->n && (r->open == 0 || now >= r->next_ms)) {
		int fd = begin(&r->ip[r->begun], port);
		r->fd[r->begun++] = (struct pollfd){ .fd = fd, .events = POLLOUT };
		r->open += fd >= 0;
		r->next_ms = now + NEXT_MS;
	}
}

/* The first that is connected, or -1. */
static int winner(struct race *r)
{
	for (int i = 0; i < r->begun; i++) {
		int wrong = 0, fd = r->fd[i].fd;
		socklen_t n = sizeof wrong;
		if (fd < 0 || r->fd[i].revents == 0)
			continue;
		r->fd[i].fd = -1;
		r->open--;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &wrong, &n) == 0 && wrong == 0)
			return fd;
		(void)close(fd);
	}
	return -1;
}

static void say(char text[HTTP_LINK_WHY], const char *what)
{
	(void)snprintf(text, HTTP_LINK_WHY, "%s", what);
}

static int shorter(int a, int64_t b)
{
	return b < a ? (b < 0 ? 0 : (int)b) : a;
}

static int connected(struct race *r, uint16_t port, struct http_watch *w, int64_t until_ms,
    enum http_ending *why, char text[HTTP_LINK_WHY])
{
	int fd = -1;
	say(text, "Couldn't connect to server");
	while (fd < 0) {
		begin_more(r, port);
		if (r->open == 0 || (*why = http_watch_look(w)) != HTTP_GOING)
			break;
		int64_t now = clock_ms();
		if (now >= until_ms) {
			say(text, "Timeout was reached");
			break;
		}
		int ms = shorter(http_watch_wait_ms(w), until_ms - now);
		if (r->begun < r->n)
			ms = shorter(ms, r->next_ms - now);
		if (poll(r->fd, (nfds_t)r->begun, ms) > 0)
			fd = winner(r);
	}
	for (int i = 0; i < r->begun; i++)
		if (r->fd[i].fd >= 0)
			(void)close(r->fd[i].fd);
	return fd;
}

static void trust_setup(void)
{
	trust = tls_client_new("");
	if (trust == NULL)
		abort();
}

static bool tls_agreed(struct http_link *l, struct http_watch *w, int64_t until_ms, enum http_ending *why,
    char text[HTTP_LINK_WHY])
{
	int rc = -1;
	(void)pthread_once(&trust_once, trust_setup);
	l->tls = tls_new(trust, l->fd, &l->at.host);
	say(text, "no memory for TLS");
	while (l->tls != NULL && (rc = tls_handshake(l->tls, text)) == 0) {
		if ((*why = http_watch_look(w)) != HTTP_GOING)
			return false;
		int64_t left = until_ms - clock_ms();
		if (left <= 0) {
			say(text, "Timeout was reached");
			return false;
		}
		(void)http_link_wait(l, false, shorter(http_watch_wait_ms(w), left));
	}
	return rc == 1;
}

struct http_link *http_link_open(const struct http_req *q, const struct http_at *at, struct http_watch *w,
    enum http_ending *why, char text[HTTP_LINK_WHY])
{
	struct race *r = xcalloc(1, sizeof *r);
	int64_t until_ms = clock_ms() + (q->connect_ms > 0 ? q->connect_ms : HTTP_CONNECT_MS);
	addresses(q, at, r);
	int fd = connected(r, at->port, w, until_ms, why, text), on = 1;
	free(r);
	if (fd < 0)
		return NULL;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	/* What waits without poll, waits so long; all else says MSG_DONTWAIT. TLS never waits. */
	static const struct timeval ask = { .tv_usec = HTTP_ASK_MS * 1000 };
	if (!at->tls) {
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ask, sizeof ask);
		(void)fcntl(fd, F_SETFL, 0);
	}
	struct http_link *l = xcalloc(1, sizeof *l);
	*l = (struct http_link){ .fd = fd, .at = *at };
	if (at->tls && !tls_agreed(l, w, until_ms, why, text)) {
		http_link_free(l);
		return NULL;
	}
	return l;
}
