#include "box/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum { WALK_MS = 60, WALK_EACH_MS = 1 };

/* The one walk at a time; too large for a stack, and must not need memory when there is none. */
static struct tree_proc table[TREE_MAX];
/* Killing must work when every other descriptor is in use: /proc is open, and one more is kept to be given up. */
static int proc_fd = -1, spare_fd = -1;

void tree_setup(void)
{
	proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	spare_fd = fcntl(proc_fd, F_DUPFD_CLOEXEC, 3);
}

uint64_t tree_mark(uint32_t id)
{
	return (UINT64_C(1) << 62) - id;
}

/* "pid (name) S ppid pgrp session …": the name may hold anything, also spaces and parentheses. */
static bool parse_stat(char *text, struct tree_proc *p)
{
	char *end = strrchr(text, ')');
	return end != NULL && sscanf(end + 1, " %c %d %d %d", &p->state, &p->ppid, &p->pgid, &p->sid) == 4;
}

static bool read_stat(const char *name, struct tree_proc *p)
{
	char path[32], text[512];
	(void)snprintf(path, sizeof path, "%.16s/stat", name);
	int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	*p = (struct tree_proc){ .pid = (pid_t)strtol(name, NULL, 10) };
	return parse_stat(text, p);
}

/* /proc lists pids in rising order; make sure, since parents are found by bisection. */
static int insert(int n, const struct tree_proc *p)
{
	int at = n;
	while (at > 0 && table[at - 1].pid > p->pid) {
		table[at] = table[at - 1];
		at--;
	}
	table[at] = *p;
	return n + 1;
}

static int list(bool patient, bool *cut)
{
	char buf[1024] __attribute__((aligned(8)));
	int64_t began_ms = clock_ms();
	int n = 0;
	if (lseek(proc_fd, 0, SEEK_SET) != 0)
		return -1;
	(void)close(spare_fd);
	for (;;) {
		/* readdir() would allocate. */
		long got = syscall(SYS_getdents64, proc_fd, buf, sizeof buf);
		*cut = !patient && clock_ms() - began_ms > WALK_MS + (int64_t)n * WALK_EACH_MS;
		if (got <= 0 || *cut)
			break;
		for (long at = 0; at < got && n < TREE_MAX;) {
			const struct dirent64 *d = (const struct dirent64 *)(const void *)(buf + at);
			struct tree_proc p;
			at += d->d_reclen;
			if (d->d_name[0] >= '1' && d->d_name[0] <= '9' && read_stat(d->d_name, &p))
				n = insert(n, &p);
		}
	}
	spare_fd = fcntl(proc_fd, F_DUPFD_CLOEXEC, 3);
	return n;
}

static struct tree_proc *find(int n, pid_t pid)
{
	int lo = 0, hi = n;
	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;
		if (table[mid].pid < pid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && table[lo].pid == pid ? &table[lo] : NULL;
}

static void own_keepers(struct box *b, int n)
{
	for (struct cmd *c = b->cmds; c != NULL; c = c->next) {
		struct tree_proc *p = c->keeper > 0 ? find(n, c->keeper) : NULL;
		if (p != NULL) {
			p->owner = c;
			p->keeper = true;
		}
	}
}

/* Children of owned processes are owned; until nothing changes, as a parent's pid may be the higher one. */
static void spread(int n)
{
	bool again = true;
	while (again) {
		again = false;
		for (int i = 0; i < n; i++) {
			if (table[i].owner != NULL)
				continue;
			struct tree_proc *up = find(n, table[i].ppid);
			if (up != NULL && up->owner != NULL) {
				table[i].owner = up->owner;
				again = true;
			}
		}
	}
}

static void by_mark(struct box *b, struct tree_proc *p)
{
	struct rlimit lim;
	if (prlimit(p->pid, RLIMIT_RSS, NULL, &lim) != 0)
		return;
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		if (c->mark == lim.rlim_max && c->state != CMD_FEEDING)
			p->owner = c;
	p->old = p->owner == NULL && lim.rlim_max >= tree_mark(b->last_id) && lim.rlim_max < tree_mark(0);
}

/* Children of the box that are no keepers: orphans where keepers cannot have them, and those of killed keepers. */
static void own_orphans(struct box *b, int n)
{
	pid_t self = getpid();
	for (int i = 0; i < n; i++) {
		struct tree_proc *p = &table[i];
		if (p->owner != NULL || p->ppid != self)
			continue;
		if (!b->subreaper)
			by_mark(b, p);
		p->stray = p->owner == NULL && !p->old;
	}
}

int tree_walk(struct box *b, bool patient, struct tree_proc **procs, bool *cut)
{
	*cut = false;
	int n = list(patient, cut);
	*procs = table;
	if (n <= 0)
		return -1;
	if (*cut)
		return n;
	own_keepers(b, n);
	spread(n);
	own_orphans(b, n);
	if (!b->subreaper)
		spread(n);
	return n;
}
