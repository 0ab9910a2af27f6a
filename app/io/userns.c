#include "io/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

/* The one child that io/proc does not start: it runs no program, only holds the namespace until we have opened it. Descriptors
 * that it got with the fork are gone with it, also when we are killed. */
static _Noreturn void hold(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(0);
	for (;;)
		(void)pause();
}

/* The kernel takes a map whole. */
static int put(pid_t pid, const char *file, id_t first, const struct userns_map *map)
{
	char path[64], text[128];
	(void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	int n = snprintf(text, sizeof text, "%u %u %u\n", first, map->host, map->count);
	if (map->spare != 0)
		n += snprintf(text + n, sizeof text - (size_t)n, "%u %u 1\n", map->spare, map->spare_host);
	auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, (size_t)n) == n ? 0 : -1;
}

static int take(pid_t pid, const struct userns_map *map)
{
	char path[64];
	if (put(pid, "uid_map", map->uid, map) != 0 || put(pid, "gid_map", map->gid, map) != 0)
		return -1;
	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int userns_make(const struct userns_map *map, struct err *e)
{
	sigset_t all, old;
	pid_t self = getpid();
	/* No handler of ours may run in the child. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		hold(self);
	int why = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return err_set(e, ERR_UNAVAILABLE, "No user namespace could be made: %s.", strerror(why));
	int fd = take(pid, map);
	why = errno;
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (fd < 0)
		err_set(
		    e, ERR_UNAVAILABLE, "A user namespace could not be given its ids: %s.", strerror(why));
	return fd;
}
