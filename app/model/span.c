#include "model/span.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "model/provider.h"

/* ---- ids */

static bool hex_ok(const char *p, size_t n)
{
	bool some = false;
	for (size_t i = 0; i < n; i++) {
		if (strchr("0123456789abcdef", p[i]) == NULL || p[i] == 0)
			return false;
		some |= p[i] != '0';
	}
	return some;
}

/* "VV-32 hex-16 hex-FF"; a version of the future may say more behind that. */
bool span_traceparent(const char *text, char trace[SPAN_TRACE_HEX], char parent[SPAN_HEX])
{
	if (text == NULL || strlen(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
	    strncmp(text, "ff", 2) == 0 || !hex_ok(text + 3, 32) || !hex_ok(text + 36, 16))
		return false;
	if (strncmp(text, "00", 2) == 0 && text[55] != 0)
		return false;
	memcpy(trace, text + 3, 32);
	memcpy(parent, text + 36, 16);
	trace[32] = parent[16] = 0;
	return true;
}

void span_trace_of_session(const char *org, const char *session, char trace[SPAN_TRACE_HEX])
{
	char hex[SHA256_HEX];
	auto_buf struct buf b = BUF(256);
	(void)buf_fmt(&b, "trace %s %s", org, session);
	sha256_hex(buf_c(&b), b.n, hex);
	memcpy(trace, hex, SPAN_TRACE_HEX - 1);
	trace[SPAN_TRACE_HEX - 1] = 0;
}

static void random_hex(char *out, size_t digits)
{
	unsigned char bytes[16];
	random_some(bytes, digits / 2);
	hex_encode(bytes, digits / 2, out);
}

/* ---- a call, as text: a tree of it would take ten times as long, and as much room while it waits */

/* The next member of the object that b ends in. Keys are ours, and need no escapes. */
static void member(struct buf *b, const char *key)
{
	size_t n = strlen(key), comma = b->p[b->n - 1] != '{';
	char *at = buf_room(b, comma + n + 3);
	if (at == NULL)
		return;
	*at = ',';
	at[comma] = '"';
	memcpy(at + comma + 1, key, n);
	memcpy(at + comma + 1 + n, "\":", 2);
	buf_grew(b, comma + n + 3);
}

static void put(struct buf *b, const char *key, const char *value)
{
	if (value == NULL || value[0] == 0)
		return;
	member(b, key);
	js_quote(b, value, strlen(value));
}

static void put_int(struct buf *b, const char *key, long long value)
{
	member(b, key);
	(void)buf_num(b, value);
}

static void put_bool(struct buf *b, const char *key, bool value)
{
	member(b, key);
	(void)buf_str(b, value ? "true" : "false");
}

static void attempt_event(struct buf *b, const struct call_attempt *a, int number,
    const struct call_attempt *before, int64_t to_wall)
{
	/* A failover is an attempt at somebody else. */
	bool other = before != NULL && strcmp(before->address, a->address) != 0;
	(void)buf_str(b, number == 1 ? "{" : ",{");
	put(b, "name", other ? "gatehouse.failover" : "gatehouse.attempt");
	put_int(b, "atUs", a->began_us + to_wall);
	member(b, "attributes");
	(void)buf_chr(b, '{');
	put_int(b, "gatehouse.attempt", number);
	put(b, "gatehouse.provider", a->provider);
	put(b, "gatehouse.model", a->address);
	put(b, "gatehouse.key", a->key);
	if (a->status != 0)
		put_int(b, "http.response.status_code", a->status);
	put(b, "error.type", a->reason);
	put_int(b, "gatehouse.duration_ms", (a->ended_us - a->began_us) / 1000);
	(void)buf_str(b, "}}");
}

static void events_of(struct buf *b, const struct call_record *r, int64_t to_wall)
{
	int n = r->n_attempts < RECORD_ATTEMPTS_MAX ? r->n_attempts : RECORD_ATTEMPTS_MAX;
	(void)buf_chr(b, '[');
	for (int i = 0; i < n; i++)
		attempt_event(b, &r->attempts[i], i + 1, i == 0 ? NULL : &r->attempts[i - 1], to_wall);
	(void)buf_chr(b, ']');
}

static void usage(struct buf *b, const struct call_record *r)
{
	const struct tokens *t = &r->tokens;
	put_int(b, "gen_ai.usage.input_tokens", t->input + t->cached + t->cache_write);
	put_int(b, "gen_ai.usage.output_tokens", t->output + t->reasoning);
	if (t->cached > 0)
		put_int(b, "gen_ai.usage.cache_read.input_tokens", t->cached);
	if (t->cache_write > 0)
		put_int(b, "gen_ai.usage.cache_creation.input_tokens", t->cache_write);
	if (t->reasoning > 0)
		put_int(b, "gen_ai.usage.reasoning.output_tokens", t->reasoning);
	if (r->estimated)
		put_bool(b, "gatehouse.usage.estimated", true);
}

static void answered(struct buf *b, const struct call_record *r)
{
	if (r->answered == NULL)
		return;
	put(b, "gen_ai.response.model", r->response_model[0] != 0 ? r->response_model : r->answered->model);
	put(b, "gen_ai.response.id", r->response_id);
	put(b, "gatehouse.provider", r->answered->provider);
	put(b, "gatehouse.model", r->answered->address);
	if (r->finish != WIRE_UNFINISHED) {
		member(b, "gen_ai.response.finish_reasons");
		(void)buf_str(b, "[\"");
		(void)buf_str(b, wire_finish_name(r->finish));
		(void)buf_str(b, "\"]");
	}
	if (r->stream && r->first_us > 0) {
		member(b, "gen_ai.response.time_to_first_chunk");
		(void)buf_fmt(b, "%.6f", (double)(r->first_us - r->began_us) / 1e6);
	}
}

static void attributes(struct buf *b, const struct call_record *r)
{
	(void)buf_chr(b, '{');
	put(b, SPAN_ORG, r->org);
	put(b, "gatehouse.user", r->user);
	put(b, "gatehouse.call", r->id);
	put(b, "gatehouse.request", r->request_id);
	put(b, "gatehouse.session", r->session);
	put(b, "gen_ai.conversation.id", r->session);
	put(b, "gen_ai.operation.name", "chat");
	if (r->n_attempts > 0) /* the row's name, which an operator gives as the conventions name vendors */
		put(b, "gen_ai.provider.name",
		    r->answered != NULL ? r->answered->provider : r->attempts[0].provider);
	put(b, "gen_ai.request.model", r->asked);
	put_bool(b, "gen_ai.request.stream", r->stream);
	if (r->max_out > 0)
		put_int(b, "gen_ai.request.max_tokens", r->max_out);
	put(b, "gatehouse.wire", provider_wire_name(r->wire));
	put_int(b, "gatehouse.attempts", r->n_attempts);
	put_int(b, "gatehouse.failovers", r->n_failovers);
	put_int(b, "http.response.status_code", r->status);
	put(b, "error.type", r->error);
	put(b, "gatehouse.markup", r->markup);
	if (r->client_left)
		put_bool(b, "gatehouse.client_left", true);
	usage(b, r);
	answered(b, r);
	(void)buf_chr(b, '}');
}

void span_of_call(struct buf *b, const struct call_record *r, int64_t wall_us, int64_t mono_us)
{
	char trace[SPAN_TRACE_HEX], parent[SPAN_HEX] = "", id[SPAN_HEX], name[MODEL_ADDRESS_BYTES + 16];
	int64_t to_wall = wall_us - mono_us;
	if (!span_traceparent(r->traceparent, trace, parent)) {
		parent[0] = 0;
		if (r->session != NULL)
			span_trace_of_session(r->org, r->session, trace);
		else
			random_hex(trace, SPAN_TRACE_HEX - 1);
	}
	random_hex(id, SPAN_HEX - 1);
	str_put(name, sizeof name, "chat ", r->answered != NULL ? r->answered->address : r->asked, "");
	(void)buf_chr(b, '{');
	put(b, "trace", trace);
	put(b, "span", id);
	put(b, "parent", parent);
	put(b, "name", name);
	put_int(b, "start_us", r->began_us + to_wall);
	put_int(b, "end_us", r->ended_us + to_wall);
	put(b, "error", r->error);
	put(b, "session", r->session);
	put(b, "user", r->user);
	put(b, "org", r->org);
	member(b, "attrs");
	attributes(b, r);
	member(b, "events");
	events_of(b, r, to_wall);
	(void)buf_chr(b, '}');
}

const char *span_org(const json_t *span)
{
	const char *org = js_str(js_get(span, "attrs"), SPAN_ORG);
	return org != NULL && org[0] != 0 ? org : NULL;
}

/* ---- OTLP */

/* 64-bit numbers are strings in protobuf's JSON. */
static json_t *any_value(json_t *v)
{
	char digits[24];
	if (json_is_string(v))
		return js_pack("{s:O}", "stringValue", v);
	if (json_is_boolean(v))
		return js_pack("{s:O}", "boolValue", v);
	if (json_is_real(v))
		return js_pack("{s:O}", "doubleValue", v);
	if (json_is_array(v)) {
		json_t *values = json_array(), *one;
		size_t i;
		json_array_foreach(v, i, one)
			js_push(values, any_value(one));
		return js_pack("{s:{s:o}}", "arrayValue", "values", values);
	}
	(void)snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(v));
	return js_pack("{s:s}", "intValue", digits);
}

