/* What the scripted model vendor streams on the three wires, and how it breaks. */
#include "t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/js.h"
#include "fakemodel_int.h"

enum {
	CUT_AT = 40,
	STALL_AT = 20,
	MALFORMED_AT = 10,
	ERROR_AT = 10,
	MARKUP_AT = 20,
	PIECE_MS = 40,
	BIG = 10 << 20
};

static const char *const call_args[2][3] = { { "{\"path\"", ":\"", "a\"}" }, { "{\"path\"", ":\"", "b\"}" } };

/* ---- events */

static void piece(struct fake_call *k, const char *p, size_t n)
{
	char size[24];
	int m = snprintf(size, sizeof size, "%zx\r\n", n);
	(void)fake_say(k, size, (size_t)m);
	(void)fake_say(k, p, n);
	(void)fake_say(k, "\r\n", 2);
}

static void raw(struct fake_call *k, const char *p, size_t n)
{
	if (k->act != FAKE_SPLIT) {
		piece(k, p, n);
		return;
	}
	for (; n > 0 && !k->gone;) {
		size_t some = n < 7 ? n : 7;
		piece(k, p, some);
		p += some;
		n -= some;
	}
}

static void event(struct fake_call *k, const char *name, json_t *v)
{
	auto_json json_t *mine = v;
	auto_free char *text = json_dumps(mine, JSON_COMPACT);
	if (k->act == FAKE_NUL)
		fake_nul(text);
	auto_buf struct buf b = BUF(64 << 20);
	const char *eol = k->act == FAKE_CRLF ? "\r\n" : "\n";
	if (k->act == FAKE_COMMENTS)
		(void)buf_fmt(&b, ": keep-alive\n\n");
	if (k->wire != FAKE_CHAT)
		(void)buf_fmt(&b, "event: %s%s", name, eol);
	(void)buf_str(&b, "data: ");
	(void)buf_str(&b, text);
	(void)buf_str(&b, eol);
	(void)buf_str(&b, eol);
	raw(k, b.p, b.n);
}

static json_t *chunk(const struct fake_call *k, json_t *delta, const char *finish)
{
	return js_pack("{s:s, s:s, s:i, s:s, s:[{s:i, s:o, s:s?}]}", "id", "chatcmpl-fake", "object",
	    "chat.completion.chunk", "created", 1700000000, "model", k->model, "choices", "index", 0, "delta",
	    delta, "finish_reason", finish);
}

static void begin(struct fake_call *k)
{
	if (k->wire == FAKE_CHAT)
		event(k, "", chunk(k, js_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL));
	else if (k->wire == FAKE_MESSAGES)
		event(k, "message_start",
		    js_pack("{s:s, s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:{s:i, s:i}}}", "type",
			"message_start", "message", "id", "msg_fake", "type", "message", "role", "assistant",
			"model", k->model, "content", "stop_reason", "stop_sequence", "usage", "input_tokens",
			FAKEMODEL_PROMPT_TOKENS, "output_tokens", 1));
	else
		event(k, "response.created",
		    js_pack("{s:s, s:i, s:{s:s, s:s, s:s, s:s, s:[]}}", "type", "response.created",
			"sequence_number", 0, "response", "id", "resp_fake", "object", "response", "status",
			"in_progress", "model", k->model, "output"));
}

static void text_open(struct fake_call *k)
{
	if (k->wire == FAKE_MESSAGES)
		event(k, "content_block_start",
		    js_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_start", "index", 0,
			"content_block", "type", "text", "text", ""));
	else if (k->wire == FAKE_RESPONSES)
		event(k, "response.output_item.added",
		    js_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s, s:s, s:[]}}", "type",
			"response.output_item.added", "sequence_number", 1, "output_index", 0, "item", "type",
			"message", "id", "msg_fake", "role", "assistant", "status", "in_progress",
			"content"));
}

static void text(struct fake_call *k, const char *s)
{
	if (k->wire == FAKE_CHAT)
		event(k, "", chunk(k, js_pack("{s:s}", "content", s), NULL));
	else if (k->wire == FAKE_MESSAGES)
		event(k, "content_block_delta",
		    js_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index", 0, "delta",
			"type", "text_delta", "text", s));
	else
		event(k, "response.output_text.delta",
		    js_pack("{s:s, s:i, s:s, s:i, s:i, s:s}", "type", "response.output_text.delta",
			"sequence_number", 2, "item_id", "msg_fake", "output_index", 0, "content_index", 0,
			"delta", s));
}

