/* conn.c - connections: who may talk, bytes in and out, frames cut from them. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "box/box.h"

enum { IN_MIN = 4096, IN_KEEP = 64 * 1024, HELLO_BYTES = 4 + 4 + PROTO_NONCE / 2, ACCEPT_AGAIN_MS = 100 };

void conn_close(struct box *b, struct conn *c)
{
	if (c->fd < 0)
		return;
	(void)close(c->fd);
	free(c->in);
	free(c->out);
	bool client = b->client == c;
	*c = (struct conn){ .fd = -1 };
	if (client) {
		b->client = NULL;
		b->idle_since_ms = clock_ms();
		serve_hangup(b);
	}
}

/* A free slot, if need be that of the oldest stranger. */
static struct conn *slot(struct box *b)
{
	struct conn *oldest = NULL;
	for (int i = 0; i < CONNS_MAX; i++) {
		struct conn *c = &b->conns[i];
		if (c->fd < 0)
			return c;
		if (c != b->client && (oldest == NULL || c->since_ms < oldest->since_ms))
			oldest = c;
	}
	conn_close(b, oldest);
	return oldest;
}

void conn_accept(struct box *b)
{
	int fd = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			b->listen_again_ms = clock_ms() + ACCEPT_AGAIN_MS;
		return;
	}
	struct conn *c = slot(b);
	*c = (struct conn){ .fd = fd, .since_ms = clock_ms() };
}

void conn_expire(struct box *b, int64_t now)
{
	for (int i = 0; i < CONNS_MAX; i++)
		if (b->conns[i].fd >= 0 && !b->conns[i].client && now - b->conns[i].since_ms >= HELLO_MS)
			conn_close(b, &b->conns[i]);
}

/* ---- out */

static unsigned char *out_room(struct conn *c, size_t n)
{
	if (c->out_at > 0 && c->out_at == c->out_n)
		c->out_at = c->out_n = 0;
	if (c->out_n + n > c->out_cap && c->out_at > 0) {
		memmove(c->out, c->out + c->out_at, c->out_n - c->out_at);
		c->out_n -= c->out_at;
		c->out_at = 0;
	}
	if (c->out_n + n > c->out_cap) {
		size_t cap = c->out_cap == 0 ? IN_MIN : c->out_cap;
		while (cap < c->out_n + n)
			cap *= 2;
		unsigned char *p = cap > OUT_HARD ? NULL : realloc(c->out, cap);
		if (p == NULL)
			return NULL;
		c->out = p;
		c->out_cap = cap;
	}
	unsigned char *at = c->out + c->out_n;
	c->out_n += n;
	return at;
}

static void frame(struct conn *c, uint8_t type, uint32_t id, const void *p, size_t n)
{
	unsigned char *at = c->closing ? NULL : out_room(c, PROTO_HEAD + n);
	if (at == NULL) {
		c->closing = true; /* from the loop: callers hold pointers that a hang-up would free */
		return;
	}
	proto_head_put(at, type, id, (uint32_t)n);
	if (n > 0)
		memcpy(at + PROTO_HEAD, p, n);
}

void say(struct box *b, uint8_t type, uint32_t id, const void *p, size_t n)
{
	if (b->client != NULL)
		frame(b->client, type, id, p, n);
}

unsigned char *say_room(struct box *b, uint8_t type, uint32_t id, size_t n)
{
	struct conn *c = b->client;
	if (c == NULL || c->closing || c->out_n - c->out_at + n > OUT_SOFT)
		return NULL;
	unsigned char *at = out_room(c, PROTO_HEAD + n);
	if (at == NULL)
		return NULL;
	proto_head_put(at, type, id, (uint32_t)n);
	return at + PROTO_HEAD;
}

void say_done(struct box *b, uint32_t id, uint64_t value)
{
	unsigned char p[8];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_put_u64(&o, value);
	say(b, PROTO_DONE, id, p, o.n);
}

static void error_frame(struct conn *c, uint32_t id, enum proto_fault fault, const char *msg)
{
	unsigned char p[PROTO_MESSAGE_MAX + 16];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_put_u8(&o, (uint8_t)fault);
	proto_put_str(&o, msg);
	frame(c, PROTO_ERROR, id, p, o.n);
}

void say_error(struct box *b, uint32_t id, enum proto_fault fault, const char *fmt, ...)
{
	char msg[PROTO_MESSAGE_MAX];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(msg, sizeof msg, fmt, ap);
	va_end(ap);
	if (b->client != NULL)
		error_frame(b->client, id, fault, msg);
}

