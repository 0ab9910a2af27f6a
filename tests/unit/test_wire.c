/* Requests, buffered answers and refusals of the three wires: MOD-1, MOD-5, MOD-8, MOD-10. */
#include "../t.h"

#include <string.h>

#include "../streams.h"
#include "base/js.h"
#include "io/file.h"

enum { TEXT_BYTES = 4 << 20 };

static const char *const wires[WIRES] = { "chat", "responses", "messages" };
static const struct wire_target target = { .model = "up" };

static json_t *parsed(const char *text)
{
	struct err e = { 0 };
	json_t *v = js_parse(text, strlen(text), &e);
	if (v == NULL)
		fail_msg("%s: %s", e.msg, text);
	return v;
}

/* ---- requests */

static void refused(enum provider_wire w, const char *text, const char *param)
{
	struct err e = { 0 };
	struct wire_ask ask;
	auto_json json_t *v = parsed(text);
	assert_int_equal(wire_look(w, v, &ask, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_string_equal(e.param, param);
}

static void what_is_no_request_is_refused_by_field(void **state)
{
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		refused(w, "[]", "");
		refused(w, "{\"model\":5}", "model");
		refused(w, "{\"model\":\"m\",\"stream\":\"yes\"}", "stream");
		refused(w, "{\"model\":\"m\",\"tools\":{}}", "tools");
		refused(w, "{\"model\":\"m\",\"tools\":[1]}", "tools");
		refused(w, "{\"model\":\"m\"}", w == WIRE_RESPONSES ? "input" : "messages");
	}
	refused(WIRE_CHAT, "{\"messages\":[]}", "messages");
	refused(WIRE_CHAT, "{\"messages\":[{}],\"n\":0}", "n");
	refused(WIRE_CHAT, "{\"messages\":[{}],\"stream_options\":1}", "stream_options");
	refused(WIRE_CHAT, "{\"messages\":[{}],\"max_completion_tokens\":-1}", "max_completion_tokens");
	refused(WIRE_RESPONSES, "{\"input\":5}", "input");
	refused(WIRE_MESSAGES, "{\"messages\":[{}],\"max_tokens\":1.5}", "max_tokens");
}

static void what_the_gateway_needs_is_seen(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct wire_ask a;
	auto_json json_t *chat = parsed(
	    "{\"model\":\"p/m\",\"messages\":[{}],\"stream\":true,\"n\":2,\"tools\":[{}],"
	    "\"max_tokens\":7,\"max_completion_tokens\":9,\"stream_options\":{\"include_usage\":true}}");
	assert_int_equal(wire_look(WIRE_CHAT, chat, &a, &e), 0);
	assert_string_equal(a.model, "p/m");
	assert_true(a.stream && a.usage_asked && a.tools && a.n == 2 && a.max_out == 9);
	auto_json json_t *messages = parsed("{\"model\":\"\",\"messages\":[{}],\"max_tokens\":5}");
	assert_int_equal(wire_look(WIRE_MESSAGES, messages, &a, &e), 0);
	assert_null(a.model);
	assert_true(!a.stream && !a.tools && a.n == 1 && a.max_out == 5);
}

static void the_same_wire_gets_what_the_client_sent(void **state)
{
	(void)state;
	auto_json json_t *body = parsed(
	    "{\"model\":\"p/m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
	    "\"stream_options\":{\"include_obfuscation\":false},\"vendor\":{\"a\":[1]}}");
	auto_json json_t *before = json_deep_copy(body);
	auto_json json_t *out = wire_forward(WIRE_CHAT, body, &target);
	assert_true(json_equal(body, before));
	auto_json json_t *want = parsed(
	    "{\"model\":\"up\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
	    "\"stream_options\":{\"include_obfuscation\":false,\"include_usage\":true},\"vendor\":{\"a\":[1]}"
	    "}");
	assert_true(json_equal(out, want));
}

/* A conversation may move to another model; its reasoning may not. */
static void reasoning_of_another_wire_does_not_reach_an_upstream(void **state)
{
	(void)state;
	auto_json json_t *body = parsed(
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":[{"
	    "\"type\":\"thinking\","
	    "\"thinking\":\"a\",\"signature\":\"gh1.c.\"},{\"type\":\"redacted_thinking\",\"data\":\"gh1.r.i."
	    "E\"},{\"type\":"
	    "\"thinking\",\"thinking\":\"b\",\"signature\":\"own\"},{\"type\":\"text\",\"text\":\"y\"}]}]}");
	auto_json json_t *before = json_deep_copy(body);
	auto_json json_t *out = wire_forward(WIRE_MESSAGES, body, &target);
	assert_true(json_equal(body, before));
	const json_t *content = json_object_get(
	    json_array_get(json_object_get(out, "messages"), 1), "content");
	assert_int_equal(json_array_size(content), 2);
	assert_string_equal(js_str(json_array_get(content, 0), "signature"), "own");
	auto_json json_t *items = parsed(
	    "{\"input\":[{\"type\":\"reasoning\",\"id\":\"a\",\"summary\":[],\"encrypted_content\":"
	    "\"gh1.m.S\"},{\"type\":\"reasoning\",\"id\":\"b\",\"summary\":[]},{\"role\":\"user\","
	    "\"content\":\"x\"}]}");
	auto_json json_t *sent = wire_forward(WIRE_RESPONSES, items, &target);
	assert_int_equal(json_array_size(json_object_get(sent, "input")), 2);
	assert_string_equal(js_str(json_array_get(json_object_get(sent, "input"), 0), "id"), "b");
}

static json_t *case_of(const char *path)
{
	auto_buf struct buf b = BUF(TEXT_BYTES);
	struct err e = { 0 };
	assert_int_equal(file_read(path, &b, &e), 0);
	return parsed(buf_c(&b));
}

/* What the two coding agents send, as the other wires get it. */
static void what_coding_agents_send_is_carried(void **state)
{
	static const struct {
		const char *path;
		enum provider_wire from, to;
	} all[] = {
		{ "tests/cases/model/codex.json", WIRE_RESPONSES, WIRE_CHAT },
		{ "tests/cases/model/codex.json", WIRE_RESPONSES, WIRE_MESSAGES },
		{ "tests/cases/model/claude.json", WIRE_MESSAGES, WIRE_CHAT },
		{ "tests/cases/model/claude.json", WIRE_MESSAGES, WIRE_RESPONSES },
	};
	(void)state;
	auto_buf struct buf out = BUF(TEXT_BYTES);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		auto_mem struct mem *m = mem_new();
		auto_json json_t *body = case_of(all[i].path);
		const struct wire_names *n;
		struct err e = { 0 };
		const json_t *v = wire_translate(m, all[i].from, all[i].to, body, &target, &n, &e);
		if (v == NULL)
			fail_msg("%s to %s: %s", all[i].path, wires[all[i].to], e.msg);
		auto_free char *text = json_dumps(v, JSON_INDENT(1));
		(void)buf_fmt(&out, "%s -> %s\n%s\n", wires[all[i].from], wires[all[i].to], text);
	}
	golden_is("tests/golden/wire-agents.txt", &out);
}

