/*
 * The three doors of the model gateway over the three wires that providers speak (MOD-1, MOD-8, MOD-10, MOD-11): every client's own
 * dialect for answers, streams, refusals and faults, whoever answers.
 */
#include "../t.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"
#include "judge.h"

enum { WAIT_MS = 60000 };

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;

static const struct wire {
	const char *name, *path;
	const char *calls, *stop; /* the finish reasons of a call and of an end */
} wires[3] = {
	{ "openai-chat", "/v1/chat/completions", "tool_calls", "stop" },
	{ "openai-responses", "/v1/responses", "completed", "completed" },
	{ "anthropic", "/v1/messages", "tool_use", "end_turn" },
};
#define MODELS                                                                                               \
	"ok cut filter context malformed stall tools tools-mixed markup error-event no-done silent "         \
	"html-200>chat/ok 503 no-usage much-usage odd-usage markup-late markup-slow markup-slow@b>chat/ok"

/* A request of wire w to PROVIDER/MODEL. */
static char *body_of(struct mem *m, int w, const char *provider, const char *model, bool stream, bool tools)
{
	static const char *const forms[3][2] = {
		{ "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]",
		    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"parameters\":{"
		    "\"type\":\"object\"}}}]" },
		{ "\"input\":\"hello\"",
		    ",\"tools\":[{\"type\":\"function\",\"name\":\"read\",\"parameters\":{\"type\":"
		    "\"object\"}}]" },
		{ "\"max_tokens\":500,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]",
		    ",\"tools\":[{\"name\":\"read\",\"input_schema\":{\"type\":\"object\"}}]" },
	};
	return mem_fmt(m, "{\"model\":\"%s/%s\",\"stream\":%s,%s%s%s}", provider, model,
	    stream ? "true" : "false", forms[w][0], tools ? forms[w][1] : "",
	    w == 0 && stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
}

static const char *const providers[3] = { "chat", "responses", "messages" };

static void ask(int client, int upstream, const char *model, bool stream, bool tools, struct gw_answer *a)
{
	auto_mem struct mem *m = mem_new();
	const char *body = body_of(m, client, providers[upstream], model, stream, tools);
	gw_send(&st, org.key, wires[client].path, body, 0, NULL, 0, a);
}

#define EACH_PAIR(c, u, stream)                                                                              \
	for (int c = 0; c < 3; c++)                                                                          \
		for (int u = 0; u < 3; u++)                                                                  \
			for (int stream = 0; stream < 2; stream++)

static void every_door_answers_over_every_wire(void **s)
{
	(void)s;
	EACH_PAIR(c, u, stream)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "ok", stream, false, &a);
		if (!gw_whole(&a) || !a.usage || a.in != FAKEMODEL_PROMPT_TOKENS || a.out != FAKEMODEL_WORDS)
			fail_msg("%s over %s, stream %d: %ld %s", wires[c].name, wires[u].name, stream,
			    a.status, a.raw);
		assert_string_equal(a.finish, wires[c].stop);
		assert_true(str_starts(a.by, providers[u]));
	}
}

static void calls_come_whole_over_every_wire(void **s)
{
	(void)s;
	EACH_PAIR(c, u, stream)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "tools", stream, true, &a);
		if (a.status != 200 || !a.done || a.n_calls != 2 ||
		    strcmp(a.calls[0].args, "{\"path\":\"a\"}") != 0 ||
		    strcmp(a.calls[1].args, "{\"path\":\"b\"}") != 0 || strcmp(a.calls[0].name, "read") != 0)
			fail_msg("%s over %s, stream %d: %ld, %d calls %s", wires[c].name, wires[u].name,
			    stream, a.status, a.n_calls, a.raw);
		assert_string_equal(a.finish, wires[c].calls);
		assert_string_not_equal(a.calls[0].id, a.calls[1].id);
	}
}

