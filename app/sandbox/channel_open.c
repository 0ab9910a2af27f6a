/* channel_open.c - finding out that what listens there is our box (SBX-63). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "sandbox/channel_impl.h"

enum { HELLO_ID = 0, SLICE_MS = 200, HELLO_OK_BYTES = 4 + PROTO_NONCE / 2 + 4 };

static bool owner_allowed(const struct channel_opts *o, uid_t uid)
{
	return uid == 0 || uid == geteuid() || uid == o->sandbox_uid ||
	    (uid > o->sandbox_uid && uid - o->sandbox_uid < o->sandbox_uids);
}

/*
 * The directory may belong to the sandbox's uid, so the name can mean something else a moment later. The inode is opened
 * without following a link, looked at, and then connected to through its descriptor: it is what was looked at.
 */
static int open_socket_file(const struct channel_opts *o, struct err *e)
{
	auto_fd int fd = open(o->socket_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_UNAVAILABLE, "The sandbox does not answer yet.");
	if (fd < 0 || fstat(fd, &st) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The sandbox's socket cannot be opened: %s.", strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_UPSTREAM, "Where the sandbox's socket should be is something else.");
	if (!owner_allowed(o, st.st_uid))
		return err_set(e, ERR_UPSTREAM, "The sandbox's socket belongs to somebody else.");
	return steal_fd(&fd);
}

/* Who listens: on Linux the kernel tells the pid that called listen(). */
static int check_peer(const struct channel_opts *o, int fd, struct err *e)
{
	struct ucred who;
	socklen_t n = sizeof who;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0 || !owner_allowed(o, who.uid))
		return err_set(e, ERR_UPSTREAM, "Somebody else listens on the sandbox's socket.");
	if (o->box_pid != 0 && who.pid != o->box_pid)
		return err_set(e, ERR_UPSTREAM, "The sandbox's socket was replaced from inside.");
	return 0;
}

static int connect_to(const struct channel_opts *o, struct err *e)
{
	auto_fd int file = open_socket_file(o, e);
	if (file < 0)
		return -1;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	(void)snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d", file);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, ERR_UNAVAILABLE, "No descriptor is left for the sandbox's socket.");
	if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The sandbox does not answer: %s.", strerror(errno));
	return check_peer(o, fd, e) != 0 ? -1 : steal_fd(&fd);
}

static int wait_readable(int fd, const struct channel_wait *w, struct err *e)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int left = clock_left_ms(w->deadline_ms);
		if (poll(&p, 1, left < SLICE_MS ? left : SLICE_MS) > 0)
			return 0;
		if (w->cancelled != NULL && w->cancelled(w->arg)) {
			(void)err_set(e, ERR_TIMEOUT, "Cancelled while waiting for the sandbox.");
			e->reason = "cancelled";
			return -1;
		}
		if (clock_left_ms(w->deadline_ms) == 0)
			return err_set(e, ERR_TIMEOUT, "The sandbox did not answer in time.");
	}
}

static int read_exactly(int fd, unsigned char *p, size_t n, const struct channel_wait *w, struct err *e)
{
	while (n > 0) {
		if (wait_readable(fd, w, e) != 0)
			return -1;
		ssize_t got = recv(fd, p, n, 0);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return err_set(e, ERR_UPSTREAM, "The sandbox hung up during the greeting.");
		p += got;
		n -= (size_t)got;
	}
	return 0;
}

static int say_hello(int fd, const unsigned char *nonce, uint32_t version, struct err *e)
{
	unsigned char msg[PROTO_HEAD + 8 + PROTO_NONCE / 2];
	struct proto_out o = { .p = msg + PROTO_HEAD, .cap = sizeof msg - PROTO_HEAD };
	proto_head_put(msg, PROTO_HELLO, HELLO_ID, (uint32_t)o.cap);
	proto_put_u32(&o, PROTO_MAGIC);
	proto_put_u32(&o, version);
	proto_put_bytes(&o, nonce, PROTO_NONCE / 2);
	/* A fresh connection takes so few bytes at once. */
	if (send(fd, msg, sizeof msg, MSG_NOSIGNAL) != (ssize_t)sizeof msg)
		return err_set(e, ERR_UPSTREAM, "The sandbox hung up during the greeting.");
	return 0;
}

/* 0; 1: this version is refused, as a box of the first one does with every other; -1 with e. */
static int hear_hello(int fd, const unsigned char *nonce, uint32_t asked, const struct channel_wait *w,
    struct channel_greeting *g, struct err *e)
{
	unsigned char head[PROTO_HEAD], msg[HELLO_OK_BYTES];
	struct proto_head h;
	if (read_exactly(fd, head, sizeof head, w, e) != 0)
		return -1;
	bool known = proto_head_get(head, PROTO_REPLY_MAX, &h) && h.id == HELLO_ID;
	if (known && h.type == PROTO_ERROR && asked > PROTO_OLDEST)
		return 1;
	if (!known || h.type != PROTO_HELLO_OK || h.length != sizeof msg)
		return err_set(e, ERR_UPSTREAM, "The sandbox's box speaks another version, or is not ours.");
	if (read_exactly(fd, msg, sizeof msg, w, e) != 0)
		return -1;
	struct proto_in in = { .p = msg, .n = sizeof msg };
	g->version = proto_get_u32(&in);
	const unsigned char *answer = proto_get_bytes(&in, PROTO_NONCE / 2);
	g->last_id = proto_get_u32(&in);
	if (g->version < PROTO_OLDEST || g->version > asked || g->last_id > INT32_MAX ||
	    !bytes_equal_ct(answer, nonce + PROTO_NONCE / 2, PROTO_NONCE / 2))
		return err_set(e, ERR_UPSTREAM, "What answers on the sandbox's socket is not its box.");
	return 0;
}

int channel_dial(
    const struct channel_opts *o, const struct channel_wait *w, struct channel_greeting *g, struct err *e)
{
	for (uint32_t version = PROTO_VERSION;; version = PROTO_OLDEST) {
		auto_fd int fd = connect_to(o, e);
		if (fd < 0 || say_hello(fd, o->nonce, version, e) != 0)
			return -1;
		int rc = hear_hello(fd, o->nonce, version, w, g, e);
		if (rc <= 0)
			return rc < 0 ? -1 : steal_fd(&fd);
	}
}
