#include "model/request.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"

struct wire_turn *wire_turn_add(struct wire_rd *d, enum wire_role role, size_t parts)
{
	struct wire_turn *t = &d->r->turns[d->r->n_turns++];
	*t = (struct wire_turn){ .role = role,
		.parts = mem_alloc(d->m, (parts + (parts == 0)) * sizeof *t->parts) };
	return t;
}

struct wire_part *wire_part_add(struct wire_turn *t, enum wire_part_kind kind)
{
	struct wire_part *p = &t->parts[t->n++];
	p->kind = kind;
	p->text = "";
	return p;
}

char *wire_path(struct wire_rd *d, const char *at, const char *key, size_t i)
{
	return mem_fmt(d->m, "%s%s%s[%zu]", at, at[0] == 0 ? "" : ".", key, i);
}

int wire_bad(struct wire_rd *d, const char *param, const char *what)
{
	return err_field(d->e, ERR_BAD_REQUEST, param, "%s %s.", param, what);
}

const char *wire_need(struct wire_rd *d, const json_t *o, const char *key, const char *path)
{
	const char *s = js_str(o, key);
	if (s == NULL) {
		const char *param = mem_fmt(d->m, "%s.%s", path, key);
		(void)wire_bad(d, param, "must be a string");
	}
	return s;
}

void wire_media_url(struct mem *m, const char *url, struct wire_part *p)
{
	const char *comma = strchr(url, ',');
	if (!str_starts(url, "data:") || comma == NULL || comma - url < 12 ||
	    strncmp(comma - 7, ";base64", 7) != 0) {
		p->url = url;
		return;
	}
	p->type = mem_strn(m, url + 5, (size_t)(comma - url) - 12);
	p->data = comma + 1;
}

const char *wire_data_url(struct mem *m, const struct wire_part *p)
{
	return p->data == NULL ? p->url : mem_fmt(m, "data:%s;base64,%s", p->type, p->data);
}

const char *wire_parts_text(struct mem *m, const struct wire_part *parts, size_t n, const char *between)
{
	auto_buf struct buf b = BUF(64u << 20);
	for (size_t i = 0; i < n; i++) {
		if ((parts[i].kind != WIRE_TEXT && parts[i].kind != WIRE_REFUSAL) || parts[i].text[0] == 0)
			continue;
		if (b.n > 0)
			(void)buf_str(&b, between);
		(void)buf_str(&b, parts[i].text);
	}
	return mem_strn(m, buf_c(&b), b.n);
}

int wire_document_ok(struct wire_rd *d, struct wire_part *p, const char *path)
{
	const char *type = p->type == NULL ? "" : p->type;
	bool pdf = strcmp(type, "application/pdf") == 0 || (p->url != NULL && p->data == NULL);
	if (p->file_id != NULL)
		return wire_bad(d, path, "has a file_id, which is of one vendor and cannot be carried");
	if (p->url != NULL && d->to == WIRE_CHAT)
		return wire_bad(
		    d, path, "is a document by reference, which cannot be carried to chat.completions");
	if (d->to == WIRE_MESSAGES && !pdf && strcmp(type, "text/plain") != 0)
		return wire_bad(d, path, "must be a PDF or plain text to be carried to messages");
	return 0;
}

int wire_call_ok(struct wire_rd *d, const struct wire_part *p, const char *path)
{
	if (d->to != WIRE_MESSAGES || p->custom || p->text[0] == 0)
		return 0;
	struct err e = { 0 };
	auto_json json_t *v = js_parse(p->text, strlen(p->text), &e);
	return json_is_object(v) ? 0 : wire_bad(d, path, "has arguments that are no JSON object");
}

int wire_choice_word(struct wire_rd *d, const char *word)
{
	static const struct {
		const char *word;
		enum wire_choice choice;
	} all[] = {
		{ "auto", WIRE_CHOICE_AUTO },
		{ "none", WIRE_CHOICE_NONE },
		{ "required", WIRE_CHOICE_ANY },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(word, all[i].word) == 0) {
			d->r->choice = all[i].choice;
			return 0;
		}
	return wire_bad(d, "tool_choice", "must be auto, none, required or an object that names a tool");
}

