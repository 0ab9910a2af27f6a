/* Streams from any wire to any other: MOD-1, MOD-8, MOD-11. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../streams.h"
#include "base/js.h"

enum { OUT_BYTES = 4 << 20 };

struct run {
	struct wire_out *out;
	struct buf *to;
	struct err e;
	bool failed;
};

static void event(struct wire_in *in, const struct sse_event *ev, const struct wire_read *r, void *arg)
{
	struct run *run = arg;
	(void)in;
	(void)ev;
	for (size_t i = 0; i < r->n && !run->failed; i++) {
		if (r->pieces[i].kind == WIRE_P_FAULT) {
			wire_out_fault(
			    run->out, r->pieces[i].fault, "The model provider failed.", "req_1", run->to);
			run->failed = true;
		} else if (wire_out_piece(run->out, &r->pieces[i], run->to, &run->e) != 0) {
			wire_out_fault(run->out, WIRE_UPSTREAM, run->e.msg, "req_1", run->to);
			run->failed = true;
		}
	}
}

/* As the engine does it: what ends early ends in an error. */
static void translate(
    const struct stream_case *c, enum provider_wire w, size_t first, bool usage_asked, struct buf *to)
{
	struct wire_self self = { .tail = "01abc", .model = "prov/model", .created_s = 1764460800 };
	self.usage_asked = usage_asked;
	struct err e = { 0 };
	auto_wire_in struct wire_in *in = wire_in_new(c->w, true);
	auto_wire_out struct wire_out *out = wire_out_new(w, &self);
	struct run run = { .out = out, .to = to };
	assert_int_equal(stream_read(in, c->text.p, c->text.n, first, event, &run, &e), 0);
	if (run.failed)
		return;
	if (!wire_in_seen(in)->finished)
		wire_out_fault(out, WIRE_UPSTREAM, "The model provider left before the end.", "req_1", to);
	else
		assert_int_equal(wire_out_end(out, to, &e), 0);
}

static const char *const names[WIRES] = { "chat", "responses", "messages" };

static void dump_case(const struct stream_case *c, void *arg)
{
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		if (w == c->w)
			continue;
		(void)buf_fmt(arg, "==== %s -> %s\n", c->name, names[w]);
		translate(c, w, c->text.n, true, arg);
	}
}

static void every_stream_reads_well_on_the_other_wires(void **state)
{
	(void)state;
	auto_buf struct buf out = BUF(OUT_BYTES);
	(void)stream_cases(dump_case, &out);
	golden_is("tests/golden/wire-out.txt", &out);
}

static void cut_case(const struct stream_case *c, void *arg)
{
	(void)arg;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		auto_buf struct buf whole = BUF(OUT_BYTES), out = BUF(OUT_BYTES);
		if (w == c->w)
			continue;
		translate(c, w, c->text.n, false, &whole);
		for (size_t first = 0; first < c->text.n; first += 1 + c->text.n / 300) {
			buf_reset(&out);
			translate(c, w, first, false, &out);
			assert_string_equal(buf_c(&out), buf_c(&whole));
		}
	}
}

static void a_translation_is_the_same_wherever_the_stream_is_cut(void **state)
{
	(void)state;
	(void)stream_cases(cut_case, NULL);
}

/* What a stream says, whatever its wire. */
struct meaning {
	struct buf text, reasoning, calls;
	struct buf args[16];
	int n_calls;
	struct wire_seen seen;
};

static void mean(struct wire_in *in, const struct sse_event *ev, const struct wire_read *r, void *arg)
{
	struct meaning *m = arg;
	(void)ev;
	(void)in;
	for (size_t i = 0; i < r->n; i++) {
		const struct wire_piece *p = &r->pieces[i];
		if (p->choice != 0)
			continue;
		if (p->kind == WIRE_P_TEXT || p->kind == WIRE_P_REFUSAL)
			(void)buf_add(&m->text, p->text.p, p->text.n);
		if (p->kind == WIRE_P_REASONING)
			(void)buf_add(&m->reasoning, p->text.p, p->text.n);
		if (p->kind == WIRE_P_CALL) {
			(void)buf_fmt(&m->calls, "%.*s %.*s %.*s %d\n", (int)p->id.n, p->id.p, (int)p->name.n,
			    p->name.p, (int)p->space.n, p->space.n == 0 ? "" : p->space.p, p->custom);
			assert_int_equal(p->call, m->n_calls);
			m->args[m->n_calls++] = BUF(OUT_BYTES);
		}
		if (p->kind == WIRE_P_ARGS)
			(void)buf_add(&m->args[p->call], p->text.p, p->text.n);
	}
}

