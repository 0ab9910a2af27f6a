/* The stream of messages: message_start, blocks, message_delta, message_stop; `ping` and `error` at any time. */
#include "model/wire_int.h"

enum { BLOCK_OTHER, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL };

/* What an event may hold, in one flat view: the members of its objects do not collide. */
struct event {
	long long index;
	struct str type, id, model, name, input, text, thinking, signature, data, partial, stop, sequence;
};

static struct str *slot(struct event *v, struct str key)
{
	const struct {
		const char *key;
		struct str *at;
	} all[] = {
		{ "type", &v->type },
		{ "id", &v->id },
		{ "model", &v->model },
		{ "name", &v->name },
		{ "text", &v->text },
		{ "thinking", &v->thinking },
		{ "signature", &v->signature },
		{ "data", &v->data },
		{ "partial_json", &v->partial },
		{ "stop_reason", &v->stop },
		{ "stop_sequence", &v->sequence },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (str_eq(key, all[i].key))
			return all[i].at;
	return NULL;
}

/* An inner object: message, content_block, delta. */
static void inner(struct wire_in *in, struct scan *s, struct event *v)
{
	struct str key;
	struct scan_text t;
	if (!scan_object(s))
		return;
	while (scan_key(s, &key)) {
		struct str *at = slot(v, key);
		if (at != NULL) {
			if (scan_string(s, &t))
				*at = wire_in_str(in, t);
		} else if (str_eq(key, "usage")) { /* of message_start: before there is any output */
			wire_in_usage(in, s);
			in->counts.output = false;
			in->seen.usage.part = true;
		} else if (str_eq(key, "input")) {
			(void)scan_value(s, &v->input);
		} else {
			(void)scan_value(s, NULL);
		}
	}
}

static int block_start(struct wire_in *in, const struct event *v)
{
	static const struct str none = { "", 0 };
	in->open_index = v->index;
	in->open_kind = BLOCK_OTHER;
	if (str_eq(v->type, "text")) {
		in->open_kind = BLOCK_TEXT;
		wire_in_text(in, WIRE_P_TEXT, 0, v->text);
	} else if (str_eq(v->type, "thinking")) {
		in->open_kind = BLOCK_THINKING;
		wire_in_text(in, WIRE_P_REASONING, 0, v->thinking);
		wire_in_text(in, WIRE_P_OPAQUE, 0, v->signature);
	} else if (str_eq(v->type, "redacted_thinking")) {
		wire_in_text(in, WIRE_P_OPAQUE, 0, v->data);
		if (in->n_pieces > 0) /* `custom` on an opaque piece: there is no readable part */
			in->pieces[in->n_pieces - 1].custom = true;
	} else if (str_eq(v->type, "tool_use")) {
		in->open_kind = BLOCK_CALL;
		int call = v->name.n == 0 ? -1 : wire_in_begin(in, 0, v->index, v->id, v->name, none, false);
		if (call < 0)
			return -1;
		/* Some servers give the whole input here and no deltas. */
		if (v->input.n > 2)
			wire_in_args(in, call, v->input);
	}
	return 0;
}

static int call_at(const struct wire_in *in, long long index)
{
	for (int i = in->n_calls - 1; i >= 0; i--)
		if (in->calls[i].index == index && !in->calls[i].ended)
			return i;
	return -1;
}

static int block_delta(struct wire_in *in, const struct event *v)
{
	in->repeats = true; /* where it gives text: the block it belongs to is not looked at */
	if (str_eq(v->type, "text_delta")) {
		wire_in_text(in, WIRE_P_TEXT, 0, v->text);
	} else if (str_eq(v->type, "thinking_delta")) {
		wire_in_text(in, WIRE_P_REASONING, 0, v->thinking);
	} else if (str_eq(v->type, "signature_delta")) {
		wire_in_text(in, WIRE_P_OPAQUE, 0, v->signature);
	} else if (str_eq(v->type, "input_json_delta") && v->partial.n > 0) {
		int call = call_at(in, v->index);
		if (call >= 0)
			wire_in_args(in, call, v->partial);
		else if (in->open_kind == BLOCK_CALL || in->open_index != v->index)
			return -1; /* more of a call that never began; a server tool's input is not ours */
	}
	return 0;
}

static void message_delta(struct wire_in *in, const struct event *v)
{
	enum wire_finish f = wire_finish_of(WIRE_MESSAGES, v->stop);
	if (f == WIRE_STOP && in->n_calls > 0)
		f = WIRE_CALLS;
	if (f == WIRE_UNFINISHED)
		return;
	wire_copy(in->stop, sizeof in->stop, v->sequence);
	wire_in_finish(in, 0, f, str_of(in->stop));
}

static int dispatch(struct wire_in *in, struct str type, struct event *v)
{
	if (str_eq(type, "message_start")) {
		wire_in_start(in, v->id, v->model);
	} else if (str_eq(type, "content_block_start")) {
		return block_start(in, v);
	} else if (str_eq(type, "content_block_delta")) {
		return block_delta(in, v);
	} else if (str_eq(type, "content_block_stop")) {
		int call = call_at(in, v->index);
		if (call >= 0)
			wire_in_call_end(in, call);
		in->open_kind = BLOCK_OTHER;
	} else if (str_eq(type, "message_delta")) {
		message_delta(in, v);
	} else if (str_eq(type, "message_stop")) {
		wire_in_end(in);
	} else if (str_eq(type, "ping")) {
		(void)wire_in_add(in, WIRE_P_PING);
	}
	return 0; /* an event type that is not known is passed on and means nothing here */
}

int wire_in_messages(struct wire_in *in, const struct sse_event *ev, struct err *e)
{
	struct scan s = scan_of(ev->data);
	struct str key, type = { "", 0 }, error = { "", 0 };
	struct scan_text t;
	struct event v = { 0 };
	if (str_eq(str_trim(ev->data),
		"[DONE]")) { /* what translating servers add: not of this wire, and harmless */
		in->pass = WIRE_PASS_NOT;
		return 0;
	}
	if (scan_peek(&s) != '{' || !scan_object(&s))
		return wire_in_malformed(in, e);
	while (scan_key(&s, &key)) {
		if (str_eq(key, "type")) {
			if (scan_string(&s, &t))
				type = wire_in_str(in, t);
		} else if (str_eq(key, "index")) {
			(void)scan_int(&s, &v.index);
		} else if (str_eq(key, "usage")) {
			wire_in_usage(in, &s);
		} else if (str_eq(key, "error")) {
			(void)scan_value(&s, &error);
		} else {
			inner(in, &s, &v);
		}
	}
	if (!scan_done(&s))
		return wire_in_malformed(in, e);
	if (str_eq(type, "error") || (type.n == 0 && error.n > 0)) {
		s = scan_of(error.n > 0 ? error : ev->data);
		wire_in_fault(in, &s);
		return 0;
	}
	return dispatch(in, type, &v) == 0 ? 0 : wire_in_malformed(in, e);
}
