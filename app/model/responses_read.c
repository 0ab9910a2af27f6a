/* Requests of responses. */
#include <string.h>

#include "base/js.h"
#include "model/request.h"

/* The members of each object besides `type`; others are refused by name. */
static const struct wire_known known[] = {
	{ "message", "role content id status phase" },
	{ "function_call", "call_id name namespace arguments id status caller" },
	{ "function_call_output", "call_id output id status" },
	{ "custom_tool_call", "call_id name namespace input id status caller" },
	{ "custom_tool_call_output", "call_id output id status" },
	{ "reasoning", "id summary content encrypted_content status" },
	{ "web_search_call", "id action status" },
	{ "input_text", "text prompt_cache_breakpoint" },
	{ "output_text", "text annotations logprobs" },
	{ "refusal", "refusal" },
	{ "input_image", "image_url file_id detail prompt_cache_breakpoint" },
	{ "input_file", "filename file_data file_url file_id detail prompt_cache_breakpoint" },
	{ "function", "name description parameters strict defer_loading allowed_callers output_schema" },
	{ "custom", "name description format defer_loading allowed_callers" },
	{ "namespace", "name description tools" },
	{ "reasoning of the body", "effort summary generate_summary context" },
	{ "text of the body", "format verbosity" },
	{ 0 },
};

static int image(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const char *url = js_str(o, "image_url");
	if (url == NULL)
		return wire_bad(
		    d, path, "must have an image_url: a file_id is of one vendor and cannot be carried");
	struct wire_part *p = wire_part_add(t, WIRE_IMAGE);
	p->detail = js_str(o, "detail");
	wire_media_url(d->m, url, p);
	return 0;
}

static int file(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const char *data = js_str(o, "file_data"), *url = js_str(o, "file_url");
	struct wire_part *p = wire_part_add(t, WIRE_DOCUMENT);
	p->name = js_str(o, "filename");
	p->file_id = js_str(o, "file_id");
	if (data != NULL)
		wire_media_url(d->m, data, p);
	if (data != NULL && p->data == NULL)
		return wire_bad(d, path, "must have its file_data as data:TYPE;base64,...");
	p->url = data == NULL ? url : NULL;
	if (p->data == NULL && p->url == NULL && p->file_id == NULL)
		return wire_bad(d, path, "must have file_data or file_url");
	return wire_document_ok(d, p, path);
}

static int part(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const char *type = js_str(o, "type");
	enum wire_verb verb;
	if (wire_rule_type(d, "part", type, path, &verb) != 0 || wire_known(d, known, type, o, path) != 0)
		return -1;
	if (strcmp(type, "input_image") == 0)
		return image(d, o, t, path);
	if (strcmp(type, "input_file") == 0)
		return file(d, o, t, path);
	bool refusal = strcmp(type, "refusal") == 0;
	const char *text = wire_need(d, o, refusal ? "refusal" : "text", path);
	if (text == NULL)
		return -1;
	wire_part_add(t, refusal ? WIRE_REFUSAL : WIRE_TEXT)->text = text;
	return 0;
}

static int content(struct wire_rd *d, const json_t *v, const char *key, struct wire_turn *t, const char *path)
{
	size_t i;
	json_t *one;
	if (json_is_string(v))
		wire_part_add(t, WIRE_TEXT)->text = json_string_value(v);
	else if (v != NULL && !json_is_array(v))
		return wire_bad(d, path, "must have a string or a list of parts");
	json_array_foreach(v, i, one)
		if (part(d, one, t, wire_path(d, path, key, i)) != 0)
			return -1;
	return 0;
}

static int message(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *role = js_str(o, "role");
	const json_t *c = js_get(o, "content");
	enum wire_verb verb;
	if (wire_rule_type(d, "role", role, mem_fmt(d->m, "%s.role", path), &verb) != 0)
		return -1;
	enum wire_role who = strcmp(role, "user") == 0 ? WIRE_USER
	    : strcmp(role, "assistant") == 0           ? WIRE_ASSISTANT
						       : WIRE_SYSTEM;
	return content(d, c, "content", wire_turn_add(d, who, json_array_size(c) + 1), path);
}

