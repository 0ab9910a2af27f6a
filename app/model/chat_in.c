/* The stream of chat.completions: chunks, then [DONE]. */
#include <string.h>

#include "model/wire_int.h"

/* The call that a delta belongs to, or -1. An id that is not the one known for its index begins another call, whatever the index
 * (MOD-8); without an index it is the latest. */
static int call_of(const struct wire_in *in, int choice, bool indexed, long long index, struct str id)
{
	for (int i = in->n_calls - 1; i >= 0; i--) {
		const struct wire_in_call *c = &in->calls[i];
		if (c->choice != choice)
			continue;
		if (id.n > 0) {
			if (str_eq(id, c->id))
				return i;
			continue;
		}
		if (!indexed || c->index == index)
			return i;
	}
	return -1;
}

struct delta_call {
	bool indexed, custom;
	long long index;
	struct str id, name, args;
};

static void call_body(struct wire_in *in, struct scan *s, struct delta_call *d)
{
	struct str key;
	struct scan_text t;
	if (!scan_object(s))
		return;
	while (scan_key(s, &key)) {
		if (str_eq(key, "arguments") &&
		    scan_peek(s) == '{') { /* the object itself, from some servers */
			(void)scan_value(s, &d->args);
			continue;
		}
		if (!scan_string(s, &t))
			continue;
		if (str_eq(key, "name"))
			d->name = wire_in_str(in, t);
		else if (str_eq(key, "arguments") || str_eq(key, "input"))
			d->args = wire_in_str(in, t);
	}
}

static void fixed(struct wire_in *in, int call, bool wants_id)
{
	if (in->n_fixed == in->cap_fixed) {
		in->cap_fixed = in->cap_fixed == 0 ? 4 : in->cap_fixed * 2;
		in->fixed = xrealloc(in->fixed, (size_t)in->cap_fixed * sizeof *in->fixed);
	}
	in->fixed[in->n_fixed++] = (struct wire_in_fix){ call, wants_id };
}

static int give_call(struct wire_in *in, int choice, const struct delta_call *d, bool legacy)
{
	static const struct str none = { "", 0 };
	int call = call_of(in, choice, d->indexed, d->index, d->id);
	bool nameless = false; /* it began without an id, and was given one */
	if (call < 0) {
		if (d->name.n == 0)
			return -1; /* more of a call that never began */
		long long index = d->indexed ? d->index : in->n_calls;
		call = wire_in_begin(in, choice, index, d->id, d->name, none, d->custom);
		if (call < 0)
			return -1;
		nameless = d->id.n == 0;
	}
	wire_in_args(in, call, d->args);
	if (legacy)
		return 0;
	fixed(in, call, nameless);
	if (!d->indexed || d->index != in->calls[call].nth || nameless)
		in->pass = WIRE_PASS_FIXED;
	return 0;
}

static int tool_call(struct wire_in *in, int choice, struct scan *s)
{
	struct str key;
	struct scan_text t;
	struct delta_call d = { .id = { "", 0 }, .name = { "", 0 }, .args = { "", 0 } };
	if (!scan_object(s))
		return 0;
	while (scan_key(s, &key)) {
		if (str_eq(key, "index")) {
			d.indexed = scan_int(s, &d.index);
		} else if (str_eq(key, "id")) {
			if (scan_string(s, &t))
				d.id = wire_in_str(in, t);
		} else if (str_eq(key, "function") || str_eq(key, "custom")) {
			d.custom = str_eq(key, "custom") && scan_peek(s) == '{';
			call_body(in, s, &d);
		} else {
			(void)scan_value(s, NULL);
		}
	}
	return s->bad ? 0 : give_call(in, choice, &d, false);
}

static int tool_calls(struct wire_in *in, int choice, struct scan *s)
{
	if (!scan_array(s))
		return 0;
	while (scan_item(s))
		if (tool_call(in, choice, s) != 0)
			return -1;
	return 0;
}

/* The form before tools: one call, without id. */
static int function_call(struct wire_in *in, int choice, struct scan *s)
{
	struct delta_call d = { .id = { "", 0 }, .name = { "", 0 }, .args = { "", 0 } };
	if (scan_peek(s) != '{')
		return scan_value(s, NULL) ? 0 : -1;
	call_body(in, s, &d);
	return give_call(in, choice, &d, true);
}

/* Some servers write a list of parts: {type: "text", text}, and of thought {type: "thinking", thinking: [those]}. */
static void content_parts(struct wire_in *in, int choice, enum wire_piece_kind kind, struct scan *s)
{
	struct str key, inner;
	struct scan_text t;
	if (!scan_array(s))
		return;
	while (scan_item(s)) {
		if (!scan_object(s))
			continue;
		while (scan_key(s, &key)) {
			if (str_eq(key, "text")) {
				if (scan_string(s, &t))
					wire_in_text(in, kind, choice, wire_in_str(in, t));
			} else if (str_eq(key, "thinking") && kind == WIRE_P_TEXT && scan_value(s, &inner)) {
				struct scan thought = scan_of(inner);
				content_parts(in, choice, WIRE_P_REASONING, &thought);
			} else {
				(void)scan_value(s, NULL);
			}
		}
	}
}

