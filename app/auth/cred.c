#include "auth/cred.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "auth/known.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "sql/auth.h"

enum { RAW_BYTES = 32, PREFIX = 3, SCOPES_BYTES = 4096 }; /* "gk_" */

static const struct {
	const char *text, *id, *stored;
} kinds[] = {
	[CRED_KEY] = { "gk_", "key", "key" },
	[CRED_RUN_TOKEN] = { "gr_", "tok", "run_token" },
	[CRED_GRANT] = { "gg_", "grt", "grant" },
	[CRED_SANDBOX] = { "gs_", "sbt", "sandbox" },
};

const char *cred_kind_name(enum cred_kind kind)
{
	return kinds[kind].stored;
}

bool cred_split(const char *text, struct cred_parts *parts)
{
	static const char secret_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	enum { TAIL_END = PREFIX + ID_TAIL, ALL = TAIL_END + 1 + CRED_SECRET };
	if (strlen(text) != ALL || text[TAIL_END] != '_' || !str_only(text + TAIL_END + 1, secret_chars))
		return false;
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		if (kinds[k].text == NULL || !str_starts(text, kinds[k].text))
			continue;
		parts->kind = (enum cred_kind)k;
		char tail[ID_TAIL + 1] = { 0 };
		memcpy(tail, text + PREFIX, ID_TAIL);
		str_put(parts->id, sizeof parts->id, kinds[k].id, "_", tail);
		sha256_hex(text + TAIL_END + 1, CRED_SECRET, parts->hash);
		return id_is(kinds[k].id, parts->id);
	}
	return false;
}

/* A new credential's text, from the id; the secret part stands at its end. */
static struct secret *make_text(enum cred_kind kind, const char *id)
{
	unsigned char raw[RAW_BYTES];
	char secret[B64_SIZE(RAW_BYTES)], text[96];
	random_bytes(raw, sizeof raw);
	(void)b64_encode(raw, sizeof raw, secret);
	for (char *p = secret; *p != 0; p++)
		*p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
	int n = snprintf(
	    text, sizeof text, "%s%s_%.43s", kinds[kind].text, id_tail(id), secret); /* without the '=' */
	struct secret *s = secret_new(text, (size_t)n);
	secret_wipe(raw, sizeof raw);
	secret_wipe(secret, sizeof secret);
	secret_wipe(text, sizeof text);
	return s;
}

/* Each scope once, in the order of their first places. */
static int scopes_text(const char *asked, struct buf *to)
{
	auto_json json_t *list = cred_scopes(asked == NULL ? "*" : asked);
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v)
		(void)buf_fmt(to, "%s%s", i == 0 ? "" : " ", json_string_value(v));
	return to->full ? -1 : 0;
}

/* Lists and logs show it to people. */
static int label_check(const char *field, const char *s, struct err *e)
{
	if (s == NULL || s[0] == 0 || str_shows(s))
		return 0;
	return err_field(e, ERR_BAD_REQUEST, field,
	    "`%s` must show something: no control characters, and not only blanks.", field);
}

int cred_ahead(const char *text, struct err *e)
{
	struct tm tm = { 0 }, again;
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t t = rest == NULL ? -1 : timegm(&tm);
	char same[24] = "";
	if (t >= 0 && gmtime_r(&t, &again) != NULL)
		(void)strftime(same, sizeof same, "%Y-%m-%dT%H:%M:%S", &again);
	/* 30 February comes back as 2 March. */
	if (strncmp(same, text, 19) != 0)
		return err_field(e, ERR_BAD_REQUEST, "expiresAt", "`expiresAt` must be a day that exists.");
	if (t <= clock_wall_ms() / 1000)
		return err_field(e, ERR_BAD_REQUEST, "expiresAt", "`expiresAt` must lie in the future.");
	return 0;
}

