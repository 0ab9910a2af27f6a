/* cmd.c - commands from START to EXIT (SBX-40…42), and what is kept of them afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "box/box.h"
#include "box/path.h"
#include "box/tree.h"

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

struct cmd *cmd_any(struct box *b, uint32_t id)
{
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		if (c->id == id)
			return c;
	return NULL;
}

struct cmd *cmd_find(struct box *b, uint32_t id)
{
	struct cmd *c = cmd_any(b, id);
	return c == NULL || c->dropped ? NULL : c;
}

int cmd_live(const struct box *b)
{
	int n = 0;
	for (const struct cmd *c = b->cmds; c != NULL; c = c->next)
		n += c->state != CMD_ENDED;
	return n;
}

static void unlink_cmd(struct box *b, struct cmd *c)
{
	struct cmd **at = &b->cmds;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	close_fd(&c->in_fd);
	input_end(b, c, PROTO_IN_CLOSED);
	close_fd(&c->report_fd);
	close_fd(&c->go_fd);
	close_fd(&c->fd[0]);
	close_fd(&c->fd[1]);
	ring_free(&c->out[0]);
	ring_free(&c->out[1]);
	free(c->start);
	free(c->args);
	free(c->dir);
	free(c);
}

void cmd_forget(struct box *b, struct cmd *c)
{
	sub_drop(b, c);
	unlink_cmd(b, c);
}

static struct cmd *add(struct box *b, uint32_t id, const unsigned char *p, size_t n)
{
	struct cmd *c = calloc(1, sizeof *c);
	unsigned char *copy = c == NULL ? NULL : malloc(n);
	if (copy == NULL) {
		free(c);
		return NULL;
	}
	memcpy(copy, p, n);
	*c = (struct cmd){ .id = id,
		.start = copy,
		.start_n = n,
		.in_fd = -1,
		.stdin_fd = -1,
		.report_fd = -1,
		.go_fd = -1,
		.fd = { -1, -1 },
		.mark = tree_mark(id) };
	struct cmd **at = &b->cmds;
	while (*at != NULL)
		at = &(*at)->next;
	*at = c;
	return c;
}

static void refuse(struct box *b, struct cmd *c, int err, const char *what)
{
	if (!c->unheard)
		say_error(b, c->id, fault_of(err), "%s: %s", what, strerror(err));
	cmd_forget(b, c);
}

/* Only our end must not block: the other belongs to programs that do not expect it. */
static int open_pipe(struct cmd *c)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC) != 0)
		return -1;
	if (fcntl(fd[1], F_SETFL, O_NONBLOCK) != 0) {
		close_fd(&fd[0]);
		close_fd(&fd[1]);
		return -1;
	}
	c->stdin_fd = fd[1];
	c->in_state = PROTO_IN_OPEN;
	return fd[0];
}

/* The descriptor of its standard input, or -1 with errno. */
static int open_stdin(struct box *b, struct cmd *c, const struct proto_start *s)
{
	if (s->stdin_kind == PROTO_STDIN_NULL)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (s->stdin_kind == PROTO_STDIN_FILE)
		return path_open_file(b, s->stdin_path);
	if (s->stdin_kind == PROTO_STDIN_PIPE)
		return open_pipe(c);
	if (s->stdin_kind == PROTO_STDIN_PTY)
		return pty_open(c, s->cols, s->rows);
	int fd = c->in_fd;
	c->in_fd = -1;
	return lseek(fd, 0, SEEK_SET) == 0 ? fd : -1;
}

