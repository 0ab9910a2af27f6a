/* The stream readers of the three wires: MOD-6, MOD-8. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../streams.h"
#include "model/scan.h"

static const char *const kinds[] = { "start", "text", "reasoning", "opaque", "refusal", "call", "args",
	"call end", "usage", "finish", "fault", "ping", "end" };

static void show(struct buf *out, const char *name, struct str s)
{
	if (s.n > 0)
		(void)buf_fmt(out, " %s=%.*s", name, (int)s.n, s.p);
}

static void piece(const struct wire_piece *p, struct buf *out)
{
	bool call = p->kind >= WIRE_P_CALL && p->kind <= WIRE_P_CALL_END;
	(void)buf_fmt(out, "  %s", kinds[p->kind]);
	if (p->choice > 0)
		(void)buf_fmt(out, " choice=%d", p->choice);
	if (call)
		(void)buf_fmt(out, " call=%d", p->call);
	if (p->custom)
		(void)buf_str(out, " custom");
	show(out, "id", p->id);
	show(out, "name", p->name);
	show(out, "space", p->space);
	if (p->kind == WIRE_P_FINISH)
		(void)buf_fmt(out, " %s", wire_finish_name(p->finish));
	if (p->kind == WIRE_P_FAULT)
		(void)buf_fmt(out, " fault=%d", (int)p->fault);
	if (p->kind == WIRE_P_USAGE)
		(void)buf_fmt(out, " in=%lld cached=%lld write=%lld out=%lld reasoning=%lld", p->usage.input,
		    p->usage.cached, p->usage.cache_write, p->usage.output, p->usage.reasoning);
	show(out, "text", p->text);
	(void)buf_chr(out, '\n');
}

static void event(struct wire_in *in, const struct sse_event *ev, const struct wire_read *r, void *arg)
{
	struct buf *out = arg;
	for (size_t i = 0; i < r->n; i++)
		piece(&r->pieces[i], out);
	if (r->pass == WIRE_PASS_NOT) {
		(void)buf_fmt(
		    out, "  (not passed on: %.*s)\n", ev->data.n > 40 ? 40 : (int)ev->data.n, ev->data.p);
	} else if (r->pass == WIRE_PASS_FIXED) {
		(void)buf_str(out, "  (fixed) ");
		assert_int_equal(wire_in_fixed(in, ev, NULL, out), 0);
	}
}

static void dump(const struct stream_case *c, size_t first, bool usage_asked, struct buf *out)
{
	struct err e = { 0 };
	auto_wire_in struct wire_in *in = wire_in_new(c->w, usage_asked);
	(void)buf_fmt(out, "%s\n", c->name);
	if (stream_read(in, c->text.p, c->text.n, first, event, out, &e) != 0)
		(void)buf_fmt(out, "  refused: %s\n", e.msg);
	const struct wire_seen *s = wire_in_seen(in);
	(void)buf_fmt(out, "  = id %s, model %s, finish \"%s\", %d calls, %zu bytes%s%s%s%s\n", s->id,
	    s->model, wire_finish_name(s->finish), s->calls, s->written, s->content ? ", content" : "",
	    s->finished ? ", finished" : "", s->ended ? ", ended" : "", s->fault ? ", fault" : "");
	size_t before = out->n;
	assert_int_equal(wire_in_rest(in, out), 0);
	if (out->n > before)
		(void)buf_str(out, "  (was what the upstream left out)\n");
}

static void dump_case(const struct stream_case *c, void *arg)
{
	dump(c, c->text.n, false, arg);
}

static void every_stream_is_read_as_it_was_meant(void **state)
{
	(void)state;
	auto_buf struct buf out = BUF(1 << 20);
	(void)stream_cases(dump_case, &out);
	golden_is("tests/golden/wire-in.txt", &out);
}

static void cut_everywhere(const struct stream_case *c, void *arg)
{
	(void)arg;
	auto_buf struct buf whole = BUF(1 << 20), out = BUF(1 << 20);
	dump(c, c->text.n, true, &whole);
	for (size_t first = 0; first < c->text.n; first++) {
		buf_reset(&out);
		dump(c, first, true, &out);
		assert_string_equal(buf_c(&out), buf_c(&whole));
	}
}

/* MOD-6: inside UTF-8, inside an escape, between CR and LF. */
static void a_stream_is_the_same_wherever_it_is_cut(void **state)
{
	(void)state;
	(void)stream_cases(cut_everywhere, NULL);
}

static void ignore(struct wire_in *in, const struct sse_event *ev, const struct wire_read *r, void *arg)
{
	(void)in;
	(void)ev;
	(void)r;
	(void)arg;
}

