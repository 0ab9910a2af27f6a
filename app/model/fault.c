/* What goes wrong, in the words of each dialect (MOD-8, MOD-10), and what upstreams say of it. */
#include <string.h>

#include "base/js.h"
#include "model/answer.h"
#include "model/wire_int.h"

/*
 * A row a kind: the status and the `error.type` and `error.code` of chat and responses, the status and type of messages, seconds until a retry
 * makes sense, and whether none ever does although the status is one that is repeated.
 *
 * The codes decide what clients do: codex stops at insufficient_quota and context_length_exceeded and repeats everything else
 * but a 400; claude stops at 400, 402, 403, 404 and 413 and repeats 401, 408, 409, 429 and 5xx.
 */
static const struct refusal_row {
	int status;
	const char *type, *code;
	int status_messages;
	const char *type_messages;
	int retry_s;
	bool final; /* the vendors' SDKs would repeat that status */
} rows[WIRE_FAULTS_] = {
	[WIRE_BAD_REQUEST] = { 400, "invalid_request_error", NULL, 400, "invalid_request_error", 0 },
	[WIRE_AUTH] = { 401, "authentication_error", "invalid_api_key", 401, "authentication_error", 0 },
	[WIRE_GATE] = { 429, "insufficient_quota", "insufficient_quota", 402, "billing_error", 0, true },
	[WIRE_FORBIDDEN] = { 403, "permission_error", "model_not_allowed", 403, "permission_error", 0 },
	[WIRE_UNKNOWN_MODEL] = { 404, "invalid_request_error", "model_not_found", 404, "not_found_error", 0 },
	[WIRE_NOT_FOUND] = { 404, "invalid_request_error", "not_found", 404, "not_found_error", 0 },
	[WIRE_METHOD] = { 405, "invalid_request_error", "method_not_allowed", 405, "invalid_request_error",
	    0 },
	[WIRE_CONFLICT] = { 409, "invalid_request_error", "idempotency_key_in_use", 409,
	    "invalid_request_error", 1 },
	[WIRE_REUSED] = { 409, "invalid_request_error", "idempotency_key_reused", 409,
	    "invalid_request_error", 0, true },
	[WIRE_NOT_KEPT] = { 409, "invalid_request_error", "answer_not_kept", 409, "invalid_request_error", 0,
	    true },
	[WIRE_TOO_LARGE] = { 413, "invalid_request_error", "request_too_large", 413, "request_too_large", 0 },
	[WIRE_CONTEXT] = { 400, "invalid_request_error", "context_length_exceeded", 400,
	    "invalid_request_error", 0 },
	[WIRE_POLICY] = { 400, "invalid_request_error", "content_policy_violation", 400,
	    "invalid_request_error", 0 },
	[WIRE_RATE] = { 429, "rate_limit_error", "rate_limit_exceeded", 429, "rate_limit_error", 1 },
	[WIRE_UPSTREAM] = { 502, "upstream_error", "upstream_error", 502, "api_error", 0 },
	[WIRE_OVERLOADED] = { 503, "server_error", "overloaded", 529, "overloaded_error", 1 },
	[WIRE_TIMEOUT] = { 504, "server_error", "timeout", 504, "timeout_error", 0 },
	[WIRE_INTERNAL] = { 500, "server_error", "internal_error", 500, "api_error", 0 },
};

static const struct refusal_row *row_of(enum wire_fault kind)
{
	return kind > WIRE_FAULT_NONE && kind < WIRE_FAULTS_ ? &rows[kind] : &rows[WIRE_INTERNAL];
}

static json_t *error_messages(const struct refusal_row *r, const char *message, const char *request_id)
{
	json_t *inner = js_pack("{ss}", "type", r->type_messages);
	js_set_str(inner, "message", message);
	json_t *v = js_pack("{sssosn}", "type", "error", "error", inner, "request_id");
	js_set_str(v, "request_id", request_id);
	return v;
}

static json_t *error_openai(const struct refusal_row *r, const char *message, const char *param)
{
	json_t *inner = js_pack("{snsssnsn}", "message", "type", r->type, "param", "code");
	js_set_str(inner, "message", message);
	js_set_str(inner, "param", param);
	js_set_str(inner, "code", r->code);
	return js_pack("{so}", "error", inner);
}

