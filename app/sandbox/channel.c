/* channel.c - the connection: one thread reads and checks, callers write and wait. */
#include "sandbox/channel.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "sandbox/channel_impl.h"

enum {
	IN_BYTES = 2 * (PROTO_HEAD + PROTO_REPLY_MAX),
	OUT_SOFT = 1 << 20, /* callers of channel_send wait above this */
	OUT_MAX = 16 << 20, /* short frames above this: the box reads nothing any more */
	DOZE_MS = 200,
	SILENCE_MS = 30000,
	STACK_BYTES = 256 * 1024,
};

/* ---- losing it */

void channel_lose(struct channel *c, const char *why)
{
	if (c->lost)
		return;
	c->lost = true;
	c->why = why;
	(void)shutdown(c->fd, SHUT_RDWR);
	for (struct entry *en = c->entries; en != NULL; en = en->next)
		(void)pthread_cond_broadcast(&en->changed);
	(void)pthread_cond_broadcast(&c->drained);
}

int channel_lost_err(const struct channel *c, struct err *e)
{
	if (e->code != ERR_NONE)
		return -1;
	(void)err_set(e, ERR_UPSTREAM,
	    "The connection to the sandbox was lost (%s): what happened is unknown.", c->why);
	e->reason = "lost";
	return -1;
}

int channel_speaks(const struct channel *c, uint32_t version, struct err *e)
{
	if (c->version >= version)
		return 0;
	return err_set(e, ERR_CONFLICT,
	    "The sandbox was started by an earlier version, which cannot do that: lease another one.");
}

bool channel_lost(struct channel *c)
{
	(void)pthread_mutex_lock(&c->lock);
	bool lost = c->lost;
	(void)pthread_mutex_unlock(&c->lock);
	return lost;
}

/* ---- entries */

static void wake(struct channel *c)
{
	uint64_t one = 1;
	(void)!write(c->wake_fd, &one, sizeof one); /* full means it is awake */
}

struct entry *entry_new(struct channel *c, uint8_t kind)
{
	if (c->entries == NULL) { /* silence counts from here */
		c->heard_ms = clock_ms();
		c->asked = false;
		wake(c);
	}
	struct entry *en = xcalloc(1, sizeof *en);
	en->id = c->next_id++;
	en->kind = kind;
	en->version = (uint8_t)c->version;
	en->tail = &en->head;
	(void)pthread_cond_init(&en->changed, NULL);
	en->next = c->entries;
	c->entries = en;
	return en;
}

void entry_free(struct channel *c, struct entry *en)
{
	struct entry **at = &c->entries;
	while (*at != en)
		at = &(*at)->next;
	*at = en->next;
	while (en->head != NULL) {
		struct piece *p = en->head;
		en->head = p->next;
		free(p);
	}
	(void)pthread_cond_destroy(&en->changed);
	free(en);
}

static bool can_be_cancelled(uint8_t kind)
{
	return kind == PROTO_SUB || kind == PROTO_READ || kind == PROTO_WRITE || kind == PROTO_LOOK ||
	    kind == PROTO_REMOVE || kind == PROTO_INPUT || kind == PROTO_WATCH || kind == PROTO_PACK ||
	    kind == PROTO_UNPACK;
}

void entry_leave(struct channel *c, struct entry *en)
{
	if (en->over || c->lost) {
		entry_free(c, en);
		return;
	}
	en->abandoned = true;
	if (can_be_cancelled(en->kind) && !en->cancelled) {
		en->cancelled = true;
		channel_post(c, PROTO_CANCEL, en->id, NULL, 0);
	}
}

int channel_doze(struct channel *c, pthread_cond_t *cond, const struct channel_wait *w, struct err *e)
{
	if (w->cancelled != NULL && w->cancelled(w->arg)) {
		(void)err_set(e, ERR_TIMEOUT, "Cancelled while waiting for the sandbox.");
		e->reason = "cancelled";
		return -1;
	}
	int64_t left = clock_left_ms(w->deadline_ms);
	if (left == 0)
		return err_set(e, ERR_TIMEOUT, "The sandbox did not answer in time.");
	if (w->cancelled != NULL && left > DOZE_MS)
		left = DOZE_MS;
	(void)cond_wait_until(cond, &c->lock, clock_ms() + left);
	return 0;
}

struct piece *entry_take(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e)
{
	while (en->head == NULL) {
		if (c->lost) {
			(void)channel_lost_err(c, e);
			return NULL;
		}
		assert(!en->over); /* the last frame was taken: our own bug */
		if (channel_doze(c, &en->changed, w, e) != 0)
			return NULL;
	}
	struct piece *p = en->head;
	en->head = p->next;
	if (en->head == NULL)
		en->tail = &en->head;
	return p;
}