/* MOD-8: never a success, whatever the client's dialect has for an error in a stream. */
static void what_breaks_off_is_an_error_in_every_dialect(void **s)
{
	(void)s;
	static const char *const faults[] = { "cut", "error-event" };
	EACH_PAIR(c, u, fault)
	{
		auto_gw struct gw_answer a;
		gw_provider(&st, fake, org.key, fault ? "brk" : "brk2", wires[u].name, 1, "cut error-event");
		auto_mem struct mem *m = mem_new();
		gw_send(&st, org.key, wires[c].path,
		    body_of(m, c, fault ? "brk" : "brk2", faults[fault], true, false), 0, NULL, 0, &a);
		if (a.status != 200 || a.done || a.error[0] == 0)
			fail_msg("%s over %s, %s: %ld %s", wires[c].name, wires[u].name, faults[fault],
			    a.status, a.raw);
		auto_web struct web w = { 0 };
		web_json(&st, "DELETE", fault ? "/v1/models/providers/brk" : "/v1/models/providers/brk2",
		    org.key, NULL, &w);
		assert_int_equal(w.status / 100, 2);
	}
}

static void a_missing_end_is_made_up_where_the_answer_is_whole(void **s)
{
	(void)s;
	for (int c = 0; c < 3; c++)
		for (int u = 0; u < 3; u += 2) { /* responses tells everything in its last event */
			auto_gw struct gw_answer a;
			ask(c, u, "no-done", true, false, &a);
			if (!gw_whole(&a))
				fail_msg("%s over %s: %ld %s", wires[c].name, wires[u].name, a.status, a.raw);
		}
}

static void refusals_of_a_provider_are_told_in_every_dialect(void **s)
{
	(void)s;
	EACH_PAIR(c, u, stream)
	{
		auto_gw struct gw_answer filter, context;
		ask(c, u, "filter", stream, false, &filter);
		ask(c, u, "context", stream, false, &context);
		if (filter.status != 400 || context.status != 400 ||
		    strcmp(filter.error, "invalid_request_error") != 0)
			fail_msg("%s over %s: %ld %s %ld %s", wires[c].name, wires[u].name, filter.status,
			    filter.raw, context.status, context.raw);
		assert_non_null(strstr(filter.message, "safety system"));
		if (c != 2)
			assert_string_equal(context.code, "context_length_exceeded");
		else
			assert_int_equal(strncmp(filter.raw, "{\"type\":\"error\",", 16), 0);
	}
}

static void a_page_with_status_200_fails_over_in_every_dialect(void **s)
{
	(void)s;
	for (int c = 0; c < 3; c++)
		for (int stream = 0; stream < 2; stream++) {
			auto_gw struct gw_answer a;
			ask(c, c == 0 ? 1 : c, "html-200", stream, false, &a);
			if (!gw_whole(&a) || strcmp(a.by, "chat/ok") != 0)
				fail_msg("%s: %ld %s", wires[c].name, a.status, a.raw);
		}
}

static void raw_markup_is_no_answer_in_any_dialect(void **s)
{
	(void)s;
	EACH_PAIR(c, u, stream)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "markup", stream, true, &a);
		if (a.status != 502 || strstr(a.raw, "tool_call>") != NULL)
			fail_msg("%s over %s: %ld %s", wires[c].name, wires[u].name, a.status, a.raw);
	}
}

/* MOD-6: no client reads of nothing that it pays for. */
static void usage_that_nobody_told_is_estimated_on_another_wire(void **s)
{
	(void)s;
	EACH_PAIR(c, u, stream)
	{
		if (c == u)
			continue;
		auto_gw struct gw_answer a;
		ask(c, u, "no-usage", stream, false, &a);
		if (!gw_whole(&a) || !a.usage || a.in < 1 || a.out < FAKEMODEL_WORDS / 2)
			fail_msg(
			    "%s over %s: %lld, %lld in %s", wires[c].name, wires[u].name, a.in, a.out, a.raw);
	}
}

/* The client reads what its call was charged for, and never what its provider cannot have counted; everything else is as it came. */
static void usage_that_cannot_be_is_told_to_nobody(void **s)
{
	(void)s;
	static const char *const models[] = { "much-usage", "odd-usage" };
	EACH_PAIR(c, u, stream)
	for (size_t i = 0; i < 2; i++) {
		auto_gw struct gw_answer a;
		auto_mem struct mem *m = mem_new();
		auto_buf struct buf charged = BUF(200);
		ask(c, u, models[i], stream, false, &a);
		const char *sql = mem_fmt(m,
		    "SELECT tokens[1] || ' ' || tokens[4] || ' ' || estimated FROM usage_rows WHERE request "
		    "= '%s'",
		    a.id);
		int64_t end = clock_ms() + WAIT_MS;
		do {
			buf_reset(&charged);
			stack_sql(&st, sql, &charged);
		} while (charged.n == 0 && clock_ms() < end && poll(NULL, 0, 20) == 0);
		const char *told = mem_fmt(m, "%lld %lld true", a.in, a.out);
		if (!gw_whole(&a) || !a.usage || a.in < 1 || a.out < FAKEMODEL_WORDS / 2 ||
		    !str_starts(buf_c(&charged), told))
			fail_msg("%s over %s, stream %d, %s: told %s, charged %s: %s", wires[c].name,
			    wires[u].name, stream, models[i], told, buf_c(&charged), a.raw);
		assert_string_equal(a.finish, wires[c].stop);
	}
}

