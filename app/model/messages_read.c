/* Requests of messages. */
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "model/request.h"

/* The members of each object besides `type`; others are refused by name. */
static const struct wire_known known[] = {
	{ "text", "text cache_control citations" },
	{ "image", "source cache_control transformations" },
	{ "document", "source title context cache_control citations" },
	{ "search_result", "title source content cache_control citations" },
	{ "tool_use", "id name input cache_control caller toolset_name" },
	{ "tool_result", "tool_use_id content is_error cache_control toolset_name" },
	{ "thinking", "thinking signature" },
	{ "redacted_thinking", "data" },
	{ "custom",
	    "name description input_schema strict cache_control defer_loading eager_input_streaming "
	    "input_examples "
	    "allowed_callers" },
	{ "bash", "name cache_control defer_loading input_examples allowed_callers strict" },
	{ "text_editor",
	    "name max_characters cache_control defer_loading input_examples allowed_callers strict" },
	{ "web_search",
	    "name max_uses allowed_domains blocked_domains user_location cache_control defer_loading strict "
	    "allowed_callers response_inclusion" },
	{ "thinking of the body", "budget_tokens display" },
	{ "output_config", "effort format task_budget" },
	{ "tool_choice", "name disable_parallel_tool_use" },
	{ "metadata", "user_id" },
	{ 0 },
};

/* {type: base64 | url | text | content | file, …} of an image or document. */
static int source(struct wire_rd *d, const json_t *o, struct wire_part *p, const char *path)
{
	const json_t *s = js_get(o, "source");
	const char *type = js_str_or(s, "type", "");
	if (strcmp(type, "url") == 0) {
		p->url = wire_need(d, s, "url", path);
		return p->url == NULL ? -1 : 0;
	}
	if (strcmp(type, "base64") != 0)
		return wire_bad(
		    d, path, "must have its data or a URL: a file of one vendor cannot be carried");
	p->type = wire_need(d, s, "media_type", path);
	p->data = p->type == NULL ? NULL : wire_need(d, s, "data", path);
	return p->data == NULL ? -1 : 0;
}

static int document(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const json_t *s = js_get(o, "source");
	const char *title = js_str(o, "title"), *context = js_str(o, "context");
	if (strcmp(js_str_or(s, "type", ""), "text") == 0) {
		const char *data = wire_need(d, s, "data", path);
		if (data == NULL)
			return -1;
		wire_part_add(t, WIRE_TEXT)->text = mem_fmt(d->m, "%s%s%s%s%s", title == NULL ? "" : title,
		    title == NULL ? "" : "\n", context == NULL ? "" : context, context == NULL ? "" : "\n",
		    data);
		return 0;
	}
	struct wire_part *p = wire_part_add(t, WIRE_DOCUMENT);
	p->name = title;
	return source(d, o, p, path) != 0 ? -1 : wire_document_ok(d, p, path);
}

static void found(struct wire_rd *d, const json_t *o, struct wire_turn *t)
{
	size_t i;
	json_t *one;
	auto_buf struct buf b = BUF(16u << 20);
	(void)buf_fmt(&b, "%s\n%s", js_str_or(o, "title", ""), js_str_or(o, "source", ""));
	json_array_foreach(js_get(o, "content"), i, one)
		(void)buf_fmt(&b, "\n%s", js_str_or(one, "text", ""));
	wire_part_add(t, WIRE_TEXT)->text = mem_strn(d->m, buf_c(&b), b.n);
}

static int use(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const json_t *input = js_get(o, "input");
	const char *id = wire_need(d, o, "id", path);
	const char *name = id == NULL ? NULL : wire_need(d, o, "name", path);
	if (name == NULL)
		return -1;
	struct wire_part *p = wire_part_add(t, WIRE_CALL);
	p->id = id;
	p->name = name;
	p->text = input == NULL ? "{}" : js_dump(d->m, input);
	return 0;
}

static int block(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path, bool inner);

static int blocks(struct wire_rd *d, const json_t *v, struct wire_turn *t, const char *path, bool inner)
{
	size_t i;
	json_t *one;
	if (json_is_string(v))
		wire_part_add(t, WIRE_TEXT)->text = json_string_value(v);
	else if (v != NULL && !json_is_array(v))
		return wire_bad(d, path, "must be a string or a list of blocks");
	json_array_foreach(v, i, one)
		if (block(d, one, t, wire_path(d, path, "content", i), inner) != 0)
			return -1;
	return 0;
}

static int result(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path)
{
	const json_t *c = js_get(o, "content");
	const char *id = wire_need(d, o, "tool_use_id", path);
	if (id == NULL)
		return -1;
	struct wire_turn in = { .parts = mem_alloc(d->m, (json_array_size(c) + 1) * sizeof *in.parts) };
	if (blocks(d, c, &in, path, true) != 0)
		return -1;
	struct wire_part *p = wire_part_add(t, WIRE_RESULT);
	p->id = id;
	p->failed = js_bool(o, "is_error", false);
	p->parts = in.parts;
	p->n_parts = in.n;
	return 0;
}

