/*
 * Threads are all alike. A free one takes the first of these that is to be done: accept, where nobody does; the first call of
 * the queue; accept, while a seat is free (fcgi_accept.c); else it parks. Who accepts a connection leaves the seat, reads the
 * request and runs it to its log line: no call changes hands while there is room. Where W calls are run already it is queued, or
 * refused where the queue is full. A call that may last (OP_STREAM, OP_LONG) is counted among the streams and no longer among
 * the W, and at least W + 2 threads are left beside the streams: W calls, one that accepts, and one that reads.
 *
 * The lock guards the queue, the list of streams and the counts; nothing is read or written on a connection under it, and whom
 * it is to wake is woken after it. Accept, queue and drain never wait for a handler.
 */
#include "io/fcgi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "io/fcgi_int.h"

/* What any request needs at most: a handler with libpq, TLS and a JSON parser at LIMIT_JSON_DEPTH. What is not touched costs
 * nothing. Sanitizers need more. */
#ifdef __SANITIZE_ADDRESS__
enum { STACK_BYTES = 4 << 20 };
#else
enum { STACK_BYTES = 512 * 1024 };
#endif
enum { PARK_S = 2, BESIDE_WORKERS = 2, HEADS_MAX = 64 };

static void *thread(void *arg);

/* Counted before it exists: a drain that begins now waits for it. The lock is not held. */
static int one_more(struct fcgi *f)
{
	pthread_attr_t a;
	pthread_t t;
	pthread_mutex_lock(&f->lock);
	f->n_threads++;
	pthread_mutex_unlock(&f->lock);
	if (pthread_attr_init(&a) != 0)
		abort();
	int rc = pthread_attr_setstacksize(&a, STACK_BYTES);
	rc = rc != 0 ? rc : pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	rc = rc != 0 ? rc : pthread_create(&t, &a, thread, f);
	(void)pthread_attr_destroy(&a);
	if (rc == 0)
		return 0;
	pthread_mutex_lock(&f->lock);
	f->n_threads--;
	pthread_mutex_unlock(&f->lock);
	return -1;
}

/* ---- what the functions down to the next line have in common: the lock is held */

/* Threads that do not have a stream. */
static int n_free(const struct fcgi *f)
{
	return f->n_threads - f->n_streams;
}

/* A parked thread is to come; the caller signals `work` when it has given the lock back. False: none is parked. */
static bool call_one(struct fcgi *f)
{
	bool there = f->n_parked > f->n_called;
	f->n_called += there;
	return there;
}

static void queue_put(struct fcgi *f, struct fcgi_call *k)
{
	*(f->first == NULL ? &f->first : &f->last->next) = k;
	f->last = k;
	f->n_queued++;
}

static struct fcgi_call *queue_take(struct fcgi *f)
{
	struct fcgi_call *k = f->n_busy < f->o.workers ? f->first : NULL;
	if (k == NULL)
		return NULL;
	f->first = k->next;
	k->next = NULL;
	f->n_queued--;
	f->n_busy++;
	return k;
}

/* False: there are more threads than are needed, and this one was not for a while. */
static bool park(struct fcgi *f)
{
	bool surplus = n_free(f) > f->o.workers + BESIDE_WORKERS, late = false;
	int64_t until_ms = clock_ms() + PARK_S * 1000LL;
	f->n_parked++;
	while (f->n_called == 0 && !f->closed && !late)
		if (surplus)
			late = !cond_wait_until(&f->work, &f->lock, until_ms);
		else
			(void)pthread_cond_wait(&f->work, &f->lock);
	f->n_parked--;
	bool called = f->n_called > 0;
	f->n_called -= called;
	return called || !late || n_free(f) <= f->o.workers + BESIDE_WORKERS;
}

/* ---- accepting */

/*
 * Nobody may be left without somebody who accepts, as only that one can say "busy". So where no other does, one is called or
 * made. Where that cannot be the seat is kept, and a peer that stalls in its request has all others wait for FCGI_HEAD_WAIT_S.
 */