/* ---- calls come back as the client named its tools */

static const struct wire_names *names_of(
    struct mem *m, const char *path, enum provider_wire from, enum provider_wire to)
{
	struct err e = { 0 };
	const struct wire_names *n = NULL;
	json_t *body = mem_json(m, case_of(path));
	assert_non_null(wire_translate(m, from, to, body, &target, &n, &e));
	return n;
}

static const char chat_calls[] =
    "{\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
    "null,\"tool_calls\":["
    "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"mcp__cap__read\",\"arguments\":\"{}\"}},"
    "{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"apply_patch\",\"arguments\":\"{"
    "\\\"input\\\":\\\"*** Begin\\\"}\"}},"
    "{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"exec_command\",\"arguments\":\"{"
    "\\\"cmd\\\":\\\"ls\\\"}\"}}]},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";

static void calls_come_back_as_the_client_named_them(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct wire_answer a;
	struct wire_self self = { .tail = "1", .model = "p/m" };
	self.names = names_of(m, "tests/cases/model/codex.json", WIRE_RESPONSES, WIRE_CHAT);
	assert_int_equal(wire_answer_read(m, WIRE_CHAT, chat_calls, strlen(chat_calls), &a, &e), 0);
	assert_int_equal(a.finish, WIRE_CALLS);
	auto_json json_t *v = wire_answer_write(WIRE_RESPONSES, &a, &self, &e);
	const json_t *items = json_object_get(v, "output"), *one = json_array_get(items, 0);
	assert_string_equal(js_str(one, "name"), "read");
	assert_string_equal(js_str(one, "namespace"), "mcp__cap");
	one = json_array_get(items, 1);
	assert_string_equal(js_str(one, "type"), "custom_tool_call");
	assert_string_equal(js_str(one, "input"), "*** Begin");
	one = json_array_get(items, 2);
	assert_string_equal(js_str(one, "type"), "function_call");
	assert_string_equal(js_str(one, "arguments"), "{\"cmd\":\"ls\"}");
}

