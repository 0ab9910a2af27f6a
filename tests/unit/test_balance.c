/*
 * Balances that another service holds (the end of BIL-1, BIL-9): how often it is asked, what is subtracted, what happens when it is down. The
 * service here says what the test sets and counts its questions.
 */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../billing.h"
#include "../moneytest.h"
#include "base/clock.h"
#include "base/js.h"
#include "io/http.h"
#include "money/balance.h"

/* ---- the service */

enum mode { OK, DOWN, FAILS, OTHER, PAGE };

static struct {
	pthread_mutex_t lock;
	int asked;
	enum mode mode;
	long long holds;
	char last[1024]; /* the head of the last request */
} service = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void answer(const struct buf *request, size_t head, struct buf *out)
{
	char org_[64], subject[64], currency[64], body[400] = "<html>no</html>";
	billing_value(request, "?org=", org_);
	billing_value(request, "&subject=", subject);
	billing_value(request, "&currency=", currency);
	(void)pthread_mutex_lock(&service.lock);
	service.asked++;
	(void)snprintf(service.last, sizeof service.last, "%.*s", (int)head, buf_c(request));
	if (service.mode != PAGE)
		(void)snprintf(body, sizeof body,
		    "{\"org\":\"%s\",\"subject\":\"%s\",\"currency\":\"%s\",\"test\":false,"
		    "\"availableMillicents\":%lld}",
		    service.mode == OTHER ? "somebody" : org_, subject, currency, service.holds);
	if (service.mode != DOWN)
		billing_say(out, service.mode == FAILS ? "500 No" : "200 OK", body);
	(void)pthread_mutex_unlock(&service.lock);
}

static void service_says(enum mode mode, long long holds)
{
	(void)pthread_mutex_lock(&service.lock);
	service.mode = mode;
	service.holds = holds;
	service.asked = 0;
	(void)pthread_mutex_unlock(&service.lock);
}

static int asked(void)
{
	(void)pthread_mutex_lock(&service.lock);
	int n = service.asked;
	(void)pthread_mutex_unlock(&service.lock);
	return n;
}

static struct account pool_of(const char *slug)
{
	return (struct account){ slug, "", "usd", false };
}

static long long available(const char *slug)
{
	struct err e = { 0 };
	const struct account a = pool_of(slug);
	if (balance_fresh(mt.conf, mt.pool, &a, &e) != 0)
		fail_msg("%s", e.msg);
	return number(slug, "availableMillicents");
}

/* ---- tests */

static void one_question_serves_many_calls(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	service_says(OK, 1000);
	const char *slug = org(m, 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(spend(m, slug, 100), 100);
	assert_int_equal(asked(), 1);
	assert_int_equal(available(slug), 500);
	assert_int_equal(BALANCE(slug), 500);
	assert_int_equal(asked(), 1);
	/* How it was asked: the credential in a header and nowhere else. */
	(void)pthread_mutex_lock(&service.lock);
	assert_non_null(strstr(service.last, "&subject=&currency=usd&test=false HTTP/1.1\r\n"));
	assert_non_null(strstr(service.last, "Authorization: Bearer the-key\r\n"));
	(void)pthread_mutex_unlock(&service.lock);
	the_books_are_right();
}

struct crowd {
	const char *slug;
	struct gate_call *calls[64];
};
static void want_one(void *arg, int i)
{
	struct crowd *c = arg;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const struct gate_ask ask = ask_of(m, c->slug, 100);
	if (gate_reserve(mt.gate, &ask, &c->calls[i], NULL, &e) != 0)
		assert_string_equal(e.reason, "insufficient_quota");
}

/* BIL-1: reservations bound what one period of the cache can overspend. */
static void a_crowd_spends_what_was_said_and_no_more(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct crowd c = { .slug = org(m, 0) };
	int n = 0;
	service_says(OK, 1000);
	at_once(32, want_one, &c);
	for (int i = 0; i < 32; i++)
		n += c.calls[i] != NULL;
	assert_int_equal(n, 10);
	assert_int_equal(asked(), 1); /* the others waited for the one that asked */
	for (int i = 0; i < 32; i++)
		gate_release(c.calls[i]);
	quiet(c.slug);
	assert_int_equal(available(c.slug), 1000);
}

/* Its answer may be older than what was reported to it, and the charges that it knows of are in it. */
static void what_it_may_not_know_of_is_subtracted_until_it_is_acknowledged(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 0);
	const struct account a = pool_of(slug);
	service_says(OK, 1000);
	(void)spend(m, slug, 300);
	sql("UPDATE accounts SET asked = asked - interval '10 min' WHERE org = '%s'", slug);
	balance_doubt(mt.conf, &a);
	(void)poll(
	    NULL, 0, 1100); /* a doubt is looked into a second after the last question at the earliest */
	assert_int_equal(
	    available(slug), 700); /* asked again; it says 1000 as before, and the 300 are not acknowledged */
	assert_int_equal(asked(), 2);
	sql("DELETE FROM usage_reports WHERE org = '%s'", slug);
	service_says(OK, 700);
	balance_doubt(mt.conf, &a);
	(void)poll(NULL, 0, 1100);
	assert_int_equal(available(slug), 700);
	assert_int_equal(asked(), 1);
}

