#include "io/egress_ctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/js.h"
#include "base/str.h"

enum { BACKLOG = 64, FDS_MAX = 8 };

union control { /* aligned for cmsghdr */
	char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

static int socket_at(const char *path, struct sockaddr_un *a, int flags, struct err *e)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof a->sun_path)
		return err_set(e, ERR_INTERNAL, "EGRESS_SOCKET is too long.");
	memcpy(a->sun_path, path, strlen(path) + 1);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	return fd >= 0 ? fd
		       : err_set(e, ERR_UNAVAILABLE, "There is no socket left: %s.", strerrordesc_np(errno));
}

int egress_ctl_dial(const char *path, int timeout_ms, struct err *e)
{
	struct sockaddr_un a;
	const struct timeval t = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	int room = 2 * EGRESS_CTL_BYTES;
	auto_fd int fd = socket_at(path, &a, 0, e);
	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) != 0 ||
	    connect(fd, (const struct sockaddr *)&a, sizeof a) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "gatehouse-egress cannot be reached: %s.", strerrordesc_np(errno));
	return steal_fd(&fd);
}

int egress_ctl_send(int ctl, const json_t *body, int fd, struct err *e)
{
	auto_buf struct buf text = BUF(EGRESS_CTL_BYTES);
	union control c = { .room = { 0 } };
	if (js_dump_buf(&text, body) != 0)
		return err_set(e, ERR_TOO_LARGE, "The message to gatehouse-egress is too long.");
	struct iovec piece = { .iov_base = text.p, .iov_len = text.n };
	struct msghdr m = { .msg_iov = &piece, .msg_iovlen = 1 };
	if (fd >= 0) {
		m.msg_control = c.room;
		m.msg_controllen = CMSG_SPACE(sizeof fd);
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(h), &fd, sizeof fd);
	}
	for (;;) {
		if (sendmsg(ctl, &m, MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno != EINTR)
			return err_set(e, ERR_UNAVAILABLE, "gatehouse-egress cannot be spoken to: %s.",
			    strerrordesc_np(errno));
	}
}

/* The first descriptor that came along, or -1; any more are closed. */
static int taken(struct msghdr *m)
{
	int first = -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			if (first < 0)
				first = fd;
			else
				(void)close(fd);
		}
	}
	return first;
}

int egress_ctl_recv(int ctl, json_t **body, int *fd, struct err *e)
{
	auto_free char *text = xcalloc(1, EGRESS_CTL_BYTES + 1);
	union control c = { .room = { 0 } };
	struct iovec piece = { .iov_base = text, .iov_len = EGRESS_CTL_BYTES + 1 };
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room
	};
	*body = NULL;
	*fd = -1;
	ssize_t n = recvmsg(ctl, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR)
		n = recvmsg(ctl, &m, MSG_CMSG_CLOEXEC);
	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return 0;
	if (n < 0)
		return err_set(e, errno == EAGAIN ? ERR_TIMEOUT : ERR_UNAVAILABLE,
		    "gatehouse-egress does not answer: %s.", strerrordesc_np(errno));
	auto_fd int got = taken(&m);
	if (n > EGRESS_CTL_BYTES || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
		return err_set(e, ERR_BAD_REQUEST, "A message on the egress socket is too long.");
	*body = js_parse(text, (size_t)n, e);
	if (*body == NULL)
		return -1;
	*fd = steal_fd(&got);
	return 1;
}

int egress_ctl_listen(const char *path, struct err *e)
{
	struct sockaddr_un a, made;
	char fresh[sizeof made.sun_path];
	int n = snprintf(fresh, sizeof fresh, "%s.new", path);
	if (n < 0 || (size_t)n >= sizeof fresh)
		return err_set(e, ERR_INTERNAL, "EGRESS_SOCKET is too long.");
	auto_fd int probe = socket_at(path, &a, SOCK_NONBLOCK, e);
	auto_fd int fd = socket_at(fresh, &made, SOCK_NONBLOCK, e);
	if (probe < 0 || fd < 0)
		return -1;
	/* EAGAIN: its backlog is full, so it is alive. */
	if (connect(probe, (const struct sockaddr *)&a, sizeof a) == 0 || errno == EAGAIN)
		return err_set(
		    e, ERR_CONFLICT, "Another gatehouse-egress serves EGRESS_SOCKET; stop it first.");
	(void)unlink(fresh);
	/* Bound under another name and renamed: whoever connects finds a socket with its final rights. */
	if (bind(fd, (const struct sockaddr *)&made, sizeof made) != 0 || chmod(fresh, 0660) != 0 ||
	    listen(fd, BACKLOG) != 0 || rename(fresh, path) != 0)
		return err_set(e, ERR_INTERNAL, "EGRESS_SOCKET cannot be made: %s.", strerrordesc_np(errno));
	return steal_fd(&fd);
}

