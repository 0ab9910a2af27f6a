#include "sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

enum { STEP_MS = 2, FILE_MAX = 256 + CGROUP_PATH_MAX };

static void closedirp(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}
#define auto_dir AUTO(closedirp)

/* A path; one that is too long becomes "", which names nothing. */
__attribute__((format(printf, 2, 3))) static void path_fmt(char out[FILE_MAX], const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out, FILE_MAX, fmt, ap);
	va_end(ap);
	if (n < 0 || n >= FILE_MAX)
		out[0] = '\0';
}

static void path_in(char out[FILE_MAX], const char *hierarchy, const char *path, const char *file)
{
	path_fmt(out, "%s%s%s%s", hierarchy, path, file[0] == '\0' ? "" : "/", file);
}

static void nap(void)
{
	(void)poll(NULL, 0, STEP_MS);
}

static bool is_dir(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A small control file, whole; -1 when it cannot be read. */
static ssize_t slurp(const char *path, char *out, size_t size)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t n = 0;
	while (n + 1 < size) {
		ssize_t got = read(fd, out + n, size - 1 - n);
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	out[n] = '\0';
	return (ssize_t)n;
}

static int put(const char *path, const char *text)
{
	auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(text);
	if (fd < 0)
		return -1;
	return write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

/* The hierarchy whose groups collect processes to be killed: the only one on v2, the freezer on v1. */
static const char *kill_root(const struct cgroups *g)
{
	for (int i = 0; i < g->n; i++)
		if (g->v2 || str_ends(g->hierarchy[i], "/freezer"))
			return g->hierarchy[i];
	return g->root;
}

/* The mount point of a v1 controller, also where several share one ("cpu,cpuacct"); v2 has one for all. */
static const char *controller(const struct cgroups *g, const char *name)
{
	size_t n = strlen(name);
	if (g->v2)
		return g->hierarchy[0];
	for (int i = 0; i < g->n; i++) {
		struct str rest = str_of(strrchr(g->hierarchy[i], '/') + 1), part;
		while (str_cut(&rest, ',', &part))
			if (part.n == n && memcmp(part.p, name, n) == 0)
				return g->hierarchy[i];
	}
	return NULL;
}

static int detect_v1(struct cgroups *g, const char *root, struct err *e)
{
	auto_dir DIR *d = opendir(root);
	if (d == NULL)
		return err_set(e, ERR_UNAVAILABLE, "No control groups are mounted at %s.", root);
	for (struct dirent *i; g->n < CGROUP_HIERARCHIES && (i = readdir(d)) != NULL;) {
		char *to = g->hierarchy[g->n];
		if (i->d_name[0] == '.' || strlen(i->d_name) > 24)
			continue;
		(void)snprintf(to, sizeof g->hierarchy[0], "%.63s/%.24s", root, i->d_name);
		/* Links are second names of a hierarchy that several controllers share. */
		g->n += is_dir(to);
	}
	static const char *const need[] = { "memory", "pids", "cpu", "freezer" };
	for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
		if (controller(g, need[i]) == NULL)
			return err_set(e, ERR_UNAVAILABLE,
			    "The control group controller \"%s\" is not mounted.", need[i]);
	char file[FILE_MAX];
	path_fmt(file, "%s/memory.memsw.limit_in_bytes", controller(g, "memory"));
	g->swap = access(file, F_OK) == 0;
	return 0;
}

/* The root group has no memory.swap.max of its own; any other has it when the kernel counts swap. */
static bool counts_swap(const struct cgroups *g)
{
	auto_dir DIR *d = opendir(g->hierarchy[0]);
	for (struct dirent *i; d != NULL && (i = readdir(d)) != NULL;) {
		char file[FILE_MAX];
		path_fmt(file, "%s/%s/memory.swap.max", g->hierarchy[0], i->d_name);
		if (i->d_name[0] != '.' && access(file, F_OK) == 0)
			return true;
	}
	return false;
}

int cgroups_detect(struct cgroups *g, const char *root, struct err *e)
{
	char file[FILE_MAX], have[512];
	*g = (struct cgroups){ 0 };
	(void)snprintf(g->root, sizeof g->root, "%s", root);
	path_fmt(file, "%s/cgroup.controllers", root);
	if (slurp(file, have, sizeof have) < 0)
		return detect_v1(g, root, e);
	g->v2 = true;
	g->n = 1;
	(void)snprintf(g->hierarchy[0], sizeof g->hierarchy[0], "%s", root);
	if (strstr(have, "memory") == NULL || strstr(have, "pids") == NULL || strstr(have, "cpu") == NULL)
		return err_set(e, ERR_UNAVAILABLE,
		    "The control group controllers memory, pids and cpu are not all there.");
	g->swap = counts_swap(g);
	return 0;
}

int cgroup_make(const struct cgroups *g, const char *path, struct err *e)
{
	char dir[FILE_MAX];
	path_in(dir, kill_root(g), path, "");
	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		return err_set(e, ERR_UNAVAILABLE, "A control group could not be made: %s.", strerror(errno));
	return 0;
}

int cgroup_add(const struct cgroups *g, const char *path, pid_t pid, struct err *e)
{
	char file[FILE_MAX], text[16];
	path_in(file, kill_root(g), path, "cgroup.procs");
	(void)snprintf(text, sizeof text, "%d", pid);
	if (put(file, text) != 0)
		return err_set(e, ERR_UNAVAILABLE, "A process could not be put into its control group: %s.",
		    strerror(errno));
	return 0;
}

/* Call fn for each process of one group; returns how many there were. */
static int each_pid(const char *dir, void (*fn)(void *arg, pid_t pid), void *arg)
{
	char file[FILE_MAX];
	path_fmt(file, "%s/cgroup.procs", dir);
	FILE *f = fopen(file, "re");
	int n = 0, pid;
	if (f == NULL)
		return 0;
	while (fscanf(f, "%d", &pid) == 1) {
		n++;
		if (fn != NULL)
			fn(arg, pid);
	}
	(void)fclose(f);
	return n;
}

/* Call fn for dir and every group below it, deepest first; depth bounds what a wrong path could do. */
static int each_group(const char *dir, int depth, int (*fn)(void *arg, const char *dir), void *arg)
{
	auto_dir DIR *d = opendir(dir);
	int sum = 0;
	if (d == NULL)
		return 0;
	for (struct dirent *i; depth > 0 && (i = readdir(d)) != NULL;) {
		char sub[FILE_MAX];
		if (i->d_name[0] == '.' || i->d_type != DT_DIR)
			continue;
		path_fmt(sub, "%s/%s", dir, i->d_name);
		sum += each_group(sub, depth - 1, fn, arg);
	}
	return sum + fn(arg, dir);
}
enum { DEPTH = 4 };

static void kill_one(void *arg, pid_t pid)
{
	(void)arg;
	(void)kill(pid, SIGKILL);
}

/* Frozen processes cannot fork away from the list that is being read; the signal takes them when they thaw. */
static int kill_frozen(void *arg, const char *dir)
{
	const struct cgroups *g = arg;
	char file[FILE_MAX];
	path_fmt(file, "%s/%s", dir, g->v2 ? "cgroup.freeze" : "freezer.state");
	(void)put(file, g->v2 ? "1" : "FROZEN");
	int n = each_pid(dir, kill_one, NULL);
	(void)put(file, g->v2 ? "0" : "THAWED");
	return n;
}

static int count_group(void *arg, const char *dir)
{
	(void)arg;
	return each_pid(dir, NULL, NULL);
}

static int kill_once(const struct cgroups *g, const char *dir)
{
	struct cgroups copy = *g;
	char file[FILE_MAX];
	path_fmt(file, "%s/cgroup.kill", dir);
	if (g->v2 && put(file, "1") == 0)
		return each_group(dir, DEPTH, count_group, NULL);
	/* v1, and v2 before Linux 5.14 */
	return each_group(dir, DEPTH, kill_frozen, &copy);
}

int cgroup_kill(const struct cgroups *g, const char *path, int64_t deadline_ms, struct err *e)
{
	char dir[FILE_MAX];
	path_in(dir, kill_root(g), path, "");
	while (kill_once(g, dir) > 0) {
		if (clock_ms() >= deadline_ms)
			return err_set(
			    e, ERR_TIMEOUT, "Processes of a sandbox did not end when they were killed.");
		nap();
	}
	return 0;
}

static int remove_group(void *arg, const char *dir)
{
	(void)arg;
	return rmdir(dir) != 0 && errno != ENOENT ? 1 : 0;
}

int cgroup_remove(const struct cgroups *g, const char *path, int64_t deadline_ms, struct err *e)
{
	for (int i = 0; i < g->n; i++) {
		char dir[FILE_MAX];
		path_in(dir, g->hierarchy[i], path, "");
		while (each_group(dir, DEPTH, remove_group, NULL) > 0) {
			if (clock_ms() >= deadline_ms)
				return err_set(
				    e, ERR_TIMEOUT, "A control group of a sandbox could not be removed.");
			nap();
		}
	}
	return 0;
}

void cgroup_prune(const struct cgroups *g, const char *path)
{
	for (int i = 0; i < g->n; i++) {
		char dir[FILE_MAX];
		path_in(dir, g->hierarchy[i], path, "");
		(void)rmdir(dir); /* the kernel refuses one that holds anything */
	}
}

bool cgroup_exists(const struct cgroups *g, const char *path)
{
	for (int i = 0; i < g->n; i++) {
		char dir[FILE_MAX];
		path_in(dir, g->hierarchy[i], path, "");
		if (is_dir(dir))
			return true;
	}
	return false;
}

int cgroup_count(const struct cgroups *g, const char *path)
{
	char dir[FILE_MAX];
	path_in(dir, kill_root(g), path, "");
	return each_group(dir, DEPTH, count_group, NULL);
}

long long cgroup_oom_kills(const struct cgroups *g, const char *path)
{
	char file[FILE_MAX], text[512];
	path_in(file, controller(g, "memory"), path, g->v2 ? "memory.events" : "memory.oom_control");
	if (slurp(file, text, sizeof text) < 0)
		return -1;
	/* "oom_kill N" on both; v1 also has "oom_kill_disable N". */
	for (char *p = text; (p = strstr(p, "oom_kill ")) != NULL; p++)
		if (p == text || p[-1] == '\n')
			return strtoll(p + strlen("oom_kill "), NULL, 10);
	return -1;
}

long long cgroup_memory_bytes(const struct cgroups *g, const char *path)
{
	char file[FILE_MAX], text[64];
	path_in(file, controller(g, "memory"), path, g->v2 ? "memory.current" : "memory.usage_in_bytes");
	return slurp(file, text, sizeof text) < 0 ? -1 : strtoll(text, NULL, 10);
}

void cgroup_each(
    const struct cgroups *g, const char *path, void (*fn)(void *arg, const char *name), void *arg)
{
	char dir[FILE_MAX];
	path_in(dir, kill_root(g), path, "");
	auto_dir DIR *d = opendir(dir);
	if (d == NULL)
		return;
	for (struct dirent *i; (i = readdir(d)) != NULL;)
		if (i->d_name[0] != '.' && i->d_type == DT_DIR)
			fn(arg, i->d_name);
}
