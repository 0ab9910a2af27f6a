/* What the scripted model vendor answers whole: bodies of the three wires, refusals, and nonsense. */
#include "t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/js.h"
#include "fakemodel_int.h"

enum { NUL_AT = 30 };

/* ---- heads and whole bodies */

void fake_head(struct fake_call *k, int status, const char *type, const char *more, long length)
{
	char text[600], framing[60];
	if (length >= 0)
		(void)snprintf(framing, sizeof framing, "Content-Length: %ld", length);
	else
		(void)snprintf(framing, sizeof framing, "Transfer-Encoding: chunked");
	int n = snprintf(text, sizeof text, "HTTP/1.1 %d Status\r\nContent-Type: %s\r\n%s%s\r\n\r\n", status,
	    type, more, framing);
	(void)fake_say(k, text, (size_t)n);
}

void fake_whole(struct fake_call *k, int status, const char *type, const char *more, const char *body)
{
	fake_head(k, status, type, more, (long)strlen(body));
	(void)fake_say(k, body, strlen(body));
}

void fake_error(struct fake_call *k, int status, const char *more, const char *type, const char *code,
    const char *message)
{
	auto_json json_t *v = k->wire == FAKE_MESSAGES
	    ? js_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", type, "message", message)
	    : js_pack("{s:{s:s, s:s, s:n, s:s?}}", "error", "message", message, "type", type, "param", "code",
		  code);
	auto_free char *text = json_dumps(v, JSON_COMPACT);
	fake_whole(k, status, "application/json", more, text);
}

static json_t *usage(const struct fake_call *k, int out, const char *in_name, const char *out_name)
{
	json_int_t n = out, in = FAKEMODEL_PROMPT_TOKENS;
	if (k->act == FAKE_MUCH_USAGE)
		n = in = 2000000000;
	if (k->act == FAKE_ODD_USAGE)
		return js_pack("{s:I, s:f}", in_name, (json_int_t)-5, out_name, 0.5);
	return js_pack("{s:I, s:I, s:I}", in_name, in, out_name, n, "total_tokens", in + n);
}

json_t *fake_chat_usage(const struct fake_call *k, int out)
{
	return usage(k, out, "prompt_tokens", "completion_tokens");
}

json_t *fake_flat_usage(const struct fake_call *k, int out)
{
	return usage(k, out, "input_tokens", "output_tokens");
}

#define NUL "U+0000" /* as long as its escape */

void fake_word(const struct fake_call *k, int i, char out[40])
{
	(void)snprintf(out, 40, "%s%s%d", i == 0 ? "" : " ",
	    k->act == FAKE_SPLIT                    ? "\xe6\xb0\xb4\xf0\x9f\x8c\x8a"
		: k->act == FAKE_NUL && i == NUL_AT ? "w" NUL
						    : "w",
	    i);
}

void fake_nul(char *text)
{
	char *at = strstr(text, NUL);
	if (at != NULL)
		memcpy(at, "\\u0000", 6);
}

bool fake_calls(const struct fake_call *k)
{
	return k->act == FAKE_TOOLS || k->act == FAKE_TOOLS_MIXED || k->act == FAKE_TOOLS_SAME ||
	    k->act == FAKE_TOOLS_NAMELESS || k->act == FAKE_NO_STREAM_TOOLS;
}

/* ---- a buffered answer */

static json_t *calls_whole(const struct fake_call *k)
{
	json_t *list = json_array();
	for (int i = 0; i < 2; i++) {
		char id[16];
		const char *name = k->act == FAKE_TOOLS_NAMELESS && i == 0 ? "" : "read";
		const char *args = i == 0 ? "{\"path\":\"a\"}" : "{\"path\":\"b\"}";
		(void)snprintf(id, sizeof id, "call_%c", 'a' + i);
		if (k->wire == FAKE_CHAT)
			js_push(list,
			    js_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function",
				"name", name, "arguments", args));
		else if (k->wire == FAKE_MESSAGES)
			js_push(list,
			    js_pack("{s:s, s:s, s:s, s:{s:s}}", "type", "tool_use", "id", id, "name", name,
				"input", "path", i == 0 ? "a" : "b"));
		else
			js_push(list,
			    js_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "type", "function_call", "id", id,
				"call_id", id, "name", name, "arguments", args, "status", "completed"));
	}
	return list;
}

