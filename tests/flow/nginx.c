/* nginx.c - a reload of nginx that is over: no worker of before accepts anything any more (stack.h). */
#include "../span.h"
#include "../t.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "io/file.h"
#include "stack.h"

enum { WORKERS_MAX = 64, RELOAD_MS = PATIENCE_MS };

static int workers_of(pid_t master, pid_t out[WORKERS_MAX])
{
	int n = 0;
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (const struct dirent *de; (de = readdir(d)) != NULL && n < WORKERS_MAX;) {
		char path[300];
		auto_buf struct buf stat = BUF(4096);
		struct err gone = { 0 };
		int parent;
		(void)snprintf(path, sizeof path, "/proc/%s/stat", de->d_name);
		if (!str_only(de->d_name, "0123456789") || file_read(path, &stat, &gone) != 0)
			continue;
		const char *at = strrchr(buf_c(&stat), ')');
		if (at != NULL && sscanf(at, ") %*c %d", &parent) == 1 && parent == master)
			out[n++] = (pid_t)strtol(de->d_name, NULL, 10);
	}
	(void)closedir(d);
	return n;
}

/* " INODE " of every listening socket of the host. */
static void listeners(struct buf *out)
{
	static const struct {
		const char *file, *listening;
		int column; /* of the inode */
	} kinds[] = { { "/proc/net/tcp", " 0A ", 9 }, { "/proc/net/unix", " 00010000 ", 6 } };
	for (int i = 0; i < 2; i++) {
		auto_buf struct buf text = BUF(32 << 20);
		struct err e = { 0 };
		assert_int_equal(file_read(kinds[i].file, &text, &e), 0);
		struct str rest = { buf_c(&text), text.n }, line;
		while (str_cut(&rest, '\n', &line)) {
			struct str words = line, word = { 0 };
			if (memmem(line.p, line.n, kinds[i].listening, strlen(kinds[i].listening)) == NULL)
				continue;
			for (int k = 0; k <= kinds[i].column;)
				k += str_cut(&words, ' ', &word) ? word.n > 0 : kinds[i].column + 1;
			(void)buf_fmt(out, " socket:[%.*s] ", (int)word.n, word.p);
		}
	}
}

static bool listens(pid_t pid, const char *all)
{
	char dir[64], path[400], link[128];
	bool is = false;
	(void)snprintf(dir, sizeof dir, "/proc/%d/fd", (int)pid);
	DIR *d = opendir(dir);
	if (d == NULL)
		return false;
	for (const struct dirent *de; !is && (de = readdir(d)) != NULL;) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, de->d_name);
		ssize_t n = readlink(path, link + 1, sizeof link - 3);
		if (n < 0)
			continue;
		link[0] = link[n + 1] = ' ';
		link[n + 2] = 0;
		is = str_starts(link, " socket:") && strstr(all, link) != NULL;
	}
	(void)closedir(d);
	return is;
}

void stack_reload_nginx(const struct stack *s)
{
	pid_t old[WORKERS_MAX], master = stack_pid(s, "nginx");
	int n = workers_of(master, old);
	int64_t until = clock_ms() + RELOAD_MS;
	assert_true(n > 0);
	assert_int_equal(kill(master, SIGHUP), 0);
	for (bool still = true; still; (void)poll(NULL, 0, 10)) {
		auto_buf struct buf all = BUF(1 << 20);
		listeners(&all);
		still = false;
		for (int i = 0; i < n; i++)
			still = still || listens(old[i], buf_c(&all));
		if (still && clock_ms() > until)
			fail_msg("nginx did not reload: see %s/log/nginx.log", s->dir);
	}
}