/* The same as a stream, where the input of a custom tool arrives in pieces of a JSON text. */
static void streamed_calls_come_back_as_the_client_named_them(void **state)
{
	static const char *const pieces[] = { "{\"inp", "ut\":\"*** Be", "gin\\n\"}" };
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct wire_self self = { .tail = "1", .model = "p/m" };
	self.names = names_of(m, "tests/cases/model/codex.json", WIRE_RESPONSES, WIRE_CHAT);
	auto_buf struct buf to = BUF(TEXT_BYTES);
	auto_wire_out struct wire_out *o = wire_out_new(WIRE_RESPONSES, &self);
	struct wire_piece call = { .kind = WIRE_P_CALL, .id = str_of("b"), .name = str_of("apply_patch") };
	assert_int_equal(wire_out_piece(o, &call, &to, &e), 0);
	for (size_t i = 0; i < 3; i++) {
		struct wire_piece args = { .kind = WIRE_P_ARGS, .text = str_of(pieces[i]) };
		assert_int_equal(wire_out_piece(o, &args, &to, &e), 0);
	}
	struct wire_piece second = {
		.kind = WIRE_P_CALL, .call = 1, .id = str_of("c"), .name = str_of("mcp__cap__read")
	};
	assert_int_equal(wire_out_piece(o, &second, &to, &e), 0);
	assert_int_equal(wire_out_end(o, &to, &e), 0);
	assert_non_null(strstr(buf_c(&to), "response.custom_tool_call_input.delta\",\"sequence_number\":3"));
	assert_non_null(strstr(buf_c(&to), "\"delta\":\"*** Begin\\n\""));
	assert_non_null(
	    strstr(buf_c(&to), "\"name\":\"read\",\"namespace\":\"mcp__cap\",\"arguments\":\"{}\""));
}

static void long_names_are_shortened_and_come_back(void **state)
{
	static const char name[] =
	    "mcp__a_server_with_a_rather_long_name__and_a_tool_whose_name_is_no_shorter";
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const struct wire_names *n;
	json_t *body = mem_json(m, case_of("tests/cases/model/claude.json"));
	const json_t *out = wire_translate(m, WIRE_MESSAGES, WIRE_CHAT, body, &target, &n, &e);
	const char *flat = js_str(
	    json_object_get(json_array_get(json_object_get(out, "tools"), 1), "function"), "name");
	assert_int_equal(strlen(flat), 64);
	struct wire_part part = { .kind = WIRE_CALL, .id = "a", .name = flat, .text = "{}" };
	struct wire_answer a = { .parts = &part, .n_parts = 1, .finish = WIRE_CALLS };
	struct wire_self self = { .tail = "1", .model = "p/m", .names = n };
	auto_json json_t *v = wire_answer_write(WIRE_MESSAGES, &a, &self, &e);
	assert_string_equal(js_str(json_array_get(json_object_get(v, "content"), 0), "name"), name);
}

