/*
 * clone.h - the runner's own bare clone and its talks with the remote: fetch one commit, ask for a tip, push one ref (COD-7).
 */
#pragma once

#include "code/rgit.h"

/* A fresh, empty bare repository. */
int clone_init(const struct rgit_repo *repo, struct err *e);
/*
 * Fetch `branch` (NULL: the remote's HEAD) at depth 1 as one pack; its commit into tip. An empty repository is not an error:
 * tip is "". A branch that does not exist is ERR_NOT_FOUND naming it.
 */
int clone_fetch(const struct rgit_repo *repo, const struct rgit_remote *r, const char *branch,
    char tip[RGIT_ID_MAX], struct err *e);
/* The fetched pack without its ".pack" or ".idx", in the arena; NULL when there is none. */
char *clone_pack(const struct rgit_repo *repo, struct mem *m);
/* What the remote says refs/heads/<branch> is: "" when it has none. */
int clone_remote_tip(const struct rgit_repo *repo, const struct rgit_remote *r, const char *branch,
    char tip[RGIT_ID_MAX], struct err *e);
/* Push exactly <tip>:refs/heads/<branch>, never forced. */
int clone_push(const struct rgit_repo *repo, const struct rgit_remote *r, const char *tip, const char *branch,
    struct err *e);
