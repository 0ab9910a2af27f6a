/* MOD-6: what an upstream says a call used is believed within what can be. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "model/call_int.h"
#include "model/wire_int.h"

enum { KNOWN_OUT = 8000, CONTEXT = 100000 };

static struct provider provider = { .name = "p" };

/* A call with this body, answered by a model with these limits: what is charged. */
static struct gate_used used(
    const char *body, long long max_out, struct provider_model model, struct wire_usage u, size_t written)
{
	struct err e = { 0 };
	auto_json json_t *in = js_parse(body, strlen(body), &e);
	assert_non_null(in);
	model.name = "m";
	const struct route_target t = { .provider = &provider, .model = &model };
	struct call k = {
		.in = in, .est_in = wire_estimate_request(in), .ask = { .max_out = max_out, .n = 1 }
	};
	const struct attempt a = { .k = &k, .t = &t };
	u.known = true;
	call_used(&k, &a, &u, written, true);
	assert_int_equal(k.doubted, k.used.estimated && !u.part);
	return k.used;
}

static const char hi[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

static bool believed(const char *body, long long max_out, long long context, long long in, long long out,
    long long reasoning, size_t written)
{
	const struct provider_model m = { .context_tokens = context };
	const struct wire_usage u = { .input = in, .output = out, .reasoning = reasoning };
	return !used(body, max_out, m, u, written).estimated;
}

static void what_can_be_is_believed(void **s)
{
	(void)s;
	assert_true(believed(hi, 10, 0, 20, 10, 0, 40));
	assert_true(believed(hi, 10, 0, 5000, 10, 0, 40));     /* a vendor's own prompt */
	assert_true(believed(hi, 10, 0, 20, 60, 0, 40));       /* a limit that it did not keep */
	assert_true(believed(hi, 10, 0, 20, 9000, 0, 40000));  /* nor here: it was written */
	assert_true(believed(hi, 10, 0, 20, 20000, 19990, 9)); /* reasoning that nobody sees */
	assert_true(believed(hi, 0, 0, 20, 200000, 0, 9));     /* no limit is known */
	assert_true(believed(hi, 0, CONTEXT, 20, CONTEXT, 0, 9));
	/* What is not in the body: an image elsewhere, an earlier conversation, what the vendor's tool reads. */
	assert_true(believed("{\"input\":[{\"type\":\"input_image\",\"image_url\":\"https://x/y\"}]}", 10, 0,
	    90000, 10, 0, 9));
	assert_true(believed("{\"previous_response_id\":\"r\"}", 10, CONTEXT, 1500000, 10, 0, 9));
	assert_true(believed("{\"tools\":[{\"type\":\"web_search\"}]}", 10, CONTEXT, 1500000, 10, 0, 9));
}

static void what_cannot_be_is_not(void **s)
{
	(void)s;
	assert_false(believed(hi, 10, 0, 1000000000, 10, 0, 40));
	assert_false(believed(hi, 10, 0, 20000, 10, 0, 40));
	assert_false(believed(hi, 10, 1000, 1300, 10, 0, 40));
	assert_false(believed(hi, 10, 0, 20, 2000, 0, 40));
	assert_false(believed(hi, 10, 0, 20, 40000, 39990, 40));
	assert_false(believed(hi, 0, 0, 20, 1000000000, 0, 40));
	assert_false(believed(hi, 0, CONTEXT, 20, 2 * CONTEXT, 0, 40));
	assert_false(believed("{\"tools\":[{\"type\":\"web_search\"}]}", 10, CONTEXT, 3000000, 10, 0, 9));
	const struct provider_model m = { .output_tokens = KNOWN_OUT };
	assert_true(used(hi, 0, m, (struct wire_usage){ .input = 5, .output = 2 * KNOWN_OUT }, 9).estimated);
}

/* What is no count is none, wherever it stands among others. */
static void what_counts_nothing_is_not_believed(void **s)
{
	(void)s;
	static const struct {
		const char *json;
		bool known, odd;
	} rows[] = {
		{ "{\"prompt_tokens\":5,\"completion_tokens\":2}", true, false },
		{ "{\"prompt_tokens\":5,\"completion_tokens\":-2}", true, true },
		{ "{\"prompt_tokens\":5.5,\"completion_tokens\":2}", true, true },
		{ "{\"prompt_tokens\":5,\"completion_tokens\":1e9}", true, true },
		{ "{\"input_tokens\":-1}", true, true },
		{ "{\"input_tokens\":5,\"cache_read_input_tokens\":-3,\"output_tokens\":2}", true, true },
		{ "{\"input_tokens\":5,\"output_tokens\":2,\"output_tokens_details\":{\"reasoning_tokens\":-"
		  "3}}",
		    true, true },
		{ "{\"prompt_tokens\":null,\"completion_tokens\":\"2\",\"cost\":-0.5}", false, false },
		{ "{\"prompt_tokens\":5,\"completion_tokens\":2,\"cost\":-0.5}", true, false },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		struct wire_counts tree = { 0 }, stream = { 0 };
		auto_json json_t *v = js_parse(rows[i].json, strlen(rows[i].json), &e);
		struct scan scan = scan_of(str_of(rows[i].json));
		wire_counts_json(v, &tree);
		wire_counts_scan(&scan, &stream);
		assert_true(scan_done(&scan));
		struct wire_usage a = wire_counts_usage(WIRE_CHAT, &tree),
				  b = wire_counts_usage(WIRE_CHAT, &stream);
		if (a.known != rows[i].known || a.odd != rows[i].odd || b.known != rows[i].known ||
		    b.odd != rows[i].odd)
			fail_msg("%s: %d %d, %d %d", rows[i].json, a.known, a.odd, b.known, b.odd);
	}
	const struct provider_model m = { 0 };
	assert_true(
	    used(hi, 10, m, (struct wire_usage){ .input = 5, .output = 5, .odd = true }, 20).estimated);
}

/* An estimate within what was reserved: of the bytes that went in and came out, and never beyond the limit. */
static void instead_an_estimate_is_charged(void **s)
{
	(void)s;
	const struct provider_model m = { .output_tokens = KNOWN_OUT };
	const struct wire_usage u = {
		.input = 1000000000, .cached = 5, .output = 1000000000, .reasoning = 1000000000
	};
	struct gate_used some = used(hi, 10, m, u, 20), most = used(hi, 10, m, u, 4000);
	assert_in_range(some.tokens.input, 5, 30);
	assert_int_equal(some.tokens.cached, 0);
	assert_int_equal(some.tokens.output, 5);
	assert_int_equal(some.tokens.reasoning, 0);
	assert_int_equal(most.tokens.output, 10);
}

/* What a stream of messages ends with, after a start that counted one token: is all of the output told? */
static bool ends_whole(const char *delta)
{
	const char *const frames[] = {
		"{\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\"usage\":"
		"{\"input_tokens\":5,\"output_tokens\":1}}}",
		"{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":"
		"\"\"}}",
		"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"
		"\"word\"}}",
		delta
	};
	auto_wire_in struct wire_in *in = wire_in_new(WIRE_MESSAGES, true);
	struct wire_read r;
	struct err e = { 0 };
	for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
		const struct sse_event ev = {
			.has_data = true, .data = str_of(frames[i]), .raw = str_of(frames[i])
		};
		assert_int_equal(wire_in_event(in, &ev, &r, &e), 0);
	}
	if (!wire_in_seen(in)->finished)
		fail_msg("no end: %s", delta);
	return !wire_in_seen(in)->usage.part;
}

