/* Requests of chat.completions. */
#include <string.h>

#include "base/js.h"
#include "model/request.h"

/* The members of each object besides `type`; others are refused by name. */
static const struct wire_known known[] = {
	{ "text", "text prompt_cache_breakpoint cache_control" },
	{ "refusal", "refusal" },
	{ "image_url", "image_url prompt_cache_breakpoint cache_control" },
	{ "file", "file prompt_cache_breakpoint cache_control" },
	{ "function", "function cache_control" },
	{ "custom", "custom" },
	{ "the function", "name description parameters strict" },
	{ "the custom", "name description format" },
	{ "response_format", "json_schema" },
	{ 0 },
};

static int image(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const json_t *inner = js_get(o, "image_url");
	const char *url = json_is_string(inner) ? json_string_value(inner) : js_str(inner, "url");
	if (url == NULL)
		return wire_bad(d, path, "must have an image_url with a url");
	struct wire_part *p = wire_part_add(t, WIRE_IMAGE);
	p->detail = js_str(inner, "detail");
	wire_media_url(d->m, url, p);
	return 0;
}

static int file(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const json_t *inner = js_get(o, "file");
	const char *data = js_str(inner, "file_data");
	if (data == NULL)
		return wire_bad(
		    d, path, "must have its file_data: a file_id is of one vendor and cannot be carried");
	struct wire_part *p = wire_part_add(t, WIRE_DOCUMENT);
	p->name = js_str(inner, "filename");
	wire_media_url(d->m, data, p);
	if (p->data == NULL)
		return wire_bad(d, path, "must have its file_data as data:TYPE;base64,...");
	return wire_document_ok(d, p, path);
}

static int part(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const char *type = js_str(o, "type");
	enum wire_verb verb;
	if (wire_rule_type(d, "part", type, path, &verb) != 0 || wire_known(d, known, type, o, path) != 0)
		return -1;
	if (strcmp(type, "image_url") == 0)
		return image(d, o, t, path);
	if (strcmp(type, "file") == 0)
		return file(d, o, t, path);
	bool refusal = strcmp(type, "refusal") == 0;
	const char *text = wire_need(d, o, refusal ? "refusal" : "text", path);
	if (text == NULL)
		return -1;
	wire_part_add(t, refusal ? WIRE_REFUSAL : WIRE_TEXT)->text = text;
	return 0;
}

/* A string or a list of parts. */
static int content(struct wire_rd *d, const json_t *v, struct wire_turn *t, const char *path)
{
	size_t i;
	json_t *one;
	if (json_is_string(v))
		wire_part_add(t, WIRE_TEXT)->text = json_string_value(v);
	else if (v != NULL && !json_is_array(v))
		return wire_bad(d, path, "must be a string or a list of parts");
	json_array_foreach(v, i, one)
		if (part(d, one, t, wire_path(d, path, "content", i)) != 0)
			return -1;
	return 0;
}

static int call(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	bool custom = strcmp(js_str_or(o, "type", "function"), "custom") == 0;
	const json_t *inner = js_get(o, custom ? "custom" : "function");
	const char *id = wire_need(d, o, "id", path);
	const char *name = id == NULL ? NULL : wire_need(d, inner, "name", path);
	const char *args = name == NULL ? NULL : wire_need(d, inner, custom ? "input" : "arguments", path);
	if (args == NULL)
		return -1;
	struct wire_part *p = wire_part_add(t, WIRE_CALL);
	p->id = id;
	p->name = name;
	p->text = args;
	p->custom = custom;
	return wire_call_ok(d, p, path);
}

static int assistant(struct wire_rd *d, const json_t *o, const char *path)
{
	const json_t *calls = js_get(o, "tool_calls"), *c = js_get(o, "content");
	const char *refusal = js_str(o, "refusal");
	size_t i;
	json_t *one;
	struct wire_turn *t = wire_turn_add(
	    d, WIRE_ASSISTANT, json_array_size(c) + json_array_size(calls) + 2);
	if (content(d, c, t, path) != 0)
		return -1;
	if (refusal != NULL)
		wire_part_add(t, WIRE_REFUSAL)->text = refusal;
	json_array_foreach(calls, i, one)
		if (call(d, one, t, wire_path(d, path, "tool_calls", i)) != 0)
			return -1;
	return 0;
}

