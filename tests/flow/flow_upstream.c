/*
 * What a vendor's answer costs and shows: what cannot get better by asking again is not paid for again (MOD-4, MOD-8), what follows the end
 * of an answer and what looks like somebody's key reach nobody (RED-2), and what one model is refused says nothing of the others (MOD-3).
 */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"
#include "io/http.h"
#include "judge.h"

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;

static const char *const wires[3] = { "openai-chat", "openai-responses", "anthropic" },
			 *const names[3] = { "chat", "responses", "messages" },
			 *const paths[3] = { "/v1/chat/completions", "/v1/responses", "/v1/messages" };

static void ask_of(int client, const char *model, bool stream, bool tools, struct gw_answer *a)
{
	static const char *const input[3] = { "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]",
		"\"input\":\"hello\"",
		"\"max_tokens\":500,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]" };
	static const char *const tool[3] = {
		",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"parameters\":{}}}]",
		",\"tools\":[{\"type\":\"function\",\"name\":\"read\",\"parameters\":{\"type\":\"object\"}}]",
		",\"tools\":[{\"name\":\"read\",\"input_schema\":{\"type\":\"object\"}}]"
	};
	auto_mem struct mem *m = mem_new();
	const char *body = mem_fmt(m, "{\"model\":\"%s\",\"stream\":%s,%s%s%s}", model,
	    stream ? "true" : "false", input[client], tools ? tool[client] : "",
	    client == 0 && stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
	gw_send(&st, org.key, paths[client], body, 0, NULL, 0, a);
}

static void ask(int client, int upstream, const char *model, bool stream, bool tools, struct gw_answer *a)
{
	auto_mem struct mem *m = mem_new();
	ask_of(client, mem_fmt(m, "%s/%s", names[upstream], model), stream, tools, a);
}

#define EACH_PAIR(c, u)                                                                                      \
	for (int c = 0; c < 3; c++)                                                                          \
		for (int u = 0; u < 3; u++)

/* One attempt answers, whoever asks and whoever is asked. */
static void one_attempt(const struct gw_answer *a, const char *what, int c, int u, int stream)
{
	if (a->status != 200 || !a->done || a->error[0] != 0 || a->attempts != 1)
		fail_msg("%s, %s over %s, stream %d: %ld after %d: %s", what, names[c], names[u], stream,
		    a->status, a->attempts, a->raw);
}

static void a_byte_order_mark_is_no_part_of_an_answer(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "bom", false, false, &a);
		one_attempt(&a, "bom", c, u, 0);
		assert_true(gw_whole(&a));
		assert_int_equal(a.raw[0], '{');
	}
}

/* As bytes on its own wire; elsewhere a text that cannot hold it has U+FFFD. */
static void an_answer_with_a_nul_in_it_is_one(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer a;
		ask(c, u, "nul", stream, false, &a);
		if (a.status != 200 || a.attempts != 1)
			fail_msg("%s over %s, stream %d: %ld after %d: %s", names[c], names[u], stream,
			    a.status, a.attempts, a.raw);
		assert_non_null(strstr(a.raw,
		    c == u ? "w\\u000030"
			   : "w\xef\xbf\xbd"
			     "30"));
		assert_non_null(strstr(a.raw, "w59"));
	}
}

/* JSON that is whole and cannot be read would come again: another model is asked, or it fails at once. */
static void what_cannot_be_read_is_not_asked_for_again(void **s)
{
	(void)s;
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer saved, alone;
		ask(0, 0, "key-twice", stream, false, &alone);
		assert_int_equal(alone.status, 502);
		assert_int_equal(alone.attempts, 1);
		assert_string_equal(alone.error, "upstream_error");
		ask(0, 0, "key-twice@b", stream, false, &saved);
		assert_true(gw_whole(&saved));
		assert_string_equal(saved.by, "chat/ok");
		assert_int_equal(saved.attempts, 2);
	}
}

/* Leaving it out would be an answer whose finish promises more calls than it holds. Each pair has a provider whose key has not met a fault
 * yet. */
static void a_call_without_a_name_is_no_answer(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer alone, saved;
		auto_mem struct mem *m = mem_new();
		const char *own = mem_fmt(m, "nameless%d%d%d", c, u, stream);
		gw_provider(
		    &st, fake, org.key, own, wires[u], 1, "tools-nameless tools-nameless@b>chat/tools");
		ask_of(c, mem_fmt(m, "%s/tools-nameless@b", own), stream, true, &saved);
		if (saved.status != 200 || strcmp(saved.by, "chat/tools") != 0 || saved.n_calls != 2)
			fail_msg("%s over %s, stream %d: %ld %s", names[c], names[u], stream, saved.status,
			    saved.raw);
		ask_of(c, mem_fmt(m, "%s/tools-nameless", own), stream, true, &alone);
		if (alone.status != 502)
			fail_msg("%s over %s, stream %d: %ld %s", names[c], names[u], stream, alone.status,
			    alone.raw);
	}
}

/* It is paid for: who asked for a stream gets it as one, from its head to its end, usage included. */
static void an_answer_in_one_piece_is_told_as_the_stream_that_was_asked_for(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	{
		auto_gw struct gw_answer a, calls;
		ask(c, u, "no-stream", true, false, &a);
		one_attempt(&a, "no-stream", c, u, 1);
		assert_true(gw_whole(&a));
		assert_non_null(strcasestr(a.headers, "Content-Type: text/event-stream"));
		assert_true(a.events >= 3);
		assert_int_equal(a.in, FAKEMODEL_PROMPT_TOKENS);
		assert_int_equal(a.out, FAKEMODEL_WORDS);
		assert_true(strcmp(a.model, c == u ? "no-stream" : a.by) == 0);
		ask(c, u, "no-stream-tools", true, true, &calls);
		one_attempt(&calls, "no-stream-tools", c, u, 1);
		assert_int_equal(calls.n_calls, 2);
		assert_string_equal(calls.calls[0].id, "call_a");
		assert_string_equal(calls.calls[0].name, "read");
		assert_string_equal(calls.calls[1].args, "{\"path\":\"b\"}");
	}
}

