/*
 * Threads: two acceptors (accept, read parameters, queue), W workers (a request up to its reply), one thread a stream.
 * A call belongs to exactly one of them at a time: acceptor → queue → worker → stream thread; whoever holds it last
 * frees it. The lock guards the queue, the list of streams and the counts; nothing is read or written on a connection
 * under it. Accept, queue and drain never wait for a handler.
 */
#include "io/fcgi.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include "base/log.h"
#include "io/fcgi_int.h"

/* What a stream's thread needs at most: a handler with libpq and a JSON parser at LIMIT_JSON_DEPTH. Sanitizers need more. */
#ifdef __SANITIZE_ADDRESS__
enum { STREAM_STACK_BYTES = 2 << 20 };
#else
enum { STREAM_STACK_BYTES = 256 * 1024 };
#endif
enum { ACCEPT_PAUSE_MS = 50 };

/* ---- the queue: bounded, so that a request waits for at most queue / workers others before it */

static int queue_put(struct fcgi *f, struct fcgi_call *k)
{
	pthread_mutex_lock(&f->lock);
	f->accepted++;
	int rc = f->n_queued < f->o.queue ? 0 : -1;
	if (rc == 0) {
		*(f->first == NULL ? &f->first : &f->last->next) = k;
		f->last = k;
		f->n_queued++;
		pthread_cond_signal(&f->ready);
	} else {
		f->refused++;
	}
	pthread_mutex_unlock(&f->lock);
	return rc;
}

/* NULL once draining, the acceptors are done and nothing is left. */
static struct fcgi_call *queue_take(struct fcgi *f, bool was_busy)
{
	pthread_mutex_lock(&f->lock);
	f->n_busy -= was_busy;
	while (f->first == NULL && f->acceptors_left > 0)
		pthread_cond_wait(&f->ready, &f->lock);
	struct fcgi_call *k = f->first;
	if (k != NULL) {
		f->first = k->next;
		k->next = NULL;
		f->n_queued--;
		f->n_busy++;
	}
	pthread_mutex_unlock(&f->lock);
	return k;
}

static void *worker(void *arg)
{
	struct fcgi *f = arg;
	struct fcgi_call *k;
	for (bool busy = false; (k = queue_take(f, busy)) != NULL; busy = true)
		fcgi_request(k);
	return NULL;
}

/* ---- accepting */

static void wait_limits(int fd, int read_s, int write_s)
{
	struct timeval r = { .tv_sec = read_s }, w = { .tv_sec = write_s };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &r, sizeof r);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &w, sizeof w);
}

/*
 * We accept by ourselves (close-on-exec, time limits, no exit on EMFILE) and give libfcgi the connection as one that it kept
 * from an earlier request; with listen_sock -1 it cannot accept another when this one turns out broken. Afterwards
 * keepConnection is cleared whatever nginx asked for: one connection, one request.
 */
static void take_connection(struct fcgi *f, int fd)
{
	struct fcgi_call *k = fcgi_call_new(f);
	wait_limits(fd, FCGI_HEAD_WAIT_S, FCGI_WRITE_WAIT_S);
	k->req.ipcFd = fd;
	k->req.keepConnection = 1;
	if (FCGX_Accept_r(&k->req) != 0) {
		fcgi_call_free(k);
		return;
	}
	k->req.keepConnection = 0;
	wait_limits(fd, FCGI_BODY_WAIT_S, FCGI_WRITE_WAIT_S);
	if (queue_put(f, k) != 0) {
		struct err e = { 0 };
		err_set(&e, ERR_UNAVAILABLE, "The server is busy; try again shortly.");
		e.reason = "busy";
		fcgi_refuse(k, &e);
	}
}

