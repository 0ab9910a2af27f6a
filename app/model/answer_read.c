/* Buffered answers of upstreams. */
#include <string.h>

#include "base/js.h"
#include "model/answer.h"
#include "model/scan.h"
#include "model/wire_int.h"

static struct wire_part *add(struct wire_answer *a, enum wire_part_kind kind, const char *text)
{
	struct wire_part *p = &a->parts[a->n_parts++];
	*p = (struct wire_part){ .kind = kind, .text = text };
	return p;
}

static int not_one(struct err *e, const char *what)
{
	return err_set(e, ERR_UPSTREAM, "The model provider's answer %s.", what);
}

static int add_call(struct wire_answer *a, const char *id, const char *name, const char *text, struct err *e)
{
	if (id == NULL || name == NULL || name[0] == 0 || text == NULL)
		return not_one(e, "holds a call without an id, a name or arguments");
	struct wire_part *p = add(a, WIRE_CALL, text);
	p->id = id;
	p->name = name;
	return 0;
}

/* Arguments that are no JSON object, in a call that was not cut off. Empty ones are those of a tool that takes none. */
static bool unparsed(const struct wire_answer *a)
{
	for (size_t i = 0; i < a->n_parts; i++) {
		const struct wire_part *p = &a->parts[i];
		struct err e = { 0 };
		if (p->kind != WIRE_CALL || p->custom || p->text[0] == 0)
			continue;
		auto_json json_t *v = wire_parse(p->text, strlen(p->text), &e);
		if (!json_is_object(v))
			return a->finish != WIRE_LENGTH;
	}
	return false;
}

static bool has_calls(const struct wire_answer *a)
{
	for (size_t i = 0; i < a->n_parts; i++)
		if (a->parts[i].kind == WIRE_CALL)
			return true;
	return false;
}

/* Some servers write the object itself instead of its text. */
static const char *arguments(struct mem *m, const json_t *f)
{
	const json_t *v = js_get(f, "arguments");
	return json_is_object(v) ? js_dump(m, v) : js_str_or(f, "arguments", "");
}

/* A string, or with some servers a list of parts: text, and thoughts in parts of their own. */
static void content(const json_t *v, struct wire_answer *a)
{
	size_t i, k;
	json_t *part, *inner;
	if (json_is_string(v) && json_string_length(v) > 0)
		(void)add(a, WIRE_TEXT, json_string_value(v));
	json_array_foreach(v, i, part) {
		if (js_str(part, "text") != NULL)
			(void)add(a, WIRE_TEXT, js_str(part, "text"));
		json_array_foreach(js_get(part, "thinking"), k, inner) {
			if (js_str(inner, "text") != NULL)
				add(a, WIRE_REASONING, js_str(inner, "text"))->maker = WIRE_CHAT;
		}
	}
}

static size_t content_size(const json_t *v)
{
	size_t n = 1, i;
	json_t *part;
	json_array_foreach(v, i, part)
		n += 1 + json_array_size(js_get(part, "thinking"));
	return n;
}