/* inner: within a result, where no calls and results stand. */
static int block(struct wire_rd *d, const json_t *o, struct wire_turn *t, const char *path, bool inner)
{
	const char *type = js_str(o, "type");
	enum wire_verb verb;
	if (wire_rule_type(d, "block", type, path, &verb) != 0 || wire_known(d, known, type, o, path) != 0)
		return -1;
	if (strcmp(type, "text") == 0) {
		const char *text = wire_need(d, o, "text", path);
		if (text == NULL)
			return -1;
		wire_part_add(t, WIRE_TEXT)->text = text;
		return 0;
	}
	if (strcmp(type, "image") == 0)
		return source(d, o, wire_part_add(t, WIRE_IMAGE), path);
	if (strcmp(type, "document") == 0)
		return document(d, o, t, path);
	if (strcmp(type, "search_result") == 0) {
		found(d, o, t);
		return 0;
	}
	if (inner)
		return wire_bad(d, path, "cannot stand in a tool_result");
	if (strcmp(type, "tool_use") == 0)
		return use(d, o, t, path);
	if (strcmp(type, "tool_result") == 0)
		return result(d, o, t, path);
	bool redacted = strcmp(type, "redacted_thinking") == 0;
	if (verb != WIRE_DROP) { /* thinking */
		struct wire_part *p = wire_part_add(t, WIRE_REASONING);
		p->text = js_str_or(o, "thinking", "");
		wire_unmark(d->m, WIRE_MESSAGES, js_str(o, redacted ? "data" : "signature"), p);
	}
	return 0; /* what is dropped */
}

static int message(struct wire_rd *d, const json_t *o, const char *path)
{
	const char *role = js_str(o, "role");
	const json_t *c = js_get(o, "content");
	enum wire_verb verb;
	if (wire_rule_check(d, "message", o, path) != 0 ||
	    wire_rule_type(d, "role", role, mem_fmt(d->m, "%s.role", path), &verb) != 0)
		return -1;
	enum wire_role who = strcmp(role, "user") == 0 ? WIRE_USER
	    : strcmp(role, "assistant") == 0           ? WIRE_ASSISTANT
						       : WIRE_SYSTEM;
	return blocks(d, c, wire_turn_add(d, who, json_array_size(c) + 1), path, false);
}

static int system_(struct wire_rd *d)
{
	const json_t *v = js_get(d->r->body, "system");
	size_t kept = 0;
	if (v == NULL)
		return 0;
	struct wire_turn *t = wire_turn_add(d, WIRE_SYSTEM, json_array_size(v) + 1);
	if (blocks(d, v, t, "system", true) != 0)
		return -1;
	/* A line that changes at every turn and means something to one vendor's billing only: it would spoil every prompt cache. */
	for (size_t i = 0; i < t->n; i++)
		if (!str_starts(t->parts[i].text, "x-anthropic-billing-header:"))
			t->parts[kept++] = t->parts[i];
	t->n = kept;
	return 0;
}

/* The vendor's client tools, whose input its models know by heart: what is published of it. */
static const char *known_schema(const char *kind)
{
	if (strcmp(kind, "bash") == 0)
		return "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
		       "\"description\":\"The command to run; "
		       "required unless restart is "
		       "true.\"},\"restart\":{\"type\":\"boolean\",\"description\":\"True starts the shell "
		       "anew.\"}}}";
	return "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
	       "\"create\","
	       "\"str_replace\",\"insert\"]},\"path\":{\"type\":\"string\"},\"file_text\":{\"type\":"
	       "\"string\"},\"old_str\":{"
	       "\"type\":\"string\"},\"new_str\":{\"type\":\"string\"},\"insert_line\":{\"type\":\"integer\"}"
	       ",\"insert_text\":{"
	       "\"type\":\"string\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},"
	       "\"required\":["
	       "\"command\",\"path\"]}";
}

/* "bash_20250124" is of the kind "bash"; no type is "custom". */
static const char *tool_kind(struct wire_rd *d, const json_t *o)
{
	const char *type = js_str_or(o, "type", "custom"), *date = strrchr(type, '_');
	if (date != NULL && strspn(date + 1, "0123456789") == strlen(date + 1) && strlen(date + 1) == 8)
		return mem_strn(d->m, type, (size_t)(date - type));
	return type;
}

