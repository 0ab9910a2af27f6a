/* change.c - directories made, things moved and removed (SBX-47). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "box/path.h"
#include "box/xfer.h"

enum { DENTS_BYTES = 2048, STEPS = 64, DIR_MODE = 0755 };

/* ---- mkdir */

static int make(const struct path_at *at, uint32_t mode, bool *made)
{
	struct stat st;
	if (strcmp(at->name, ".") == 0)
		return 0;
	*made = mkdirat(at->dir, at->name, mode == UINT32_MAX ? DIR_MODE : mode & 0777) == 0;
	if (!*made && errno != EEXIST)
		return errno;
	if (!*made)
		return fstatat(at->dir, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)
		    ? 0
		    : EEXIST;
	if (mode == UINT32_MAX)
		return 0;
	/* The mask does not count where a mode was asked for. */
	int fd = path_open_dir(at->dir, at->name);
	int err = fd < 0 || fchmod(fd, mode & 0777) != 0 ? errno : 0;
	if (fd >= 0)
		(void)close(fd);
	return err;
}

void file_mkdir(struct box *b, uint32_t id, const char *path, uint32_t mode)
{
	struct path_at at;
	bool made = false;
	int err = path_find(b, path, PATH_WRITE | PATH_PARENTS, &at);
	const char *full = err == 0 ? at.root->path : NULL;
	if (err == 0)
		err = make(&at, mode, &made);
	path_done(&at);
	if (err == 0)
		say_done(b, id, made);
	else
		refuse(b, id, err, full);
}

/* ---- move */

static bool is_root(const struct path_at *at)
{
	return strcmp(at->name, ".") == 0;
}

