/* Requests for chat.completions. */
#include <string.h>

#include "base/js.h"
#include "model/request.h"

static json_t *image(struct mem *m, const struct wire_part *p)
{
	json_t *url = js_pack("{}");
	js_set_str(url, "url", wire_data_url(m, p));
	if (p->detail != NULL)
		js_set_str(url, "detail", p->detail);
	return js_pack("{s:s,s:o}", "type", "image_url", "image_url", url);
}

static json_t *part(struct mem *m, const struct wire_part *p)
{
	if (p->kind == WIRE_IMAGE)
		return image(m, p);
	if (p->kind == WIRE_DOCUMENT) {
		json_t *file = js_pack("{}");
		js_set_str(file, "filename", p->name == NULL ? "document" : p->name);
		js_set_str(file, "file_data", wire_data_url(m, p));
		return js_pack("{s:s,s:o}", "type", "file", "file", file);
	}
	json_t *text = js_pack("{s:s}", "type", "text");
	js_set_str(text, "text", p->text);
	return text;
}

static bool shows(const struct wire_part *p)
{
	return p->kind == WIRE_IMAGE || p->kind == WIRE_DOCUMENT || p->kind == WIRE_TEXT;
}

/* One text is a string, which every server takes; several parts are a list. */
static void content(json_t *message, struct mem *m, const struct wire_part *parts, size_t n)
{
	size_t shown = 0;
	const struct wire_part *last = NULL;
	for (size_t i = 0; i < n; i++)
		if (shows(&parts[i])) {
			shown++;
			last = &parts[i];
		}
	if (shown == 1 && last->kind == WIRE_TEXT) {
		js_set_str(message, "content", last->text);
		return;
	}
	json_t *list = js_pack("[]");
	for (size_t i = 0; i < n; i++)
		if (shows(&parts[i]))
			js_push(list, part(m, &parts[i]));
	js_set(message, "content", list);
}

/* Images and documents that a tool gave: a tool's message holds text only. */
static void result_media(json_t *messages, struct mem *m, const struct wire_part *p)
{
	json_t *list = NULL;
	for (size_t i = 0; i < p->n_parts; i++) {
		if (p->parts[i].kind != WIRE_IMAGE && p->parts[i].kind != WIRE_DOCUMENT)
			continue;
		if (list == NULL) {
			list = js_pack("[{s:s}]", "type", "text");
			js_set_str(
			    json_array_get(list, 0), "text", mem_fmt(m, "From the tool call %s:", p->id));
		}
		js_push(list, part(m, &p->parts[i]));
	}
	if (list != NULL)
		js_push(messages, js_pack("{s:s,s:o}", "role", "user", "content", list));
}

/* Results come first, as the protocol wants them behind the calls; what they gave besides text, and the rest, follow. */
static void user(json_t *messages, struct mem *m, const struct wire_turn *t)
{
	size_t others = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct wire_part *p = &t->parts[i];
		others += shows(p);
		if (p->kind != WIRE_RESULT)
			continue;
		json_t *message = js_pack("{s:s}", "role", "tool");
		js_set_str(message, "tool_call_id", p->id);
		js_set_str(message, "content", wire_result_text(m, p));
		js_push(messages, message);
	}
	for (size_t i = 0; i < t->n; i++)
		if (t->parts[i].kind == WIRE_RESULT)
			result_media(messages, m, &t->parts[i]);
	if (others == 0)
		return;
	json_t *message = js_pack("{s:s}", "role", "user");
	content(message, m, t->parts, t->n);
	js_push(messages, message);
}

static json_t *call(struct mem *m, const struct wire_part *p)
{
	json_t *f = js_pack("{}"), *c = js_pack("{s:s}", "type", "function");
	js_set_str(f, "name", wire_flat(m, p->name, p->space));
	if (p->custom) {
		auto_json json_t *args = js_pack("{}");
		js_set_str(args, "input", p->text);
		js_set_str(f, "arguments", js_dump(m, args));
	} else {
		js_set_str(f, "arguments", p->text[0] == 0 ? "{}" : p->text);
	}
	js_set_str(c, "id", p->id);
	js_set(c, "function", f);
	return c;
}

/* Calls of one turn must be in one message, whatever they came in. */
static json_t *assistant_message(json_t *messages)
{
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	if (json_array_size(messages) > 0 && strcmp(js_str_or(last, "role", ""), "assistant") == 0)
		return last;
	json_t *message = js_pack("{s:s,s:n}", "role", "assistant", "content");
	js_push(messages, message);
	return message;
}

