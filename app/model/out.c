#include "model/out.h"

#include <string.h>

#include "base/js.h"

enum { CALLS_MAX = 256, ARGS_BYTES = 16 << 20 };

static const struct wire_out_ops *ops(const struct wire_out *o)
{
	static const struct wire_out_ops *const all[WIRES] = { &wire_out_chat, &wire_out_responses,
		&wire_out_messages };
	return all[o->w];
}

struct wire_out *wire_out_new(enum provider_wire w, const struct wire_self *self)
{
	struct wire_out *o = xcalloc(1, sizeof *o);
	o->w = w;
	o->self = *self;
	o->mem = mem_new();
	o->text = BUF(ARGS_BYTES);
	o->late = BUF(ARGS_BYTES);
	return o;
}

void wire_out_free(struct wire_out *o)
{
	if (o == NULL)
		return;
	for (int i = 0; i < o->n_calls; i++)
		buf_free(&o->calls[i].args);
	free(o->calls);
	buf_free(&o->text);
	buf_free(&o->late);
	json_decref(o->items);
	mem_free(o->mem);
	free(o);
}

void wire_put_text(struct buf *to, struct str s)
{
	static const char hex[] = "0123456789abcdef";
	size_t from = 0;
	(void)buf_chr(to, '"');
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		(void)buf_add(to, s.p + from, i - from);
		from = i + 1;
		if (c == '"' || c == '\\') {
			char two[2] = { '\\', (char)c };
			(void)buf_add(to, two, 2);
		} else if (c == '\n') {
			(void)buf_add(to, "\\n", 2);
		} else {
			char six[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
			(void)buf_add(to, six, 6);
		}
	}
	(void)buf_add(to, s.p + from, s.n - from);
	(void)buf_chr(to, '"');
}

void wire_put_json(struct buf *to, const char *name, json_t *v)
{
	auto_json json_t *mine = v;
	if (name != NULL && name[0] != 0)
		(void)buf_fmt(to, "event: %s\n", name);
	(void)buf_str(to, "data: ");
	(void)js_dump_buf(to, mine);
	(void)buf_str(to, "\n\n");
}

struct wire_out_call *wire_out_head(struct wire_out *o)
{
	return &o->calls[o->head];
}

const char *wire_out_mark(struct wire_out *o)
{
	if (o->mark.opaque != NULL && o->mark.maker == o->w)
		return o->mark.opaque;
	return wire_mark_of(o->mem, &o->mark);
}

static void begin(struct wire_out *o, struct buf *to)
{
	if (o->begun)
		return;
	o->begun = true;
	if (o->self.model == NULL)
		o->self.model = o->model; /* "" where content comes before the upstream says who it is */
	ops(o)->begin(o, to);
}

static void close_block(struct wire_out *o, struct buf *to)
{
	if (o->open == WIRE_B_NONE)
		return;
	ops(o)->close(o, to);
	if (o->open == WIRE_B_CALL)
		o->head++;
	o->open = WIRE_B_NONE;
	o->mark = (struct wire_part){ 0 };
	o->redacted = false;
	buf_reset(&o->text);
}

static void open_block(struct wire_out *o, enum wire_block kind, struct buf *to)
{
	begin(o, to);
	if (o->open == kind && kind != WIRE_B_CALL)
		return;
	close_block(o, to);
	o->open = kind;
	o->blocks++;
	ops(o)->open(o, to);
}

static bool whole_json(const struct buf *args, bool object)
{
	struct scan s = scan_of((struct str){ buf_c(args), args->n });
	if (object && scan_peek(&s) != '{')
		return false;
	return args->n > 0 && scan_value(&s, NULL) && scan_done(&s);
}

static bool wrapped(const struct wire_out_call *c)
{
	return c->own.custom && !c->raw_custom;
}

/* What of the head's arguments was not sent; those of a custom tool that was offered as a function only when all are there. */
static void send_args(struct wire_out *o, struct wire_out_call *c, struct buf *to)
{
	if (wrapped(c) || c->sent == c->args.n)
		return;
	ops(o)->delta(o, (struct str){ c->args.p + c->sent, c->args.n - c->sent }, to);
	c->sent = c->args.n;
}

static void close_call(struct wire_out *o, struct wire_out_call *c, struct buf *to)
{
	if (wrapped(c)) {
		struct wire_part p = c->own;
		p.custom = false;
		p.text = buf_c(&c->args);
		struct err e = { 0 };
		auto_json json_t *v = wire_parse(p.text, c->args.n, &e);
		const char *input = js_str(v, "input");
		c->own.text = mem_str(o->mem, input == NULL ? p.text : input);
		if (c->own.text[0] != 0)
			ops(o)->delta(o, str_of(c->own.text), to);
	} else {
		if (c->args.n == 0 && !c->own.custom)
			(void)buf_str(&c->args, "{}"); /* a tool that takes nothing */
		send_args(o, c, to);
		/* messages has no custom tools, so that their input is no object there either. */
		if (c->own.custom ? o->w == WIRE_MESSAGES : !whole_json(&c->args, true))
			o->bad_args = true;
		c->own.text = buf_c(&c->args);
	}
	close_block(o, to);
}

