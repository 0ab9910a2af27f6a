/* messages as a stream. Agents need every event's name, message_start, and each block's stop; they act on the end of the stream. */
#include "base/js.h"
#include "model/out.h"

static void begin(struct wire_out *o, struct buf *to)
{
	json_t *message = js_pack("{s:n,s:s,s:s,s:n,s:[],s:n,s:n}", "id", "type", "message", "role",
	    "assistant", "model", "content", "stop_reason", "stop_sequence");
	auto_buf struct buf id = BUF(256);
	(void)buf_fmt(&id, "msg_%s", o->self.tail);
	js_set_str(message, "id", buf_c(&id));
	js_set_str(message, "model", o->self.model);
	js_set(message, "usage", wire_usage_json(WIRE_MESSAGES, &o->usage));
	wire_put_json(to, "message_start", js_pack("{s:s,s:o}", "type", "message_start", "message", message));
}

static json_t *block(struct wire_out *o)
{
	json_t *b;
	if (o->open == WIRE_B_CALL) {
		const struct wire_part *p = &wire_out_head(o)->own;
		b = js_pack("{s:s,s:n,s:n,s:{}}", "type", "tool_use", "id", "name", "input");
		js_set_str(b, "id", p->id);
		js_set_str(b, "name", p->name);
	} else if (o->open == WIRE_B_REASONING && o->redacted) {
		b = js_pack("{s:s}", "type", "redacted_thinking");
		js_set_str(b, "data", wire_out_mark(o));
	} else if (o->open == WIRE_B_REASONING) {
		b = js_pack("{s:s,s:s,s:s}", "type", "thinking", "thinking", "", "signature", "");
	} else {
		b = js_pack("{s:s,s:s}", "type", "text", "text", "");
	}
	return b;
}

static void open_(struct wire_out *o, struct buf *to)
{
	wire_put_json(to, "content_block_start",
	    js_pack("{s:s,s:i,s:o}", "type", "content_block_start", "index", o->blocks - 1, "content_block",
		block(o)));
}

static void put(struct wire_out *o, const char *type, const char *member, struct str text, struct buf *to)
{
	(void)buf_fmt(to,
	    "event: content_block_delta\ndata: "
	    "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":",
	    o->blocks - 1, type, member);
	wire_put_text(to, text);
	(void)buf_str(to, "}}\n\n");
}

static void delta(struct wire_out *o, struct str text, struct buf *to)
{
	if (o->open == WIRE_B_CALL)
		put(o, "input_json_delta", "partial_json", text, to);
	else if (o->open == WIRE_B_REASONING)
		put(o, "thinking_delta", "thinking", text, to);
	else
		put(o, "text_delta", "text", text, to);
}

static void close_(struct wire_out *o, struct buf *to)
{
	if (o->open == WIRE_B_REASONING && !o->redacted)
		put(o, "signature_delta", "signature", str_of(wire_out_mark(o)), to);
	(void)buf_fmt(to,
	    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%d}\n\n",
	    o->blocks - 1);
}

static void end(struct wire_out *o, struct buf *to)
{
	enum wire_finish f = o->refused && o->finish == WIRE_STOP ? WIRE_REFUSED : o->finish;
	bool sequence = o->stop[0] != 0;
	json_t *d = js_pack("{s:s,s:n}", "stop_reason", wire_stop_reason(f, sequence), "stop_sequence");
	if (sequence)
		js_set_str(d, "stop_sequence", o->stop);
	wire_put_json(to, "message_delta",
	    js_pack("{s:s,s:o,s:o}", "type", "message_delta", "delta", d, "usage",
		wire_usage_json(WIRE_MESSAGES, &o->usage)));
	(void)buf_str(to, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

const struct wire_out_ops wire_out_messages = { begin, open_, delta, close_, end };
