/* What is told of model calls (RUN-4, RUN-7, RUN-8, MOD-4): spans, to a collector and into a real database, and counters. */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../origin.h"
#include "../pgtest.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/conf.h"
#include "io/file.h"
#include "io/http.h"
#include "model/observe.h"
#include "model/span.h"
#include "model/trace.h"
#include "session/event.h"

static struct pgtest *server;
static struct pg_pool *pool;
static struct origin *collector;
static struct mem *mem; /* of the test */
static char dir[64], conf_file[80], key_file[80];

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

/* A call of two attempts at two providers. */
static struct call_record record(const char *org)
{
	struct call_record r = { .id = "call_1",
		.org = org,
		.user = "ada",
		.request_id = "req_1",
		.traceparent = "00-" TRACE "-" PARENT "-01",
		.wire = WIRE_CHAT,
		.asked = "fast",
		.stream = true,
		.max_out = 100,
		.n_attempts = 2,
		.n_failovers = 1,
		.response_id = "chatcmpl-1",
		.response_model = "gpt-5-2026",
		.finish = WIRE_STOP,
		.tokens = { .input = 10, .cached = 5, .cache_write = 2, .output = 30, .reasoning = 4 },
		.status = 200,
		.began_us = 1000000,
		.first_us = 1250000,
		.ended_us = 1500000 };
	r.attempts[0] = (struct call_attempt){ .provider = "one",
		.model = "m",
		.address = "one/m",
		.key = "mky_1",
		.status = 503,
		.reason = "overloaded",
		.began_us = 1000000,
		.ended_us = 1100000 };
	r.attempts[1] = (struct call_attempt){ .provider = "two",
		.model = "m2",
		.address = "two/m2",
		.key = "",
		.status = 200,
		.began_us = 1100000,
		.ended_us = 1500000,
		.first_us = 1250000 };
	return r;
}

static struct observe *begin_with(const char *lines)
{
	struct err e = { 0 };
	assert_int_equal(file_write(conf_file, lines, strlen(lines), 0600, &e), 0);
	struct conf *conf = conf_load(conf_file, &e);
	if (conf == NULL)
		fail_msg("%s", e.msg);
	mem_own(mem, conf, (void (*)(void *))conf_free);
	struct observe *o = observe_start(conf, pool, &e);
	if (o == NULL)
		fail_msg("%s", e.msg);
	return o;
}

static void call(struct observe *o, struct call_record *r)
{
	r->answered = r->n_attempts == 2 ? &r->attempts[1] : NULL;
	observe_call(o, r);
}

/* ---- spans */

static json_t *span_tree(const struct call_record *r, int64_t wall_us, int64_t mono_us)
{
	struct err e = { 0 };
	auto_buf struct buf b = BUF(1 << 20);
	span_of_call(&b, r, wall_us, mono_us);
	json_t *span = js_parse(b.p, b.n, &e);
	assert_non_null(span);
	return span;
}

static void a_call_is_a_span_by_the_conventions(void **s) /* AGT-6, RUN-4 */
{
	(void)s;
	struct call_record r = record("acme");
	r.answered = &r.attempts[1];
	auto_json json_t *span = span_tree(&r, 1796040000000000, 2000000);
	assert_string_equal(js_str(span, "trace"), TRACE);
	assert_string_equal(js_str(span, "parent"), PARENT);
	assert_string_equal(js_str(span, "name"), "chat two/m2");
	assert_int_equal(js_int(span, "start_us", 0), 1796039999000000);
	assert_int_equal(js_int(span, "end_us", 0), 1796039999500000);
	const json_t *a = js_get(span, "attrs");
	static const char *const texts[][2] = { { "gatehouse.org", "acme" }, { "gatehouse.user", "ada" },
		{ "gen_ai.operation.name", "chat" }, { "gen_ai.provider.name", "two" },
		{ "gen_ai.request.model", "fast" }, { "gen_ai.response.model", "gpt-5-2026" },
		{ "gen_ai.response.id", "chatcmpl-1" }, { "gatehouse.wire", "openai-chat" } };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_string_equal(js_str_or(a, texts[i][0], ""), texts[i][1]);
	assert_int_equal(js_int(a, "gen_ai.usage.input_tokens", 0), 17);
	assert_int_equal(js_int(a, "gen_ai.usage.output_tokens", 0), 34);
	assert_int_equal(js_int(a, "gen_ai.usage.cache_read.input_tokens", 0), 5);
	assert_int_equal(js_int(a, "gen_ai.usage.reasoning.output_tokens", 0), 4);
	assert_string_equal(
	    json_string_value(json_array_get(js_get(a, "gen_ai.response.finish_reasons"), 0)), "stop");
	const json_t *events = js_get(span, "events"), *second = json_array_get(events, 1);
	assert_int_equal(json_array_size(events), 2);
	assert_string_equal(js_str(json_array_get(events, 0), "name"), "gatehouse.attempt");
	assert_string_equal(
	    js_str(js_get(json_array_get(events, 0), "attributes"), "error.type"), "overloaded");
	assert_string_equal(js_str(second, "name"), "gatehouse.failover");
}

