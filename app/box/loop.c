/* loop.c - the one loop: wait, take what came, reap, look at the clock, send. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "box/box.h"

enum { POLL_MAX = 640, PUMP_TURNS = 16, ENDING_MS = 2000, ROUND_ENDING_MS = 10 };

/* What a poll entry is about. Commands by id, as one event may end another's command. */
struct about {
	enum { AB_LISTEN, AB_CONN, AB_REPORT, AB_STREAM, AB_INPUT, AB_XFER } what;
	int index;
	uint32_t id;
};
struct polled {
	struct pollfd fd[POLL_MAX];
	struct about about[POLL_MAX];
	nfds_t n;
};

static void watch(struct polled *p, int fd, short events, struct about about)
{
	if (fd < 0 || p->n >= POLL_MAX)
		return;
	p->fd[p->n] = (struct pollfd){ .fd = fd, .events = events };
	p->about[p->n++] = about;
}

static void gather(struct box *b, struct polled *p, int64_t now)
{
	p->n = 0;
	if (now >= b->listen_again_ms && !b->ending)
		watch(p, b->listen_fd, POLLIN, (struct about){ AB_LISTEN, 0, 0 });
	for (int i = 0; i < CONNS_MAX; i++) {
		struct conn *c = &b->conns[i];
		short events = c->closing ? 0 : POLLIN;
		if (c->out_at < c->out_n)
			events |= POLLOUT;
		watch(p, c->fd, events, (struct about){ AB_CONN, i, 0 });
	}
	for (const struct xfer *x = NULL; (x = xfer_after(b, x)) != NULL;)
		watch(p, xfer_poll(b, x, now), POLLIN, (struct about){ AB_XFER, 0, 0 });
	for (struct cmd *c = b->cmds; c != NULL; c = c->next) {
		watch(p, c->report_fd, POLLIN, (struct about){ AB_REPORT, 0, c->id });
		for (int s = 0; s < 2; s++)
			if (cmd_readable(b, c, s))
				watch(p, c->fd[s], POLLIN, (struct about){ AB_STREAM, s, c->id });
		/* Without a wish for room it still tells when the last reader has gone. */
		watch(p, c->stdin_fd, input_waits(b, c) ? POLLOUT : 0, (struct about){ AB_INPUT, 0, c->id });
	}
}

static void happened(struct box *b, const struct about *a, short events)
{
	struct cmd *c = a->what == AB_LISTEN || a->what == AB_CONN ? NULL : cmd_any(b, a->id);
	if (a->what == AB_LISTEN) {
		conn_accept(b);
	} else if (a->what == AB_CONN) {
		struct conn *conn = &b->conns[a->index];
		if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && conn->fd >= 0 && !conn->closing)
			conn_read(b, conn);
		if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0 && conn->fd >= 0)
			conn_write(b, conn);
	} else if (c != NULL && a->what == AB_REPORT) {
		cmd_report(b, c);
	} else if (c != NULL && a->what == AB_INPUT) {
		if (c->stdin_fd >= 0)
			input_ready(b, c);
	} else if (c != NULL) {
		cmd_read(b, c, a->index);
	} /* AB_XFER: the pump, next */
}

/* As pid 1 everything without a parent comes here; no zombie stays (SBX-41). */
static void reap(struct box *b)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (!WIFSTOPPED(status))
			cmd_reaped(b, pid, status);
		else if (cmd_is_keeper(b, pid))
			(void)kill(pid, SIGCONT); /* it must go on waiting, whoever stopped it */
	}
}

/* Send what can be sent. True when there is more and the socket takes it. */
static bool pump(struct box *b)
{
	for (int turn = 0; turn < PUMP_TURNS && b->client != NULL; turn++) {
		struct conn *c = b->client;
		bool moved = sub_pump(b);
		moved |= xfer_pump(b);
		if (c->out_at < c->out_n || c->closing)
			conn_write(b, c);
		if (!moved || b->client != c || c->out_at < c->out_n)
			return false;
	}
	return b->client != NULL;
}

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t next_ms(struct box *b, int64_t now)
{
	int64_t at = min64(min64(b->end_ms, xfer_next_ms(b)), min64(cmd_next_ms(b), sub_next_ms(b)));
	if (b->next_kill_ms != 0)
		at = min64(at, b->next_kill_ms);
	if (now < b->listen_again_ms)
		at = min64(at, b->listen_again_ms);
	if (b->conf.idle_ms != 0 && b->client == NULL && cmd_live(b) == 0)
		at = min64(at, b->idle_since_ms + (int64_t)b->conf.idle_ms);
	for (const struct stop *s = b->stops; s != NULL; s = s->next)
		at = min64(at, now + 100);
	for (int i = 0; i < CONNS_MAX; i++)
		if (b->conns[i].fd >= 0 && !b->conns[i].client)
			at = min64(at, b->conns[i].since_ms + HELLO_MS);
	return at;
}

static void wait_for(struct polled *p, int64_t ms)
{
	sigset_t none;
	(void)sigemptyset(&none); /* SIGCHLD is blocked except in here */
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	int n = ppoll(p->fd, p->n, &ts, &none);
	for (nfds_t i = 0; n < 0 && i < p->n; i++)
		p->fd[i].revents = 0; /* EINTR: a child has changed */
}

static void tick(struct box *b, int64_t now)
{
	bool busy = cmd_live(b) > 0; /* until now */
	kill_tick(b, now);
	cmd_tick(b, now);
	kill_tick(b, now); /* what a time-out has just condemned */
	stop_tick(b, now);
	sub_tick(b, now);
	conn_expire(b, now);
	if (busy)
		b->idle_since_ms = now;
}

static bool is_idle(const struct box *b, int64_t now)
{
	return b->conf.idle_ms != 0 && b->client == NULL && cmd_live(b) == 0 &&
	    now - b->idle_since_ms >= (int64_t)b->conf.idle_ms;
}

/* SBX-66. What nobody asked for is said: it is the sandbox's last word. */
static bool is_over(const struct box *b, int64_t now)
{
	if (b->ending)
		return true;
	if (now >= b->end_ms)
		(void)dprintf(2, "gatehouse-box: the lease has ended\n");
	else if (is_idle(b, now))
		(void)dprintf(2, "gatehouse-box: nobody has wanted this sandbox for a while\n");
	else
		return false;
	return true;
}

/* The end of pid 1 is the end of everything; anywhere else the commands are ended one by one. */
static void end_all(struct box *b)
{
	struct polled p;
	int64_t until = clock_ms() + ENDING_MS;
	b->ending = true;
	if (b->init)
		return;
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		kill_begin(b, c, PROTO_STOPPED);
	for (int64_t now = clock_ms(); b->next_kill_ms != 0 && now < until; now = clock_ms()) {
		gather(b, &p, now);
		wait_for(&p, ROUND_ENDING_MS);
		reap(b);
		kill_tick(b, clock_ms());
	}
}

void box_run(struct box *b)
{
	struct polled p;
	int64_t now = clock_ms();
	while (!is_over(b, now)) {
		bool more = pump(b);
		gather(b, &p, now);
		int64_t left = more ? 0 : next_ms(b, now) - now;
		wait_for(&p, left < 0 ? 0 : min64(left, 60000));
		for (nfds_t i = 0; i < p.n; i++)
			if (p.fd[i].revents != 0)
				happened(b, &p.about[i], p.fd[i].revents);
		reap(b);
		now = clock_ms();
		tick(b, now);
	}
	(void)pump(b); /* the last answers */
	end_all(b);
}