static bool leave_seat(struct fcgi *f)
{
	pthread_mutex_lock(&f->lock);
	bool leaves = f->n_heads < HEADS_MAX, alone = leaves && f->n_seated == 1 && f->n_called == 0;
	bool called = alone && call_one(f);
	if (leaves) {
		f->n_heads++;
		f->n_seated--;
	}
	pthread_mutex_unlock(&f->lock);
	if (called)
		(void)pthread_cond_signal(&f->work);
	if (!alone || called || one_more(f) == 0)
		return leaves;
	pthread_mutex_lock(&f->lock);
	bool back = f->n_seated == 0; /* nobody has come meanwhile */
	if (back) {
		f->n_heads--;
		f->n_seated++;
	}
	pthread_mutex_unlock(&f->lock);
	return !back;
}

/* What was accepted has been read (NULL: it was none), in a seat or not. It is returned where the caller is to run it; else it
 * is in the queue, or refused. */
static struct fcgi_call *admit(struct fcgi *f, struct fcgi_call *k, bool left)
{
	pthread_mutex_lock(&f->lock);
	f->n_heads -= left;
	f->accepted += k != NULL;
	bool room = f->n_busy < f->o.workers, run = k != NULL && left && room && f->first == NULL;
	bool queued = k != NULL && !run && f->n_queued < f->o.queue, refused = k != NULL && !run && !queued;
	if (queued)
		queue_put(f, k);
	bool called = queued && room && !left && call_one(f);
	f->n_busy += run;
	f->refused += refused;
	pthread_mutex_unlock(&f->lock);
	if (called)
		(void)pthread_cond_signal(&f->work);
	if (refused) {
		struct err e = { 0 };
		err_set(&e, ERR_UNAVAILABLE, "The server is busy; try again shortly.");
		e.reason = "busy";
		fcgi_refuse(k, &e);
	}
	return run ? k : NULL;
}

/*
 * The lock is held, and a seat is free. NULL: there is something else to do. Whoever was called for the queue may come here, as the
 * seat goes first: then another is called for it.
 */
static struct fcgi_call *sit(struct fcgi *f)
{
	f->n_seated++;
	bool waiting = f->first != NULL && f->n_busy < f->o.workers, called = waiting && call_one(f);
	pthread_mutex_unlock(&f->lock);
	if (called)
		(void)pthread_cond_signal(&f->work);
	else if (waiting)
		(void)one_more(f); /* where that cannot be, whoever ends next takes it */
	struct fcgi_call *k = NULL;
	struct fcgi_kept *kept;
	bool left = false;
	for (int fd; !left && (fd = fcgi_accept(f, &kept)) >= 0;) {
		left = leave_seat(f);
		k = admit(f, fcgi_read_call(f, fd, kept), left);
	}
	pthread_mutex_lock(&f->lock);
	if (!left) {
		f->closed = true;
		f->n_seated--;
		(void)pthread_cond_broadcast(&f->work);
		(void)pthread_cond_broadcast(&f->fewer);
	}
	return k;
}

/* The lock is held. NULL: the thread is to end. */
static struct fcgi_call *next_call(struct fcgi *f)
{
	for (;;) {
		bool may_sit = !f->closed && f->n_seated < FCGI_SEATS;
		struct fcgi_call *k = may_sit && f->n_seated == 0 ? NULL : queue_take(f);
		if (k == NULL && may_sit)
			k = sit(f);
		else if (k == NULL && (f->closed || !park(f)))
			return NULL;
		if (k != NULL)
			return k;
	}
}