/* Open, feed and close calls in their order, as far as they are known to have ended. */
static void run_calls(struct wire_out *o, bool all, struct buf *to)
{
	while (o->head < o->n_calls) {
		struct wire_out_call *c = wire_out_head(o);
		if (o->open != WIRE_B_CALL)
			open_block(o, WIRE_B_CALL, to);
		send_args(o, c, to);
		bool followed = o->head + 1 < o->n_calls && whole_json(&c->args, false);
		if (!all && !c->ended && !followed)
			return;
		close_call(o, c, to);
	}
}

static bool calls_open(const struct wire_out *o)
{
	return o->head < o->n_calls;
}

static void text(struct wire_out *o, enum wire_block kind, struct str s, struct buf *to)
{
	if (kind == WIRE_B_REFUSAL)
		o->refused = true;
	if (calls_open(o)) {
		if (kind != WIRE_B_REASONING)
			(void)buf_add(&o->late, s.p, s.n);
		return;
	}
	open_block(o, kind, to);
	(void)buf_add(&o->text, s.p, s.n);
	ops(o)->delta(o, s, to);
}

static void opaque(struct wire_out *o, const struct wire_piece *p, struct buf *to)
{
	if (calls_open(o))
		return;
	if (o->open != WIRE_B_REASONING || p->custom) {
		close_block(o, to);
		begin(o, to);
		o->redacted = true; /* nothing readable goes with it */
	}
	struct wire_part mark = { .maker = p->maker, .redacted = p->custom };
	mark.opaque = mem_strn(o->mem, p->text.p, p->text.n);
	mark.id = mem_strn(o->mem, p->id.n == 0 ? "" : p->id.p, p->id.n);
	o->mark = mark;
	if (o->open != WIRE_B_REASONING) {
		o->open = WIRE_B_REASONING;
		o->blocks++;
		ops(o)->open(o, to);
	}
	close_block(o, to);
}

static int call(struct wire_out *o, const struct wire_piece *p, struct buf *to, struct err *e)
{
	if (o->n_calls == CALLS_MAX || p->call != o->n_calls)
		return err_set(e, ERR_UPSTREAM, "The model wrote more calls at once than can be passed on.");
	if (o->n_calls == o->cap_calls) {
		o->cap_calls = o->cap_calls == 0 ? 4 : o->cap_calls * 2;
		o->calls = xrealloc(o->calls, (size_t)o->cap_calls * sizeof *o->calls);
	}
	struct wire_part part = { .kind = WIRE_CALL, .text = "", .custom = p->custom };
	part.id = mem_strn(o->mem, p->id.p, p->id.n);
	part.name = mem_strn(o->mem, p->name.p, p->name.n);
	part.space = p->space.n == 0 ? NULL : mem_strn(o->mem, p->space.p, p->space.n);
	struct wire_out_call *c = &o->calls[o->n_calls++];
	*c = (struct wire_out_call){ .own = wire_own_call(o->mem, o->self.names, &part),
		.raw_custom = p->custom,
		.args = BUF(ARGS_BYTES) };
	run_calls(o, false, to);
	return 0;
}

static int args(struct wire_out *o, const struct wire_piece *p, struct buf *to, struct err *e)
{
	if (p->call < 0 || p->call >= o->n_calls)
		return err_set(e, ERR_UPSTREAM, "The model wrote arguments of a call that never began.");
	if (p->call < o->head)
		return err_set(e, ERR_UPSTREAM, "The model wrote more arguments of a call that was over.");
	if (p->kind == WIRE_P_CALL_END)
		o->calls[p->call].ended = true;
	else if (buf_add(&o->calls[p->call].args, p->text.p, p->text.n) != 0)
		return err_set(
		    e, ERR_UPSTREAM, "The model wrote more arguments of a call than can be passed on.");
	run_calls(o, false, to);
	return 0;
}