static int read_chat(struct mem *m, const json_t *v, struct wire_answer *a, struct err *e)
{
	const json_t *choices = js_get(v, "choices"), *choice = json_array_get(choices, 0);
	const json_t *message = js_get(choice, "message"), *calls = js_get(message, "tool_calls");
	const json_t *said = js_get(message, "content");
	const char *refusal = js_str(message, "refusal");
	const char *thought = js_str_or(message, "reasoning_content", js_str(message, "reasoning"));
	size_t i;
	json_t *c;
	if (!json_is_object(message))
		return not_one(e, "has no choices");
	a->n = (long long)json_array_size(choices);
	a->parts = mem_alloc(m, (json_array_size(calls) + content_size(said) + 4) * sizeof *a->parts);
	if (thought != NULL && thought[0] != 0)
		add(a, WIRE_REASONING, thought)->maker = WIRE_CHAT;
	content(said, a);
	if (refusal != NULL && refusal[0] != 0)
		(void)add(a, WIRE_REFUSAL, refusal);
	json_array_foreach(calls, i, c) {
		const json_t *f = js_get(c, "function"), *custom = js_get(c, "custom");
		const char *id = js_str_or(c, "id", NULL);
		if (id == NULL || id[0] == 0)
			id = mem_fmt(m, "call_%zu", i);
		if (add_call(a, id, js_str(custom != NULL ? custom : f, "name"),
			custom != NULL ? js_str(custom, "input") : arguments(m, f), e) != 0)
			return -1;
		a->parts[a->n_parts - 1].custom = custom != NULL;
	}
	const json_t *legacy = js_get(message, "function_call");
	if (legacy != NULL &&
	    add_call(a, "call_0", js_str(legacy, "name"), js_str(legacy, "arguments"), e) != 0)
		return -1;
	a->finish = wire_finish_of(WIRE_CHAT, str_of(js_str(choice, "finish_reason")));
	return 0;
}

static void responses_message(const json_t *item, struct wire_answer *a)
{
	size_t i;
	json_t *part;
	json_array_foreach(js_get(item, "content"), i, part) {
		const char *text = js_str(part, "text"), *refusal = js_str(part, "refusal");
		if (text != NULL)
			(void)add(a, WIRE_TEXT, text);
		else if (refusal != NULL)
			(void)add(a, WIRE_REFUSAL, refusal);
	}
}

static void responses_reasoning(struct mem *m, const json_t *item, struct wire_answer *a)
{
	size_t i;
	json_t *part;
	auto_buf struct buf b = BUF(16u << 20);
	json_array_foreach(js_get(item, "summary"), i, part)
		(void)buf_fmt(&b, "%s%s", i == 0 ? "" : "\n\n", js_str_or(part, "text", ""));
	struct wire_part *p = add(a, WIRE_REASONING, mem_strn(m, buf_c(&b), b.n));
	p->maker = WIRE_RESPONSES;
	p->id = js_str(item, "id");
	p->opaque = js_str(item, "encrypted_content");
}

static int responses_item(struct mem *m, const json_t *item, struct wire_answer *a, struct err *e)
{
	const char *type = js_str_or(item, "type", "");
	bool custom = strcmp(type, "custom_tool_call") == 0;
	if (strcmp(type, "message") == 0)
		responses_message(item, a);
	else if (strcmp(type, "reasoning") == 0)
		responses_reasoning(m, item, a);
	if (!custom && strcmp(type, "function_call") != 0)
		return 0;
	if (add_call(a, js_str(item, "call_id"), js_str(item, "name"),
		js_str(item, custom ? "input" : "arguments"), e) != 0)
		return -1;
	a->parts[a->n_parts - 1].custom = custom;
	a->parts[a->n_parts - 1].space = js_str(item, "namespace");
	return 0;
}

static int read_responses(struct mem *m, const json_t *v, struct wire_answer *a, struct err *e)
{
	const json_t *output = js_get(v, "output");
	const char *status = js_str_or(v, "status", "completed");
	size_t most = 1, i;
	json_t *item;
	if (!json_is_array(output))
		return not_one(e, "has no output");
	json_array_foreach(output, i, item)
		most += 1 + json_array_size(js_get(item, "content"));
	a->parts = mem_alloc(m, most * sizeof *a->parts);
	json_array_foreach(output, i, item)
		if (responses_item(m, item, a, e) != 0)
			return -1;
	if (strcmp(status, "completed") != 0 && strcmp(status, "incomplete") != 0)
		return not_one(e, "is neither completed nor incomplete");
	const char *reason = js_str(js_get(v, "incomplete_details"), "reason");
	a->finish = strcmp(status, "completed") == 0 ? WIRE_STOP
	    : reason != NULL                         ? wire_finish_of(WIRE_RESPONSES, str_of(reason))
						     : WIRE_LENGTH;
	return 0;
}