static int tool(struct wire_rd *d, const json_t *o, const char *kind, const char *path)
{
	const char *name = wire_need(d, o, "name", path);
	const json_t *strict = js_get(o, "strict");
	if (name == NULL)
		return -1;
	struct wire_tool *t = &d->r->tools[d->r->n_tools++];
	*t = (struct wire_tool){ .name = name,
		.description = js_str(o, "description"),
		.schema = js_get(o, "input_schema"),
		.strict = strict == NULL ? -1 : json_is_true(strict) };
	if (strcmp(kind, "custom") == 0)
		return 0;
	struct err e = { 0 };
	const char *schema = known_schema(kind);
	t->schema = mem_json(d->m, js_parse(schema, strlen(schema), &e));
	t->description = strcmp(kind, "bash") == 0 ? "Run a command in a shell that stays."
						   : "View, create and edit text files.";
	return 0;
}

static int choice(struct wire_rd *d, const json_t *v)
{
	const char *type = js_str_or(v, "type", "");
	struct wire_request *r = d->r;
	if (wire_known(d, known, "tool_choice", v, "tool_choice") != 0)
		return -1;
	if (json_is_true(js_get(v, "disable_parallel_tool_use")))
		r->parallel = 0;
	if (strcmp(type, "tool") == 0) {
		r->choice = WIRE_CHOICE_ONE;
		r->choice_name = js_str(v, "name");
		return r->choice_name != NULL ? 0 : wire_bad(d, "tool_choice", "must name a tool");
	}
	if (strcmp(type, "any") != 0 && strcmp(type, "auto") != 0 && strcmp(type, "none") != 0)
		return wire_bad(d, "tool_choice", "must have the type auto, any, tool or none");
	return wire_choice_word(d, strcmp(type, "any") == 0 ? "required" : type);
}

static int tools(struct wire_rd *d)
{
	const json_t *list = js_get(d->r->body, "tools"), *v = js_get(d->r->body, "tool_choice");
	const char *search_path = "";
	size_t i, searches = 0;
	json_t *one;
	enum wire_verb verb;
	d->r->tools = mem_alloc(d->m, (json_array_size(list) + 1) * sizeof *d->r->tools);
	json_array_foreach(list, i, one) {
		const char *path = wire_path(d, "", "tools", i), *kind = tool_kind(d, one);
		if (wire_rule_type(d, "tool", kind, path, &verb) != 0 ||
		    wire_known(d, known, kind, one, path) != 0)
			return -1;
		if (verb == WIRE_DROP) {
			search_path = path;
			searches++;
		} else if (tool(d, one, kind, path) != 0) {
			return -1;
		}
	}
	if (v != NULL && choice(d, v) != 0)
		return -1;
	return wire_tools_done(d, searches, search_path);
}

static int format(struct wire_rd *d)
{
	const json_t *f = js_get(js_get(d->r->body, "output_config"), "format");
	const char *at = "output_config.format";
	if (f == NULL) {
		f = js_get(d->r->body, "output_format");
		at = "output_format";
	}
	if (f == NULL)
		return 0;
	if (strcmp(js_str_or(f, "type", ""), "json_schema") != 0)
		return wire_bad(d, at, "must have the type json_schema");
	return wire_format_set(d, "json_schema", f, at);
}

enum { BUDGET_LOW = 4096, BUDGET_MEDIUM = 16384, USER_MAX = 64 };

static const char *user(struct wire_rd *d)
{
	char hex[SHA256_HEX];
	const char *id = js_str(js_get(d->r->body, "metadata"), "user_id");
	if (id == NULL || strlen(id) <= USER_MAX)
		return id;
	sha256_hex(id, strlen(id), hex);
	return mem_strn(d->m, hex, USER_MAX);
}

int wire_read_messages(struct wire_rd *d)
{
	struct wire_request *r = d->r;
	const json_t *messages = js_get(r->body, "messages"), *thinking = js_get(r->body, "thinking");
	size_t i;
	json_t *one;
	r->turns = mem_alloc(d->m, (json_array_size(messages) + 2) * sizeof *r->turns);
	if (system_(d) != 0)
		return -1;
	json_array_foreach(messages, i, one)
		if (message(d, one, wire_path(d, "", "messages", i)) != 0)
			return -1;
	if (tools(d) != 0 || format(d) != 0 ||
	    wire_known(d, known, "thinking of the body", thinking, "thinking") != 0 ||
	    wire_known(d, known, "output_config", js_get(r->body, "output_config"), "output_config") != 0 ||
	    wire_known(d, known, "metadata", js_get(r->body, "metadata"), "metadata") != 0)
		return -1;
	r->max_out = js_int(r->body, "max_tokens", 0);
	r->temperature = js_get(r->body, "temperature");
	r->top_p = js_get(r->body, "top_p");
	r->stop = js_get(r->body, "stop_sequences");
	r->user = user(d);
	if (strcmp(js_str_or(thinking, "type", ""), "enabled") == 0) {
		long long budget = js_int(thinking, "budget_tokens", 0);
		r->effort = budget <= BUDGET_LOW ? "low" : budget <= BUDGET_MEDIUM ? "medium" : "high";
	}
	return 0;
}
