/* Requests for messages. */
#include <string.h>

#include "base/js.h"
#include "model/request.h"

enum { MAX_OUTPUT = 32000 };

static json_t *source(const struct wire_part *p)
{
	json_t *s = js_pack("{s:s}", "type", p->data == NULL ? "url" : "base64");
	if (p->data == NULL) {
		js_set_str(s, "url", p->url);
	} else {
		js_set_str(s, "media_type", p->type);
		js_set_str(s, "data", p->data);
	}
	return s;
}

static json_t *document(const struct wire_part *p)
{
	json_t *o = js_pack("{s:s}", "type", "document");
	js_set(o, "source", source(p));
	if (p->name != NULL)
		js_set_str(o, "title", p->name);
	return o;
}

static json_t *text_block(const char *text)
{
	json_t *o = js_pack("{s:s}", "type", "text");
	js_set_str(o, "text", text);
	return o;
}

static json_t *result(const struct wire_part *p)
{
	json_t *list = js_pack("[]"), *o = js_pack("{s:s}", "type", "tool_result");
	js_set_str(o, "tool_use_id", p->id);
	for (size_t i = 0; i < p->n_parts; i++) {
		const struct wire_part *x = &p->parts[i];
		if (x->kind == WIRE_IMAGE)
			js_push(list, js_pack("{s:s,s:o}", "type", "image", "source", source(x)));
		else if (x->kind == WIRE_DOCUMENT)
			js_push(list, document(x));
		else if (x->text[0] != 0)
			js_push(list, text_block(x->text));
	}
	js_set(o, "content", list);
	if (p->failed)
		js_set(o, "is_error", json_true());
	return o;
}

static json_t *call(struct mem *m, const struct wire_part *p)
{
	json_t *o = js_pack("{s:s}", "type", "tool_use"), *input;
	struct err e = { 0 };
	js_set_str(o, "id", p->id);
	js_set_str(o, "name", wire_flat(m, p->name, p->space));
	if (p->custom) {
		input = js_pack("{}");
		js_set_str(input, "input", p->text);
	} else {
		input = p->text[0] == 0 ? NULL : js_parse(p->text, strlen(p->text), &e);
	}
	js_set(o, "input", input == NULL ? js_pack("{}") : input);
	return o;
}

/* Its own reasoning, back again. Another model's is left out: its signature would be refused. */
static json_t *reasoning(const struct wire_part *p)
{
	if (p->maker != WIRE_MESSAGES || p->opaque == NULL)
		return NULL;
	json_t *o = js_pack("{s:s}", "type", p->redacted ? "redacted_thinking" : "thinking");
	if (!p->redacted)
		js_set_str(o, "thinking", p->text);
	js_set_str(o, p->redacted ? "data" : "signature", p->opaque);
	return o;
}

static json_t *block(struct mem *m, const struct wire_part *p)
{
	switch (p->kind) {
	case WIRE_TEXT:
	case WIRE_REFUSAL:
		return p->text[0] == 0 ? NULL : text_block(p->text); /* empty blocks are refused there */
	case WIRE_IMAGE:
		return js_pack("{s:s,s:o}", "type", "image", "source", source(p));
	case WIRE_DOCUMENT:
		return document(p);
	case WIRE_CALL:
		return call(m, p);
	case WIRE_RESULT:
		return result(p);
	case WIRE_REASONING:
		return reasoning(p);
	}
	return NULL;
}

/* The message that a turn of this role goes on with: turns of one role are one message there. */
static json_t *content_of(json_t *messages, const char *role)
{
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	if (json_array_size(messages) > 0 && strcmp(js_str_or(last, "role", ""), role) == 0)
		return json_object_get(last, "content");
	json_t *content = js_pack("[]");
	js_push(messages, js_pack("{s:s,s:o}", "role", role, "content", content));
	return content;
}

/* Results must come before everything else of a turn. */
static void add(json_t *content, json_t *o, bool is_result)
{
	size_t at = 0, n = json_array_size(content);
	if (!is_result) {
		js_push(content, o);
		return;
	}
	while (at < n && strcmp(js_str_or(json_array_get(content, at), "type", ""), "tool_result") == 0)
		at++;
	if (json_array_insert_new(content, at, o) != 0)
		abort();
}

static void turn(json_t *messages, struct mem *m, const struct wire_turn *t)
{
	json_t *o;
	for (size_t i = 0; i < t->n; i++) {
		const struct wire_part *p = &t->parts[i];
		if (t->role == WIRE_SYSTEM)
			o = p->kind != WIRE_TEXT || p->text[0] == 0
			    ? NULL
			    : text_block(mem_fmt(m, "<system>\n%s\n</system>", p->text));
		else
			o = block(m, p);
		if (o != NULL)
			add(content_of(messages, t->role == WIRE_ASSISTANT ? "assistant" : "user"), o,
			    p->kind == WIRE_RESULT);
	}
}