int piece_error(const struct piece *p, struct err *e)
{
	struct proto_in in = piece_in(p);
	char text[PROTO_MESSAGE_MAX];
	uint8_t fault = proto_get_u8(&in);
	channel_text(text, sizeof text, proto_get_str(&in));
	return err_set(e, proto_fault_code(fault), "%s", text);
}

void channel_text(char *to, size_t size, const char *from)
{
	size_t n = 0;
	for (; *from != 0 && n + 1 < size; from++)
		to[n++] = *from >= ' ' && *from < 127 ? *from : '?';
	to[n] = 0;
}

/* ---- out */

/* Write what waits. */
static void flush(struct channel *c)
{
	while (c->out_at < c->out.n) {
		ssize_t n = send(
		    c->fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			channel_lose(c, "it hung up");
			return;
		}
		c->out_at += (size_t)n;
	}
	if (c->out_at == c->out.n)
		buf_reset(&c->out);
	else if (c->out_at > OUT_SOFT)
		buf_drop(&c->out, c->out_at);
	else
		return;
	c->out_at = 0;
	(void)pthread_cond_broadcast(&c->drained);
}

void channel_post(struct channel *c, uint8_t type, uint32_t id, const void *p, size_t n)
{
	unsigned char head[PROTO_HEAD];
	if (c->lost)
		return;
	bool idle = c->out.n == 0;
	proto_head_put(head, type, id, (uint32_t)n);
	if (buf_add(&c->out, head, sizeof head) != 0 || buf_add(&c->out, p, n) != 0) {
		channel_lose(c, "it does not read");
		return;
	}
	if (!idle)
		return; /* the thread is at it */
	flush(c);
	if (c->out.n > 0)
		wake(c);
}

void channel_post_u32(struct channel *c, uint8_t type, uint32_t id, uint32_t v)
{
	unsigned char p[4];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_put_u32(&o, v);
	channel_post(c, type, id, p, sizeof p);
}

int channel_send(struct channel *c, uint8_t type, uint32_t id, const void *p, size_t n,
    const struct channel_wait *w, struct err *e)
{
	while (!c->lost && c->out.n - c->out_at > OUT_SOFT)
		if (channel_doze(c, &c->drained, w, e) != 0)
			return -1;
	channel_post(c, type, id, p, n);
	return c->lost ? channel_lost_err(c, e) : 0;
}

/* ---- in */

static void deliver(
    struct channel *c, struct entry *en, const struct proto_head *h, const unsigned char *p, bool last)
{
	en->over |= last;
	if (en->abandoned) {
		if (last)
			entry_free(c, en);
		return;
	}
	if (h->type != PROTO_CREDIT) { /* which only counts */
		struct piece *piece = xcalloc(1, sizeof *piece + h->length);
		piece->type = h->type;
		piece->n = h->length;
		if (h->length > 0)
			memcpy(piece->p, p, h->length);
		*en->tail = piece;
		en->tail = &piece->next;
	}
	(void)pthread_cond_broadcast(&en->changed);
}

static const char *take_frame(struct channel *c, const struct proto_head *h, const unsigned char *p)
{
	struct entry *en = c->entries;
	while (en != NULL && en->id != h->id)
		en = en->next;
	if (en == NULL || en->over)
		return h->type == PROTO_ERROR && h->id == 0 ? "it did not understand us"
							    : "it answered what nobody asked";
	bool last;
	const char *wrong = channel_check(en, h->type, p, h->length, &last);
	if (wrong == NULL)
		deliver(c, en, h, p, last);
	return wrong;
}

static const char *take_frames(struct channel *c)
{
	size_t at = 0;
	const char *wrong = NULL;
	struct proto_head h;
	while (wrong == NULL && c->in_n - at >= PROTO_HEAD) {
		if (!proto_head_get(c->in + at, PROTO_REPLY_MAX, &h))
			return "it sent garbage";
		if (c->in_n - at < PROTO_HEAD + h.length)
			break;
		wrong = take_frame(c, &h, c->in + at + PROTO_HEAD);
		at += PROTO_HEAD + h.length;
	}
	memmove(c->in, c->in + at, c->in_n - at);
	c->in_n -= at;
	return wrong;
}

/* Only this thread reads, so the read itself needs no lock. */
static void receive(struct channel *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_n, IN_BYTES - c->in_n, MSG_DONTWAIT);
	int err = errno;
	(void)pthread_mutex_lock(&c->lock);
	if (n > 0) {
		c->in_n += (size_t)n;
		c->heard_ms = clock_ms();
		c->asked = false;
		const char *wrong = take_frames(c);
		if (wrong != NULL)
			channel_lose(c, wrong);
	} else if (n == 0 || (err != EAGAIN && err != EINTR)) {
		channel_lose(c, "it hung up");
	}
	(void)pthread_mutex_unlock(&c->lock);
}

