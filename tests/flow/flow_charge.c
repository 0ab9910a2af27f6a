/* What model calls cost: each charged once and for what was produced, whoever leaves, dies or asks twice (BIL-1, MOD-4, MOD-6). */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"
#include "io/http.h"

enum { WAIT_MS = 60000, TWINS = 6, CROWD = 64, AWAY_MS = 8000 };

static struct stack st;
static struct fakemodel *fake;

/* An org of its own with this many dollars and the provider `one`. */
static void rich(struct stack_org *org, const char *dollars, const char *models)
{
	stack_org(&st, org);
	if (dollars != NULL) {
		const char *const args[] = { "org", "credit", org->slug, dollars, "--key", "first", NULL };
		stack_cli(&st, args, NULL);
	}
	gw_provider(&st, fake, org->key, "one", "openai-chat", 1, models);
}

static long long number(const struct stack_org *org, const char *sql)
{
	char text[700];
	auto_buf struct buf out = BUF(4000);
	(void)snprintf(text, sizeof text, "%s'%s'", sql, org->slug);
	stack_sql(&st, text, &out);
	return strtoll(buf_c(&out), NULL, 10);
}

#define USAGE(what) "SELECT coalesce(" what ", -1) FROM usage_rows WHERE org = "
#define COUNT       "SELECT count(*) FROM usage_rows WHERE org = "
#define RESERVED    "SELECT count(*) FROM reservations WHERE org = "

static void wait_for(const struct stack_org *org, const char *sql, long long want)
{
	long long got = -1;
	for (int64_t end = clock_ms() + WAIT_MS; clock_ms() < end && (got = number(org, sql)) != want;)
		(void)poll(NULL, 0, 50);
	if (got != want)
		fail_msg("%s%s: %lld and not %lld", sql, org->slug, got, want);
}

static void settled(const struct stack_org *org, long long rows)
{
	wait_for(org, RESERVED, 0);
	assert_int_equal(number(org, COUNT), rows);
}

static void a_call_is_charged_for_what_its_provider_counts(void **s)
{
	(void)s;
	for (int stream = 0; stream < 2; stream++) {
		struct stack_org org;
		auto_gw struct gw_answer a;
		rich(&org, "1usd", "ok");
		gw_chat(&st, org.key, "one/ok", stream, NULL, &a);
		assert_true(gw_whole(&a));
		settled(&org, 1);
		assert_int_equal(number(&org, USAGE("sum(tokens[1])")), FAKEMODEL_PROMPT_TOKENS);
		assert_int_equal(number(&org, USAGE("sum(tokens[4])")), FAKEMODEL_WORDS);
		assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE estimated)")), 0);
		/* 21 at 0.1 and 60 at 0.2 millicents, rounded up once. */
		assert_int_equal(number(&org, USAGE("sum(millicents)")), 15);
	}
}

static void what_the_provider_does_not_count_is_estimated(void **s)
{
	(void)s;
	static const char *const how[] = { "no-usage",
		"much-usage" }; /* none, and what it cannot have counted */
	for (int i = 0; i < 4; i++) {
		struct stack_org org;
		auto_gw struct gw_answer a;
		char model[40];
		(void)snprintf(model, sizeof model, "one/%s", how[i / 2]);
		rich(&org, "1usd", how[i / 2]);
		gw_chat(&st, org.key, model, i % 2 == 0, NULL, &a);
		assert_true(gw_whole(&a));
		settled(&org, 1);
		assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE estimated)")), 1);
		/* Of the text, four bytes to a token, whatever else a vendor writes around it. */
		assert_int_equal(number(&org, USAGE("sum(tokens[4])")), (strlen(a.text) + 3) / 4);
		assert_in_range(number(&org, USAGE("sum(tokens[1])")), 5, 60);
	}
}