/* ---- buffered answers */

static const char *const answers[WIRES] = {
	"{\"id\":\"c1\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":"
	"{\"role\":\"assistant\","
	"\"content\":\"hi\",\"refusal\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
	"\"function\":{\"name\":\"f\","
	"\"arguments\":\"{\\\"x\\\":1}\"}}]},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":"
	"10,"
	"\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
	"{\"id\":\"r1\",\"object\":\"response\",\"status\":\"completed\",\"model\":\"m\",\"output\":[{"
	"\"type\":\"message\",\"id\":\"msg\","
	"\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":"
	"\"hi\",\"annotations\":[]}]},{"
	"\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"a\",\"name\":\"f\",\"arguments\":\"{"
	"\\\"x\\\":1}\"}],\"usage\":{"
	"\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":5}}",
	"{\"id\":\"m1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":"
	"\"text\",\"text\":\"hi\"},{"
	"\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{\"x\":1}}],\"stop_reason\":\"tool_"
	"use\",\"stop_sequence\":null,"
	"\"usage\":{\"input_tokens\":6,\"cache_read_input_tokens\":4,\"output_tokens\":5}}",
};

static void check_answer(const struct wire_answer *a)
{
	assert_int_equal(a->n_parts, 2);
	assert_string_equal(a->parts[0].text, "hi");
	assert_string_equal(a->parts[1].id, "a");
	assert_string_equal(a->parts[1].name, "f");
	assert_string_equal(a->parts[1].text, "{\"x\":1}");
	assert_int_equal(a->finish, WIRE_CALLS);
	assert_true(a->usage.known && a->usage.input == 10 && a->usage.cached == 4 && a->usage.output == 5);
	assert_false(a->unparsed_call);
}

static void an_answer_means_the_same_on_every_wire(void **state)
{
	(void)state;
	for (enum provider_wire from = WIRE_CHAT; from <= WIRE_MESSAGES; from++)
		for (enum provider_wire to = WIRE_CHAT; to <= WIRE_MESSAGES; to++) {
			auto_mem struct mem *m = mem_new();
			struct err e = { 0 };
			struct wire_answer a, b;
			struct wire_self self = { .tail = "1", .model = "p/m" };
			assert_int_equal(
			    wire_answer_read(m, from, answers[from], strlen(answers[from]), &a, &e), 0);
			check_answer(&a);
			assert_string_equal(wire_answer_text(m, &a), "hi");
			const json_t *v = mem_json(m, wire_answer_write(to, &a, &self, &e));
			const char *text = js_dump(m, v);
			assert_int_equal(wire_answer_read(m, to, text, strlen(text), &b, &e), 0);
			check_answer(&b);
			assert_string_equal(b.model, "p/m");
		}
}

static void parts_of_a_text_are_one(void **state)
{
	static const char text[] =
	    "{\"choices\":[{\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":"
	    "\"text\","
	    "\"text\":\"hm\"}]},{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}}]}";
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct wire_answer a;
	assert_int_equal(wire_answer_read(m, WIRE_CHAT, text, strlen(text), &a, &e), 0);
	assert_int_equal(a.n_parts, 3);
	assert_int_equal(a.parts[0].kind, WIRE_REASONING);
	assert_string_equal(wire_answer_text(m, &a), "ab");
}

