#include "model/provider.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/js.h"
#include "base/secret.h"
#include "base/str.h"
#include "sql/model.h"

const char *const provider_wires[] = { "openai-chat", "openai-responses", "anthropic", NULL };

const char *provider_wire_name(enum provider_wire w)
{
	return provider_wires[w];
}

bool provider_wire_of(const char *name, enum provider_wire *w)
{
	for (int i = 0; provider_wires[i] != NULL; i++)
		if (strcmp(provider_wires[i], name) == 0) {
			*w = (enum provider_wire)i;
			return true;
		}
	return false;
}

/* ---- what may be written */

static int name_ok(const char *name, struct err *e)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	if (strlen(name) <= PROVIDER_NAME_BYTES && str_only(name, rest) && strchr(letters, name[0]) != NULL)
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "name",
	    "`name` is 1 to %d of the characters a-z 0-9 . _ - and begins with a letter or a digit.",
	    PROVIDER_NAME_BYTES);
}

/* What a header can carry. */
static int secret_ok(const char *s, const char *field, struct err *e)
{
	bool ok = s[0] != 0 && strlen(s) <= PROVIDER_SECRET_BYTES;
	for (const char *p = s; *p != 0 && ok; p++)
		ok = *p > ' ' && *p <= '~';
	return ok ? 0
		  : err_field(e, ERR_BAD_REQUEST, field,
			"A key is 1 to %d visible ASCII characters without spaces.", PROVIDER_SECRET_BYTES);
}

static bool model_name_ok(const char *s)
{
	bool ok = s[0] != 0 && strlen(s) <= MODEL_NAME_BYTES;
	for (const char *p = s; *p != 0 && ok; p++)
		ok = *p > ' ' && *p <= '~' && *p != '"' && *p != '\\' && *p != ',' && *p != '*';
	return ok;
}

static int addresses_ok(const json_t *list, const char *field, struct err *e)
{
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v) {
		const char *s = json_string_value(v);
		if (s == NULL || strlen(s) > MODEL_ADDRESS_BYTES || s[0] == 0)
			return err_field(
			    e, ERR_BAD_REQUEST, field, "A target is \"provider/model\" or an alias.");
	}
	return 0;
}

static int models_ok(const json_t *models, struct err *e)
{
	auto_json json_t *seen = json_object();
	size_t i;
	json_t *m;
	json_array_foreach(models, i, m) {
		const char *name = js_str_or(m, "name", ""), *upstream = js_str_or(m, "upstream", name);
		if (!model_name_ok(name) || !model_name_ok(upstream))
			return err_field(e, ERR_BAD_REQUEST, "models",
			    "A model's name is 1 to %d visible ASCII characters without spaces, quotes, "
			    "commas, \\ and *.",
			    MODEL_NAME_BYTES);
		if (json_object_get(seen, name) != NULL)
			return err_field(
			    e, ERR_BAD_REQUEST, "models", "The model \"%.160s\" stands there twice.", name);
		js_set(seen, name, json_true());
		if (addresses_ok(js_get(m, "fallbacks"), "models", e) != 0)
			return -1;
	}
	return 0;
}

/* ---- rows */

static json_t *parsed(const struct pg_res *r, int row, int col)
{
	const char *s = pg_str(r, row, col);
	struct err e = { 0 };
	return pg_null(r, row, col) ? json_null() : js_parse(s, strlen(s), &e);
}

/* The deployment's providers are told to other orgs without where and with whose keys. */
static json_t *row_of(const struct pg_res *r, int i)
{
	bool own = pg_bool(r, i, 1), deployment = pg_bool(r, i, 2);
	json_t *o = js_pack("{s:s,s:s,s:s,s:b,s:o,s:s?,s:s}", "name", pg_str(r, i, 0), "owner",
	    deployment ? "deployment" : "org", "wire", pg_str(r, i, 3), "enabled", pg_bool(r, i, 5), "models",
	    parsed(r, i, 9), "createdBy", own ? pg_str(r, i, 6) : NULL, "createdAt", pg_str(r, i, 7));
	js_set_str(o, "baseUrl", own ? pg_str(r, i, 4) : NULL);
	js_set(o, "keys", own ? parsed(r, i, 8) : json_array());
	return o;
}

json_t *provider_list(struct pg *db, const char *org, const char *after, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_model_provider_rows, e, org, NULL, after, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++) {
		json_t *o = row_of(r, i);
		js_set_str(o, "_key", mem_fmt(m, "%s %c", pg_str(r, i, 0), pg_bool(r, i, 1) ? '1' : '2'));
		js_push(rows, o);
	}
	return rows;
}

