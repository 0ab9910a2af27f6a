/* responses as a stream. Agents need output_item.done of each item, and response.completed; SDKs need the events between. */
#include <stdio.h>

#include "base/js.h"
#include "model/out.h"

/* An event, numbered; takes v. */
static void put(struct wire_out *o, const char *type, json_t *v, struct buf *to)
{
	js_set_str(v, "type", type);
	js_set(v, "sequence_number", json_integer(o->seq++));
	wire_put_json(to, type, v);
}

static void put_response(
    struct wire_out *o, const char *type, enum wire_finish f, json_t *items, struct buf *to)
{
	put(o, type,
	    js_pack("{s:n,s:n,s:o}", "type", "sequence_number", "response",
		wire_response(&o->self, f, items, &o->usage)),
	    to);
}

static void begin(struct wire_out *o, struct buf *to)
{
	o->items = js_pack("[]");
	put_response(o, "response.created", WIRE_UNFINISHED, js_pack("[]"), to);
	put_response(o, "response.in_progress", WIRE_UNFINISHED, js_pack("[]"), to);
}

static json_t *item(struct wire_out *o, bool done)
{
	const char *text = done ? buf_c(&o->text) : NULL;
	json_t *v = NULL;
	struct wire_part call;
	switch (o->open) {
	case WIRE_B_TEXT:
		v = wire_item_message(o->id, text, NULL);
		break;
	case WIRE_B_REFUSAL:
		v = wire_item_message(o->id, NULL, text);
		break;
	case WIRE_B_REASONING:
		v = wire_item_reasoning(o->id, done ? text : "", done ? wire_out_mark(o) : "");
		break;
	case WIRE_B_CALL:
		call = wire_out_head(o)->own;
		if (!done)
			call.text = "";
		v = wire_item_call(o->id, &call);
		break;
	case WIRE_B_NONE:
		break;
	}
	if (!done && o->open != WIRE_B_REASONING)
		js_set_str(v, "status", "in_progress");
	return v;
}

static json_t *where(const struct wire_out *o)
{
	json_t *v = js_pack(
	    "{s:n,s:n,s:n,s:i}", "type", "sequence_number", "item_id", "output_index", o->blocks - 1);
	js_set_str(v, "item_id", o->id);
	return v;
}

/* The one part of an item that has parts: an event with it, or with its text. */
static json_t *in_part(const struct wire_out *o)
{
	json_t *v = where(o);
	js_set(v, o->open == WIRE_B_REASONING ? "summary_index" : "content_index", json_integer(0));
	return v;
}

static json_t *part(const struct wire_out *o, const char *text)
{
	json_t *p = o->open == WIRE_B_REASONING ? js_pack("{s:s}", "type", "summary_text")
	    : o->open == WIRE_B_REFUSAL
	    ? js_pack("{s:s}", "type", "refusal")
	    : js_pack("{s:s,s:[],s:[]}", "type", "output_text", "annotations", "logprobs");
	js_set_str(p, o->open == WIRE_B_REFUSAL ? "refusal" : "text", text);
	return p;
}

static bool has_part(const struct wire_out *o)
{
	return o->open != WIRE_B_CALL && !o->redacted;
}

static void open_(struct wire_out *o, struct buf *to)
{
	static const char *const prefixes[] = { "", "msg", "msg", "rs", "fc" };
	(void)snprintf(o->id, sizeof o->id, "%s_%s_%d", prefixes[o->open], o->self.tail, o->blocks - 1);
	json_t *v = js_pack("{s:n,s:n,s:i,s:o}", "type", "sequence_number", "output_index", o->blocks - 1,
	    "item", item(o, false));
	put(o, "response.output_item.added", v, to);
	if (!has_part(o))
		return;
	v = in_part(o);
	js_set(v, "part", part(o, ""));
	put(o,
	    o->open == WIRE_B_REASONING ? "response.reasoning_summary_part.added"
					: "response.content_part.added",
	    v, to);
}

static const char *event_of(const struct wire_out *o, bool done)
{
	switch (o->open) {
	case WIRE_B_REFUSAL:
		return done ? "response.refusal.done" : "response.refusal.delta";
	case WIRE_B_REASONING:
		return done ? "response.reasoning_summary_text.done"
			    : "response.reasoning_summary_text.delta";
	case WIRE_B_CALL:
		if (wire_out_head((struct wire_out *)(uintptr_t)o)->own.custom)
			return done ? "response.custom_tool_call_input.done"
				    : "response.custom_tool_call_input.delta";
		return done ? "response.function_call_arguments.done"
			    : "response.function_call_arguments.delta";
	case WIRE_B_NONE:
	case WIRE_B_TEXT:
		break;
	}
	return done ? "response.output_text.done" : "response.output_text.delta";
}

static void delta(struct wire_out *o, struct str text, struct buf *to)
{
	const char *type = event_of(o, false);
	(void)buf_fmt(to,
	    "event: %s\ndata: "
	    "{\"type\":\"%s\",\"sequence_number\":%lld,\"item_id\":\"%s\",\"output_index\":%d,",
	    type, type, o->seq++, o->id, o->blocks - 1);
	if (o->open == WIRE_B_TEXT)
		(void)buf_str(to, "\"content_index\":0,\"logprobs\":[],\"delta\":");
	else
		(void)buf_str(to,
		    o->open == WIRE_B_REFUSAL         ? "\"content_index\":0,\"delta\":"
			: o->open == WIRE_B_REASONING ? "\"summary_index\":0,\"delta\":"
						      : "\"delta\":");
	wire_put_text(to, text);
	(void)buf_str(to, "}\n\n");
}

static void close_part(struct wire_out *o, struct buf *to)
{
	json_t *v = in_part(o);
	js_set_str(v, o->open == WIRE_B_REFUSAL ? "refusal" : "text", buf_c(&o->text));
	if (o->open == WIRE_B_TEXT)
		js_set(v, "logprobs", js_pack("[]"));
	put(o, event_of(o, true), v, to);
	v = in_part(o);
	js_set(v, "part", part(o, buf_c(&o->text)));
	put(o,
	    o->open == WIRE_B_REASONING ? "response.reasoning_summary_part.done"
					: "response.content_part.done",
	    v, to);
}

static void close_(struct wire_out *o, struct buf *to)
{
	if (o->open == WIRE_B_CALL) {
		const struct wire_part *p = &wire_out_head(o)->own;
		json_t *v = where(o);
		if (!p->custom)
			js_set_str(v, "name", p->name);
		js_set_str(v, p->custom ? "input" : "arguments", p->text);
		put(o, event_of(o, true), v, to);
	} else if (has_part(o)) {
		close_part(o, to);
	}
	json_t *done = item(o, true);
	js_push(o->items, json_incref(done));
	put(o, "response.output_item.done",
	    js_pack(
		"{s:n,s:n,s:i,s:o}", "type", "sequence_number", "output_index", o->blocks - 1, "item", done),
	    to);
}

static void end(struct wire_out *o, struct buf *to)
{
	bool cut = o->finish == WIRE_LENGTH || o->finish == WIRE_REFUSED;
	put_response(
	    o, cut ? "response.incomplete" : "response.completed", o->finish, json_incref(o->items), to);
}

const struct wire_out_ops wire_out_responses = { begin, open_, delta, close_, end };
