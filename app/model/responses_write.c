/* Requests for responses. */
#include <string.h>

#include "base/js.h"
#include "model/request.h"

static json_t *part(struct mem *m, const struct wire_part *p, bool output)
{
	json_t *o;
	if (p->kind == WIRE_IMAGE) {
		o = js_pack(
		    "{s:s,s:s}", "type", "input_image", "detail", p->detail == NULL ? "auto" : p->detail);
		js_set_str(o, "image_url", wire_data_url(m, p));
	} else if (p->kind == WIRE_DOCUMENT) {
		o = js_pack("{s:s}", "type", "input_file");
		if (p->data != NULL)
			js_set_str(o, "filename", p->name == NULL ? "document" : p->name);
		js_set_str(o, p->data != NULL ? "file_data" : "file_url", wire_data_url(m, p));
	} else if (p->kind == WIRE_REFUSAL && output) {
		o = js_pack("{s:s}", "type", "refusal");
		js_set_str(o, "refusal", p->text);
	} else {
		o = js_pack("{s:s}", "type", output ? "output_text" : "input_text");
		js_set_str(o, "text", p->text);
		if (output)
			js_set(o, "annotations", js_pack("[]"));
	}
	return o;
}

static bool shows(const struct wire_part *p)
{
	return p->kind == WIRE_TEXT || p->kind == WIRE_IMAGE || p->kind == WIRE_DOCUMENT ||
	    p->kind == WIRE_REFUSAL;
}

static void flush(json_t *items, const char *role, json_t **content)
{
	if (*content == NULL)
		return;
	js_push(items, js_pack("{s:s,s:s,s:o}", "type", "message", "role", role, "content", *content));
	*content = NULL;
}

static json_t *call(const struct wire_part *p)
{
	json_t *o = js_pack("{s:s}", "type", p->custom ? "custom_tool_call" : "function_call");
	js_set_str(o, "call_id", p->id);
	js_set_str(o, "name", p->name);
	js_set_str(o, p->custom ? "input" : "arguments", p->text[0] == 0 && !p->custom ? "{}" : p->text);
	return o;
}

/* A result is of the kind of its call. */
static bool of_custom(const struct wire_request *r, const char *id)
{
	for (size_t i = 0; i < r->n_turns; i++)
		for (size_t k = 0; k < r->turns[i].n; k++) {
			const struct wire_part *p = &r->turns[i].parts[k];
			if (p->kind == WIRE_CALL && strcmp(p->id, id) == 0)
				return p->custom;
		}
	return false;
}

static json_t *result(struct mem *m, const struct wire_request *r, const struct wire_part *p)
{
	bool custom = of_custom(r, p->id), media = false;
	json_t *o = js_pack("{s:s}", "type", custom ? "custom_tool_call_output" : "function_call_output");
	js_set_str(o, "call_id", p->id);
	for (size_t i = 0; i < p->n_parts; i++)
		media = media || p->parts[i].kind == WIRE_IMAGE || p->parts[i].kind == WIRE_DOCUMENT;
	if (!media) {
		js_set_str(o, "output", wire_result_text(m, p));
		return o;
	}
	json_t *list = js_pack("[]");
	if (p->failed)
		js_push(list, js_pack("{s:s,s:s}", "type", "input_text", "text", "Error:"));
	for (size_t i = 0; i < p->n_parts; i++)
		if (shows(&p->parts[i]))
			js_push(list, part(m, &p->parts[i], false));
	js_set(o, "output", list);
	return o;
}

/* Its own reasoning, back again. Another model's is left out. */
static json_t *reasoning(const struct wire_part *p)
{
	if (p->maker != WIRE_RESPONSES || p->opaque == NULL || p->id == NULL)
		return NULL;
	json_t *o = js_pack("{s:s,s:[]}", "type", "reasoning", "summary");
	js_set_str(o, "id", p->id);
	js_set_str(o, "encrypted_content", p->opaque);
	if (p->text[0] != 0) {
		json_t *s = js_pack("{s:s}", "type", "summary_text");
		js_set_str(s, "text", p->text);
		js_push(json_object_get(o, "summary"), s);
	}
	return o;
}

static void turn(json_t *items, struct mem *m, const struct wire_request *r, const struct wire_turn *t)
{
	static const char *const roles[] = { "system", "user", "assistant" };
	json_t *content = NULL, *o;
	/* Results follow their calls at once, whatever a user says with them. */
	for (size_t i = 0; i < t->n; i++)
		if (t->parts[i].kind == WIRE_RESULT)
			js_push(items, result(m, r, &t->parts[i]));
	for (size_t i = 0; i < t->n; i++) {
		const struct wire_part *p = &t->parts[i];
		if (shows(p)) {
			if (p->kind == WIRE_TEXT && p->text[0] == 0)
				continue;
			if (content == NULL)
				content = js_pack("[]");
			js_push(content, part(m, p, t->role == WIRE_ASSISTANT));
			continue;
		}
		flush(items, roles[t->role], &content);
		o = p->kind == WIRE_CALL ? call(p) : p->kind == WIRE_REASONING ? reasoning(p) : NULL;
		if (o != NULL)
			js_push(items, o);
	}
	flush(items, roles[t->role], &content);
}

