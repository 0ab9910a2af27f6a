/* grant.h - a short-lived credential that reads one repository and moves one branch of it forward (FRG-3). */
#pragma once

#include "auth/cred.h"
#include "forge/repo.h"

enum { GRANT_TTL_S = 900, GRANT_TTL_MIN_S = 10, GRANT_TTL_MAX_S = 24 * 3600 };

struct grant_want {
	const char *ref;  /* a branch name, or the same with refs/heads/ before it; not the default branch */
	const char *user; /* who is answerable for it */
	const char *session; /* the run it dies with, or NULL */
	long long ttl_s;
};
/* Issue it; the caller frees got->text. ERR_BAD_REQUEST on `ref` for anything that no grant may write. */
int grant_issue(
    struct pg *db, const struct repo *r, const struct grant_want *want, struct cred *got, struct err *e);
