#include "forge/grant.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"

int grant_issue(
    struct pg *db, const struct repo *r, const struct grant_want *want, struct cred *got, struct err *e)
{
	static const char heads[] = "refs/heads/";
	const char *branch = str_starts(want->ref, heads) ? want->ref + strlen(heads) : want->ref;
	if (str_starts(branch, "refs/"))
		return err_field(
		    e, ERR_BAD_REQUEST, "ref", "A grant is for one branch: `ref` must be a branch name.");
	if (branch_check(branch, "ref", e) != 0)
		return -1;
	if (strcmp(branch, r->default_branch) == 0)
		return err_field(e, ERR_BAD_REQUEST, "ref",
		    "A grant cannot be for the default branch %s: name another branch.", r->default_branch);
	char full[LIMIT_REF_NAME + sizeof heads];
	(void)snprintf(full, sizeof full, "%s%s", heads, branch);
	const struct cred_new c = { .kind = CRED_GRANT,
		.org = r->org,
		.user = want->user,
		.name = branch,
		.scopes = "git",
		.repo = r->name,
		.ref = full,
		.session = want->session,
		.ttl_s = want->ttl_s };
	return cred_create(db, &c, got, e);
}