static void credit_there_counts_a_second_after_a_refusal(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 0);
	struct gate_ask ask = ask_of(m, slug, 100);
	service_says(OK, 0);
	call_refused(&ask, ERR_PAYMENT, "insufficient_quota");
	service_says(OK, 500);
	(void)poll(NULL, 0, 1100);
	assert_int_equal(spend(m, slug, 100), 100);
	assert_int_equal(available(slug), 400);
}

static void nothing_is_known_where_it_does_not_answer(void **s)
{
	(void)s;
	static const enum mode modes[] = { DOWN, FAILS, OTHER, PAGE };
	auto_mem struct mem *m = mem_new();
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		const char *slug = org(m, 0);
		const struct account a = pool_of(slug);
		struct gate_ask ask = ask_of(m, slug, 100);
		struct gate_call *c = NULL;
		struct err e = { 0 }, read = { 0 };
		service_says(modes[i], 1000);
		int64_t begin = clock_ms();
		assert_int_equal(gate_reserve(mt.gate, &ask, &c, NULL, &e), -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		assert_null(strstr(e.msg, "127.0.0.1"));
		assert_int_equal(balance_fresh(mt.conf, mt.pool, &a, &read), -1);
		assert_int_equal(read.code, ERR_UNAVAILABLE);
		if (clock_ms() - begin < 500)
			assert_int_equal(asked(), 1); /* the second did not ask: a failure rests */
		service_says(OK, 1000);
		(void)poll(NULL, 0, 600);
		assert_int_equal(spend(m, slug, 100), 100);
	}
}

static void its_last_answer_holds_for_a_minute_and_no_longer(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *slug = org(m, 0);
	service_says(OK, 1000);
	(void)spend(m, slug, 100);
	service_says(DOWN, 0);
	const struct account a = pool_of(slug);
	balance_doubt(mt.conf, &a);
	(void)poll(NULL, 0, 1100);
	assert_int_equal(spend(m, slug, 100), 100); /* it was asked, and did not answer */
	assert_int_equal(asked(), 1);
	sql("UPDATE accounts SET asked = asked - interval '61 s' WHERE org = '%s'", slug);
	struct gate_ask ask = ask_of(m, slug, 1);
	call_refused(&ask, ERR_PAYMENT,
	    "insufficient_quota"); /* BIL-1: not a second more, whatever this process thinks */
	sql("UPDATE accounts SET asked = asked + interval '2 min' WHERE org = '%s'", slug);
	call_refused(&ask, ERR_PAYMENT, "insufficient_quota");
}

