#include "t.h"

#include "dnsserver.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { MSG_BYTES = 65535, UDP_BYTES = 512, NAME_BYTES = 256, ASKED_MAX = 65536, HEAD = 12, LATE_MAX = 64 };
enum { T_A = 1, T_CNAME = 5, T_AAAA = 28, T_OPT = 41 };
enum { RC_OK = 0, RC_SERVFAIL = 2, RC_NXDOMAIN = 3 };

struct late { /* an answer whose time comes */
	int64_t at_ms;
	struct sockaddr_in to;
	size_t n;
	unsigned char msg[UDP_BYTES * 8];
};

struct dnsserver {
	pthread_t thread;
	pthread_mutex_t lock;
	const struct dns_row *rows;
	int udp, tcp, stop, port;
	int n_asked;
	char (*asked)[NAME_BYTES];
	struct late late[LATE_MAX];
	int n_late;
};

struct question {
	char name[NAME_BYTES];
	int type, size; /* size: what UDP may carry, by EDNS */
	size_t end;     /* of the question in the message */
};

static void put16(unsigned char *p, unsigned v)
{
	p[0] = (unsigned char)(v >> 8);
	p[1] = (unsigned char)v;
}

static unsigned get16(const unsigned char *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static int read_question(const unsigned char *m, size_t n, struct question *q)
{
	size_t at = HEAD, len = 0;
	*q = (struct question){ .size = UDP_BYTES };
	if (n < HEAD || get16(m + 4) != 1)
		return -1;
	while (at < n && m[at] != 0) {
		size_t label = m[at++];
		if (label > 63 || at + label > n || len + label + 1 >= NAME_BYTES)
			return -1;
		if (len > 0)
			q->name[len++] = '.';
		memcpy(q->name + len, m + at, label);
		len += label;
		at += label;
	}
	if (at + 5 > n)
		return -1;
	q->type = (int)get16(m + at + 1);
	q->end = at + 5;
	if (get16(m + 10) > 0 && q->end + 5 <= n && get16(m + q->end + 1) == T_OPT)
		q->size = (int)get16(m + q->end + 3);
	return 0;
}

/* ---- answers */

struct message {
	unsigned char p[MSG_BYTES];
	size_t n;
	unsigned answers;
};

static void record(struct message *m, int type, int ttl_s, const void *data, size_t n)
{
	if (m->n + 12 + n > sizeof m->p)
		return;
	unsigned char *p = m->p + m->n;
	put16(p, 0xc000 | HEAD); /* the question's name */
	put16(p + 2, (unsigned)type);
	put16(p + 4, 1);
	put16(p + 6, 0);
	put16(p + 8, (unsigned)ttl_s);
	put16(p + 10, (unsigned)n);
	memcpy(p + 12, data, n);
	m->n += 12 + n;
	m->answers++;
}

/* name CNAME other.test, other.test CNAME name. */
static void loop_records(struct message *m, int ttl_s)
{
	static const unsigned char other[] = "\005other\004test";
	const unsigned char back[2] = { 0xc0, HEAD };
	size_t at = m->n + 12;
	record(m, T_CNAME, ttl_s, other, sizeof other);
	size_t begin = m->n;
	record(m, T_CNAME, ttl_s, back, sizeof back);
	put16(m->p + begin, 0xc000 | (unsigned)at);
}

static int row_records(struct message *m, const struct dns_row *r, int type)
{
	unsigned char a[16];
	if (r->deed == DNS_LOOP)
		loop_records(m, r->ttl_s);
	if (r->deed == DNS_MANY && type == T_A)
		for (int i = 0; i < atoi(r->value); i++) {
			const unsigned char at[4] = { 93, 184, 216, (unsigned char)(1 + i % 250) };
			record(m, T_A, r->ttl_s, at, sizeof at);
		}
	if (r->deed == DNS_SERVFAIL)
		return RC_SERVFAIL;
	if (r->deed == DNS_ANSWER && r->value != NULL && type == T_A && inet_pton(AF_INET, r->value, a) == 1)
		record(m, T_A, r->ttl_s, a, 4);
	if (r->deed == DNS_ANSWER && r->value != NULL && type == T_AAAA &&
	    inet_pton(AF_INET6, r->value, a) == 1)
		record(m, T_AAAA, r->ttl_s, a, 16);
	return RC_OK;
}

/* How long to wait with it, or -1: nothing is to be said. */
static int answer(
    struct dnsserver *d, const unsigned char *in, size_t n, struct message *m, struct question *q)
{
	int rc = RC_NXDOMAIN, delay = 0;
	if (read_question(in, n, q) != 0)
		return -1;
	memcpy(m->p, in, q->end);
	m->n = q->end;
	m->answers = 0;
	(void)pthread_mutex_lock(&d->lock);
	if (d->n_asked < ASKED_MAX)
		memcpy(d->asked[d->n_asked++], q->name, NAME_BYTES);
	for (const struct dns_row *r = d->rows; r->name != NULL; r++) {
		if (strcasecmp(r->name, q->name) != 0)
			continue;
		rc = rc == RC_NXDOMAIN ? RC_OK : rc;
		delay = r->deed == DNS_DROP ? -1 : r->delay_ms;
		if (r->deed == DNS_GARBAGE)
			m->n = 7;
		int more = row_records(m, r, q->type);
		rc = more != RC_OK ? more : rc;
	}
	(void)pthread_mutex_unlock(&d->lock);
	put16(m->p + 2, 0x8180 | (unsigned)rc);
	put16(m->p + 6, m->answers);
	put16(m->p + 8, 0);
	put16(m->p + 10, 0);
	return delay;
}

static void udp(struct dnsserver *d)
{
	static unsigned char in[MSG_BYTES];
	static struct message m;
	struct question q;
	struct sockaddr_in from;
	socklen_t size = sizeof from;
	ssize_t n = recvfrom(d->udp, in, sizeof in, 0, (struct sockaddr *)&from, &size);
	int delay = n <= 0 ? -1 : answer(d, in, (size_t)n, &m, &q);
	if (delay < 0)
		return;
	if (m.n > (size_t)q.size) { /* truncated: by TCP, then */
		m.n = q.end;
		m.p[2] |= 2;
		put16(m.p + 6, 0);
	}
	if (delay > 0 && d->n_late < LATE_MAX && m.n <= sizeof d->late[0].msg) {
		struct late *l = &d->late[d->n_late++];
		*l = (struct late){ .at_ms = clock_ms() + delay, .to = from, .n = m.n };
		memcpy(l->msg, m.p, m.n);
		return;
	}
	(void)sendto(d->udp, m.p, m.n, 0, (struct sockaddr *)&from, size);
}

static void tcp(struct dnsserver *d)
{
	static unsigned char in[MSG_BYTES];
	static struct message m;
	struct question q;
	unsigned char len[2];
	const struct timeval second = { .tv_sec = 1 };
	auto_fd int fd = accept4(d->tcp, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	while (recv(fd, len, 2, MSG_WAITALL) == 2) {
		size_t n = get16(len);
		if (recv(fd, in, n, MSG_WAITALL) != (ssize_t)n || answer(d, in, n, &m, &q) < 0)
			return;
		put16(len, (unsigned)m.n);
		if (send(fd, len, 2, MSG_NOSIGNAL | MSG_MORE) != 2 || send(fd, m.p, m.n, MSG_NOSIGNAL) < 0)
			return;
	}
}

static void late(struct dnsserver *d)
{
	for (int i = 0; i < d->n_late;) {
		struct late *l = &d->late[i];
		if (l->at_ms > clock_ms()) {
			i++;
			continue;
		}
		(void)sendto(d->udp, l->msg, l->n, 0, (struct sockaddr *)&l->to, sizeof l->to);
		*l = d->late[--d->n_late];
	}
}

static void *serve(void *arg)
{
	struct dnsserver *d = arg;
	for (;;) {
		struct pollfd p[3] = { { .fd = d->stop, .events = POLLIN },
			{ .fd = d->udp, .events = POLLIN }, { .fd = d->tcp, .events = POLLIN } };
		(void)poll(p, 3, d->n_late > 0 ? 10 : 1000);
		if (p[0].revents != 0)
			return NULL;
		if (p[1].revents != 0)
			udp(d);
		if (p[2].revents != 0)
			tcp(d);
		late(d);
	}
}

struct dnsserver *dnsserver_start(const struct dns_row *rows)
{
	struct dnsserver *d = xcalloc(1, sizeof *d);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof a;
	d->rows = rows;
	d->asked = xcalloc(ASKED_MAX, NAME_BYTES);
	(void)pthread_mutex_init(&d->lock, NULL);
	d->stop = eventfd(0, EFD_CLOEXEC);
	/* A port that is free for both. */
	for (int tries = 0; d->port == 0; tries++) {
		assert_true(tries < 100);
		a.sin_port = 0;
		d->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(d->udp, (struct sockaddr *)&a, size), 0);
		assert_int_equal(getsockname(d->udp, (struct sockaddr *)&a, &size), 0);
		d->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(d->tcp, (struct sockaddr *)&a, size) == 0) {
			d->port = ntohs(a.sin_port);
			break;
		}
		(void)close(d->udp);
		(void)close(d->tcp);
	}
	assert_int_equal(listen(d->tcp, 64), 0);
	assert_int_equal(pthread_create(&d->thread, NULL, serve, d), 0);
	return d;
}

void dnsserver_rows(struct dnsserver *d, const struct dns_row *rows)
{
	(void)pthread_mutex_lock(&d->lock);
	d->rows = rows;
	(void)pthread_mutex_unlock(&d->lock);
}

int dnsserver_port(const struct dnsserver *d)
{
	return d->port;
}

int dnsserver_asked(struct dnsserver *d, const char *name)
{
	int n = 0;
	(void)pthread_mutex_lock(&d->lock);
	for (int i = 0; i < d->n_asked; i++)
		n += name == NULL || strcasecmp(d->asked[i], name) == 0;
	(void)pthread_mutex_unlock(&d->lock);
	return n;
}

void dnsserver_end(struct dnsserver *d)
{
	const uint64_t one = 1;
	(void)!write(d->stop, &one, sizeof one);
	(void)pthread_join(d->thread, NULL);
	(void)close(d->stop);
	(void)close(d->udp);
	(void)close(d->tcp);
	(void)pthread_mutex_destroy(&d->lock);
	free(d->asked);
	free(d);
}