static void text_close(struct fake_call *k, const char *all)
{
	if (k->wire == FAKE_MESSAGES)
		event(
		    k, "content_block_stop", js_pack("{s:s, s:i}", "type", "content_block_stop", "index", 0));
	else if (k->wire == FAKE_RESPONSES)
		event(k, "response.output_item.done",
		    js_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s, s:s, s:[{s:s, s:s, s:[]}]}}", "type",
			"response.output_item.done", "sequence_number", 90, "output_index", 0, "item", "type",
			"message", "id", "msg_fake", "role", "assistant", "status", "completed", "content",
			"type", "output_text", "text", all, "annotations"));
}

/* ---- tool calls: two of them, `read` with {"path":"a"} and {"path":"b"} */

static void call_piece(struct fake_call *k, int call, int part)
{
	const char *args = call_args[call][part];
	int index = k->act == FAKE_TOOLS_SAME ? 0 : call;
	char id[16];
	(void)snprintf(id, sizeof id, "call_%c", 'a' + call);
	if (k->wire == FAKE_MESSAGES) {
		if (part == 0)
			event(k, "content_block_start",
			    js_pack("{s:s, s:i, s:{s:s, s:s, s:s, s:{}}}", "type", "content_block_start",
				"index", index, "content_block", "type", "tool_use", "id", id, "name", "read",
				"input"));
		event(k, "content_block_delta",
		    js_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index", index,
			"delta", "type", "input_json_delta", "partial_json", args));
		if (part == 2)
			event(k, "content_block_stop",
			    js_pack("{s:s, s:i}", "type", "content_block_stop", "index", index));
		return;
	}
	if (k->wire == FAKE_RESPONSES) {
		if (part == 0)
			event(k, "response.output_item.added",
			    js_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s, s:s, s:s, s:s}}", "type",
				"response.output_item.added", "sequence_number", 3, "output_index", index,
				"item", "type", "function_call", "id", id, "call_id", id, "name", "read",
				"arguments", "", "status", "in_progress"));
		event(k, "response.function_call_arguments.delta",
		    js_pack("{s:s, s:i, s:s, s:i, s:s}", "type", "response.function_call_arguments.delta",
			"sequence_number", 4, "item_id", id, "output_index", index, "delta", args));
		if (part == 2)
			event(k, "response.output_item.done",
			    js_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s, s:s, s:s, s:s}}", "type",
				"response.output_item.done", "sequence_number", 5, "output_index", index,
				"item", "type", "function_call", "id", id, "call_id", id, "name", "read",
				"arguments", call == 0 ? "{\"path\":\"a\"}" : "{\"path\":\"b\"}", "status",
				"completed"));
		return;
	}
	json_t *f = js_pack("{s:s}", "arguments", args);
	json_t *c = js_pack("{s:i, s:o}", "index", index, "function", f);
	if (part == 0) {
		js_set_str(c, "id", id);
		js_set_str(c, "type", "function");
		js_set_str(f, "name", "read");
	}
	event(k, "", chunk(k, js_pack("{s:[o]}", "tool_calls", c), NULL));
}

static void nameless(struct fake_call *k)
{
	if (k->wire == FAKE_MESSAGES)
		event(k, "content_block_start",
		    js_pack("{s:s, s:i, s:{s:s, s:s, s:{s:s}}}", "type", "content_block_start", "index", 0,
			"content_block", "type", "tool_use", "id", "call_a", "input", "path", "a"));
	else if (k->wire == FAKE_RESPONSES)
		event(k, "response.output_item.done",
		    js_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s}}", "type", "response.output_item.done",
			"sequence_number", 3, "output_index", 0, "item", "type", "function_call", "call_id",
			"call_a", "arguments", "{\"path\":\"a\"}"));
	else
		event(k, "",
		    chunk(k,
			js_pack("{s:[{s:i, s:s, s:s, s:{s:s}}]}", "tool_calls", "index", 0, "id", "call_a",
			    "type", "function", "function", "arguments", "{\"path\":\"a\"}"),
			NULL));
}

static void calls(struct fake_call *k)
{
	if (k->act == FAKE_TOOLS_NAMELESS)
		nameless(k);
	for (int i = k->act == FAKE_TOOLS_NAMELESS ? 3 : 0; i < 6; i++)
		if (k->act == FAKE_TOOLS_MIXED)
			call_piece(k, i % 2, i / 2);
		else
			call_piece(k, i / 3, i % 3);
}

/* ---- the end */

static bool wants_usage(const struct fake_call *k)
{
	return k->act != FAKE_NO_USAGE && js_bool(js_get(k->body, "stream_options"), "include_usage", false);
}

