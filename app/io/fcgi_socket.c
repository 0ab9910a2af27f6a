/* The listening socket is the trust boundary (whoever can write to it can claim any door): 0660, never TCP. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/str.h"
#include "io/fcgi_int.h"

enum { BACKLOG = 4096, SYSTEMD_FIRST_FD = 3 };

static int from_systemd(struct err *e)
{
	long long pid, n;
	if (!str_int(getenv("LISTEN_PID"), 1, INT32_MAX, &pid) || pid != getpid() ||
	    !str_int(getenv("LISTEN_FDS"), 1, 64, &n))
		return err_set(e, ERR_INTERNAL, "No socket path is configured and systemd passed no socket.");
	int fd = SYSTEMD_FIRST_FD, domain = 0, listening = 0;
	socklen_t size = sizeof domain;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
		return err_set(
		    e, ERR_INTERNAL, "The first socket from systemd must be a listening unix stream socket.");
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		return err_set(
		    e, ERR_INTERNAL, "The socket from systemd cannot be used: %s.", strerror(errno));
	return fd;
}

static bool somebody_listens(const struct sockaddr_un *a)
{
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* EAGAIN: its backlog is full, so it is alive. */
	return fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN);
}

static int address(const char *path, const char *suffix, struct sockaddr_un *a, struct err *e)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(a->sun_path, sizeof a->sun_path, "%s%s", path, suffix);
	if (n < 0 || (size_t)n >= sizeof a->sun_path)
		return err_set(e, ERR_INTERNAL, "The socket path %s is too long; use at most %zu bytes.",
		    path, sizeof a->sun_path - strlen(suffix) - 1);
	return 0;
}

static int give_to_group(const char *path, const char *group, struct err *e)
{
	char room[4096];
	struct group g, *found = NULL;
	if (getgrnam_r(group, &g, room, sizeof room, &found) != 0 || found == NULL)
		return err_set(e, ERR_INTERNAL, "There is no group %s to give the socket to.", group);
	if (chown(path, (uid_t)-1, g.gr_gid) != 0)
		return err_set(
		    e, ERR_INTERNAL, "The socket cannot be given to group %s: %s.", group, strerror(errno));
	return 0;
}

/*
 * Bound under a name of its own and renamed when it is ready: whoever connects finds the old socket or one that listens with
 * its final rights, and a stale socket is replaced without a moment of absence.
 */
static int bound(const char *path, const char *group, struct err *e)
{
	struct sockaddr_un want, made;
	if (address(path, "", &want, e) != 0 || address(path, ".new", &made, e) != 0)
		return -1;
	if (somebody_listens(&want))
		return err_set(e, ERR_INTERNAL, "Another process serves %s; stop it first.", path);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)unlink(made.sun_path);
	mode_t old = umask(0117);
	int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&made, sizeof made);
	int why = errno;
	(void)umask(old);
	if (rc != 0)
		return err_set(e, ERR_INTERNAL, "The socket %s cannot be made: %s.", path, strerror(why));
	if ((group != NULL && give_to_group(made.sun_path, group, e) != 0) ||
	    ((listen(fd, BACKLOG) != 0 || rename(made.sun_path, path) != 0) &&
		err_set(e, ERR_INTERNAL, "The socket %s cannot be made: %s.", path, strerror(errno)) != 0)) {
		(void)unlink(made.sun_path);
		return -1;
	}
	return steal_fd(&fd);
}

int fcgi_socket(const char *path_or_null, const char *group_or_null, struct err *e)
{
	return path_or_null == NULL ? from_systemd(e) : bound(path_or_null, group_or_null, e);
}
