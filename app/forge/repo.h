/*
 * repo.h - repositories: rows (org, name) and bare git directories under FORGE_ROOT/<org>/<name>.git, owned by the service.
 * The one place where a repository name or a ref name is judged.
 */
#pragma once

#include "io/conf.h"
#include "io/pg.h"
#include "op/op.h"

struct repo {
	const char *org, *name, *project, *default_branch, *created_at; /* in the arena */
	const char *dir; /* absolute path of the bare repository */
};
/* [A-Za-z0-9][A-Za-z0-9._-]{0,99}, not ending in .git or .lock, no "..", not "repos" (any case); the message says which rule. */
int repo_name_check(const char *name, struct err *e);
/* A branch name as git check-ref-format has it, and stricter: no leading '-', no "HEAD", no whitespace, ASCII-safe, ≤ 200. */
int branch_check(const char *name, const char *param, struct err *e);

int repo_create(struct ctx *c, const char *org, const char *name, const char *project,
    const char *default_branch, struct repo *r, struct err *e);
/* The one ERR_NOT_FOUND for a repository that does not exist and for one of another org (ID-4). Returns -1. */
int repo_absent(const char *name, struct err *e);
int repo_get(struct ctx *c, struct pg *db, const char *org, const char *name, struct repo *r, struct err *e);
json_t *repo_list(
    struct ctx *c, struct pg *db, const char *org, const char *cursor, int limit, struct err *e);
int repo_delete(struct ctx *c, const char *org, const char *name, struct err *e);
/* PUBLIC_URL/git/<org>/<repo>; "" for a project's repository: it is not shown to the whole org and has no page (FRG-7). */
const char *repo_page_url(struct ctx *c, const struct repo *r);
json_t *repo_json(
    struct ctx *c, const struct repo *r); /* name, cloneUrl, defaultBranch, page, project, createdAt */
/* The commit id of refs/heads/<branch> in storage, into out[65]; ERR_NOT_FOUND when there is none. */
int repo_tip(const struct repo *r, const char *branch, char out[65], struct err *e);