struct wire_refusal wire_refuse(struct mem *m, enum provider_wire w, enum wire_fault kind,
    const char *message, const char *param, const char *request_id, int retry_s)
{
	const struct refusal_row *r = row_of(kind);
	auto_json json_t *v = w == WIRE_MESSAGES ? error_messages(r, message, request_id)
						 : error_openai(r, message, param);
	return (struct wire_refusal){
		.status = w == WIRE_MESSAGES ? r->status_messages : r->status,
		.body = js_dump(m, v),
		.retry_s = retry_s > 0 ? retry_s : r->retry_s,
		.final = r->final,
	};
}

static void write_json(struct buf *to, const char *name, const json_t *v)
{
	auto_mem struct mem *m = mem_new();
	const char *text = js_dump(m, v);
	(void)sse_write(to, name, text, strlen(text));
}

/* The response that began, failed. Nothing follows it: an event named error would be a second end. */
static void fail_responses(
    const struct refusal_row *r, const char *message, const struct wire_head *head, struct buf *to)
{
	const struct wire_self self = { .tail = "", .model = head->model, .created_s = head->created_s };
	json_t *error = js_pack("{snsn}", "code", "message");
	js_set_str(error, "code", r->code == NULL ? "server_error" : r->code);
	js_set_str(error, "message", message);
	json_t *response = wire_response(&self, WIRE_UNFINISHED, js_pack("[]"), NULL);
	js_set_str(response, "id", head->id);
	js_set_str(response, "status", "failed");
	js_set(response, "error", error);
	auto_json json_t *v = js_pack("{s:s,s:I,s:o}", "type", "response.failed", "sequence_number",
	    (json_int_t)head->next, "response", response);
	write_json(to, "response.failed", v);
}

void wire_stream_fault(enum provider_wire w, enum wire_fault kind, const char *message,
    const char *request_id, const struct wire_head *head, struct buf *to)
{
	const struct refusal_row *r = row_of(kind);
	if (w == WIRE_RESPONSES) {
		fail_responses(r, message, head, to);
		return;
	}
	auto_json json_t *v = w == WIRE_MESSAGES ? error_messages(r, message, request_id)
						 : error_openai(r, message, NULL);
	write_json(to, w == WIRE_MESSAGES ? "error" : NULL, v);
}

void wire_stream_ping(enum provider_wire w, struct buf *to)
{
	/* Only messages has an event for it. A comment with nothing in it is no event for anybody, whatever `id` was sent before. */
	(void)buf_str(to, w == WIRE_MESSAGES ? "event: ping\ndata: {\"type\":\"ping\"}\n\n" : ":\n\n");
}

enum wire_fault wire_fault_of(const struct err *e)
{
	static const enum wire_fault of[ERR_MAX_] = {
		[ERR_BAD_REQUEST] = WIRE_BAD_REQUEST,
		[ERR_UNAUTHORIZED] = WIRE_AUTH,
		[ERR_PAYMENT] = WIRE_GATE,
		[ERR_FORBIDDEN] = WIRE_FORBIDDEN,
		[ERR_NOT_FOUND] = WIRE_NOT_FOUND,
		[ERR_METHOD] = WIRE_METHOD,
		[ERR_CONFLICT] = WIRE_CONFLICT,
		[ERR_TOO_LARGE] = WIRE_TOO_LARGE,
		[ERR_MEDIA] = WIRE_BAD_REQUEST,
		[ERR_RATE] = WIRE_RATE,
		[ERR_UPSTREAM] = WIRE_UPSTREAM,
		[ERR_UNAVAILABLE] = WIRE_OVERLOADED,
		[ERR_TIMEOUT] = WIRE_TIMEOUT,
	};
	static const struct {
		const char *reason;
		enum wire_fault kind;
	} by_reason[] = { { "model_not_found", WIRE_UNKNOWN_MODEL },
		{ "idempotency_key_reused", WIRE_REUSED }, { "answer_not_kept", WIRE_NOT_KEPT } };
	for (size_t i = 0; e->reason != NULL && i < sizeof by_reason / sizeof by_reason[0]; i++)
		if (strcmp(e->reason, by_reason[i].reason) == 0)
			return by_reason[i].kind;
	enum wire_fault f = e->code > ERR_NONE && e->code < ERR_MAX_ ? of[e->code] : WIRE_FAULT_NONE;
	return f == WIRE_FAULT_NONE ? WIRE_INTERNAL : f;
}