/* What a stream begins with counts no output that comes after it (MOD-6). */
static void a_beginning_is_not_the_whole(void **s)
{
	(void)s;
	const struct provider_model m = { 0 };
	assert_true(ends_whole("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
			       "\"usage\":{\"output_tokens\":9}}"));
	static const char *const without[] = { "", ",\"usage\":null", ",\"usage\":{}", ",\"usage\":\"9\"",
		",\"usage\":{\"output_tokens\":-1}", ",\"usage\":{\"output_tokens\":null}",
		",\"usage\":{\"output_tokens\":0.5}", ",\"usage\":{\"input_tokens\":5}", ",\"usage\":[9]" };
	for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
		char delta[200];
		(void)snprintf(delta, sizeof delta,
		    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}%s}", without[i]);
		if (ends_whole(delta))
			fail_msg("%s", delta);
	}
	struct gate_used u = used(
	    hi, 2000, m, (struct wire_usage){ .part = true, .input = 5, .output = 1 }, 4000);
	assert_true(u.estimated);
	assert_int_equal(u.tokens.input, 5);
	assert_int_equal(u.tokens.output, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_can_be_is_believed),
		cmocka_unit_test(what_cannot_be_is_not),
		cmocka_unit_test(what_counts_nothing_is_not_believed),
		cmocka_unit_test(instead_an_estimate_is_charged),
		cmocka_unit_test(a_beginning_is_not_the_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