/* MOD-8: never an empty success. */
static void what_is_no_answer_is_an_error(void **state)
{
	static const char *const bad[] = { "", "<html>", "null", "[]", "{}", "{\"choices\":[]}",
		"{\"choices\":[{}]}", "{\"output\":5}", "{\"content\":\"x\"}",
		"{\"output\":[],\"status\":\"queued\"}",
		"{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{}}]}}]}" };
	(void)state;
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
		auto_mem struct mem *m = mem_new();
		struct wire_answer a;
		for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
			struct err e = { 0 };
			assert_int_equal(wire_answer_read(m, w, bad[i], strlen(bad[i]), &a, &e), -1);
			assert_int_equal(e.code, ERR_UPSTREAM);
			assert_null(strstr(e.msg, "html"));
		}
		for (size_t n = 0; n < strlen(answers[w]); n++) {
			struct err e = { 0 };
			assert_int_equal(wire_answer_read(m, w, answers[w], n, &a, &e), -1);
		}
	}
}

static void an_error_that_came_with_200_is_one(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct wire_answer a;
	static const char *const texts[] = {
		"{\"error\":{\"message\":\"slow\",\"code\":\"rate_limit_exceeded\"}}",
		"{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}",
		"{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"slow\"}}",
	};
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++)
		for (size_t i = 0; i < 3; i++) {
			assert_int_equal(wire_answer_read(m, w, texts[i], strlen(texts[i]), &a, &e), 0);
			assert_int_equal(a.fault, WIRE_RATE);
			assert_string_equal(a.fault_text, "slow");
		}
}

static void arguments_that_are_no_object_are_seen(void **state)
{
	static const struct {
		const char *args, *finish;
		bool unparsed;
	} all[] = { { "{\\\"a\\\":", "tool_calls", true }, { "[]", "tool_calls", true },
		{ "{\\\"a\\\":", "length", false }, { "", "tool_calls", false },
		{ "{}", "tool_calls", false } };
	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		auto_mem struct mem *m = mem_new();
		struct err e = { 0 };
		struct wire_answer a;
		struct wire_self self = { .tail = "1", .model = "m" };
		const char *text = mem_fmt(m,
		    "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\","
		    "\"arguments\":\"%s\"}}]},"
		    "\"finish_reason\":\"%s\"}]}",
		    all[i].args, all[i].finish);
		assert_int_equal(wire_answer_read(m, WIRE_CHAT, text, strlen(text), &a, &e), 0);
		assert_int_equal(a.unparsed_call, all[i].unparsed);
		const json_t *v = mem_json(m, wire_answer_write(WIRE_MESSAGES, &a, &self, &e));
		assert_int_equal(v == NULL, all[i].unparsed);
	}
}

/* Reasoning goes through a client of another wire and comes back to its maker. */
static void reasoning_comes_back_to_its_maker(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	struct wire_part part = {
		.kind = WIRE_REASONING, .text = "hm", .opaque = "SIG==", .maker = WIRE_MESSAGES
	};
	struct wire_answer a = { .parts = &part, .n_parts = 1, .finish = WIRE_STOP };
	struct wire_self self = { .tail = "1", .model = "m" };
	json_t *answer = mem_json(m, wire_answer_write(WIRE_RESPONSES, &a, &self, &e));
	json_t *body = mem_json(
	    m, js_pack("{s:s,s:O}", "model", "m", "input", json_object_get(answer, "output")));
	js_push(json_object_get(body, "input"), js_pack("{s:s,s:s}", "role", "user", "content", "go on"));
	const struct wire_names *n;
	const json_t *out = wire_translate(m, WIRE_RESPONSES, WIRE_MESSAGES, body, &target, &n, &e);
	const json_t *block = json_array_get(
	    json_object_get(json_array_get(json_object_get(out, "messages"), 0), "content"), 0);
	assert_string_equal(js_str(block, "type"), "thinking");
	assert_string_equal(js_str(block, "thinking"), "hm");
	assert_string_equal(js_str(block, "signature"), "SIG==");
	const json_t *chat = wire_translate(m, WIRE_RESPONSES, WIRE_CHAT, body, &target, &n, &e);
	assert_null(strstr(js_dump(m, chat), "SIG"));
}

