/*
 * Balances that another service holds, over HTTP and through the whole stack (BIL-1, BIL-9): a billing service behind TLS with a
 * certificate and a key of its own, which subtracts what is reported to it, and which has bad days.
 */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../billing.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"
#include "io/http.h"
#include "judge.h"

enum {
	WAIT_MS = 60000,
	SLOW_MS = 4000,  /* longer than it is waited for */
	BOUND_MS = 9000, /* a call that two services' time-outs and statements may hold up */
	CALL_COST = 15,  /* of the vendor's answer */
	RICH = 5000000,
};
#define BALANCE "/v1/billing/balance"

/* ---- the service */

enum mode { OK, DOWN, FAILS, PAGE, OTHER, DENIES, SLOW, MODES };

static struct {
	pthread_mutex_t lock;
	enum mode mode;
	json_t *holds; /* by org; others have nothing */
	int asked, reported, denied;
} service = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The lock is held. */
static void take_batch(const struct buf *request, size_t head)
{
	struct err e = { 0 };
	auto_json json_t *v = js_parse(request->p + head, request->n - head, &e);
	size_t i;
	json_t *row;
	json_array_foreach(js_get(v, "usage"), i, row) {
		const char *org = js_str_or(row, "org", "");
		long long left = js_int(service.holds, org, 0) - js_int(row, "costMillicents", 0);
		js_set(service.holds, org, json_integer(left));
		service.reported++;
	}
}

/* The lock is held. */
static void say_balance(const struct buf *request, struct buf *out)
{
	char org[64], subject[64], currency[64], test[64];
	billing_value(request, "?org=", org);
	billing_value(request, "&subject=", subject);
	billing_value(request, "&currency=", currency);
	billing_value(request, "&test=", test);
	service.asked++;
	auto_mem struct mem *m = mem_new();
	auto_json json_t *v = js_pack("{s:s, s:s, s:s, s:b, s:I}", "org",
	    service.mode == OTHER ? "somebody" : org, "subject", subject, "currency", currency, "test",
	    strcmp(test, "true") == 0, "availableMillicents",
	    (json_int_t)(strcmp(test, "true") == 0 ? 0 : js_int(service.holds, org, 0)));
	if (service.mode == FAILS)
		billing_say(out, "500 No", "{}");
	else if (service.mode == PAGE)
		billing_say(out, "200 OK", "<html>Sign in</html>");
	else if (service.mode != DOWN)
		billing_say(out, "200 OK", js_dump(m, v));
}

static void answer(const struct buf *request, size_t head, struct buf *out)
{
	(void)pthread_mutex_lock(&service.lock);
	bool slow = service.mode == SLOW, denies = service.mode == DENIES || !billing_authorised(request);
	if (str_starts(buf_c(request), "HEAD ")) {
		billing_say(out, "204 Fine", "");
	} else if (denies) {
		service.denied++;
		billing_say(out, "401 No", "{}");
	} else if (str_starts(buf_c(request), "GET /balance?")) {
		say_balance(request, out);
	} else if (service.mode == OK) {
		take_batch(request, head);
		(void)buf_str(out, "HTTP/1.1 204 Fine\r\n\r\n");
	}
	(void)pthread_mutex_unlock(&service.lock);
	if (slow)
		(void)poll(NULL, 0, SLOW_MS);
}

static void service_is(enum mode mode)
{
	(void)pthread_mutex_lock(&service.lock);
	service.mode = mode;
	(void)pthread_mutex_unlock(&service.lock);
}

static void service_holds(const struct stack_org *org, long long millicents)
{
	(void)pthread_mutex_lock(&service.lock);
	js_set(service.holds, org->slug, json_integer(millicents));
	(void)pthread_mutex_unlock(&service.lock);
}

static long long held(const struct stack_org *org)
{
	(void)pthread_mutex_lock(&service.lock);
	long long n = js_int(service.holds, org->slug, 0);
	(void)pthread_mutex_unlock(&service.lock);
	return n;
}

static int counted(const int *what)
{
	(void)pthread_mutex_lock(&service.lock);
	int n = *what;
	(void)pthread_mutex_unlock(&service.lock);
	return n;
}

/* ---- its users */

static struct stack st;
static struct fakemodel *fake;
static struct billing *billing;

static void an_org(struct stack_org *org, long long millicents)
{
	stack_org(&st, org);
	service_holds(org, millicents);
	gw_provider(&st, fake, org->key, "one", "openai-chat", 1, "ok");
}