static void only_who_answers_is_charged(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a;
	rich(&org, "1usd", "503>one/ok markup>one/ok ok");
	gw_chat(&st, org.key, "one/503", true, NULL, &a);
	(void)poll(NULL, 0, 900); /* its key rests after three faults */
	gw_free(&a);
	gw_chat(&st, org.key, "one/markup", true, gw_tools(), &a);
	assert_true(gw_whole(&a));
	assert_true(a.attempts > 1);
	wait_for(&org, RESERVED, 0);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE model <> 'ok')")), 0);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE tokens[4] <> 60)")), 0);
}

static void what_nobody_answered_costs_nothing(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a, b, held;
	rich(&org, "1usd", "json-cut filter markup-slow");
	gw_chat(&st, org.key, "one/filter", true, NULL, &a);
	assert_int_equal(a.status, 400);
	gw_chat(&st, org.key, "one/json-cut", false, NULL, &b);
	assert_int_equal(b.status, 502);
	gw_chat(&st, org.key, "one/markup-slow", true, gw_tools(), &held);
	assert_int_equal(held.status, 502);
	settled(&org, 0);
}

/* MOD-6, and the most reported fault of gateways: it was lost with the client. */
static void who_leaves_is_charged_for_what_was_produced(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a;
	rich(&org, "1usd", "endless");
	gw_send(&st, org.key, "/v1/chat/completions",
	    "{\"model\":\"one/"
	    "endless\",\"stream\":true,\"max_tokens\":500,\"messages\":[{\"role\":\"user\",\"content\":\"go "
	    "on\"}]}",
	    0, NULL, 4000, &a);
	settled(&org, 1);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE estimated)")), 1);
	/* 4000 bytes are about 25 events of a word each. */
	assert_in_range(number(&org, USAGE("sum(tokens[4])")), 10, 300);
}

#define SILENT(more)                                                                                         \
	"{\"model\":\"one/silent\"" more ",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}"

/* The client gives up without an answer, which web_do would take for a failure; and its upstream is ended. headers: others, or NULL. */
static struct span leave(const struct stack_org *org, const char *body, const char *header)
{
	int before = fakemodel_cut_off(fake);
	struct http_req h = { .method = "POST",
		.ca_file = st.ca,
		.body = body,
		.body_n = strlen(body),
		.total_ms = gw_ms(700) };
	char url[120], auth[200];
	(void)snprintf(url, sizeof url, "%s/v1/chat/completions", st.url[0]);
	(void)snprintf(auth, sizeof auth, "Authorization: Bearer %s", org->key);
	const char *const headers[] = { auth, "Content-Type: application/json", header, NULL };
	h.url = url;
	h.headers = headers;
	struct http_res res;
	struct err e = { 0 };
	assert_int_equal(http_do(&h, &res, &e), -1);
	http_res_free(&res);
	struct span left = span_begin();
	while (fakemodel_cut_off(fake) == before && clock_ms() - left.began_ms < PATIENCE_MS)
		(void)poll(NULL, 0, 20);
	assert_true(span_ms(&left) < 1000);
	return left;
}

static void who_leaves_before_the_first_byte_is_charged_for_the_input(void **s)
{
	(void)s;
	struct stack_org org;
	rich(&org, "1usd", "silent");
	(void)leave(&org, SILENT(""), NULL);
	settled(&org, 1);
	assert_int_equal(
	    number(&org, USAGE("count(*) FILTER (WHERE estimated AND tokens[1] > 0 AND tokens[4] = 0)")), 1);
}