bool egress_ctl_trusted(int ctl)
{
	struct ucred who;
	socklen_t size = sizeof who;
	return getsockopt(ctl, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
	    (who.uid == 0 || who.uid == geteuid());
}

/* ---- asking */

/* What egress answered, as our own error. */
static int refused(const json_t *answer, struct err *e)
{
	const char *code = js_str_or(answer, "code", ""), *reason = js_str_or(answer, "reason", "");
	enum err_code c = ERR_UPSTREAM;
	for (enum err_code i = ERR_BAD_REQUEST; i < ERR_MAX_; i++)
		if (strcmp(err_name(i), code) == 0)
			c = i;
	err_set(e, c, "%s", js_str_or(answer, "message", "gatehouse-egress refused without a reason."));
	if (strcmp(reason, "policy_unavailable") == 0)
		e->reason = "policy_unavailable";
	return -1;
}

/* The next message; *fd may come with it. */
static int next(int ctl, json_t **body, int *fd, struct err *e)
{
	int rc = egress_ctl_recv(ctl, body, fd, e);
	if (rc == 0)
		return err_set(e, ERR_UNAVAILABLE, "gatehouse-egress went away.");
	return rc < 0 ? -1 : 0;
}

static int ask(int ctl, json_t *question, int fd, json_t **answer, struct err *e)
{
	auto_json json_t *q = question, *a = NULL;
	auto_fd int stray = -1;
	if (egress_ctl_send(ctl, q, fd, e) != 0 || next(ctl, &a, &stray, e) != 0)
		return -1;
	if (!js_bool(a, "ok", false))
		return refused(a, e);
	if (answer != NULL)
		*answer = steal(a);
	return 0;
}

int egress_ctl_open(int ctl, const char *sandbox, const char *kind, int listener, struct err *e)
{
	json_t *q = js_pack("{s:s, s:s, s:s}", "op", "open", "sandbox", sandbox, "kind", kind);
	return ask(ctl, q, listener, NULL, e);
}

int egress_ctl_close(int ctl, const char *sandbox, struct err *e)
{
	return ask(ctl, js_pack("{s:s, s:s}", "op", "close", "sandbox", sandbox), -1, NULL, e);
}

int egress_ctl_list(int ctl, egress_ctl_found_fn *found, void *arg, struct err *e)
{
	auto_json json_t *q = js_pack("{s:s}", "op", "list");
	if (egress_ctl_send(ctl, q, -1, e) != 0)
		return -1;
	for (;;) {
		auto_json json_t *a = NULL;
		auto_fd int fd = -1;
		if (next(ctl, &a, &fd, e) != 0)
			return -1;
		if (js_get(a, "ok") != NULL)
			return js_bool(a, "ok", false) ? 0 : refused(a, e);
		if (js_str(a, "sandbox") != NULL && js_str(a, "kind") != NULL && fd >= 0)
			found(arg, js_str(a, "sandbox"), js_str(a, "kind"), steal_fd(&fd));
	}
}

int egress_ctl_metrics(int ctl, struct buf *out, struct err *e)
{
	auto_json json_t *a = NULL;
	if (ask(ctl, js_pack("{s:s}", "op", "metrics"), -1, &a, e) != 0)
		return -1;
	return buf_str(out, js_str_or(a, "text", "")) == 0
	    ? 0
	    : err_set(e, ERR_TOO_LARGE, "The metrics of gatehouse-egress are too long.");
}