static void assistant(json_t *messages, struct mem *m, const struct wire_turn *t)
{
	json_t *message = NULL, *calls;
	const char *text = wire_parts_text(m, t->parts, t->n, "\n");
	if (text[0] != 0) {
		message = assistant_message(messages);
		const char *before = js_str(message, "content");
		js_set_str(message, "content", before == NULL ? text : mem_fmt(m, "%s\n%s", before, text));
	}
	for (size_t i = 0; i < t->n; i++) {
		if (t->parts[i].kind != WIRE_CALL)
			continue;
		message = assistant_message(messages);
		calls = json_object_get(message, "tool_calls");
		if (calls == NULL) {
			calls = js_pack("[]");
			js_set(message, "tool_calls", calls);
		}
		js_push(calls, call(m, &t->parts[i]));
	}
}

static json_t *messages(struct mem *m, const struct wire_request *r)
{
	json_t *list = js_pack("[]");
	for (size_t i = 0; i < r->n_turns; i++) {
		const struct wire_turn *t = &r->turns[i];
		const char *text;
		switch (t->role) {
		case WIRE_SYSTEM:
			text = wire_parts_text(m, t->parts, t->n, "\n\n");
			if (text[0] == 0)
				break;
			js_push(list, js_pack("{s:s}", "role", "system"));
			js_set_str(json_array_get(list, json_array_size(list) - 1), "content", text);
			break;
		case WIRE_USER:
			user(list, m, t);
			break;
		case WIRE_ASSISTANT:
			assistant(list, m, t);
			break;
		}
	}
	return list;
}

static json_t *tool(struct mem *m, const struct wire_tool *t)
{
	json_t *f = js_pack("{}");
	js_set_str(f, "name", t->flat);
	if (t->custom)
		js_set(f, "description", wire_custom_about(m, t));
	else if (t->description != NULL)
		js_set_str(f, "description", t->description);
	if (t->custom)
		js_set(f, "parameters", wire_input_schema());
	else if (t->schema != NULL)
		wire_set_some(f, "parameters", t->schema);
	if (t->strict >= 0)
		js_set(f, "strict", json_boolean(t->strict));
	return js_pack("{s:s,s:o}", "type", "function", "function", f);
}

static void tools(json_t *out, struct mem *m, const struct wire_request *r)
{
	if (r->n_tools == 0)
		return;
	json_t *list = js_pack("[]");
	for (size_t i = 0; i < r->n_tools; i++)
		js_push(list, tool(m, &r->tools[i]));
	js_set(out, "tools", list);
	if (r->choice == WIRE_CHOICE_ONE) {
		json_t *f = js_pack("{}");
		js_set_str(f, "name", wire_tool_find(r, r->choice_name, r->choice_space)->flat);
		js_set(out, "tool_choice", js_pack("{s:s,s:o}", "type", "function", "function", f));
	} else if (r->choice != WIRE_CHOICE_UNSET) {
		js_set_str(out, "tool_choice", wire_choice_name(r->choice));
	}
	if (r->parallel >= 0)
		js_set(out, "parallel_tool_calls", json_boolean(r->parallel));
}

static void format(json_t *out, const struct wire_request *r)
{
	if (r->format == WIRE_FORMAT_JSON)
		js_set(out, "response_format", js_pack("{s:s}", "type", "json_object"));
	if (r->format != WIRE_FORMAT_SCHEMA)
		return;
	json_t *s = js_pack("{}");
	js_set_str(s, "name", r->schema_name);
	if (r->schema_description != NULL)
		js_set_str(s, "description", r->schema_description);
	wire_set_some(s, "schema", r->schema);
	wire_set_some(s, "strict", r->schema_strict);
	js_set(out, "response_format", js_pack("{s:s,s:o}", "type", "json_schema", "json_schema", s));
}

json_t *wire_write_chat(struct mem *m, const struct wire_request *r, const struct wire_target *t)
{
	json_t *out = js_pack("{s:n,s:o}", "model", "messages", messages(m, r));
	(void)t;
	tools(out, m, r);
	format(out, r);
	if (r->max_out > 0)
		js_set(out, "max_completion_tokens", json_integer(r->max_out));
	wire_set_some(out, "temperature", r->temperature);
	wire_set_some(out, "top_p", r->top_p);
	wire_set_some(out, "stop", json_array_size(r->stop) > 0 ? r->stop : NULL);
	if (r->effort != NULL)
		js_set_str(out, "reasoning_effort", r->effort);
	if (r->verbosity != NULL)
		js_set_str(out, "verbosity", r->verbosity);
	wire_write_same(out, r);
	if (r->stream)
		js_set(out, "stream_options", js_pack("{s:b}", "include_usage", 1));
	return out;
}