static json_t *key_values(json_t *attrs)
{
	json_t *out = json_array(), *v;
	const char *key;
	json_object_foreach(attrs, key, v)
		js_push(out, js_pack("{s:s,s:o}", "key", key, "value", any_value(v)));
	return out;
}

static void put_nanos(json_t *o, const char *key, long long us)
{
	char digits[32];
	(void)snprintf(digits, sizeof digits, "%lld000", us);
	js_set_str(o, key, digits);
}

static json_t *otlp_span(const json_t *span)
{
	json_t *events = json_array(), *event;
	const char *error = js_str(span, "error");
	size_t i;
	json_array_foreach(js_get(span, "events"), i, event) {
		json_t *e = js_pack("{s:s,s:o}", "name", js_str_or(event, "name", ""), "attributes",
		    key_values(js_get(event, "attributes")));
		put_nanos(e, "timeUnixNano", js_int(event, "atUs", 0));
		js_push(events, e);
	}
	/* Kind 3 is CLIENT; status 2 ERROR, 0 not set. */
	json_t *o = js_pack("{s:s,s:s,s:s,s:i,s:o,s:o,s:{s:i}}", "traceId", js_str_or(span, "trace", ""),
	    "spanId", js_str_or(span, "span", ""), "name", js_str_or(span, "name", ""), "kind", 3,
	    "attributes", key_values(js_get(span, "attrs")), "events", events, "status", "code",
	    error == NULL ? 0 : 2);
	if (js_str(span, "parent") != NULL)
		js_set_str(o, "parentSpanId", js_str(span, "parent"));
	if (error != NULL)
		js_set_str(js_get(o, "status"), "message", error);
	put_nanos(o, "startTimeUnixNano", js_int(span, "start_us", 0));
	put_nanos(o, "endTimeUnixNano", js_int(span, "end_us", 0));
	return o;
}

json_t *span_otlp(json_t *const *spans, size_t n)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		js_push(list, otlp_span(spans[i]));
	return js_pack("{s:[{s:{s:[{s:s,s:{s:s}}]},s:[{s:{s:s},s:o}]}]}", "resourceSpans", "resource",
	    "attributes", "key", "service.name", "value", "stringValue", "gatehouse", "scopeSpans", "scope",
	    "name", "gatehouse.model", "spans", list);
}