/* Somebody waits and nothing comes: ask, and if even that is not answered, it is not there any more. How long to wait. */
static int mind_silence(struct channel *c)
{
	if (c->entries == NULL)
		return -1;
	int64_t silent = clock_ms() - c->heard_ms;
	if (silent >= c->silence_ms) {
		channel_lose(c, "it does not answer");
	} else if (silent >= c->silence_ms / 2 && !c->asked) {
		c->asked = true;
		struct entry *en = entry_new(c, PROTO_PING);
		channel_post(c, PROTO_PING, en->id, NULL, 0);
		entry_leave(c, en);
	}
	return c->silence_ms / 4;
}

static void *run(void *arg)
{
	struct channel *c = arg;
	for (;;) {
		(void)pthread_mutex_lock(&c->lock);
		flush(c);
		int timeout_ms = mind_silence(c);
		bool done = c->lost || c->closing, more = c->out.n > 0;
		(void)pthread_mutex_unlock(&c->lock);
		if (done)
			return NULL;
		struct pollfd p[2] = { { .fd = c->fd, .events = POLLIN },
			{ .fd = c->wake_fd, .events = POLLIN } };
		if (more)
			p[0].events |= POLLOUT;
		(void)poll(p, 2, timeout_ms);
		uint64_t n;
		if (p[1].revents != 0)
			(void)!read(c->wake_fd, &n, sizeof n);
		if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
			receive(c);
	}
}

/* ---- life */

struct channel *channel_open(const struct channel_opts *o, const struct channel_wait *w, struct err *e)
{
	struct channel_greeting g;
	auto_fd int fd = channel_dial(o, w, &g, e);
	auto_fd int wake_fd = fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return NULL;
	if (wake_fd < 0) {
		(void)err_set(e, ERR_UNAVAILABLE, "No descriptor is left for the sandbox's channel.");
		return NULL;
	}
	struct channel *c = xcalloc(1, sizeof *c);
	c->next_id = g.last_id + 1;
	c->version = g.version;
	c->out = BUF(OUT_MAX);
	c->in = xcalloc(1, IN_BYTES);
	c->fd = fd;
	c->wake_fd = wake_fd;
	c->silence_ms = o->silence_ms > 0 ? o->silence_ms : SILENCE_MS;
	c->heard_ms = clock_ms();
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->drained, NULL);
	pthread_attr_t attr;
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	int rc = pthread_create(&c->thread, &attr, run, c);
	(void)pthread_attr_destroy(&attr);
	if (rc != 0) {
		free(c->in);
		free(c);
		(void)err_set(e, ERR_UNAVAILABLE, "No thread is left for the sandbox's channel.");
		return NULL;
	}
	(void)steal_fd(&fd);
	(void)steal_fd(&wake_fd);
	return c;
}

void channel_close(struct channel *c)
{
	if (c == NULL)
		return;
	(void)pthread_mutex_lock(&c->lock);
	c->closing = true;
	wake(c);
	(void)pthread_mutex_unlock(&c->lock);
	(void)pthread_join(c->thread, NULL);
	while (c->entries != NULL) {
		assert(c->entries->abandoned); /* a handle is still open: our own bug */
		entry_free(c, c->entries);
	}
	(void)close(c->fd);
	(void)close(c->wake_fd);
	(void)pthread_cond_destroy(&c->drained);
	(void)pthread_mutex_destroy(&c->lock);
	buf_free(&c->out);
	free(c->in);
	free(c);
}

int channel_ask(struct channel *c, uint8_t type, const void *p, size_t n, const struct channel_wait *w,
    uint64_t *value, struct err *e)
{
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, type);
	auto_piece struct piece *got = NULL;
	if (channel_send(c, type, en->id, p, n, w, e) == 0)
		got = entry_take(c, en, w, e);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
	if (got == NULL)
		return -1;
	if (got->type == PROTO_ERROR)
		return piece_error(got, e);
	struct proto_in in = piece_in(got);
	uint64_t v = proto_get_u64(&in);
	if (value != NULL)
		*value = v;
	return 0;
}

int channel_ping(struct channel *c, const struct channel_wait *w, struct err *e)
{
	return channel_ask(c, PROTO_PING, NULL, 0, w, NULL, e);
}

int channel_lease(struct channel *c, int64_t left_ms, const struct channel_wait *w, struct err *e)
{
	unsigned char p[8];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_put_u64(&o, left_ms < 0 ? 0 : (uint64_t)left_ms);
	return channel_ask(c, PROTO_LEASE, p, sizeof p, w, NULL, e);
}

int channel_end(struct channel *c, const struct channel_wait *w, struct err *e)
{
	int rc = 0;
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_END);
	channel_post(c, PROTO_END, en->id, NULL, 0);
	while (!c->lost && rc == 0)
		rc = channel_doze(c, &en->changed, w, e);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
	return rc;
}
