/* ID-7 through nginx and two api processes: requests a minute and concurrent runs, of an org and not of a host. */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "io/file.h"
#include "judge.h"
#include "runs.h"
#include "sbx.h"

enum { THREADS = 8, RELOAD_MS = 60000 };

static struct stack st;

static void limit(const char *org, const char *option, const char *value, const char *want)
{
	auto_buf struct buf out = BUF(1000);
	stack_cli(&st, (const char *const[]){ "org", "limit", org, option, value, NULL }, &out);
	assert_non_null(strstr(buf_c(&out), want));
}

static void is_429(const struct web *w, const char *code)
{
	char retry[20];
	judge_refusal(&st, w, 429);
	assert_string_equal(web_error(w, "type"), "rate_limit_error");
	assert_string_equal(web_error(w, "code"), code);
	assert_true(web_header(w, "Retry-After", retry, sizeof retry));
	assert_in_range(strtol(retry, NULL, 10), 1, 60);
}

struct sender {
	pthread_t thread;
	const struct stack_org *org;
	const char *method, *path, *body;
	int api, n, fine, limited;
	const char *code;
};

static void *sends(void *arg)
{
	struct sender *t = arg;
	static const char *const headers[] = { "Prefer: respond-async", NULL };
	for (int i = 0; i < t->n; i++) {
		auto_web struct web w = { 0 };
		struct web_req q = { .method = t->method,
			.path = t->path,
			.key = t->org->key,
			.body = t->body,
			.headers = headers,
			.api = t->api };
		web_do(&st, &q, &w);
		if (w.status / 100 == 2) {
			t->fine++;
			continue;
		}
		is_429(&w, t->code);
		t->limited++;
	}
	return NULL;
}

