/* What the three stream readers have in common. */
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "model/wire_int.h"

enum { CALLS_MAX = 256 };

struct wire_in *wire_in_new(enum provider_wire w, bool usage_asked)
{
	struct wire_in *in = xcalloc(1, sizeof *in);
	in->w = w;
	in->usage_asked = usage_asked;
	in->open_index = -1;
	in->text = BUF(64u << 20);
	in->again.event = BUF(WIRE_AGAIN_BYTES);
	return in;
}

void wire_in_free(struct wire_in *in)
{
	if (in == NULL)
		return;
	for (int i = 0; i < in->n_calls; i++)
		free(in->calls[i].id);
	free(in->calls);
	free(in->pieces);
	free(in->fixed);
	buf_free(&in->text);
	buf_free(&in->again.event);
	free(in);
}

void wire_in_silent(struct wire_in *in)
{
	in->again.known = false;
	buf_free(&in->again.event);
	buf_free(&in->text);
}

const struct wire_seen *wire_in_seen(const struct wire_in *in)
{
	return &in->seen;
}

int wire_in_malformed(const struct wire_in *in, struct err *e)
{
	static const char *const names[WIRES] = { "chat.completions", "responses", "messages" };
	return err_set(
	    e, ERR_UPSTREAM, "The model provider sent an event that is not one of %s.", names[in->w]);
}

/* Most events are ASCII, which is seen eight bytes at a time. */
bool wire_in_utf8(struct str s)
{
	uint64_t w, seen = 0;
	size_t i = 0;
	for (; s.n - i >= 8; i += 8) {
		memcpy(&w, s.p + i, 8);
		seen |= w;
	}
	for (; i < s.n; i++)
		seen |= (unsigned char)s.p[i];
	return (seen & 0x8080808080808080) == 0 || utf8_valid(s.p, s.n) == s.n;
}

/* What is refused leaves no trace, so that one who thinks it noise may go on. */
static void undo(struct wire_in *in, const struct wire_in *was)
{
	for (int i = was->n_calls; i < in->n_calls; i++)
		free(in->calls[i].id);
	in->n_calls = was->n_calls;
	in->started = was->started;
	in->seen = was->seen;
	in->counts = was->counts;
	in->begun = was->begun;
	in->done = was->done;
	in->open_index = was->open_index;
	in->open_kind = was->open_kind;
	in->items_done = was->items_done;
	memcpy(in->given, was->given, sizeof in->given);
}

int wire_in_event(struct wire_in *in, const struct sse_event *ev, struct wire_read *out, struct err *e)
{
	static wire_in_fn *const readers[WIRES] = { wire_in_chat, wire_in_responses, wire_in_messages };
	in->n_pieces = 0;
	in->n_fixed = 0;
	in->pass = WIRE_PASS;
	in->repeats = false;
	in->most = ev->data.n;
	buf_reset(&in->text);
	if (ev->has_data && wire_again(in, ev->data)) {
		*out = (struct wire_read){ in->pieces, in->n_pieces, in->pass };
		return 0;
	}
	*out = (struct wire_read){ .pass = WIRE_PASS };
	if (ev->has_data && !wire_in_utf8(ev->data))
		return err_set(e, ERR_UPSTREAM, "The model provider sent an event that is not valid UTF-8.");
	/* `data:` alone, and comments that a gateway before us turned into data. */
	if (!ev->has_data || ev->data.n == 0 || ev->data.p[0] == ':') {
		in->pass = ev->has_data ? WIRE_PASS_NOT : WIRE_PASS;
		(void)wire_in_add(in, WIRE_P_PING);
	} else {
		const struct wire_in was = *in;
		if (readers[in->w](in, ev, e) != 0) {
			undo(in, &was);
			return -1;
		}
		wire_again_learn(in, ev->data);
	}
	*out = (struct wire_read){ in->pieces, in->n_pieces, in->pass };
	return 0;
}

struct wire_piece *wire_in_add(struct wire_in *in, enum wire_piece_kind kind)
{
	if (in->n_pieces == in->cap_pieces) {
		in->cap_pieces = in->cap_pieces == 0 ? 4 : in->cap_pieces * 2;
		in->pieces = xrealloc(in->pieces, in->cap_pieces * sizeof *in->pieces);
	}
	struct wire_piece *p = &in->pieces[in->n_pieces++];
	*p = (struct wire_piece){ .kind = kind, .maker = in->w };
	return p;
}

/* Of several completions each must finish; those beyond the bits of a word are taken for the last of them. */
static uint64_t bit(int choice)
{
	return (uint64_t)1 << (choice < 63 ? choice : 63);
}

static void begun(struct wire_in *in, int choice)
{
	in->begun |= bit(choice);
	in->seen.finished = in->seen.finished && (in->done & bit(choice)) != 0;
	in->seen.content = true;
}

