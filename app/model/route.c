#include "model/route.h"

#include <assert.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "model/nearest.h"

/* In whose eyes a name is looked up: an org sees its own and the deployment's rows, the deployment only its own. */
struct look {
	struct mem *m;
	const struct org_models *o;
	struct model_route *to;
	unsigned via; /* of the aliases on the way */
	unsigned via_to[ROUTE_TARGETS_MAX];
	bool excluded; /* something was found and is not allowed */
};

static bool in_scope(const struct look *l, const char *owner, const char *scope)
{
	return strcmp(owner, scope) == 0 || (strcmp(scope, l->o->org) == 0 && strcmp(owner, "admin") == 0);
}

/* ---- what is allowed */

/* Where an alias that a list names leads is allowed by that list. */
enum {
	VIA_ORGS = 1,      /* the org's list names one, of whoever */
	VIA_OPERATORS = 2, /* the operator's list names one of the deployment's */
};

static bool entry_allows(const char *entry, const char *address)
{
	size_t n = strlen(entry);
	if (strcmp(entry, "*") == 0 || strcmp(entry, address) == 0)
		return true;
	return n > 2 && strcmp(entry + n - 2, "/*") == 0 && strncmp(entry, address, n - 1) == 0;
}

static bool list_allows(const struct allowlist *a, const char *address)
{
	bool is = a->names == NULL;
	for (int k = 0; k < a->n && !is; k++)
		is = entry_allows(a->names[k], address);
	return is;
}

static bool list_names(const struct allowlist *a, const char *alias)
{
	for (int k = 0; k < a->n; k++)
		if (strcmp(a->names[k], alias) == 0)
			return true;
	return false;
}

/* The operator means the deployment's provider, where there is one of the name: an org does not get round the list by a namesake. */
static bool hides_the_deployments(const struct org_models *o, const struct provider *p)
{
	for (int i = 0; i < o->n_providers && strcmp(p->org, "admin") != 0; i++)
		if (strcmp(o->providers[i].org, "admin") == 0 && strcmp(o->providers[i].name, p->name) == 0)
			return true;
	return false;
}

static bool allowed(const struct org_models *o, const struct provider *p, const char *address, unsigned via)
{
	const struct allowlist *by = &o->allow[1];
	return ((via & VIA_ORGS) != 0 || list_allows(&o->allow[0], address)) &&
	    (by->names == NULL || (via & VIA_OPERATORS) != 0 ||
		(list_allows(by, address) && !hides_the_deployments(o, p)));
}

/* What an alias of an org's own means is the org's word, not the operator's. */
static unsigned vouches(const struct org_models *o, const struct alias *a)
{
	bool operators = strcmp(a->org, "admin") == 0 && list_names(&o->allow[1], a->name);
	return (list_names(&o->allow[0], a->name) ? VIA_ORGS : 0U) | (operators ? VIA_OPERATORS : 0U);
}

/* ---- finding */

static const struct provider_model *model_of(const struct provider *p, const char *name)
{
	for (int i = 0; i < p->n_models; i++)
		if (strcmp(p->models[i].name, name) == 0)
			return &p->models[i];
	return NULL;
}

static void add(struct look *l, const struct provider *p, const struct provider_model *model)
{
	struct model_route *r = l->to;
	for (int i = 0; i < r->n; i++)
		if (r->targets[i].model == model)
			return;
	if (r->n == ROUTE_TARGETS_MAX)
		return;
	const char *address = mem_join(l->m, p->name, "/", model->name);
	if (!allowed(l->o, p, address, l->via)) {
		l->excluded = true;
		return;
	}
	l->via_to[r->n] = l->via;
	r->targets[r->n++] = (struct route_target){ p, model, address };
}

static const struct alias *alias_of(const struct look *l, const char *name, const char *scope)
{
	for (int i = 0; i < l->o->n_aliases; i++)
		if (strcmp(l->o->aliases[i].name, name) == 0 && in_scope(l, l->o->aliases[i].org, scope))
			return &l->o->aliases[i];
	return NULL;
}