static int call(struct wire_rd *d, const json_t *o, bool custom, const char *path)
{
	const char *id = wire_need(d, o, "call_id", path);
	const char *name = id == NULL ? NULL : wire_need(d, o, "name", path);
	const char *args = name == NULL ? NULL : wire_need(d, o, custom ? "input" : "arguments", path);
	if (args == NULL)
		return -1;
	struct wire_part *p = wire_part_add(wire_turn_add(d, WIRE_ASSISTANT, 1), WIRE_CALL);
	p->id = id;
	p->name = name;
	p->space = js_str(o, "namespace");
	p->text = args;
	p->custom = custom;
	return wire_call_ok(d, p, path);
}

static int output(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *id = wire_need(d, o, "call_id", path);
	const json_t *c = js_get(o, "output");
	if (id == NULL)
		return -1;
	struct wire_turn inner = { .parts = mem_alloc(d->m, (json_array_size(c) + 1) * sizeof *inner.parts) };
	if (content(d, c, "output", &inner, path) != 0)
		return -1;
	struct wire_part *p = wire_part_add(wire_turn_add(d, WIRE_USER, 1), WIRE_RESULT);
	p->id = id;
	p->parts = inner.parts;
	p->n_parts = inner.n;
	return 0;
}

static void reasoning(struct wire_rd *d, const json_t *o)
{
	size_t i;
	json_t *one;
	auto_buf struct buf text = BUF(16u << 20);
	struct wire_part *p = wire_part_add(wire_turn_add(d, WIRE_ASSISTANT, 1), WIRE_REASONING);
	json_array_foreach(js_get(o, "summary"), i, one)
		(void)buf_fmt(&text, "%s%s", i == 0 ? "" : "\n\n", js_str_or(one, "text", ""));
	p->text = mem_strn(d->m, buf_c(&text), text.n);
	wire_unmark(d->m, WIRE_RESPONSES, js_str(o, "encrypted_content"), p);
}

static int item(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *type = js_str_or(o, "type", js_str(o, "role") == NULL ? NULL : "message");
	enum wire_verb verb;
	if (wire_rule_type(d, "item", type, path, &verb) != 0 || wire_known(d, known, type, o, path) != 0)
		return -1;
	if (strcmp(type, "message") == 0)
		return message(d, o, path);
	bool custom = str_starts(type, "custom_tool_call");
	if (strcmp(type, "function_call") == 0 || strcmp(type, "custom_tool_call") == 0)
		return call(d, o, custom, path);
	if (str_ends(type, "_call_output"))
		return output(d, o, path);
	if (strcmp(type, "reasoning") == 0 && verb != WIRE_DROP)
		reasoning(d, o);
	return 0;
}

static int tool(struct wire_rd *d, const json_t *o, const char *space, const char *path)
{
	const json_t *strict = js_get(o, "strict");
	const char *name = wire_need(d, o, "name", path);
	if (name == NULL)
		return -1;
	d->r->tools[d->r->n_tools++] = (struct wire_tool){ .name = name,
		.space = space,
		.description = js_str(o, "description"),
		.schema = js_get(o, "parameters"),
		.grammar = js_get(o, "format"),
		.strict = strict == NULL ? -1 : json_is_true(strict),
		.custom = strcmp(js_str_or(o, "type", ""), "custom") == 0 };
	return 0;
}

/* The tools of a namespace: functions and custom ones. */
static int group(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *space = wire_need(d, o, "name", path), *type;
	size_t i;
	json_t *one;
	if (space == NULL)
		return -1;
	json_array_foreach(js_get(o, "tools"), i, one) {
		const char *at = wire_path(d, path, "tools", i);
		type = js_str_or(one, "type", "");
		if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
			return wire_bad(d, at, "is no function and no custom tool");
		if (wire_known(d, known, type, one, at) != 0)
			return -1;
		if (tool(d, one, space, at) != 0)
			return -1;
	}
	return 0;
}

