/* What upstreams of the model gateway do wrong besides the scenarios of flow_failover, what clients do, and what both are told. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"
#include "io/http.h"
#include "judge.h"

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;

/* A provider of its own with these models, each falling back to spare/ok where `fallback`. */
static void provider(const char *name, const char *model, bool fallback)
{
	char rows[120];
	(void)snprintf(rows, sizeof rows, "%s%s", model, fallback ? ">spare/ok" : "");
	gw_provider(&st, fake, org.key, name, "openai-chat", 1, rows);
}

static void ask(const char *name, const char *model, bool stream, json_t *more, struct gw_answer *a)
{
	char address[120];
	(void)snprintf(address, sizeof address, "%s/%s", name, model);
	gw_chat(&st, org.key, address, stream, more, a);
}

/* Both ways of asking are saved by the fallback. */
static void rescued(const char *name, const char *model, int at_most)
{
	provider(name, model, true);
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer a;
		int before = fakemodel_attempts(fake, model);
		ask(name, model, stream == 1, NULL, &a);
		if (!gw_whole(&a) || strcmp(a.by, "spare/ok") != 0)
			fail_msg("%s, stream %d: %ld by %s: %s", model, stream, a.status, a.by, a.raw);
		assert_true(fakemodel_attempts(fake, model) - before <= at_most);
	}
}

/* Alone it is an error in the dialect, and nothing of what the upstream said. */
static void told(const char *name, const char *model, long status, const char *type, const char *hidden)
{
	provider(name, model, false);
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer a;
		ask(name, model, stream == 1, NULL, &a);
		if (a.status != status || strcmp(a.error, type) != 0)
			fail_msg("%s, stream %d: %ld %s", model, stream, a.status, a.raw);
		assert_false(a.done);
		assert_null(strstr(a.raw, hidden));
	}
}

static void x01_a_502_page_fails_over(void **s)
{
	(void)s;
	rescued("x01", "html-502", 3);
	told("x01b", "html-502@b", 502, "upstream_error", "<h1>");
}

static void x02_a_page_with_status_200_is_no_answer(void **s)
{
	(void)s;
	rescued("x02", "html-200", 3);
	told("x02b", "html-200@b", 502, "upstream_error", "<h1>");
	rescued("x02c", "empty", 3);
	rescued("x02e", "null", 3);
	provider("x02f", "only-head", true);
	auto_gw struct gw_answer a;
	ask("x02f", "only-head", true, NULL, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.by, "spare/ok");
}

static void x03_retry_after_may_be_a_date(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	provider("x03", "429-date", true);
	ask("x03", "429-date", false, NULL, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.by, "x03/429-date");
	/* Two seconds, of which the date has lost a part. */
	assert_true(fakemodel_when_ms(fake, "429-date", 1) - fakemodel_when_ms(fake, "429-date", 0) >= 900);
}

static void x04_to_x06_framing_of_every_kind_is_read(void **s)
{
	(void)s;
	static const char *const models[] = { "crlf", "comments", "bom" };
	gw_provider(&st, fake, org.key, "x04", "openai-chat", 1, "crlf comments bom split");
	for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
		auto_gw struct gw_answer a;
		ask("x04", models[i], true, NULL, &a);
		if (!gw_whole(&a))
			fail_msg("%s: %ld %s", models[i], a.status, a.raw);
	}
	auto_gw struct gw_answer a;
	ask("x04", "split", true, NULL, &a);
	assert_true(a.done);
	assert_non_null(strstr(a.text,
	    "\xe6\xb0\xb4\xf0\x9f\x8c\x8a"
	    "59"));
	assert_null(strstr(a.text, "\xef\xbf\xbd"));
}

static void two_calls(const struct gw_answer *a)
{
	assert_int_equal(a->status, 200);
	assert_true(a->done);
	assert_int_equal(a->n_calls, 2);
	assert_string_equal(a->calls[0].id, "call_a");
	assert_string_equal(a->calls[0].name, "read");
	assert_string_equal(a->calls[0].args, "{\"path\":\"a\"}");
	assert_string_equal(a->calls[1].id, "call_b");
	assert_string_equal(a->calls[1].args, "{\"path\":\"b\"}");
	assert_string_equal(a->finish, "tool_calls");
}

static void x07_and_x08_calls_are_kept_apart(void **s)
{
	(void)s;
	static const char *const models[] = { "tools", "tools-mixed", "tools-same" };
	gw_provider(&st, fake, org.key, "x07", "openai-chat", 1, "tools tools-mixed tools-same");
	for (int i = 0; i < 6; i++) {
		auto_gw struct gw_answer a;
		ask("x07", models[i / 2], i % 2 == 1, gw_tools(), &a);
		two_calls(&a);
	}
}