/* The row; got has the id. */
static int store(
    struct pg *db, const struct cred_new *want, const char *hash, struct cred *got, struct err *e)
{
	char ttl[24];
	auto_buf struct buf scopes = BUF(SCOPES_BYTES);
	if (scopes_text(want->scopes, &scopes) != 0)
		return err_field(e, ERR_BAD_REQUEST, "scopes", "`scopes` is too long.");
	(void)snprintf(ttl, sizeof ttl, "%lld", want->ttl_s);
	auto_res struct pg_res *r = PG(db, &q_auth_create, e, got->id, want->org, kinds[want->kind].stored,
	    want->name == NULL ? "" : want->name, want->user, hash, want->org_admin ? "true" : "false",
	    buf_c(&scopes), want->repo, want->ref, want->session, want->ttl_s > 0 ? ttl : NULL,
	    want->expires_at, want->sandbox, want->minted_by);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no org of that name; create it first.");
	(void)snprintf(got->expires_at, sizeof got->expires_at, "%s", pg_str(r, 0, 0));
	return 0;
}

int cred_create(struct pg *db, const struct cred_new *want, struct cred *got, struct err *e)
{
	assert(want->kind == CRED_KEY || want->ttl_s > 0);
	assert((want->kind == CRED_GRANT) == (want->repo != NULL && want->ref != NULL));
	assert((want->kind == CRED_SANDBOX) == (want->sandbox != NULL));
	*got = (struct cred){ 0 };
	if (want->kind == CRED_KEY &&
	    (label_check("name", want->name, e) != 0 || label_check("user", want->user, e) != 0))
		return -1;
	id_make(kinds[want->kind].id, got->id);
	auto_secret struct secret *text = make_text(want->kind, got->id);
	struct cred_parts parts;
	bool ours = cred_split(secret_use(text), &parts);
	assert(ours);
	if (want->kind != CRED_KEY) {
		auto_res struct pg_res *swept = PG(db, &q_auth_sweep, e, want->org);
		if (swept == NULL)
			return -1;
	}
	if (store(db, want, parts.hash, got, e) != 0)
		return -1;
	got->text = steal(text);
	return 0;
}

static int no_such(enum cred_kind kind, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "There is no such %s.", kind == CRED_KEY ? "key" : "credential");
}

/* May its secret be given to `may`? Inside the transaction that then changes it. */
static int may_rotate(
    struct pg *db, const char *org, const char *id, const struct principal *may, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_rights, e, org, kinds[CRED_KEY].stored, id);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return no_such(CRED_KEY, e);
	if (pg_bool(r, 0, 1))
		return err_set(e, ERR_CONFLICT, "This key has expired; create a new one.");
	struct str rest = str_of(pg_str(r, 0, 0)), word;
	while (may != NULL && str_cut(&rest, ' ', &word)) {
		char scope[64];
		(void)snprintf(scope, sizeof scope, "%.*s", (int)word.n, word.p);
		if (!principal_scope(may, scope))
			return err_set(e, ERR_FORBIDDEN,
			    "Your own key does not hold the scope \"%s\", which this one has.", scope);
	}
	return 0;
}

static int rotate(struct pg *db, const char *org, const char *id, int grace_s, const char *hash,
    struct cred *got, json_t **row, struct err *e)
{
	char grace[16];
	(void)snprintf(grace, sizeof grace, "%d", grace_s);
	auto_res struct pg_res *r = PG(db, &q_auth_rotate, e, org, kinds[CRED_KEY].stored, id, hash, grace);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return no_such(CRED_KEY, e);
	(void)snprintf(got->expires_at, sizeof got->expires_at, "%s", pg_str(r, 0, 4));
	*row = js_pack("{s:s, s:s, s:s, s:b, s:o, s:s?, s:s?}", "id", id, "name", pg_str(r, 0, 0), "user",
	    pg_str(r, 0, 1), "admin", pg_bool(r, 0, 2), "scopes", cred_scopes(pg_str(r, 0, 3)), "expiresAt",
	    pg_null(r, 0, 4) ? NULL : pg_str(r, 0, 4), "oldValidUntil",
	    pg_null(r, 0, 5) ? NULL : pg_str(r, 0, 5));
	return 0;
}

