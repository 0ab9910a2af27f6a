/*
 * From the listening socket to a call whose parameters are read. We accept by ourselves: close-on-exec, with time limits, without
 * an exit on EMFILE, and with a wait that one connection ends for one thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/fcgi_int.h"

enum { ACCEPT_PAUSE_MS = 50, STARVED_MS = 1000 };

static void watch(int seat_fd, int fd, uint32_t events)
{
	if (seat_fd < 0 ||
	    epoll_ctl(seat_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = events }) != 0)
		abort();
}

void fcgi_seats_open(struct fcgi *f)
{
	for (int i = 0; i < FCGI_SEATS; i++) {
		int fd = f->seats[i].fd = epoll_create1(EPOLL_CLOEXEC);
		/* The kernel wakes the first of them in which somebody sits (Linux 4.5). */
		watch(fd, f->listen_fd, EPOLLIN | EPOLLEXCLUSIVE);
		watch(fd, f->stop_fd, EPOLLIN);
	}
}

void fcgi_seats_close(struct fcgi *f)
{
	for (int i = 0; i < FCGI_SEATS; i++)
		(void)close(f->seats[i].fd);
}

/*
 * There has been no descriptor for a second, so for whoever waits a clear answer is better than more waiting (REL-3): the one
 * that is kept for this takes a connection and closes it, which nginx turns into a 503 at once.
 */
static void turn_away(struct fcgi *f)
{
	pthread_mutex_lock(&f->lock);
	if (f->spare_fd >= 0)
		(void)close(f->spare_fd);
	int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		(void)close(fd);
	f->refused += fd >= 0;
	f->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pthread_mutex_unlock(&f->lock);
}

int fcgi_accept(struct fcgi *f, int seat)
{
	int64_t starved_ms = 0; /* since when */
	/* Whoever connected to a socket of ours before the drain is still served; systemd keeps its socket for our successor. */
	while (!atomic_load(&f->draining) || f->o.socket_path != NULL) {
		int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (atomic_load(&f->draining))
			break;
		if (errno == EAGAIN) {
			struct epoll_event ready;
			(void)epoll_wait(f->seats[seat].fd, &ready, 1, -1);
			continue;
		}
		/* No descriptors or memory: somebody will end; for a while the backlog holds them. */
		int64_t now_ms = clock_ms();
		starved_ms = starved_ms == 0 ? now_ms : starved_ms;
		if (now_ms - starved_ms >= STARVED_MS)
			turn_away(f);
		else
			(void)poll(
			    &(struct pollfd){ .fd = f->stop_fd, .events = POLLIN }, 1, ACCEPT_PAUSE_MS);
	}
	return -1;
}

static void wait_limit(int fd, int which, int s)
{
	struct timeval t = { .tv_sec = s };
	(void)setsockopt(fd, SOL_SOCKET, which, &t, sizeof t);
}

/*
 * libfcgi is given the connection as one that it kept from an earlier request; with listen_sock -1 it cannot accept another when
 * this one turns out broken. Afterwards keepConnection is cleared whatever nginx asked for: one connection, one request.
 */
struct fcgi_call *fcgi_read_call(struct fcgi *f, int fd)
{
	struct fcgi_call *k = fcgi_call_new(f);
	wait_limit(fd, SO_RCVTIMEO, FCGI_HEAD_WAIT_S);
	wait_limit(fd, SO_SNDTIMEO, FCGI_WRITE_WAIT_S);
	k->req.ipcFd = fd;
	k->req.keepConnection = 1;
	if (FCGX_Accept_r(&k->req) != 0) {
		fcgi_call_free(k);
		return NULL;
	}
	k->req.keepConnection = 0;
	wait_limit(fd, SO_RCVTIMEO, FCGI_BODY_WAIT_S);
	return k;
}