int wire_format_set(struct wire_rd *d, const char *type, const json_t *inner, const char *path)
{
	struct wire_request *r = d->r;
	if (strcmp(type, "json_object") == 0)
		r->format = WIRE_FORMAT_JSON;
	if (strcmp(type, "json_schema") != 0)
		return 0;
	r->format = WIRE_FORMAT_SCHEMA;
	r->schema = js_get(inner, "schema");
	r->schema_name = js_str_or(inner, "name", "answer"); /* messages has none, the others need one */
	r->schema_description = js_str(inner, "description");
	r->schema_strict = js_get(inner, "strict");
	return json_is_object(r->schema) ? 0 : wire_bad(d, path, "must have a schema");
}

void wire_read_common(struct wire_request *r)
{
	const json_t *parallel = js_get(r->body, "parallel_tool_calls");
	r->parallel = json_is_boolean(parallel) ? json_is_true(parallel) : -1;
	r->temperature = js_get(r->body, "temperature");
	r->top_p = js_get(r->body, "top_p");
	r->service_tier = js_get(r->body, "service_tier");
	r->metadata = js_get(r->body, "metadata");
	r->cache_key = js_get(r->body, "prompt_cache_key");
	r->cache_retention = js_get(r->body, "prompt_cache_retention");
	r->safety = js_get(r->body, "safety_identifier");
	r->user = js_str(r->body, "user");
}

/* 64 bytes of [A-Za-z0-9_-] are what all three wires take. */
enum { NAME_MAX_ = 64, NAME_HASH = 8 };

const char *wire_flat(struct mem *m, const char *name, const char *space)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	char hex[SHA256_HEX];
	char *flat = space == NULL ? mem_str(m, name) : mem_fmt(m, "%s__%s", space, name);
	size_t n = strlen(flat);
	if (n <= NAME_MAX_ && strspn(flat, fine) == n)
		return flat;
	sha256_hex(flat, n, hex);
	size_t keep = n < NAME_MAX_ - NAME_HASH - 1 ? n : NAME_MAX_ - NAME_HASH - 1;
	for (size_t i = 0; i < keep; i++)
		if (strchr(fine, flat[i]) == NULL)
			flat[i] = '_';
	return mem_fmt(m, "%.*s_%.*s", (int)keep, flat, NAME_HASH, hex);
}