static int none(struct err *e, const char *name)
{
	return err_set(e, ERR_NOT_FOUND, "There is no provider \"%.60s\" of your org.", name);
}

json_t *provider_get(struct pg *db, const char *org, const char *name, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_model_provider_rows, e, org, name, "", "1");
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 0) {
		(void)none(e, name);
		return NULL;
	}
	return row_of(r, 0);
}

/* ---- changes, inside a transaction of the caller's */

static int add_key(
    struct pg *db, const struct provider_by *by, const char *provider, const char *text, struct err *e)
{
	char id[ID_MAX];
	id_make("mky", id);
	const char *sealed = NULL;
	if (text != NULL) {
		auto_secret struct secret *s = secret_new(text, strlen(text));
		sealed = seal(by->mem, by->seal, id, s);
	}
	auto_res struct pg_res *r = PG(db, &q_model_key_add, e, by->org, provider, id, sealed);
	return r == NULL ? -1 : 0;
}

static int remove_keys(
    struct pg *db, const struct provider_by *by, const char *provider, const json_t *away, struct err *e)
{
	size_t i;
	json_t *v;
	json_array_foreach(away, i, v) {
		auto_res struct pg_res *r = PG(
		    db, &q_model_key_remove, e, by->org, provider, json_string_value(v));
		if (r == NULL)
			return -1;
		if (pg_affected(r) == 0)
			return err_field(e, ERR_NOT_FOUND, "removeKeys",
			    "This provider has no key \"%.40s\".", json_string_value(v));
	}
	return 0;
}

static int is_there(const char *field, size_t i, struct err *e)
{
	char at[40];
	(void)snprintf(at, sizeof at, "%s[%zu]", field, i);
	return err_field(e, ERR_BAD_REQUEST, at,
	    "The provider has the key of `%s` already; it would be asked "
	    "twice as often as the others.",
	    at);
}

/* Among themselves, and against those that are stored and can be opened. */
static int no_key_twice(struct pg *db, const struct provider_by *by, const char *provider, const json_t *add,
    const char *field, struct err *e)
{
	size_t i, k;
	json_t *v, *w;
	auto_res struct pg_res *r = json_array_size(add) == 0
	    ? NULL
	    : PG(db, &q_model_key_sealed, e, by->org, provider);
	if (r == NULL)
		return json_array_size(add) == 0 ? 0 : -1;
	json_array_foreach(add, i, v)
		json_array_foreach(add, k, w)
			if (k < i && json_equal(v, w))
				return is_there(field, i, e);
	for (int row = 0; row < pg_rows(r); row++) {
		struct err lost = { 0 };
		auto_secret struct secret *s = seal_open(
		    by->seal, pg_str(r, row, 0), pg_str(r, row, 1), &lost);
		json_array_foreach(add, i, v)
			if (s != NULL && strcmp(secret_use(s), json_string_value(v)) == 0)
				return is_there(field, i, e);
	}
	return 0;
}

/* Without any key there is the one row that holds none. */
static int add_keys(struct pg *db, const struct provider_by *by, const char *provider, const json_t *add,
    const char *field, struct err *e)
{
	size_t i;
	json_t *v;
	if (no_key_twice(db, by, provider, add, field, e) != 0)
		return -1;
	json_array_foreach(add, i, v) {
		const char *text = json_string_value(v);
		if (secret_ok(text, field, e) != 0 || add_key(db, by, provider, text, e) != 0)
			return -1;
	}
	auto_res struct pg_res *even = PG(db, &q_model_key_even, e, by->org, provider);
	auto_res struct pg_res *count = even == NULL ? NULL
						     : PG(db, &q_model_key_count, e, by->org, provider);
	if (count == NULL)
		return -1;
	if (pg_int(count, 0, 0) > PROVIDER_KEYS_MAX)
		return err_field(
		    e, ERR_BAD_REQUEST, field, "A provider has at most %d keys.", PROVIDER_KEYS_MAX);
	return pg_int(count, 0, 0) == 0 ? add_key(db, by, provider, NULL, e) : 0;
}

/* One that stood there before may have gone since: that is no fault of this change. */
static int no_fallback_lost(
    struct pg *db, const char *org, const char *provider, const char *models, struct err *e)
{
	char at[40];
	auto_res struct pg_res *r = PG(db, &q_model_fallback_lost, e, org, provider, models);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return 0;
	(void)snprintf(at, sizeof at, "models[%lld].fallbacks", pg_int(r, 0, 0));
	if (pg_bool(r, 0, 3))
		return err_field(e, ERR_BAD_REQUEST, at, "`%s`: the model \"%.60s\" falls back to itself.",
		    at, pg_str(r, 0, 1));
	return err_field(e, ERR_BAD_REQUEST, at,
	    "`%s`: the model \"%.60s\" falls back to \"%.90s\", which is neither a model nor an alias.", at,
	    pg_str(r, 0, 1), pg_str(r, 0, 2));
}

