/* watch_dirs.h - the directories of one watch: which watch descriptor stands for which path (watch.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { WATCH_DIRS_MAX = 8192 };

struct watch_dir {
	int wd;
	bool waits; /* to be read */
	bool told;  /* what is in it is new */
	bool aside; /* it is being removed under another name */
	char *path; /* from the place that is watched; "" for that itself */
};
struct watch_dirs {
	struct watch_dir *p; /* in rising order of wd: the kernel gives rising ones */
	size_t n, cap;
	size_t waiting; /* none before this one waits */
};

/* It waits to be read. One that is known by this wd gets the path. 0, or ENOSPC or ENOMEM. */
int watch_dirs_add(struct watch_dirs *d, int wd, const char *path, bool told);
const struct watch_dir *watch_dirs_find(const struct watch_dirs *d, int wd); /* NULL: there is none */
bool watch_dirs_wait(struct watch_dirs *d);                                  /* does any wait to be read? */
/* The next that waits to be read, which it does not any more. */
const struct watch_dir *watch_dirs_waiting(struct watch_dirs *d);
void watch_dirs_read(struct watch_dirs *d, int wd); /* it need not be read */
void watch_dirs_again(struct watch_dirs *d);        /* all are to be read again, to find what is new */
void watch_dirs_drop(struct watch_dirs *d, int wd);
/* Forget one that is at `path` or below; its wd, or -1 when there is none left. */
int watch_dirs_take(struct watch_dirs *d, const char *path);
/* What was at `from` or below is at `to` now. 0, or an errno. */
int watch_dirs_rename(struct watch_dirs *d, const char *from, const char *to);
/* The one at `path` is aside now. */
void watch_dirs_aside(struct watch_dirs *d, const char *path);
void watch_dirs_free(struct watch_dirs *d);
