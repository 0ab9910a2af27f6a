/*
 * cred.h - credentials at rest: keys, run tokens and grants are rows of one table; only a SHA-256 of the secret is kept.
 * Text: gk_<26-character id tail>_<43 characters>, gr_…, gg_…; the id in the table is key_/tok_/grt_<tail>.
 */
#pragma once

#include "auth/principal.h"
#include "base/id.h"
#include "base/secret.h"

struct cred_new {
	enum cred_kind kind;
	const char *org, *user, *name;
	bool org_admin;
	const char *scopes;     /* NULL: "*" */
	const char *repo, *ref; /* grants */
	const char *session;    /* run tokens; may be set on grants of a run so that they die with it */
	long long ttl_s;        /* 0: no expiry (keys only) */
};
struct cred {
	char id[ID_MAX];
	char expires_at[32]; /* RFC 3339, "" for none */
	struct secret *text; /* the whole credential, shown once; the caller frees */
};
int cred_create(struct pg *db, const struct cred_new *want, struct cred *got, struct err *e);
/* ERR_NOT_FOUND when there is none of that kind in that org. Effective at once on every host: nothing caches credentials. */
int cred_revoke(struct pg *db, const char *org, enum cred_kind kind, const char *id, struct err *e);
/* All run tokens and grants of a session: called when its run ends, on every path. */
int cred_revoke_session(struct pg *db, const char *org, const char *session, struct err *e);
/* Rows {id, name, user, admin, scopes[], createdAt, expiresAt, lastUsedAt?}, newest first, after `cursor`. */
json_t *cred_list(struct pg *db, const char *org, enum cred_kind kind, const char *cursor, int limit, struct err *e);
int org_create(struct pg *db, const char *slug, struct err *e);
