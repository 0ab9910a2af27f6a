#include "t.h"

#include "liar.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "io/file.h"
#include "span.h"

static void read_all(struct liar *l, void *p, size_t n)
{
	assert_int_equal(recv(l->fd, p, n, MSG_WAITALL), n);
}

struct proto_head liar_hear(struct liar *l)
{
	struct proto_head h;
	read_all(l, l->msg, PROTO_HEAD);
	assert_true(proto_head_get(l->msg, sizeof l->msg, &h));
	if (h.length > 0)
		read_all(l, l->msg, h.length);
	return h;
}

void liar_tell(struct liar *l, uint8_t type, uint32_t id, const void *p, size_t n)
{
	unsigned char head[PROTO_HEAD];
	proto_head_put(head, type, id, (uint32_t)n);
	(void)send(l->fd, head, sizeof head, MSG_NOSIGNAL);
	if (n > 0)
		(void)send(l->fd, p, n, MSG_NOSIGNAL);
}

/* A hello of its version; what other boxes are asked first is refused, as they do it: an error, and the end. */
static void greet(struct liar *l)
{
	unsigned char ok[64], no[64];
	for (;;) {
		struct proto_out o = { .p = ok, .cap = sizeof ok }, refusal = { .p = no, .cap = sizeof no };
		l->fd = accept(l->listen_fd, NULL, NULL);
		assert_true(l->fd >= 0);
		struct proto_head h = liar_hear(l);
		assert_int_equal(h.type, PROTO_HELLO);
		struct proto_in in = { .p = l->msg, .n = h.length };
		(void)proto_get_u32(&in);
		if (proto_get_u32(&in) == l->version) {
			proto_put_u32(&o, l->version);
			proto_put_bytes(&o, l->opts.nonce + PROTO_NONCE / 2, PROTO_NONCE / 2);
			proto_put_u32(&o, 41);
			liar_tell(l, PROTO_HELLO_OK, 0, ok, o.n);
			return;
		}
		proto_put_u8(&refusal, PROTO_BAD);
		proto_put_str(&refusal, "Another version.");
		liar_tell(l, PROTO_ERROR, 0, no, refusal.n);
		(void)close(l->fd);
	}
}

static void *serve(void *arg)
{
	struct liar *l = arg;
	greet(l);
	l->part(l);
	char c;
	while (recv(l->fd, &c, 1, 0) > 0)
		; /* until it hangs up */
	(void)close(l->fd);
	return NULL;
}

struct channel_wait liar_wait(void)
{
	return (struct channel_wait){ .deadline_ms = clock_ms() + PATIENCE_MS };
}

struct liar *liar_up(void (*part)(struct liar *l), int silence_ms)
{
	return liar_up_version(part, silence_ms, PROTO_VERSION);
}

struct liar *liar_up_version(void (*part)(struct liar *l), int silence_ms, uint32_t version)
{
	struct liar *l = xcalloc(1, sizeof *l);
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	(void)snprintf(l->dir, sizeof l->dir, "/tmp/liar.XXXXXX");
	assert_non_null(mkdtemp(l->dir));
	(void)snprintf(l->path, sizeof l->path, "%s/s", l->dir);
	(void)snprintf(to.sun_path, sizeof to.sun_path, "%s", l->path);
	l->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l->listen_fd, (const struct sockaddr *)&to, sizeof to), 0);
	assert_int_equal(listen(l->listen_fd, 1), 0);
	l->opts.socket_path = l->path;
	l->opts.sandbox_uid = getuid();
	l->opts.silence_ms = silence_ms;
	random_bytes(l->opts.nonce, PROTO_NONCE);
	l->part = part;
	l->version = version;
	assert_int_equal(pthread_create(&l->thread, NULL, serve, l), 0);
	struct err e = { 0 };
	struct channel_wait w = liar_wait();
	l->c = channel_open(&l->opts, &w, &e);
	assert_non_null(l->c);
	return l;
}

void liar_down(struct liar *l)
{
	struct err e = { 0 };
	channel_close(l->c);
	assert_int_equal(pthread_join(l->thread, NULL), 0);
	(void)close(l->listen_fd);
	assert_int_equal(file_rmtree(l->dir, &e), 0);
	free(l);
}