static int messages_block(struct mem *m, const json_t *b, struct wire_answer *a, struct err *e)
{
	const char *type = js_str_or(b, "type", "");
	if (strcmp(type, "text") == 0) {
		(void)add(a, WIRE_TEXT, js_str_or(b, "text", ""));
	} else if (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0) {
		struct wire_part *p = add(a, WIRE_REASONING, js_str_or(b, "thinking", ""));
		p->maker = WIRE_MESSAGES;
		p->redacted = strcmp(type, "redacted_thinking") == 0;
		p->opaque = js_str(b, p->redacted ? "data" : "signature");
	} else if (strcmp(type, "tool_use") == 0) {
		const json_t *input = js_get(b, "input");
		return add_call(
		    a, js_str(b, "id"), js_str(b, "name"), input == NULL ? "{}" : js_dump(m, input), e);
	}
	return 0;
}

static int read_messages(struct mem *m, const json_t *v, struct wire_answer *a, struct err *e)
{
	const json_t *content = js_get(v, "content");
	size_t i;
	json_t *b;
	if (!json_is_array(content))
		return not_one(e, "has no content");
	a->parts = mem_alloc(m, (json_array_size(content) + 1) * sizeof *a->parts);
	json_array_foreach(content, i, b)
		if (messages_block(m, b, a, e) != 0)
			return -1;
	a->finish = wire_finish_of(WIRE_MESSAGES, str_of(js_str(v, "stop_reason")));
	a->stop_sequence = js_str(v, "stop_sequence");
	return 0;
}

/* An error that came with 200. */
static bool failed(struct mem *m, const json_t *v, struct wire_answer *a)
{
	const json_t *error = js_get(v, "error");
	const char *status = js_str_or(v, "status", ""), *type = js_str_or(v, "type", "");
	bool is = error != NULL || strcmp(status, "failed") == 0 || strcmp(status, "cancelled") == 0 ||
	    strcmp(type, "error") == 0 || strcmp(js_str_or(v, "object", ""), "error") == 0;
	if (!is)
		return false;
	const json_t *o = json_is_object(error) ? error : v;
	const char *message = json_is_string(error) ? json_string_value(error) : js_str_or(o, "message", "");
	a->fault = wire_fault_named(0, js_str_or(o, "code", ""), js_str_or(o, "type", ""), message);
	a->fault_text = mem_str(m, message);
	return true;
}

int wire_answer_read(
    struct mem *m, enum provider_wire w, const char *body, size_t n, struct wire_answer *out, struct err *e)
{
	static int (*const readers[WIRES])(struct mem *, const json_t *, struct wire_answer *,
	    struct err *) = { read_chat, read_responses, read_messages };
	struct err bad = { 0 };
	*out = (struct wire_answer){ .n = 1 };
	if (w == WIRE_CHAT && n > 0 && wire_answer_plain(m, (struct str){ body, n }, out))
		return 0;
	const json_t *v = mem_json(m, n == 0 ? NULL : wire_parse(body, n, &bad));
	if (n == 0)
		return not_one(e, "is empty");
	if (v == NULL) {
		out->whole = scan_whole((struct str){ body, n });
		return not_one(e, out->whole ? "is JSON that cannot be read" : "is not JSON, or was cut off");
	}
	if (!json_is_object(v))
		return not_one(e, "is not a JSON object");
	if (failed(m, v, out))
		return 0;
	out->id = js_str(v, "id");
	out->model = js_str(v, "model");
	if (readers[w](m, v, out, e) != 0)
		return -1;
	struct wire_counts c = { 0 };
	wire_counts_json(js_get(v, "usage"), &c);
	out->usage = wire_counts_usage(w, &c);
	if (out->finish == WIRE_UNFINISHED)
		out->finish = WIRE_STOP; /* some servers leave it out of a whole answer */
	if (out->finish == WIRE_STOP && has_calls(out))
		out->finish = WIRE_CALLS;
	out->unparsed_call = unparsed(out);
	return 0;
}
