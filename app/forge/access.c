#include "forge/access.h"

#include <string.h>

#include "auth/principal.h"

enum { DB_WAIT_MS = 5000 };

static bool may_enter(const struct principal *p, const char *org, const char *name)
{
	switch (p->kind) {
	case CRED_KEY:
	case CRED_OIDC:
		return principal_member(p, org);
	case CRED_GRANT:
		return strcmp(p->org, org) == 0 && strcmp(p->repo, name) == 0;
	case CRED_RUN_TOKEN: /* model calls only (ID-1) */
	case CRED_SANDBOX:   /* work in the sandbox only */
		return false;
	}
	return false;
}

int access_repo(struct ctx *c, const char *org, const char *name, struct repo *r, struct err *e)
{
	if (c->who == NULL)
		return err_set(e, ERR_UNAUTHORIZED,
		    "Sign in with any user name and a gatehouse key, or a grant for this repository, as "
		    "password.");
	if (!may_enter(c->who, org, name))
		return repo_absent(name, e);
	if (!principal_scope(c->who, "git"))
		return err_set(
		    e, ERR_FORBIDDEN, "This key does not hold the scope \"git\": use one that does.");
	auto_pg struct pg *db = pg_take(c->db, DB_WAIT_MS, e);
	return db == NULL ? -1 : repo_get(c, db, org, name, r, e);
}
