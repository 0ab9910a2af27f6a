#include "t.h"

#include "fds.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "io/proc.h"

enum { TEXT_BYTES = 16 << 20, AGAIN_MS = 50 };

/* Options "-xHn": unix sockets, with numbers; with p also whose they are, which takes longer. */
static void unix_sockets(const char *options, struct buf *out)
{
	const char *const argv[] = { "ss", options, NULL };
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 60000,
		.max_out_bytes = TEXT_BYTES };
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("ss: %s%s", e.msg, buf_c(&r.errout));
	assert_int_equal(buf_add(out, buf_c(&r.out), r.out.n), 0);
}

/* Does the word stand in the line? The last one may or may not have blanks behind it: ss fills columns up to the widest. */
static bool has_word(struct str line, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = line.p;
	     n <= line.n && (p = memmem(p, line.n - (size_t)(p - line.p), word, n)) != NULL; p++)
		if ((p == line.p || p[-1] == ' ') && (p + n == line.p + line.n || p[n] == ' '))
			return true;
	return false;
}

/* Its line of ss, "… PATH INODE * PEER"; of a connection that of the end that has a path, which is who listened. */
static struct str socket_line(const char *sockets, unsigned long inode)
{
	char own[32];
	(void)snprintf(own, sizeof own, "%lu", inode);
	struct str rest = str_of(sockets), line, found = { "", 0 };
	while (str_cut(&rest, '\n', &line))
		if (has_word(line, own) && (found.n == 0 || memchr(line.p, '/', line.n) != NULL))
			found = line;
	return found;
}

static bool is_kept(struct str line)
{
	return memmem(line.p, line.n, "/.s.PGSQL.", 10) != NULL ||
	    memmem(line.p, line.n, "/ctl.sock", 9) != NULL;
}

static bool counts(const char *dir, const char *name, const char *sockets, struct buf *what)
{
	char path[400], link[256];
	unsigned long inode;
	struct str line = { "", 0 };
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	ssize_t len = readlink(path, link, sizeof link - 1);
	if (len < 0) /* "." and "..", or closed meanwhile */
		return false;
	link[len] = 0;
	if (sscanf(link, "socket:[%lu]", &inode) == 1)
		line = socket_line(sockets, inode);
	if (is_kept(line))
		return false;
	if (what != NULL)
		(void)buf_fmt(what, "%s %s %.*s\n", name, link, (int)line.n, line.p);
	return true;
}

int fds_open(pid_t pid, struct buf *what)
{
	char dir[64];
	auto_buf struct buf sockets = BUF(TEXT_BYTES);
	unix_sockets("-xHn", &sockets);
	if (what != NULL)
		buf_reset(what);
	(void)snprintf(dir, sizeof dir, "/proc/%d/fd", (int)pid);
	DIR *d = opendir(dir);
	assert_non_null(d);
	int n = 0;
	for (struct dirent *de; (de = readdir(d)) != NULL;)
		n += counts(dir, de->d_name, buf_c(&sockets), what);
	(void)closedir(d);
	return n;
}

int fds_least(pid_t pid, int settle_ms, struct buf *what)
{
	int64_t deadline = clock_ms() + settle_ms;
	int least = fds_open(pid, what);
	while (clock_ms() < deadline) {
		auto_buf struct buf again = BUF(1 << 20);
		(void)poll(NULL, 0, AGAIN_MS);
		int now = fds_open(pid, &again);
		if (now >= least)
			continue;
		least = now;
		buf_reset(what);
		(void)buf_add(what, again.p, again.n);
	}
	return least;
}

/* Both ends of a unix socket, with their processes. */
static void show_ends(struct str line, const char *sockets)
{
	char text[1024], own[32], peer[32];
	unsigned long a, b;
	(void)snprintf(text, sizeof text, "%.*s", (int)line.n, line.p);
	const char *at = strrchr(text, '*');
	if (at == NULL || sscanf(at, "* %lu", &b) != 1 || sscanf(strchr(text, '[') + 1, "%lu", &a) != 1)
		return;
	(void)snprintf(own, sizeof own, "%lu", a);
	(void)snprintf(peer, sizeof peer, "%lu", b);
	struct str rest = str_of(sockets), one;
	while (str_cut(&rest, '\n', &one))
		if (has_word(one, own) || has_word(one, peer))
			print_error("  %.*s\n", (int)one.n, one.p);
}

/* A line at a time, as cmocka cuts what is longer than a kilobyte. */
static void show(const char *which, const struct buf *lines, const struct buf *but)
{
	auto_buf struct buf sockets = BUF(TEXT_BYTES);
	struct str rest = { buf_c(lines), lines->n }, line;
	unix_sockets("-xHnp", &sockets);
	while (str_cut(&rest, '\n', &line))
		if (line.n > 0 && memmem(buf_c(but), but->n, line.p, line.n) == NULL) {
			print_error("%s: %.*s\n", which, (int)line.n, line.p);
			show_ends(line, buf_c(&sockets));
		}
}

void fds_back(pid_t pid, int n, const struct buf *were, int wait_ms)
{
	auto_buf struct buf are = BUF(1 << 20);
	int64_t until = clock_ms() + wait_ms;
	int now;
	while ((now = fds_open(pid, &are)) > n && clock_ms() < until)
		(void)poll(NULL, 0, AGAIN_MS);
	if (now <= n)
		return;
	show("what was open", were, &(struct buf){ 0 });
	show("still open", &are, were);
	fail_msg("%d descriptors are open, %d were", now, n);
}