/* MOD-8: what ends early is no success, unless all of it had come. */
static void ended_everywhere(const struct stream_case *c, void *arg)
{
	(void)arg;
	struct err e = { 0 };
	auto_wire_in struct wire_in *whole = wire_in_new(c->w, true);
	(void)stream_read(whole, c->text.p, c->text.n, c->text.n, ignore, NULL, &e);
	for (size_t n = 0; n < c->text.n; n++) {
		struct err cut = { 0 };
		auto_wire_in struct wire_in *in = wire_in_new(c->w, true);
		int rc = stream_read(in, c->text.p, n, n, ignore, NULL, &cut);
		assert_true(rc == 0 || cut.code == ERR_UPSTREAM);
		const struct wire_seen *s = wire_in_seen(in), *all = wire_in_seen(whole);
		if (s->finished)
			assert_int_equal(s->written, all->written);
		assert_true(!s->ended || s->finished);
	}
}

static void what_ends_early_is_no_success(void **state)
{
	(void)state;
	(void)stream_cases(ended_everywhere, NULL);
}

static int one(enum provider_wire w, const char *text, struct err *e)
{
	struct sse_event ev = { .data = { text, strlen(text) }, .has_data = true };
	struct wire_read r;
	auto_wire_in struct wire_in *in = wire_in_new(w, false);
	return wire_in_event(in, &ev, &r, e);
}

static void what_is_no_event_of_the_wire_is_refused(void **state)
{
	static const char *const bad[] = { "<html>", "null", "[]", "\"x\"", "{",
		"{\"choices\":[{\"delta\":{\"content\":\"x", "{\"a\":1}}", "{\"a\":01}", "{\"a\":\"\xff\"}",
		"{\"a\" 1}", "{\"a\":1,}", "{\"a\":tru}" };
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++)
		for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
			struct err e = { 0 };
			assert_int_equal(one(w, bad[i], &e), -1);
			assert_int_equal(e.code, ERR_UPSTREAM);
		}
	struct err e = { 0 };
	assert_int_equal(one(WIRE_CHAT,
			     "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
			     "\"arguments\":\"{\"}}]}}]}",
			     &e),
	    -1);
}

/* One event may be noise of something in between: whoever thinks so goes on as if it had not been. */
static void what_is_refused_leaves_no_trace(void **state)
{
	static const char *const bad[WIRES] = {
		"{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\",\"tool_calls\":[{"
		"\"index\":0,\"id\":\"c\","
		"\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"stop\"}],"
		"\"usage\":{"
		"\"prompt_tokens\":5}} and more",
		"{\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":5},"
		"\"output\":[{\"type\":"
		"\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
		"\"function_call\"}]}}",
		"{\"type\":\"content_block_start\",\"index\":0,\"usage\":{\"input_tokens\":5},\"content_"
		"block\":{\"type\":"
		"\"tool_use\",\"id\":\"c\",\"name\":\"f\"}} and more",
	};
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		struct err e = { 0 };
		struct sse_event ev = { .data = { bad[w], strlen(bad[w]) }, .has_data = true };
		struct wire_read r;
		auto_wire_in struct wire_in *in = wire_in_new(w, false);
		assert_int_equal(wire_in_event(in, &ev, &r, &e), -1);
		assert_int_equal(r.n, 0);
		const struct wire_seen *s = wire_in_seen(in);
		assert_false(s->content || s->finished || s->ended || s->usage.known);
		assert_int_equal(s->calls, 0);
		assert_int_equal(s->written, 0);
		assert_string_equal(s->id, "");
	}
}

/* ---- events that repeat the one before but for their text (again.c) */

static int take(struct wire_in *in, const char *p, size_t n, struct buf *out)
{
	const struct sse_event ev = { .data = { p, n }, .has_data = true };
	struct wire_read r;
	struct err e = { 0 };
	int rc = wire_in_event(in, &ev, &r, &e);
	(void)buf_fmt(out, "%d, pass %d\n", rc, (int)r.pass);
	for (size_t i = 0; rc == 0 && i < r.n; i++)
		piece(&r.pieces[i], out);
	const struct wire_seen *s = wire_in_seen(in);
	(void)buf_fmt(out, "%d %d %d %d %zu %lld\n", s->content, s->finished, s->ended, s->calls, s->written,
	    s->usage.output);
	return rc;
}

struct repeated {
	enum provider_wire w;
	const char *before[4];
	const char *then; /* shows what is not told of by the event itself */
};

/* After the same events a reader that remembers the last of them, and one that has forgotten it, read p alike. */
static void read_alike(const struct repeated *c, const char *p, size_t n)
{
	auto_buf struct buf a = BUF(1 << 16), b = BUF(1 << 16);
	auto_wire_in struct wire_in *knows = wire_in_new(c->w, false), *forgets = wire_in_new(c->w, false);
	for (const char *const *before = c->before; *before != NULL; before++) {
		assert_int_equal(take(knows, *before, strlen(*before), &a), 0);
		assert_int_equal(take(forgets, *before, strlen(*before), &b), 0);
	}
	wire_in_silent(forgets);
	(void)take(knows, p, n, &a);
	(void)take(forgets, p, n, &b);
	if (c->then != NULL) {
		(void)take(knows, c->then, strlen(c->then), &a);
		(void)take(forgets, c->then, strlen(c->then), &b);
	}
	assert_string_equal(buf_c(&a), buf_c(&b));
}

