/* What model providers and their clients send: streams, requests, answers, and text with what may be markup. */
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "fuzz.h"
#include "model/markup.h"
#include "model/scan.h"
#include "model/sse.h"
#include "model/wire.h"

enum { OUT_BYTES = 8 << 20, EVENT_BYTES = 1 << 20 };

static const struct wire_target target = { .model = "up" };

static void events(const uint8_t *p, size_t n, size_t cut, struct buf *out)
{
	struct sse s = sse_new(EVENT_BYTES);
	struct sse_event ev;
	struct err e = { 0 };
	size_t raw = 0;
	for (size_t at = 0; at < n;) {
		size_t part = at == 0 && cut < n ? cut : n - at;
		HOLDS(sse_feed(&s, (const char *)p + at, part, &e) == 0);
		at += part;
		while (sse_next(&s, &ev)) {
			raw += ev.raw.n;
			HOLDS(ev.raw.n > 0 && raw <= n);
			(void)buf_fmt(out, "%zu:", ev.data.n);
			(void)buf_add(out, ev.data.p, ev.data.n);
			(void)buf_add(out, ev.name.p, ev.name.n);
			(void)buf_add(out, ev.raw.p, ev.raw.n);
		}
	}
	while (sse_end(&s, &ev)) {
		(void)buf_add(out, ev.data.p, ev.data.n);
		(void)buf_add(out, ev.raw.p, ev.raw.n);
	}
	sse_free(&s);
}

/* One JSON text, read in place and as a tree: what the tree holds the scan reads, and strings are the same. */
void fuzz_scan(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	struct scan s = scan_of((struct str){ (const char *)p, n });
	struct scan_text t;
	struct str whole;
	bool text = scan_peek(&s) == '"';
	bool fine = text ? scan_string(&s, &t) && scan_done(&s) : scan_value(&s, &whole) && scan_done(&s);
	auto_json json_t *v = js_parse((const char *)p, n, &e);
	/* Jansson takes a NUL behind a value for the end. */
	HOLDS(v == NULL || fine || memchr(p, 0, n) != NULL);
	if (!fine || !text || v == NULL)
		return;
	auto_buf struct buf out = BUF(OUT_BYTES);
	HOLDS(scan_unescape(t, &out) == 0 && out.n <= t.raw.n);
	HOLDS(out.n == json_string_length(v) && memcmp(buf_c(&out), json_string_value(v), out.n) == 0);
}

/* A byte says where it is cut: what is read is the same. */
void fuzz_sse(const uint8_t *p, size_t n)
{
	if (n < 2)
		return;
	auto_buf struct buf whole = BUF(OUT_BYTES), cut = BUF(OUT_BYTES);
	events(p + 1, n - 1, n - 1, &whole);
	events(p + 1, n - 1, 1 + p[0] % (n - 1), &cut);
	HOLDS(whole.n == cut.n && (whole.n == 0 || memcmp(whole.p, cut.p, whole.n) == 0));
}

struct through {
	struct wire_in *in;
	struct wire_in *forgets; /* reads the same, and remembers no event */
	struct wire_out *out[WIRES];
	bool failed[WIRES];
	struct buf to[WIRES];
};

static void piece(struct through *t, const struct wire_piece *p)
{
	for (int w = 0; w < WIRES; w++) {
		struct err e = { 0 };
		if (t->failed[w] || p->kind == WIRE_P_FAULT)
			continue;
		t->failed[w] = wire_out_piece(t->out[w], p, &t->to[w], &e) != 0;
		HOLDS(!t->failed[w] || e.code == ERR_UPSTREAM);
	}
}

/* A reader that remembers the event before reads like one that does not. */
static void read_alike(struct through *t, const struct sse_event *ev, int rc, const struct wire_read *a)
{
	struct wire_read b;
	struct err e = { 0 };
	wire_in_silent(t->forgets);
	HOLDS(wire_in_event(t->forgets, ev, &b, &e) == rc && a->n == b.n && a->pass == b.pass);
	for (size_t i = 0; i < a->n; i++) {
		const struct wire_piece *p = &a->pieces[i], *q = &b.pieces[i];
		HOLDS(p->kind == q->kind && p->choice == q->choice && p->text.n == q->text.n);
		HOLDS(p->text.n == 0 || memcmp(p->text.p, q->text.p, p->text.n) == 0);
	}
	const struct wire_seen *s = wire_in_seen(t->in), *f = wire_in_seen(t->forgets);
	HOLDS(s->content == f->content && s->finished == f->finished && s->ended == f->ended);
	HOLDS(s->calls == f->calls && s->written == f->written && s->usage.output == f->usage.output);
}

