#include "io/proc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/proc_spawn.h"

enum {
	CHUNK_BYTES = 64 * 1024, /* also a pipe's default size */
	PIPE_CHUNKS = 16,
	ERRTAIL_BYTES = 16 * 1024,
	OUT_DEFAULT_BYTES = 1 << 20,
	TERM_MS = 500,   /* from SIGTERM to SIGKILL */
	DRAIN_MS = 250,  /* silence after the child's end that counts as the end of its output */
	ASK_MS = 150,    /* between two questions whether it is cancelled */
	NO_PIDFD_MS = 20 /* look for the child's end this often where the kernel cannot tell */
};

struct run {
	const struct proc_opts *o;
	struct proc_result *r;
	struct err *e;
	pid_t pid;
	int in, out, err, pidfd; /* our ends; -1 when closed */
	char *chunk;             /* CHUNK_BYTES */
	char *input;             /* CHUNK_BYTES, of which [input_at, input_n) waits to be written */
	size_t input_at, input_n;
	int64_t deadline_ms, asked_ms, kill_ms; /* kill_ms: 0 until SIGTERM was sent */
	bool killed, ended;
};

static void shut(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* Ask the group to go; judge() sends SIGKILL when the time is over. */
static void begin_kill(struct run *s)
{
	if (s->kill_ms != 0)
		return;
	s->kill_ms = clock_ms() + TERM_MS;
	(void)kill(-s->pid, SIGTERM);
	(void)kill(-s->pid, SIGCONT);
}

static void cancel(struct run *s)
{
	s->r->cancelled = true;
	begin_kill(s);
}

/* ---- the three streams */

static bool refill(struct run *s)
{
	ssize_t n = s->o->in_read(s->o->arg, s->input, CHUNK_BYTES);
	if (n < 0)
		cancel(s);
	s->input_at = 0;
	s->input_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

/* A child that closes its standard input early is not at fault; the signal of that write is taken back. */
static void forget_sigpipe(void)
{
	sigset_t pipe_only;
	(void)sigemptyset(&pipe_only);
	(void)sigaddset(&pipe_only, SIGPIPE);
	const struct timespec now = { 0, 0 };
	while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
		;
}

static void feed(struct run *s)
{
	if (s->kill_ms != 0 || (s->input_at == s->input_n && !refill(s))) {
		shut(&s->in);
		return;
	}
	ssize_t n = write(s->in, s->input + s->input_at, s->input_n - s->input_at);
	if (n >= 0) {
		s->input_at += (size_t)n;
		return;
	}
	if (errno == EAGAIN || errno == EINTR)
		return;
	if (errno == EPIPE)
		forget_sigpipe();
	shut(&s->in);
}

static void take_out(struct run *s, size_t n)
{
	if (s->kill_ms != 0 && (s->r->cancelled || s->e->code != ERR_NONE))
		return; /* nobody wants it any more; it is still read, so that the child can end */
	if (s->o->on_out != NULL) {
		if (s->o->on_out(s->o->arg, s->chunk, n) != 0)
			cancel(s);
	} else if (buf_add(&s->r->out, s->chunk, n) != 0) {
		err_set(s->e, ERR_TOO_LARGE, "The program's output is larger than %zu bytes.", s->r->out.max);
		begin_kill(s);
	}
}

static void take_err(struct run *s, size_t n)
{
	struct buf *b = &s->r->errout;
	size_t keep = n > ERRTAIL_BYTES ? ERRTAIL_BYTES : n;
	if (b->n + keep > ERRTAIL_BYTES)
		buf_drop(b, b->n + keep - ERRTAIL_BYTES);
	(void)buf_add(b, s->chunk + n - keep, keep);
}

/* Read once; false when there is nothing now. */
static bool drain(struct run *s, int *fd)
{
	ssize_t n = read(*fd, s->chunk, CHUNK_BYTES);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0)
		shut(fd);
	else if (fd == &s->out)
		take_out(s, (size_t)n);
	else
		take_err(s, (size_t)n);
	return n > 0;
}

/* ---- the loop */

/* Has the child itself ended? It stays a zombie, so that its pid and group stay ours until everything is done. */
static void look(struct run *s)
{
	siginfo_t si = { 0 };
	int rc = waitid(P_PID, (id_t)s->pid, &si, WEXITED | WNOHANG | WNOWAIT);
	s->ended = rc == 0 ? si.si_pid == s->pid : errno != EINTR;
}

static void judge(struct run *s)
{
	int64_t now = clock_ms();
	if (now >= s->deadline_ms && s->kill_ms == 0) {
		s->r->timed_out = true;
		begin_kill(s);
	}
	if (s->o->cancelled != NULL && s->kill_ms == 0 && now - s->asked_ms >= ASK_MS) {
		s->asked_ms = now;
		if (s->o->cancelled(s->o->arg))
			cancel(s);
	}
	if (s->kill_ms != 0 && now >= s->kill_ms && !s->killed) {
		s->killed = true;
		(void)kill(-s->pid, SIGKILL);
	}
}

static int patience(const struct run *s)
{
	int ms = clock_left_ms(s->kill_ms == 0 ? s->deadline_ms : s->kill_ms);
	if (s->killed)
		ms = DRAIN_MS;
	if (s->o->cancelled != NULL && ms > ASK_MS)
		ms = ASK_MS;
	if (s->pidfd < 0 && !s->ended && ms > NO_PIDFD_MS)
		ms = NO_PIDFD_MS;
	return s->ended && ms > DRAIN_MS ? DRAIN_MS : ms;
}

/* One turn; false when there is nothing more to wait for. */
static bool step(struct run *s)
{
	struct pollfd p[] = {
		{ .fd = s->in, .events = POLLOUT },
		{ .fd = s->out, .events = POLLIN },
		{ .fd = s->err, .events = POLLIN },
		{ .fd = s->ended ? -1 : s->pidfd, .events = POLLIN },
	};
	int64_t before = clock_ms();
	int ready = poll(p, 4, patience(s));
	if (ready < 0 && errno != EINTR)
		abort(); /* only a bad argument or no kernel memory */
	if (ready > 0) {
		if (p[1].revents != 0)
			(void)drain(s, &s->out);
		if (p[2].revents != 0)
			(void)drain(s, &s->err);
		if (p[0].revents != 0 && s->in >= 0)
			feed(s);
	}
	bool was = s->ended;
	if (!s->ended && (p[3].revents != 0 || s->pidfd < 0))
		look(s);
	judge(s);
	if (!s->ended)
		return true;
	if (s->out < 0 && s->err < 0)
		return false;
	/* Something that left the group may hold the pipes for ever: silence, a kill or the deadline is the end then. */
	bool silent = was && ready == 0 && clock_ms() - before >= DRAIN_MS / 2;
	return !silent && !s->killed;
}

/* What the pipes still hold; no more than that, as somebody who left the group may go on writing. */
static void last_words(struct run *s)
{
	for (int i = 0; i < PIPE_CHUNKS && s->out >= 0 && drain(s, &s->out); i++)
		;
	for (int i = 0; i < PIPE_CHUNKS && s->err >= 0 && drain(s, &s->err); i++)
		;
}

static void reap(struct run *s)
{
	int status;
	pid_t got;
	if (!s->o->leaves || s->kill_ms != 0)
		(void)kill(-s->pid, SIGKILL); /* the zombie keeps the group's number from being used again */
	while ((got = waitpid(s->pid, &status, 0)) < 0 && errno == EINTR)
		;
	assert(got == s->pid); /* nobody else waits for our children, and SIGCHLD is not ignored */
	s->r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	s->r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void follow(struct run *s)
{
	sigset_t pipe_only, old;
	(void)sigemptyset(&pipe_only);
	(void)sigaddset(&pipe_only, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
	while (step(s))
		;
	last_words(s);
	reap(s);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- starting */

/* A pipe for one stream: our end, non-blocking, into *ours, the child's into *theirs. */
static int open_pipe(int stream, int *ours, int *theirs, struct err *e)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The host has no room for another process: try again.");
	*ours = p[stream == PROC_IN];
	*theirs = p[stream != PROC_IN];
	(void)fcntl(*ours, F_SETFL, O_NONBLOCK);
	return 0;
}

static int start(struct run *s)
{
	const struct proc_opts *o = s->o;
	auto_fd int in = -1, out = -1, err = -1;
	int fds[PROC_STREAMS] = { o->stdin_fd, o->stdout_fd, o->stderr_fd };
	if (o->in_read != NULL) {
		if (open_pipe(PROC_IN, &s->in, &in, s->e) != 0)
			return -1;
		fds[PROC_IN] = in;
	} else if (o->stdin_fd < 0) {
		fds[PROC_IN] = in = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (in < 0)
			return err_set(
			    s->e, ERR_UNAVAILABLE, "The host has no room for another process: try again.");
	}
	if (o->stdout_fd < 0) {
		if (open_pipe(PROC_OUT, &s->out, &out, s->e) != 0)
			return -1;
		fds[PROC_OUT] = out;
	}
	if (o->stderr_fd < 0) {
		if (open_pipe(PROC_ERR, &s->err, &err, s->e) != 0)
			return -1;
		fds[PROC_ERR] = err;
	}
	s->pid = proc_spawn(o, fds, s->e);
	if (s->pid < 0)
		return -1;
	s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	return 0;
}

int proc_run(const struct proc_opts *o, struct proc_result *r, struct err *e)
{
	assert(o->timeout_ms > 0 && o->argv != NULL && o->argv[0] != NULL);
	*r = (struct proc_result){ .exit_code = -1,
		.out = BUF(o->max_out_bytes == 0 ? OUT_DEFAULT_BYTES : o->max_out_bytes),
		.errout = BUF(ERRTAIL_BYTES) };
	auto_free char *chunk = xcalloc(1, CHUNK_BYTES);
	auto_free char *input = o->in_read == NULL ? NULL : xcalloc(1, CHUNK_BYTES);
	struct run s = { .o = o,
		.r = r,
		.e = e,
		.in = -1,
		.out = -1,
		.err = -1,
		.pidfd = -1,
		.chunk = chunk,
		.input = input,
		.deadline_ms = clock_ms() + o->timeout_ms };
	if (start(&s) == 0)
		follow(&s);
	shut(&s.in);
	shut(&s.out);
	shut(&s.err);
	shut(&s.pidfd);
	return e->code == ERR_NONE ? 0 : -1;
}

void proc_free(struct proc_result *r)
{
	buf_free(&r->out);
	buf_free(&r->errout);
}