/* "provider/model": the first provider of that name that has it. */
static bool add_address(struct look *l, const char *name, const char *scope)
{
	const char *slash = strchr(name, '/');
	for (int i = 0; slash != NULL && i < l->o->n_providers; i++) {
		const struct provider *p = &l->o->providers[i];
		size_t n = strlen(p->name);
		if (!p->enabled || !in_scope(l, p->org, scope) || n != (size_t)(slash - name) ||
		    memcmp(p->name, name, n) != 0)
			continue;
		const struct provider_model *model = model_of(p, slash + 1);
		if (model != NULL) {
			add(l, p, model);
			return true;
		}
	}
	return false;
}

/* A model's bare name, where one provider has it: an org's own before the deployment's. */
static bool add_bare(struct look *l, const char *name, const char *scope)
{
	const struct provider *found = NULL;
	bool twice = false;
	for (int i = 0; i < l->o->n_providers; i++) {
		const struct provider *p = &l->o->providers[i];
		if (!p->enabled || !in_scope(l, p->org, scope) || model_of(p, name) == NULL)
			continue;
		if (found != NULL && strcmp(found->org, p->org) != 0)
			break; /* own rows come first, and hide the deployment's */
		twice = found != NULL;
		found = p;
	}
	if (found == NULL || twice)
		return false;
	add(l, found, model_of(found, name));
	return true;
}

static bool add_name(struct look *l, const char *name, const char *scope, int depth)
{
	const struct alias *a = depth < ROUTE_ALIAS_DEPTH ? alias_of(l, name, scope) : NULL;
	if (a == NULL)
		return add_address(l, name, scope) || add_bare(l, name, scope);
	bool any = false;
	unsigned before = l->via;
	l->via = before | vouches(l->o, a);
	for (int i = 0; i < a->n_targets; i++) /* one that names itself means what it would hide */
		any |= strcmp(a->targets[i], name) == 0
		    ? add_address(l, name, a->org) || add_bare(l, name, a->org)
		    : add_name(l, a->targets[i], a->org, depth + 1);
	l->via = before;
	return any;
}

/* What a model falls back to is looked up as its owner sees it. */
static void add_fallbacks(struct look *l)
{
	int n = l->to->n;
	for (int i = 0; i < n; i++) {
		const struct route_target *t = &l->to->targets[i];
		l->via = l->via_to[i];
		for (int k = 0; k < t->model->n_fallbacks; k++)
			(void)add_name(l, t->model->fallbacks[k], t->provider->org, 1);
	}
}

static int unknown(const struct look *l, const char *name, struct err *e)
{
	const struct org_models *o = l->o;
	struct nearest near = { .asked = name };
	for (int i = 0; i < o->n_aliases; i++)
		nearest_add(&near, o->aliases[i].name, o->aliases[i].name);
	for (int i = 0; i < o->n_providers; i++)
		for (int k = 0; k < o->providers[i].n_models && o->providers[i].enabled; k++) {
			const char *bare = o->providers[i].models[k].name;
			const char *address = mem_fmt(l->m, "%s/%s", o->providers[i].name, bare);
			if (!allowed(o, &o->providers[i], address, 0))
				continue;
			nearest_add(&near, address, address);
			nearest_add(&near, address, bare);
		}
	const char *list = "";
	for (int i = 0; i < near.n; i++)
		list = mem_fmt(l->m, "%s%s\"%.90s\"", list, i == 0 ? "" : ", ", near.names[i]);
	err_clear(e);
	e->reason = "model_not_found";
	if (near.n > 0)
		return err_field(e, ERR_NOT_FOUND, "model",
		    "There is no model \"%.90s\"; the nearest are %s.", name, list);
	return err_field(e, ERR_NOT_FOUND, "model",
	    "There is no model \"%.90s\"; GET /v1/models lists what there is.", name);
}

static int no_default(const struct org_models *o, struct err *e)
{
	err_clear(e);
	e->reason = "model_required";
	return err_field(e, ERR_BAD_REQUEST, "model",
	    "Name a model: the tier \"%s\" has no default here; GET /v1/models lists what there is.",
	    o->tier);
}

