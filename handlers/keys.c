/*
 * keys.c - the keys of the caller's org (ID-6). Only its admins see and change them.
 * Invariants: a key's secret is in the answer to create_key or rotate_key and nowhere else; nobody hands out more scopes than the own key
 * holds.
 */
#include <string.h>

#include "auth/cred.h"
#include "auth/known.h"
#include "auth/once.h"
#include "base/js.h"
#include "handlers/handlers.h"
#include "op/op.h"

enum { NAME_MAX_BYTES = 80, SCOPES_MAX = 8, GRACE_MAX_S = 7 * 86400 };

static const char *const scopes[] = { "*", "sandboxes", "coding", "git", "sessions", "keys", "models",
	"billing", NULL };

static const struct param scope_item = {
	.type = T_ENUM,
	.values = scopes,
	.doc = "An op group; \"*\" is all of them.",
	.example = "\"coding\"",
};

#define KEY_FIELDS                                                                                           \
	OUT(T_STR, "id", "Names the key; no secret.", "\"key_01jdvk2m8q4e6r8t0v2x4z6a8c\""),                 \
	    OUT(T_STR, "name", "What the key is for.", "\"ci\""),                                            \
	    OUT(T_STR, "user", "Who acts with it, in sessions and rights.", "\"ada\""),                      \
	    OUT(T_BOOL, "admin", "May it administer the org.", "false"),                                     \
	    OUT(T_ARR, "scopes", "The op groups it reaches.", "[\"coding\"]", .fields = &scope_item),        \
	    OUT_NULL(T_TIME, "expiresAt", "When it stops working; null is never.",                           \
		"\"2036-01-31T12:00:00.000Z\"")

static const struct param create_in[] = {
	IN_REQUIRED(T_STR, "name", "What the key is for.", "\"ci\"", .min = 1, .max = NAME_MAX_BYTES),
	IN(T_STR, "user",
	    "Who acts with it; the name when not given. Keys of one user may stop each other's runs.",
	    "\"ada\"", .min = 1, .max = NAME_MAX_BYTES),
	IN(T_ARR, "scopes", "The op groups it reaches; all when not given.", "[\"coding\"]", .min = 1,
	    .max = SCOPES_MAX, .fields = &scope_item),
	IN(T_TIME, "expiresAt", "When it stops working; never when not given.",
	    "\"2036-01-31T12:00:00.000Z\""),
	IN(T_BOOL, "admin", "May it administer the org; false when not given.", "false"),
	{ 0 },
};
static const struct param create_out[] = {
	KEY_FIELDS,
	OUT(T_STR, "key", "The secret key. It is shown this once.",
	    "\"gk_01jdvk2m8q4e6r8t0v2x4z6a8c_0123456789012345678901234567890123456789012\""),
	{ 0 },
};
static const struct param list_row[] = {
	KEY_FIELDS,
	OUT(T_TIME, "createdAt", "When it was made.", "\"2026-01-31T12:00:00.000Z\""),
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(list_row, "Keys that are not revoked, newest first."),
	{ 0 } };
#define KEY_ID IN_ID("id", "The key's id.", "\"key_01jdvk2m8q4e6r8t0v2x4z6a8c\"")
static const struct param rotate_in[] = {
	KEY_ID,
	IN(T_INT, "graceSec",
	    "How long the secret before this one still works, in seconds; not at all when not given.", "0",
	    .min = 0, .max = GRACE_MAX_S),
	{ 0 },
};
static const struct param rotate_out[] = {
	KEY_FIELDS,
	OUT(T_STR, "key", "The new secret key. It is shown this once.",
	    "\"gk_01jdvk2m8q4e6r8t0v2x4z6a8c_0123456789012345678901234567890123456789012\""),
	OUT_NULL(T_TIME, "oldValidUntil", "When the secret before this one stops working; null: it has.",
	    "\"2026-01-31T12:00:00.000Z\""),
	{ 0 },
};
static const struct param revoke_in[] = { KEY_ID, { 0 } };

/* The wanted scopes as one text, each held by the caller's own key. */
static const char *scopes_text(struct ctx *c, const json_t *list, struct err *e)
{
	if (list == NULL)
		list = mem_json(c->mem, js_pack("[s]", "*"));
	const char *text = "";
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v) {
		const char *s = json_string_value(v);
		if (!principal_scope(c->who, s)) {
			(void)err_field(
			    e, ERR_FORBIDDEN, "scopes", "Your own key does not hold the scope \"%s\".", s);
			return NULL;
		}
		text = mem_fmt(c->mem, "%s%s%s", text, i == 0 ? "" : " ", s);
	}
	return text;
}

