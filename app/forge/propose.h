/* propose.h - offer a branch for review (FRG-7). */
#pragma once

#include "forge/repo.h"

/*
 * Where a branch of a repository that lives here can be looked at: its page, in the arena; "" for a project's repository,
 * which has none. NULL with e: `head` is no branch name or is the default branch. Needs no
 * storage: whoever proposes has verified the ref.
 */
const char *propose(struct ctx *c, const struct repo *r, const char *head, struct err *e);
