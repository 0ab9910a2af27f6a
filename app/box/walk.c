#include "box/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DENTS_BYTES = 2048 };

struct walk_level {
	int fd;
	size_t path_n; /* of walk.path: where the names in it begin */
	size_t at, n;
	char dents[DENTS_BYTES] __attribute__((aligned(8)));
};

/* Takes fd. */
static int enter(struct walk *w, int fd, size_t path_n)
{
	struct walk_level *l = w->n_levels < WALK_DEPTH_MAX ? calloc(1, sizeof *l) : NULL;
	if (l == NULL) {
		(void)close(fd);
		return w->n_levels < WALK_DEPTH_MAX ? ENOMEM : ENAMETOOLONG;
	}
	l->fd = fd;
	l->path_n = path_n;
	w->levels[w->n_levels++] = l;
	return 0;
}

static void leave(struct walk *w)
{
	struct walk_level *l = w->levels[--w->n_levels];
	(void)close(l->fd);
	free(l);
}

int walk_begin(struct walk *w, const struct path_at *top)
{
	int fd = path_open_dir(top->dir, top->name);
	return fd < 0 ? errno : enter(w, fd, 0);
}

void walk_end(struct walk *w)
{
	while (w->n_levels > 0)
		leave(w);
}

int walk_dir(const struct walk *w)
{
	return w->levels[w->n_levels - 1]->fd;
}

/* The next name, or NULL at the end. */
static const char *next_name(struct walk_level *l)
{
	for (;;) {
		if (l->at >= l->n) {
			long n = syscall(SYS_getdents64, l->fd, l->dents, sizeof l->dents);
			l->at = 0;
			l->n = n <= 0 ? 0 : (size_t)n;
			if (n <= 0)
				return NULL;
		}
		const struct dirent64 *d = (const struct dirent64 *)(const void *)(l->dents + l->at);
		l->at += d->d_reclen;
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			return d->d_name;
	}
}

const char *walk_next(struct walk *w, struct stat *st)
{
	while (w->n_levels > 0) {
		struct walk_level *l = w->levels[w->n_levels - 1];
		const char *name = next_name(l);
		if (name == NULL) {
			leave(w);
			continue;
		}
		size_t n = strlen(name);
		if (l->path_n + n + 2 > sizeof w->path) {
			w->err = ENAMETOOLONG;
			return NULL;
		}
		memcpy(w->path + l->path_n, name, n + 1);
		if (fstatat(l->fd, name, st, AT_SYMLINK_NOFOLLOW) == 0)
			return w->path + l->path_n;
	}
	return NULL;
}

int walk_into(struct walk *w, const struct stat *st)
{
	if (!S_ISDIR(st->st_mode))
		return 0;
	const struct walk_level *l = w->levels[w->n_levels - 1];
	size_t n = strlen(w->path);
	int fd = path_open_dir(l->fd, w->path + l->path_n);
	if (fd < 0) /* something else by now is not gone into either */
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : errno;
	w->path[n] = '/';
	w->path[n + 1] = 0;
	int err = enter(w, fd, n + 1);
	if (err != 0)
		w->path[n] = 0;
	return err;
}

bool walk_has_more(struct walk *w)
{
	for (int i = 0; i < w->n_levels; i++)
		if (next_name(w->levels[i]) != NULL)
			return true;
	return false;
}