static int put_models(
    struct pg *db, const struct provider_by *by, const char *provider, const json_t *models, struct err *e)
{
	if (models == NULL)
		return 0;
	const char *text = js_dump(by->mem, models);
	if (no_fallback_lost(db, by->org, provider, text, e) != 0)
		return -1;
	auto_res struct pg_res *clear = PG(db, &q_model_models_clear, e, by->org, provider, text);
	auto_res struct pg_res *put = clear == NULL ? NULL
						    : PG(db, &q_model_models_put, e, by->org, provider, text);
	return put == NULL ? -1 : 0;
}

json_t *provider_create(struct pg *db, const struct provider_by *by, const json_t *in, struct err *e)
{
	const char *name = js_str_or(in, "name", ""), *url = js_str_or(in, "baseUrl", "");
	const json_t *models = js_get(in, "models");
	if (name_ok(name, e) != 0 || provider_url_ok(by->conf, url, e) != 0 || models_ok(models, e) != 0)
		return NULL;
	auto_res struct pg_res *r = PG(db, &q_model_provider_add, e, by->org, name, js_str(in, "wire"), url,
	    js_bool(in, "enabled", true) ? "true" : "false", by->user);
	if (r == NULL && e->code == ERR_CONFLICT)
		(void)err_replace(e, ERR_CONFLICT, "There is a provider \"%s\" already.", name);
	if (r == NULL || add_keys(db, by, name, js_get(in, "keys"), "keys", e) != 0 ||
	    put_models(db, by, name, models, e) != 0)
		return NULL;
	return provider_get(db, by->org, name, e);
}

/* Lock the row of the caller's own org. What it holds is entrusted to where it leads: who may change that is not given the keys by
 * it. */
static int lock(struct pg *db, const char *org, const char *name, const char *url, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_model_provider_lock, e, org, name);
	if (r == NULL)
		return -1;
	if (pg_rows(r) != 1)
		return none(e, name);
	if (url == NULL || provider_url_same(url, pg_str(r, 0, 1)))
		return 0;
	auto_res struct pg_res *gone = PG(db, &q_model_keys_clear, e, org, name);
	return gone == NULL ? -1 : 0;
}

json_t *provider_update(
    struct pg *db, const struct provider_by *by, const char *name, const json_t *in, struct err *e)
{
	const char *url = js_str(in, "baseUrl");
	const json_t *enabled = js_get(in, "enabled"), *models = js_get(in, "models");
	if ((url != NULL && provider_url_ok(by->conf, url, e) != 0) || models_ok(models, e) != 0)
		return NULL;
	/* Keys that are named to go, before all of them may go. */
	if (lock(db, by->org, name, NULL, e) != 0 ||
	    remove_keys(db, by, name, js_get(in, "removeKeys"), e) != 0 ||
	    lock(db, by->org, name, url, e) != 0)
		return NULL;
	auto_res struct pg_res *r = PG(db, &q_model_provider_set, e, by->org, name, js_str(in, "wire"), url,
	    enabled == NULL             ? NULL
		: json_is_true(enabled) ? "true"
					: "false");
	if (r == NULL || add_keys(db, by, name, js_get(in, "addKeys"), "addKeys", e) != 0 ||
	    put_models(db, by, name, models, e) != 0)
		return NULL;
	return provider_get(db, by->org, name, e);
}

int provider_delete(struct pg *db, const char *org, const char *name, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_model_provider_remove, e, org, name);
	if (r == NULL)
		return -1;
	return pg_affected(r) == 1 ? 0 : none(e, name);
}

/* ---- routing */

json_t *provider_routing(struct pg *db, const char *org, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_model_routing, e, org);
	if (r == NULL)
		return NULL;
	return js_pack("{s:s,s:o,s:b,s:o,s:o}", "tier", pg_str(r, 0, 0), "allow", parsed(r, 0, 1), "allowAll",
	    pg_null(r, 0, 1), "allowedAtMost", parsed(r, 0, 2), "aliases", parsed(r, 0, 3));
}

