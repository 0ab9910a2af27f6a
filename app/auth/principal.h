/*
 * principal.h - who a request proved to be (ID-1…5). Made only here, from one credential; never from a body or a header
 * other than Authorization (git also sends Basic: any user name, the password is the credential). At the door for the E2B SDK
 * that header is X-API-Key, and X-Access-Token for work in a sandbox; Authorization says nothing there. Clients of the messages wire
 * have X-API-Key in place of Authorization.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/pg.h"
#include "op/op.h"

enum cred_kind {
	CRED_KEY,
	CRED_RUN_TOKEN,
	CRED_GRANT,
	CRED_SANDBOX, /* for work in one sandbox, at a compatibility door */
	CRED_OIDC,    /* a token of the identity provider (auth/oidc); it has no row */
};

struct principal {
	enum cred_kind kind;
	const char *cred_id;    /* key_…; "oidc" */
	const char *org;        /* slug */
	const char *user;       /* name on the key, or of the token; never NULL */
	bool org_admin;         /* of `org` only */
	bool super_admin;       /* member of the reserved org "admin" with an admin key */
	const char *scopes;     /* space separated op groups; "*" is all */
	const char *repo, *ref; /* CRED_GRANT: the one repository and full ref; else NULL */
	const char *session;    /* the run that a run token or a run's grant belongs to; else NULL */
	const char *run;        /* CRED_RUN_TOKEN: its id, where the session is a run's; else NULL */
	const char *sandbox;    /* CRED_SANDBOX: the one it is for; else NULL */
	bool over;              /* CRED_SANDBOX: that has ended */
};

/* The principal of a credential text ("gk_…", "gr_…", "gg_…", "gs_…"), in the arena. 0 with *who NULL when it is not valid (unknown,
 * expired, revoked: one answer for all); -1 only when that cannot be found out. Lookup by id, then constant-time compare. */
int principal_of(
    struct mem *m, struct pg *db, const char *credential, const struct principal **who, struct err *e);
/* The fcgi_opts.identify hook: reads Authorization (Bearer; Basic too on the paths that git and browsers use, and only there:
 * a browser repeats Basic by itself, which must not reach the API). */
int principal_identify(struct ctx *c, const struct principal **who, struct err *e);
/* The fcgi_opts.authorise hook: ERR_UNAUTHORIZED for nobody, ERR_FORBIDDEN for a missing scope or admin right. OP_PUBLIC and
 * OP_INTERNAL (there the door is the authority) pass everybody. A run token reaches ops of scope "models", a grant the
 * OP_HIDDEN ops of scope "git", which then ask about its repository and ref, and a sandbox's own credential OP_BOX ops, which
 * nothing else reaches: ERR_UPSTREAM where that sandbox is over. */
int principal_authorise(struct ctx *c, const struct op *op, struct err *e);
/* The fcgi_opts.org_of hook: who->org, for whom a principal is opaque. */
const char *principal_org(const struct principal *who);

/* Three predicates and no more (ID-3). A NULL principal is nobody. */
bool principal_member(const struct principal *p, const char *org);
bool principal_org_admin(const struct principal *p, const char *org);
bool principal_super(const struct principal *p);
/* A person's or a program's own credential, with all the rights of its user: no run token and no grant. */
bool principal_is_user(const struct principal *p);
/* COD-15: may stop what `started_by` (a user name) of `org` started. */
bool principal_may_stop(const struct principal *p, const char *org, const char *started_by);
/* Does the credential hold this op group? "*" asks for all. */
bool principal_scope(const struct principal *p, const char *scope);
/* An org slug: ^[a-z0-9][a-z0-9-]{0,38}[a-z0-9]$ or one letter; "repos" is reserved. */
bool org_slug_ok(const char *s);
