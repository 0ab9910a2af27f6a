/*
 * push.h - write a commit without a clone (FRG-4). Nothing of the branch is visible until one compare-and-swap of its ref;
 * whatever fails before leaves only unreachable objects.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "forge/repo.h"

enum { PUSH_FILES_MAX = 1000, PUSH_DEPTH_MAX = 64 };

struct push_file {
	const char *path;
	const void *p; /* whole new content */
	size_t n;
	bool remove;
};
struct push {
	const char
	    *branch; /* made from the default branch when absent; the first commit of an empty repository */
	const char *message;
	const char *user; /* author and committer */
	const struct push_file *files;
	size_t n;
};
/* A path as a checkout on any system can hold it: relative, no '.' or '..' parts, no .git in any disguise, no backslash. */
int push_path_check(const char *path, struct err *e);
/*
 * Commit onto the branch. Modes of existing files are kept. When nothing differs no commit is made and the tip is returned.
 * ERR_CONFLICT when a path is in the way of another, when a file to delete is not there, or when the branch moved meanwhile.
 */
int push_commit(struct ctx *c, const struct repo *r, const struct push *p, char commit[65], struct err *e);
