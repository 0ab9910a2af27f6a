#include "auth/principal.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "auth/cred.h"
#include "auth/jwt.h"
#include "auth/known.h"
#include "auth/oidc.h"
#include "base/hash.h"
#include "base/str.h"
#include "op/connect.h"
#include "sql/auth.h"

enum {
	HEADER_MAX_BYTES = 12 * 1024, /* of Authorization: a JWT in Basic; a longer one is none of ours */
	TAKE_MS = 2000,               /* wait for a database connection */
};

static const char *text_or_null(struct mem *m, const struct pg_res *r, int col)
{
	return pg_null(r, 0, col) ? NULL : mem_str(m, pg_str(r, 0, col));
}

/* Looked up in its row. *steady: this secret is the key's present one, and stays for a moment unless somebody changes the row. */
static int look_up(struct mem *m, struct pg *db, const struct cred_parts *parts, const struct principal **who,
    bool *steady, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_find, e, parts->id, cred_kind_name(parts->kind));
	if (r == NULL)
		return -1;
	/* ID-5: an unknown id costs the same comparison, with a hash that nothing has. */
	static const char nothing[SHA256_HEX] =
	    "0000000000000000000000000000000000000000000000000000000000000000";
	bool known = pg_rows(r) == 1;
	bool present = bytes_equal_ct(known ? pg_str(r, 0, 8) : nothing, parts->hash, SHA256_HEX - 1);
	/* ID-6: the secret before a rotation, while it counts. */
	bool before = known && !pg_null(r, 0, 10);
	bool old = bytes_equal_ct(before ? pg_str(r, 0, 10) : nothing, parts->hash, SHA256_HEX - 1);
	if (!known || !(present || old) || !pg_bool(r, 0, 9))
		return 0;
	*steady = present && pg_bool(r, 0, 14);
	struct principal *p = mem_alloc(m, sizeof *p);
	*p = (struct principal){ .kind = parts->kind,
		.cred_id = mem_str(m, pg_str(r, 0, 0)),
		.org = mem_str(m, pg_str(r, 0, 1)),
		.user = mem_str(m, pg_str(r, 0, 2)),
		.org_admin = parts->kind == CRED_KEY && pg_bool(r, 0, 3),
		.scopes = mem_str(m, pg_str(r, 0, 4)),
		.repo = text_or_null(m, r, 5),
		.ref = text_or_null(m, r, 6),
		.session = text_or_null(m, r, 7),
		.sandbox = text_or_null(m, r, 11),
		.over = pg_bool(r, 0, 12),
		.run = text_or_null(m, r, 13) };
	p->super_admin = p->org_admin && strcmp(p->org, "admin") == 0;
	*who = p;
	return 0;
}

int principal_of(
    struct mem *m, struct pg *db, const char *credential, const struct principal **who, struct err *e)
{
	struct cred_parts parts;
	bool steady = false;
	*who = NULL;
	return cred_split(credential, &parts) ? look_up(m, db, &parts, who, &steady, e) : 0;
}

/* Paths that git and browsers ask for; /v1/git/repos… is the API. */
static bool takes_basic(const char *path)
{
	if (str_starts(path, "/git/"))
		return true;
	return str_starts(path, "/v1/git/") && strcmp(path, "/v1/git/repos") != 0 &&
	    !str_starts(path, "/v1/git/repos/");
}

/* RFC 7617: what stands after the first colon is the password. NULL when the header is malformed. */
static const char *basic_password(struct mem *m, const char *text)
{
	size_t n = strlen(text);
	unsigned char *plain = mem_alloc(m, n + 1);
	ssize_t len = b64_decode(text, n, plain);
	if (len < 0 || memchr(plain, 0, (size_t)len) != NULL)
		return NULL;
	const char *colon = memchr(plain, ':', (size_t)len);
	return colon == NULL ? NULL : colon + 1;
}

/* Clients of the messages wire send their key so, when they have no Authorization. */
static bool takes_api_key(const char *path)
{
	return path != NULL /* not from the command line */ &&
	    (strcmp(path, "/v1/messages") == 0 || str_starts(path, "/v1/messages/") ||
		str_starts(path, "/v1/models"));
}

/* The credential of the headers that count at this door, or NULL. */
static const char *credential_of(struct ctx *c)
{
	if (c->door == DOOR_E2B) {
		const char *box = reply_param(c, "HTTP_X_ACCESS_TOKEN");
		return box != NULL ? box : reply_param(c, "HTTP_X_API_KEY");
	}
	const char *h = reply_param(c, "HTTP_AUTHORIZATION");
	if (h == NULL && takes_api_key(c->path)) {
		const char *key = reply_param(c, "HTTP_X_API_KEY");
		return key != NULL && strlen(key) <= HEADER_MAX_BYTES ? key : NULL;
	}
	if (h == NULL || strlen(h) > HEADER_MAX_BYTES)
		return NULL;
	size_t scheme = strcspn(h, " ");
	const char *rest = h + scheme + strspn(h + scheme, " ");
	if (scheme == 6 && strncasecmp(h, "Bearer", 6) == 0)
		return rest;
	if (scheme == 5 && strncasecmp(h, "Basic", 5) == 0 && takes_basic(c->path))
		return basic_password(c->mem, rest);
	return NULL;
}