/* Where it begins: anywhere, relative to the working directory. */
static int open_dir(const struct box *b, const char *dir)
{
	int work = open(b->conf.workdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (work < 0 || dir[0] == 0)
		return work;
	int fd = openat(work, dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int err = errno;
	(void)close(work);
	errno = err;
	return fd;
}

/* What is told of it later: as many arguments as fit. Without memory nothing is told. */
static void remember(struct cmd *c, const struct proto_start *s)
{
	struct proto_in in = s->argv_in;
	size_t n = 0;
	c->dir = strndup(s->dir, PROTO_TOLD_MAX);
	c->args = malloc(PROTO_TOLD_MAX);
	c->told_cut = strlen(s->dir) > PROTO_TOLD_MAX || c->dir == NULL || c->args == NULL;
	for (; c->args != NULL && c->n_args < s->n_argv; c->n_args++) {
		const char *arg = proto_get_str(&in);
		size_t k = strlen(arg) + 1;
		if (n + k > PROTO_TOLD_MAX)
			break;
		memcpy(c->args + n, arg, k);
		n += k;
	}
	c->told_cut |= c->n_args < s->n_argv;
}

static void launch(struct box *b, struct cmd *c)
{
	struct proto_in in = { .p = c->start, .n = c->start_n };
	struct proto_start s;
	(void)proto_start_get(&in, &s); /* it was well-formed when it came */
	int dir = open_dir(b, s.dir);
	if (dir < 0) {
		refuse(b, c, errno, "dir");
		return;
	}
	int fd = open_stdin(b, c, &s);
	int err = fd < 0 ? errno : 0;
	const char *what = fd < 0 ? (s.stdin_kind == PROTO_STDIN_PTY ? "terminal" : "stdin")
				  : "The sandbox cannot start another process";
	if (err == 0)
		err = spawn(b, c, &s, dir, fd);
	(void)close(dir);
	close_fd(&fd);
	if (err != 0) {
		refuse(b, c, err, what);
		return;
	}
	remember(c, &s);
	free(c->start);
	c->start = NULL;
	c->state = CMD_FORKED;
	c->forked_ms = clock_ms();
	c->deadline_ms = c->timeout_ms == 0 ? 0 : c->forked_ms + (int64_t)c->timeout_ms;
}

void cmd_start(struct box *b, uint32_t id, const unsigned char *p, size_t n, const struct proto_start *s)
{
	if (cmd_live(b) >= PROTO_COMMANDS_MAX) {
		say_error(
		    b, id, PROTO_NO_ROOM, "The sandbox is running %d commands already.", PROTO_COMMANDS_MAX);
		return;
	}
	struct cmd *c = add(b, id, p, n);
	if (c == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "The sandbox is out of memory.");
		return;
	}
	(void)snprintf(c->label, sizeof c->label, "%s", s->label);
	c->hold = s->hold;
	c->timeout_ms = s->timeout_ms > INT32_MAX ? INT32_MAX : s->timeout_ms;
	if (s->stdin_kind != PROTO_STDIN_FED) {
		launch(b, c);
		return;
	}
	/* A file without a name, not a pipe: whole before the command begins, so that nothing ever reads half of it, and
	 * at its end when it was read (SBX-40). */
	c->state = CMD_FEEDING;
	c->in_fd = memfd_create("stdin", MFD_CLOEXEC);
	if (c->in_fd < 0)
		refuse(b, c, errno, "stdin");
}

void cmd_feed(struct box *b, struct cmd *c, const unsigned char *p, size_t n)
{
	if (n == 0) {
		launch(b, c);
		return;
	}
	c->in_n += n;
	if (c->in_n > PROTO_STDIN_MAX) {
		if (!c->unheard)
			say_error(b, c->id, PROTO_TOO_LARGE, "Standard input has at most %d bytes.",
			    PROTO_STDIN_MAX);
		cmd_forget(b, c);
		return;
	}
	while (n > 0) {
		ssize_t put = write(c->in_fd, p, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0) {
			refuse(b, c, put == 0 ? ENOSPC : errno, "stdin");
			return;
		}
		p += put;
		n -= (size_t)put;
	}
}

void cmd_go(struct box *b, struct cmd *c)
{
	(void)b;
	if (c->state != CMD_HELD || c->go_fd < 0)
		return;
	int64_t now = clock_ms();
	c->deadline_ms = c->timeout_ms == 0 ? 0 : now + (int64_t)c->timeout_ms;
	c->state = CMD_RUNNING;
	(void)!write(c->go_fd, "g", 1); /* it died meanwhile: its exit comes */
	close_fd(&c->go_fd);
}

static void leader_gone(struct cmd *c, int status)
{
	if (c->leader_dead)
		return;
	for (int s = 0; s < 2; s++) {
		/* What it wrote lies in the pipe now, before anything that others write later. */
		int in_pipe = 0;
		if (c->fd[s] >= 0 && ioctl(c->fd[s], FIONREAD, &in_pipe) == 0 && in_pipe > 0)
			c->due[s] = c->out[s].end + (uint64_t)in_pipe;
	}
	c->leader_dead = true;
	c->leader = 0;
	close_fd(&c->report_fd);
	c->dead_ms = c->data_ms = clock_ms();
	c->took_ms = c->dead_ms - c->forked_ms;
	if (WIFSIGNALED(status)) {
		c->how = PROTO_SIGNALED;
		c->code = (uint32_t)WTERMSIG(status);
		return;
	}
	c->how = PROTO_EXITED;
	c->code = (uint32_t)WEXITSTATUS(status);
	if (c->exec_errno == 0)
		return;
	c->how = c->code == 127 ? PROTO_NOT_FOUND : PROTO_NOT_EXECUTABLE;
	(void)snprintf(
	    c->message, sizeof c->message, "The command was not started: %s.", strerror(c->exec_errno));
}

static void take_report(struct box *b, struct cmd *c, const struct report *r)
{
	switch (r->what) {
	case REPORT_PID:
		c->leader = c->pid = r->value;
		if (c->state == CMD_FORKED) {
			c->state = c->hold ? CMD_HELD : CMD_RUNNING;
			unsigned char pid[4];
			struct proto_out o = { .p = pid, .cap = sizeof pid };
			proto_put_u32(&o, (uint32_t)r->value);
			if (!c->unheard)
				say(b, PROTO_STARTED, c->id, pid, sizeof pid);
		}
		break;
	case REPORT_NO_EXEC:
		c->exec_errno = r->value;
		break;
	case REPORT_EXIT:
		leader_gone(c, r->value);
		break;
	default:
		break;
	}
}

void cmd_report(struct box *b, struct cmd *c)
{
	struct report r;
	ssize_t n;
	/* Writes of this size are whole (PIPE_BUF). */
	while (c->report_fd >= 0 && (n = read(c->report_fd, &r, sizeof r)) != -1) {
		if (n != (ssize_t)sizeof r) {
			close_fd(&c->report_fd);
			return;
		}
		if (r.what == REPORT_NO_FORK) {
			/* The keeper is gone and nothing ran. */
			refuse(b, c, r.value, "The sandbox cannot start another process");
			return;
		}
		take_report(b, c, &r);
	}
}

bool cmd_readable(struct box *b, struct cmd *c, int s)
{
	if (c->fd[s] < 0)
		return false;
	return c->state == CMD_ENDED || ring_has_room(&c->out[s], sub_floor(b, c, s));
}

void cmd_read(struct box *b, struct cmd *c, int s)
{
	/* A few reads a turn: a loud command must not starve the others. */
	for (int turn = 0; turn < 4 && c->fd[s] >= 0; turn++) {
		static char lost[16384];
		ssize_t n = c->state == CMD_ENDED ? read(c->fd[s], lost, sizeof lost)
						  : ring_fill(&c->out[s], c->fd[s], sub_floor(b, c, s));
		if (n > 0)
			c->data_ms = clock_ms();
		else if (n == 0 || (c->pty && errno == EIO)) /* of a terminal: nothing has it open any more */
			close_fd(&c->fd[s]);
		else
			return; /* EAGAIN, EINTR; ENOBUFS: a reader has to catch up */
	}
}

/* The leader's own output has not been read yet (a slow reader may hold it back for a while). */
static bool is_due(const struct cmd *c)
{
	return (c->fd[0] >= 0 && c->out[0].end < c->due[0]) || (c->fd[1] >= 0 && c->out[1].end < c->due[1]);
}

static bool is_drained(const struct cmd *c, int64_t now)
{
	if (c->fd[0] < 0 && c->fd[1] < 0)
		return true;
	return !is_due(c) && (now - c->data_ms >= GRACE_MS || now - c->dead_ms >= GRACE_MAX_MS);
}

void cmd_fill_exit(const struct cmd *c, struct proto_exit *x)
{
	*x = (struct proto_exit){ .how = c->state == CMD_ENDED ? c->how : PROTO_RUNNING,
		.flags = c->flags,
		.code = c->code,
		.duration_ms = (uint64_t)c->took_ms,
		.bytes = { c->out[0].end, c->out[1].end },
		.message = c->message };
	if (c->state != CMD_ENDED)
		x->code = 0;
}

/* What finished commands may hold: the newest PROTO_COMMANDS_MAX, and KEEP_BYTES; those being read go last. */
static struct cmd *to_drop(struct box *b)
{
	size_t bytes = 0;
	int n = 0;
	struct cmd *oldest = NULL, *unread = NULL;
	for (struct cmd *c = b->cmds; c != NULL; c = c->next) {
		if (c->state != CMD_ENDED || c->dropped)
			continue;
		n++;
		bytes += c->out[0].cap + c->out[1].cap;
		if (oldest == NULL)
			oldest = c;
		bool read_now = false;
		for (const struct sub *s = b->subs; s != NULL; s = s->next)
			read_now |= s->cmd == c;
		if (unread == NULL && !read_now)
			unread = c;
	}
	if (n <= PROTO_COMMANDS_MAX && bytes <= KEEP_BYTES)
		return NULL;
	return unread != NULL ? unread : oldest;
}

static void drop_old(struct box *b)
{
	for (struct cmd *c = to_drop(b); c != NULL; c = to_drop(b)) {
		sub_drop(b, c);
		ring_free(&c->out[0]);
		ring_free(&c->out[1]);
		c->dropped = true;
	}
}

/* Killed, and nothing is left: see tree.h for what proves it. */
static bool is_gone(const struct box *b, const struct cmd *c)
{
	return c->keeper == 0 && c->empty >= 2 && !b->strays;
}

static void end(struct box *b, struct cmd *c)
{
	/* Unless its own status came: its keeper was killed, or it cannot be killed. */
	if (c->state == CMD_FORKED && !c->unheard)
		say_error(b, c->id, PROTO_CONFLICT, "The command was ended before it began.");
	leader_gone(c, SIGKILL);
	c->state = CMD_ENDED;
	if (is_gone(b, c))
		c->kill_ms = 0;
	ring_trim(&c->out[0]);
	ring_trim(&c->out[1]);
	close_fd(&c->go_fd);
	input_end(b, c, PROTO_IN_CLOSED);
	if (c->pty) /* who has outlived it is hung up on */
		close_fd(&c->fd[0]);
	drop_old(b);
}

static bool is_over(struct box *b, struct cmd *c, int64_t now)
{
	if (c->state == CMD_FEEDING || c->state == CMD_ENDED)
		return false;
	if (c->kill_ms != 0 && !is_gone(b, c)) {
		if (now - c->kill_ms < ESCAPE_MS)
			return false;
		c->flags |= PROTO_ESCAPED;
		return true;
	}
	if (!c->leader_dead && c->kill_ms == 0)
		return false;
	return is_drained(c, now);
}

static void forget_the_empty(struct box *b)
{
	for (struct cmd *c = b->cmds, *next; c != NULL; c = next) {
		next = c->next;
		if (c->dropped && c->keeper == 0 && c->fd[0] < 0 && c->fd[1] < 0 && c->kill_ms == 0 &&
		    (b->subreaper || c->alive == 0))
			unlink_cmd(b, c);
	}
}

/* Processes that a command left behind keep their pipes as long as those of few commands are open. */
static void limit_leftovers(struct box *b)
{
	int n = 0;
	for (const struct cmd *c = b->cmds; c != NULL; c = c->next)
		n += c->state == CMD_ENDED && (c->fd[0] >= 0 || c->fd[1] >= 0);
	for (struct cmd *c = b->cmds; c != NULL && n > PROTO_COMMANDS_MAX; c = c->next) {
		if (c->state != CMD_ENDED || (c->fd[0] < 0 && c->fd[1] < 0))
			continue;
		close_fd(&c->fd[0]);
		close_fd(&c->fd[1]);
		n--;
	}
}

void cmd_tick(struct box *b, int64_t now)
{
	for (struct cmd *c = b->cmds; c != NULL; c = c->next) {
		if (c->state == CMD_ENDED || c->state == CMD_FEEDING)
			continue;
		if (c->deadline_ms != 0 && now >= c->deadline_ms && c->state == CMD_RUNNING &&
		    !c->leader_dead)
			kill_begin(b, c, PROTO_TIMED_OUT);
		if (c->state == CMD_HELD && now - c->forked_ms >= HOLD_MS)
			kill_begin(b, c, PROTO_STOPPED);
		if (is_over(b, c, now))
			end(b, c);
	}
	limit_leftovers(b);
	forget_the_empty(b);
}

int64_t cmd_next_ms(struct box *b)
{
	int64_t at = INT64_MAX;
	for (const struct cmd *c = b->cmds; c != NULL; c = c->next) {
		int64_t mine = INT64_MAX;
		if (c->state == CMD_ENDED || c->state == CMD_FEEDING)
			continue;
		if (c->kill_ms != 0 && !is_gone(b, c))
			mine = INT64_MAX; /* kill_tick comes anyway */
		else if (c->leader_dead && is_due(c))
			mine = INT64_MAX; /* reading it is what comes next */
		else if (c->leader_dead)
			mine = c->data_ms - c->dead_ms < GRACE_MAX_MS - GRACE_MS ? c->data_ms + GRACE_MS
										 : c->dead_ms + GRACE_MAX_MS;
		else if (c->state == CMD_HELD)
			mine = c->forked_ms + HOLD_MS;
		else if (c->deadline_ms != 0 && c->kill_ms == 0)
			mine = c->deadline_ms;
		at = mine < at ? mine : at;
	}
	return at;
}

static struct cmd *by_keeper(const struct box *b, pid_t pid)
{
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		if (c->keeper == pid)
			return c;
	return NULL;
}

bool cmd_is_keeper(const struct box *b, pid_t pid)
{
	return by_keeper(b, pid) != NULL;
}

void cmd_hangup(struct box *b)
{
	for (struct cmd *c = b->cmds, *next; c != NULL; c = next) {
		next = c->next;
		c->unheard = true;
		if (c->state == CMD_FEEDING)
			cmd_forget(b, c); /* it must not run on half of its input */
		else if (c->state == CMD_HELD || (c->state == CMD_FORKED && c->hold)) {
			/* Nobody can let it go. It never began: who asks for it later hears that there is none. */
			c->dropped = true;
			kill_begin(b, c, PROTO_STOPPED);
		}
	}
}

void cmd_reaped(struct box *b, pid_t pid, int status)
{
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		if (c->leader == pid)
			leader_gone(c, status); /* its keeper died before it */
	struct cmd *c = by_keeper(b, pid);
	if (c == NULL)
		return;
	c->keeper = 0;
	if (WIFSIGNALED(status)) {
		/* Somebody in the sandbox killed it: what it kept has come to us and goes. */
		b->strays = true;
		kill_begin(b, c, 0);
	}
	cmd_report(b, c); /* what it said last; may forget c */
}