static void a_traceparent_counts_only_when_it_is_one(void **s)
{
	(void)s;
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{ "00-" TRACE "-" PARENT "-01", true },
		{ "00-" TRACE "-" PARENT "-00", true },
		{ "01-" TRACE "-" PARENT "-01-more", true },
		{ "00-" TRACE "-" PARENT "-01-more", false },
		{ "ff-" TRACE "-" PARENT "-01", false },
		{ "00-00000000000000000000000000000000-" PARENT "-01", false },
		{ "00-" TRACE "-0000000000000000-01", false },
		{ "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", false },
		{ "00-" TRACE "-" PARENT, false },
		{ "", false },
		{ NULL, false },
	};
	char trace[SPAN_TRACE_HEX], parent[SPAN_HEX];
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (span_traceparent(rows[i].text, trace, parent) != rows[i].ok)
			fail_msg("%s", rows[i].text);
}

static void all_calls_of_a_run_are_one_trace(void **s) /* RUN-7 */
{
	(void)s;
	struct call_record a = record("acme"), b = record("acme"), c = record("other");
	a.traceparent = b.traceparent = c.traceparent = NULL;
	a.session = b.session = c.session = "ses_1";
	auto_json json_t *one = span_tree(&a, 0, 0), *two = span_tree(&b, 0, 0), *three = span_tree(&c, 0, 0);
	assert_string_equal(js_str(one, "trace"), js_str(two, "trace"));
	assert_string_not_equal(js_str(one, "trace"), js_str(three, "trace"));
	assert_string_not_equal(js_str(one, "span"), js_str(two, "span"));
	a.session = b.session = NULL;
	auto_json json_t *four = span_tree(&a, 0, 0), *five = span_tree(&b, 0, 0);
	assert_string_not_equal(js_str(four, "trace"), js_str(five, "trace"));
}

/* ---- the collector */

static const char *seen(const char *what)
{
	int64_t end = clock_ms() + PATIENCE_MS;
	for (;;) {
		auto_buf struct buf b = BUF(8 << 20);
		origin_seen(collector, &b);
		const char *at = b.n > 0 ? memmem(b.p, b.n, what, strlen(what)) : NULL;
		if (at != NULL)
			return mem_strn(mem, b.p, b.n);
		if (clock_ms() > end)
			fail_msg("the collector was not told: %s", what);
		(void)usleep(5000);
	}
}

static const char *collector_conf(const char *path)
{
	return mem_fmt(mem, "TRACE_OTLP_URL=http://127.0.0.1:%d%s\nTRACE_OTLP_KEY_FILE=%s\n",
	    origin_port(collector), path, key_file);
}