static void conversation(json_t *out, struct mem *m, const struct wire_request *r)
{
	size_t i = 0;
	json_t *system = js_pack("[]"), *messages = js_pack("[]");
	for (; i < r->n_turns && r->turns[i].role == WIRE_SYSTEM; i++) {
		const char *text = wire_parts_text(m, r->turns[i].parts, r->turns[i].n, "\n\n");
		if (text[0] != 0)
			js_push(system, text_block(text));
	}
	if (r->format == WIRE_FORMAT_JSON)
		js_push(system, text_block("Answer with one JSON object and nothing else."));
	for (; i < r->n_turns; i++)
		turn(messages, m, &r->turns[i]);
	js_set(out, "messages", messages);
	if (json_array_size(system) > 0)
		js_set(out, "system", system);
	else
		json_decref(system);
}

/* Its type is needed there, and may be left out elsewhere. */
static json_t *schema(const json_t *v)
{
	json_t *o = json_is_object(v) ? json_copy((json_t *)(uintptr_t)v) : js_pack("{s:{}}", "properties");
	if (o == NULL)
		abort();
	if (json_object_get(o, "type") == NULL)
		js_set_str(o, "type", "object");
	return o;
}

static json_t *tool(struct mem *m, const struct wire_tool *t)
{
	json_t *o = js_pack("{}");
	js_set_str(o, "name", t->flat);
	if (t->custom)
		js_set(o, "description", wire_custom_about(m, t));
	else if (t->description != NULL)
		js_set_str(o, "description", t->description);
	js_set(o, "input_schema", t->custom ? wire_input_schema() : schema(t->schema));
	if (t->strict > 0)
		js_set(o, "strict", json_true());
	return o;
}

static void tools(json_t *out, struct mem *m, const struct wire_request *r)
{
	static const char *const types[] = { NULL, "auto", "none", "any", "tool" };
	if (r->n_tools == 0)
		return;
	json_t *list = js_pack("[]"), *choice = js_pack("{}");
	for (size_t i = 0; i < r->n_tools; i++)
		js_push(list, tool(m, &r->tools[i]));
	js_set(out, "tools", list);
	if (r->choice != WIRE_CHOICE_UNSET || r->parallel == 0)
		js_set_str(choice, "type", r->choice == WIRE_CHOICE_UNSET ? "auto" : types[r->choice]);
	if (r->choice == WIRE_CHOICE_ONE)
		js_set_str(choice, "name", wire_tool_find(r, r->choice_name, r->choice_space)->flat);
	if (r->parallel == 0 && r->choice != WIRE_CHOICE_NONE)
		js_set(choice, "disable_parallel_tool_use", json_true());
	if (json_object_size(choice) > 0)
		js_set(out, "tool_choice", choice);
	else
		json_decref(choice);
}

static void output(json_t *out, const struct wire_request *r)
{
	static const char *const efforts[][2] = { { "none", "low" }, { "minimal", "low" },
		{ "xhigh", "max" } };
	json_t *o = js_pack("{}");
	const char *effort = r->effort;
	for (size_t i = 0; effort != NULL && i < sizeof efforts / sizeof *efforts; i++)
		if (strcmp(r->effort, efforts[i][0]) == 0)
			effort = efforts[i][1];
	if (effort != NULL)
		js_set_str(o, "effort", effort);
	if (r->format == WIRE_FORMAT_SCHEMA) {
		json_t *f = js_pack("{s:s}", "type", "json_schema");
		wire_set_some(f, "schema", r->schema);
		js_set(o, "format", f);
	}
	if (json_object_size(o) > 0)
		js_set(out, "output_config", o);
	else
		json_decref(o);
}

json_t *wire_write_messages(struct mem *m, const struct wire_request *r, const struct wire_target *t)
{
	long long most = r->max_out > 0 ? r->max_out : t->max_output > 0 ? t->max_output : MAX_OUTPUT;
	json_t *out = js_pack("{s:n,s:I}", "model", "max_tokens", (json_int_t)most);
	const char *user = json_is_string(r->safety) ? json_string_value(r->safety) : r->user;
	conversation(out, m, r);
	tools(out, m, r);
	output(out, r);
	if (json_is_number(r->temperature) && json_number_value(r->temperature) > 1)
		js_set(out, "temperature", json_integer(1));
	else
		wire_set_some(out, "temperature", r->temperature);
	wire_set_some(out, "top_p", r->top_p);
	wire_set_some(out, "stop_sequences", json_array_size(r->stop) > 0 ? r->stop : NULL);
	if (user != NULL) {
		json_t *meta = js_pack("{}");
		js_set_str(meta, "user_id", user);
		js_set(out, "metadata", meta);
	}
	return out;
}