/* The first event may be an error: nothing was sent, so somebody else answers. Later it is told. */
static void x09_an_error_in_the_stream_fails_over_or_is_told(void **s)
{
	(void)s;
	auto_gw struct gw_answer first, later;
	provider("x09", "error-first", true);
	ask("x09", "error-first", true, NULL, &first);
	assert_true(gw_whole(&first));
	assert_string_equal(first.by, "spare/ok");
	provider("x09b", "error-event", true);
	ask("x09b", "error-event", true, NULL, &later);
	assert_int_equal(later.status, 200);
	assert_false(later.done);
	assert_string_not_equal(later.error, "");
}

static void x10_a_packed_answer_comes_plain(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	provider("x10", "gzip", false);
	ask("x10", "gzip", false, NULL, &a);
	assert_true(gw_whole(&a));
	assert_null(strcasestr(a.headers, "Content-Encoding"));
}

static bool within(int ms, int (*of)(struct fakemodel *), int want)
{
	for (int64_t end = clock_ms() + ms; clock_ms() < end; (void)poll(NULL, 0, 20))
		if (of(fake) == want)
			return true;
	return of(fake) == want;
}

static void x11_who_leaves_ends_the_upstream_within_a_second(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	provider("x11", "endless", false);
	int before = fakemodel_cut_off(fake);
	gw_send(&st, org.key, "/v1/chat/completions",
	    "{\"model\":\"x11/endless\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"go "
	    "on\"}]}",
	    0, NULL, 3000, &a);
	struct span left = span_begin();
	assert_true(within(PATIENCE_MS, fakemodel_cut_off, before + 1));
	print_message("  the upstream was closed %lld ms after its client had left\n",
	    (long long)(clock_ms() - left.began_ms));
	assert_true(span_ms(&left) < 1000);
	assert_int_equal(fakemodel_at_work(fake), 0);
}

static void x12_a_refused_key_gives_way_to_the_next_and_then_to_the_fallback(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	gw_provider(&st, fake, org.key, "x12", "openai-chat", 2, "401>spare/ok 401@b");
	ask("x12", "401", false, NULL, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.by, "spare/ok");
	assert_int_equal(fakemodel_attempts(fake, "401"), 2); /* one with each key */
	auto_buf struct buf one = BUF(65536), two = BUF(65536);
	fakemodel_request(fake, "401", 0, &one);
	fakemodel_request(fake, "401", 1, &two);
	const char *k1 = strstr(buf_c(&one), "Bearer sk-upstream-x12-"),
		   *k2 = strstr(buf_c(&two), "Bearer sk-upstream-x12-");
	assert_non_null(k1);
	assert_non_null(k2);
	assert_memory_not_equal(k1, k2, strlen("Bearer sk-upstream-x12-0"));
	/* MOD-3: all of them rest now, and who has nobody else is told until when. */
	auto_gw struct gw_answer alone;
	ask("x12", "401@b", false, NULL, &alone);
	assert_int_equal(alone.status, 503);
	assert_string_equal(alone.code, "overloaded");
	assert_true(alone.retry_after_s > 600 && alone.retry_after_s <= 900);
	assert_int_equal(fakemodel_attempts(fake, "401@b"), 0);
}

/* MOD-5, MOD-12 */
static void x13_raw_tool_markup_is_no_answer_where_tools_were_offered(void **s)
{
	(void)s;
	gw_provider(&st, fake, org.key, "x13", "openai-chat", 1,
	    "markup>spare/ok markup@b markup-late markup-code markup-cut>spare/ok");
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer saved, alone, prose, none;
		ask("x13", "markup", stream, gw_tools(), &saved);
		assert_true(gw_whole(&saved));
		assert_string_equal(saved.by, "spare/ok");
		ask("x13", "markup@b", stream, gw_tools(), &alone);
		assert_int_equal(alone.status, 502);
		assert_string_equal(alone.error, "upstream_error");
		assert_null(strstr(alone.raw, "<tool_call>"));
		ask("x13", "markup-code", stream, gw_tools(), &prose);
		assert_int_equal(prose.status, 200);
		assert_true(prose.done);
		assert_non_null(strstr(prose.text, "`<tool_call>`"));
		ask("x13", "markup", stream, NULL, &none);
		assert_true(none.done);
		assert_non_null(strstr(none.text, "<tool_call>"));
	}
	/* In the middle of a stream, and in two pieces: what may be its beginning was held back. */
	auto_gw struct gw_answer late;
	ask("x13", "markup-late", true, gw_tools(), &late);
	assert_int_equal(late.status, 200);
	assert_false(late.done);
	assert_string_not_equal(late.error, "");
	assert_non_null(strstr(late.text, "w19"));
	assert_null(strstr(late.raw, "<tool_"));
	/* Who goes silent within what is held back is left as one whose first token is late (MOD-4). */
	auto_gw struct gw_answer left;
	ask("x13", "markup-cut", true, gw_tools(), &left);
	assert_true(gw_whole(&left));
	assert_string_equal(left.by, "spare/ok");
	assert_int_equal(fakemodel_attempts(fake, "markup-cut"), 1);
	assert_true(left.took_ms < gw_ms(1700));
}