static int result(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *id = wire_need(d, o, "tool_call_id", path);
	const json_t *c = js_get(o, "content");
	if (id == NULL)
		return -1;
	struct wire_turn inner = { .parts = mem_alloc(d->m, (json_array_size(c) + 1) * sizeof *inner.parts) };
	if (content(d, c, &inner, path) != 0)
		return -1;
	struct wire_part *p = wire_part_add(wire_turn_add(d, WIRE_USER, 1), WIRE_RESULT);
	p->id = id;
	p->parts = inner.parts;
	p->n_parts = inner.n;
	return 0;
}

static int message(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *role = js_str(o, "role");
	enum wire_verb verb;
	if (wire_rule_check(d, "message", o, path) != 0 ||
	    wire_rule_type(d, "role", role, mem_fmt(d->m, "%s.role", path), &verb) != 0)
		return -1;
	if (strcmp(role, "assistant") == 0)
		return assistant(d, o, path);
	if (strcmp(role, "tool") == 0)
		return result(d, o, path);
	const json_t *c = js_get(o, "content");
	struct wire_turn *t = wire_turn_add(
	    d, strcmp(role, "user") == 0 ? WIRE_USER : WIRE_SYSTEM, json_array_size(c) + 1);
	return content(d, c, t, path);
}

static int tool(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *type = js_str(o, "type");
	enum wire_verb verb;
	if (wire_rule_type(d, "tool", type, path, &verb) != 0)
		return -1;
	const json_t *inner = js_get(o, type);
	if (wire_known(d, known, type, o, path) != 0 ||
	    wire_known(d, known, mem_fmt(d->m, "the %s", type), inner, path) != 0)
		return -1;
	const json_t *strict = js_get(inner, "strict");
	const char *name = wire_need(d, inner, "name", path);
	if (name == NULL)
		return -1;
	d->r->tools[d->r->n_tools++] = (struct wire_tool){ .name = name,
		.description = js_str(inner, "description"),
		.schema = js_get(inner, "parameters"),
		.grammar = js_get(inner, "format"),
		.strict = strict == NULL ? -1 : json_is_true(strict),
		.custom = strcmp(type, "custom") == 0 };
	return 0;
}

static int tools(struct wire_rd *d)
{
	const json_t *list = js_get(d->r->body, "tools"), *choice = js_get(d->r->body, "tool_choice");
	size_t i;
	json_t *one;
	d->r->tools = mem_alloc(d->m, (json_array_size(list) + 1) * sizeof *d->r->tools);
	json_array_foreach(list, i, one)
		if (tool(d, one, wire_path(d, "", "tools", i)) != 0)
			return -1;
	const char *type = js_str(choice, "type");
	const json_t *allowed = js_get(choice, "allowed_tools");
	if (json_is_string(choice)) {
		if (wire_choice_word(d, json_string_value(choice)) != 0)
			return -1;
	} else if (allowed != NULL) {
		if (wire_choice_word(d, js_str_or(allowed, "mode", "auto")) != 0 ||
		    wire_tools_allow(d, js_get(allowed, "tools"), "tool_choice") != 0)
			return -1;
	} else if (choice != NULL) {
		d->r->choice = WIRE_CHOICE_ONE;
		d->r->choice_name = type == NULL ? NULL : js_str(js_get(choice, type), "name");
		if (d->r->choice_name == NULL)
			return wire_bad(d, "tool_choice", "must name a tool");
	}
	return wire_tools_done(d, 0, "");
}

static int format(struct wire_rd *d)
{
	const json_t *f = js_get(d->r->body, "response_format"), *inner = js_get(f, "json_schema");
	enum wire_verb verb;
	if (f == NULL)
		return 0;
	if (wire_rule_type(d, "response_format", js_str(f, "type"), "response_format", &verb) != 0 ||
	    wire_known(d, known, "response_format", f, "response_format") != 0)
		return -1;
	return wire_format_set(d, js_str(f, "type"), inner, "response_format");
}

int wire_read_chat(struct wire_rd *d)
{
	struct wire_request *r = d->r;
	const json_t *messages = js_get(r->body, "messages"), *stop = js_get(r->body, "stop");
	size_t i;
	json_t *one;
	r->turns = mem_alloc(d->m, (json_array_size(messages) + 1) * sizeof *r->turns);
	json_array_foreach(messages, i, one)
		if (message(d, one, wire_path(d, "", "messages", i)) != 0)
			return -1;
	if (tools(d) != 0 || format(d) != 0)
		return -1;
	wire_read_common(r);
	r->max_out = js_int(r->body, "max_completion_tokens", js_int(r->body, "max_tokens", 0));
	r->stop = json_is_string(stop) ? mem_json(d->m, js_pack("[O]", stop)) : stop;
	r->effort = js_str(r->body, "reasoning_effort");
	r->verbosity = js_str(r->body, "verbosity");
	return 0;
}
