#include "model/span.h"

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
	random_bytes(bytes, digits / 2);
	hex_encode(bytes, digits / 2, out);
}

/* ---- a call */

static void put(json_t *o, const char *key, const char *value)
{
	if (value != NULL && value[0] != 0)
		js_set(o, key, js_text(value, strlen(value)));
}

static void put_int(json_t *o, const char *key, long long value)
{
	js_set(o, key, json_integer(value));
}

static json_t *attempt_event(
    const struct call_attempt *a, int number, const struct call_attempt *before, int64_t to_wall)
{
	json_t *attrs = json_object();
	put_int(attrs, "gatehouse.attempt", number);
	put(attrs, "gatehouse.provider", a->provider);
	put(attrs, "gatehouse.model", a->address);
	put(attrs, "gatehouse.key", a->key);
	if (a->status != 0)
		put_int(attrs, "http.response.status_code", a->status);
	put(attrs, "error.type", a->reason);
	put_int(attrs, "gatehouse.duration_ms", (a->ended_us - a->began_us) / 1000);
	/* A failover is an attempt at somebody else. */
	bool other = before != NULL && strcmp(before->address, a->address) != 0;
	json_int_t at_us = a->began_us + to_wall;
	return js_pack("{s:s,s:I,s:o}", "name", other ? "gatehouse.failover" : "gatehouse.attempt", "atUs",
	    at_us, "attributes", attrs);
}

static json_t *events_of(const struct call_record *r, int64_t to_wall)
{
	json_t *events = json_array();
	int n = r->n_attempts < RECORD_ATTEMPTS_MAX ? r->n_attempts : RECORD_ATTEMPTS_MAX;
	for (int i = 0; i < n; i++)
		js_push(events,
		    attempt_event(&r->attempts[i], i + 1, i == 0 ? NULL : &r->attempts[i - 1], to_wall));
	return events;
}

static void usage(json_t *a, const struct call_record *r)
{
	const struct tokens *t = &r->tokens;
	put_int(a, "gen_ai.usage.input_tokens", t->input + t->cached + t->cache_write);
	put_int(a, "gen_ai.usage.output_tokens", t->output + t->reasoning);
	if (t->cached > 0)
		put_int(a, "gen_ai.usage.cache_read.input_tokens", t->cached);
	if (t->cache_write > 0)
		put_int(a, "gen_ai.usage.cache_creation.input_tokens", t->cache_write);
	if (t->reasoning > 0)
		put_int(a, "gen_ai.usage.reasoning.output_tokens", t->reasoning);
	if (r->estimated)
		js_set(a, "gatehouse.usage.estimated", json_true());
}

static void answered(json_t *a, const struct call_record *r)
{
	if (r->answered == NULL)
		return;
	put(a, "gen_ai.response.model", r->response_model[0] != 0 ? r->response_model : r->answered->model);
	put(a, "gen_ai.response.id", r->response_id);
	put(a, "gatehouse.provider", r->answered->provider);
	put(a, "gatehouse.model", r->answered->address);
	if (r->finish != WIRE_UNFINISHED)
		js_set(a, "gen_ai.response.finish_reasons", js_pack("[s]", wire_finish_name(r->finish)));
	if (r->stream && r->first_us > 0)
		js_set(a, "gen_ai.response.time_to_first_chunk",
		    json_real((double)(r->first_us - r->began_us) / 1e6));
}

static json_t *attributes(const struct call_record *r)
{
	json_t *a = json_object();
	put(a, SPAN_ORG, r->org);
	put(a, "gatehouse.user", r->user);
	put(a, "gatehouse.call", r->id);
	put(a, "gatehouse.request", r->request_id);
	put(a, "gatehouse.session", r->session);
	put(a, "gen_ai.conversation.id", r->session);
	put(a, "gen_ai.operation.name", "chat");
	if (r->n_attempts > 0) /* the row's name, which an operator gives as the conventions name vendors */
		put(a, "gen_ai.provider.name",
		    r->answered != NULL ? r->answered->provider : r->attempts[0].provider);
	put(a, "gen_ai.request.model", r->asked);
	js_set(a, "gen_ai.request.stream", json_boolean(r->stream));
	if (r->max_out > 0)
		put_int(a, "gen_ai.request.max_tokens", r->max_out);
	put(a, "gatehouse.wire", provider_wire_name(r->wire));
	put_int(a, "gatehouse.attempts", r->n_attempts);
	put_int(a, "gatehouse.failovers", r->n_failovers);
	put_int(a, "http.response.status_code", r->status);
	put(a, "error.type", r->error);
	put(a, "gatehouse.markup", r->markup);
	if (r->client_left)
		js_set(a, "gatehouse.client_left", json_true());
	usage(a, r);
	answered(a, r);
	return a;
}

json_t *span_of_call(const struct call_record *r, int64_t wall_us, int64_t mono_us)
{
	char trace[SPAN_TRACE_HEX], parent[SPAN_HEX] = "", id[SPAN_HEX];
	int64_t to_wall = wall_us - mono_us;
	json_int_t start_us = r->began_us + to_wall, end_us = r->ended_us + to_wall;
	if (!span_traceparent(r->traceparent, trace, parent)) {
		parent[0] = 0;
		if (r->session != NULL)
			span_trace_of_session(r->org, r->session, trace);
		else
			random_hex(trace, SPAN_TRACE_HEX - 1);
	}
	random_hex(id, SPAN_HEX - 1);
	auto_buf struct buf name = BUF(MODEL_ADDRESS_BYTES + 16);
	(void)buf_fmt(&name, "chat %s", r->answered != NULL ? r->answered->address : r->asked);
	json_t *s = js_pack("{s:s,s:s,s:o,s:I,s:I,s:o,s:o}", "trace", trace, "span", id, "name",
	    js_text(buf_c(&name), name.n), "start_us", start_us, "end_us", end_us, "attrs", attributes(r),
	    "events", events_of(r, to_wall));
	put(s, "parent", parent);
	put(s, "error", r->error);
	put(s, "session", r->session);
	put(s, "user", r->user);
	return s;
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
	put(o, "parentSpanId", js_str(span, "parent"));
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