/* From both hosts at the same time; how many were let through. */
static int all_send(const struct stack_org *org, const char *method, const char *path, const char *body,
    int each, const char *code)
{
	struct sender t[THREADS];
	int fine = 0;
	for (int i = 0; i < THREADS; i++) {
		t[i] = (struct sender){ .org = org,
			.method = method,
			.path = path,
			.body = body,
			.api = i % 2,
			.n = each,
			.code = code };
		assert_int_equal(pthread_create(&t[i].thread, NULL, sends, &t[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(t[i].thread, NULL);
		assert_int_equal(t[i].fine + t[i].limited, each);
		fine += t[i].fine;
	}
	return fine;
}

static void two_hosts_let_through_what_one_would(void **s)
{
	(void)s;
	struct stack_org org, other;
	stack_org(&st, &org);
	stack_org(&st, &other);
	limit(org.slug, "--requests-per-minute", "30", "requests-per-minute 30\n");
	assert_int_equal(all_send(&org, "GET", "/v1/bots", NULL, 6, "rate_limited"), 30);
	auto_web struct web w = { 0 }, open = { 0 };
	web_json(&st, "GET", "/v1/bots", other.key, NULL, &w);
	assert_int_equal(w.status, 200);
	web_json(&st, "GET", "/v1/openapi.json", org.key, NULL, &open); /* needs no identity */
	assert_int_equal(open.status, 200);
}

/* Also what is already at work, and an end makes room. */
static void two_hosts_start_as_many_runs_as_the_limit_is(void **s)
{
	(void)s;
	static const char task[] = "{\"tool\":\"python\",\"prompt\":\"import time; time.sleep(600)\"}";
	struct stack_org org;
	stack_org(&st, &org);
	assert_int_equal(
	    all_send(&org, "POST", "/v1/coding-tasks", task, 1, "too_many_runs"), 3); /* the setting */
	limit(org.slug, "--concurrent-runs", "4", "concurrent-runs 4\n");
	assert_int_equal(all_send(&org, "POST", "/v1/coding-tasks", task, 1, "too_many_runs"), 1);
	auto_web struct web list = { 0 };
	web_json(&st, "GET", "/v1/bots", org.key, NULL, &list);
	const json_t *runs = js_get(list.json, "data");
	assert_int_equal(json_array_size(runs), 4);
	for (size_t i = 0; i < 4; i++) {
		char path[100];
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/bots/%s/stop", js_str(json_array_get(runs, i), "id"));
		web_json(&st, "POST", path, org.key, NULL, &w);
		assert_int_equal(w.status, 200);
	}
	char sql[200];
	sbx_with("SELECT count(*) FROM runs WHERE org = '@' AND ended_at IS NULL", org.slug, sql, sizeof sql);
	runs_wait_sql(&st, sql, "0");
	auto_web struct web again = { 0 };
	web_json(&st, "POST", "/v1/coding-tasks", org.key,
	    json_pack("{s:s,s:s}", "tool", "python", "prompt", "print(1)"), &again);
	assert_int_equal(again.status, 200);
	limit(org.slug, "--concurrent-runs", "default", "concurrent-runs default\n");
}

/* In the file that both hosts read; then SIGHUP to both. */
static void setting(const char *old, const char *by)
{
	char path[160];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 16);
	(void)snprintf(path, sizeof path, "%s/gatehouse.conf", st.dir);
	assert_int_equal(file_read(path, &text, &e), 0);
	const char *at = strstr(buf_c(&text), old);
	assert_non_null(at);
	FILE *f = fopen(path, "we"); /* in place: it stays readable for the service */
	assert_non_null(f);
	(void)fprintf(f, "%.*s%s%s", (int)(at - buf_c(&text)), buf_c(&text), by, at + strlen(old));
	assert_int_equal(fclose(f), 0);
	assert_int_equal(kill(stack_pid(&st, "api1"), SIGHUP), 0);
	assert_int_equal(kill(stack_pid(&st, "api2"), SIGHUP), 0);
}

/* Requests of a new org until one is answered `status`. */
static void until(int api, long status)
{
	struct stack_org org;
	int64_t deadline = clock_ms() + RELOAD_MS;
	stack_org(&st, &org);
	for (long got = 0; got != status;) {
		auto_web struct web w = { 0 };
		struct web_req q = { .method = "GET", .path = "/v1/bots", .key = org.key, .api = api };
		web_do(&st, &q, &w);
		got = w.status;
		assert_true(got == 200 || got == 429);
		assert_true(clock_ms() < deadline);
		(void)poll(NULL, 0, 20);
	}
}

/* RUN-2: without a restart, at each host that was told, for what comes then. */
static void changed_limits_hold_after_a_reload(void **s)
{
	(void)s;
	static const char task[] = "{\"tool\":\"python\",\"prompt\":\"import time; time.sleep(600)\"}";
	struct stack_org org, later;
	pid_t before[2] = { stack_pid(&st, "api1"), stack_pid(&st, "api2") };
	setting("ORG_CONCURRENT_RUNS=3\n", "ORG_CONCURRENT_RUNS=1\nORG_REQUESTS_PER_MINUTE=20\n");
	until(0, 429);
	until(1, 429);
	stack_org(&st, &org);
	assert_int_equal(all_send(&org, "POST", "/v1/coding-tasks", task, 1, "too_many_runs"), 1);
	setting("ORG_CONCURRENT_RUNS=1\nORG_REQUESTS_PER_MINUTE=20\n", "ORG_CONCURRENT_RUNS=2\n");
	/* The limit of requests is gone when more than 20 have passed at both. */
	for (int api = 0, fine = 0; api < 2; api++, fine = 0) {
		int64_t deadline = clock_ms() + RELOAD_MS;
		stack_org(&st, &later);
		while (fine <= 20) {
			auto_web struct web w = { 0 };
			struct web_req q = {
				.method = "GET", .path = "/v1/bots", .key = later.key, .api = api
			};
			web_do(&st, &q, &w);
			assert_true(clock_ms() < deadline);
			fine = w.status == 200 ? fine + 1 : 0;
			if (w.status == 429)
				stack_org(&st, &later); /* this one has to wait for its next minute */
		}
	}
	assert_int_equal(all_send(&org, "POST", "/v1/coding-tasks", task, 1, "too_many_runs"), 1);
	assert_int_equal(stack_pid(&st, "api1"), before[0]);
	assert_int_equal(stack_pid(&st, "api2"), before[1]);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, "ORG_CONCURRENT_RUNS=3\n");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_hosts_let_through_what_one_would),
		cmocka_unit_test(two_hosts_start_as_many_runs_as_the_limit_is),
		cmocka_unit_test(changed_limits_hold_after_a_reload),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
