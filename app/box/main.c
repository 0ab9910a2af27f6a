/*
 * gatehouse-box - pid 1 of every sandbox. It takes no argument and no environment: its configuration (struct proto_config)
 * is read from descriptor 0 to its end, once, so that nothing that runs later can find it. What goes wrong at the start is
 * said on standard error, which is the sandbox's log (SBX-5, SBX-65).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "box/box.h"
#include "box/tree.h"

enum { EXIT_START = 78, DESCRIPTORS_MAX = 1024, BACKLOG = 16 };

static int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int complain(const char *fmt, ...)
{
	char line[256];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	if (n > 0)
		(void)dprintf(2, "gatehouse-box: %s\n", line);
	return -1;
}

static void on_child(int sig)
{
	(void)sig; /* it only interrupts ppoll */
}

/* Everything is blocked but a child's news, which comes in ppoll only. As pid 1 the kernel adds: what has no handler does
 * not arrive, not even SIGKILL, when sent from inside. */
static void set_signals(void)
{
	struct sigaction sa = { .sa_handler = on_child };
	sigset_t set;
	(void)sigfillset(&set);
	for (const int *sig = (const int[]){ SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, 0 }; *sig != 0; sig++)
		(void)sigdelset(&set, *sig);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)sigaction(SIGCHLD, &sa, NULL);
}

/* What ppoll lets in must do nothing: only a handled or ignored signal is safe there when we are not pid 1. */
static void ignore_the_rest(void)
{
	struct sigaction ign = { .sa_handler = SIG_IGN };
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (sig != SIGCHLD && sig != SIGSEGV && sig != SIGBUS && sig != SIGFPE && sig != SIGILL &&
		    sig != SIGABRT)
			(void)sigaction(sig, &ign, NULL);
}

static int read_config(struct box *b)
{
	size_t n = 0;
	b->conf_mem = malloc(PROTO_CONFIG_MAX);
	b->nonce = mmap(NULL, PROTO_NONCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->conf_mem == NULL || b->nonce == MAP_FAILED)
		return complain("out of memory");
	(void)madvise(b->nonce, PROTO_NONCE, MADV_WIPEONFORK);
	while (n < PROTO_CONFIG_MAX) {
		ssize_t got = read(0, b->conf_mem + n, PROTO_CONFIG_MAX - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return complain("cannot read the configuration: %s", strerror(errno));
		if (got == 0)
			break;
		n += (size_t)got;
	}
	struct proto_in in = { .p = b->conf_mem, .n = n };
	bool good = proto_config_get(&in, &b->conf);
	memcpy(b->nonce, b->conf.nonce, PROTO_NONCE);
	explicit_bzero(b->conf.nonce, PROTO_NONCE);
	explicit_bzero(b->conf_mem, n < 8 + PROTO_NONCE ? n : 8 + PROTO_NONCE);
	return good ? 0 : complain("the configuration on descriptor 0 is not one of this version");
}

static int settle_descriptors(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return complain("no /dev/null: %s", strerror(errno));
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > DESCRIPTORS_MAX) {
		files.rlim_cur =
		    DESCRIPTORS_MAX; /* spawn.c closes up to here where it must do so one by one */
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (dup2(null, 0) < 0 || (fcntl(1, F_GETFD) < 0 && dup2(null, 1) < 0) ||
	    (fcntl(2, F_GETFD) < 0 && dup2(null, 2) < 0))
		return complain("cannot settle descriptors: %s", strerror(errno));
	if (null > 2)
		(void)close(null);
	return 0;
}

static int harden(void)
{
	if (getuid() == 0 || geteuid() == 0)
		return complain("will not run as uid 0 (SBX-25)");
	struct rlimit none = { 0, 0 };
	(void)setrlimit(RLIMIT_CORE, &none);
	if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return complain("cannot protect itself: %s", strerror(errno));
	return 0;
}

/* SBX-25: the image is the one that was meant. */
static int check_image(const struct box *b)
{
	char text[256];
	size_t want = strlen(b->conf.check_text);
	if (b->conf.check_path[0] == 0)
		return 0;
	int fd = open(b->conf.check_path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
	if (fd >= 0)
		(void)close(fd);
	if (n < 0)
		return complain("wrong image: it has no %s", b->conf.check_path);
	if (want > sizeof text || (size_t)n < want || memcmp(text, b->conf.check_text, want) != 0)
		return complain("wrong image: %s does not say %s", b->conf.check_path, b->conf.check_text);
	return 0;
}

/* Roots that this sandbox does not have are left out. */
static int open_roots(struct box *b, struct proto_in in, uint32_t n_roots, bool ro)
{
	for (uint32_t i = 0; i < n_roots; i++) {
		const char *path = proto_get_str(&in);
		size_t n = strlen(path);
		if (path[0] != '/' || n < 2 || path[n - 1] == '/' || strstr(path, "//") != NULL ||
		    strstr(path, "/.") != NULL)
			return complain("a workspace root must be a plain absolute path");
		int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			return complain("%s: %s", path, strerror(errno));
		if (fd < 0)
			continue;
		char *copy = strdup(path);
		if (copy == NULL)
			return complain("out of memory");
		b->roots[b->n_roots++] = (struct root){ .path = copy, .n = n, .fd = fd, .ro = ro };
	}
	return 0;
}

static int open_workspace(struct box *b)
{
	if (open_roots(b, b->conf.roots_in, b->conf.n_roots, false) != 0 ||
	    open_roots(b, b->conf.ro_roots_in, b->conf.n_ro_roots, true) != 0)
		return -1;
	return access(b->conf.workdir, X_OK) == 0 ? 0 : complain("%s: %s", b->conf.workdir, strerror(errno));
}

static int check_proc(void)
{
	return access("/proc/self/stat", R_OK) == 0 ? 0 : complain("no /proc: commands could not be ended");
}

static int listen_here(struct box *b)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = strlen(b->conf.socket_path);
	if (n >= sizeof to.sun_path)
		return complain("the socket's path is too long");
	memcpy(to.sun_path, b->conf.socket_path, n);
	b->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before = umask(077);
	bool good = b->listen_fd >= 0 && bind(b->listen_fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
	    listen(b->listen_fd, BACKLOG) == 0;
	(void)umask(before);
	return good ? 0 : complain("cannot listen on %s: %s", b->conf.socket_path, strerror(errno));
}

static void begin(struct box *b)
{
	tree_setup();
	b->init = getpid() == 1;
	if (!b->init)
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	b->subreaper = spawn_subreaper_works();
	int64_t now = clock_ms();
	b->idle_since_ms = now;
	b->end_ms = b->conf.lease_ms > INT64_MAX / 2 ? INT64_MAX : now + (int64_t)b->conf.lease_ms;
	for (int i = 0; i < CONNS_MAX; i++)
		b->conns[i].fd = -1;
}

int main(void)
{
	static struct box b;
	set_signals();
	if (harden() != 0 || read_config(&b) != 0 || settle_descriptors() != 0 || check_proc() != 0 ||
	    check_image(&b) != 0 || open_workspace(&b) != 0)
		return EXIT_START;
	ignore_the_rest();
	begin(&b);
	if (listen_here(&b) != 0)
		return EXIT_START;
	box_run(&b);
	return 0;
}
