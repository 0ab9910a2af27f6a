/* spawn.c - keeper and leader of a command (see tree.h). Everything after fork here is async-signal-safe enough: the box has
 * one thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "box/box.h"
#include "box/tree.h"

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* What keeper and leader need of the box; all descriptors are above 2. */
struct child {
	char **argv, **env;
	int in, out[2], report, go, dir; /* go: -1 when not held */
	bool pty;                        /* in and out are its terminal */
	uint64_t mark;
};

static void report(int fd, uint32_t what, int32_t value)
{
	struct report r = { what, value };
	while (write(fd, &r, sizeof r) < 0 && errno == EINTR)
		;
}

/* The first descriptor of the six that is above `after`. */
static int next_kept(const int keep[6], int after)
{
	int least = -1;
	for (int i = 0; i < 6; i++)
		if (keep[i] > after && (least < 0 || keep[i] < least))
			least = keep[i];
	return least;
}

/* The highest descriptor in use. Nothing of ours is above 1023 (main.c), but a thousand calls to find that out are slow. */
static int highest_fd(void)
{
	char buf[1024] __attribute__((aligned(8)));
	long highest = -1, got = 0;
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (dir >= 0 && (got = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < got;) {
			const struct dirent64 *d = (const struct dirent64 *)(const void *)(buf + at);
			long fd = strtol(d->d_name, NULL, 10);
			highest = fd > highest ? fd : highest;
			at += d->d_reclen;
		}
	if (dir >= 0)
		(void)close(dir);
	return dir < 0 || got < 0 ? 1023 : (int)highest;
}

/* gVisor has no close_range. */
static void close_span(int from, int to)
{
	if (from > to || syscall(SYS_close_range, from, to, 0) == 0)
		return;
	if (to == INT32_MAX)
		to = highest_fd();
	for (int fd = from; fd <= to; fd++)
		(void)close(fd);
}

/* Other commands' pipes must not live on in here: their readers would wait for an end that never comes. */
static void close_others(const struct child *k)
{
	const int keep[6] = { k->in, k->out[0], k->out[1], k->report, k->go, k->dir };
	int at = 2;
	for (int fd = next_kept(keep, at); fd >= 0; fd = next_kept(keep, at)) {
		close_span(at + 1, fd - 1);
		at = fd;
	}
	close_span(at + 1, INT32_MAX);
}

/* When memory runs out the kernel should take a command, not the box. The file of a non-dumpable process belongs to root. */
static void volunteer_for_oom(void)
{
	if (prctl(PR_SET_DUMPABLE, 1) != 0)
		return;
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!write(fd, "500", 3);
		(void)close(fd);
	}
	(void)prctl(PR_SET_DUMPABLE, 0);
}

static void default_signals(void)
{
	/* By the kernel's own call, as in io/proc_spawn.c: the C library keeps two signals from us. */
	const unsigned long standard[8] = { 0 };
	for (int sig = 1; sig < NSIG; sig++)
		(void)syscall(SYS_rt_sigaction, sig, standard, NULL, NSIG / 8);
	sigset_t none;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static const char *path_of(char *const *env)
{
	for (; *env != NULL; env++)
		if (str_starts(*env, "PATH="))
			return *env + 5;
	return default_path;
}

/* Look argv[0] up in the command's own PATH. Returns the errno that says most. */
static int exec_in_path(const struct child *k)
{
	int worst = ENOENT;
	char full[4096];
	struct str rest = str_of(path_of(k->env)), dir;
	while (str_cut(&rest, ':', &dir)) {
		int n = snprintf(
		    full, sizeof full, "%.*s%s%s", (int)dir.n, dir.p, dir.n == 0 ? "" : "/", k->argv[0]);
		if (n < 0 || (size_t)n >= sizeof full)
			continue;
		(void)execve(full, k->argv, k->env);
		if (errno != ENOENT && errno != ENOTDIR && (worst == ENOENT || errno != EACCES))
			worst = errno;
	}
	return worst;
}

static _Noreturn void leader(const struct child *k)
{
	char go;
	(void)setsid();
	struct rlimit mark;
	if (getrlimit(RLIMIT_RSS, &mark) == 0 && k->mark < mark.rlim_max) {
		mark.rlim_max = mark.rlim_cur = k->mark;
		(void)setrlimit(RLIMIT_RSS, &mark);
	}
	volunteer_for_oom();
	(void)umask(022);
	bool ready = (!k->pty || ioctl(k->in, TIOCSCTTY, 0) == 0) && fchdir(k->dir) == 0 &&
	    dup2(k->in, 0) == 0 && dup2(k->out[0], 1) == 1 && dup2(k->out[1], 2) == 2;
	if (ready && k->go >= 0 && read(k->go, &go, 1) != 1)
		_exit(125); /* given up before it began */
	int err = errno;
	if (ready) {
		default_signals();
		if (k->argv[0] == NULL || k->argv[0][0] == 0)
			err = ENOENT;
		else if (strchr(k->argv[0], '/') == NULL)
			err = exec_in_path(k);
		else
			err = execve(k->argv[0], k->argv, k->env) == 0 ? 0 : errno;
	}
	report(k->report, REPORT_NO_EXEC, err);
	_exit(err == ENOENT || err == ENOTDIR ? 127 : 126);
}

/* Wait for everything below. It holds no pipe of the command, so its being there is never seen in its output. */
static _Noreturn void keep(const struct child *k, pid_t first)
{
	for (const int *fd = (const int[]){ k->in, k->out[0], k->out[1], k->go, k->dir, -2 }; *fd != -2; fd++)
		if (*fd >= 0)
			(void)close(*fd);
	report(k->report, REPORT_PID, first);
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);
		if (pid == first)
			report(k->report, REPORT_EXIT, status);
		else if (pid < 0 && errno != EINTR)
			_exit(0);
	}
}