/* Words in codes, types and messages, the more telling first. The messages are those of servers that have one code for all. */
static const struct fault_word {
	const char *part;
	enum wire_fault kind;
	bool in_message;
} words[] = {
	{ "context_length", WIRE_CONTEXT, false },
	{ "context_window", WIRE_CONTEXT, false },
	{ "string_above_max_length", WIRE_CONTEXT, false },
	{ "maximum context length", WIRE_CONTEXT, true },
	{ "prompt is too long", WIRE_CONTEXT, true },
	{ "exceed context limit", WIRE_CONTEXT, true },
	{ "input is too long", WIRE_CONTEXT, true },
	{ "content_policy", WIRE_POLICY, false },
	{ "content_filter", WIRE_POLICY, false },
	{ "image_content_policy", WIRE_POLICY, false },
	{ "content management policy", WIRE_POLICY, true },
	{ "insufficient_quota", WIRE_GATE, false },
	{ "billing", WIRE_GATE, false },
	{ "credit balance", WIRE_GATE, true },
	{ "rate_limit", WIRE_RATE, false },
	{ "overloaded", WIRE_OVERLOADED, false },
	{ "authentication", WIRE_AUTH, false },
	{ "invalid_api_key", WIRE_AUTH, false },
	{ "permission", WIRE_FORBIDDEN, false },
	{ "model_not_found", WIRE_UNKNOWN_MODEL, false },
	{ "not_found", WIRE_NOT_FOUND, false },
	{ "request_too_large", WIRE_TOO_LARGE, false },
	{ "timeout", WIRE_TIMEOUT, false },
	{ "invalid_request", WIRE_BAD_REQUEST, false },
	{ "invalid_prompt", WIRE_BAD_REQUEST, false },
};

static enum wire_fault by_status(int status)
{
	static const struct {
		int status;
		enum wire_fault kind;
	} all[] = {
		{ 400, WIRE_BAD_REQUEST },
		{ 401, WIRE_AUTH },
		{ 402, WIRE_GATE },
		{ 403, WIRE_FORBIDDEN },
		{ 404, WIRE_NOT_FOUND },
		{ 408, WIRE_TIMEOUT },
		{ 413, WIRE_TOO_LARGE },
		{ 422, WIRE_BAD_REQUEST },
		{ 429, WIRE_RATE },
		{ 503, WIRE_OVERLOADED },
		{ 504, WIRE_TIMEOUT },
		{ 529, WIRE_OVERLOADED },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].status == status)
			return all[i].kind;
	return WIRE_UPSTREAM;
}

/* status 0: within a stream, or in a body that came with 200. A 5xx stays the upstream's fault whatever it calls it. */
enum wire_fault wire_fault_named(int status, const char *code, const char *type, const char *message)
{
	enum wire_fault f = by_status(status);
	if (status >= 500)
		return f;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		const struct fault_word *w = &words[i];
		if (w->in_message ? strcasestr(message, w->part) != NULL
				  : strstr(code, w->part) != NULL || strstr(type, w->part) != NULL)
			/* A type is the coarse word: it does not overrule a status that says more. */
			return w->kind == WIRE_BAD_REQUEST && status >= 400 ? f : w->kind;
	}
	return f;
}

static const char *text_of(const json_t *o, const char *key, struct mem *m)
{
	const json_t *v = json_object_get(o, key);
	if (json_is_integer(v))
		return mem_fmt(m, "%lld", (long long)json_integer_value(v));
	return json_is_string(v) ? json_string_value(v) : "";
}

/* The name of a member as vendors write it, such as `messages[0].content`: whole, or not at all. */
static void name_of(const char *s, char *to, size_t size)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-[]/";
	wire_copy(to, size, str_of(strlen(s) < size && str_only(s, plain) ? s : ""));
}

void wire_upstream_said(int status, const char *body, size_t n, struct wire_said *out)
{
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	auto_json json_t *v = n == 0 ? NULL : wire_parse(body, n, &e);
	const json_t *o = json_is_array(v) ? json_array_get(v, 0) : v; /* some servers send a list of one */
	const json_t *inner = json_object_get(o, "error");
	if (json_is_object(inner))
		o = inner;
	const char *code = text_of(o, "code", m), *type = text_of(o, "type", m);
	const char *message = text_of(o, "message", m);
	if (message[0] == 0)
		message = json_is_string(inner) ? json_string_value(inner) : text_of(o, "detail", m);
	*out = (struct wire_said){ .kind = wire_fault_named(status, code, type, message) };
	wire_copy(out->code, sizeof out->code, str_of(code[0] != 0 ? code : type));
	wire_copy(out->message, sizeof out->message, str_of(message));
	name_of(text_of(o, "param", m), out->param, sizeof out->param);
	out->quota = out->kind == WIRE_GATE;
}