static void a_collector_is_told_in_otlp_and_each_span_names_its_org(void **s) /* RUN-4, RUN-8 */
{
	(void)s;
	origin_forget(collector);
	struct observe *o = begin_with(collector_conf("/v1/traces"));
	struct call_record r = record("acme");
	r.error = "timeout";
	call(o, &r);
	const char *text = seen("]}]}]}");
	assert_non_null(strcasestr(text, "authorization: bearer the-collectors-key\r\n"));
	assert_non_null(strstr(text, "POST /v1/traces "));
	const char *body = strstr(text, "\r\n\r\n") + 4;
	struct err e = { 0 };
	const json_t *all = mem_json(mem, js_parse(body, strlen(body), &e));
	assert_non_null(all);
	const json_t *resource = json_array_get(js_get(all, "resourceSpans"), 0),
		     *scope = json_array_get(js_get(resource, "scopeSpans"), 0),
		     *span = json_array_get(js_get(scope, "spans"), 0);
	assert_string_equal(js_str(span, "traceId"), TRACE);
	assert_string_equal(js_str(span, "parentSpanId"), PARENT);
	assert_int_equal(strlen(js_str(span, "spanId")), 16);
	assert_int_equal(js_int(span, "kind", 0), 3);
	assert_true(str_ends(js_str(span, "startTimeUnixNano"), "000"));
	assert_int_equal(strlen(js_str(span, "startTimeUnixNano")), 19);
	assert_int_equal(js_int(js_get(span, "status"), "code", 0), 2);
	assert_string_equal(js_str(js_get(span, "status"), "message"), "timeout");
	bool named = false, counted = false;
	size_t i;
	json_t *a;
	json_array_foreach(js_get(span, "attributes"), i, a) {
		named |= strcmp(js_str(a, "key"), "gatehouse.org") == 0 &&
		    strcmp(js_str(js_get(a, "value"), "stringValue"), "acme") == 0;
		counted |= strcmp(js_str(a, "key"), "gen_ai.usage.input_tokens") == 0 &&
		    strcmp(js_str(js_get(a, "value"), "intValue"), "17") == 0;
	}
	assert_true(named && counted);
	observe_stop(o, 1000);
}

static long long metric(struct observe *o, const char *line)
{
	auto_buf struct buf b = BUF(1 << 16);
	observe_metrics(o, &b);
	const char *start = line[0] == '{' ? line : mem_fmt(mem, "\n%s", line),
		   *at = strstr(buf_c(&b), start);
	return at == NULL ? -1 : atoll(at + strlen(start));
}

static void a_collector_that_hangs_holds_up_no_call(void **s) /* RUN-4 */
{
	(void)s;
	struct observe *o = begin_with(mem_fmt(mem, "%sTRACE_KEEP_HOURS=0\n", collector_conf("/silent")));
	struct call_record r = record("acme");
	int64_t begun = clock_ms();
	for (int i = 0; i < 2 * OBSERVE_QUEUE; i++)
		call(o, &r);
	assert_true(clock_ms() - begun < PATIENCE_MS); /* one request to it takes five seconds */
	assert_true(metric(o, "{to=\"collector\",outcome=\"dropped\"} ") >= OBSERVE_QUEUE - OBSERVE_BATCH);
	assert_int_equal(metric(o, "{to=\"collector\",outcome=\"done\"} "), 0);
	assert_int_equal(
	    metric(o, "gatehouse_model_calls_total{provider=\"two\",outcome=\"ok\"} "), 2 * OBSERVE_QUEUE);
	observe_stop(o, 0);
}

/* ---- PostgreSQL */

static json_t *trace(const char *org, const char *id)
{
	struct err e = { 0 };
	int64_t end = clock_ms() + PATIENCE_MS;
	for (;;) {
		auto_pg struct pg *db = pg_take(pool, 60000, &e);
		json_t *v = db == NULL ? NULL : trace_get(db, org, id, &e);
		if (v != NULL)
			return mem_json(mem, v);
		if (clock_ms() > end)
			fail_msg("%s", e.msg);
		err_clear(&e);
		(void)usleep(5000);
	}
}

static json_t *traces(const char *org, const char *before, int limit)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	json_t *rows = trace_list(db, org, before, limit, NULL, &e);
	assert_non_null(rows);
	return mem_json(mem, rows);
}