static _Noreturn void keeper(const struct child *k)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)setsid();
	sigset_t all;
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	close_others(k);
	pid_t pid = fork();
	if (pid < 0) {
		report(k->report, REPORT_NO_FORK, errno);
		_exit(1);
	}
	if (pid == 0)
		leader(k);
	keep(k, pid);
}

static size_t name_len(const char *pair)
{
	return strcspn(pair, "=");
}

static bool named_in(struct proto_in list, uint32_t n, const char *pair)
{
	size_t len = name_len(pair);
	while (n-- > 0) {
		const char *other = proto_get_str(&list);
		if (name_len(other) == len && strncmp(other, pair, len) == 0)
			return true;
	}
	return false;
}

/* SBX-31: what configures the sandbox is not the commands' business; what a command is given itself is untouched. */
static bool kept_from_lease(const char *pair)
{
	return !str_starts(pair, "SANDBOX_") || str_starts(pair, "SANDBOX_TIER=");
}

/* The strings stay where they are; NULL when there is no memory. */
static char **make_env(const struct box *b, const struct proto_start *s)
{
	char **env = calloc((size_t)b->conf.n_env + s->n_env + 1, sizeof *env);
	if (env == NULL)
		return NULL;
	size_t n = 0;
	struct proto_in own = b->conf.env_in, given = s->env_in;
	for (uint32_t i = 0; i < b->conf.n_env; i++) {
		const char *pair = proto_get_str(&own);
		if (kept_from_lease(pair) && !named_in(s->env_in, s->n_env, pair))
			env[n++] = (char *)(uintptr_t)
			    pair; /* execve wants it without const and does not write */
	}
	for (uint32_t i = 0; i < s->n_env; i++)
		env[n++] = (char *)(uintptr_t)proto_get_str(&given);
	return env;
}

static char **make_argv(const struct proto_start *s)
{
	char **argv = calloc((size_t)s->n_argv + 1, sizeof *argv);
	struct proto_in in = s->argv_in;
	for (uint32_t i = 0; argv != NULL && i < s->n_argv; i++)
		argv[i] = (char *)(uintptr_t)proto_get_str(&in);
	return argv;
}

static void close_pairs(int pairs[4][2])
{
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 2; k++)
			if (pairs[i][k] >= 0)
				(void)close(pairs[i][k]);
}

enum { P_OUT, P_ERR, P_REPORT, P_GO };

/* master: of its terminal, which takes the place of both output pipes; -1: none. */
static int open_pipes(int pairs[4][2], bool hold, int master)
{
	const int first = master >= 0 ? P_REPORT : P_OUT;
	for (int i = 0; i < 4; i++)
		pairs[i][0] = pairs[i][1] = -1;
	if (master >= 0 && (pairs[P_OUT][0] = fcntl(master, F_DUPFD_CLOEXEC, 3)) < 0)
		return errno;
	for (int i = first; i < (hold ? 4 : 3); i++)
		if (pipe2(pairs[i], O_CLOEXEC) != 0)
			return errno;
	for (int i = first; i <= P_REPORT; i++)
		if (fcntl(pairs[i][0], F_SETFL, O_NONBLOCK) != 0)
			return errno;
	return 0;
}

static int take(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}

static int fork_keeper(struct box *b, struct cmd *c, struct child *k, int pairs[4][2])
{
	k->out[0] = k->pty ? k->in : pairs[P_OUT][1];
	k->out[1] = k->pty ? k->in : pairs[P_ERR][1];
	k->report = pairs[P_REPORT][1];
	k->go = pairs[P_GO][0];
	pid_t pid = fork();
	if (pid < 0)
		return errno;
	if (pid == 0) {
		explicit_bzero(b->nonce, PROTO_NONCE);
		keeper(k);
	}
	c->keeper = pid;
	c->fd[0] = take(&pairs[P_OUT][0]);
	c->fd[1] = take(&pairs[P_ERR][0]);
	c->report_fd = take(&pairs[P_REPORT][0]);
	c->go_fd = take(&pairs[P_GO][1]);
	return 0;
}

int spawn(struct box *b, struct cmd *c, const struct proto_start *s, int dir_fd, int in_fd)
{
	int pairs[4][2];
	int err = open_pipes(pairs, s->hold, c->pty ? c->stdin_fd : -1);
	struct child k = { .argv = make_argv(s),
		.env = make_env(b, s),
		.in = in_fd,
		.dir = dir_fd,
		.pty = c->pty,
		.mark = c->mark };
	if (err == 0 && (k.argv == NULL || k.env == NULL))
		err = ENOMEM;
	if (err == 0)
		err = fork_keeper(b, c, &k, pairs);
	close_pairs(pairs);
	free(k.argv);
	free(k.env);
	return err;
}

/* A grandchild whose parent dies: does it come to its grandparent? The pipe keeps it alive until that is known. */
static int subreaper_probe(int hold_r, int hold_w)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid_t mid = fork();
	if (mid < 0)
		return 1;
	if (mid == 0) {
		char c;
		(void)close(hold_w);
		if (fork() == 0)
			(void)!read(hold_r, &c, 1);
		_exit(0);
	}
	while (waitpid(mid, NULL, 0) < 0 && errno == EINTR)
		;
	return waitpid(-1, NULL, WNOHANG) == 0 ? 0 : 1;
}

bool spawn_subreaper_works(void)
{
	int hold[2], status = 1;
	if (pipe2(hold, O_CLOEXEC) != 0)
		return false;
	pid_t pid = fork();
	if (pid == 0)
		_exit(subreaper_probe(hold[0], hold[1]));
	(void)close(hold[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)close(hold[1]);
	return pid > 0 && status == 0;
}
