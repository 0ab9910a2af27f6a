/*
 * The stream of responses: items that are added, grow by deltas and are done, between response.created and response.completed.
 * Servers differ in how much of that they send: what was not given as deltas is taken from the item when it is done, and what came
 * as no item at all from the response when it is completed. Nothing is given twice.
 */
#include "model/wire_int.h"

struct event {
	bool has_index;
	long long index, summary;
	struct str type, delta, item, response, error;
};

struct item {
	struct str type, id, call_id, name, space, args, opaque, content, summary;
};

static struct str none(void)
{
	return (struct str){ "", 0 };
}

static bool was_given(const struct wire_in *in, long long index)
{
	return index >= 0 && index < WIRE_ITEMS_MAX && (in->given[index / 8] >> (index % 8) & 1) != 0;
}

static void give(struct wire_in *in, long long index)
{
	if (index >= 0 && index < WIRE_ITEMS_MAX)
		in->given[index / 8] = (unsigned char)(in->given[index / 8] | 1u << (index % 8));
}

static void read_item(struct wire_in *in, struct str json, struct item *it)
{
	struct scan s = scan_of(json);
	struct str key;
	struct scan_text t;
	*it = (struct item){ none(), none(), none(), none(), none(), none(), none(), none(), none() };
	const struct {
		const char *key;
		struct str *at;
	} all[] = {
		{ "type", &it->type },
		{ "id", &it->id },
		{ "call_id", &it->call_id },
		{ "name", &it->name },
		{ "namespace", &it->space },
		{ "arguments", &it->args },
		{ "input", &it->args },
		{ "encrypted_content", &it->opaque },
	};
	if (!scan_object(&s))
		return;
	while (scan_key(&s, &key)) {
		struct str *at = NULL;
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			if (str_eq(key, all[i].key))
				at = all[i].at;
		if (at != NULL) {
			if (scan_string(&s, &t))
				*at = wire_in_str(in, t);
		} else if (str_eq(key, "content")) {
			(void)scan_value(&s, &it->content);
		} else if (str_eq(key, "summary")) {
			(void)scan_value(&s, &it->summary);
		} else {
			(void)scan_value(&s, NULL);
		}
	}
}

/* An array of {type, text | refusal}. */
static void parts(struct wire_in *in, struct str json, enum wire_piece_kind kind)
{
	struct scan s = scan_of(json);
	struct str key;
	struct scan_text t;
	bool first = true;
	if (json.n == 0 || !scan_array(&s))
		return;
	while (scan_item(&s)) {
		if (!scan_object(&s))
			continue;
		while (scan_key(&s, &key)) {
			bool refusal = str_eq(key, "refusal");
			if (!refusal && !str_eq(key, "text")) {
				(void)scan_value(&s, NULL);
			} else if (scan_string(&s, &t)) {
				if (kind == WIRE_P_REASONING && !first)
					wire_in_text(in, kind, 0, str_of("\n\n"));
				wire_in_text(in, refusal ? WIRE_P_REFUSAL : kind, 0, wire_in_str(in, t));
				first = false;
			}
		}
	}
}

static bool is_call(const struct item *it)
{
	return str_eq(it->type, "function_call") || str_eq(it->type, "custom_tool_call");
}

static int begin(struct wire_in *in, long long index, const struct item *it)
{
	struct str id = it->call_id.n > 0 ? it->call_id : it->id;
	return it->name.n == 0
	    ? -1
	    : wire_in_begin(in, 0, index, id, it->name, it->space, str_eq(it->type, "custom_tool_call"));
}

static int call_at(const struct wire_in *in, long long index)
{
	for (int i = in->n_calls - 1; i >= 0; i--)
		if (in->calls[i].index == index && !in->calls[i].ended)
			return i;
	return -1;
}