/* What follows `[DONE]`, message_stop or response.completed is no part of the answer. */
static void nothing_follows_the_end_of_a_stream(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "twice", true, false, &a);
		one_attempt(&a, "twice", c, u, 1);
		if (!gw_whole(&a))
			fail_msg("%s over %s: %s", names[c], names[u], a.raw);
		assert_int_equal(a.out, FAKEMODEL_WORDS);
	}
}

static int lines_with(const char *process, const char *what)
{
	char path[300], line[4096];
	int n = 0;
	(void)snprintf(path, sizeof path, "%s/log/%s.log", st.dir, process);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f) != NULL)
		n += strstr(line, what) != NULL;
	(void)fclose(f);
	return n;
}

/* A vendor's error quotes keys: the client is told the rest of it, and so is the log. */
static void keys_that_a_vendor_quotes_are_shown_to_nobody(void **s)
{
	(void)s;
	static const char *const keys[] = { "sk-proj-Abc123", "sk-ant-api03", "AKIAIOSFODNN7",
		"ghp_16C7e42F" };
	EACH_PAIR(c, u)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "leak", u == 1, false, &a);
		assert_int_equal(a.status, 400);
		assert_non_null(
		    strstr(a.message, "Not accepted: [redacted], [redacted], [redacted] and [redacted]."));
		for (size_t i = 0; i < 4; i++)
			assert_null(strstr(a.raw, keys[i]));
	}
	for (int api = 1; api <= 2; api++) {
		char process[20];
		(void)snprintf(process, sizeof process, "api%d", api);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(lines_with(process, keys[i]), 0);
	}
}

/* Where the client's dialect has a member for it. */
static void the_member_that_a_vendor_names_is_told(void **s)
{
	(void)s;
	EACH_PAIR(c, u)
	{
		auto_gw struct gw_answer a;
		ask(c, u, "field", u == 1, false, &a);
		assert_int_equal(a.status, 400);
		assert_string_equal(a.message, "Too large.");
		auto_json json_t *v = json_loads(a.raw, 0, NULL);
		const char *param = js_str(js_get(v, "error"), "param");
		if (strcmp(wires[c], "anthropic") == 0)
			assert_null(param);
		else
			assert_string_equal(param, "max_tokens");
	}
}

/* 402, 403 and 404 for one model: the provider's other models serve on, at every host (the stack has two). */
static void what_one_model_is_refused_is_not_the_others(void **s)
{
	(void)s;
	static const char *const refused[] = { "402", "403", "404" };
	for (int u = 0; u < 3; u++)
		for (int i = 0; i < 3; i++) {
			auto_gw struct gw_answer one, again, other;
			ask(0, u, refused[i], false, false, &one);
			assert_int_equal(one.status, 502);
			ask(0, u, refused[i], i == 1, false, &again);
			assert_int_equal(
			    again.status, i == 2 ? 502 : 503); /* it rests; nobody rests for a 404 */
			ask(0, u, "ok", i == 1, false, &other);
			assert_true(gw_whole(&other));
			assert_int_equal(other.attempts, 1);
		}
}

/* What a provider without a key is said to do is not of keys. */
static void who_has_no_key_has_none_that_rests(void **s)
{
	(void)s;
	gw_provider(&st, fake, org.key, "keyless", "openai-chat", 0, "401 503");
	auto_gw struct gw_answer first, again;
	gw_chat(&st, org.key, "keyless/401", false, NULL, &first);
	assert_int_equal(first.status, 502);
	assert_non_null(strstr(first.message, "wants a key, and none is stored"));
	gw_chat(&st, org.key, "keyless/401", false, NULL, &again);
	assert_int_equal(again.status, 503);
	assert_null(strstr(again.message, "keys"));
	assert_true(again.retry_after_s > 600);
}

static int setup(void **s)
{
	(void)s;
	fake = gw_up(&st, 2, 0, NULL);
	stack_org(&st, &org);
	for (int i = 0; i < 3; i++)
		gw_provider(&st, fake, org.key, names[i], wires[i], 1,
		    "ok bom nul no-stream no-stream-tools twice leak field 402 403 404 key-twice "
		    "key-twice@b>chat/ok tools");
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
		cmocka_unit_test(a_byte_order_mark_is_no_part_of_an_answer),
		cmocka_unit_test(an_answer_with_a_nul_in_it_is_one),
		cmocka_unit_test(what_cannot_be_read_is_not_asked_for_again),
		cmocka_unit_test(a_call_without_a_name_is_no_answer),
		cmocka_unit_test(an_answer_in_one_piece_is_told_as_the_stream_that_was_asked_for),
		cmocka_unit_test(nothing_follows_the_end_of_a_stream),
		cmocka_unit_test(keys_that_a_vendor_quotes_are_shown_to_nobody),
		cmocka_unit_test(the_member_that_a_vendor_names_is_told),
		cmocka_unit_test(what_one_model_is_refused_is_not_the_others),
		cmocka_unit_test(who_has_no_key_has_none_that_rests),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
