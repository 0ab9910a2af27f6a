#include "io/proc_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

#define FIXED_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Everything the child needs, made before the fork: after it only async-signal-safe calls are allowed. */
struct plan {
	const struct proc_opts *o;
	const char *program;
	char *const *argv, *const *env;
	int fds[PROC_STREAMS];
	int report; /* write end: errno when exec did not happen */
	int max_fd;
	pid_t parent;
};

static const char *const default_env[] = { "PATH=" FIXED_PATH, "LANG=C.UTF-8", NULL };

static bool find_program(const char *name, char out[PATH_MAX])
{
	struct str path = str_of(FIXED_PATH), dir;
	while (str_cut(&path, ':', &dir)) {
		auto_buf struct buf b = BUF(PATH_MAX - 1);
		if (buf_add(&b, dir.p, dir.n) == 0 && buf_chr(&b, '/') == 0 && buf_str(&b, name) == 0 &&
		    access(b.p, X_OK) == 0) {
			memcpy(out, b.p, b.n + 1);
			return true;
		}
	}
	return false;
}

/* ---- in the child */

/* Without close_range each descriptor is marked by itself; a closed one answers EBADF. */
static void mark_all_cloexec(int max_fd)
{
	if (close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0)
		return;
	for (int fd = 3; fd < max_fd; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static bool set_descriptors(const struct plan *p)
{
	int moved[PROC_STREAMS];
	/* Out of the way of 0…2 first: a source may stand where another one has to go. */
	for (int i = 0; i < PROC_STREAMS; i++)
		if ((moved[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, 3)) < 0)
			return false;
	for (int i = 0; i < PROC_STREAMS; i++)
		if (dup2(moved[i], i) < 0)
			return false;
	mark_all_cloexec(p->max_fd);
	for (const int *keep = p->o->keep_fds; keep != NULL && *keep >= 0; keep++)
		if (fcntl(*keep, F_SETFD, 0) != 0)
			return false;
	return true;
}

/*
 * By the kernel's own call: the C library lets nobody touch its two internal signals, and a posix_spawn somewhere above us
 * (make, a supervisor) leaves exactly those ignored. All zero is the standard action, whatever the layout.
 */
static void reset_signals(void)
{
	const unsigned long standard[8] = { 0 };
	for (int s = 1; s < NSIG; s++)
		(void)syscall(SYS_rt_sigaction, s, standard, NULL, NSIG / 8);
	sigset_t none;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void child(const struct plan *p)
{
	/* The parent may be gone before prctl took effect. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != p->parent)
		_exit(127);
	bool ready = setpgid(0, 0) == 0 && set_descriptors(p) &&
	    chdir(p->o->cwd == NULL ? "/" : p->o->cwd) == 0 &&
	    /* Another user id forgets the parent-death signal. */
	    (p->o->in_child == NULL ||
		(p->o->in_child(p->o->child_arg) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0));
	if (ready) {
		reset_signals();
		(void)execve(p->program, p->argv, p->env);
	}
	int why = errno;
	ssize_t told = write(p->report, &why, sizeof why);
	_exit(told == sizeof why ? 127 : 126);
}

/* ---- in the parent */

static pid_t fork_child(struct plan *p)
{
	/* No handler of ours may run in the child, and none is needed here for that moment. */
	sigset_t all, old;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	p->parent = getpid();
	pid_t pid = fork();
	if (pid == 0)
		child(p);
	int why = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = why;
	return pid;
}

static int not_started(int why, const char *name, struct err *e)
{
	const char *base = strrchr(name, '/') == NULL ? name : strrchr(name, '/') + 1;
	if (why == E2BIG)
		return err_set(e, ERR_TOO_LARGE, "The arguments of %s are too long for the system.", base);
	if (why == EAGAIN || why == ENOMEM || why == EMFILE || why == ENFILE)
		return err_set(e, ERR_UNAVAILABLE, "The host has no room for another process: try again.");
	return err_set(e, ERR_INTERNAL, "The program %s cannot be started: %s.", base, strerrordesc_np(why));
}

static int open_limit(void)
{
	struct rlimit most;
	if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur > INT_MAX)
		return 1 << 20;
	return (int)most.rlim_cur;
}

pid_t proc_spawn(const struct proc_opts *o, const int fds[PROC_STREAMS], struct err *e)
{
	char program[PATH_MAX];
	const char *name = o->argv[0];
	if (strchr(name, '/') == NULL && !find_program(name, program))
		return err_set(e, ERR_INTERNAL, "The program %s is not installed on this host.", name);
	int report[2];
	if (pipe2(report, O_CLOEXEC) != 0)
		return not_started(errno, name, e);
	auto_fd int from_child = report[0];
	struct plan p = { .o = o,
		.program = strchr(name, '/') == NULL ? program : name,
		/* execve's prototype predates const; it changes nothing. */
		.argv = (char *const *)(uintptr_t)o->argv,
		.env = (char *const *)(uintptr_t)(o->env == NULL ? default_env : o->env),
		.fds = { fds[0], fds[1], fds[2] },
		.report = report[1],
		.max_fd = open_limit() };
	pid_t pid = fork_child(&p);
	int why = pid < 0 ? errno : 0;
	(void)close(report[1]);
	if (pid < 0)
		return not_started(why, name, e);
	/* End of file means that exec happened: the write end is close-on-exec. */
	ssize_t got;
	while ((got = read(from_child, &why, sizeof why)) < 0 && errno == EINTR)
		;
	if (got != sizeof why)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return not_started(why, name, e);
}
