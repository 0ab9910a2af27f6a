/* A buffered answer: what is one goes to the client as it came, or in the client's own wire; everything else is a fault. */
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "model/call_int.h"

enum { OUT_BYTES = 128 << 20 }; /* of an answer written as a stream */

static struct wire_self self_of(const struct attempt *a, const char *model)
{
	const struct call *k = a->k;
	return (struct wire_self){ .tail = id_tail(k->rec.id),
		.model = model,
		.created_s = clock_wall_ms() / 1000,
		.usage_asked = k->ask.usage_asked,
		.names = a->names };
}

static enum verdict send_bytes(struct attempt *a, const char *p, size_t n)
{
	struct call *k = a->k;
	k->c->reply->unbuffered = false; /* one value: a slow client is nginx's matter */
	reply_header(k->c, "Content-Length", mem_num(k->c->mem, (long long)n));
	reply_header(k->c, "Cache-Control", "no-store");
	(void)call_reply_begin(k, 200, "application/json");
	if (reply_write(k->c, p, n) != 0)
		k->rec.client_left = true; /* it is charged all the same: everything was produced */
	return CALL_DONE;
}

/* mended: the answer's usage is not what the upstream told. */
static enum verdict give(struct attempt *a, const struct wire_answer *answer, bool mended)
{
	struct call *k = a->k;
	struct err e = { 0 };
	bool same = a->t->provider->wire == k->wire;
	const struct wire_self self = self_of(a, a->t->address);
	if (same && !mended && k->c->once == NULL)
		return send_bytes(a, a->body.p, a->body.n);
	json_t *v = mem_json(k->c->mem,
	    same ? wire_parse(a->body.p, a->body.n, &e) : wire_answer_write(k->wire, answer, &self, &e));
	if (v == NULL)
		return attempt_fails(a, CALL_AGAIN, "not_carried", WIRE_UPSTREAM,
		    "The model's answer cannot be told on this wire; try again.");
	if (same && mended)
		wire_usage_put(k->wire, v, &answer->usage);
	if (k->c->once != NULL) {
		k->kept = v;
		return CALL_DONE;
	}
	const char *text = js_dump(k->c->mem, v);
	return send_bytes(a, text, strlen(text));
}

/* A stream was asked for and the answer came in one piece: it is there and paid for, and asked again it would come so again. */
static enum verdict give_stream(struct attempt *a, const struct wire_answer *answer)
{
	struct call *k = a->k;
	struct err e = { 0 };
	bool same = a->t->provider->wire == k->wire && answer->model != NULL;
	const struct wire_self self = self_of(a, same ? answer->model : a->t->address);
	auto_wire_out struct wire_out *out = wire_out_new(k->wire, &self);
	auto_buf struct buf to = BUF(OUT_BYTES);
	if (answer->n > 1 || wire_out_answer(out, answer, &to, &e) != 0 || to.full)
		return attempt_fails(a, CALL_NEXT, "no_stream", WIRE_UPSTREAM,
		    "The model's provider did not stream its answer, which cannot be told as a stream.");
	if (call_reply_begin(k, 200, "text/event-stream; charset=utf-8") != 0 ||
	    reply_write(k->c, to.p, to.n) != 0 || reply_flush(k->c) != 0)
		k->rec.client_left = true; /* it is charged all the same */
	return CALL_DONE;
}

/* What was read is no answer. It may be one the next time, unless it is whole and only cannot be read here. */
static enum verdict no_answer(struct attempt *a, bool whole)
{
	static const char message[] =
	    "The model's provider answered with something that is no answer; try again.";
	if (whole)
		return attempt_fails(a, CALL_NEXT, "unreadable", WIRE_UPSTREAM,
		    "The model's provider answered with JSON that cannot be read.");
	return attempt_key_fails(a, CALL_AGAIN,
	    a->html              ? "html"
		: a->body.n == 0 ? "empty"
				 : "no_answer",
	    WIRE_UPSTREAM, message, KEY_FAULT);
}

enum verdict buffered_give(struct attempt *a)
{
	struct call *k = a->k;
	struct wire_answer answer = { 0 };
	struct markup m = { 0 };
	struct err e = { 0 };
	if (a->body.n >= 3 && memcmp(a->body.p, "\xEF\xBB\xBF", 3) == 0)
		buf_drop(&a->body, 3); /* a byte order mark: no part of the value (RFC 8259, section 8.1) */
	if (a->html ||
	    wire_answer_read(k->c->mem, a->t->provider->wire, buf_c(&a->body), a->body.n, &answer, &e) != 0)
		return no_answer(a, answer.whole);
	if (answer.fault != WIRE_FAULT_NONE)
		return attempt_told(a, answer.fault, answer.fault_text == NULL ? "" : answer.fault_text);
	if (answer.unparsed_call)
		return attempt_fails(a, CALL_AGAIN, "unparsed_call", WIRE_UPSTREAM,
		    "The model made a tool call that cannot be read; try again.");
	const char *text = k->ask.tools ? wire_answer_text(k->c->mem, &answer) : "";
	if (markup_in(text, strlen(text), &m)) {
		k->rec.markup = markup_family(&m);
		return attempt_fails(a, CALL_AGAIN, "markup", WIRE_UPSTREAM,
		    "The model's answer holds a raw tool call that its provider did not read; try again.");
	}
	size_t written = wire_answer_written(&answer);
	bool mended = !call_used(k, a, &answer.usage, written, true) ||
	    (answer.usage.known && answer.usage.part);
	if (mended)
		answer.usage = call_charged(k);
	else if (!answer.usage.known)
		answer.usage = call_estimate(k, written);
	k->rec.finish = answer.finish;
	str_put(k->rec.response_id, sizeof k->rec.response_id, answer.id == NULL ? "" : answer.id, "", "");
	str_put(k->rec.response_model, sizeof k->rec.response_model, answer.model == NULL ? "" : answer.model,
	    "", "");
	return k->ask.stream ? give_stream(a, &answer) : give(a, &answer, mended);
}