static void *acceptor(void *arg)
{
	struct fcgi *f = arg;
	struct pollfd fds[2] = { { .fd = f->listen_fd, .events = POLLIN },
		{ .fd = f->stop_fd, .events = POLLIN } };
	/* Whoever connected to a socket of ours before the drain is still served; systemd keeps its socket for our successor. */
	while (!atomic_load(&f->draining) || f->o.socket_path != NULL) {
		int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			take_connection(f, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (atomic_load(&f->draining))
			break;
		if (errno == EAGAIN)
			(void)poll(fds, 2, -1);
		else /* no descriptors or memory: somebody will end; meanwhile the backlog holds them */
			(void)poll(fds + 1, 1, ACCEPT_PAUSE_MS);
	}
	pthread_mutex_lock(&f->lock);
	f->acceptors_left--;
	pthread_cond_broadcast(&f->ready);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

/* ---- streams */

/* Before the call's descriptor is closed, so that a cut never hits one that was given to somebody else since. */
void fcgi_stream_end(struct fcgi_call *k)
{
	struct fcgi *f = k->f;
	pthread_mutex_lock(&f->lock);
	struct fcgi_call **at = &f->streams;
	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	pthread_mutex_unlock(&f->lock);
}

static void *stream(void *arg)
{
	struct fcgi_call *k = arg;
	struct fcgi *f = k->f;
	fcgi_finish(k);
	/* `f` lives until this is counted: fcgi_drain waits for it under the lock. */
	pthread_mutex_lock(&f->lock);
	f->n_streams--;
	pthread_cond_broadcast(&f->streams_less);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static int stream_thread(struct fcgi_call *k)
{
	pthread_attr_t a;
	pthread_t t;
	if (pthread_attr_init(&a) != 0)
		return -1;
	int rc = pthread_attr_setstacksize(&a, STREAM_STACK_BYTES);
	rc = rc != 0 ? rc : pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	rc = rc != 0 ? rc : pthread_create(&t, &a, stream, k);
	(void)pthread_attr_destroy(&a);
	return rc == 0 ? 0 : -1;
}

/* Counted and listed before the thread exists: a drain that begins now waits for it. */
int fcgi_stream(struct fcgi_call *k, struct err *e)
{
	struct fcgi *f = k->f;
	pthread_mutex_lock(&f->lock);
	bool room = f->n_streams < f->o.max_streams;
	if (room) {
		f->n_streams++;
		k->streaming = true;
		k->next = f->streams;
		f->streams = k;
	} else {
		f->refused++;
	}
	pthread_mutex_unlock(&f->lock);
	if (room && stream_thread(k) == 0)
		return 0;
	if (room) {
		fcgi_stream_end(k);
		k->streaming = false;
		pthread_mutex_lock(&f->lock);
		f->n_streams--;
		pthread_mutex_unlock(&f->lock);
	}
	e->retry_s = 5;
	return err_set(e, ERR_UNAVAILABLE, "Too many streams are open on this server; try again shortly.");
}

static bool streams_gone(struct fcgi *f, int wait_s)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_s;
	int rc = 0;
	while (f->n_streams > 0 && rc == 0)
		rc = pthread_cond_timedwait(&f->streams_less, &f->lock, &until);
	return f->n_streams == 0;
}

/* Streams end themselves when they see the drain; one that does not is cut off from its client. */
static void streams_drain(struct fcgi *f)
{
	pthread_mutex_lock(&f->lock);
	if (!streams_gone(f, f->o.drain_s > 0 ? f->o.drain_s : FCGI_DRAIN_S)) {
		for (struct fcgi_call *k = f->streams; k != NULL; k = k->next)
			(void)shutdown(k->req.ipcFd, SHUT_RDWR);
		/* A thread that does not even end then holds f: the process leaves it behind. */
		if (!streams_gone(f, FCGI_CUT_WAIT_S))
			log_warn("streams did not end in time");
	}
	pthread_mutex_unlock(&f->lock);
}

/* ---- start and end */

static struct fcgi *core_new(const struct fcgi_opts *o, int listen_fd, int stop_fd)
{
	struct fcgi *f = xcalloc(1, sizeof *f);
	f->o = *o;
	f->listen_fd = listen_fd;
	f->stop_fd = stop_fd;
	atomic_init(&f->draining, false);
	f->workers = xcalloc((size_t)o->workers, sizeof *f->workers);
	pthread_condattr_t a;
	if (pthread_mutex_init(&f->lock, NULL) != 0 || pthread_condattr_init(&a) != 0 ||
	    pthread_condattr_setclock(&a, CLOCK_MONOTONIC) != 0 || pthread_cond_init(&f->ready, NULL) != 0 ||
	    pthread_cond_init(&f->streams_less, &a) != 0)
		abort();
	(void)pthread_condattr_destroy(&a);
	return f;
}

static void core_free(struct fcgi *f)
{
	(void)close(f->stop_fd);
	(void)pthread_mutex_destroy(&f->lock);
	(void)pthread_cond_destroy(&f->ready);
	(void)pthread_cond_destroy(&f->streams_less);
	free(f->workers);
	free(f);
}

struct fcgi *fcgi_start(const struct fcgi_opts *o, struct err *e)
{
	auto_fd int listen_fd = fcgi_socket(o->socket_path, o->socket_group, e);
	auto_fd int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (listen_fd < 0 || stop_fd < 0 || FCGX_Init() != 0) {
		err_set(e, ERR_INTERNAL, "The FastCGI server cannot be set up: %s.", strerror(errno));
		return NULL;
	}
	struct fcgi *f = core_new(o, steal_fd(&listen_fd), steal_fd(&stop_fd));
	f->acceptors_left = N_ACCEPTORS;
	/* Threads that cannot be made at the start mean limits far too low: the supervisor shows the abort. */
	for (int i = 0; i < o->workers; i++)
		if (pthread_create(&f->workers[i], NULL, worker, f) != 0)
			abort();
	for (int i = 0; i < N_ACCEPTORS; i++)
		if (pthread_create(&f->acceptors[i], NULL, acceptor, f) != 0)
			abort();
	return f;
}

/*
 * The order matters: nobody new, streams are woken, the backlog and the queue are served, then streams get drain_s to say
 * where to resume. Workers end before streams are waited for, as a queued request may still become one.
 */
void fcgi_drain(struct fcgi *f)
{
	if (f->drained)
		return;
	atomic_store(&f->draining, true);
	if (f->o.socket_path != NULL)
		(void)shutdown(f->listen_fd, SHUT_RD); /* nobody new; the backlog stays */
	if (eventfd_write(f->stop_fd, 1) != 0)
		abort();
	if (f->o.on_drain != NULL)
		f->o.on_drain(f->o.app);
	for (int i = 0; i < N_ACCEPTORS; i++)
		(void)pthread_join(f->acceptors[i], NULL);
	(void)close(f->listen_fd);
	for (int i = 0; i < f->o.workers; i++)
		(void)pthread_join(f->workers[i], NULL);
	streams_drain(f);
	f->drained = true;
}

void fcgi_stop(struct fcgi *f)
{
	if (f == NULL)
		return;
	fcgi_drain(f);
	if (f->n_streams == 0)
		core_free(f);
}

bool fcgi_draining(const struct fcgi *f)
{
	return atomic_load(&f->draining);
}

void fcgi_stats(struct fcgi *f, struct fcgi_stats *s)
{
	pthread_mutex_lock(&f->lock);
	*s = (struct fcgi_stats){
		.busy = f->n_busy,
		.queued = f->n_queued,
		.streams = f->n_streams,
		.accepted = f->accepted,
		.refused = f->refused,
	};
	pthread_mutex_unlock(&f->lock);
}

static void our_signals(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)sigaddset(set, SIGHUP);
}

void fcgi_block_signals(void)
{
	sigset_t set;
	our_signals(&set);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	/* libfcgi would install handlers of its own for these two; a write to a client that left is an error, not a death. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGUSR1, SIG_IGN);
}

void fcgi_wait(struct fcgi *f, void (*on_hup)(void *app))
{
	sigset_t set;
	our_signals(&set);
	for (;;) {
		int sig = 0;
		if (sigwait(&set, &sig) != 0)
			continue;
		if (sig == SIGTERM || sig == SIGINT)
			break;
		if (on_hup != NULL)
			on_hup(f->o.app);
	}
	log_info("draining");
	fcgi_drain(f);
}