/* The vendors' SDKs come back with the same key after a time-out, and give up within seconds: what they hear last is to be true. */
static void the_key_of_a_call_that_its_client_left_is_told_so_at_once(void **s)
{
	(void)s;
	static const char *const bodies[] = { SILENT(""), SILENT(",\"stream\":true") };
	for (int i = 0; i < 2; i++) {
		struct stack_org org;
		char header[60];
		rich(&org, "1usd", "silent");
		(void)snprintf(header, sizeof header, "Idempotency-Key: left-%d", i);
		const char *const headers[] = { header, NULL };
		struct span left = leave(&org, bodies[i], header);
		auto_gw struct gw_answer a = { 0 };
		do {
			gw_free(&a);
			gw_send(&st, org.key, "/v1/chat/completions", bodies[i], 0, headers, 0, &a);
		} while (strcmp(a.code, "idempotency_key_in_use") == 0 &&
		    clock_ms() - left.began_ms < PATIENCE_MS);
		assert_true(span_ms(&left) < 1000);
		assert_int_equal(a.status, 409);
		assert_string_equal(a.code, "answer_not_kept");
		assert_non_null(
		    strstr(a.message, "was broken off by its client, and what it used is charged"));
		assert_int_equal(a.retry_after_s, 0);
		settled(&org, 1);
	}
}

static void a_stream_that_breaks_off_is_charged_for_what_came(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a;
	rich(&org, "1usd", "cut");
	gw_chat(&st, org.key, "one/cut", true, NULL, &a);
	assert_false(a.done);
	settled(&org, 1);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE estimated)")), 1);
	assert_in_range(number(&org, USAGE("sum(tokens[4])")), 20, 60);
}

/* MOD-10 */
static void without_money_there_is_the_answer_that_makes_clients_stop(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a;
	rich(&org, NULL, "ok@poor");
	gw_chat(&st, org.key, "one/ok@poor", true, NULL, &a);
	assert_int_equal(a.status, 429);
	assert_string_equal(a.error, "insufficient_quota");
	assert_string_equal(a.code, "insufficient_quota");
	assert_int_equal(fakemodel_attempts(fake, "ok@poor"), 0);
	settled(&org, 0);
}

/* ---- many at once */

struct one_of_many {
	pthread_t thread;
	const struct stack_org *org;
	const char *idempotency;
	int api;
	atomic_bool leaves; /* hangs up when it is set */
	long status;
	bool whole, replayed;
	char code[60];
};

static void *one_call(void *arg)
{
	struct one_of_many *o = arg;
	char header[100], value[16];
	(void)snprintf(
	    header, sizeof header, "Idempotency-Key: %s", o->idempotency == NULL ? "-" : o->idempotency);
	const char *const headers[] = { o->idempotency == NULL ? NULL : header, NULL };
	struct web w;
	struct web_req q = { .method = "POST",
		.path = "/v1/chat/completions",
		.key = o->org->key,
		.headers = headers,
		.api = o->api,
		.body = "{\"model\":\"one/"
			"ok\",\"max_tokens\":60,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}" };
	web_do(&st, &q, &w);
	o->status = w.status;
	o->whole = js_get(w.json, "choices") != NULL;
	o->replayed = web_header(&w, "Idempotent-Replayed", value, sizeof value);
	(void)snprintf(o->code, sizeof o->code, "%s", js_str_or(js_get(w.json, "error"), "code", ""));
	web_free(&w);
	return NULL;
}

static void all_at_once(struct one_of_many *o, int n, const struct stack_org *org, const char *idempotency)
{
	for (int i = 0; i < n; i++) {
		o[i] = (struct one_of_many){ .org = org, .idempotency = idempotency, .api = i % 2 };
		assert_int_equal(pthread_create(&o[i].thread, NULL, one_call, &o[i]), 0);
	}
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_join(o[i].thread, NULL), 0);
}

