/*
 * file_rmtree. The tree may have been made by somebody hostile: links are never followed, mounts never crossed, a directory
 * without permissions is opened up, and one deeper than DEPTH_MAX is moved up to the top and done there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/file.h"
#include "io/file_err.h"

enum { DEPTH_MAX = 24 };

static const char act[] = "A directory could not be removed";

struct tree {
	int top;        /* the directory itself */
	unsigned moved; /* deep directories moved up so far: names them */
	bool again;     /* something was moved up in this pass */
	struct err *e;
};

static void auto_dirp(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}
#define auto_dir AUTO(auto_dirp)

/* A directory without rights: chmod through O_PATH, which no link can lead astray. */
static void open_up(int at, const char *name)
{
	char proc[40];
	auto_fd int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	(void)chmod(proc, 0700);
}

/* Open a directory that is no link and, below the top, no mount; -1 with errno. */
static int enter(int at, const char *name, bool below)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC;
	auto_fd int fd = openat(at, name, flags);
	/* Listing asks for r, removing inside for w and x. */
	if ((fd < 0 && errno == EACCES) || (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0)) {
		open_up(at, name);
		if (fd < 0)
			fd = openat(at, name, flags);
	}
	if (fd < 0)
		return -1;
	struct statx sx = { 0 };
	if (below && statx(fd, "", AT_EMPTY_PATH, 0, &sx) == 0 &&
	    (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
		errno = EXDEV;
		return -1;
	}
	return steal_fd(&fd);
}

static int empty(struct tree *t, int fd, int depth);

static int move_up(struct tree *t, int at, const char *name)
{
	t->again = true;
	for (;;) {
		char to[40];
		(void)snprintf(to, sizeof to, ".gh-deep-%u", t->moved++);
		if (renameat(at, name, t->top, to) == 0)
			return 0;
		/* The tree may hold such a name already. */
		if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
			return file_failed(act, t->e);
	}
}

static int remove_dir(struct tree *t, int at, const char *name, int depth)
{
	if (depth >= DEPTH_MAX) {
		auto_fd int fd = enter(
		    at, name, true); /* makes it movable: renaming a directory needs rights in it */
		return fd < 0 ? file_failed(act, t->e) : move_up(t, at, name);
	}
	int fd = enter(at, name, true);
	if (fd < 0)
		return file_failed(act, t->e);
	if (empty(t, fd, depth + 1) != 0)
		return -1;
	if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return file_failed(act, t->e);
}

/* Takes fd. */
static int empty(struct tree *t, int fd, int depth)
{
	auto_dir DIR *d = fdopendir(fd);
	if (d == NULL) {
		(void)file_failed(act, t->e);
		(void)close(fd);
		return -1;
	}
	for (struct dirent *ent; (errno = 0, ent = readdir(d)) != NULL;) {
		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(d), ent->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return file_failed(act, t->e);
		if (remove_dir(t, dirfd(d), ent->d_name, depth) != 0)
			return -1;
	}
	return errno == 0 ? 0 : file_failed(act, t->e);
}

int file_rmtree(const char *path, struct err *e)
{
	auto_fd int top = enter(AT_FDCWD, path, false);
	if (top < 0 && errno == ENOENT)
		return 0;
	if (top < 0 && (errno == ENOTDIR || errno == ELOOP)) /* a file or a link */
		return unlink(path) == 0 ? 0 : file_failed(act, e);
	if (top < 0)
		return file_failed(act, e);
	struct tree t = { .top = top, .e = e };
	do {
		t.again = false;
		/* A directory stream of its own for each pass: what was moved up is seen from the beginning. */
		int pass = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (pass < 0)
			return file_failed(act, e);
		if (empty(&t, pass, 0) != 0)
			return -1;
	} while (t.again);
	return rmdir(path) == 0 || errno == ENOENT ? 0 : file_failed(act, e);
}