/* ---- refusals */

static void refusals_are_what_makes_each_client_stop_or_retry(void **state)
{
	(void)state;
	auto_buf struct buf out = BUF(TEXT_BYTES);
	static const char *const kinds[WIRE_FAULTS_] = { "", "bad request", "auth", "gate", "forbidden",
		"unknown model", "not found", "method", "conflict", "reused", "not kept", "too large",
		"context", "policy", "rate", "upstream", "overloaded", "timeout", "internal" };
	for (int k = WIRE_FAULT_NONE + 1; k < WIRE_FAULTS_; k++)
		for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++) {
			auto_mem struct mem *m = mem_new();
			struct wire_refusal r = wire_refuse(
			    m, w, (enum wire_fault)k, "No \"way\".", "model", "req_1", 0);
			(void)buf_fmt(&out, "%s, %s: %d%s%s %s\n", kinds[k], wires[w], r.status,
			    r.retry_s > 0 ? " Retry-After " : "", r.retry_s > 0 ? "1" : "", r.body);
		}
	golden_is("tests/golden/wire-refusals.txt", &out);
	/* MOD-10 */
	auto_mem struct mem *m = mem_new();
	assert_int_equal(wire_refuse(m, WIRE_CHAT, WIRE_GATE, "x", NULL, "r", 0).status, 429);
	assert_int_equal(wire_refuse(m, WIRE_RESPONSES, WIRE_GATE, "x", NULL, "r", 0).status, 429);
	assert_non_null(
	    strstr(wire_refuse(m, WIRE_RESPONSES, WIRE_GATE, "x", NULL, "r", 0).body, "insufficient_quota"));
	assert_int_equal(wire_refuse(m, WIRE_MESSAGES, WIRE_GATE, "x", NULL, "r", 0).status, 402);
	assert_non_null(
	    strstr(wire_refuse(m, WIRE_MESSAGES, WIRE_GATE, "x", NULL, "r", 0).body, "billing_error"));
	assert_int_equal(wire_refuse(m, WIRE_MESSAGES, WIRE_RATE, "x", NULL, "r", 7).retry_s, 7);
}

static void what_an_upstream_says_is_understood(void **state)
{
	static const struct {
		int status;
		const char *body;
		enum wire_fault kind;
		bool quota;
	} all[] = {
		{ 401,
		    "{\"error\":{\"message\":\"Incorrect API "
		    "key\",\"type\":\"invalid_request_error\",\"code\":\"invalid_api_key\"}}",
		    WIRE_AUTH, false },
		{ 429,
		    "{\"error\":{\"message\":\"x\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_"
		    "quota\"}}",
		    WIRE_GATE, true },
		{ 429,
		    "{\"error\":{\"message\":\"slow\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}"
		    "}",
		    WIRE_RATE, false },
		{ 429, "", WIRE_RATE, false },
		{ 400,
		    "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\",\"code\":\"context_"
		    "length_exceeded\"}}",
		    WIRE_CONTEXT, false },
		{ 400,
		    "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt "
		    "is too long: 5 > 4\"}}",
		    WIRE_CONTEXT, false },
		{ 400,
		    "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Your "
		    "credit balance is too low\"}}",
		    WIRE_GATE, true },
		{ 400, "{\"error\":{\"message\":\"x\",\"code\":\"content_policy_violation\"}}", WIRE_POLICY,
		    false },
		{ 400, "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\"}}", WIRE_BAD_REQUEST,
		    false },
		{ 403, "{\"error\":{\"type\":\"invalid_request_error\"}}", WIRE_FORBIDDEN, false },
		{ 404, "{\"error\":{\"code\":\"model_not_found\"}}", WIRE_UNKNOWN_MODEL, false },
		{ 413, "<html>", WIRE_TOO_LARGE, false },
		{ 500, "{\"error\":{\"code\":\"context_length_exceeded\"}}", WIRE_UPSTREAM, false },
		{ 502, "<html>", WIRE_UPSTREAM, false },
		{ 503, "null", WIRE_OVERLOADED, false },
		{ 529,
		    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}"
		    "}",
		    WIRE_OVERLOADED, false },
		{ 400, "[{\"error\":{\"code\":400,\"message\":\"bad\",\"status\":\"INVALID_ARGUMENT\"}}]",
		    WIRE_BAD_REQUEST, false },
	};
	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct wire_said s;
		wire_upstream_said(all[i].status, all[i].body, strlen(all[i].body), &s);
		if (s.kind != all[i].kind || s.quota != all[i].quota)
			fail_msg("%d %s is %d", all[i].status, all[i].body, (int)s.kind);
	}
}

