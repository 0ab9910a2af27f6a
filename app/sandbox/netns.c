#include "sandbox/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

struct making {
	int fd;
	int err; /* errno of what failed */
};

static int lo_up(void)
{
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };
	if (s < 0 || ioctl(s, SIOCGIFFLAGS, &r) != 0)
		return -1;
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	return ioctl(s, SIOCSIFFLAGS, &r);
}

/* Network namespaces belong to threads: this one leaves ours, and its end drops all but the descriptor. */
static void *make(void *arg)
{
	struct making *m = arg;
	if (unshare(CLONE_NEWNET) == 0 && lo_up() == 0)
		m->fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	m->err = errno;
	return NULL;
}

int netns_make(struct err *e)
{
	struct making m = { .fd = -1 };
	pthread_t t;
	int rc = pthread_create(&t, NULL, make, &m);
	if (rc != 0)
		return err_set(e, ERR_UNAVAILABLE, "No thread could be started for a network namespace: %s.",
		    strerror(rc));
	(void)pthread_join(t, NULL);
	if (m.fd < 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "A network namespace could not be made: %s.", strerror(m.err));
	return m.fd;
}