static void meaning_of(struct meaning *m, enum provider_wire w, const struct buf *text)
{
	struct err e = { 0 };
	*m = (struct meaning){ .text = BUF(OUT_BYTES), .reasoning = BUF(OUT_BYTES), .calls = BUF(OUT_BYTES) };
	auto_wire_in struct wire_in *in = wire_in_new(w, true);
	assert_int_equal(stream_read(in, text->p, text->n, text->n, mean, m, &e), 0);
	m->seen = *wire_in_seen(in);
}

static void meaning_free(struct meaning *m)
{
	buf_free(&m->text);
	buf_free(&m->reasoning);
	buf_free(&m->calls);
	for (int i = 0; i < m->n_calls; i++)
		buf_free(&m->args[i]);
}

static void same_meaning(const struct meaning *a, const struct meaning *b, enum provider_wire w)
{
	assert_string_equal(buf_c(&a->text), buf_c(&b->text));
	assert_string_equal(buf_c(&a->reasoning), buf_c(&b->reasoning));
	assert_int_equal(a->n_calls, b->n_calls);
	for (int i = 0; i < a->n_calls; i++)
		assert_string_equal(buf_c(&a->args[i]), buf_c(&b->args[i]));
	assert_int_equal(a->seen.fault, b->seen.fault || !b->seen.finished);
	assert_int_equal(a->seen.finished, b->seen.finished);
	assert_int_equal(a->seen.ended, b->seen.finished); /* what is whole is also ended */
	if (!b->seen.finished)
		return;
	if (b->seen.finish != WIRE_REFUSED && a->seen.finish != WIRE_REFUSED)
		assert_string_equal(wire_finish_name(a->seen.finish), wire_finish_name(b->seen.finish));
	if (!b->seen.usage.known)
		return;
	assert_int_equal(a->seen.usage.input, b->seen.usage.input);
	assert_int_equal(a->seen.usage.cached, b->seen.usage.cached);
	assert_int_equal(a->seen.usage.cache_write, b->seen.usage.cache_write);
	assert_int_equal(a->seen.usage.output, b->seen.usage.output);
	if (w != WIRE_MESSAGES)
		assert_int_equal(a->seen.usage.reasoning, b->seen.usage.reasoning);
}

static void meaning_case(const struct stream_case *c, void *arg)
{
	(void)arg;
	struct meaning was, is;
	meaning_of(&was, c->w, &c->text);
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		auto_buf struct buf out = BUF(OUT_BYTES);
		/* A custom call has no form on messages: no client of that wire offers such a tool. */
		if (w == c->w || (w == WIRE_MESSAGES && strstr(buf_c(&was.calls), " 1\n") != NULL))
			continue;
		translate(c, w, c->text.n, true, &out);
		meaning_of(&is, w, &out);
		same_meaning(&is, &was, w);
		meaning_free(&is);
	}
	meaning_free(&was);
}

static void a_translated_stream_means_the_same(void **state)
{
	(void)state;
	(void)stream_cases(meaning_case, NULL);
}

static int feed(struct wire_out *o, struct wire_piece p, struct buf *to)
{
	struct err e = { 0 };
	return wire_out_piece(o, &p, to, &e);
}

static struct wire_piece call_piece(int call, const char *name)
{
	return (
	    struct wire_piece){ .kind = WIRE_P_CALL, .call = call, .id = str_of("c"), .name = str_of(name) };
}

static struct wire_piece args_piece(int call, const char *text)
{
	return (struct wire_piece){ .kind = WIRE_P_ARGS, .call = call, .text = str_of(text) };
}