static int item_done(struct wire_in *in, long long index, const struct item *it)
{
	if (is_call(it)) {
		int call = call_at(in, index);
		if (call < 0)
			call = begin(in, index, it);
		if (call < 0)
			return -1;
		if (in->calls[call].args == 0)
			wire_in_args(in, call, it->args);
		wire_in_call_end(in, call);
	} else if (str_eq(it->type, "message")) {
		if (!was_given(in, index))
			parts(in, it->content, WIRE_P_TEXT);
	} else if (str_eq(it->type, "reasoning")) {
		if (!was_given(in, index))
			parts(in, it->summary, WIRE_P_REASONING);
		size_t before = in->n_pieces;
		wire_in_text(in, WIRE_P_OPAQUE, 0, it->opaque);
		if (in->n_pieces > before)
			in->pieces[before].id = it->id;
	}
	give(in, index);
	in->items_done++;
	return 0;
}

struct response {
	struct str id, model, status, reason, output, error;
	long long created_s;
};

static void reason(struct scan *s, struct str *out)
{
	struct str key;
	struct scan_text t;
	if (!scan_object(s))
		return;
	while (scan_key(s, &key))
		if (scan_string(s, &t) && str_eq(key, "reason"))
			*out = t.raw;
}

static void read_response(struct wire_in *in, struct str json, struct response *r)
{
	struct scan s = scan_of(json);
	struct str key;
	struct scan_text t;
	*r = (struct response){ none(), none(), none(), none(), none(), none(), 0 };
	if (json.n == 0 || !scan_object(&s))
		return;
	while (scan_key(&s, &key)) {
		if (str_eq(key, "id") || str_eq(key, "model") || str_eq(key, "status")) {
			if (scan_string(&s, &t))
				*(key.p[0] == 'i'         ? &r->id
					: key.p[0] == 'm' ? &r->model
							  : &r->status) = wire_in_str(in, t);
		} else if (str_eq(key, "usage")) {
			wire_in_usage(in, &s);
		} else if (str_eq(key, "created_at")) {
			(void)scan_int(&s, &r->created_s);
		} else if (str_eq(key, "incomplete_details")) {
			reason(&s, &r->reason);
		} else {
			(void)scan_value(&s,
			    str_eq(key, "output")      ? &r->output
				: str_eq(key, "error") ? &r->error
						       : NULL);
		}
	}
}

/* All items of a completed response, where none came by itself. */
static int whole(struct wire_in *in, struct str output)
{
	struct scan s = scan_of(output);
	struct str one;
	struct item it;
	if (output.n == 0 || in->items_done > 0 || in->seen.content || !scan_array(&s))
		return 0;
	for (long long i = 0; scan_item(&s); i++) {
		(void)scan_value(&s, &one);
		read_item(in, one, &it);
		if (item_done(in, i, &it) != 0)
			return -1;
	}
	return 0;
}

static void fault(struct wire_in *in, struct str error)
{
	struct scan s = scan_of(
	    error.n > 0 ? error : str_of("\"the provider ended the response as failed\""));
	wire_in_fault(in, &s);
}

static int ended(struct wire_in *in, const struct event *v)
{
	struct response r;
	size_t before = in->n_pieces;
	read_response(in, v->response, &r);
	wire_in_start(in, r.id, r.model);
	if (!str_eq(v->type, "response.completed") && !str_eq(v->type, "response.incomplete")) {
		fault(in, r.error);
		return 0;
	}
	/* Usage was read first and is told after what it counts. */
	struct wire_piece usage = { 0 };
	if (in->n_pieces > before && in->pieces[in->n_pieces - 1].kind == WIRE_P_USAGE)
		usage = in->pieces[--in->n_pieces];
	if (whole(in, r.output) != 0)
		return -1;
	if (usage.kind == WIRE_P_USAGE)
		*wire_in_add(in, WIRE_P_USAGE) = usage;
	enum wire_finish f = WIRE_STOP;
	if (str_eq(v->type, "response.incomplete") || str_eq(r.status, "incomplete"))
		f = r.reason.n > 0 ? wire_finish_of(WIRE_RESPONSES, r.reason) : WIRE_LENGTH;
	else if (in->n_calls > 0)
		f = WIRE_CALLS;
	wire_in_finish(in, 0, f, none());
	wire_in_end(in);
	return 0;
}

static void text_delta(struct wire_in *in, enum wire_piece_kind kind, long long index, struct str delta)
{
	wire_in_text(in, kind, 0, delta);
	give(in, index);
}