/* MOD-5, MOD-6: pieces that are read one by one. A head, a role and text that is held back are no beginning of an answer. */
static void markup_that_comes_in_pieces_commits_nothing(void **s)
{
	(void)s;
	for (int c = 0; c < 3; c++)
		for (int u = 0; u < 3; u++) {
			auto_gw struct gw_answer saved, alone;
			ask(c, u, "markup-slow@b", true, true, &saved);
			if (!gw_whole(&saved) || strcmp(saved.by, "chat/ok") != 0)
				fail_msg("%s over %s: %ld %s", wires[c].name, wires[u].name, saved.status,
				    saved.raw);
			ask(c, u, "markup-slow", true, true, &alone);
			if (alone.status != 502 || strstr(alone.raw, "<tool") != NULL)
				fail_msg("%s over %s: %ld %s", wires[c].name, wires[u].name, alone.status,
				    alone.raw);
		}
}

/* MOD-8: the upstream's own id and next number on its wire, ours on another; one end. */
static void a_response_that_fails_is_told_as_the_one_that_began(void **s)
{
	(void)s;
	for (int u = 0; u < 3; u++) {
		auto_gw struct gw_answer a;
		ask(1, u, "markup-late", true, true, &a);
		const char *created = strstr(a.raw, "\"id\":\"resp_"),
			   *at = strstr(a.raw, "event: response.failed");
		assert_non_null(created);
		assert_non_null(at);
		auto_json json_t *v = json_loads(strstr(at, "data: ") + 6, JSON_DISABLE_EOF_CHECK, NULL);
		const json_t *r = js_get(v, "response");
		const char *id = js_str_or(r, "id", "");
		if (strncmp(created + 6, id, strlen(id)) != 0 || strncmp(id, "resp_", 5) != 0 ||
		    js_str(r, "model") == NULL || js_int(r, "created_at", 0) <= 0 ||
		    strstr(at, "event: error") != NULL)
			fail_msg("over %s: %s", wires[u].name, a.raw);
		/* Two of the beginning, two of the item, twenty words; the vendor's words have the number 2. */
		assert_int_equal(js_int(v, "sequence_number", -1), u == 1 ? 3 : 24);
	}
}

/* ---- the door of messages */

static void messages_takes_its_clients_headers(void **s)
{
	(void)s;
	char key[200];
	(void)snprintf(key, sizeof key, "x-api-key: %s", org.key);
	const char *const headers[] = { key, "anthropic-version: 2023-06-01",
		"anthropic-beta: some-beta-2025", NULL };
	auto_mem struct mem *m = mem_new();
	auto_gw struct gw_answer a, nobody, counted;
	auto_buf struct buf sent = BUF(1 << 20);
	gw_send(&st, NULL, "/v1/messages?beta=true", body_of(m, 2, "messages", "ok", true, false), 0, headers,
	    0, &a);
	assert_true(gw_whole(&a));
	assert_non_null(strstr(a.headers, "request-id: "));
	fakemodel_request(fake, "ok", fakemodel_attempts(fake, "ok") - 1, &sent);
	assert_non_null(strstr(buf_c(&sent), "anthropic-beta: some-beta-2025\r\n"));
	assert_non_null(strstr(buf_c(&sent), "x-api-key: sk-upstream-messages-0\r\n"));
	assert_null(strstr(buf_c(&sent), org.key));
	gw_send(&st, NULL, "/v1/messages", body_of(m, 2, "messages", "ok", true, false), 0, NULL, 0, &nobody);
	assert_int_equal(nobody.status, 401);
	assert_string_equal(nobody.error, "authentication_error");
	gw_send(&st, NULL, "/v1/messages/count_tokens?beta=true",
	    body_of(m, 2, "messages", "ok", false, false), 0, headers, 0, &counted);
	assert_int_equal(counted.status, 200);
	assert_int_equal(strncmp(counted.raw, "{\"input_tokens\":", 16), 0);
}