int principal_identify(struct ctx *c, const struct principal **who, struct err *e)
{
	*who = NULL;
	const char *credential = credential_of(c);
	struct cred_parts parts;
	if (credential != NULL && jwt_is(credential))
		return oidc_principal(c->mem, c->db, credential, who, e);
	if (credential == NULL || !cred_split(credential, &parts)) /* nothing worth a connection */
		return 0;
	if ((*who = known_find(c->mem, &parts)) != NULL)
		return 0;
	struct known_asked asked = known_ask();
	bool steady = false;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL || look_up(c->mem, db, &parts, who, &steady, e) != 0)
		return -1;
	if (steady)
		known_keep(&parts, *who, asked);
	return 0;
}

/* What is done inside a sandbox at a compatibility door takes that sandbox's credential, and that is for nothing else. */
static int sandbox_kind(const struct principal *p, const struct op *op, struct err *e)
{
	bool inside = (op->flags & OP_BOX) != 0, its = p != NULL && p->kind == CRED_SANDBOX;
	if (inside && !its)
		return err_set(e, ERR_UNAUTHORIZED,
		    "Send the sandbox's own token, as create or connect answered it: the header "
		    "\"X-Access-Token: gs_...\".");
	if (!inside && its)
		return err_set(e, ERR_FORBIDDEN, "A sandbox's token is for work in it only; use a key here.");
	if (!inside || !p->over)
		return 0;
	(void)err_set(e, ERR_UPSTREAM, "The sandbox is not running.");
	e->reason = CONNECT_OVER;
	return -1;
}

static int forbidden_kind(const struct principal *p, const struct op *op, struct err *e)
{
	bool git_wire = (op->flags & OP_HIDDEN) != 0 && strcmp(op->scope, "git") == 0;
	if (p->kind == CRED_GRANT && !git_wire)
		return err_set(
		    e, ERR_FORBIDDEN, "A grant is for git on its one repository only; use a key here.");
	if (p->kind == CRED_RUN_TOKEN && strcmp(op->scope, "models") != 0)
		return err_set(
		    e, ERR_FORBIDDEN, "A run token is for the run's model calls only; use a key here.");
	return 0;
}

int principal_authorise(struct ctx *c, const struct op *op, struct err *e)
{
	if ((op->flags & (OP_PUBLIC | OP_INTERNAL)) != 0)
		return 0;
	assert(op->scope != NULL);
	const struct principal *p = c->who;
	if (sandbox_kind(p, op, e) != 0)
		return -1;
	if (p == NULL)
		return err_set(e, ERR_UNAUTHORIZED,
		    "Send a valid credential: the header %s with a key that is not expired or revoked.",
		    c->door == DOOR_E2B          ? "\"X-API-Key: gk_...\""
			: takes_api_key(c->path) ? "\"Authorization: Bearer gk_...\" or \"x-api-key: gk_...\""
						 : "\"Authorization: Bearer gk_...\"");
	if (forbidden_kind(p, op, e) != 0)
		return -1;
	if (principal_is_user(p) && !principal_scope(p, op->scope))
		return err_set(e, ERR_FORBIDDEN,
		    "This key does not hold the scope \"%s\"; ask an admin of the org for one that does.",
		    op->scope);
	if ((op->flags & OP_ADMIN) != 0 && !principal_org_admin(p, p->org))
		return err_set(e, ERR_FORBIDDEN, "Only an admin of the org may do this; use an admin's key.");
	if ((op->flags & OP_SUPER) != 0 && !principal_super(p))
		return err_set(e, ERR_FORBIDDEN, "Only the operators of this service may do this.");
	return 0;
}

const char *principal_org(const struct principal *who)
{
	return who->org;
}

bool principal_member(const struct principal *p, const char *org)
{
	return p != NULL && strcmp(p->org, org) == 0;
}

bool principal_org_admin(const struct principal *p, const char *org)
{
	return principal_member(p, org) && p->org_admin;
}

bool principal_super(const struct principal *p)
{
	return p != NULL && p->super_admin;
}

bool principal_is_user(const struct principal *p)
{
	return p != NULL && (p->kind == CRED_KEY || p->kind == CRED_OIDC);
}

bool principal_may_stop(const struct principal *p, const char *org, const char *started_by)
{
	if (principal_super(p) || principal_org_admin(p, org))
		return true;
	return principal_member(p, org) && principal_is_user(p) && strcmp(p->user, started_by) == 0;
}

bool principal_scope(const struct principal *p, const char *scope)
{
	struct str rest = str_of(p->scopes), word;
	while (str_cut(&rest, ' ', &word))
		if (str_eq(word, "*") || str_eq(word, scope))
			return true;
	return false;
}