static void x14_a_body_that_is_cut_is_no_answer(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	provider("x14", "json-cut", true);
	ask("x14", "json-cut", false, NULL, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.by, "spare/ok");
	assert_true(fakemodel_attempts(fake, "json-cut") > 1); /* it was tried again first */
	provider("x14b", "cut@x14", false);
	auto_gw struct gw_answer b;
	ask("x14b", "cut@x14", false, NULL, &b);
	assert_int_equal(b.status, 502);
	assert_string_equal(b.error, "upstream_error");
}

static void a_redirect_is_not_followed(void **s)
{
	(void)s;
	rescued("redirect", "redirect", 1);
	told("redirect2", "redirect@b", 502, "upstream_error", "elsewhere");
}

static void nobody_there_is_an_upstream_error(void **s)
{
	(void)s;
	/* TLS where none is spoken, a port where nobody listens, a name that does not exist. */
	char tls[80];
	const char *const urls[][2] = { { "tls", tls }, { "closed", "http://127.0.0.1:9/v1" },
		{ "nameless", "http://models.invalid:9/v1" } };
	(void)snprintf(tls, sizeof tls, "https://127.0.0.1:%d/v1", fakemodel_port(fake));
	for (int i = 0; i < 3; i++) {
		auto_gw struct gw_answer a;
		auto_web struct web w = { 0 };
		web_json(&st, "POST", "/v1/models/providers", org.key,
		    js_pack("{s:s, s:s, s:s, s:[], s:[{s:s, s:[s], s:{s:i, s:i}}, {s:s, s:{s:i, s:i}}]}",
			"name", urls[i][0], "wire", "openai-chat", "baseUrl", urls[i][1], "keys", "models",
			"name", "saved", "fallbacks", "spare/ok", "prices", "input", 1, "output", 1, "name",
			"ok", "prices", "input", 1, "output", 1),
		    &w);
		assert_int_equal(w.status, 201);
		ask(urls[i][0], "ok", true, NULL, &a);
		if (a.status != 502 || strcmp(a.error, "upstream_error") != 0)
			fail_msg("%s: %ld %s", urls[i][0], a.status, a.raw);
		assert_null(strstr(a.raw, "127.0.0.1"));
		assert_null(strstr(a.raw, "invalid:9"));
		auto_gw struct gw_answer saved;
		ask(urls[i][0], "saved", true, NULL, &saved);
		assert_true(gw_whole(&saved));
	}
}

/* 10 MB of text in one event is passed on; the answer to it is not collected by anybody. */
static void a_line_of_ten_megabytes_passes(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	provider("big", "big-line", false);
	ask("big", "big-line", true, NULL, &a);
	assert_int_equal(a.status, 200);
	assert_true(a.done);
	assert_true(a.raw_n > 10 << 20);
}

static void a_body_of_thirty_megabytes_reaches_the_upstream(void **s)
{
	(void)s;
	enum { BYTES = 30 << 20 };
	static const char head[] = "{\"model\":\"spare/ok\",\"messages\":[{\"role\":\"user\",\"content\":\"",
			  tail[] = "\"}]}";
	char *body = xcalloc(1, BYTES + sizeof head + sizeof tail);
	size_t n = sizeof head - 1;
	memcpy(body, head, n);
	memset(body + n, 'x', BYTES);
	memcpy(body + n + BYTES, tail, sizeof tail);
	auto_gw struct gw_answer a = { 0 };
	gw_send(&st, org.key, "/v1/chat/completions", body, strlen(body), NULL, 0, &a);
	if (!gw_whole(&a))
		fail_msg("%ld %s", a.status, a.raw);
	free(body);
}

/* ---- what passes as it came */