/* messages' clients get an object or an error, except where the limit cut it off. */
static void arguments_that_are_no_object_end_in_an_error_on_messages(void **state)
{
	static const char *const bad[] = { "{\"a\":", "[1]", "not json", "{}{}" };
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++)
		for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
			for (int cut = 0; cut < 2; cut++) {
				struct wire_self self = { .tail = "1", .model = "m" };
				auto_buf struct buf to = BUF(OUT_BYTES);
				auto_wire_out struct wire_out *o = wire_out_new(w, &self);
				struct err e = { 0 };
				assert_int_equal(feed(o, call_piece(0, "f"), &to), 0);
				assert_int_equal(feed(o, args_piece(0, bad[i]), &to), 0);
				assert_int_equal(feed(o,
						     (struct wire_piece){ .kind = WIRE_P_FINISH,
							 .finish = cut ? WIRE_LENGTH : WIRE_CALLS },
						     &to),
				    0);
				assert_int_equal(
				    wire_out_end(o, &to, &e), w == WIRE_MESSAGES && !cut ? -1 : 0);
				assert_int_equal(
				    strstr(buf_c(&to), "message_stop") != NULL, w == WIRE_MESSAGES && cut);
			}
}

static void what_makes_no_sense_is_refused(void **state)
{
	struct wire_self self = { .tail = "1", .model = "m" };
	auto_buf struct buf to = BUF(OUT_BYTES);
	auto_wire_out struct wire_out *o = wire_out_new(WIRE_MESSAGES, &self);
	(void)state;
	assert_int_equal(feed(o, args_piece(0, "{}"), &to), -1);
	assert_int_equal(feed(o, call_piece(0, "f"), &to), 0);
	assert_int_equal(feed(o, args_piece(0, "{}"), &to), 0);
	assert_int_equal(feed(o, call_piece(1, "g"), &to), 0);
	assert_int_equal(feed(o, args_piece(0, "more"), &to), -1);
	assert_int_equal(feed(o, call_piece(7, "g"), &to), -1);
}

/* MOD-8: no dialect's word for success follows. */
static void an_error_within_a_stream_is_one_in_each_dialect(void **state)
{
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		auto_buf struct buf to = BUF(OUT_BYTES);
		auto_wire_in struct wire_in *in = wire_in_new(w, true);
		struct err e = { 0 };
		const struct wire_head head = { .id = "resp_1", .model = "m", .created_s = 9, .next = 4 };
		wire_stream_fault(w, WIRE_RATE, "Slow down.", "req_1", &head, &to);
		assert_null(strstr(buf_c(&to), "[DONE]"));
		assert_null(strstr(buf_c(&to), "completed\""));
		assert_null(strstr(buf_c(&to), "message_stop"));
		assert_true(str_ends(buf_c(&to), "\n\n")); /* MOD-11 */
		struct meaning m = {
			.text = BUF(OUT_BYTES), .reasoning = BUF(OUT_BYTES), .calls = BUF(OUT_BYTES)
		};
		assert_int_equal(stream_read(in, to.p, to.n, to.n, mean, &m, &e), 0);
		assert_true(wire_in_seen(in)->fault && !wire_in_seen(in)->finished);
		meaning_free(&m);
	}
}

/* The last event of a stream of responses, new reference; every event's number is one more than that before it. */
static json_t *last_numbered(const struct buf *stream)
{
	json_t *last = NULL;
	long long number = 0;
	for (const char *at = strstr(buf_c(stream), "data: "); at != NULL; at = strstr(at + 6, "data: ")) {
		json_decref(last);
		last = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
		assert_int_equal(js_int(last, "sequence_number", -1), number++);
	}
	return last;
}