static void spans_are_read_by_the_org_they_name_and_summed_up_once(void **s) /* RUN-7, RUN-8 */
{
	(void)s;
	pgtest_sql(server, "TRUNCATE spans, traces");
	struct observe *o = begin_with("");
	struct call_record a = record("acme"), b = record("acme"), c = record("other");
	b.error = "overloaded";
	call(o, &a);
	call(o, &b);
	call(o, &c); /* the same trace by its id, and another org's */
	json_t *bare = js_pack("{s:s,s:s,s:s,s:I,s:I,s:{s:s}}", "trace", TRACE, "span", "1111111111111111",
	    "name", "bare", "start_us", (json_int_t)1796040000000000, "end_us", (json_int_t)1796040000000001,
	    "attrs", "x", "y");
	observe_span(o, json_incref(bare));
	observe_span(o, bare); /* told twice: counted once */
	observe_stop(o, 5000);

	const json_t *got = trace("acme", TRACE);
	assert_int_equal(json_array_size(js_get(got, "spans")), 2);
	assert_string_equal(
	    js_str(js_get(json_array_get(js_get(got, "spans"), 0), "attributes"), "gatehouse.org"), "acme");
	assert_int_equal(json_array_size(js_get(trace("other", TRACE), "spans")), 1);
	got = trace("admin", TRACE);
	assert_int_equal(json_array_size(js_get(got, "spans")), 1);
	assert_string_equal(js_str(json_array_get(js_get(got, "spans"), 0), "name"), "bare");

	const json_t *row = json_array_get(traces("acme", "", 10), 0);
	assert_int_equal(js_int(row, "spans", 0), 2);
	assert_int_equal(js_int(row, "errors", 0), 1);
	assert_int_equal(js_int(row, "inputTokens", 0), 34);
	assert_int_equal(js_int(row, "outputTokens", 0), 68);
	assert_int_equal(js_int(json_array_get(traces("admin", "", 10), 0), "spans", 0), 1);
	assert_int_equal(json_array_size(traces("nobody", "", 10)), 0);
}

static void a_span_without_an_org_is_counted(void **s) /* RUN-8: it is a fault of ours */
{
	(void)s;
	struct observe *o = begin_with("TRACE_KEEP_HOURS=0\n");
	struct call_record r = record("acme");
	call(o, &r);
	assert_int_equal(metric(o, "gatehouse_spans_without_org_total "), 0);
	observe_span(o, js_pack("{s:s,s:{}}", "name", "x", "attrs"));
	assert_int_equal(metric(o, "gatehouse_spans_without_org_total "), 1);
	observe_stop(o, 1000);
}

static void pages_of_traces_have_no_gap_and_no_repeat(void **s)
{
	(void)s;
	pgtest_sql(server, "TRUNCATE spans, traces");
	struct observe *o = begin_with("");
	for (int i = 0; i < 7; i++) {
		struct call_record r = record("acme");
		r.traceparent = NULL;
		r.began_us -= 1000 * (i / 2); /* some at the same moment */
		call(o, &r);
	}
	observe_stop(o, 5000);
	auto_json json_t *ids = json_object();
	const char *before = "";
	int n = 0;
	for (int page = 0; page < 4; page++) {
		const json_t *rows = traces("acme", before, 2);
		size_t i;
		json_t *row;
		json_array_foreach(rows, i, row) {
			js_set(ids, js_str(row, "id"), json_true());
			before = js_str(row, "_key");
			n++;
		}
	}
	assert_int_equal(n, 7);
	assert_int_equal(json_object_size(ids), 7);
}

static void what_comes_while_postgresql_is_away_is_stored_later(void **s)
{
	(void)s;
	pgtest_sql(server, "TRUNCATE spans, traces");
	struct observe *o = begin_with("");
	pgtest_down(server);
	struct call_record r = record("acme");
	call(o, &r);
	pgtest_up(server);
	assert_int_equal(json_array_size(js_get(trace("acme", TRACE), "spans")), 1);
	observe_stop(o, 5000);
}

static void old_spans_go(void **s) /* RUN-7 */
{
	(void)s;
	pgtest_sql(server,
	    "TRUNCATE spans, traces;"
	    "INSERT INTO spans (org, trace_id, span_id, name, started_at, duration_us, attributes) SELECT "
	    "'acme', md5(i::text), "
	    "'1111111111111111', 'x', now() - i * interval '1 hour', 1, '{}' FROM generate_series(1, 100) i;"
	    "INSERT INTO traces (org, trace_id, name, started_at, ended_at, spans, errors, input_tokens, "
	    "output_tokens, user_name) "
	    "SELECT org, trace_id, name, started_at, started_at, 1, 0, 0, 0, '' FROM spans");
	struct observe *o = begin_with("TRACE_KEEP_HOURS=51\n");
	int64_t end = clock_ms() + PATIENCE_MS;
	while (json_array_size(traces("acme", "", 200)) != 50 && clock_ms() < end)
		(void)usleep(5000);
	assert_int_equal(json_array_size(traces("acme", "", 200)), 50);
	observe_stop(o, 1000);
}