static void balance(const struct stack_org *org, int api, struct web *w)
{
	struct web_req q = { .method = "GET", .path = BALANCE, .key = org->member, .api = api };
	web_do(&st, &q, w);
}

static void calls(const struct stack_org *org, struct gw_answer *a)
{
	gw_chat(&st, org->key, "one/ok", false, NULL, a);
}

/* Until a call passes: a failure rests, and so does what was refused. */
static void passes_again(const struct stack_org *org)
{
	for (int64_t end = clock_ms() + WAIT_MS;; (void)poll(NULL, 0, 100)) {
		auto_gw struct gw_answer a;
		calls(org, &a);
		if (gw_whole(&a))
			return;
		if (clock_ms() >= end)
			fail_msg("%ld %s", a.status, a.raw);
	}
}

static void the_balance_shows_it_and_credit_is_given_there(void **s)
{
	(void)s;
	struct stack_org org;
	an_org(&org, RICH);
	for (int api = 0; api < 2; api++) {
		auto_web struct web w = { 0 };
		balance(&org, api, &w);
		assert_int_equal(w.status, 200);
		assert_string_equal(js_str_or(w.json, "org", ""), org.slug);
		assert_int_equal(js_int(w.json, "availableMillicents", -1), RICH);
		assert_int_equal(js_int(w.json, "balanceMillicents", -1), RICH);
	}
	auto_web struct web test = { 0 }, credit = { 0 };
	web_json(&st, "GET", BALANCE "?test=true", org.member, NULL, &test);
	assert_int_equal(test.status, 200);
	assert_int_equal(js_int(test.json, "availableMillicents", -1), 0);
	char operators[128];
	stack_key(&st, "admin", "root", true, NULL, operators);
	web_json(&st, "POST", "/v1/billing/credit", operators,
	    js_pack("{s:s, s:i, s:s}", "account", org.slug, "amountMillicents", 5, "key", "k"), &credit);
	judge_refusal(&st, &credit, 409);
	assert_string_equal(web_error(&credit, "code"), "balance_elsewhere");
	assert_non_null(strstr(web_error(&credit, "message"), "BILLING_BALANCE_URL"));
	auto_buf struct buf said = BUF(1000);
	assert_int_not_equal(
	    stack_cli_exit(
		&st, (const char *const[]){ "org", "credit", org.slug, "1usd", "--key", "k", NULL }, &said),
	    0);
	assert_int_equal(counted(&service.denied), 0);
}

/* It is asked seldom, and what was called for since is subtracted; what is reported to it, it subtracts itself. */
static void calls_are_let_in_by_it_and_subtracted_once(void **s)
{
	(void)s;
	struct stack_org org;
	an_org(&org, RICH);
	for (int i = 0; i < 3; i++) {
		auto_gw struct gw_answer a;
		calls(&org, &a);
		assert_true(gw_whole(&a));
	}
	for (int64_t end = clock_ms() + WAIT_MS; held(&org) != RICH - 3 * CALL_COST; (void)poll(NULL, 0, 50))
		if (clock_ms() >= end)
			fail_msg("%lld are held there", held(&org));
	/* A process that knows nothing asks anew: neither twice nor not at all. */
	int before = counted(&service.asked);
	stack_stop(&st, "api1");
	stack_start(&st, "api1");
	stack_ready(&st);
	auto_web struct web w = { 0 };
	balance(&org, 0, &w);
	assert_int_equal(js_int(w.json, "availableMillicents", -1), RICH - 3 * CALL_COST);
	assert_int_equal(counted(&service.asked), before + 1);
}

static void without_balance_there_calls_are_refused_until_there_is_some(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer a;
	auto_web struct web run = { 0 };
	an_org(&org, 0);
	calls(&org, &a);
	assert_int_equal(a.status, 429);
	assert_string_equal(a.code, "insufficient_quota");
	web_json(&st, "POST", "/v1/coding-tasks", org.key,
	    js_pack("{s:s, s:s}", "tool", "python", "prompt", "print(1)"), &run);
	judge_refusal(&st, &run, 402);
	service_holds(&org, RICH);
	passes_again(&org);
}