static void stream(struct through *t, struct sse *s)
{
	struct sse_event ev;
	struct wire_read r;
	struct err e = { 0 };
	while (sse_next(s, &ev) || sse_end(s, &ev)) {
		int rc = wire_in_event(t->in, &ev, &r, &e);
		read_alike(t, &ev, rc, &r);
		if (rc != 0) {
			HOLDS(e.code == ERR_UPSTREAM);
			return;
		}
		for (size_t i = 0; i < r.n; i++)
			piece(t, &r.pieces[i]);
		auto_buf struct buf fixed = BUF(OUT_BYTES);
		if (r.pass == WIRE_PASS_FIXED && wire_in_fixed(t->in, &ev, NULL, &fixed) != 0)
			HOLDS(fixed.n == 0);
	}
}

/* What is written in any dialect is read again without a complaint. */
static void read_back(enum provider_wire w, const struct buf *text)
{
	struct sse s = sse_new(OUT_BYTES);
	struct sse_event ev;
	struct wire_read r;
	struct err e = { 0 };
	auto_wire_in struct wire_in *in = wire_in_new(w, true);
	HOLDS(sse_feed(&s, buf_c(text), text->n, &e) == 0);
	while (sse_next(&s, &ev))
		HOLDS(wire_in_event(in, &ev, &r, &e) == 0);
	HOLDS(!sse_end(&s, &ev)); /* MOD-11 */
	sse_free(&s);
}

/* The first byte is the upstream's wire. */
void fuzz_stream(const uint8_t *p, size_t n)
{
	if (n < 1)
		return;
	enum provider_wire from = (enum provider_wire)(p[0] % WIRES);
	struct wire_self self = { .tail = "1", .model = "m", .usage_asked = true };
	struct sse s = sse_new(EVENT_BYTES);
	struct err e = { 0 };
	struct through t = { .in = wire_in_new(from, false), .forgets = wire_in_new(from, false) };
	for (int w = 0; w < WIRES; w++) {
		t.out[w] = wire_out_new((enum provider_wire)w, &self);
		t.to[w] = BUF(OUT_BYTES);
	}
	HOLDS(sse_feed(&s, (const char *)p + 1, n - 1, &e) == 0);
	stream(&t, &s);
	const struct wire_seen *seen = wire_in_seen(t.in);
	HOLDS(!seen->ended || seen->finished || from != WIRE_RESPONSES);
	for (int w = 0; w < WIRES; w++) {
		struct err end = { 0 };
		if (!t.failed[w] && seen->finished)
			t.failed[w] = wire_out_end(t.out[w], &t.to[w], &end) != 0;
		if (t.failed[w] || !seen->finished)
			wire_out_fault(t.out[w], WIRE_UPSTREAM, "It ended.", "r", &t.to[w]);
		read_back((enum provider_wire)w, &t.to[w]);
		wire_out_free(t.out[w]);
		buf_free(&t.to[w]);
	}
	wire_in_free(t.in);
	wire_in_free(t.forgets);
	sse_free(&s);
}

static void ask_of(enum provider_wire from, enum provider_wire to, const json_t *body)
{
	struct err e = { 0 };
	const struct wire_names *names;
	auto_mem struct mem *m = mem_new();
	const json_t *out = wire_translate(m, from, to, body, &target, &names, &e);
	HOLDS((out == NULL) == (e.code != ERR_NONE));
	if (out == NULL)
		HOLDS(e.code == ERR_BAD_REQUEST && e.param[0] != 0);
	else
		HOLDS(js_depth(js_dump(m, out), strlen(js_dump(m, out))) <= 40);
}