static bool same_space(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

const struct wire_tool *wire_tool_find(const struct wire_request *r, const char *name, const char *space)
{
	for (size_t i = 0; i < r->n_tools; i++)
		if (strcmp(r->tools[i].name, name) == 0 && same_space(r->tools[i].space, space))
			return &r->tools[i];
	return NULL;
}

int wire_tools_done(struct wire_rd *d, size_t searches, const char *search_path)
{
	struct wire_request *r = d->r;
	if (searches > 0 && (r->n_tools == 0 || r->choice == WIRE_CHOICE_ANY))
		return wire_bad(d, search_path,
		    "is a tool of the vendor's own and the only one that may be called: ask a model of your "
		    "own wire");
	for (size_t i = 0; i < r->n_tools; i++) {
		r->tools[i].flat = wire_flat(d->m, r->tools[i].name, r->tools[i].space);
		for (size_t k = 0; k < i; k++)
			if (strcmp(r->tools[k].flat, r->tools[i].flat) == 0)
				return err_field(d->e, ERR_BAD_REQUEST, "tools",
				    "tools: two of them are called %s on the other wire.", r->tools[i].flat);
	}
	if (r->choice == WIRE_CHOICE_ONE && wire_tool_find(r, r->choice_name, r->choice_space) == NULL)
		return wire_bad(d, "tool_choice", "names a tool that is not offered, or not there");
	return 0;
}

static bool listed(const json_t *list, const struct wire_tool *t)
{
	size_t i;
	json_t *one;
	json_array_foreach(list, i, one) {
		const json_t *inner = json_is_object(js_get(one, "function")) ? js_get(one, "function") : one;
		const char *name = js_str(inner, "name");
		if (name != NULL && strcmp(name, t->name) == 0)
			return true;
	}
	return false;
}

int wire_tools_allow(struct wire_rd *d, const json_t *list, const char *path)
{
	struct wire_request *r = d->r;
	size_t kept = 0;
	for (size_t i = 0; i < r->n_tools; i++)
		if (listed(list, &r->tools[i]))
			r->tools[kept++] = r->tools[i];
	r->n_tools = kept;
	return kept > 0 ? 0 : wire_bad(d, path, "allows no tool that is offered");
}

json_t *wire_input_schema(void)
{
	return js_pack("{s:s,s:{s:{s:s}},s:[s],s:b}", "type", "object", "properties", "input", "type",
	    "string", "required", "input", "additionalProperties", 0);
}

json_t *wire_custom_about(struct mem *m, const struct wire_tool *t)
{
	const char *about = t->description == NULL ? "" : t->description;
	const json_t *g = json_is_object(js_get(t->grammar, "grammar")) ? js_get(t->grammar, "grammar")
									: t->grammar;
	const char *syntax = js_str(g, "syntax"), *definition = js_str(g, "definition");
	if (definition != NULL)
		about = mem_fmt(m, "%s%sThe input must follow this %s grammar:\n%s", about,
		    about[0] == 0 ? "" : "\n\n", syntax == NULL ? "" : syntax, definition);
	return js_text(about, strlen(about));
}

const char *wire_result_text(struct mem *m, const struct wire_part *p)
{
	const char *text = wire_parts_text(m, p->parts, p->n_parts, "\n");
	return p->failed ? mem_fmt(m, "Error: %s", text) : text;
}

void wire_set_some(json_t *o, const char *key, const json_t *v)
{
	if (v != NULL)
		js_set(o, key, json_incref((json_t *)(uintptr_t)v));
}

json_t *wire_translate(struct mem *m, enum provider_wire from, enum provider_wire to, const json_t *body,
    const struct wire_target *t, const struct wire_names **names, struct err *e)
{
	static wire_read_fn *const readers[WIRES] = { wire_read_chat, wire_read_responses,
		wire_read_messages };
	static wire_write_fn *const writers[WIRES] = { wire_write_chat, wire_write_responses,
		wire_write_messages };
	struct wire_request *r = mem_alloc(m, sizeof *r);
	struct wire_names *n = mem_alloc(m, sizeof *n);
	struct wire_rd d = { .m = m, .from = from, .to = to, .r = r, .e = e };
	*r = (struct wire_request){ .body = body, .parallel = -1 };
	r->stream = js_bool(body, "stream", false);
	n->r = r;
	*names = n;
	if (wire_rule_check(&d, "body", body, "") != 0 || readers[from](&d) != 0)
		return NULL;
	json_t *out = mem_json(m, writers[to](m, r, t));
	js_set_str(out, "model", t->model);
	if (r->stream)
		js_set(out, "stream", json_true());
	return out;
}

const char *wire_choice_name(enum wire_choice c)
{
	static const char *const names[] = { "auto", "auto", "none", "required", "auto" };
	return names[c];
}

void wire_write_same(json_t *out, const struct wire_request *r)
{
	wire_set_some(out, "service_tier", r->service_tier);
	wire_set_some(out, "metadata", r->metadata);
	wire_set_some(out, "prompt_cache_key", r->cache_key);
	wire_set_some(out, "prompt_cache_retention", r->cache_retention);
	wire_set_some(out, "safety_identifier", r->safety);
	if (r->user != NULL)
		js_set_str(out, "user", r->user);
}