static void finish(struct fake_call *k, int out, bool tools, const char *all)
{
	if (k->wire == FAKE_CHAT) {
		event(k, "", chunk(k, json_object(), tools ? "tool_calls" : "stop"));
		if (wants_usage(k)) {
			json_t *v = chunk(k, json_object(), NULL);
			js_set(v, "choices", json_array());
			js_set(v, "usage", fake_chat_usage(k, out));
			event(k, "", v);
		}
		if (k->act != FAKE_NO_DONE)
			raw(k, "data: [DONE]\n\n", 14);
		return;
	}
	if (k->wire == FAKE_MESSAGES) {
		bool odd = k->act == FAKE_MUCH_USAGE || k->act == FAKE_ODD_USAGE;
		event(k, "message_delta",
		    js_pack("{s:s, s:{s:s, s:n}, s:o}", "type", "message_delta", "delta", "stop_reason",
			tools ? "tool_use" : "end_turn", "stop_sequence", "usage",
			odd ? fake_flat_usage(k, out) : js_pack("{s:i}", "output_tokens", out)));
		if (k->act != FAKE_NO_DONE)
			event(k, "message_stop", js_pack("{s:s}", "type", "message_stop"));
		return;
	}
	if (k->act == FAKE_NO_DONE)
		return;
	json_t *v = js_pack(
	    "{s:s, s:i, s:{s:s, s:s, s:s, s:s, s:[{s:s, s:s, s:s, s:s, s:[{s:s, s:s, s:[]}]}]}}", "type",
	    "response.completed", "sequence_number", 99, "response", "id", "resp_fake", "object", "response",
	    "status", "completed", "model", k->model, "output", "type", "message", "id", "msg_fake", "role",
	    "assistant", "status", "completed", "content", "type", "output_text", "text", all, "annotations");
	if (k->act != FAKE_NO_USAGE)
		js_set(json_object_get(v, "response"), "usage", fake_flat_usage(k, out));
	event(k, "response.completed", v);
}

/* ---- a stream */

static void error_event(struct fake_call *k)
{
	static const char text_[] = "The engine is currently overloaded.";
	if (k->wire == FAKE_MESSAGES)
		event(k, "error",
		    js_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", "overloaded_error",
			"message", text_));
	else if (k->wire == FAKE_RESPONSES)
		event(k, "response.failed",
		    js_pack("{s:s, s:i, s:{s:s, s:s, s:s, s:{s:s, s:s}, s:[]}}", "type", "response.failed",
			"sequence_number", 7, "response", "id", "resp_fake", "object", "response", "status",
			"failed", "error", "code", "server_error", "message", text_, "output"));
	else
		event(k, "",
		    js_pack("{s:{s:s, s:s, s:s}}", "error", "message", text_, "type", "server_error", "code",
			"overloaded"));
}

/* What happens before the i-th word; false ends the stream without a word. */
static bool mishap(struct fake_call *k, int i)
{
	if ((k->act == FAKE_CUT || k->act == FAKE_CUT_RESET) && i == CUT_AT) {
		if (k->act == FAKE_CUT_RESET)
			fake_reset(k);
		k->close = true;
		return false;
	}
	if (k->act == FAKE_STALL && i == STALL_AT) {
		(void)fake_wait(k, fake_times(k).stall_ms);
		k->close = true;
		return false;
	}
	if (k->act == FAKE_MALFORMED && i == MALFORMED_AT) {
		static const char bad[] =
		    "data: {\"id\": \"chatcmpl-fake\", \"choices\": [{\"delta\": {\"content\": \n\n";
		raw(k, bad, sizeof bad - 1);
	}
	if (k->act == FAKE_ERROR_EVENT && i == ERROR_AT) {
		error_event(k);
		k->close = true;
		return false;
	}
	if (k->act == FAKE_MARKUP_LATE && i == MARKUP_AT) {
		text(k, "\n<tool_");
		text(k, "call>\n{\"name\": \"read\"}");
	}
	return true;
}

static bool words(struct fake_call *k, struct buf *all)
{
	char w[40];
	int ms = fake_times(k).token_ms;
	if (k->act == FAKE_ENDLESS && ms == 0)
		ms = 5;
	for (int i = 0; (i < FAKEMODEL_WORDS || k->act == FAKE_ENDLESS) && !k->gone; i++) {
		if (!mishap(k, i))
			return false;
		fake_word(k, i, w);
		(void)buf_str(all, w);
		text(k, w);
		if (ms > 0)
			(void)fake_wait(k, ms);
	}
	return !k->gone;
}