static json_t *body(const struct fake_call *k, const char *all, bool tools)
{
	int out = tools ? 12 : FAKEMODEL_WORDS;
	json_t *v, *list = tools ? calls_whole(k) : NULL;
	if (k->wire == FAKE_CHAT) {
		json_t *m = js_pack("{s:s, s:s?}", "role", "assistant", "content", tools ? NULL : all);
		if (tools)
			js_set(m, "tool_calls", list);
		v = js_pack("{s:s, s:s, s:i, s:s, s:[{s:i, s:o, s:s}]}", "id", "chatcmpl-fake", "object",
		    "chat.completion", "created", 1700000000, "model", k->model, "choices", "index", 0,
		    "message", m, "finish_reason", tools ? "tool_calls" : "stop");
		if (k->act == FAKE_NO_CHOICES)
			js_set(v, "choices", json_array());
	} else if (k->wire == FAKE_MESSAGES) {
		v = js_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:n}", "id", "msg_fake", "type", "message",
		    "role", "assistant", "model", k->model, "content",
		    tools ? list : js_pack("[{s:s, s:s}]", "type", "text", "text", all), "stop_reason",
		    tools ? "tool_use" : "end_turn", "stop_sequence");
	} else {
		v = js_pack("{s:s, s:s, s:i, s:s, s:s, s:o}", "id", "resp_fake", "object", "response",
		    "created_at", 1700000000, "status", "completed", "model", k->model, "output",
		    tools ? list
			  : js_pack("[{s:s, s:s, s:s, s:s, s:[{s:s, s:s, s:[]}]}]", "type", "message", "id",
				"msg_fake", "role", "assistant", "status", "completed", "content", "type",
				"output_text", "text", all, "annotations"));
	}
	if (k->act != FAKE_NO_USAGE)
		js_set(v, "usage", k->wire == FAKE_CHAT ? fake_chat_usage(k, out) : fake_flat_usage(k, out));
	return v;
}

/* RFC 1952 with one stored block: packed, and no smaller. */
static void packed(struct fake_call *k, const char *text_)
{
	static const unsigned char begin_[10] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255 };
	size_t n = strlen(text_);
	unsigned crc = ~0u;
	for (size_t i = 0; i < n; i++) {
		crc ^= (unsigned char)text_[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
	}
	crc = ~crc;
	unsigned char block[5] = { 1, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)~n,
		(unsigned char)(~n >> 8) };
	unsigned char end[8] = { (unsigned char)crc, (unsigned char)(crc >> 8), (unsigned char)(crc >> 16),
		(unsigned char)(crc >> 24), (unsigned char)n, (unsigned char)(n >> 8), 0, 0 };
	fake_head(k, 200, "application/json", "Content-Encoding: gzip\r\n",
	    (long)(sizeof begin_ + sizeof block + n + sizeof end));
	(void)fake_say(k, begin_, sizeof begin_);
	(void)fake_say(k, block, sizeof block);
	(void)fake_say(k, text_, n);
	(void)fake_say(k, end, sizeof end);
}

void fake_buffered(struct fake_call *k)
{
	auto_buf struct buf all = BUF(1 << 20);
	bool tools = fake_calls(k);
	if (k->act == FAKE_SLOW && !fake_wait(k, fake_times(k).slow_ms))
		return;
	if (k->act == FAKE_MARKUP || k->act == FAKE_MARKUP_SLOW)
		(void)buf_str(&all, "<tool_call>\n{\"name\": \"read\"}\n</tool_call>");
	else if (k->act == FAKE_MARKUP_CODE)
		(void)buf_str(&all, "Such a model writes `<tool_call>` for a call.");
	for (int i = 0; all.n == 0 || (i > 0 && i < FAKEMODEL_WORDS); i++) {
		char w[40];
		fake_word(k, i, w);
		(void)buf_str(&all, w);
	}
	auto_json json_t *v = body(k, buf_c(&all), tools);
	auto_free char *text_ = json_dumps(v, JSON_COMPACT);
	if (k->act == FAKE_NUL)
		fake_nul(text_);
	if (k->act == FAKE_GZIP) {
		packed(k, text_);
	} else if (k->act == FAKE_BOM || k->act == FAKE_KEY_TWICE) {
		bool bom = k->act == FAKE_BOM;
		const char *before = bom ? "\xef\xbb\xbf" : "{\"id\":\"another\",";
		fake_head(k, 200, "application/json", "", (long)(strlen(before) + strlen(text_) - !bom));
		(void)fake_say(k, before, strlen(before));
		(void)fake_say(k, text_ + !bom, strlen(text_) - !bom);
	} else if (k->act == FAKE_CUT || k->act == FAKE_CUT_RESET || k->act == FAKE_STALL) {
		fake_head(k, 200, "application/json", "", (long)strlen(text_));
		(void)fake_say(k, text_, strlen(text_) / 2);
		if (k->act == FAKE_STALL)
			(void)fake_wait(k, fake_times(k).stall_ms);
		k->close = true;
	} else {
		if (k->act == FAKE_JSON_CUT || k->act == FAKE_MALFORMED)
			text_[strlen(text_) / 2] = 0;
		fake_whole(k, 200, "application/json", "", text_);
	}
}

