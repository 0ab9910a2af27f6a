/* view.h - what the page of a branch shows, read with git: branches, commits, changes against the default branch, files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "forge/repo.h"

enum {
	VIEW_BRANCHES = 300,
	VIEW_COMMITS = 100,
	VIEW_CHANGES = 1000,
	VIEW_FILES = 2000,
	VIEW_PATCH_BYTES = 1 << 20
};

struct view_branch {
	const char *name, *id;
	int64_t time_s;
};
struct view_commit {
	const char *id, *author, *subject, *body;
	int64_t time_s;
};
struct view_change {
	char status;             /* A, D, M, R, C, T */
	const char *path, *from; /* from: of a rename or copy, else NULL */
	const char *old_mode, *new_mode;
	bool binary;
	long long added, removed;
};
struct view_file {
	const char *mode, *path;
	long long size; /* -1: none (a submodule) */
};
/* All strings in the arena given; lists are bounded as above, `more_*` says that something was left out. */
struct view {
	const struct repo *repo;
	const char *branch, *tip; /* tip NULL: the repository is empty */
	const char *
	    base; /* merge base with the default branch; NULL on the default branch or without common history */
	bool is_default, unrelated;
	long long ahead, behind;
	struct view_branch *branches;
	struct view_commit *commits;
	struct view_change *changes;
	struct view_file *files;
	size_t n_branches, n_commits, n_changes, n_files;
	bool more_branches, more_commits, more_changes, more_files, more_patch;
	struct buf patch; /* unified diff of all changes, in their order; free with view_free */
};
/* Read the view of a branch (NULL: the default branch). ERR_NOT_FOUND when there is no such branch; an empty repository is no
 * error. */
int view_read(struct mem *m, const struct repo *r, const char *branch, struct view *v, struct err *e);
void view_free(struct view *v);