/* The worst case of a call is 14 millicents, what it costs 15 (the provider counts more input than there is); 200 are there. */
static void the_balance_holds_against_a_crowd(void **s)
{
	(void)s;
	struct stack_org org;
	struct one_of_many o[CROWD];
	int served = 0;
	rich(&org, "0.002usd", "ok");
	all_at_once(o, CROWD, &org, NULL);
	for (int i = 0; i < CROWD; i++) {
		served += o[i].status == 200 && o[i].whole;
		if (o[i].status != 200 &&
		    (o[i].status != 429 || strcmp(o[i].code, "insufficient_quota") != 0))
			fail_msg("%ld %s", o[i].status, o[i].code);
	}
	settled(&org, served);
	long long balance = number(&org, "SELECT sum(balance) FROM accounts WHERE subject = '' AND org = ");
	print_message("  %d of %d served, %lld millicents left of 200\n", served, CROWD, balance);
	assert_true(served >= 1 && served <= 200 / 13 + 1);
	assert_int_equal(balance, 200 - 15 * served);
	assert_true(balance > -30); /* never more than what calls under way cost beyond their worst case */
	const char *const check[] = { "ledger", "check", NULL };
	stack_cli(&st, check, NULL);
}

static void one_idempotency_key_is_one_call_and_one_charge(void **s)
{
	(void)s;
	struct stack_org org;
	struct one_of_many o[TWINS], later;
	int before = fakemodel_attempts(fake, "ok"), served = 0;
	rich(&org, "1usd", "ok");
	all_at_once(o, TWINS, &org, "the-same");
	for (int i = 0; i < TWINS; i++) {
		served += o[i].status == 200;
		assert_true(o[i].status == 200 ||
		    (o[i].status == 409 && strcmp(o[i].code, "idempotency_key_in_use") == 0));
	}
	assert_true(served >= 1);
	all_at_once(&later, 1, &org, "the-same");
	assert_int_equal(later.status, 200);
	assert_true(later.whole && later.replayed);
	settled(&org, 1);
	assert_int_equal(fakemodel_attempts(fake, "ok") - before, 1);
}

/* A stream's answer is not kept, and it is not charged again. */
static void a_stream_with_a_used_idempotency_key_is_refused(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a, b, other;
	static const char *const headers[] = { "Idempotency-Key: streamed", NULL };
	static const char body[] =
	    "{\"model\":\"one/ok\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
	rich(&org, "1usd", "ok");
	gw_send(&st, org.key, "/v1/chat/completions", body, 0, headers, 0, &a);
	assert_true(gw_whole(&a));
	settled(&org, 1);
	gw_send(&st, org.key, "/v1/chat/completions", body, 0, headers, 0, &b);
	assert_int_equal(b.status, 409);
	assert_string_equal(b.code, "answer_not_kept");
	gw_send(&st, org.key, "/v1/chat/completions",
	    "{\"model\":\"one/ok\",\"messages\":[{\"role\":\"user\",\"content\":\"other\"}]}", 0, headers, 0,
	    &other);
	assert_int_equal(other.status, 409);
	assert_string_equal(other.code, "idempotency_key_reused");
	settled(&org, 1);
}

/* ---- bad days */

static int on_piece(void *arg, const char *p, size_t n)
{
	const struct one_of_many *o = arg;
	(void)p, (void)n;
	return atomic_load(&o->leaves) ? -1 : 0;
}

static void *endless(void *arg)
{
	struct one_of_many *o = arg;
	struct web w;
	struct web_req q = { .method = "POST",
		.path = "/v1/chat/completions",
		.key = o->org->key,
		.api = o->api,
		.on_data = on_piece,
		.arg = o,
		.body = "{\"model\":\"one/"
			"endless\",\"stream\":true,\"max_tokens\":500,\"messages\":[{\"role\":\"user\","
			"\"content\":\"go\"}]}" };
	web_do(&st, &q, &w);
	web_free(&w);
	return NULL;
}

static void until_noted(const struct stack_org *org)
{
	wait_for(org, "SELECT count(*) FROM reservations WHERE noted AND used[4] > 20 AND org = ", 1);
}

/* An endless stream of a new org's, of which PostgreSQL knows what came so far. */
static void under_way(struct one_of_many *o, struct stack_org *org)
{
	rich(org, "1usd", "endless");
	assert_int_equal(pthread_create(&o->thread, NULL, endless, o), 0);
	until_noted(org);
}