/* The first byte is the client's wire, the rest its body. */
void fuzz_ask(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	struct wire_ask ask;
	if (n < 1)
		return;
	enum provider_wire from = (enum provider_wire)(p[0] % WIRES);
	auto_json json_t *body = js_parse((const char *)p + 1, n - 1, &e);
	if (body == NULL || wire_look(from, body, &ask, &e) != 0) {
		HOLDS(e.code == ERR_BAD_REQUEST && e.msg[0] != 0);
		return;
	}
	auto_json json_t *same = wire_forward(from, body, &target);
	HOLDS(json_is_object(same) && wire_estimate_request(same) >= 0);
	for (int to = 0; to < WIRES; to++)
		if (to != (int)from)
			ask_of(from, (enum provider_wire)to, body);
}

static bool same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Behind a byte order mark an answer of chat is read as a tree, and without one mostly in place. */
static void as_a_tree(struct mem *m, const char *p, size_t n, bool fine, const struct wire_answer *a)
{
	struct wire_answer b;
	struct err e = { 0 };
	auto_buf struct buf text = BUF(OUT_BYTES);
	HOLDS(buf_str(&text, "\xEF\xBB\xBF") == 0 && buf_add(&text, p, n) == 0);
	HOLDS((wire_answer_read(m, WIRE_CHAT, text.p, text.n, &b, &e) == 0) == fine);
	if (!fine)
		return;
	HOLDS(same_text(a->id, b.id) && same_text(a->model, b.model) && a->n == b.n && a->fault == b.fault);
	HOLDS(a->finish == b.finish && a->usage.known == b.usage.known && a->usage.odd == b.usage.odd);
	HOLDS(a->usage.input == b.usage.input && a->usage.output == b.usage.output &&
	    a->usage.cached == b.usage.cached && a->usage.reasoning == b.usage.reasoning);
	HOLDS(a->n_parts == b.n_parts && a->unparsed_call == b.unparsed_call);
	for (size_t i = 0; i < b.n_parts; i++)
		HOLDS(a->parts[i].kind == b.parts[i].kind && same_text(a->parts[i].text, b.parts[i].text));
}

/* The first byte is the upstream's wire, the rest its body; also as a refusal. */
void fuzz_reply(const uint8_t *p, size_t n)
{
	if (n < 1)
		return;
	enum provider_wire from = (enum provider_wire)(p[0] % WIRES);
	struct wire_said said;
	struct wire_answer a;
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	wire_upstream_said(p[0] < 128 ? 400 : 503, (const char *)p + 1, n - 1, &said);
	HOLDS(said.kind != WIRE_FAULT_NONE && (p[0] < 128 || said.kind == WIRE_OVERLOADED));
	bool fine = wire_answer_read(m, from, (const char *)p + 1, n - 1, &a, &e) == 0;
	if (from == WIRE_CHAT && n > 1)
		as_a_tree(m, (const char *)p + 1, n - 1, fine, &a);
	if (!fine) {
		HOLDS(e.code == ERR_UPSTREAM);
		return;
	}
	if (a.fault != WIRE_FAULT_NONE)
		return;
	(void)wire_answer_text(m, &a);
	struct wire_self self = { .tail = "1", .model = "m" };
	for (int w = 0; w < WIRES; w++) {
		struct err bad = { 0 };
		struct wire_answer again;
		const json_t *v = mem_json(m, wire_answer_write((enum provider_wire)w, &a, &self, &bad));
		HOLDS(v != NULL || (bad.code == ERR_UPSTREAM && a.unparsed_call));
		const char *text = v == NULL ? NULL : js_dump(m, v);
		HOLDS(v == NULL ||
		    wire_answer_read(m, (enum provider_wire)w, text, strlen(text), &again, &bad) == 0);
	}
}

/* A byte says where it is cut. */
void fuzz_markup(const uint8_t *p, size_t n)
{
	struct markup whole, cut = { 0 };
	if (n < 2)
		return;
	const char *text = (const char *)p + 1;
	size_t at = p[0] % (n - 1);
	bool found = markup_in(text, n - 1, &whole);
	HOLDS(found == (markup_family(&whole) != NULL));
	(void)markup_feed(&cut, text, at);
	HOLDS(markup_held(&cut) <= at && markup_held(&cut) <= MARKUP_HELD_MAX);
	(void)markup_feed(&cut, text + at, n - 1 - at);
	HOLDS(markup_end(&cut) == found && whole.found == cut.found);
}
