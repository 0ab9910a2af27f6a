/*
 * From the listening socket, or a kept connection, to a call whose parameters are read. We accept by ourselves: close-on-exec, with time
 * limits, without an exit on EMFILE, and with a wait that one connection ends for one thread only.
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

void fcgi_watch(struct fcgi *f, int how, int fd, uint32_t events, uint64_t whose)
{
	if (epoll_ctl(f->seat_fd, how, fd, &(struct epoll_event){ .events = events, .data.u64 = whose }) != 0)
		abort();
}

/* Armed for one event, as a connection is for one of those who sit. */
static void watch_listener(struct fcgi *f, int how)
{
	fcgi_watch(f, how, f->listen_fd, EPOLLIN | EPOLLONESHOT, FCGI_LISTENER);
}

void fcgi_seats_open(struct fcgi *f)
{
	if ((f->seat_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
		abort();
	watch_listener(f, EPOLL_CTL_ADD);
	fcgi_watch(f, EPOLL_CTL_ADD, f->stop_fd, EPOLLIN, FCGI_STOP);
}

void fcgi_seats_close(struct fcgi *f)
{
	(void)close(f->seat_fd);
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

/* One of those that wait at the listening socket; -1: none does. */
static int take_new(struct fcgi *f)
{
	int64_t starved_ms = 0; /* since when */
	for (;;) {
		int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 || errno == EAGAIN || (errno == EINVAL && atomic_load(&f->draining)))
			return fd;
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (atomic_load(&f->draining))
			return -1;
		/* No descriptors or memory. A connection that nobody uses is worth less than one that waits; else somebody will end, and
		 * for a while the backlog holds them. */
		int64_t now_ms = clock_ms();
		starved_ms = starved_ms == 0 ? now_ms : starved_ms;
		if (fcgi_kept_drop(f))
			continue;
		if (now_ms - starved_ms >= STARVED_MS)
			turn_away(f);
		else
			(void)poll(
			    &(struct pollfd){ .fd = f->stop_fd, .events = POLLIN }, 1, ACCEPT_PAUSE_MS);
	}
}

/* Whose turn it is; FCGI_STOP: the drain has begun, and there is nothing else. */
static uint64_t wait_ready(struct fcgi *f)
{
	struct epoll_event e = { 0 };
	/* stop_fd stays readable, and whatever else is comes between two of its turns. */
	for (int stops = 0; stops < 2; stops += e.data.u64 == FCGI_STOP) {
		while (epoll_wait(f->seat_fd, &e, 1, -1) != 1)
			continue;
		if (e.data.u64 != FCGI_STOP)
			break;
	}
	return e.data.u64;
}

int fcgi_accept(struct fcgi *f, struct fcgi_kept **kept)
{
	for (uint64_t whose; (whose = wait_ready(f)) != FCGI_STOP;) {
		*kept = NULL;
		int fd = -1;
		if (whose != FCGI_LISTENER) {
			fd = fcgi_kept_take(f, whose, kept);
		} else if (!atomic_load(&f->draining) || f->o.socket_path != NULL) {
			/* Whoever connected to a socket of ours before the drain is still served; systemd keeps its socket for our
			 * successor. */
			fd = take_new(f);
			if (fd >= 0 || !atomic_load(&f->draining))
				watch_listener(f, EPOLL_CTL_MOD);
		}
		if (fd >= 0)
			return fd;
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
 * this one turns out broken. Afterwards keepConnection is cleared: whether the connection is kept is told by how the call ended.
 */
struct fcgi_call *fcgi_read_call(struct fcgi *f, int fd, struct fcgi_kept *kept)
{
	struct fcgi_call *k = fcgi_call_new(f);
	wait_limit(fd, SO_RCVTIMEO, FCGI_HEAD_WAIT_S);
	if (kept == NULL)
		wait_limit(fd, SO_SNDTIMEO, FCGI_WRITE_WAIT_S);
	k->kept = kept;
	k->req.ipcFd = fd;
	k->req.keepConnection = 1;
	if (FCGX_Accept_r(&k->req) != 0) {
		fcgi_call_free(k);
		return NULL;
	}
	k->keep = k->req.keepConnection != 0;
	k->req.keepConnection = 0;
	wait_limit(fd, SO_RCVTIMEO, FCGI_BODY_WAIT_S);
	return k;
}
