/* chat.completions as a stream: chunks, the usage chunk if it was asked for, [DONE]. */
#include "base/js.h"
#include "model/out.h"

/* {"id":…,"choices":[{"index":0,"delta": … the caller goes on from here with the delta. */
static void head(const struct wire_out *o, struct buf *to)
{
	(void)buf_fmt(to,
	    "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":%lld,\"model\":",
	    o->self.tail, o->self.created_s);
	wire_put_text(to, str_of(o->self.model));
	(void)buf_str(to, ",\"choices\":[{\"index\":0,\"delta\":");
}

static void tail(const struct wire_out *o, const char *finish, struct buf *to)
{
	(void)buf_str(to, ",\"logprobs\":null,\"finish_reason\":");
	(void)buf_str(to, finish);
	(void)buf_str(to, o->self.usage_asked ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void begin(struct wire_out *o, struct buf *to)
{
	head(o, to);
	(void)buf_str(to, "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}");
	tail(o, "null", to);
}

static void open_(struct wire_out *o, struct buf *to)
{
	if (o->open != WIRE_B_CALL)
		return;
	const struct wire_part *p = &wire_out_head(o)->own;
	const char *kind = p->custom ? "custom" : "function";
	head(o, to);
	(void)buf_fmt(to, "{\"tool_calls\":[{\"index\":%d,\"id\":", o->head);
	wire_put_text(to, str_of(p->id));
	(void)buf_fmt(to, ",\"type\":\"%s\",\"%s\":{\"name\":", kind, kind);
	wire_put_text(to, str_of(p->name));
	(void)buf_fmt(to, ",\"%s\":\"\"}}]}", p->custom ? "input" : "arguments");
	tail(o, "null", to);
}

static void delta(struct wire_out *o, struct str text, struct buf *to)
{
	static const char *const members[] = { "", "content", "refusal", "reasoning_content", "" };
	head(o, to);
	if (o->open == WIRE_B_CALL) {
		bool custom = wire_out_head(o)->own.custom;
		(void)buf_fmt(to, "{\"tool_calls\":[{\"index\":%d,\"%s\":{\"%s\":", o->head,
		    custom ? "custom" : "function", custom ? "input" : "arguments");
		wire_put_text(to, text);
		(void)buf_str(to, "}}]}");
	} else {
		(void)buf_fmt(to, "{\"%s\":", members[o->open]);
		wire_put_text(to, text);
		(void)buf_chr(to, '}');
	}
	tail(o, "null", to);
}

static void close_(struct wire_out *o, struct buf *to)
{
	(void)o;
	(void)to;
}

static void end(struct wire_out *o, struct buf *to)
{
	auto_buf struct buf word = BUF(64);
	(void)buf_fmt(&word, "\"%s\"", wire_finish_name(o->finish));
	head(o, to);
	(void)buf_str(to, "{}");
	tail(o, buf_c(&word), to);
	if (o->self.usage_asked && o->usage.known) {
		json_t *v = js_pack("{s:n,s:s,s:I,s:n,s:[],s:o}", "id", "object", "chat.completion.chunk",
		    "created", (json_int_t)o->self.created_s, "model", "choices", "usage",
		    wire_usage_json(WIRE_CHAT, &o->usage));
		auto_buf struct buf id = BUF(256);
		(void)buf_fmt(&id, "chatcmpl-%s", o->self.tail);
		js_set_str(v, "id", buf_c(&id));
		js_set_str(v, "model", o->self.model);
		wire_put_json(to, NULL, v);
	}
	(void)buf_str(to, "data: [DONE]\n\n");
}

const struct wire_out_ops wire_out_chat = { begin, open_, delta, close_, end };