/* Whole and plain, or not at all: half a name is another one. */
static void the_member_at_fault_is_a_plain_name_or_none(void **state)
{
	(void)state;
	static const char *const all[][2] = { { "\"max_tokens\"", "max_tokens" },
		{ "\"messages[0].content[1].image_url\"", "messages[0].content[1].image_url" },
		{ "null", "" }, { "{}", "" }, { "\"two words\"", "" }, { "\"<b>\"", "" }, { "\"a\\nb\"", "" },
		{ "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		  "aaaaaa"
		  "aa\"",
		    "" } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char body[300];
		struct wire_said said;
		(void)snprintf(body, sizeof body, "{\"error\":{\"message\":\"x\",\"param\":%s}}", all[i][0]);
		wire_upstream_said(400, body, strlen(body), &said);
		assert_string_equal(said.param, all[i][1]);
	}
}

static void an_estimate_counts_text_and_not_pictures(void **state)
{
	(void)state;
	auto_buf struct buf b = BUF(TEXT_BYTES);
	assert_int_equal(wire_estimate_tokens(0), 0);
	assert_int_equal(wire_estimate_tokens(5), 2);
	(void)buf_str(&b, "{\"messages\":[{\"content\":\"");
	for (int i = 0; i < 4000; i++)
		(void)buf_str(&b, "word ");
	(void)buf_str(&b, "\"}]}");
	auto_json json_t *text = parsed(buf_c(&b));
	assert_in_range(wire_estimate_request(text), 5000, 5020);
	buf_reset(&b);
	(void)buf_str(&b, "{\"image_url\":\"data:image/png;base64,");
	for (int i = 0; i < 100000; i++)
		(void)buf_str(&b, "AAAAAAAA");
	(void)buf_str(&b, "\"}");
	auto_json json_t *image = parsed(buf_c(&b));
	assert_in_range(wire_estimate_request(image), 1000, 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_request_is_refused_by_field),
		cmocka_unit_test(what_the_gateway_needs_is_seen),
		cmocka_unit_test(the_same_wire_gets_what_the_client_sent),
		cmocka_unit_test(reasoning_of_another_wire_does_not_reach_an_upstream),
		cmocka_unit_test(what_coding_agents_send_is_carried),
		cmocka_unit_test(calls_come_back_as_the_client_named_them),
		cmocka_unit_test(streamed_calls_come_back_as_the_client_named_them),
		cmocka_unit_test(long_names_are_shortened_and_come_back),
		cmocka_unit_test(an_answer_means_the_same_on_every_wire),
		cmocka_unit_test(parts_of_a_text_are_one),
		cmocka_unit_test(what_is_no_answer_is_an_error),
		cmocka_unit_test(an_error_that_came_with_200_is_one),
		cmocka_unit_test(arguments_that_are_no_object_are_seen),
		cmocka_unit_test(reasoning_comes_back_to_its_maker),
		cmocka_unit_test(refusals_are_what_makes_each_client_stop_or_retry),
		cmocka_unit_test(what_an_upstream_says_is_understood),
		cmocka_unit_test(the_member_at_fault_is_a_plain_name_or_none),
		cmocka_unit_test(an_estimate_counts_text_and_not_pictures),
	};
	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