/* MOD-8: what failed is what was created, nothing follows it, and what was held back has no number. */
static void a_response_that_fails_is_the_one_that_began(void **state)
{
	struct wire_self self = { .tail = "01abc", .model = "prov/model", .created_s = 1764460800 };
	auto_buf struct buf to = BUF(OUT_BYTES), held = BUF(OUT_BYTES);
	auto_wire_out struct wire_out *o = wire_out_new(WIRE_RESPONSES, &self);
	(void)state;
	assert_int_equal(
	    feed(o, (struct wire_piece){ .kind = WIRE_P_TEXT, .text = str_of("so far ") }, &to), 0);
	long long next = wire_out_next(o);
	assert_int_equal(
	    feed(o, (struct wire_piece){ .kind = WIRE_P_TEXT, .text = str_of("<tool") }, &held), 0);
	wire_out_unsent(o, next);
	wire_out_fault(o, WIRE_UPSTREAM, "The model provider failed.", "req_1", &to);
	auto_json json_t *v = last_numbered(&to);
	const json_t *r = js_get(v, "response");
	assert_string_equal(js_str(v, "type"), "response.failed");
	assert_string_equal(js_str(r, "id"), "resp_01abc");
	assert_string_equal(js_str(r, "model"), "prov/model");
	assert_string_equal(js_str(r, "status"), "failed");
	assert_int_equal(js_int(r, "created_at", 0), 1764460800);
	assert_string_equal(js_str(js_get(r, "error"), "code"), "upstream_error");
}

static void says(const struct buf *b, const char *part)
{
	if (strstr(buf_c((struct buf *)(uintptr_t)b), part) == NULL)
		fail_msg("no %s in %s", part, b->p);
}

/* An answer that came in one piece, told as a stream: everything of it, in its order, and the end. */
static void a_whole_answer_is_told_as_a_stream(void **state)
{
	(void)state;
	static const char body[] =
	    "\xEF\xBB\xBF{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m-1\","
	    "\"content\":["
	    "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"c2ln\"},"
	    "{\"type\":\"redacted_thinking\",\"data\":\"aGlk\"},{\"type\":\"text\",\"text\":"
	    "\"a\\u0000b\\ud800c\\ud83d\\ude00\"},"
	    "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"read\",\"input\":{\"p\":1}},"
	    "{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"stop\",\"input\":{}}],"
	    "\"stop_reason\":\"tool_use\",\"usage\":{\"input_tokens\":7,\"output_tokens\":9}}";
	static const char *const parts[WIRES][6] = {
		{ "\"reasoning_content\":\"hm\"",
		    "a\xEF\xBF\xBD"
		    "b\xEF\xBF\xBD"
		    "c\xF0\x9F\x98\x80",
		    "\"id\":\"t2\"", "\"finish_reason\":\"tool_calls\"", "\"completion_tokens\":9",
		    "data: [DONE]\n\n" },
		{ "gh1.m.c2ln", "gh1.x.aGlk", "\"call_id\":\"t1\"", "{\\\"p\\\":1}", "\"output_tokens\":9",
		    "event: response.completed" },
		{ "\"signature\":\"c2ln\"", "\"data\":\"aGlk\"", "\"partial_json\":\"{\\\"p\\\":1}\"",
		    "\"stop_reason\":\"tool_use\"", "\"input_tokens\":7", "event: message_stop" },
	};
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		const struct wire_self self = { .tail = "01abc", .model = "prov/m", .usage_asked = true };
		auto_mem struct mem *m = mem_new();
		auto_buf struct buf to = BUF(1 << 20);
		auto_wire_out struct wire_out *out = wire_out_new(w, &self);
		struct wire_answer a;
		struct err e = { 0 };
		assert_int_equal(wire_answer_read(m, WIRE_MESSAGES, body, sizeof body - 1, &a, &e), 0);
		assert_int_equal(wire_out_answer(out, &a, &to, &e), 0);
		for (int i = 0; i < 6; i++)
			says(&to, parts[w][i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_stream_reads_well_on_the_other_wires),
		cmocka_unit_test(a_translation_is_the_same_wherever_the_stream_is_cut),
		cmocka_unit_test(a_translated_stream_means_the_same),
		cmocka_unit_test(arguments_that_are_no_object_end_in_an_error_on_messages),
		cmocka_unit_test(what_makes_no_sense_is_refused),
		cmocka_unit_test(an_error_within_a_stream_is_one_in_each_dialect),
		cmocka_unit_test(a_response_that_fails_is_the_one_that_began),
		cmocka_unit_test(a_whole_answer_is_told_as_a_stream),
	};
	return cmocka_run_group_tests_name("wire_out", tests, NULL, NULL);
}