/* MOD-10: what makes each client stop. */
static void a_closed_gate_is_told_in_every_dialect(void **s)
{
	(void)s;
	struct stack_org poor;
	stack_org(&st, &poor);
	gw_provider(&st, fake, poor.key, "chat", "openai-chat", 1, "ok");
	for (int c = 0; c < 3; c++) {
		auto_mem struct mem *m = mem_new();
		auto_gw struct gw_answer a;
		gw_send(
		    &st, poor.key, wires[c].path, body_of(m, c, "chat", "ok", true, false), 0, NULL, 0, &a);
		assert_int_equal(a.status, c == 2 ? 402 : 429);
		assert_string_equal(a.error, c == 2 ? "billing_error" : "insufficient_quota");
		if (c != 2)
			assert_string_equal(a.code, "insufficient_quota");
		assert_non_null(strstr(a.headers, "x-should-retry: false\r\n"));
		assert_true(str_starts(a.id, "call_")); /* MOD-11 */
		assert_int_equal(a.attempts, 0);
	}
}

static void a_method_that_is_not_there_is_told_in_every_dialect(void **s)
{
	(void)s;
	for (int c = 0; c < 3; c++) {
		char allow[40];
		auto_web struct web w = { 0 };
		web_json(&st, "GET", wires[c].path, org.key, NULL, &w);
		judge_dialect(&st, &w, wires[c].path, 405, "invalid_request_error", "method_not_allowed");
		assert_true(web_header(&w, "Allow", allow, sizeof allow));
		assert_string_equal(allow, "POST");
	}
}

/* What is not there below a door, as clients of newer versions may ask for it, and by whatever method. */
static void a_path_that_is_not_there_is_told_in_every_dialect(void **s)
{
	(void)s;
	static const char *const below[] = { "nope", "batches/x/results", "", "count_tokens/more" };
	static const char *const methods[] = { "GET", "POST", "DELETE", "OPTIONS" };
	for (int i = 0; i < 3 * 4; i++) {
		auto_mem struct mem *m = mem_new();
		auto_web struct web w = { 0 };
		int c = i % 3;
		const char *path = mem_fmt(m, "%s/%s", wires[c].path, below[i / 3]);
		web_json(&st, methods[i / 3], path, org.key, NULL, &w);
		judge_dialect(
		    &st, &w, path, 404, c == 2 ? "not_found_error" : "invalid_request_error", "not_found");
	}
	auto_web struct web beside = { 0 };
	web_json(&st, "GET", "/v1/messagesx", org.key, NULL, &beside);
	judge_refusal(&st, &beside, 404);
}

/* Its clients send a key in either header. */
static void who_sends_no_key_is_told_the_headers_of_its_dialect(void **s)
{
	(void)s;
	for (int c = 0; c < 3; c++) {
		auto_mem struct mem *m = mem_new();
		auto_gw struct gw_answer a;
		gw_send(&st, NULL, wires[c].path, body_of(m, c, "chat", "ok", false, false), 0, NULL, 0, &a);
		assert_int_equal(a.status, 401);
		assert_non_null(strstr(a.message, "Authorization: Bearer gk_..."));
		assert_int_equal(strstr(a.message, "x-api-key: gk_...") != NULL, c == 2);
	}
}

static void limits_are_told_by_the_vendors_names(void **s)
{
	(void)s;
	struct stack_org busy;
	stack_org(&st, &busy);
	gw_provider(&st, fake, busy.key, "chat", "openai-chat", 1, "ok");
	const char *const credit[] = { "org", "credit", busy.slug, "1usd", "--key", "first", NULL };
	const char *const limit[] = { "org", "limit", busy.slug, "--tokens-per-minute", "4150", NULL };
	stack_cli(&st, credit, NULL);
	stack_cli(&st, limit, NULL);
	auto_mem struct mem *m = mem_new();
	auto_gw struct gw_answer served, refused;
	gw_send(&st, busy.key, wires[2].path, body_of(m, 2, "chat", "ok", false, false), 0, NULL, 0, &served);
	assert_int_equal(served.status, 200);
	assert_non_null(strstr(served.headers, "anthropic-ratelimit-tokens-limit: 4150\r\n"));
	/* It says no max_tokens, so 4096 are reserved. */
	gw_send(
	    &st, busy.key, wires[0].path, body_of(m, 0, "chat", "ok", false, false), 0, NULL, 0, &refused);
	assert_int_equal(refused.status, 429);
	assert_string_equal(refused.code, "rate_limit_exceeded");
	assert_non_null(strstr(refused.headers, "x-ratelimit-limit-tokens: 4150\r\n"));
	assert_true(refused.retry_after_s >= 1 && refused.retry_after_s <= 60);
}