int cred_rotate(struct pg *db, const char *org, const char *id, int grace_s, const struct principal *may,
    struct cred *got, json_t **row, struct err *e)
{
	*got = (struct cred){ 0 };
	*row = NULL;
	if (!id_is(kinds[CRED_KEY].id, id)) /* its text could not be made */
		return no_such(CRED_KEY, e);
	(void)snprintf(got->id, sizeof got->id, "%s", id);
	auto_secret struct secret *text = make_text(CRED_KEY, id);
	auto_json json_t *made = NULL;
	struct cred_parts parts;
	bool ours = cred_split(secret_use(text), &parts);
	assert(ours);
	if (may_rotate(db, org, id, may, e) != 0 ||
	    rotate(db, org, id, grace_s, parts.hash, got, &made, e) != 0)
		return -1;
	got->text = steal(text);
	*row = steal(made);
	return 0;
}

int cred_revoke(struct pg *db, const char *org, enum cred_kind kind, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_revoke, e, org, kinds[kind].stored, id);
	if (r == NULL)
		return -1;
	known_forget(id);
	return pg_affected(r) == 1 ? 0 : no_such(kind, e);
}

int cred_revoke_session(struct pg *db, const char *org, const char *session, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_revoke_session, e, org, session);
	return r == NULL ? -1 : 0;
}

int cred_revoke_repo(struct pg *db, const char *org, const char *repo, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_revoke_repo, e, org, repo);
	return r == NULL ? -1 : 0;
}

json_t *cred_scopes(const char *text)
{
	json_t *a = js_pack("[]");
	struct str rest = str_of(text), word;
	while (str_cut(&rest, ' ', &word)) {
		size_t i;
		json_t *have;
		bool twice = false;
		json_array_foreach(a, i, have)
			twice = twice || str_eq(word, json_string_value(have));
		if (!twice)
			js_push(a, js_text(word.p, word.n));
	}
	return a;
}

json_t *cred_list(
    struct pg *db, const char *org, enum cred_kind kind, const char *before, int limit, struct err *e)
{
	char n[16];
	(void)snprintf(n, sizeof n, "%d", limit);
	auto_res struct pg_res *r = PG(db, &q_auth_list, e, org, kinds[kind].stored, before, n);
	if (r == NULL)
		return NULL;
	json_t *rows = js_pack("[]");
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows,
		    js_pack("{s:s, s:s, s:s, s:b, s:o, s:s, s:s?}", "id", pg_str(r, i, 0), "name",
			pg_str(r, i, 1), "user", pg_str(r, i, 2), "admin", pg_bool(r, i, 3), "scopes",
			cred_scopes(pg_str(r, i, 4)), "createdAt", pg_str(r, i, 5), "expiresAt",
			pg_null(r, i, 6) ? NULL : pg_str(r, i, 6)));
	return rows;
}

/* ---- orgs */

bool org_slug_ok(const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	size_t n = strlen(s);
	return n <= LIMIT_ORG_SLUG && str_only(s, plain) && s[0] != '-' && s[n - 1] != '-' &&
	    strcmp(s, "repos") != 0;
}

int org_create(struct pg *db, const char *slug, struct err *e)
{
	if (!org_slug_ok(slug))
		return err_set(e, ERR_BAD_REQUEST,
		    "An org's name has 1 to %d small letters, digits and inner dashes, and is not \"repos\".",
		    LIMIT_ORG_SLUG);
	struct err why = { 0 };
	auto_res struct pg_res *r = PG(db, &q_auth_org_create, &why, slug);
	if (r != NULL)
		return 0;
	if (why.code == ERR_CONFLICT)
		return err_set(e, ERR_CONFLICT, "The org %s exists already.", slug);
	return err_set(e, why.code, "%s", why.msg);
}
