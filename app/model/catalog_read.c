#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "model/catalog_int.h"
#include "sql/model.h"

enum { TAKE_MS = 2000 };

static void free_secret(void *s)
{
	secret_free(s);
}

static json_t *parsed(struct mem *m, const struct pg_res *r, int row, int col)
{
	struct err e = { 0 };
	const char *s = pg_str(r, row, col);
	return pg_null(r, row, col) ? NULL : mem_json(m, js_parse(s, strlen(s), &e));
}

static const char *const *names(struct mem *m, const json_t *list, int *n)
{
	*n = 0;
	if (!json_is_array(list))
		return NULL;
	const char **out = mem_alloc(m, (json_array_size(list) + 1) * sizeof *out);
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v)
		out[(*n)++] = mem_str(m, json_string_value(v));
	return out;
}

static long long at(const json_t *array, size_t i)
{
	return (long long)json_integer_value(json_array_get(array, i));
}

static void read_models(struct mem *m, const json_t *list, struct provider *p)
{
	size_t i;
	json_t *v;
	p->models = mem_alloc(m, (json_array_size(list) + 1) * sizeof *p->models);
	json_array_foreach(list, i, v) {
		const json_t *prices = js_get(v, "prices");
		struct provider_model *to = &p->models[p->n_models++];
		*to = (struct provider_model){ .name = mem_str(m, js_str_or(v, "name", "")),
			.upstream = mem_str(m, js_str_or(v, "upstream", "")),
			.context_tokens = js_int(v, "context", 0),
			.output_tokens = js_int(v, "output", 0),
			.created_s = js_int(v, "created", 0),
			.price = { .input = at(prices, 0),
			    .cached = at(prices, 1),
			    .cache_write = at(prices, 2),
			    .output = at(prices, 3),
			    .reasoning = at(prices, 4) } };
		to->fallbacks = names(m, js_get(v, "fallbacks"), &to->n_fallbacks);
	}
}

static void told(struct catalog *c, const char *key, const char *model, const json_t *v)
{
	keyring_told(c, key, model, js_int(v, "seq", 0), js_int(v, "ms", 0), (int)js_int(v, "strikes", 0),
	    keyring_outcome_of(js_str_or(v, "why", "")));
}

/* A key that cannot be opened is as if it were not there; the others serve. */
static void read_keys(struct catalog *c, struct mem *m, const json_t *list, struct provider *p)
{
	size_t i, k;
	json_t *v, *rest;
	p->keys = mem_alloc(m, (json_array_size(list) + 1) * sizeof *p->keys);
	json_array_foreach(list, i, v) {
		struct err why = { 0 };
		struct provider_key *to = &p->keys[p->n_keys];
		const char *id = js_str_or(v, "id", ""), *sealed = js_str(v, "sealed");
		if (sealed != NULL) {
			struct secret *s = seal_open(c->seal, id, sealed, &why);
			if (s == NULL) {
				log_error("a provider's key does not open", "key", id, "why", why.msg);
				continue;
			}
			mem_own(m, s, free_secret);
			to->secret = s;
		}
		(void)snprintf(to->id, sizeof to->id, "%s", id);
		p->n_keys++;
		told(c, id, NULL, v);
		json_array_foreach(js_get(v, "rests"), k, rest)
			told(c, id, js_str_or(rest, "model", ""), rest);
	}
}

static void read_provider(struct catalog *c, struct mem *m, const struct pg_res *r, int i, struct provider *p)
{
	*p = (struct provider){ .org = mem_str(m, pg_str(r, i, 0)),
		.name = mem_str(m, pg_str(r, i, 1)),
		.base_url = mem_str(m, pg_str(r, i, 3)),
		.enabled = pg_bool(r, i, 4) };
	if (!provider_wire_of(pg_str(r, i, 2), &p->wire)) {
		log_error("a provider's wire is not one that this version speaks", "provider", p->name);
		p->enabled = false;
	}
	read_keys(c, m, parsed(m, r, i, 5), p);
	read_models(m, parsed(m, r, i, 6), p);
}

static void read_aliases(struct mem *m, const json_t *list, struct org_models *o)
{
	size_t i;
	json_t *v;
	o->aliases = mem_alloc(m, (json_array_size(list) + 1) * sizeof *o->aliases);
	json_array_foreach(list, i, v) {
		struct alias *a = &o->aliases[o->n_aliases++];
		a->org = mem_str(m, js_str_or(v, "org", ""));
		a->name = mem_str(m, js_str_or(v, "name", ""));
		a->targets = names(m, js_get(v, "targets"), &a->n_targets);
	}
}

struct copy *catalog_read(struct catalog *c, const char *org, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	auto_res struct pg_res *rows = db == NULL ? NULL : PG(db, &q_model_copy, e, org);
	auto_res struct pg_res *routes = rows == NULL ? NULL : PG(db, &q_model_copy_routes, e, org);
	if (routes == NULL)
		return NULL;
	struct mem *m = mem_new();
	struct copy *copy = mem_alloc(m, sizeof *copy);
	struct org_models *o = &copy->models;
	copy->mem = m;
	copy->read_ms = clock_ms();
	atomic_init(&copy->refs, 1);
	o->org = mem_str(m, org);
	o->tier = mem_str(m, pg_str(routes, 0, 0));
	o->providers = mem_alloc(m, (size_t)(pg_rows(rows) + 1) * sizeof *o->providers);
	for (int i = 0; i < pg_rows(rows); i++)
		read_provider(c, m, rows, i, &o->providers[o->n_providers++]);
	for (int i = 0; i < 2; i++)
		o->allow[i].names = names(m, parsed(m, routes, 0, 1 + i), &o->allow[i].n);
	read_aliases(m, parsed(m, routes, 0, 3), o);
	return copy;
}