static void collect(const char *model, bool usage, struct buf *out)
{
	char url[80], body[300];
	static const char *const headers[] = { "Content-Type: application/json", NULL };
	struct err e = { 0 };
	struct http_res res;
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/chat/completions", fakemodel_port(fake));
	(void)snprintf(body, sizeof body,
	    "{\"model\":\"%s\",\"stream\":true,\"stream_options\":{\"include_usage\":%s},\"messages\":[]}",
	    model, usage ? "true" : "false");
	const struct http_req q = { .method = "POST",
		.url = url,
		.headers = headers,
		.body = body,
		.body_n = strlen(body),
		.total_ms = 60000 };
	assert_int_equal(http_do(&q, &res, &e), 0);
	assert_int_equal(buf_add(out, res.body.p, res.body.n), 0);
	http_res_free(&res);
}

/* Frames reach the client as the bytes they were; usage is asked for always and told to who asked. */
static void frames_pass_byte_by_byte(void **s)
{
	(void)s;
	for (int usage = 0; usage < 2; usage++) {
		auto_buf struct buf want = BUF(1 << 20);
		auto_gw struct gw_answer a;
		collect("ok", usage, &want);
		ask("spare", "ok", true,
		    usage ? js_pack("{s:{s:b}}", "stream_options", "include_usage", 1) : NULL, &a);
		assert_int_equal(a.usage, usage);
		assert_int_equal(a.raw_n, want.n);
		assert_memory_equal(a.raw, want.p, want.n);
	}
	auto_buf struct buf sent = BUF(1 << 20);
	fakemodel_request(fake, "ok", fakemodel_attempts(fake, "ok") - 1, &sent);
	assert_non_null(strstr(buf_c(&sent), "\"include_usage\":true"));
}

/* MOD-7: nothing between the upstream and the client collects a stream. */
static void events_are_passed_on_as_they_come(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	enum { TOKEN_MS = 50 };
	fakemodel_times(fake, (struct fakemodel_times){ .token_ms = TOKEN_MS });
	ask("spare", "ok", true, NULL, &a);
	gw_times(fake);
	assert_true(gw_whole(&a));
	assert_true(a.ms >= FAKEMODEL_WORDS * TOKEN_MS);
	assert_true(
	    a.ms - a.first_ms > FAKEMODEL_WORDS * TOKEN_MS / 4); /* collected, it would come at the end */
}

/* MOD-1: what the gateway does not know is the provider's. */
static void unknown_fields_reach_the_upstream(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	auto_buf struct buf sent = BUF(1 << 20);
	ask("spare", "ok", false,
	    js_pack("{s:s, s:{s:i}, s:f}", "service_tier", "flex", "x_new", "deep", 1, "temperature", 0.25),
	    &a);
	assert_true(gw_whole(&a));
	fakemodel_request(fake, "ok", fakemodel_attempts(fake, "ok") - 1, &sent);
	assert_non_null(strstr(buf_c(&sent), "\"service_tier\":\"flex\""));
	assert_non_null(strstr(buf_c(&sent), "\"x_new\":{\"deep\":1}"));
	assert_non_null(strstr(buf_c(&sent), "\"temperature\":0.25"));
	assert_non_null(strstr(buf_c(&sent), "\"model\":\"ok\""));
	assert_null(strstr(buf_c(&sent), org.key));
}

/* MOD-11 */
static void every_answer_says_whose_it_is(void **s)
{
	(void)s;
	for (int stream = 0; stream < 2; stream++) {
		auto_gw struct gw_answer a;
		ask("spare", "ok", stream, NULL, &a);
		assert_true(str_starts(a.id, "call_"));
		assert_string_equal(a.by, "spare/ok");
		assert_int_equal(a.attempts, 1);
		assert_non_null(strstr(a.headers, "x-gatehouse-overhead-us: "));
	}
}

/* ---- refusals */

static void refusals_are_in_the_clients_dialect(void **s)
{
	(void)s;
	auto_gw struct gw_answer unknown, nobody, bad, form;
	gw_chat(&st, org.key, "spare/okk", false, NULL, &unknown);
	assert_int_equal(unknown.status, 404);
	assert_string_equal(unknown.code, "model_not_found");
	assert_non_null(strstr(unknown.message, "spare/ok"));
	assert_true(str_starts(unknown.id, "call_")); /* MOD-11 */
	assert_null(strstr(unknown.headers, "x-should-retry"));
	gw_chat(&st, "gk_wrong", "spare/ok", false, NULL, &nobody);
	assert_int_equal(nobody.status, 401);
	assert_string_equal(nobody.code, "invalid_api_key");
	gw_send(
	    &st, org.key, "/v1/chat/completions", "{\"model\":\"spare/ok\",\"messages\":[", 0, NULL, 0, &bad);
	assert_int_equal(bad.status, 400);
	assert_string_equal(bad.error, "invalid_request_error");
	gw_send(&st, org.key, "/v1/chat/completions", "{\"model\":\"spare/ok\",\"messages\":\"hello\"}", 0,
	    NULL, 0, &form);
	assert_int_equal(form.status, 400);
	assert_non_null(strstr(form.message, "messages"));
}

