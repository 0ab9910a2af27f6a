/*
 * walk.h - through a directory and what is below it, entry by entry, each directory before what is in it. Every directory is held
 * by a descriptor and entered by its name there, without following links, so nothing that changes meanwhile leads out of it.
 */
#pragma once

#include <sys/stat.h>

#include "box/path.h"

enum { WALK_DEPTH_MAX = 64 };

struct walk_level;
struct walk {
	char path[LIMIT_PATH_BYTES]; /* of the last entry, from the top */
	int n_levels, err;           /* err: why it ended; 0: everything was seen */
	struct walk_level *levels[WALK_DEPTH_MAX];
};

/* Zeroed before. 0, or an errno (ENOTDIR). */
int walk_begin(struct walk *w, const struct path_at *top);
/* The next entry: its name in walk_dir(), what it is; NULL at the end. What is gone again is left out. */
const char *walk_next(struct walk *w, struct stat *st);
int walk_dir(const struct walk *w);
/* Go on with what is in the last entry, if that is a directory; 0, or an errno. One that cannot be read is EACCES, one that is gone
 * nothing. */
int walk_into(struct walk *w, const struct stat *st);
/* Is there anything that walk_next has not told? */
bool walk_has_more(struct walk *w);
void walk_end(struct walk *w); /* twice is fine */
