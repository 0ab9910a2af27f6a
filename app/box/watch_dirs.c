#include "box/watch_dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

/* gcc 12's analyzer forgets what was stored at an index that it does not know, and then takes the path for lost. */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

/* Where wd is, or would be. */
static size_t place(const struct watch_dirs *d, int wd)
{
	size_t low = 0, high = d->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (d->p[mid].wd < wd)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct watch_dir *find(const struct watch_dirs *d, int wd)
{
	size_t i = place(d, wd);
	return i < d->n && d->p[i].wd == wd ? &d->p[i] : NULL;
}

const struct watch_dir *watch_dirs_find(const struct watch_dirs *d, int wd)
{
	return find(d, wd);
}

static int grow(struct watch_dirs *d)
{
	if (d->n >= WATCH_DIRS_MAX)
		return ENOSPC;
	if (d->n < d->cap)
		return 0;
	size_t cap = d->cap == 0 ? 16 : 2 * d->cap;
	struct watch_dir *p = realloc(d->p, cap * sizeof *p);
	if (p == NULL)
		return ENOMEM;
	d->p = p;
	d->cap = cap;
	return 0;
}

int watch_dirs_add(struct watch_dirs *d, int wd, const char *path, bool told)
{
	struct watch_dir *known = find(d, wd);
	char *copy = strdup(path);
	int err = copy == NULL ? ENOMEM : known == NULL ? grow(d) : 0;
	if (err != 0) {
		free(copy);
		return err;
	}
	size_t i = place(d, wd);
	if (known != NULL) {
		free(known->path);
	} else {
		memmove(d->p + i + 1, d->p + i, (d->n - i) * sizeof *d->p);
		d->n++;
	}
	d->p[i] = (struct watch_dir){ .wd = wd, .waits = true, .told = told, .path = copy };
	if (i < d->waiting)
		d->waiting = i;
	return 0;
}

bool watch_dirs_wait(struct watch_dirs *d)
{
	while (d->waiting < d->n && !d->p[d->waiting].waits)
		d->waiting++;
	return d->waiting < d->n;
}

const struct watch_dir *watch_dirs_waiting(struct watch_dirs *d)
{
	if (!watch_dirs_wait(d))
		return NULL;
	d->p[d->waiting].waits = false;
	return &d->p[d->waiting];
}

void watch_dirs_read(struct watch_dirs *d, int wd)
{
	struct watch_dir *w = find(d, wd);
	if (w != NULL)
		w->waits = false;
}

void watch_dirs_again(struct watch_dirs *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (!d->p[i].waits) {
			d->p[i].waits = true;
			d->p[i].told = false;
		}
	d->waiting = 0;
}

static void drop_at(struct watch_dirs *d, size_t i)
{
	free(d->p[i].path);
	memmove(d->p + i, d->p + i + 1, (d->n - i - 1) * sizeof *d->p);
	d->n--;
	if (i < d->waiting)
		d->waiting--;
}

void watch_dirs_drop(struct watch_dirs *d, int wd)
{
	if (find(d, wd) != NULL)
		drop_at(d, place(d, wd));
}

/* Is it at `path` or below? */
static bool is_at(const struct watch_dir *w, const char *path)
{
	size_t n = strlen(path);
	return strncmp(w->path, path, n) == 0 && (w->path[n] == 0 || w->path[n] == '/');
}

int watch_dirs_take(struct watch_dirs *d, const char *path)
{
	for (size_t i = 0; i < d->n; i++)
		if (is_at(&d->p[i], path)) {
			int wd = d->p[i].wd;
			drop_at(d, i);
			return wd;
		}
	return -1;
}

int watch_dirs_rename(struct watch_dirs *d, const char *from, const char *to)
{
	int err = 0;
	for (size_t i = 0; i < d->n; i++) {
		char path[2 * LIMIT_PATH_BYTES];
		if (!is_at(&d->p[i], from))
			continue;
		(void)snprintf(path, sizeof path, "%s%s", to, d->p[i].path + strlen(from));
		char *copy = strlen(path) < LIMIT_PATH_BYTES ? strdup(path) : NULL;
		if (copy == NULL) {
			err = ENOMEM;
			continue;
		}
		free(d->p[i].path);
		d->p[i].path = copy;
	}
	return err;
}

void watch_dirs_aside(struct watch_dirs *d, const char *path)
{
	for (size_t i = 0; i < d->n; i++)
		if (strcmp(d->p[i].path, path) == 0)
			d->p[i].aside = true;
}

void watch_dirs_free(struct watch_dirs *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->p[i].path);
	free(d->p);
	*d = (struct watch_dirs){ .n = 0 };
}