enum proto_fault fault_of(int err)
{
	switch (err) {
	case ENOENT:
		return PROTO_MISSING;
	case EXDEV: /* what path.c answers for a path outside */
	case EACCES:
	case EPERM:
	case EROFS:
		return PROTO_OUTSIDE;
	case ENOTDIR:
	case EISDIR:
	case EEXIST:
	case ENOTEMPTY:
	case EBUSY:
	case ETXTBSY:
		return PROTO_CONFLICT;
	case E2BIG:
		return PROTO_TOO_LARGE;
	case ENOSPC:
	case EDQUOT:
	case EFBIG: /* of a write: more than this file may become here */
		return PROTO_FULL;
	case EINVAL:
	case ELOOP:
	case ENXIO: /* a socket in the file system */
	case ENAMETOOLONG:
		return PROTO_BAD;
	default:
		return PROTO_NO_ROOM;
	}
}

void conn_write(struct box *b, struct conn *c)
{
	while (c->out_at < c->out_n) {
		ssize_t n = send(
		    c->fd, c->out + c->out_at, c->out_n - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
			return;
		if (n <= 0) {
			conn_close(b, c);
			return;
		}
		c->out_at += (size_t)n;
	}
	if (c->closing) {
		conn_close(b, c);
	} else if (c->out_cap > OUT_SOFT) {
		free(c->out);
		c->out = NULL;
		c->out_at = c->out_n = c->out_cap = 0;
	}
}

/* ---- in */

static bool hello(struct box *b, struct conn *c, const struct proto_head *h, unsigned char *p)
{
	struct proto_in in = { .p = p, .n = h->length };
	uint32_t magic = proto_get_u32(&in), version = proto_get_u32(&in);
	const unsigned char *knock = proto_get_bytes(&in, PROTO_NONCE / 2);
	bool known = h->type == PROTO_HELLO && proto_in_end(&in) && magic == PROTO_MAGIC &&
	    bytes_equal_ct(knock, b->nonce, PROTO_NONCE / 2);
	explicit_bzero(p, h->length);
	if (!known)
		return false; /* a stranger is told nothing */
	if (version < PROTO_OLDEST) {
		error_frame(c, 0, PROTO_BAD, "This box speaks another version of the protocol.");
		return false;
	}
	if (b->client != NULL && b->client != c)
		conn_close(b, b->client); /* the one before has been replaced */
	c->client = true;
	c->version = version < PROTO_VERSION ? version : PROTO_VERSION;
	b->client = c;
	unsigned char ok[4 + PROTO_NONCE / 2 + 4];
	struct proto_out o = { .p = ok, .cap = sizeof ok };
	proto_put_u32(&o, c->version);
	proto_put_bytes(&o, b->nonce + PROTO_NONCE / 2, PROTO_NONCE / 2);
	proto_put_u32(&o, b->last_id);
	frame(c, PROTO_HELLO_OK, h->id, ok, o.n);
	explicit_bzero(ok, sizeof ok);
	return true;
}

static bool in_room(struct conn *c, size_t need)
{
	size_t cap = c->in_cap == 0 ? IN_MIN : c->in_cap;
	while (cap < need)
		cap *= 2;
	if (cap == c->in_cap)
		return true;
	unsigned char *p = realloc(c->in, cap);
	if (p == NULL)
		return false;
	c->in = p;
	c->in_cap = cap;
	return true;
}

/* Take whole frames off the front. False: hang up. */
static bool take_frames(struct box *b, struct conn *c)
{
	size_t at = 0;
	bool good = true;
	while (good && c->fd >= 0 && c->in_n - at >= PROTO_HEAD) {
		struct proto_head h;
		if (!proto_head_get(c->in + at, c->client ? PROTO_START_MAX : HELLO_BYTES, &h)) {
			good = false;
			break;
		}
		size_t whole = PROTO_HEAD + h.length;
		if (c->in_n - at < whole) {
			good = in_room(c, whole + at);
			break;
		}
		good = c->client ? serve(b, &h, c->in + at + PROTO_HEAD)
				 : hello(b, c, &h, c->in + at + PROTO_HEAD);
		at += whole;
	}
	if (c->fd < 0)
		return true;
	memmove(c->in, c->in + at, c->in_n - at);
	c->in_n -= at;
	if (c->in_n == 0 && c->in_cap > IN_KEEP) {
		free(c->in);
		c->in = NULL;
		c->in_cap = 0;
	}
	return good;
}

void conn_read(struct box *b, struct conn *c)
{
	for (int turn = 0; turn < 8 && c->fd >= 0; turn++) {
		if ((c->in_n == c->in_cap && !in_room(c, c->in_n + 1))) {
			conn_close(b, c);
			return;
		}
		ssize_t n = recv(c->fd, c->in + c->in_n, c->in_cap - c->in_n, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			conn_close(b, c);
			return;
		}
		c->in_n += (size_t)n;
		if (take_frames(b, c))
			continue;
		if (c->client)
			error_frame(c, 0, PROTO_BAD, "That frame makes no sense.");
		c->closing = true;
		conn_write(b, c);
		return;
	}
}