static void a_run_is_told_of_a_call_that_needed_more_than_one_attempt(void **s) /* MOD-4 */
{
	(void)s;
	struct err e = { 0 };
	char session[ID_MAX];
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(session_open(db, "acme", "coding", "A run", "ada", NULL, session, &e), 0);
	struct observe *o = begin_with("TRACE_KEEP_HOURS=0\n");
	struct call_record once = record("acme"), twice = record("acme");
	once.session = twice.session = session;
	once.n_attempts = 1;
	once.n_failovers = 0;
	call(o, &once);
	call(o, &twice);
	observe_stop(o, 5000);
	auto_json json_t *lines = session_read(db, "acme", session, 0, 10, &e);
	const json_t *last = json_array_get(lines, json_array_size(lines) - 1);
	int told = 0;
	size_t i;
	json_t *line;
	json_array_foreach(lines, i, line)
		told += strcmp(js_str_or(line, "step", ""), "model call") == 0;
	assert_int_equal(told, 1);
	assert_int_equal(js_int(last, "attempts", 0), 2);
	assert_int_equal(js_int(last, "failovers", 0), 1);
	assert_string_equal(js_str(last, "reason"), "overloaded");
}

/* ---- counters */

static void labels_are_bounded_whatever_providers_are_called(void **s) /* RUN-3 */
{
	(void)s;
	struct observe *o = begin_with("TRACE_KEEP_HOURS=0\n");
	for (int i = 0; i < 3 * OBSERVE_PROVIDERS; i++) {
		char name[24];
		struct call_record r = record("acme");
		(void)snprintf(name, sizeof name, "provider-%d", i);
		r.attempts[0].provider = r.attempts[1].provider = name;
		call(o, &r);
	}
	assert_int_equal(
	    metric(o, "gatehouse_model_calls_total{provider=\"provider-0\",outcome=\"ok\"} "), 1);
	assert_int_equal(metric(o, "gatehouse_model_calls_total{provider=\"other\",outcome=\"ok\"} "),
	    2 * OBSERVE_PROVIDERS);
	assert_int_equal(
	    metric(o, "gatehouse_model_attempts_total{provider=\"other\",outcome=\"overloaded\"} "),
	    2 * OBSERVE_PROVIDERS);
	assert_int_equal(metric(o, "gatehouse_model_failovers_total "), 3 * OBSERVE_PROVIDERS);
	observe_stop(o, 1000);
}

static int up(void **s)
{
	(void)s;
	struct err e = { 0 };
	http_setup();
	server = pgtest_start();
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('acme'), ('other')");
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	collector = origin_start();
	(void)snprintf(dir, sizeof dir, "/tmp/ghobserve.XXXXXX");
	assert_non_null(mkdtemp(dir));
	(void)snprintf(conf_file, sizeof conf_file, "%s/conf", dir);
	(void)snprintf(key_file, sizeof key_file, "%s/key", dir);
	return file_write(key_file, "the-collectors-key\n", 19, 0600, &e);
}

static int down(void **s)
{
	(void)s;
	pg_pool_free(pool);
	origin_end(collector);
	pgtest_end(server);
	(void)unlink(conf_file);
	(void)unlink(key_file);
	return rmdir(dir);
}

static int begin(void **s)
{
	(void)s;
	mem = mem_new();
	return 0;
}

static int end(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_call_is_a_span_by_the_conventions),
		TEST(a_traceparent_counts_only_when_it_is_one),
		TEST(all_calls_of_a_run_are_one_trace),
		TEST(a_collector_is_told_in_otlp_and_each_span_names_its_org),
		TEST(a_collector_that_hangs_holds_up_no_call),
		TEST(spans_are_read_by_the_org_they_name_and_summed_up_once),
		TEST(a_span_without_an_org_is_counted),
		TEST(pages_of_traces_have_no_gap_and_no_repeat),
		TEST(what_comes_while_postgresql_is_away_is_stored_later),
		TEST(old_spans_go),
		TEST(a_run_is_told_of_a_call_that_needed_more_than_one_attempt),
		TEST(labels_are_bounded_whatever_providers_are_called),
	};
	return cmocka_run_group_tests(tests, up, down);
}
