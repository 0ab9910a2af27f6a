#include "box/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

enum { HOPS_MAX = 40 };

struct way {
	char path[LIMIT_PATH_BYTES]; /* normal: absolute, no empty, "." or ".." component */
	size_t n;
};

/* Append one component to a normal path; ".." takes one off. */
static int step(struct way *w, struct str part)
{
	if (part.n == 0 || str_eq(part, "."))
		return 0;
	if (str_eq(part, "..")) {
		while (w->n > 0 && w->path[--w->n] != '/')
			;
		w->path[w->n] = 0;
		return 0;
	}
	if (part.n > NAME_MAX || w->n + part.n + 2 > sizeof w->path)
		return ENAMETOOLONG;
	w->path[w->n++] = '/';
	memcpy(w->path + w->n, part.p, part.n);
	w->n += part.n;
	w->path[w->n] = 0;
	return 0;
}

static int add(struct way *w, struct str rest)
{
	struct str part;
	int err = 0;
	while (err == 0 && str_cut(&rest, '/', &part))
		err = step(w, part);
	return err;
}

/* The innermost root that holds a normal path. */
static const struct root *root_of(const struct box *b, const struct way *w)
{
	const struct root *best = NULL;
	for (int i = 0; i < b->n_roots; i++) {
		const struct root *r = &b->roots[i];
		bool in = w->n >= r->n && memcmp(w->path, r->path, r->n) == 0 &&
		    (w->n == r->n || w->path[r->n] == '/');
		if (in && (best == NULL || r->n > best->n))
			best = r;
	}
	return best;
}

/* The component is a link: put its target in its place. `at` is where it begins in w->path. EAGAIN: walk again. */
static int follow(struct way *w, size_t at, struct str rest, int dir, const char *name)
{
	char target[LIMIT_PATH_BYTES], tail[LIMIT_PATH_BYTES];
	ssize_t n = readlinkat(dir, name, target, sizeof target);
	if (n < 0)
		return errno;
	if ((size_t)n >= sizeof target || rest.n >= sizeof tail)
		return ENAMETOOLONG;
	memcpy(tail, rest.p, rest.n);
	w->n = n > 0 && target[0] == '/' ? 0 : at;
	w->path[w->n] = 0;
	int err = add(w, (struct str){ target, (size_t)n });
	if (err == 0)
		err = add(w, (struct str){ tail, rest.n });
	return err != 0 ? err : EAGAIN;
}

/* Enter one directory; *dir is replaced. */
static int enter(int *dir, const char *name, bool parents)
{
	int fd = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && parents) {
		if (mkdirat(*dir, name, 0755) != 0 && errno != EEXIST)
			return errno;
		fd = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0)
		return errno;
	(void)close(*dir);
	*dir = fd;
	return 0;
}

/* One pass from the root: 0 with at filled, EAGAIN when a link was met, or an errno. */
static int pass(const struct root *r, struct way *w, int flags, struct path_at *at)
{
	int dir = fcntl(r->fd, F_DUPFD_CLOEXEC, 3);
	if (dir < 0)
		return errno;
	struct str rest = { w->path + r->n, w->n - r->n }, part;
	(void)snprintf(at->name, sizeof at->name, ".");
	(void)str_cut(&rest, '/', &part); /* the empty piece before the first slash */
	int err = 0;
	while (err == 0 && str_cut(&rest, '/', &part)) {
		size_t from = (size_t)(part.p - w->path) - 1;
		bool last = rest.n == 0;
		(void)snprintf(at->name, sizeof at->name, "%.*s", (int)part.n, part.p);
		if (last && (flags & PATH_KEEP) != 0)
			break;
		err = follow(w, from, rest, dir, at->name);
		if (err == EAGAIN)
			break;
		if (err == EINVAL || (err == ENOENT && ((flags & PATH_PARENTS) != 0 || last)))
			err = last ? 0 : enter(&dir, at->name, (flags & PATH_PARENTS) != 0);
	}
	if (err != 0)
		(void)close(dir);
	else
		at->dir = dir;
	return err;
}

int path_find(struct box *b, const char *path, int flags, struct path_at *at)
{
	struct way w = { .n = 0 };
	int err = path[0] == '/' ? 0 : add(&w, str_of(b->conf.workdir));
	at->dir = -1;
	if (err == 0)
		err = path[0] == 0 ? EINVAL : add(&w, str_of(path));
	if (err != 0)
		return err;
	for (int hop = 0; hop < HOPS_MAX; hop++) {
		const struct root *r = root_of(b, &w);
		if (r == NULL)
			return EXDEV;
		if (r->ro && (flags & PATH_WRITE) != 0)
			return EROFS;
		err = pass(r, &w, flags, at);
		if (err == 0) {
			at->root = r;
			memcpy(at->path, w.path, w.n + 1);
		}
		if (err != EAGAIN)
			return err;
	}
	return ELOOP;
}

int path_link(const struct box *b, const struct path_at *at, const char *target)
{
	struct way w = { .n = 0 };
	int err = target[0] == '/' ? 0 : add(&w, str_of(at->path));
	if (err == 0 && target[0] != '/')
		err = step(&w, str_of("..")); /* the link itself is not a part of its way */
	if (err == 0)
		err = add(&w, str_of(target));
	return err != 0 ? err : root_of(b, &w) == NULL ? EXDEV : 0;
}

void path_done(struct path_at *at)
{
	if (at->dir >= 0)
		(void)close(at->dir);
	at->dir = -1;
}

int path_open_dir(int dir, const char *name)
{
	int at = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return -1;
	int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = errno;
	(void)close(at);
	errno = err;
	return fd;
}

int path_open_at(const struct path_at *at)
{
	/* A link put here since is refused (ELOOP); a pipe does not block, and is no file. */
	int fd = openat(at->dir, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int err = errno;
	struct stat st;
	if (fd >= 0 && (fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))) {
		(void)close(fd);
		fd = -1;
		err = EINVAL;
	}
	errno = err;
	return fd;
}

int path_open(struct box *b, const char *path)
{
	struct path_at at;
	int err = path_find(b, path, 0, &at);
	int fd = err == 0 ? path_open_at(&at) : -1;
	if (err == 0)
		err = errno;
	path_done(&at);
	errno = err;
	return fd;
}

int path_open_file(struct box *b, const char *path)
{
	int fd = path_open(b, path);
	struct stat st;
	if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || fcntl(fd, F_SETFL, 0) != 0)) {
		(void)close(fd);
		fd = -1;
		errno = EISDIR;
	}
	return fd;
}