void wire_in_text(struct wire_in *in, enum wire_piece_kind kind, int choice, struct str text)
{
	if (text.n == 0)
		return;
	struct wire_piece *p = wire_in_add(in, kind);
	p->choice = choice;
	p->text = text;
	begun(in, choice);
	if (kind != WIRE_P_OPAQUE)
		in->seen.written += text.n;
}

struct str wire_in_str(struct wire_in *in, struct scan_text t)
{
	if (!t.escaped)
		return t.raw;
	/* Room for all texts of the event at once, so that none of them moves: together they are shorter than it. */
	if (in->text.n == 0 && buf_room(&in->text, in->most) == NULL)
		return (struct str){ "", 0 };
	size_t at = in->text.n;
	(void)scan_unescape(t, &in->text);
	return (struct str){ in->text.p + at, in->text.n - at };
}

void wire_copy(char *out, size_t size, struct str s)
{
	size_t n = s.n < size - 1 ? s.n : size - 1;
	n = n == 0 ? 0 : utf8_valid(s.p, n);
	if (n > 0)
		memcpy(out, s.p, n);
	out[n] = 0;
}

void wire_in_start(struct wire_in *in, struct str id, struct str model)
{
	if (in->started)
		return;
	in->started = true;
	wire_copy(in->seen.id, sizeof in->seen.id, id);
	wire_copy(in->seen.model, sizeof in->seen.model, model);
	(void)wire_in_add(in, WIRE_P_START);
	memmove(in->pieces + 1, in->pieces, (in->n_pieces - 1) * sizeof *in->pieces);
	in->pieces[0] = (struct wire_piece){
		.kind = WIRE_P_START, .id = str_of(in->seen.id), .text = str_of(in->seen.model)
	};
}

void wire_in_usage(struct wire_in *in, struct scan *s)
{
	if (scan_peek(s) != '{') {
		(void)scan_value(s, NULL);
		return;
	}
	wire_counts_scan(s, &in->counts);
	in->seen.usage = wire_counts_usage(in->w, &in->counts);
	if (in->seen.usage.known)
		wire_in_add(in, WIRE_P_USAGE)->usage = in->seen.usage;
}

void wire_in_finish(struct wire_in *in, int choice, enum wire_finish f, struct str stop)
{
	struct wire_piece *p = wire_in_add(in, WIRE_P_FINISH);
	p->choice = choice;
	p->finish = f;
	p->text = stop;
	if (in->seen.finish == WIRE_UNFINISHED)
		in->seen.finish = f;
	in->done |= bit(choice);
	in->seen.finished = (in->begun & ~in->done) == 0;
}

void wire_in_end(struct wire_in *in)
{
	if (in->seen.ended)
		return;
	(void)wire_in_add(in, WIRE_P_END);
	in->seen.ended = true;
}

/* One of its own for each call: made up where there is none, and where an upstream gives the same to two. */
static char *call_id(const struct wire_in *in, int call, struct str id)
{
	bool taken = id.n == 0;
	for (int i = 0; i < call && !taken; i++)
		taken = in->calls[i].choice == in->calls[call].choice && str_eq(id, in->calls[i].id);
	size_t size = id.n + 24;
	char *own = xcalloc(1, size);
	if (id.n > 0)
		memcpy(own, id.p, id.n);
	if (taken)
		(void)snprintf(own + id.n, size - id.n, "%s%d", id.n == 0 ? "call_" : "_", call);
	return own;
}

int wire_in_begin(struct wire_in *in, int choice, long long index, struct str id, struct str name,
    struct str space, bool custom)
{
	if (in->n_calls == CALLS_MAX)
		return -1;
	if (in->n_calls == in->cap_calls) {
		in->cap_calls = in->cap_calls == 0 ? 4 : in->cap_calls * 2;
		in->calls = xrealloc(in->calls, (size_t)in->cap_calls * sizeof *in->calls);
	}
	int call = in->n_calls++, nth = 0;
	for (int i = 0; i < call; i++)
		nth += in->calls[i].choice == choice;
	struct wire_in_call *c = &in->calls[call];
	*c = (struct wire_in_call){ .index = index, .choice = choice, .nth = nth, .custom = custom };
	c->id = call_id(in, call, id);
	struct wire_piece *p = wire_in_add(in, WIRE_P_CALL);
	*p = (struct wire_piece){ .kind = WIRE_P_CALL,
		.choice = choice,
		.call = call,
		.custom = custom,
		.id = str_of(c->id),
		.name = name,
		.space = space };
	begun(in, choice);
	in->seen.calls++;
	in->seen.written += name.n;
	return call;
}