static int deltas(struct wire_in *in, const struct event *v, long long index)
{
	if (str_eq(v->type, "response.output_text.delta")) {
		text_delta(in, WIRE_P_TEXT, index, v->delta);
	} else if (str_eq(v->type, "response.refusal.delta")) {
		text_delta(in, WIRE_P_REFUSAL, index, v->delta);
	} else if (str_eq(v->type, "response.reasoning_summary_text.delta") ||
	    str_eq(v->type, "response.reasoning_text.delta")) {
		text_delta(in, WIRE_P_REASONING, index, v->delta);
	} else if (str_eq(v->type, "response.reasoning_summary_part.added")) {
		if (v->summary > 0)
			wire_in_text(in, WIRE_P_REASONING, 0, str_of("\n\n"));
	} else if (str_eq(v->type, "response.function_call_arguments.delta") ||
	    str_eq(v->type, "response.custom_tool_call_input.delta")) {
		int call = call_at(in, index);
		if (call < 0)
			return -1;
		wire_in_args(in, call, v->delta);
	}
	return 0; /* other types are passed on and mean nothing here */
}

static int dispatch(struct wire_in *in, const struct event *v)
{
	struct item it;
	struct response r;
	if (v->has_index)
		in->open_index = v->index;
	else if (str_eq(v->type, "response.output_item.added") || in->open_index < 0)
		in->open_index++;
	long long index = in->open_index;
	if (str_eq(v->type, "response.created") || str_eq(v->type, "response.in_progress") ||
	    str_eq(v->type, "response.queued")) {
		read_response(in, v->response, &r);
		if (!in->started)
			in->seen.created_s = r.created_s;
		wire_in_start(in, r.id, r.model);
	} else if (str_eq(v->type, "response.output_item.added")) {
		read_item(in, v->item, &it);
		if (is_call(&it) && begin(in, index, &it) < 0)
			return -1;
	} else if (str_eq(v->type, "response.output_item.done")) {
		read_item(in, v->item, &it);
		/* Items without an index are as many as were done. */
		return item_done(in, v->has_index || call_at(in, index) >= 0 ? index : in->items_done, &it);
	} else if (str_eq(v->type, "response.completed") || str_eq(v->type, "response.incomplete") ||
	    str_eq(v->type, "response.failed") || str_eq(v->type, "response.cancelled")) {
		return ended(in, v);
	} else if (str_eq(v->type, "error")) {
		fault(in, v->error);
	} else {
		return deltas(in, v, index);
	}
	return 0;
}

int wire_in_responses(struct wire_in *in, const struct sse_event *ev, struct err *e)
{
	struct scan s = scan_of(ev->data);
	struct str key;
	struct scan_text t;
	struct event v = { .type = none(), .delta = none(), .item = none(), .response = none() };
	long long number = -1;
	if (str_eq(str_trim(ev->data), "[DONE]")) { /* not of this wire, and harmless */
		in->pass = WIRE_PASS_NOT;
		return 0;
	}
	if (scan_peek(&s) != '{' || !scan_object(&s))
		return wire_in_malformed(in, e);
	while (scan_key(&s, &key)) {
		if (str_eq(key, "type") || str_eq(key, "delta")) {
			if (scan_string(&s, &t))
				*(str_eq(key, "type") ? &v.type : &v.delta) = wire_in_str(in, t);
		} else if (str_eq(key, "output_index")) {
			v.has_index = scan_int(&s, &v.index);
		} else if (str_eq(key, "sequence_number")) {
			(void)scan_int(&s, &number);
		} else if (str_eq(key, "summary_index")) {
			(void)scan_int(&s, &v.summary);
		} else {
			(void)scan_value(&s,
			    str_eq(key, "item")           ? &v.item
				: str_eq(key, "response") ? &v.response
							  : NULL);
		}
	}
	if (!scan_done(&s))
		return wire_in_malformed(in, e);
	if (number >= 0 && number < INT64_MAX)
		in->seen.next = number + 1;
	v.error = ev->data; /* the members of an `error` event are an error's own */
	return dispatch(in, &v) == 0 ? 0 : wire_in_malformed(in, e);
}