static int delta(struct wire_in *in, int choice, struct scan *s)
{
	struct str key;
	struct scan_text t;
	if (!scan_object(s))
		return 0;
	while (scan_key(s, &key)) {
		enum wire_piece_kind kind = str_eq(key, "content")                 ? WIRE_P_TEXT
		    : str_eq(key, "refusal")                                       ? WIRE_P_REFUSAL
		    : str_eq(key, "reasoning_content") || str_eq(key, "reasoning") ? WIRE_P_REASONING
										   : WIRE_P_PING;
		if (kind == WIRE_P_TEXT && scan_peek(s) == '[') {
			content_parts(in, choice, kind, s);
		} else if (kind != WIRE_P_PING) {
			if (scan_string(s, &t))
				wire_in_text(in, kind, choice, wire_in_str(in, t));
		} else if (str_eq(key, "tool_calls")) {
			if (tool_calls(in, choice, s) != 0)
				return -1;
		} else if (str_eq(key, "function_call")) {
			if (function_call(in, choice, s) != 0)
				return -1;
		} else {
			(void)scan_value(s, NULL);
		}
	}
	return 0;
}

static bool has_calls(const struct wire_in *in, int choice)
{
	for (int i = 0; i < in->n_calls; i++)
		if (in->calls[i].choice == choice)
			return true;
	return false;
}

static void finish(struct wire_in *in, int choice, struct str word)
{
	enum wire_finish f = wire_finish_of(WIRE_CHAT, word);
	if (str_eq(word, "error")) { /* what some routers say where an error belongs */
		struct scan s = scan_of(str_of("\"the provider ended the stream with an error\""));
		wire_in_fault(in, &s);
		return;
	}
	if (f == WIRE_STOP && has_calls(in, choice))
		f = WIRE_CALLS;
	if (f == WIRE_UNFINISHED || !str_eq(word, wire_finish_name(f)))
		in->pass = str_eq(word, "function_call") ? in->pass : WIRE_PASS_FIXED;
	if (f != WIRE_UNFINISHED)
		wire_in_finish(in, choice, f, (struct str){ "", 0 });
}

/* Members may come in any order, and a delta means nothing without its index: where that follows it is read afterwards. */
static int one_choice(struct wire_in *in, struct scan *s)
{
	struct str key, body = { "{}", 2 };
	struct scan_text word = { { "", 0 }, false };
	long long index = 0;
	bool indexed = false, finished = false;
	if (!scan_object(s))
		return 0;
	while (scan_key(s, &key)) {
		if (str_eq(key, "index")) {
			indexed = scan_int(s, &index);
			if (index < 0 || index > 1000)
				return -1;
		} else if (str_eq(key, "delta") && indexed) {
			if (delta(in, (int)index, s) != 0)
				return -1;
		} else if (str_eq(key, "delta")) {
			(void)scan_value(s, &body);
		} else if (str_eq(key, "finish_reason")) {
			finished = scan_string(s, &word);
		} else {
			(void)scan_value(s, NULL);
		}
	}
	struct scan late = scan_of(body);
	if (s->bad || delta(in, (int)index, &late) != 0)
		return -1;
	if (finished)
		finish(in, (int)index, word.raw);
	return 0;
}

static int choices(struct wire_in *in, struct scan *s, bool *any)
{
	if (!scan_array(s))
		return 0;
	while (scan_item(s)) {
		*any = true;
		if (one_choice(in, s) != 0)
			return -1;
	}
	return 0;
}

/* In this event; with empty `choices` it is the chunk that stream_options asks for. */
static bool told_usage(const struct wire_in *in)
{
	for (size_t i = 0; i < in->n_pieces; i++)
		if (in->pieces[i].kind == WIRE_P_USAGE)
			return true;
	return false;
}

struct chunk {
	struct str id, model;
	bool is, any; /* has choices; and at least one */
	bool failed;  /* {"object": "error", …}, where an error is a chunk of its own */
};

static int member(struct wire_in *in, struct str key, struct scan *s, struct chunk *c)
{
	struct scan_text t;
	if (str_eq(key, "choices")) {
		c->is = true;
		return choices(in, s, &c->any);
	}
	if (str_eq(key, "usage")) {
		wire_in_usage(in, s);
	} else if (str_eq(key, "error") && scan_peek(s) != 'n') {
		wire_in_fault(in, s);
	} else if (str_eq(key, "id") || str_eq(key, "model") || str_eq(key, "object")) {
		if (!scan_string(s, &t))
			return 0;
		if (str_eq(key, "object"))
			c->failed = str_eq(t.raw, "error");
		else
			*(str_eq(key, "id") ? &c->id : &c->model) = wire_in_str(in, t);
	} else {
		(void)scan_value(s, NULL);
	}
	return 0;
}

int wire_in_chat(struct wire_in *in, const struct sse_event *ev, struct err *e)
{
	struct scan s = scan_of(ev->data);
	struct str key;
	struct chunk c = { .id = { "", 0 }, .model = { "", 0 } };
	if (str_eq(str_trim(ev->data), "[DONE]")) {
		wire_in_end(in);
		return 0;
	}
	if (scan_peek(&s) != '{' || !scan_object(&s))
		return wire_in_malformed(in, e);
	while (scan_key(&s, &key))
		if (member(in, key, &s, &c) != 0)
			return wire_in_malformed(in, e);
	if (!scan_done(&s))
		return wire_in_malformed(in, e);
	if (c.is)
		wire_in_start(in, c.id, c.model);
	if (c.failed && !in->seen.fault) {
		s = scan_of(ev->data);
		wire_in_fault(in, &s);
	}
	in->repeats = c.is;
	if (c.is && !c.any && told_usage(in) && !in->usage_asked)
		in->pass = WIRE_PASS_NOT;
	return 0;
}
