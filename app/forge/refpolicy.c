#include "forge/refpolicy.h"

#include <string.h>

#include "base/str.h"

static const char heads[] = "refs/heads/", tags[] = "refs/tags/";

static bool is_zero(const char *id)
{
	return str_only(id, "0");
}

/* FRG-3: a grant is for moving one branch forward, once named; everything else is refused, with the rule that
 * refused it. */
static int judge_grant(const struct ref_rights *r, const struct ref_change *c, size_t n, struct err *e)
{
	if (n != 1)
		return err_set(e, ERR_FORBIDDEN,
		    "A grant pushes exactly one branch, and this push names %zu: push only %s.", n,
		    r->grant_ref);
	if (strcmp(c->ref, r->grant_ref) != 0)
		return err_set(e, ERR_FORBIDDEN, "This grant may push %s, not %s.", r->grant_ref, c->ref);
	/* Such a grant is never issued; that it is refused must not depend on who issued it. */
	if (!str_starts(c->ref, heads))
		return err_set(e, ERR_FORBIDDEN, "A grant pushes a branch, not %s.", c->ref);
	if (strcmp(c->ref + strlen(heads), r->default_branch) == 0)
		return err_set(e, ERR_FORBIDDEN,
		    "A grant may not push the default branch %s: push a branch of its own.",
		    r->default_branch);
	if (is_zero(c->new_id))
		return err_set(e, ERR_FORBIDDEN, "A grant may not delete %s.", c->ref);
	if (c->forced)
		return err_set(e, ERR_FORBIDDEN,
		    "A grant may not force %s: build on the branch as it is and push again.", c->ref);
	return 0;
}

/*
 * A principal of the org pushes any branch and tag. Other namespaces have no reader here, and refs/replace
 * would change what the API and the page show. The two branch names are the ones that command lines take for
 * something else.
 */
static int judge_member(const struct ref_rights *r, const struct ref_change *c, struct err *e)
{
	if (!str_starts(c->ref, heads) && !str_starts(c->ref, tags))
		return err_set(
		    e, ERR_FORBIDDEN, "Only refs/heads/ and refs/tags/ can be pushed here, not %s.", c->ref);
	bool branch = str_starts(c->ref, heads);
	const char *name = c->ref + (branch ? strlen(heads) : strlen(tags));
	/* A clone begins with it. git refuses this too, with words for the operator of the repository. */
	if (branch && is_zero(c->new_id) && strcmp(name, r->default_branch) == 0)
		return err_set(e, ERR_FORBIDDEN,
		    "The default branch %s cannot be deleted: a clone of this repository begins with it.",
		    name);
	if (!is_zero(c->new_id) && (name[0] == '-' || strcmp(name, "HEAD") == 0))
		return err_set(e, ERR_FORBIDDEN, "%s is not a usable name: choose another one.", c->ref);
	return 0;
}

int refpolicy_judge(
    const struct ref_rights *rights, const struct ref_change *changes, size_t n, struct err *e)
{
	if (rights->default_branch == NULL || rights->default_branch[0] == 0)
		return err_set(e, ERR_INTERNAL, "The push was not judged: try again.");
	if (rights->grant_ref != NULL)
		return judge_grant(rights, changes, n, e);
	for (size_t i = 0; i < n; i++)
		if (judge_member(rights, &changes[i], e) != 0)
			return -1;
	return 0;
}