static int tool_list(struct wire_rd *d, const json_t *list, size_t *searches, const char **search_path)
{
	size_t i;
	json_t *one;
	enum wire_verb verb;
	json_array_foreach(list, i, one) {
		const char *path = wire_path(d, "", "tools", i), *type = js_str_or(one, "type", "");
		if (str_starts(type, "web_search")) /* some names have a date */
			type = str_starts(type, "web_search_preview") ? "web_search_preview" : "web_search";
		if (wire_rule_type(d, "tool", type, path, &verb) != 0)
			return -1;
		if (wire_known(d, known, type, one, path) != 0)
			return -1;
		if (verb == WIRE_DROP) {
			*search_path = path;
			++*searches;
		} else if (strcmp(type, "namespace") == 0 ? group(d, one, path) != 0
							  : tool(d, one, NULL, path) != 0) {
			return -1;
		}
	}
	return 0;
}

static int choice(struct wire_rd *d, const json_t *v)
{
	const char *type = js_str_or(v, "type", "");
	if (json_is_string(v))
		return wire_choice_word(d, json_string_value(v));
	if (strcmp(type, "allowed_tools") == 0)
		return wire_choice_word(d, js_str_or(v, "mode", "auto")) != 0
		    ? -1
		    : wire_tools_allow(d, js_get(v, "tools"), "tool_choice");
	d->r->choice = WIRE_CHOICE_ONE;
	d->r->choice_name = js_str(v, "name");
	d->r->choice_space = js_str(v, "namespace");
	if (d->r->choice_name != NULL && (strcmp(type, "function") == 0 || strcmp(type, "custom") == 0))
		return 0;
	return wire_bad(d, "tool_choice", "must be auto, none, required or name a function or custom tool");
}

static int tools(struct wire_rd *d)
{
	const json_t *list = js_get(d->r->body, "tools"), *v = js_get(d->r->body, "tool_choice");
	const char *search_path = "";
	size_t most = json_array_size(list) + 1, searches = 0, i;
	json_t *one;
	json_array_foreach(list, i, one)
		most += json_array_size(js_get(one, "tools"));
	d->r->tools = mem_alloc(d->m, most * sizeof *d->r->tools);
	if (tool_list(d, list, &searches, &search_path) != 0 || (v != NULL && choice(d, v) != 0))
		return -1;
	return wire_tools_done(d, searches, search_path);
}

static int text(struct wire_rd *d)
{
	const json_t *o = js_get(d->r->body, "text"), *f = js_get(o, "format");
	enum wire_verb verb;
	const json_t *thought = js_get(d->r->body, "reasoning");
	if (wire_known(d, known, "text of the body", o, "text") != 0 ||
	    wire_known(d, known, "reasoning of the body", thought, "reasoning") != 0)
		return -1;
	d->r->verbosity = js_str(o, "verbosity");
	if (f == NULL)
		return 0;
	if (wire_rule_type(d, "format", js_str(f, "type"), "text.format", &verb) != 0)
		return -1;
	return wire_format_set(d, js_str(f, "type"), f, "text.format");
}

int wire_read_responses(struct wire_rd *d)
{
	struct wire_request *r = d->r;
	const json_t *input = js_get(r->body, "input");
	const char *instructions = js_str(r->body, "instructions");
	size_t i;
	json_t *one;
	r->turns = mem_alloc(d->m, (json_array_size(input) + 2) * sizeof *r->turns);
	if (instructions != NULL)
		wire_part_add(wire_turn_add(d, WIRE_SYSTEM, 1), WIRE_TEXT)->text = instructions;
	if (json_is_string(input))
		wire_part_add(wire_turn_add(d, WIRE_USER, 1), WIRE_TEXT)->text = json_string_value(input);
	json_array_foreach(input, i, one)
		if (item(d, one, wire_path(d, "", "input", i)) != 0)
			return -1;
	if (tools(d) != 0 || text(d) != 0)
		return -1;
	wire_read_common(r);
	r->max_out = js_int(r->body, "max_output_tokens", 0);
	r->effort = js_str(js_get(r->body, "reasoning"), "effort");
	return 0;
}
