#include "forge/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "forge/git.h"
#include "io/file.h"

enum { LOCK_WAIT_MS = 10 * 1000, LOCK_POLL_MS = 5, LEFT_AGE_S = 3600, LOCK_AGE_S = 10, REFS_DEPTH = 8 };

static const char *ours(struct mem *m, const struct conf *conf, const char *what)
{
	return mem_fmt(m, "%s/.gatehouse/%s", conf_str(conf, "FORGE_ROOT"), what);
}

const char *store_dir(struct mem *m, const struct conf *conf, const char *org, const char *name)
{
	return mem_fmt(m, "%s/%s/%s.git", conf_str(conf, "FORGE_ROOT"), org, name);
}

/* What a request may leave there when it dies (store_sweep). */
static const char *const dirs[] = { "new", "trash", "tmp" };
enum { N_DIRS = sizeof dirs / sizeof *dirs };

static int make_ours(struct mem *m, const struct conf *conf, struct err *e)
{
	for (size_t i = 0; i < N_DIRS; i++)
		if (file_mkdirs(ours(m, conf, dirs[i]), 0750, e) != 0)
			return -1;
	return 0;
}

int store_lock(struct mem *m, const struct conf *conf, struct err *e)
{
	if (make_ours(m, conf, e) != 0)
		return -1;
	auto_fd int fd = open(ours(m, conf, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (fd < 0)
		return err_set(e, ERR_UNAVAILABLE, "The repositories cannot be reached: try again later.");
	/* flock() has no deadline of its own; the lock is held for milliseconds. */
	int64_t deadline = clock_ms() + LOCK_WAIT_MS;
	const struct timespec pause = { .tv_nsec = LOCK_POLL_MS * 1000000L };
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (clock_left_ms(deadline) == 0)
			return err_set(e, ERR_UNAVAILABLE, "The repositories are busy: try again.");
		(void)nanosleep(&pause, NULL);
	}
	return steal_fd(&fd);
}

/*
 * What every repository here is: checked at the door, flushed to disk, bounded in memory. Policy is the hook's (FRG-3), and
 * the hooks directory is named by our own environment, so that a repository cannot bring hooks.
 */
static const char config[] = "[core]\n"
			     "\trepositoryformatversion = 0\n"
			     "\tfilemode = true\n"
			     "\tbare = true\n"
			     "\tlogallrefupdates = false\n"
			     "\tfsync = committed\n"
			     "\tfsyncMethod = batch\n"
			     "\tbigFileThreshold = 16m\n"
			     "[transfer]\n"
			     "\tfsckObjects = true\n"
			     "[pack]\n"
			     "\tthreads = 1\n"
			     "\twindowMemory = 64m\n"
			     "\tdeltaCacheSize = 32m\n"
			     "[gc]\n"
			     "\tautoDetach = false\n";

static int build(struct mem *m, const char *dir, const char *branch, struct err *e)
{
	const char *const args[] = { "init", "--quiet", "--bare", "--template=", "--object-format=sha1",
		mem_fmt(m, "--initial-branch=%s", branch), dir, NULL };
	auto_proc struct proc_result r = { 0 };
	if (git_must(m, &(struct git_call){ .args = args }, &r, e) != 0)
		return -1;
	return file_write(mem_fmt(m, "%s/config", dir), config, strlen(config), 0640, e);
}

const char *store_build(struct mem *m, const struct conf *conf, const char *branch, struct err *e)
{
	char id[ID_MAX];
	id_make("new", id);
	const char *built = mem_fmt(m, "%s/%s", ours(m, conf, "new"), id);
	if (make_ours(m, conf, e) == 0 && build(m, built, branch, e) == 0)
		return built;
	store_remove(built);
	return NULL;
}

int store_place(struct mem *m, const struct conf *conf, const char *built, const char *dir, struct err *e)
{
	const char *parent = mem_strn(m, dir, (size_t)(strrchr(dir, '/') - dir));
	if (file_mkdirs(parent, 0750, e) != 0)
		return -1;
	(void)store_drop(m, conf, dir);
	if (rename(built, dir) == 0)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "The repository could not be put in its place: try again later.");
}

const char *store_drop(struct mem *m, const struct conf *conf, const char *dir)
{
	char id[ID_MAX];
	id_make("old", id);
	const char *away = mem_fmt(m, "%s/%s", ours(m, conf, "trash"), id);
	if (rename(dir, away) == 0) {
		/* The sweep goes by this time. */
		(void)utimensat(AT_FDCWD, away, NULL, 0);
		return away;
	}
	if (errno != ENOENT)
		log_error(
		    "a deleted repository could not be moved away", "error", strerror(errno), "dir", dir);
	return NULL;
}

void store_remove(const char *path)
{
	struct err e = { 0 };
	if (path != NULL && file_rmtree(path, &e) != 0)
		log_warn("a directory of the forge could not be removed", "path", path, "error", e.msg);
}