/* ---- faults without an answer */

bool fake_refused(struct fake_call *k)
{
	char more[100], date[40];
	time_t at = time(NULL) + fake_times(k).retry_after_s;
	struct tm tm;
	switch (k->act) {
	case FAKE_429_AFTER:
		(void)snprintf(more, sizeof more, "Retry-After: %d\r\n", fake_times(k).retry_after_s);
		fake_error(k, 429, more, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached.");
		return true;
	case FAKE_429_DATE:
		(void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&at, &tm));
		(void)snprintf(more, sizeof more, "Retry-After: %s\r\n", date);
		fake_error(k, 429, more, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached.");
		return true;
	case FAKE_429:
		fake_error(k, 429, "", "rate_limit_error", "rate_limit_exceeded", "Rate limit reached.");
		return true;
	case FAKE_401:
		fake_error(k, 401, "", "authentication_error", "invalid_api_key",
		    "Incorrect API key provided: sk-secret-upstream.");
		return true;
	case FAKE_402:
		fake_error(
		    k, 402, "", "billing_error", "insufficient_credits", "This model requires more credits.");
		return true;
	case FAKE_403:
		fake_error(k, 403, "", "permission_error", "permission_denied",
		    "Your project does not have access to this model.");
		return true;
	case FAKE_FIELD:
		fake_whole(k, 400, "application/json", "",
		    "{\"type\":\"error\",\"error\":{\"message\":\"Too "
		    "large.\",\"type\":\"invalid_request_error\","
		    "\"param\":\"max_tokens\",\"code\":\"bad\"}}");
		return true;
	case FAKE_LEAK:
		fake_error(k, 400, "", "invalid_request_error", "bad_request",
		    "Not accepted: sk-proj-Abc123def456Ghi789, sk-ant-api03-Zyx987_wvu654-Tsr321, "
		    "AKIAIOSFODNN7EXAMPLE and ghp_16C7e42F292c6912E7710c838347Ae178B4a.");
		return true;
	case FAKE_404:
		fake_error(k, 404, "", "not_found_error", "model_not_found", "The model does not exist.");
		return true;
	case FAKE_500:
		fake_error(k, 500, "", "server_error", NULL, "The server had an error.");
		return true;
	case FAKE_CONTEXT:
		fake_error(k, 400, "", "invalid_request_error", "context_length_exceeded",
		    "This model's maximum context length is 8192 tokens. prompt is too long");
		return true;
	case FAKE_FILTER:
		fake_error(k, 400, "", "invalid_request_error", "content_policy_violation",
		    "Your request was rejected as a result of our safety system.");
		return true;
	case FAKE_503:
		fake_error(k, 503, "", "server_error", "overloaded", "The engine is currently overloaded.");
		return true;
	default:
		return false;
	}
}

static const char page[] = "<!doctype html><html><body><h1>Bad gateway</h1></body></html>";

bool fake_nonsense(struct fake_call *k)
{
	switch (k->act) {
	case FAKE_HTML_502:
		fake_whole(k, 502, "text/html", "", page);
		return true;
	case FAKE_HTML_200:
		fake_whole(k, 200, "text/html", "", page);
		return true;
	case FAKE_EMPTY:
		fake_whole(k, 200, "application/json", "", "");
		return true;
	case FAKE_NULL:
		fake_whole(k, 200, "application/json", "", "null");
		return true;
	case FAKE_REDIRECT:
		fake_whole(k, 302, "text/plain", "Location: http://127.0.0.1:1/elsewhere\r\n", "moved");
		return true;
	case FAKE_RESET:
		fake_reset(k);
		return true;
	case FAKE_SILENT:
		(void)fake_wait(k, fake_times(k).silent_ms);
		k->close = true;
		return true;
	default:
		return false;
	}
}