void wire_in_args(struct wire_in *in, int call, struct str text)
{
	if (text.n == 0)
		return;
	struct wire_piece *p = wire_in_add(in, WIRE_P_ARGS);
	p->choice = in->calls[call].choice;
	p->call = call;
	p->text = text;
	in->calls[call].args += text.n;
	in->seen.written += text.n;
}

void wire_in_call_end(struct wire_in *in, int call)
{
	if (in->calls[call].ended)
		return;
	in->calls[call].ended = true;
	struct wire_piece *p = wire_in_add(in, WIRE_P_CALL_END);
	p->choice = in->calls[call].choice;
	p->call = call;
}

/* The text of a string or number; nothing of another value. Takes it. */
static void word(struct wire_in *in, struct scan *s, struct str *out)
{
	struct scan_text t;
	struct str v;
	if (scan_peek(s) == '"') {
		if (scan_string(s, &t))
			*out = wire_in_str(in, t);
	} else if (scan_value(s, &v) && v.p[0] >= '0' && v.p[0] <= '9') {
		*out = v;
	}
}

struct said {
	struct str message, code, type, inner; /* inner: an error within the error */
};

static void said(struct wire_in *in, struct str json, struct said *f)
{
	struct scan s = scan_of(json);
	struct str key, other;
	f->inner = (struct str){ "", 0 };
	if (scan_peek(&s) == '"') {
		word(in, &s, &f->message);
		return;
	}
	if (!scan_object(&s))
		return;
	while (scan_key(&s, &key)) {
		if (str_eq(key, "error"))
			(void)scan_value(&s, &f->inner);
		else
			word(in, &s,
			    str_eq(key, "message")    ? &f->message
				: str_eq(key, "code") ? &f->code
				: str_eq(key, "type") ? &f->type
						      : &other);
	}
}

void wire_in_fault(struct wire_in *in, struct scan *s)
{
	struct said f = { .message = { "", 0 }, .code = { "", 0 }, .type = { "", 0 } };
	struct str json;
	char c[64], t[64], m[256];
	if (!scan_value(s, &json))
		return;
	for (int i = 0; i < 3 && json.n > 0; i++) {
		said(in, json, &f);
		json = f.inner;
	}
	wire_copy(c, sizeof c, f.code);
	wire_copy(t, sizeof t, f.type);
	wire_copy(m, sizeof m, f.message);
	struct wire_piece *p = wire_in_add(in, WIRE_P_FAULT);
	p->fault = wire_fault_named(0, c, t, m);
	p->text = f.message;
	p->id = f.code.n > 0 ? f.code : f.type;
	in->seen.fault = true;
	in->pass = WIRE_PASS_NOT;
}

int wire_in_rest(const struct wire_in *in, struct buf *out)
{
	if (in->seen.ended || !in->seen.finished)
		return 0;
	if (in->w == WIRE_CHAT)
		return sse_write(out, NULL, "[DONE]", 6);
	if (in->w == WIRE_MESSAGES)
		return sse_write(out, "message_stop", "{\"type\":\"message_stop\"}", 23);
	return 0;
}

int wire_in_fixed(
    struct wire_in *in, const struct sse_event *ev, const struct wire_usage *usage, struct buf *out)
{
	struct err e = { 0 };
	size_t i, k;
	int nth = 0;
	json_t *choice, *call;
	auto_json json_t *v = wire_parse(ev->data.p, ev->data.n, &e);
	auto_mem struct mem *m = mem_new();
	if (v == NULL) /* a key twice: what the scan reads and a tree cannot hold */
		return -1;
	json_array_foreach(json_object_get(v, "choices"), i, choice) {
		json_t *delta = json_object_get(choice, "delta");
		json_array_foreach(json_object_get(delta, "tool_calls"), k, call) {
			if (nth == in->n_fixed || !json_is_object(call))
				continue;
			const struct wire_in_call *c = &in->calls[in->fixed[nth].call];
			js_set(call, "index", json_integer(c->nth));
			if (in->fixed[nth++].wants_id)
				js_set_str(call, "id", c->id);
		}
		const char *word = js_str(choice, "finish_reason");
		if (word != NULL) {
			enum wire_finish f = wire_finish_of(WIRE_CHAT, str_of(word));
			bool calls = f == WIRE_STOP && in->seen.calls > 0;
			js_set_str(choice, "finish_reason",
			    f == WIRE_UNFINISHED ? NULL
				: calls          ? wire_finish_name(WIRE_CALLS)
						 : wire_finish_name(f));
		}
	}
	if (usage != NULL)
		wire_usage_put(in->w, v, usage);
	const char *text = js_dump(m, v), *name = mem_strn(m, ev->name.p, ev->name.n);
	return sse_write(out, name, text, strlen(text));
}