/* The first system turns are the instructions. */
static void input(json_t *out, struct mem *m, const struct wire_request *r)
{
	size_t i = 0;
	auto_buf struct buf b = BUF(64u << 20);
	for (; i < r->n_turns && r->turns[i].role == WIRE_SYSTEM; i++) {
		const char *text = wire_parts_text(m, r->turns[i].parts, r->turns[i].n, "\n\n");
		if (text[0] != 0)
			(void)buf_fmt(&b, "%s%s", b.n == 0 ? "" : "\n\n", text);
	}
	if (b.n > 0)
		js_set_str(out, "instructions", buf_c(&b));
	json_t *items = js_pack("[]");
	for (; i < r->n_turns; i++)
		turn(items, m, r, &r->turns[i]);
	js_set(out, "input", items);
}

/* chat has it one level deeper. */
static json_t *grammar(const json_t *format)
{
	const json_t *g = js_get(format, "grammar");
	if (g == NULL)
		return json_incref((json_t *)(uintptr_t)format);
	json_t *o = js_pack("{s:s}", "type", "grammar");
	wire_set_some(o, "definition", json_object_get(g, "definition"));
	wire_set_some(o, "syntax", json_object_get(g, "syntax"));
	return o;
}

static json_t *tool(const struct wire_tool *t)
{
	json_t *o = js_pack("{s:s}", "type", t->custom ? "custom" : "function");
	js_set_str(o, "name", t->flat);
	if (t->description != NULL)
		js_set_str(o, "description", t->description);
	if (!t->custom) {
		js_set(
		    o, "parameters", t->schema == NULL ? NULL : json_incref((json_t *)(uintptr_t)t->schema));
		js_set(o, "strict",
		    json_boolean(t->strict > 0)); /* true where it is not given, unlike elsewhere */
	} else if (t->grammar != NULL) {
		js_set(o, "format", grammar(t->grammar));
	}
	return o;
}

static void tools(json_t *out, const struct wire_request *r)
{
	if (r->n_tools == 0)
		return;
	json_t *list = js_pack("[]");
	for (size_t i = 0; i < r->n_tools; i++)
		js_push(list, tool(&r->tools[i]));
	js_set(out, "tools", list);
	if (r->choice == WIRE_CHOICE_ONE) {
		const struct wire_tool *t = wire_tool_find(r, r->choice_name, r->choice_space);
		json_t *o = js_pack("{s:s}", "type", t->custom ? "custom" : "function");
		js_set_str(o, "name", t->flat);
		js_set(out, "tool_choice", o);
	} else if (r->choice != WIRE_CHOICE_UNSET) {
		js_set_str(out, "tool_choice", wire_choice_name(r->choice));
	}
	if (r->parallel >= 0)
		js_set(out, "parallel_tool_calls", json_boolean(r->parallel));
}

static void text(json_t *out, const struct wire_request *r)
{
	json_t *o = js_pack("{}");
	if (r->format == WIRE_FORMAT_JSON)
		js_set(o, "format", js_pack("{s:s}", "type", "json_object"));
	if (r->format == WIRE_FORMAT_SCHEMA) {
		json_t *f = js_pack("{s:s}", "type", "json_schema");
		js_set_str(f, "name", r->schema_name);
		if (r->schema_description != NULL)
			js_set_str(f, "description", r->schema_description);
		wire_set_some(f, "schema", r->schema);
		wire_set_some(f, "strict", r->schema_strict);
		js_set(o, "format", f);
	}
	if (r->verbosity != NULL)
		js_set_str(o, "verbosity", r->verbosity);
	if (json_object_size(o) > 0)
		js_set(out, "text", o);
	else
		json_decref(o);
}

json_t *wire_write_responses(struct mem *m, const struct wire_request *r, const struct wire_target *t)
{
	json_t *out = js_pack("{s:n}", "model");
	(void)t;
	input(out, m, r);
	tools(out, r);
	text(out, r);
	if (r->max_out > 0)
		js_set(out, "max_output_tokens", json_integer(r->max_out));
	wire_set_some(out, "temperature", r->temperature);
	wire_set_some(out, "top_p", r->top_p);
	if (r->effort != NULL) {
		json_t *o = js_pack("{s:s}", "summary", "auto");
		js_set_str(o, "effort", r->effort);
		js_set(out, "reasoning", o);
		/* So that it can be sent back. Models that do not reason refuse to be asked. */
		js_set(out, "include", js_pack("[s]", "reasoning.encrypted_content"));
	}
	wire_write_same(out, r);
	js_set(out, "store", json_false());
	return out;
}