/* MOD-11: also where a request is refused before it is a call. */
static void a_minute_that_is_used_up_is_told_by_the_vendors_names(void **s)
{
	(void)s;
	struct stack_org busy;
	stack_org(&st, &busy);
	const char *const limit[] = { "org", "limit", busy.slug, "--requests-per-minute", "1", NULL };
	stack_cli(&st, limit, NULL);
	gw_provider(&st, fake, busy.key, "chat", "openai-chat", 1, "ok");
	for (int c = 0; c < 3; c++) {
		auto_mem struct mem *m = mem_new();
		auto_gw struct gw_answer a = { 0 };
		const char *body = body_of(m, c, "chat", "ok", false, false);
		/* The first of a new minute comes as far as the gate. */
		for (int i = 0; i < 5 && strcmp(a.error, "rate_limit_error") != 0; i++) {
			gw_free(&a);
			gw_send(&st, busy.key, wires[c].path, body, 0, NULL, 0, &a);
		}
		assert_int_equal(a.status, 429);
		assert_string_equal(a.error, "rate_limit_error");
		assert_true(a.retry_after_s >= 1 && a.retry_after_s <= 60);
		const char *of = c == 2 ? "anthropic-ratelimit-requests-limit: 1\r\n"
					: "x-ratelimit-limit-requests: 1\r\n",
			   *left = c == 2 ? "anthropic-ratelimit-requests-remaining: 0\r\n"
					  : "x-ratelimit-remaining-requests: 0\r\n";
		assert_non_null(strstr(a.headers, of));
		assert_non_null(strstr(a.headers, left));
	}
}

static int setup(void **s)
{
	(void)s;
	fake = gw_up(&st, 1, 0, "BILLING_MODE=closed\nMODEL_ATTEMPTS=1");
	stack_org(&st, &org);
	const char *const args[] = { "org", "credit", org.slug, "100usd", "--key", "first", NULL };
	stack_cli(&st, args, NULL);
	for (int i = 0; i < 3; i++)
		gw_provider(&st, fake, org.key, providers[i], wires[i].name, 1, MODELS);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	gw_down(&st, fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_door_answers_over_every_wire),
		cmocka_unit_test(calls_come_whole_over_every_wire),
		cmocka_unit_test(what_breaks_off_is_an_error_in_every_dialect),
		cmocka_unit_test(a_missing_end_is_made_up_where_the_answer_is_whole),
		cmocka_unit_test(refusals_of_a_provider_are_told_in_every_dialect),
		cmocka_unit_test(raw_markup_is_no_answer_in_any_dialect),
		cmocka_unit_test(usage_that_nobody_told_is_estimated_on_another_wire),
		cmocka_unit_test(usage_that_cannot_be_is_told_to_nobody),
		cmocka_unit_test(markup_that_comes_in_pieces_commits_nothing),
		cmocka_unit_test(a_response_that_fails_is_told_as_the_one_that_began),
		cmocka_unit_test(messages_takes_its_clients_headers),
		cmocka_unit_test(a_closed_gate_is_told_in_every_dialect),
		cmocka_unit_test(a_method_that_is_not_there_is_told_in_every_dialect),
		cmocka_unit_test(a_path_that_is_not_there_is_told_in_every_dialect),
		cmocka_unit_test(who_sends_no_key_is_told_the_headers_of_its_dialect),
		cmocka_unit_test(limits_are_told_by_the_vendors_names),
		cmocka_unit_test(a_minute_that_is_used_up_is_told_by_the_vendors_names),
		cmocka_unit_test(a_page_with_status_200_fails_over_in_every_dialect),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
