#include "box/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/str.h"

enum { HOPS_MAX = 40 };

struct walk {
	char path[LIMIT_PATH_BYTES]; /* normal: absolute, no empty, "." or ".." component */
	size_t n;
};

/* Append one component to a normal path; ".." takes one off. */
static int step(struct walk *w, struct str part)
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

static int add(struct walk *w, struct str rest)
{
	struct str part;
	int err = 0;
	while (err == 0 && str_cut(&rest, '/', &part))
		err = step(w, part);
	return err;
}

/* The innermost root that holds a normal path. */
static const struct root *root_of(const struct box *b, const struct walk *w)
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
static int follow(struct walk *w, size_t at, struct str rest, int dir, const char *name)
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
static int pass(const struct root *r, struct walk *w, bool parents, struct path_at *at)
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
		(void)snprintf(at->name, sizeof at->name, "%.*s", (int)part.n, part.p);
		err = follow(w, from, rest, dir, at->name);
		if (err == EAGAIN)
			break;
		bool last = rest.n == 0;
		if (err == EINVAL || (err == ENOENT && (parents || last)))
			err = last ? 0 : enter(&dir, at->name, parents);
	}
	if (err != 0)
		(void)close(dir);
	else
		at->dir = dir;
	return err;
}

int path_find(struct box *b, const char *path, bool parents, struct path_at *at)
{
	struct walk w = { .n = 0 };
	int err = path[0] == '/' ? 0 : add(&w, str_of(b->conf.workdir));
	if (err == 0)
		err = path[0] == 0 ? EINVAL : add(&w, str_of(path));
	if (err != 0)
		return err;
	for (int hop = 0; hop < HOPS_MAX; hop++) {
		const struct root *r = root_of(b, &w);
		if (r == NULL)
			return EXDEV;
		err = pass(r, &w, parents, at);
		if (err != EAGAIN)
			return err;
	}
	return ELOOP;
}

int path_open(struct box *b, const char *path)
{
	struct path_at at = { .dir = -1 };
	int err = path_find(b, path, false, &at);
	if (err != 0) {
		errno = err;
		return -1;
	}
	/* A link put here since is refused (ELOOP); a pipe does not block, and is no file. */
	int fd = openat(at.dir, at.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	err = errno;
	(void)close(at.dir);
	struct stat st;
	if (fd >= 0 && (fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))) {
		(void)close(fd);
		fd = -1;
		err = EINVAL;
	}
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
