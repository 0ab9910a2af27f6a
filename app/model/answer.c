/* Buffered answers: what is common to their readers and writers. */
#include "model/answer.h"

#include <string.h>

#include "base/js.h"

static const struct wire_tool *by_flat(const struct wire_names *names, const char *flat)
{
	for (size_t i = 0; names != NULL && i < names->r->n_tools; i++)
		if (strcmp(names->r->tools[i].flat, flat) == 0)
			return &names->r->tools[i];
	return NULL;
}

bool wire_is_custom(const struct wire_names *names, const char *flat)
{
	const struct wire_tool *t = by_flat(names, flat);
	return t != NULL && t->custom;
}

struct wire_part wire_own_call(struct mem *m, const struct wire_names *names, const struct wire_part *p)
{
	struct wire_part own = *p;
	const struct wire_tool *t = by_flat(names, p->name);
	if (t == NULL)
		return own;
	own.name = t->name;
	own.space = t->space;
	if (!t->custom || p->custom)
		return own;
	struct err e = { 0 };
	const json_t *args = mem_json(m, wire_parse(p->text, strlen(p->text), &e));
	const char *input = js_str(args, "input");
	own.custom = true;
	own.text = input == NULL ? p->text : input; /* a model that writes the input itself meant the same */
	return own;
}

const char *wire_mark_of(struct mem *m, const struct wire_part *p)
{
	auto_buf struct buf b = BUF(16u << 20);
	wire_mark(&b, p->maker, p->redacted, str_of(p->id), str_of(p->opaque));
	return mem_strn(m, buf_c(&b), b.n);
}

const char *wire_answer_text(struct mem *m, const struct wire_answer *a)
{
	return wire_parts_text(m, a->parts, a->n_parts, "");
}

size_t wire_answer_written(const struct wire_answer *a)
{
	size_t one = 0;
	for (size_t i = 0; i < a->n_parts; i++) {
		const struct wire_part *p = &a->parts[i];
		one += (p->text == NULL ? 0 : strlen(p->text)) + (p->name == NULL ? 0 : strlen(p->name));
	}
	return one * (size_t)a->n;
}

const char *wire_stop_reason(enum wire_finish f, bool sequence)
{
	switch (f) {
	case WIRE_LENGTH:
		return "max_tokens";
	case WIRE_CALLS:
		return "tool_use";
	case WIRE_REFUSED:
		return "refusal";
	case WIRE_PAUSED:
		return "pause_turn";
	case WIRE_UNFINISHED:
	case WIRE_STOP:
		break;
	}
	return sequence ? "stop_sequence" : "end_turn";
}

json_t *wire_item_message(const char *id, const char *text, const char *refusal)
{
	json_t *content = js_pack("[]"), *part;
	if (text != NULL) {
		part = js_pack("{s:s,s:[],s:[]}", "type", "output_text", "annotations", "logprobs");
		js_set_str(part, "text", text);
		js_push(content, part);
	}
	if (refusal != NULL) {
		part = js_pack("{s:s}", "type", "refusal");
		js_set_str(part, "refusal", refusal);
		js_push(content, part);
	}
	json_t *o = js_pack("{s:s,s:s,s:s,s:o}", "type", "message", "status", "completed", "role",
	    "assistant", "content", content);
	js_set_str(o, "id", id);
	return o;
}

json_t *wire_item_call(const char *id, const struct wire_part *call)
{
	json_t *o = js_pack(
	    "{s:s,s:s}", "type", call->custom ? "custom_tool_call" : "function_call", "status", "completed");
	js_set_str(o, "id", id);
	js_set_str(o, "call_id", call->id);
	js_set_str(o, "name", call->name);
	if (call->space != NULL)
		js_set_str(o, "namespace", call->space);
	js_set_str(o, call->custom ? "input" : "arguments", call->text);
	return o;
}

json_t *wire_item_reasoning(const char *id, const char *text, const char *mark)
{
	json_t *summary = js_pack("[]");
	if (text[0] != 0) {
		json_t *part = js_pack("{s:s}", "type", "summary_text");
		js_set_str(part, "text", text);
		js_push(summary, part);
	}
	json_t *o = js_pack("{s:s,s:o}", "type", "reasoning", "summary", summary);
	js_set_str(o, "id", id);
	js_set_str(o, "encrypted_content", mark);
	return o;
}

json_t *wire_response(
    const struct wire_self *self, enum wire_finish f, json_t *items, const struct wire_usage *u)
{
	bool cut = f == WIRE_LENGTH || f == WIRE_REFUSED;
	json_t *o = js_pack("{s:n,s:s,s:I,s:s,s:n,s:n,s:n,s:n,s:n,s:b,s:n,s:s,s:[],s:n,s:n,s:{}}", "id",
	    "object", "response", "created_at", (json_int_t)self->created_s, "status",
	    f == WIRE_UNFINISHED ? "in_progress"
		: cut            ? "incomplete"
				 : "completed",
	    "error", "incomplete_details", "instructions", "model", "output", "parallel_tool_calls", 1,
	    "temperature", "tool_choice", "auto", "tools", "top_p", "usage", "metadata");
	auto_buf struct buf id = BUF(256);
	(void)buf_fmt(&id, "resp_%s", self->tail);
	js_set_str(o, "id", buf_c(&id));
	js_set_str(o, "model", self->model);
	js_set(o, "output", items);
	if (cut)
		js_set(o, "incomplete_details",
		    js_pack("{s:s}", "reason", f == WIRE_LENGTH ? "max_output_tokens" : "content_filter"));
	if (u != NULL && u->known)
		js_set(o, "usage", wire_usage_json(WIRE_RESPONSES, u));
	return o;
}