static void models_are_listed_for_both_vendors_clients(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	web_json(&st, "GET", "/v1/models", org.key, NULL, &w);
	assert_int_equal(w.status, 200);
	size_t i, found = 0;
	json_t *row;
	json_array_foreach(js_get(w.json, "data"), i, row)
		found += strcmp(js_str_or(row, "id", ""), "spare/ok") == 0 &&
		    strcmp(js_str_or(row, "object", ""), "model") == 0 &&
		    strcmp(js_str_or(row, "type", ""), "model") == 0;
	assert_int_equal(found, 1);
}

/* What the SDKs' models.retrieve asks: the slash of the name is encoded. */
static void a_model_is_shown_to_both_vendors_clients(void **s)
{
	(void)s;
	static const char *const paths[] = { "/v1/models/alone%2Fok@alone", "/v1/models/alone/ok@alone",
		"/v1/models/ok@alone" };
	static const char *const version[] = { "anthropic-version: 2023-06-01", NULL };
	gw_provider(&st, fake, org.key, "alone", "openai-chat", 1, "ok@alone");
	for (size_t i = 0; i < 3; i++) {
		auto_web struct web w = { 0 };
		web_json(&st, "GET", paths[i], org.key, NULL, &w);
		assert_int_equal(w.status, 200);
		assert_string_equal(js_str_or(w.json, "id", ""), "alone/ok@alone");
		assert_string_equal(js_str_or(w.json, "object", ""), "model");
		assert_string_equal(js_str_or(w.json, "type", ""), "model");
	}
	auto_web struct web ours = { 0 }, theirs = { 0 }, other = { 0 };
	web_json(&st, "GET", "/v1/models/spare%2Fokk", org.key, NULL, &ours);
	judge_refusal(&st, &ours, 404);
	assert_string_equal(web_error(&ours, "code"), "model_not_found");
	assert_non_null(strstr(web_error(&ours, "message"), "spare/ok"));
	struct web_req q = {
		.method = "GET", .path = "/v1/models/spare%2Fokk", .key = org.key, .headers = version
	};
	web_do(&st, &q, &theirs);
	judge_dialect(&st, &theirs, "/v1/messages", 404, "not_found_error", NULL);
	/* Who encodes more than the name reaches no other path. */
	web_json(&st, "GET", "/v1/models/providers%2Fspare", org.key, NULL, &other);
	judge_refusal(&st, &other, 400);
}

static int setup(void **s)
{
	(void)s;
	fake = gw_up(&st, 2, 0, NULL);
	stack_org(&st, &org);
	gw_provider(&st, fake, org.key, "spare", "openai-chat", 1, "ok");
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
		cmocka_unit_test(x01_a_502_page_fails_over),
		cmocka_unit_test(x02_a_page_with_status_200_is_no_answer),
		cmocka_unit_test(x03_retry_after_may_be_a_date),
		cmocka_unit_test(x04_to_x06_framing_of_every_kind_is_read),
		cmocka_unit_test(x07_and_x08_calls_are_kept_apart),
		cmocka_unit_test(x09_an_error_in_the_stream_fails_over_or_is_told),
		cmocka_unit_test(x10_a_packed_answer_comes_plain),
		cmocka_unit_test(x11_who_leaves_ends_the_upstream_within_a_second),
		cmocka_unit_test(x12_a_refused_key_gives_way_to_the_next_and_then_to_the_fallback),
		cmocka_unit_test(x13_raw_tool_markup_is_no_answer_where_tools_were_offered),
		cmocka_unit_test(x14_a_body_that_is_cut_is_no_answer),
		cmocka_unit_test(a_redirect_is_not_followed),
		cmocka_unit_test(nobody_there_is_an_upstream_error),
		cmocka_unit_test(a_line_of_ten_megabytes_passes),
		cmocka_unit_test(a_body_of_thirty_megabytes_reaches_the_upstream),
		cmocka_unit_test(frames_pass_byte_by_byte),
		cmocka_unit_test(events_are_passed_on_as_they_come),
		cmocka_unit_test(unknown_fields_reach_the_upstream),
		cmocka_unit_test(every_answer_says_whose_it_is),
		cmocka_unit_test(refusals_are_in_the_clients_dialect),
		cmocka_unit_test(models_are_listed_for_both_vendors_clients),
		cmocka_unit_test(a_model_is_shown_to_both_vendors_clients),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
