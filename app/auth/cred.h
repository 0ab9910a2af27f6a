/*
 * cred.h - credentials at rest: keys, run tokens, grants and those of sandboxes are rows of one table; only a SHA-256 of the
 * secret is kept. Text: gk_<26-character id tail>_<43 characters>, gr_…, gg_…, gs_…; the id in the table is
 * key_/tok_/grt_/sbt_<tail>.
 */
#pragma once

#include "auth/principal.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/secret.h"

enum { CRED_SECRET = 43 }; /* 32 random bytes, base64url without padding */

struct cred_new {
	enum cred_kind kind;
	const char *org, *user, *name;
	bool org_admin;
	const char *scopes;     /* NULL: "*" */
	const char *repo, *ref; /* grants */
	const char *session;    /* run tokens; may be set on grants of a run so that they die with it */
	const char *sandbox;    /* of a sandbox's: which; it counts as long as that lives */
	const char
	    *minted_by;  /* the key that it was asked for with: it counts as long as that; NULL: no key */
	long long ttl_s; /* 0: no expiry (keys only) */
	const char *expires_at; /* RFC 3339, instead of ttl_s; NULL: none */
};
struct cred {
	char id[ID_MAX];
	char expires_at[32]; /* RFC 3339, "" for none */
	struct secret *text; /* the whole credential, shown once; the caller frees */
};
/* An end that somebody wants: a moment that exists and lies ahead, in our own spelling (T_TIME); else ERR_BAD_REQUEST. */
int cred_ahead(const char *expires_at, struct err *e);
/* ERR_NOT_FOUND when the org does not exist. */
int cred_create(struct pg *db, const struct cred_new *want, struct cred *got, struct err *e);
/*
 * A new secret for a key that keeps its id and rights; the one before counts for grace_s more seconds (0: no longer), and one
 * before that no more. Refused: ERR_NOT_FOUND, ERR_CONFLICT when it has expired, ERR_FORBIDDEN when it holds a scope that
 * `may` (NULL: the operator) does not, since whoever gets the secret gets its rights. Inside a transaction that the caller has opened and commits.
 */
int cred_rotate(struct pg *db, const char *org, const char *id, int grace_s, const struct principal *may,
    struct cred *got, json_t **row, struct err *e);
/* ERR_NOT_FOUND when there is none of that kind in that org. Effective at once on every host: nothing caches credentials. */
int cred_revoke(struct pg *db, const char *org, enum cred_kind kind, const char *id, struct err *e);
/* All run tokens and grants of a session: called when its run ends, on every path. */
int cred_revoke_session(struct pg *db, const char *org, const char *session, struct err *e);
/* All grants for a repository: called when it is deleted, so that none of them reaches a later one of the same name. */
int cred_revoke_repo(struct pg *db, const char *org, const char *repo, struct err *e);
/* Rows {id, name, user, admin, scopes[], createdAt, expiresAt} of what is not revoked, newest first, ids below `before` ("" for
 * the start). New reference. */
json_t *cred_list(
    struct pg *db, const char *org, enum cred_kind kind, const char *before, int limit, struct err *e);
/* The grants for a repository that still work (cred_grant.c): rows {id, ref, user, session, createdAt, expiresAt}, newest first. New
 * reference. */
json_t *cred_grants(
    struct pg *db, const char *org, const char *repo, const char *before, int limit, struct err *e);
/* ERR_NOT_FOUND when that repository has none of that id, or it does not work any more. */
int cred_revoke_grant(struct pg *db, const char *org, const char *repo, const char *id, struct err *e);
json_t *cred_scopes(const char *scopes); /* "a b" as ["a", "b"]; new reference */
/* ERR_CONFLICT when it exists, ERR_BAD_REQUEST for a slug that is none. */
int org_create(struct pg *db, const char *slug, struct err *e);

/* The parts of a credential text; false when it does not have the form of one. */
struct cred_parts {
	enum cred_kind kind;
	char id[ID_MAX];
	char hash[SHA256_HEX]; /* of the secret part, as stored */
};
bool cred_split(const char *text, struct cred_parts *parts);
const char *cred_kind_name(enum cred_kind kind); /* as stored */