static void whose_balance_is_elsewhere_is_credited_there(void **s)
{
	(void)s;
	struct err e = { 0 }, none = { 0 };
	assert_int_equal(balance_credit_refused(mt.conf, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_string_equal(e.reason, "balance_elsewhere");
	const char *file = conf_str(mt.conf, "BILLING_BALANCE_KEY_FILE");
	assert_int_equal(balance_setup(mt.conf, &none), 0);
	assert_int_equal(chmod(file, 0644), 0);
	assert_int_equal(balance_setup(mt.conf, &none), -1);
	assert_non_null(strstr(none.msg, "BILLING_BALANCE_KEY_FILE"));
	assert_int_equal(chmod(file, 0600), 0);
}

static void who_holds_the_balance_must_be_told_what_is_used(void **s)
{
	(void)s;
	struct err e = { 0 }, bad = { 0 };
	char *url = strdup(conf_str(mt.conf, "BILLING_REPORT_URL"));
	assert_int_equal(unsetenv("BILLING_REPORT_URL"), 0);
	struct conf *conf = conf_load("/dev/null", &e);
	assert_non_null(conf);
	assert_int_equal(balance_setup(conf, &bad), -1);
	assert_non_null(strstr(bad.msg, "BILLING_REPORT_URL"));
	conf_free(conf);
	assert_int_equal(setenv("BILLING_REPORT_URL", url, 1), 0);
	free(url);
}

static void modes_decide_what_a_failure_means(void **s)
{
	(void)s;
	static const struct {
		const char *mode;
		int rc, asked;
	} rows[] = { { "open", 0, 0 }, { "warn", 0, 1 }, { "closed", -1, 1 } };
	auto_mem struct mem *m = mem_new();
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct err e = { 0 };
		const struct account a = pool_of(org(m, 0));
		assert_int_equal(setenv("BILLING_MODE", rows[i].mode, 1), 0);
		struct conf *conf = conf_load("/dev/null", &e);
		assert_non_null(conf);
		service_says(FAILS, 0);
		assert_int_equal(balance_gate(conf, mt.pool, &a, &e), rows[i].rc);
		assert_int_equal(asked(), rows[i].asked);
		conf_free(conf);
	}
	assert_int_equal(unsetenv("BILLING_MODE"), 0);
}

/* The entries alone are true again, for every process that is started then. */
static void without_the_setting_the_entries_are_the_balance(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const char *slug = org(m, 0);
	const struct account a = pool_of(slug);
	service_says(OK, 1000);
	(void)spend(m, slug, 100);
	char *url = strdup(conf_str(mt.conf, "BILLING_BALANCE_URL"));
	assert_int_equal(unsetenv("BILLING_BALANCE_URL"), 0);
	struct conf *conf = conf_load("/dev/null", &e);
	assert_non_null(conf);
	assert_int_equal(balance_fresh(conf, mt.pool, &a, &e), 0);
	assert_int_equal(BALANCE(slug), -100);
	assert_int_equal(number(slug, "availableMillicents"), -100);
	conf_free(conf);
	assert_int_equal(setenv("BILLING_BALANCE_URL", url, 1), 0);
	free(url);
}

static struct billing *billing;

static int setup(void **s)
{
	http_setup();
	billing = billing_start(false, answer);
	assert_int_equal(setenv("BILLING_BALANCE_URL", billing_url(billing, "/balance"), 1), 0);
	assert_int_equal(setenv("BILLING_BALANCE_KEY_FILE", billing_key_file(billing), 1), 0);
	assert_int_equal(setenv("BILLING_REPORT_URL", billing_url(billing, "/usage"), 1), 0);
	return moneytest_setup(s);
}

static int teardown(void **s)
{
	billing_end(billing);
	return moneytest_teardown(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_question_serves_many_calls),
		cmocka_unit_test(a_crowd_spends_what_was_said_and_no_more),
		cmocka_unit_test(what_it_may_not_know_of_is_subtracted_until_it_is_acknowledged),
		cmocka_unit_test(credit_there_counts_a_second_after_a_refusal),
		cmocka_unit_test(nothing_is_known_where_it_does_not_answer),
		cmocka_unit_test(its_last_answer_holds_for_a_minute_and_no_longer),
		cmocka_unit_test(whose_balance_is_elsewhere_is_credited_there),
		cmocka_unit_test(who_holds_the_balance_must_be_told_what_is_used),
		cmocka_unit_test(modes_decide_what_a_failure_means),
		cmocka_unit_test(without_the_setting_the_entries_are_the_balance),
	};
	return cmocka_run_group_tests_name("balance", tests, setup, teardown);
}
