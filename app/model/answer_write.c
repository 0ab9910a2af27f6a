/* Buffered answers for clients. */
#include <string.h>

#include "base/js.h"
#include "model/answer.h"

static void set_id(json_t *o, const char *prefix, const struct wire_self *self)
{
	auto_buf struct buf b = BUF(256);
	(void)buf_fmt(&b, "%s%s", prefix, self->tail);
	js_set_str(o, "id", buf_c(&b));
}

static json_t *chat_call(struct mem *m, const struct wire_names *names, const struct wire_part *p)
{
	struct wire_part own = wire_own_call(m, names, p);
	const char *kind = own.custom ? "custom" : "function";
	json_t *f = js_pack("{}"), *o = js_pack("{s:n,s:s}", "id", "type", kind);
	js_set_str(f, "name", own.name);
	js_set_str(f, own.custom ? "input" : "arguments", own.text[0] == 0 && !own.custom ? "{}" : own.text);
	js_set_str(o, "id", own.id);
	js_set(o, kind, f);
	return o;
}

static const char *joined(
    struct mem *m, const struct wire_answer *a, enum wire_part_kind kind, const char *between)
{
	auto_buf struct buf b = BUF(64u << 20);
	for (size_t i = 0; i < a->n_parts; i++)
		if (a->parts[i].kind == kind && a->parts[i].text[0] != 0)
			(void)buf_fmt(&b, "%s%s", b.n == 0 ? "" : between, a->parts[i].text);
	return b.n == 0 ? NULL : mem_strn(m, buf_c(&b), b.n);
}

static json_t *write_chat(struct mem *m, const struct wire_answer *a, const struct wire_self *self)
{
	json_t *message = js_pack("{s:s,s:n,s:n}", "role", "assistant", "content", "refusal"), *calls = NULL;
	const char *thought = joined(m, a, WIRE_REASONING, "\n\n");
	js_set_str(message, "content", joined(m, a, WIRE_TEXT, ""));
	js_set_str(message, "refusal", joined(m, a, WIRE_REFUSAL, ""));
	if (thought != NULL)
		js_set_str(message, "reasoning_content", thought);
	for (size_t i = 0; i < a->n_parts; i++) {
		if (a->parts[i].kind != WIRE_CALL)
			continue;
		if (calls == NULL)
			calls = js_pack("[]");
		js_push(calls, chat_call(m, self->names, &a->parts[i]));
	}
	if (calls != NULL)
		js_set(message, "tool_calls", calls);
	json_t *choice = js_pack("{s:i,s:o,s:n,s:s}", "index", 0, "message", message, "logprobs",
	    "finish_reason", wire_finish_name(a->finish));
	json_t *o = js_pack("{s:n,s:s,s:I,s:n,s:[o]}", "id", "object", "chat.completion", "created",
	    (json_int_t)self->created_s, "model", "choices", choice);
	set_id(o, "chatcmpl-", self);
	js_set_str(o, "model", self->model);
	if (a->usage.known)
		js_set(o, "usage", wire_usage_json(WIRE_CHAT, &a->usage));
	return o;
}

static json_t *write_responses(struct mem *m, const struct wire_answer *a, const struct wire_self *self)
{
	json_t *items = js_pack("[]");
	for (size_t i = 0; i < a->n_parts; i++) {
		const struct wire_part *p = &a->parts[i];
		struct wire_part own;
		switch (p->kind) {
		case WIRE_TEXT:
			js_push(
			    items, wire_item_message(mem_fmt(m, "msg_%s_%zu", self->tail, i), p->text, NULL));
			break;
		case WIRE_REFUSAL:
			js_push(
			    items, wire_item_message(mem_fmt(m, "msg_%s_%zu", self->tail, i), NULL, p->text));
			break;
		case WIRE_REASONING:
			js_push(items,
			    wire_item_reasoning(
				mem_fmt(m, "rs_%s_%zu", self->tail, i), p->text, wire_mark_of(m, p)));
			break;
		case WIRE_CALL:
			own = wire_own_call(m, self->names, p);
			if (own.text[0] == 0 && !own.custom)
				own.text = "{}";
			js_push(items, wire_item_call(mem_fmt(m, "fc_%s_%zu", self->tail, i), &own));
			break;
		case WIRE_IMAGE:
		case WIRE_DOCUMENT:
		case WIRE_RESULT:
			break; /* no model answers with these on the wires that are read */
		}
	}
	return wire_response(self, a->finish, items, &a->usage);
}

static json_t *messages_call(struct mem *m, const struct wire_part *p, const struct wire_self *self)
{
	struct err e = { 0 };
	struct wire_part own = wire_own_call(m, self->names, p);
	json_t *o = js_pack("{s:s}", "type", "tool_use");
	json_t *input = own.text[0] == 0 ? js_pack("{}") : wire_parse(own.text, strlen(own.text), &e);
	js_set_str(o, "id", own.id);
	js_set_str(o, "name", own.name);
	js_set(o, "input", input == NULL ? js_pack("{}") : input);
	return o;
}

static json_t *messages_block(struct mem *m, const struct wire_part *p, const struct wire_self *self)
{
	json_t *o = NULL;
	if (p->kind == WIRE_CALL)
		return messages_call(m, p, self);
	if (p->kind == WIRE_TEXT || p->kind == WIRE_REFUSAL) {
		o = js_pack("{s:s,s:n}", "type", "text", "citations");
		js_set_str(o, "text", p->text);
	} else if (p->kind == WIRE_REASONING && p->text[0] == 0) {
		o = js_pack("{s:s}", "type", "redacted_thinking");
		js_set_str(o, "data", wire_mark_of(m, p));
	} else if (p->kind == WIRE_REASONING) {
		o = js_pack("{s:s}", "type", "thinking");
		js_set_str(o, "thinking", p->text);
		js_set_str(o, "signature", wire_mark_of(m, p));
	}
	return o;
}

static json_t *write_messages(struct mem *m, const struct wire_answer *a, const struct wire_self *self)
{
	json_t *content = js_pack("[]"), *block;
	bool refused = false;
	for (size_t i = 0; i < a->n_parts; i++) {
		refused = refused || a->parts[i].kind == WIRE_REFUSAL;
		block = messages_block(m, &a->parts[i], self);
		if (block != NULL)
			js_push(content, block);
	}
	enum wire_finish f = refused && a->finish == WIRE_STOP ? WIRE_REFUSED : a->finish;
	json_t *o = js_pack("{s:n,s:s,s:s,s:n,s:o,s:s,s:n}", "id", "type", "message", "role", "assistant",
	    "model", "content", content, "stop_reason", wire_stop_reason(f, a->stop_sequence != NULL),
	    "stop_sequence");
	set_id(o, "msg_", self);
	js_set_str(o, "model", self->model);
	js_set_str(o, "stop_sequence", a->stop_sequence);
	js_set(o, "usage", wire_usage_json(WIRE_MESSAGES, &a->usage));
	return o;
}

json_t *wire_answer_write(
    enum provider_wire w, const struct wire_answer *a, const struct wire_self *self, struct err *e)
{
	static json_t *(*const writers[WIRES])(struct mem *, const struct wire_answer *,
	    const struct wire_self *) = { write_chat, write_responses, write_messages };
	auto_mem struct mem *m = mem_new();
	if (w == WIRE_MESSAGES && a->unparsed_call) {
		(void)err_set(
		    e, ERR_UPSTREAM, "The model wrote the arguments of a call that are no JSON object.");
		return NULL;
	}
	return writers[w](m, a, self);
}