static void ends_without_postgresql(struct one_of_many *o)
{
	stack_stop(&st, "pg");
	atomic_store(&o->leaves, true);
	assert_int_equal(pthread_join(o->thread, NULL), 0);
}

/* PostgreSQL is away when the call ends: it is charged when it is back. */
static void a_restart_of_postgresql_between_reserve_and_settle_loses_nothing(void **s)
{
	(void)s;
	struct stack_org org;
	struct one_of_many o = { .org = &org };
	under_way(&o, &org);
	ends_without_postgresql(&o);
	stack_start(&st, "pg");
	stack_ready(&st);
	settled(&org, 1);
	assert_true(number(&org, USAGE("sum(tokens[4])")) > 20);
}

/* A call is answered while PostgreSQL is away, and the api stopped before it is back: what its provider counted is not given up. */
static void an_api_that_is_stopped_waits_for_postgresql_to_settle(void **s)
{
	(void)s;
	struct stack_org org;
	struct one_of_many o = { .org = &org, .api = 1 };
	under_way(&o, &org);
	pid_t pid = stack_pid(&st, "api2");
	ends_without_postgresql(&o);
	assert_int_equal(kill(pid, SIGTERM), 0);
	(void)poll(NULL, 0, AWAY_MS);
	stack_start(&st, "pg");
	stack_stop(&st, "api2"); /* waits for its end */
	stack_start(&st, "api2");
	stack_ready(&st);
	settled(&org, 1);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE by_reaper)")), 0);
	assert_true(number(&org, USAGE("sum(tokens[4])")) > 20);
}

/* kill -9: the reaper charges what is known, once. */
static void a_killed_api_is_settled_by_what_is_known(void **s)
{
	(void)s;
	struct stack_org org;
	struct one_of_many o = { .org = &org, .api = 1 };
	under_way(&o, &org);
	stack_kill(&st, "api2");
	assert_int_equal(pthread_join(o.thread, NULL), 0);
	stack_start(&st, "api2");
	settled(&org, 1);
	assert_int_equal(number(&org, USAGE("count(*) FILTER (WHERE by_reaper)")), 1);
	assert_true(number(&org, USAGE("sum(tokens[4])")) > 20);
	const char *const check[] = { "ledger", "check", NULL };
	stack_cli(&st, check, NULL);
}

static int setup(void **s)
{
	(void)s;
	fake = gw_up(&st, 2, 1, "BILLING_MODE=closed\nBILLING_REAP_S=5");
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
		cmocka_unit_test(a_call_is_charged_for_what_its_provider_counts),
		cmocka_unit_test(what_the_provider_does_not_count_is_estimated),
		cmocka_unit_test(only_who_answers_is_charged),
		cmocka_unit_test(what_nobody_answered_costs_nothing),
		cmocka_unit_test(who_leaves_is_charged_for_what_was_produced),
		cmocka_unit_test(who_leaves_before_the_first_byte_is_charged_for_the_input),
		cmocka_unit_test(the_key_of_a_call_that_its_client_left_is_told_so_at_once),
		cmocka_unit_test(a_stream_that_breaks_off_is_charged_for_what_came),
		cmocka_unit_test(without_money_there_is_the_answer_that_makes_clients_stop),
		cmocka_unit_test(the_balance_holds_against_a_crowd),
		cmocka_unit_test(one_idempotency_key_is_one_call_and_one_charge),
		cmocka_unit_test(a_stream_with_a_used_idempotency_key_is_refused),
		cmocka_unit_test(a_restart_of_postgresql_between_reserve_and_settle_loses_nothing),
		cmocka_unit_test(an_api_that_is_stopped_waits_for_postgresql_to_settle),
		cmocka_unit_test(a_killed_api_is_settled_by_what_is_known),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