static void big_line(struct fake_call *k)
{
	char *s = malloc(BIG + 1);
	if (s == NULL)
		abort();
	memset(s, 'x', BIG);
	s[BIG] = 0;
	text(k, s);
	free(s);
}

/* Each piece is read before the next is sent. False: it ends there. */
static bool markup_slow(struct fake_call *k)
{
	static const char *const pieces[] = { "<tool", "_call>\n{\"name\":\"read\",\"argu",
		"ments\":{\"path\":\"a\"}}\n</tool_call>" };
	(void)fake_wait(k, PIECE_MS);
	text_open(k);
	(void)fake_wait(k, PIECE_MS);
	if (k->act == FAKE_MARKUP_SLOW) { /* as models write it: blanks come first, and by themselves */
		text(k, "\n\n");
		(void)fake_wait(k, PIECE_MS);
	}
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces && !k->gone; i++) {
		text(k, pieces[i]);
		(void)fake_wait(k, k->act == FAKE_MARKUP_CUT ? fake_times(k).stall_ms : PIECE_MS);
		k->close = k->act == FAKE_MARKUP_CUT;
		if (k->close)
			return false;
	}
	return !k->gone;
}

static bool content(struct fake_call *k, struct buf *all)
{
	switch (k->act) {
	case FAKE_TOOLS:
	case FAKE_TOOLS_MIXED:
	case FAKE_TOOLS_SAME:
	case FAKE_TOOLS_NAMELESS:
		calls(k);
		return true;
	case FAKE_MARKUP:
		text_open(k);
		text(k, "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>");
		break;
	case FAKE_MARKUP_SLOW:
	case FAKE_MARKUP_CUT:
		if (!markup_slow(k))
			return false;
		break;
	case FAKE_MARKUP_CODE:
		text_open(k);
		text(k, "Such a model writes `<tool_call>` for a call.");
		break;
	case FAKE_BIG_LINE:
		text_open(k);
		big_line(k);
		break;
	default:
		text_open(k);
		if (!words(k, all))
			return false;
	}
	text_close(k, buf_c(all));
	return true;
}

static void stream(struct fake_call *k)
{
	auto_buf struct buf all = BUF(1 << 20);
	fake_head(k, 200, "text/event-stream; charset=utf-8", "Cache-Control: no-cache\r\n", -1);
	if (k->act == FAKE_ONLY_HEAD) {
		k->close = true;
		return;
	}
	if (k->act == FAKE_BOM)
		piece(k, "\xef\xbb\xbf", 3);
	if (k->act == FAKE_SLOW && !fake_wait(k, fake_times(k).slow_ms))
		return;
	if (k->act == FAKE_ERROR_FIRST) {
		error_event(k);
		(void)fake_say(k, "0\r\n\r\n", 5);
		return;
	}
	for (int i = 0; i < (k->act == FAKE_TWICE ? 2 : 1); i++) {
		buf_reset(&all);
		begin(k);
		if (!content(k, &all))
			return;
		bool tools = fake_calls(k);
		finish(k, tools ? 12 : FAKEMODEL_WORDS, tools, buf_c(&all));
	}
	(void)fake_say(k, "0\r\n\r\n", 5);
}

static bool prefilled(const struct fake_call *k)
{
	const json_t *messages = js_get(k->body, "messages");
	size_t n = json_array_size(messages);
	return n > 0 && strcmp(js_str_or(json_array_get(messages, n - 1), "role", ""), "assistant") == 0;
}

void fake_answer(struct fake_call *k)
{
	if (k->wire == FAKE_MODELS) {
		fake_whole(k, 200, "application/json", "",
		    "{\"object\":\"list\",\"data\":[{\"id\":\"ok\",\"object\":\"model\"}]}");
		return;
	}
	if (k->act == FAKE_FLAP)
		k->act = fake_down(k) ? FAKE_503 : FAKE_OK;
	if (k->wire == FAKE_NO_WIRE || k->body == NULL)
		k->act = FAKE_404;
	if (fake_refused(k) || fake_nonsense(k))
		return;
	if (k->act == FAKE_NO_PREFILL && prefilled(k))
		fake_error(k, 400, "", "invalid_request_error", "invalid_prefill",
		    "The conversation must end with a user message.");
	else if (k->stream && k->act != FAKE_NO_STREAM && k->act != FAKE_NO_STREAM_TOOLS &&
	    k->act != FAKE_KEY_TWICE)
		stream(k);
	else
		fake_buffered(k);
}