int wire_out_end(struct wire_out *o, struct buf *to, struct err *e)
{
	if (o->ended)
		return 0;
	begin(o, to);
	run_calls(o, true, to);
	if (o->late.n > 0) {
		struct buf late = o->late;
		o->late = BUF(ARGS_BYTES);
		text(o, o->refused ? WIRE_B_REFUSAL : WIRE_B_TEXT, (struct str){ late.p, late.n }, to);
		buf_free(&late);
	}
	close_block(o, to);
	/* Clients of messages get an object: what was cut off by the limit they are told of is theirs to judge. */
	if (o->bad_args && o->w == WIRE_MESSAGES && o->finish != WIRE_LENGTH)
		return err_set(
		    e, ERR_UPSTREAM, "The model wrote the arguments of a call that are no JSON object.");
	if (o->finish == WIRE_UNFINISHED)
		o->finish = o->n_calls > 0 ? WIRE_CALLS : WIRE_STOP;
	ops(o)->end(o, to);
	o->ended = true;
	return 0;
}

int wire_out_piece(struct wire_out *o, const struct wire_piece *p, struct buf *to, struct err *e)
{
	if (p->choice != 0 || o->ended)
		return 0;
	switch (p->kind) {
	case WIRE_P_START:
		wire_copy(o->model, sizeof o->model, p->text);
		begin(o, to);
		break;
	case WIRE_P_TEXT:
		text(o, WIRE_B_TEXT, p->text, to);
		break;
	case WIRE_P_REASONING:
		text(o, WIRE_B_REASONING, p->text, to);
		break;
	case WIRE_P_REFUSAL:
		text(o, WIRE_B_REFUSAL, p->text, to);
		break;
	case WIRE_P_OPAQUE:
		opaque(o, p, to);
		break;
	case WIRE_P_CALL:
		return call(o, p, to, e);
	case WIRE_P_ARGS:
	case WIRE_P_CALL_END:
		return args(o, p, to, e);
	case WIRE_P_USAGE:
		o->usage = p->usage;
		break;
	case WIRE_P_FINISH:
		o->finish = p->finish;
		wire_copy(o->stop, sizeof o->stop, p->text);
		break;
	case WIRE_P_PING:
		wire_stream_ping(o->w, to);
		break;
	case WIRE_P_FAULT:
		break;
	case WIRE_P_END:
		return wire_out_end(o, to, e);
	}
	return 0;
}

static int out_part(struct wire_out *o, const struct wire_part *p, struct buf *to, struct err *e)
{
	struct str said = str_of(p->text);
	switch (p->kind) {
	case WIRE_CALL: {
		struct wire_piece c = { .kind = WIRE_P_CALL, .call = o->n_calls, .custom = p->custom };
		c.id = str_of(p->id);
		c.name = str_of(p->name);
		c.space = str_of(p->space);
		if (call(o, &c, to, e) != 0)
			return -1;
		c.kind = WIRE_P_ARGS;
		c.text = said;
		if (args(o, &c, to, e) != 0)
			return -1;
		c.kind = WIRE_P_CALL_END;
		return args(o, &c, to, e);
	}
	case WIRE_REASONING: {
		const struct wire_piece mark = { .kind = WIRE_P_OPAQUE,
			.maker = p->maker,
			.custom = p->redacted || said.n == 0,
			.id = str_of(p->id),
			.text = str_of(p->opaque) };
		if (said.n > 0)
			text(o, WIRE_B_REASONING, said, to);
		if (p->opaque != NULL)
			opaque(o, &mark, to);
		return 0;
	}
	case WIRE_REFUSAL:
	case WIRE_TEXT:
		if (said.n > 0)
			text(o, p->kind == WIRE_TEXT ? WIRE_B_TEXT : WIRE_B_REFUSAL, said, to);
		return 0;
	default: /* nothing that a model answers with */
		return 0;
	}
}

int wire_out_answer(struct wire_out *o, const struct wire_answer *a, struct buf *to, struct err *e)
{
	wire_copy(o->model, sizeof o->model, str_of(a->model));
	o->usage = a->usage; /* messages tells the input's at the beginning */
	begin(o, to);
	for (size_t i = 0; i < a->n_parts; i++)
		if (out_part(o, &a->parts[i], to, e) != 0)
			return -1;
	o->finish = a->finish;
	wire_copy(o->stop, sizeof o->stop, str_of(a->stop_sequence));
	return wire_out_end(o, to, e);
}

long long wire_out_next(const struct wire_out *o)
{
	return o->seq;
}

void wire_out_unsent(struct wire_out *o, long long next)
{
	o->seq = next;
}

void wire_out_fault(
    struct wire_out *o, enum wire_fault kind, const char *message, const char *request_id, struct buf *to)
{
	auto_buf struct buf id = BUF(256);
	o->ended = true;
	(void)buf_fmt(&id, "resp_%s", o->self.tail);
	const struct wire_head head = { .id = buf_c(&id),
		.model = o->self.model == NULL ? o->model : o->self.model,
		.created_s = o->self.created_s,
		.next = o->seq };
	wire_stream_fault(o->w, kind, message, request_id, &head, to);
}