int route_of(
    const struct org_models *o, struct mem *m, const char *model, struct model_route *out, struct err *e)
{
	bool named = model != NULL && model[0] != 0;
	const char *name = named ? mem_str(m, model) : o->tier;
	*out = (struct model_route){ .asked = name };
	struct look l = { .m = m, .o = o, .to = out };
	(void)add_name(&l, name, o->org, 0);
	if (out->n > 0) {
		add_fallbacks(&l);
		return 0;
	}
	if (l.excluded) {
		err_clear(e);
		e->reason = "model_not_allowed";
		return err_field(e, ERR_FORBIDDEN, "model",
		    "Your org may not use the model \"%.90s\"; GET /v1/models lists what it may use.", name);
	}
	return named ? unknown(&l, name, e) : no_default(o, e);
}

int route_resolve(struct catalog *c, struct mem *m, const char *org, const char *model,
    struct model_route *out, struct err *e)
{
	const struct org_models *o;
	return catalog_of(c, m, org, &o, e) != 0 ? -1 : route_of(o, m, model, out, e);
}

/* ---- the list */

static json_t *model_row(const char *id, long long created_s, const char *owner)
{
	return js_pack("{s:s,s:s,s:I,s:s}", "id", id, "object", "model", "created", (json_int_t)created_s,
	    "owned_by", owner);
}

static json_t *address_row(struct mem *m, const struct provider *p, const struct provider_model *model)
{
	json_t *row = model_row(mem_fmt(m, "%s/%s", p->name, model->name), model->created_s, p->name);
	if (model->context_tokens > 0)
		js_set(row, "context_window", json_integer(model->context_tokens));
	if (model->output_tokens > 0)
		js_set(row, "max_output_tokens", json_integer(model->output_tokens));
	return row;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(js_str_or(*(json_t *const *)a, "id", ""), js_str_or(*(json_t *const *)b, "id", ""));
}

/* An array in the order of ids, each once: the first of equal ones is what a call would find. */
static json_t *sorted(struct mem *m, json_t *by_name)
{
	size_t n = 0;
	json_t **rows = mem_alloc(m, (json_object_size(by_name) + 1) * sizeof *rows);
	const char *name;
	json_t *v;
	json_object_foreach(by_name, name, v)
		rows[n++] = v;
	qsort(rows, n, sizeof *rows, by_id);
	json_t *out = json_array();
	for (size_t i = 0; i < n; i++)
		js_push(out, json_incref(rows[i]));
	return out;
}

/* The first of equal addresses is what a call would find; seen: those that came before. */
static void add_row(const struct org_models *o, struct mem *m, json_t *rows, json_t *seen,
    const struct provider *p, const struct provider_model *model)
{
	const char *id = mem_fmt(m, "%s/%s", p->name, model->name);
	if (json_object_get(seen, id) != NULL)
		return;
	js_set(seen, id, json_true());
	if (allowed(o, p, id, 0))
		js_set(rows, id, address_row(m, p, model));
}

json_t *route_list(const struct org_models *o, struct mem *m)
{
	auto_json json_t *rows = json_object(), *seen = json_object();
	for (int i = 0; i < o->n_aliases; i++) {
		struct err e = { 0 };
		struct model_route r;
		const char *name = o->aliases[i].name;
		assert(name != NULL);
		if (json_object_get(rows, name) == NULL && route_of(o, m, name, &r, &e) == 0) {
			json_t *row = model_row(name, r.targets[0].model->created_s, "gatehouse");
			js_set_str(row, "alias_of", r.targets[0].address);
			js_set(rows, name, row);
		}
	}
	for (int i = 0; i < o->n_providers; i++)
		for (int k = 0; k < o->providers[i].n_models && o->providers[i].enabled; k++)
			add_row(o, m, rows, seen, &o->providers[i], &o->providers[i].models[k]);
	return sorted(m, rows);
}

json_t *route_models(struct catalog *c, const char *org, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const struct org_models *o;
	return catalog_of(c, m, org, &o, e) != 0 ? NULL : route_list(o, m);
}