/* In one step, whatever stands there is kept unless `replace`. 0, or an errno. */
static int rename_at(const struct path_at *from, const struct path_at *to, bool replace)
{
	struct stat st;
	if (!replace && renameat2(from->dir, from->name, to->dir, to->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (!replace && errno != ENOSYS && errno != EINVAL)
		return errno;
	/* A file system without it: looked at first, which a program inside could use against itself only. */
	if (!replace && fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return EEXIST;
	return renameat(from->dir, from->name, to->dir, to->name) == 0 ? 0 : errno;
}

static void move(
    struct box *b, uint32_t id, const struct path_at *from, const struct path_at *to, bool replace)
{
	int err = is_root(from) || is_root(to) ? EBUSY : rename_at(from, to, replace);
	if (err == 0)
		say_done(b, id, 0);
	else if (err == EXDEV)
		say_error(b, id, PROTO_CONFLICT,
		    "The two paths are on different disks: copy what is to be moved, then remove it.");
	else if (err == EINVAL)
		say_error(b, id, PROTO_CONFLICT, "A directory cannot be moved into itself.");
	else if (err == EISDIR || err == ENOTDIR)
		say_error(b, id, PROTO_CONFLICT, "A file and a directory do not replace each other.");
	else
		refuse(b, id, err, to->root->path);
}

void file_move(struct box *b, uint32_t id, const char *from, const char *to, bool replace)
{
	struct path_at a, z = { .dir = -1 };
	struct stat st;
	int err = path_find(b, from, PATH_WRITE | PATH_KEEP, &a);
	/* Nothing is made for a move that cannot be. */
	if (err == 0 && fstatat(a.dir, a.name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		err = errno;
	if (err == 0)
		err = path_find(b, to, PATH_WRITE | PATH_KEEP | PATH_PARENTS, &z);
	if (err == 0)
		move(b, id, &a, &z, replace);
	else
		refuse(b, id, err, NULL);
	path_done(&a);
	path_done(&z);
}

/*
 * ---- remove. A tree of any depth with three descriptors: what is found in a directory below the top is moved up into the top
 * first, so there is never more than one level to be in. A program that changes the tree meanwhile can make this take longer, or
 * fail, and nothing else: every step names one entry of a directory that is held.
 */

struct removing {
	struct xfer x;
	struct path_at at;
	int top, sub;   /* the directory itself; one in it that is being emptied; -1 */
	char name[256]; /* of sub, in top */
	dev_t dev;
	bool changed; /* something was done since the directory that is read was read from its beginning */
	size_t dents_at, dents_n;
	char dents[DENTS_BYTES] __attribute__((aligned(8)));
};

static void close_removing(struct xfer *x)
{
	struct removing *r = (struct removing *)x;
	if (r->sub >= 0)
		(void)close(r->sub);
	if (r->top >= 0)
		(void)close(r->top);
	path_done(&r->at);
}

/* The next entry; NULL at the end. */
static const char *next_name(struct removing *r, int dir)
{
	for (;;) {
		if (r->dents_at >= r->dents_n) {
			long n = syscall(SYS_getdents64, dir, r->dents, sizeof r->dents);
			r->dents_at = 0;
			r->dents_n = n <= 0 ? 0 : (size_t)n;
			if (n <= 0)
				return NULL;
		}
		const struct dirent64 *d = (const struct dirent64 *)(const void *)(r->dents + r->dents_at);
		r->dents_at += d->d_reclen;
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			return d->d_name;
	}
}

static void from_the_beginning(struct removing *r, int dir)
{
	(void)lseek(dir, 0, SEEK_SET);
	r->dents_at = r->dents_n = 0;
	r->changed = false;
}

/* Its owner may empty a directory, whatever its permissions say. The name may be a link by now: that is not followed. */
static int let_in(int dir, const char *name)
{
	char self[40];
	int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	(void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	int err = chmod(self, 0700) == 0 ? 0 : errno;
	(void)close(fd);
	return err;
}

static int open_dir(int dir, const char *name, int *fd)
{
	struct stat st;
	*fd = -1;
	/* All three bits are needed to empty it. */
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	    (st.st_mode & 0700) != 0700) {
		int err = let_in(dir, name);
		if (err != 0)
			return err;
	}
	*fd = path_open_dir(dir, name);
	return *fd < 0 ? errno : 0;
}

static int go_down(struct removing *r, const char *name)
{
	struct stat st;
	(void)snprintf(r->name, sizeof r->name, "%s", name);
	int err = open_dir(r->top, r->name, &r->sub);
	if (err == 0 && (fstat(r->sub, &st) != 0 || st.st_dev != r->dev))
		err = EBUSY; /* something is mounted there */
	r->dents_at = r->dents_n = 0;
	r->changed = false;
	return err;
}

/* Not RENAME_NOREPLACE, which gVisor's file systems do not all have: what would be replaced is to be removed, too. */
static int move_up(struct removing *r, const char *name)
{
	char to[48];
	int err = fresh_name(to, sizeof to, FRESH_ASIDE);
	if (err != 0)
		return err;
	if (renameat(r->sub, name, r->top, to) == 0)
		return 0;
	if (errno == EACCES && let_in(r->sub, name) == 0 && renameat(r->sub, name, r->top, to) == 0)
		return 0;
	return errno;
}

/* One entry of the directory under way. 0, or an errno. */
static int take(struct removing *r, const char *name)
{
	int dir = r->sub >= 0 ? r->sub : r->top;
	r->changed = true;
	if (unlinkat(dir, name, 0) == 0) {
		r->x.moved++;
		return 0;
	}
	if (errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno;
	int err = r->sub >= 0 ? move_up(r, name) : go_down(r, name);
	return err == ENOTDIR ? EPERM : err;
}

/* The directory under way has been read to its end. EAGAIN: everything is done. */
static int finish_dir(struct removing *r)
{
	int dir = r->sub >= 0 ? r->sub : r->top;
	if (r->changed) { /* entries may have been skipped, or come since */
		from_the_beginning(r, dir);
		return 0;
	}
	int rc = r->sub >= 0 ? unlinkat(r->top, r->name, AT_REMOVEDIR)
			     : unlinkat(r->at.dir, r->at.name, AT_REMOVEDIR);
	int err = rc == 0 ? 0 : errno;
	if (err == ENOTEMPTY || err == EEXIST) {
		from_the_beginning(r, dir);
		return 0;
	}
	if (err != 0 && err != ENOENT)
		return err;
	r->x.moved++;
	if (r->sub < 0)
		return EAGAIN;
	(void)close(r->sub);
	r->sub = -1;
	from_the_beginning(r, r->top);
	return 0;
}

static bool pump_removing(struct box *b, struct xfer *x)
{
	struct removing *r = (struct removing *)x;
	int err = 0;
	for (int i = 0; i < STEPS && err == 0; i++) {
		const char *name = next_name(r, r->sub >= 0 ? r->sub : r->top);
		err = name != NULL ? take(r, name) : finish_dir(r);
	}
	if (err == EAGAIN)
		xfer_done(b, x);
	else if (err != 0)
		xfer_fail(b, x, err, NULL);
	return true;
}

static const struct xfer_kind removing = { .pump = pump_removing, .close = close_removing };

/* 0: it is gone, or is a directory that is open now. */
static int begin(struct box *b, struct removing *r, const char *path, bool tree)
{
	int err = path_find(b, path, PATH_WRITE | PATH_KEEP, &r->at);
	if (err != 0)
		return err;
	if (is_root(&r->at))
		return EBUSY;
	if (unlinkat(r->at.dir, r->at.name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno;
	if (unlinkat(r->at.dir, r->at.name, AT_REMOVEDIR) == 0)
		return 0;
	if (!tree || (errno != ENOTEMPTY && errno != EEXIST))
		return errno == EEXIST ? ENOTEMPTY : errno;
	struct stat st;
	err = open_dir(r->at.dir, r->at.name, &r->top);
	if (err == 0 && fstat(r->top, &st) == 0)
		r->dev = st.st_dev;
	return err;
}

void file_remove(struct box *b, uint32_t id, const char *path, bool tree)
{
	struct removing *r = xfer_add(b, id, &removing, sizeof *r);
	if (r == NULL)
		return;
	r->at.dir = r->top = r->sub = -1;
	int err = begin(b, r, path, tree);
	if (err == ENOTEMPTY) {
		say_error(b, id, PROTO_CONFLICT,
		    "The directory is not empty; `recursive=true` removes everything in it, too.");
		xfer_close(b, &r->x);
	} else if (err != 0) {
		xfer_fail(b, &r->x, err, NULL);
	} else if (r->top < 0) {
		r->x.moved = 1;
		xfer_done(b, &r->x);
	}
}