/* How many aliases of these lead from this name to a model at most, counted on in known; -1: in a circle, or over too many. */
static int alias_height(json_t *aliases, const char *name, json_t *known, int depth)
{
	const json_t *counted = json_object_get(known, name), *targets = json_object_get(aliases, name);
	if (counted != NULL || targets == NULL)
		return (int)json_integer_value(counted);
	if (depth == ROUTE_ALIAS_DEPTH)
		return -1;
	int most = 0;
	size_t i;
	json_t *v;
	json_array_foreach(targets, i, v) {
		const char *target = json_string_value(v);
		if (strcmp(target, name) == 0)
			continue; /* means what the alias hides */
		int n = alias_height(aliases, target, known, depth + 1);
		if (n < 0)
			return -1;
		most = n > most ? n : most;
	}
	js_set(known, name, json_integer(most + 1));
	return most == ROUTE_ALIAS_DEPTH ? -1 : most + 1;
}

static int no_circle(json_t *aliases, struct err *e)
{
	auto_json json_t *known = json_object();
	const char *name;
	json_t *targets;
	json_object_foreach(aliases, name, targets)
		if (alias_height(aliases, name, known, 0) < 0)
			return err_field(e, ERR_BAD_REQUEST, "aliases",
			    "The alias \"%.100s\" leads in a circle, or over more than %d aliases.", name,
			    ROUTE_ALIAS_DEPTH);
	return 0;
}

/* A target that stood there before may have gone since: that is no fault of this change. */
static int no_target_lost(struct pg *db, const char *org, const char *aliases, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_model_aliases_lost, e, org, aliases);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "aliases",
	    "The alias \"%.60s\" leads to \"%.90s\", which is neither a model nor an alias.", pg_str(r, 0, 0),
	    pg_str(r, 0, 1));
}

static int aliases_ok(json_t *aliases, struct err *e)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@+-";
	const char *name;
	json_t *targets;
	json_object_foreach(aliases, name, targets) {
		if (strlen(name) > 100 || !str_only(name, rest) || strchr(letters, name[0]) == NULL)
			return err_field(e, ERR_BAD_REQUEST, "aliases",
			    "An alias is 1 to 100 letters, digits and . _ : @ + - and begins with a letter "
			    "or a digit.");
		if (addresses_ok(targets, "aliases", e) != 0)
			return -1;
	}
	return no_circle(aliases, e);
}

static int put_aliases(struct pg *db, const struct provider_by *by, const json_t *aliases, struct err *e)
{
	const char *text = js_dump(by->mem, aliases);
	if (no_target_lost(db, by->org, text, e) != 0)
		return -1;
	auto_res struct pg_res *clear = PG(db, &q_model_aliases_clear, e, by->org);
	auto_res struct pg_res *put = clear == NULL ? NULL : PG(db, &q_model_aliases_put, e, by->org, text);
	return put == NULL ? -1 : 0;
}

/* allow NULL: no list. */
static int put_allow(struct pg *db, const struct provider_by *by, const json_t *allow, struct err *e)
{
	const char *text = allow == NULL ? "null" : js_dump(by->mem, allow);
	auto_res struct pg_res *lost = allow == NULL ? NULL : PG(db, &q_model_allow_lost, e, by->org, text);
	if (allow != NULL && lost == NULL)
		return -1;
	if (lost != NULL && pg_rows(lost) > 0)
		return err_field(e, ERR_BAD_REQUEST, "allow",
		    "The row \"%.90s\" of `allow` matches nothing: it is \"provider/model\", \"provider/*\", "
		    "an alias, or "
		    "\"*\".",
		    pg_str(lost, 0, 0));
	auto_res struct pg_res *r = PG(db, &q_model_allow_set, e, by->org, text);
	return r == NULL ? -1 : 0;
}

json_t *provider_routing_set(struct pg *db, const struct provider_by *by, const json_t *in, struct err *e)
{
	json_t *aliases = js_get(in, "aliases"), *allow = js_get(in, "allow");
	bool all = js_bool(in, "allowAll", false);
	if (aliases_ok(aliases, e) != 0 || addresses_ok(allow, "allow", e) != 0)
		return NULL;
	if ((aliases != NULL && put_aliases(db, by, aliases, e) != 0) ||
	    ((allow != NULL || all) && put_allow(db, by, all ? NULL : allow, e) != 0))
		return NULL;
	return provider_routing(db, by->org, e);
}

int provider_org_set(struct pg *db, const char *org, const char *tier, const json_t *allow, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(
	    db, &q_model_org_set, e, org, tier, allow == NULL ? NULL : js_dump(m, allow));
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1 ? 0 : err_set(e, ERR_NOT_FOUND, "There is no org \"%.60s\".", org);
}