/* BIL-1: mode closed. Whatever it says instead of a balance is none, and is said in time; its words reach nobody. */
static void while_it_gives_no_balance_nothing_begins(void **s)
{
	(void)s;
	for (enum mode mode = DOWN; mode < MODES; mode++) {
		struct stack_org org;
		auto_gw struct gw_answer a;
		auto_web struct web w = { 0 };
		an_org(&org, RICH);
		service_is(mode);
		struct span span = span_begin();
		calls(&org, &a);
		int64_t took = span_ms(&span);
		if (a.status != 503 || strcmp(a.code, "overloaded") != 0 || a.retry_after_s < 1)
			fail_msg("mode %d: %ld %s", (int)mode, a.status, a.raw);
		assert_null(strstr(a.raw, "localhost"));
		assert_in_range(took, 0, BOUND_MS);
		balance(&org, 0, &w);
		judge_refusal(&st, &w, 503);
		service_is(OK);
		passes_again(&org);
	}
}

static void its_last_answer_holds_for_a_minute(void **s)
{
	(void)s;
	struct stack_org org;
	auto_gw struct gw_answer known, old;
	auto_buf struct buf none = BUF(1000);
	auto_mem struct mem *m = mem_new();
	an_org(&org, RICH);
	passes_again(&org);
	service_is(DOWN);
	calls(&org, &known);
	assert_true(gw_whole(&known));
	stack_sql(&st,
	    mem_fmt(m, "UPDATE accounts SET asked = asked - interval '61 s' WHERE org = '%s'", org.slug),
	    &none);
	calls(&org, &old);
	assert_int_equal(old.status, 429);
	assert_string_equal(old.code, "insufficient_quota");
	service_is(OK);
	passes_again(&org);
}

/* ---- doctor */

static void doctor_says(const char *line, bool ok)
{
	auto_buf struct buf out = BUF(1 << 17);
	(void)stack_cli_exit(&st, (const char *const[]){ "doctor", NULL }, &out);
	if (strstr(buf_c(&out), line) == NULL ||
	    (ok && strstr(buf_c(&out), "ok   billing.report: BILLING_REPORT_URL answers (204)") == NULL))
		fail_msg("\"%s\" is not said: %s", line, buf_c(&out));
}

static void doctor_asks_it_with_its_key(void **s)
{
	(void)s;
	doctor_says("ok   billing.balance: BILLING_BALANCE_URL answers with balances", true);
	doctor_says("ok   billing.credit: another service holds the balances", true);
	service_is(DENIES);
	doctor_says("fail billing.balance: The balance's service answered 401.", false);
	service_is(OTHER);
	doctor_says("fail billing.balance: The balance's service answered for another account.", false);
	service_is(OK);
	assert_int_equal(chmod(billing_key_file(billing), 0644), 0);
	doctor_says("fail billing.balance: BILLING_BALANCE_KEY_FILE", false);
	assert_int_equal(chmod(billing_key_file(billing), 0600), 0);
}

static int setup(void **s)
{
	(void)s;
	char conf[2400];
	http_setup();
	service.holds = json_object();
	fake = fakemodel_start();
	billing = billing_start(true, answer);
	billing_for(billing, "www-data");
	gw_conf(fake, conf);
	size_t n = strlen(conf);
	auto_mem struct mem *m = mem_new();
	const char *usage = mem_str(m, billing_url(billing, "/usage")), *key = billing_key_file(billing),
		   *ca = billing_ca_file(billing);
	(void)snprintf(conf + n, sizeof conf - n,
	    "\nBILLING_MODE=closed\nBILLING_BALANCE_URL=%s\nBILLING_BALANCE_KEY_FILE=%s\n"
	    "BILLING_BALANCE_CA_FILE=%s\nBILLING_REPORT_URL=%s\nBILLING_REPORT_KEY_FILE=%s\n"
	    "BILLING_REPORT_CA_FILE=%s\nBILLING_REPORT_EVERY_S=1",
	    billing_url(billing, "/balance"), key, ca, usage, key, ca);
	stack_up(&st, 2, 1, 1, conf);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	billing_end(billing);
	fakemodel_end(fake);
	json_decref(service.holds);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_balance_shows_it_and_credit_is_given_there),
		cmocka_unit_test(calls_are_let_in_by_it_and_subtracted_once),
		cmocka_unit_test(without_balance_there_calls_are_refused_until_there_is_some),
		cmocka_unit_test(while_it_gives_no_balance_nothing_begins),
		cmocka_unit_test(its_last_answer_holds_for_a_minute),
		cmocka_unit_test(doctor_asks_it_with_its_key),
	};
	return cmocka_run_group_tests_name("balance over HTTP", tests, setup, teardown);
}