static json_t *create_key(struct ctx *c, json_t *in, struct err *e)
{
	const char *name = js_str(in, "name"), *expires = js_str(in, "expiresAt");
	struct cred_new want = { .kind = CRED_KEY,
		.org = c->who->org,
		.name = name,
		.user = js_str_or(in, "user", name),
		.org_admin = js_bool(in, "admin", false),
		.scopes = scopes_text(c, js_get(in, "scopes"), e) };
	want.expires_at = expires;
	if (want.scopes == NULL || (expires != NULL && cred_ahead(expires, e) != 0))
		return NULL;
	auto_pg struct pg *db = handler_db(c, e);
	struct cred got;
	if (db == NULL || once_begin(c, db, e) != 0 || cred_create(db, &want, &got, e) != 0)
		return NULL;
	auto_secret struct secret *text = got.text;
	if (once_commit(c, db, false, js_pack("{s:s}", "id", got.id), e) != 0)
		return NULL;
	reply_header(c, "Cache-Control", "no-store");
	return js_pack("{s:s, s:s, s:s, s:b, s:o, s:s?, s:s}", "id", got.id, "name", name, "user", want.user,
	    "admin", want.org_admin, "scopes", cred_scopes(want.scopes), "expiresAt",
	    got.expires_at[0] == 0 ? NULL : got.expires_at, "key", secret_use(text));
}

static json_t *list_keys(struct ctx *c, json_t *in, struct err *e)
{
	const char *before = list_cursor(c, in, e);
	auto_pg struct pg *db = before == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = cred_list(db, c->who->org, CRED_KEY, before, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *rotate_key(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = js_str(in, "id");
	auto_pg struct pg *db = handler_db(c, e);
	struct cred got;
	json_t *row;
	if (db == NULL || once_begin(c, db, e) != 0 ||
	    cred_rotate(db, c->who->org, id, (int)js_int(in, "graceSec", 0), c->who, &got, &row, e) != 0)
		return NULL;
	auto_secret struct secret *text = got.text;
	auto_json json_t *made = row;
	int rc = once_commit(c, db, false, js_pack("{s:s}", "id", id), e);
	known_forget(id); /* also where nobody knows whether it is committed */
	if (rc != 0)
		return NULL;
	reply_header(c, "Cache-Control", "no-store");
	js_set_str(made, "key", secret_use(text));
	return steal(made);
}

static json_t *revoke_key(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || cred_revoke(db, c->who->org, CRED_KEY, js_str(in, "id"), e) != 0)
		return NULL;
	return json_object();
}

const struct op keys_ops[] = {
	{ .id = "create_key",
	    .routes = { { "POST", "/v1/keys" } },
	    .summary = "Create a key",
	    .doc = "A secret key of your org, shown once. It works at once on every host.",
	    .scope = "keys",
	    .in = create_in,
	    .out = create_out,
	    .status = 201,
	    .flags = OP_ADMIN | OP_ONCE | OP_KEEPS | OP_SECRET,
	    .run = create_key },
	{ .id = "list_keys",
	    .routes = { { "GET", "/v1/keys" } },
	    .summary = "List keys",
	    .doc = "The keys of your org that are not revoked, never their secrets.",
	    .scope = "keys",
	    .in = op_list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = list_keys },
	{ .id = "rotate_key",
	    .routes = { { "POST", "/v1/keys/{id}/rotate" } },
	    .summary = "Give a key a new secret",
	    .doc = "The key keeps its id and rights. The secret before works on for `graceSec` seconds, one "
		   "before that no more.",
	    .scope = "keys",
	    .in = rotate_in,
	    .out = rotate_out,
	    .status = 200,
	    .flags = OP_ADMIN | OP_ONCE | OP_KEEPS | OP_SECRET,
	    .run = rotate_key },
	{ .id = "revoke_key",
	    .routes = { { "DELETE", "/v1/keys/{id}" } },
	    .summary = "Revoke a key",
	    .doc = "From now on no host accepts it; what it started goes on.",
	    .scope = "keys",
	    .in = revoke_in,
	    .out = op_none,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = revoke_key },
	{ 0 },
};