static void *thread(void *arg)
{
	struct fcgi *f = arg;
	pthread_mutex_lock(&f->lock);
	for (struct fcgi_call *k; (k = next_call(f)) != NULL;) {
		pthread_mutex_unlock(&f->lock);
		bool streamed = fcgi_request(k);
		pthread_mutex_lock(&f->lock);
		*(streamed ? &f->n_streams : &f->n_busy) -= 1;
	}
	/* `f` lives until all is counted: fcgi_drain waits for it under the lock. */
	f->n_threads--;
	(void)pthread_cond_broadcast(&f->fewer);
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

int fcgi_stream(struct fcgi_call *k, struct err *e)
{
	struct fcgi *f = k->f;
	pthread_mutex_lock(&f->lock);
	bool room = f->n_streams < f->o.max_streams, waiting = room && f->first != NULL;
	if (room) {
		f->n_busy--;
		f->n_streams++;
		k->streaming = true;
		k->next = f->streams;
		f->streams = k;
	} else {
		f->refused++;
	}
	bool called = waiting && call_one(f), few = !f->closed && n_free(f) < f->o.workers + BESIDE_WORKERS;
	pthread_mutex_unlock(&f->lock);
	if (called)
		(void)pthread_cond_signal(&f->work);
	if (room && (!(few || (waiting && !called)) || one_more(f) == 0))
		return 0;
	if (room) {
		fcgi_stream_end(k);
		k->streaming = false;
		pthread_mutex_lock(&f->lock);
		f->n_streams--;
		f->n_busy++;
		pthread_mutex_unlock(&f->lock);
	}
	e->retry_s = 5;
	return err_set(e, ERR_UNAVAILABLE, "Too many streams are open on this server; try again shortly.");
}

static bool threads_gone(struct fcgi *f, int wait_s)
{
	int64_t until_ms = clock_ms() + wait_s * 1000LL;
	while (f->n_threads > 0 && cond_wait_until(&f->fewer, &f->lock, until_ms))
		;
	return f->n_threads == 0;
}

/* Streams end themselves when they see the drain; one that does not is cut off from its client. The lock is held. */
static void streams_drain(struct fcgi *f)
{
	if (threads_gone(f, f->o.drain_s > 0 ? f->o.drain_s : FCGI_DRAIN_S))
		return;
	for (struct fcgi_call *k = f->streams; k != NULL; k = k->next)
		(void)shutdown(k->req.ipcFd, SHUT_RDWR);
	/* A thread that does not even end then holds f: the process leaves it behind. */
	if (!threads_gone(f, FCGI_CUT_WAIT_S))
		log_warn("streams did not end in time");
}

/* ---- start and end */

static struct fcgi *core_new(const struct fcgi_opts *o, int listen_fd, int stop_fd)
{
	struct fcgi *f = xcalloc(1, sizeof *f);
	f->o = *o;
	f->routes = routes_new(o->tables);
	f->listen_fd = listen_fd;
	f->stop_fd = stop_fd;
	f->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	atomic_init(&f->draining, false);
	if (pthread_mutex_init(&f->lock, NULL) != 0 || pthread_cond_init(&f->work, NULL) != 0 ||
	    pthread_cond_init(&f->fewer, NULL) != 0)
		abort();
	return f;
}

static void core_free(struct fcgi *f)
{
	routes_free(f->routes);
	(void)close(f->stop_fd);
	if (f->spare_fd >= 0)
		(void)close(f->spare_fd);
	(void)pthread_mutex_destroy(&f->lock);
	(void)pthread_cond_destroy(&f->work);
	(void)pthread_cond_destroy(&f->fewer);
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
	/* What cannot be made at the start means limits far too low: the supervisor shows the abort. */
	fcgi_seats_open(f);
	for (int i = 0; i < o->workers + BESIDE_WORKERS; i++)
		if (one_more(f) != 0)
			abort();
	return f;
}

/*
 * The order matters: nobody new, streams are woken, the backlog and the queue are served, then streams get drain_s to say
 * where to resume. Threads without a stream end before streams are waited for, as a queued request may still become one.
 */
void fcgi_drain(struct fcgi *f)
{
	if (f->drained)
		return;
	if (f->o.socket_path != NULL)
		(void)shutdown(f->listen_fd, SHUT_RD); /* nobody new; the backlog stays */
	atomic_store(&f->draining, true);
	if (eventfd_write(f->stop_fd, 1) != 0)
		abort();
	if (f->o.on_drain != NULL)
		f->o.on_drain(f->o.app);
	pthread_mutex_lock(&f->lock);
	while (!f->closed || f->n_seated > 0)
		(void)pthread_cond_wait(&f->fewer, &f->lock);
	fcgi_kept_end(f); /* nothing has come on them */
	/* The seats first: they would stay registered with a socket that systemd keeps. */
	fcgi_seats_close(f);
	(void)close(f->listen_fd);
	while (n_free(f) > 0)
		(void)pthread_cond_wait(&f->fewer, &f->lock);
	streams_drain(f);
	pthread_mutex_unlock(&f->lock);
	f->drained = true;
}

void fcgi_stop(struct fcgi *f)
{
	if (f == NULL)
		return;
	fcgi_drain(f);
	if (f->n_streams + f->n_parked == 0)
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
		.kept = f->n_kept,
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