const char *store_tmp(struct mem *m, const struct conf *conf, struct err *e)
{
	const char *dir = ours(m, conf, "tmp");
	return file_mkdirs(dir, 0750, e) == 0 ? dir : NULL;
}

static bool is_young(const char *path)
{
	struct stat st;
	return lstat(path, &st) != 0 || clock_wall_ms() / 1000 - (int64_t)st.st_mtime < LEFT_AGE_S;
}

static void sweep(struct mem *m, const char *dir)
{
	DIR *d = opendir(dir);
	if (d == NULL)
		return;
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		const char *path = mem_fmt(m, "%s/%s", dir, f->d_name);
		if (f->d_name[0] != '.' && !is_young(path))
			store_remove(path);
	}
	(void)closedir(d);
}

void store_sweep(struct mem *m, const struct conf *conf)
{
	for (size_t i = 0; i < N_DIRS; i++)
		sweep(m, ours(m, conf, dirs[i]));
}

static const char *objects_of(struct mem *m, const char *dir)
{
	return mem_fmt(m, "%s/objects", dir);
}

int store_push_begin(struct mem *m, const char *dir, struct err *e)
{
	auto_fd int fd = open(objects_of(m, dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Only a sweep excludes it, for the time of a few unlinks. */
	if (fd < 0 || flock(fd, LOCK_SH) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The repository cannot be written now: try again.");
	return steal_fd(&fd);
}

/* What begins with prefix; young: also when it is not old. */
static void remove_named(struct mem *m, const char *dir, const char *prefix, bool young)
{
	DIR *d = opendir(dir);
	if (d == NULL)
		return;
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		if (!str_starts(f->d_name, prefix))
			continue;
		const char *path = mem_fmt(m, "%s/%s", dir, f->d_name);
		if (young || !is_young(path))
			(void)file_rmtree(path, &(struct err){ 0 });
	}
	(void)closedir(d);
}

/* A ref's lock lives for milliseconds; one that is old was left by a git that was killed, and bars its ref for ever. */
static void remove_locks(struct mem *m, const char *refs, int depth)
{
	DIR *d = depth > REFS_DEPTH ? NULL : opendir(refs);
	if (d == NULL)
		return;
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		size_t n = strlen(f->d_name);
		struct stat st;
		if (f->d_type == DT_DIR && f->d_name[0] != '.')
			remove_locks(m, mem_fmt(m, "%s/%s", refs, f->d_name), depth + 1);
		if (f->d_type != DT_REG || n < 5 || strcmp(f->d_name + n - 5, ".lock") != 0 ||
		    fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (clock_wall_ms() / 1000 - (int64_t)st.st_mtime >= LOCK_AGE_S)
			(void)unlinkat(dirfd(d), f->d_name, 0);
	}
	(void)closedir(d);
}

void store_push_end(struct mem *m, const char *dir, int lock)
{
	if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
		remove_named(m, objects_of(m, dir), "tmp_objdir-", true);
		/* Of fast-import, which is not counted among the pushes: it may be at work. */
		remove_named(m, mem_fmt(m, "%s/objects/pack", dir), "tmp_", false);
		remove_named(m, dir, "fast_import_crash_", true);
		remove_locks(m, mem_fmt(m, "%s/refs", dir), 0);
	}
	(void)close(lock);
}

/* The `gatehouse` program beside the running one. */
static int hook_program(char out[PATH_MAX], struct err *e)
{
	static const char name[] = "gatehouse";
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - sizeof name);
	if (n <= 0)
		return err_set(e, ERR_INTERNAL, "The push policy cannot be applied: nothing can be pushed.");
	out[n] = 0;
	char *slash = strrchr(out, '/');
	memcpy(slash + 1, name, sizeof name);
	/* The kernel reads 255 bytes of "#!program hook", and splits them at white space. */
	if (strlen(out) > 240 || strpbrk(out, " \t\n") != NULL || access(out, X_OK) != 0) {
		log_error("no usable hook program", "path", out);
		return err_set(e, ERR_INTERNAL, "The push policy cannot be applied: nothing can be pushed.");
	}
	return 0;
}

const char *store_hooks(struct mem *m, const struct conf *conf, struct err *e)
{
	char program[PATH_MAX];
	if (hook_program(program, e) != 0)
		return NULL;
	const char *dir = ours(m, conf, "hooks"), *path = mem_fmt(m, "%s/pre-receive", dir);
	const char *want = mem_fmt(m, "#!%s hook\n", program);
	auto_buf struct buf have = BUF(1024);
	struct err ignored = { 0 };
	if (file_read(path, &have, &ignored) == 0 && strcmp(buf_c(&have), want) == 0 &&
	    access(path, X_OK) == 0)
		return dir;
	if (file_mkdirs(dir, 0750, e) != 0 || file_write(path, want, strlen(want), 0750, e) != 0)
		return NULL;
	return dir;
}