#define ITEM_DONE                                                                                            \
	"{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":[{\"text\":"
#define CHAT_HEAD "{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":["
static const struct repeated repeated[] = {
	{ WIRE_CHAT,
	    { CHAT_HEAD "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
		CHAT_HEAD "{\"index\":0,\"delta\":{\"content\":\"word\"},\"finish_reason\":null}]}" } },
	{ WIRE_CHAT,
	    { CHAT_HEAD "{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
		CHAT_HEAD "{\"index\":1,\"delta\":{\"content\":\"\xC3\xA9, b\"}}],\"usage\":null,"
			  "\"obfuscation\":\"xyz\"}" } },
	{ WIRE_CHAT,
	    { CHAT_HEAD "{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
		CHAT_HEAD "{\"index\":0,\"delta\":{\"reasoning\":\"hm\",\"content\":null}}],"
			  "\"usage\":{\"completion_tokens\":3}}" } },
	{ WIRE_CHAT,
	    { CHAT_HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{"
			"\"name\":\"f\"}}]}}]}",
		CHAT_HEAD
		"{\"index\":0,\"delta\":{\"content\":\"a\",\"tool_calls\":[{\"index\":0,\"function\":{"
		"\"arguments\":\"\"}}]}}]}" } },
	{ WIRE_MESSAGES,
	    { "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":"
	      "\"a\"}}",
		"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"
		"\"word\"}}" } },
	{ WIRE_MESSAGES,
	    { "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":"
	      "\"a\"}}" } },
	{ WIRE_RESPONSES,
	    { "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
		"{\"type\":\"response.output_text.delta\",\"delta\":\"b\"}" } },
	{ WIRE_RESPONSES, { ITEM_DONE "\"a\"}]}}" }, ITEM_DONE "\"z\"}]},\"output_index\":1}" },
};

/* Every byte is another one, left out, or follows one more. */
static void changed_everywhere(const struct repeated *c, const char *last)
{
	static const char *const bytes[] = { "\"", "\\", "\\n", "\\u0000", "x", "{", "[", "]", ",", ":", " ",
		"0", "\x80", "\xC3\xA9", "\x1f", "", "null,\"x\":", "[{\"text\":\"q\"}],\"x\":" };
	size_t n = strlen(last);
	for (size_t i = 0; i <= n; i++)
		for (size_t k = 0; k < 2 * sizeof bytes / sizeof *bytes; k++) {
			auto_buf struct buf b = BUF(4096);
			size_t skip = k % 2 == 1 && i < n ? 1 : 0;
			(void)buf_add(&b, last, i);
			(void)buf_str(&b, bytes[k / 2]);
			(void)buf_add(&b, last + i + skip, n - i - skip);
			read_alike(c, buf_c(&b), b.n);
		}
}

static void what_repeats_is_read_like_what_does_not(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
		const char *last = NULL;
		for (int k = 0; repeated[i].before[k] != NULL; k++)
			last = repeated[i].before[k];
		changed_everywhere(&repeated[i], last);
		for (size_t k = 0; k < sizeof repeated / sizeof *repeated; k++)
			read_alike(&repeated[i], repeated[k].before[0], strlen(repeated[k].before[0]));
	}
}

/* What an upstream nests costs no stack, and is refused. */
static void depth_is_bounded(void **state)
{
	(void)state;
	auto_buf struct buf b = BUF(1 << 20);
	for (int i = 0; i < 60000; i++)
		(void)buf_str(&b, "{\"error\":");
	struct err e = { 0 };
	assert_int_equal(one(WIRE_CHAT, buf_c(&b), &e), -1);
	buf_reset(&b);
	for (int i = 0; i < 60000; i++)
		(void)buf_chr(&b, '[');
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		struct err again = { 0 };
		assert_int_equal(one(w, buf_c(&b), &again), -1);
	}
}

static void unescaped(const char *json, const char *want)
{
	struct scan s = scan_of(str_of(json));
	struct scan_text t;
	auto_buf struct buf out = BUF(256);
	assert_true(scan_string(&s, &t) && scan_done(&s));
	assert_int_equal(scan_unescape(t, &out), 0);
	assert_string_equal(buf_c(&out), want);
	assert_true(out.n <= t.raw.n);
}

static void escapes_become_their_text(void **state)
{
	(void)state;
	unescaped("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
	unescaped("\"\\u00e9\\u20AC\\ud83d\\ude00x\"", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80x");
	unescaped("\"\\ud83d\\ud83dx\\ude00\"", "\xEF\xBF\xBD\xEF\xBF\xBDx\xEF\xBF\xBD");
	unescaped("\"\\ud83d\"", "\xEF\xBF\xBD");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_stream_is_read_as_it_was_meant),
		cmocka_unit_test(a_stream_is_the_same_wherever_it_is_cut),
		cmocka_unit_test(what_ends_early_is_no_success),
		cmocka_unit_test(what_is_no_event_of_the_wire_is_refused),
		cmocka_unit_test(what_is_refused_leaves_no_trace),
		cmocka_unit_test(what_repeats_is_read_like_what_does_not),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(escapes_become_their_text),
	};
	return cmocka_run_group_tests_name("wire_in", tests, NULL, NULL);
}
