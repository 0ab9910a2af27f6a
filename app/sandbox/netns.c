#include "sandbox/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

const char *const listener_names[LISTENERS] = {
	[LISTEN_PROXY] = "proxy", [LISTEN_HTTP] = "http", [LISTEN_TLS] = "tls", [LISTEN_DNS] = "dns"
};

struct job {
	int ns; /* -1: a fresh one, then its descriptor */
	struct listeners *listeners;
	int err; /* errno of what failed, 0 */
};

void listeners_none(struct listeners *d)
{
	for (int i = 0; i < LISTENERS; i++)
		d->fd[i] = -1;
}

void listeners_close(struct listeners *d)
{
	for (int i = 0; i < LISTENERS; i++)
		if (d->fd[i] >= 0)
			(void)close(d->fd[i]);
	listeners_none(d);
}

static int lo_up(void)
{
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };
	if (s < 0 || ioctl(s, SIOCGIFFLAGS, &r) != 0)
		return -1;
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	return ioctl(s, SIOCSIFFLAGS, &r);
}

static int listen_at(int type, uint32_t address, int port)
{
	const struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(address)
	};
	const int on = 1;
	auto_fd int s = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* REUSEADDR: connections of an earlier listener may still linger. It lets nobody listen beside us. */
	if (s < 0 || (type == SOCK_STREAM && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
	    bind(s, (const struct sockaddr *)&a, sizeof a) != 0 ||
	    (type == SOCK_STREAM && listen(s, SOMAXCONN) != 0))
		return -1;
	return steal_fd(&s);
}

/* "local 0.0.0.0/0 dev lo": every IPv4 address is ours here. */
static int route_all_to_lo(void)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		struct rtattr attr;
		int lo;
	} ask = { .head = { .nlmsg_len = sizeof ask,
		      .nlmsg_type = RTM_NEWROUTE,
		      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL },
		.route = { .rtm_family = AF_INET,
		    .rtm_table = RT_TABLE_LOCAL,
		    .rtm_protocol = RTPROT_STATIC,
		    .rtm_scope = RT_SCOPE_HOST,
		    .rtm_type = RTN_LOCAL },
		.attr = { .rta_len = RTA_LENGTH(sizeof ask.lo), .rta_type = RTA_OIF },
		.lo = (int)if_nametoindex("lo") };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		char more[512];
	} answer = { { 0 } };
	auto_fd int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (s < 0 || send(s, &ask, sizeof ask, 0) != (ssize_t)sizeof ask ||
	    recv(s, &answer, sizeof answer, 0) < (ssize_t)(sizeof answer.head + sizeof answer.err))
		return -1;
	errno = answer.head.nlmsg_type == NLMSG_ERROR ? -answer.err.error : EPROTO;
	return errno == 0 ? 0 : -1;
}

/* Connecting a UDP socket sends nothing and needs a route. */
static bool has_route(void)
{
	const struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_port = htons(9),
		.sin_addr.s_addr = htonl(0xc6336401) /* 198.51.100.1 */
	};
	auto_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return s >= 0 && connect(s, (const struct sockaddr *)&a, sizeof a) == 0;
}

static int open_all(struct listeners *l, bool fresh)
{
	static const struct {
		int type;
		uint32_t address;
		int port;
	} at[LISTENERS] = { [LISTEN_PROXY] = { SOCK_STREAM, INADDR_LOOPBACK, NETNS_PROXY_PORT },
		[LISTEN_HTTP] = { SOCK_STREAM, INADDR_ANY, 80 },
		[LISTEN_TLS] = { SOCK_STREAM, INADDR_ANY, 443 },
		[LISTEN_DNS] = { SOCK_DGRAM, INADDR_ANY, 53 } };
	if (fresh && l->transparent && route_all_to_lo() != 0)
		return -1;
	if (!fresh)
		l->transparent = has_route();
	for (int i = 0; i < (l->transparent ? LISTENERS : LISTEN_HTTP); i++)
		if ((l->fd[i] = listen_at(at[i].type, at[i].address, at[i].port)) < 0)
			return -1;
	return 0;
}

static int enter(struct job *j)
{
	if (j->ns >= 0)
		return setns(j->ns, CLONE_NEWNET);
	if (unshare(CLONE_NEWNET) != 0 || lo_up() != 0)
		return -1;
	j->ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return j->ns < 0 ? -1 : 0;
}

/* Network namespaces belong to threads: this one leaves ours, and its end drops all but the descriptors. */
static void *work(void *arg)
{
	struct job *j = arg;
	bool fresh = j->ns < 0;
	if (enter(j) != 0 || (j->listeners != NULL && open_all(j->listeners, fresh) != 0))
		j->err = errno;
	return NULL;
}

static int run(struct job *j, struct err *e)
{
	pthread_t t;
	if (j->listeners != NULL)
		listeners_none(j->listeners);
	int rc = pthread_create(&t, NULL, work, j);
	if (rc != 0)
		return err_set(e, ERR_UNAVAILABLE, "No thread could be started for a network namespace: %s.",
		    strerror(rc));
	(void)pthread_join(t, NULL);
	if (j->err == 0)
		return 0;
	if (j->listeners != NULL)
		listeners_close(j->listeners);
	if (j->err == EADDRINUSE)
		return err_set(e, ERR_CONFLICT,
		    "The port of the egress boundary is taken inside the sandbox; it was ended.");
	return err_set(
	    e, ERR_UNAVAILABLE, "A network namespace could not be prepared: %s.", strerror(j->err));
}

int netns_make(struct listeners *listeners, struct err *e)
{
	struct job j = { .ns = -1, .listeners = listeners };
	auto_fd int ns = -1;
	int rc = run(&j, e);
	ns = j.ns;
	return rc == 0 ? steal_fd(&ns) : -1;
}

int netns_open(int ns, struct listeners *listeners, struct err *e)
{
	struct job j = { .ns = ns, .listeners = listeners };
	return run(&j, e);
}
