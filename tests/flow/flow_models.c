/*
 * Providers, keys and routes on the whole stack, with two hosts of the API: what one is told holds at the other, no secret of a
 * provider is seen anywhere, and a run's token makes the run's calls (MOD-2, MOD-3, MOD-4, MOD-9).
 */
#include "../span.h"
#include "../t.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "gw.h"
#include "io/file.h"
#include "judge.h"

enum { SOON_MS = 60000 }; /* half of a copy's age: it was told, and did not only grow old */

static struct stack st;
static struct stack_org org;
static struct fakemodel *vendor;

/* A call at one of the two hosts: its status; the answer is in w. */
static long ask(int api, const char *key, const char *model, struct web *w)
{
	auto_mem struct mem *m = mem_new();
	web_free(w); /* of the call before */
	const char *body = mem_fmt(
	    m, "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Say it.\"}]}", model);
	struct web_req q = {
		.method = "POST", .path = "/v1/chat/completions", .key = key, .body = body, .api = api
	};
	web_do(&st, &q, w);
	return w->status;
}

static void changed(const char *name, json_t *body)
{
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	web_json(&st, "PATCH", mem_fmt(m, "/v1/models/providers/%s", name), org.key, body, &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
}

/* The other host answers so within SOON_MS, and then stays at it. */
static void there(const char *model, long status)
{
	int64_t end = clock_ms() + SOON_MS;
	for (;;) {
		auto_web struct web w = { 0 };
		if (ask(1, org.key, model, &w) == status)
			return;
		if (clock_ms() > end)
			fail_msg("%s at the other host: %ld %s", model, w.status, w.body);
		(void)usleep(5000);
	}
}

static void a_provider_that_is_switched_off_is_used_no_more_at_any_host(void **s) /* MOD-2 */
{
	(void)s;
	auto_web struct web w = { 0 }, off = { 0 };
	gw_provider(&st, vendor, org.key, "switch", "openai-chat", 1, "ok@switch");
	assert_int_equal(ask(0, org.key, "switch/ok@switch", &w), 200);
	there("switch/ok@switch", 200);
	changed("switch", js_pack("{s:b}", "enabled", 0));
	assert_int_equal(ask(0, org.key, "switch/ok@switch", &off), 404); /* who changed it at once */
	assert_string_equal(web_error(&off, "code"), "model_not_found");
	there("switch/ok@switch", 404);
	int attempts = fakemodel_attempts(vendor, "ok@switch");
	there("switch/ok@switch", 404);
	assert_int_equal(fakemodel_attempts(vendor, "ok@switch"), attempts);
	changed("switch", js_pack("{s:b}", "enabled", 1));
	there("switch/ok@switch", 200);
}

static void a_key_that_cools_at_one_host_is_left_alone_at_the_other(void **s) /* MOD-3 */
{
	(void)s;
	gw_provider(&st, vendor, org.key, "cool", "openai-chat", 1, "401@cool ok@cool");
	there("cool/ok@cool", 200); /* the other host holds a copy */
	int before = fakemodel_attempts(vendor, "ok@cool");
	auto_web struct web w = { 0 }, seen = { 0 }, tried = { 0 };
	assert_int_equal(ask(0, org.key, "cool/401@cool", &w), 502); /* its own words are not passed on */
	there("cool/ok@cool", 503);
	char after[32];
	assert_true(ask(1, org.key, "cool/ok@cool", &seen) == 503);
	assert_true(web_header(&seen, "Retry-After", after, sizeof after));
	assert_true(atoi(after) > 600 && atoi(after) <= 900); /* the earliest return */
	web_json(&st, "GET", "/v1/models/providers/cool", org.key, NULL, &tried);
	const json_t *key = json_array_get(js_get(tried.json, "keys"), 0);
	assert_string_equal(js_str(key, "state"), "cooling");
	assert_string_equal(js_str(key, "why"), "refused");
	/* All that time nobody asked the vendor, but for the calls that came before the word did. */
	int asked = fakemodel_attempts(vendor, "ok@cool");
	assert_int_equal(ask(1, org.key, "cool/ok@cool", &w), 503);
	assert_int_equal(fakemodel_attempts(vendor, "ok@cool"), asked);
	assert_true(asked >= before);
	/* An admin who has seen that it works ends it, everywhere. */
	web_free(&tried);
	web_json(&st, "POST", "/v1/models/providers/cool/test", org.key, js_pack("{s:s}", "model", "ok@cool"),
	    &tried);
	assert_int_equal(tried.status, 200);
	assert_true(js_bool(tried.json, "ok", false));
	there("cool/ok@cool", 200);
}

static void aliases_fallbacks_and_allowlists_are_an_orgs_own(void **s) /* MOD-2 */
{
	(void)s;
	auto_web struct web w = { 0 }, by = { 0 }, none = { 0 }, refused = { 0 };
	char model[80];
	gw_provider(&st, vendor, org.key, "second", "openai-chat", 1, "ok@second");
	gw_provider(&st, vendor, org.key, "first", "openai-chat", 1, "503@first>second/ok@second");
	web_json(&st, "PUT", "/v1/models/routing", org.key,
	    js_pack("{s:{s:[s],s:[s]}}", "aliases", "quick", "first/503@first", "free", "quick"), &w);
	assert_int_equal(w.status, 200);
	assert_int_equal(ask(0, org.key, "quick", &by), 200);
	assert_true(web_header(&by, "x-gatehouse-model", model, sizeof model));
	assert_string_equal(model, "second/ok@second");
	/* No model at all is the tier's. */
	struct web_req q = { .method = "POST",
		.path = "/v1/chat/completions",
		.key = org.key,
		.body = "{\"messages\":[{\"role\":\"user\",\"content\":\"Say it.\"}]}" };
	web_do(&st, &q, &none);
	assert_int_equal(none.status, 200);
	web_free(&w);
	web_json(&st, "PUT", "/v1/models/routing", org.key, js_pack("{s:[s]}", "allow", "quick"), &w);
	assert_int_equal(ask(0, org.key, "second/ok@second", &refused), 403);
	there("quick", 200);
	web_free(&w);
	web_json(&st, "PUT", "/v1/models/routing", org.key, js_pack("{s:b}", "allowAll", 1), &w);
	there("second/ok@second", 200);
	/* And the operator's word over it. */
	auto_buf struct buf said = BUF(4096);
	stack_cli(&st,
	    (const char *const[]){
		"org", "models", org.slug, "--tier", "paid", "--allow-at-most", "first/*", NULL },
	    &said);
	assert_string_equal(buf_c(&said), "tier paid\nallow-at-most [\"first/*\"]\n");
	there("second/ok@second", 403);
	buf_reset(&said);
	stack_cli(
	    &st, (const char *const[]){ "org", "models", org.slug, "--allow-at-most", "*", NULL }, &said);
	assert_string_equal(buf_c(&said), "tier paid\nallow-at-most null\n");
	there("second/ok@second", 200);
}

static void refused_naming(const char *method, const char *path, json_t *body, const char *param)
{
	auto_web struct web w = { 0 };
	web_json(&st, method, path, org.key, body, &w);
	judge_field(&st, &w, 400, param);
}

/* A slip in a name is told when it is made, not by a call that then finds nobody. */
static void what_leads_nowhere_is_refused_by_its_field(void **s) /* MOD-2 */
{
	(void)s;
	static const char routing[] = "/v1/models/routing", own[] = "/v1/models/providers/slips";
	gw_provider(&st, vendor, org.key, "slips", "openai-chat", 2, "ok@slips>slips/ok@two ok@two");
#define FALLS(to)                                                                                            \
	js_pack("{s:[{s:s,s:[s],s:{s:i,s:i}}]}", "models", "name", "m", "fallbacks", (to), "prices",         \
	    "input", 1, "output", 1)
	refused_naming("PATCH", own, FALLS("slips/m"), "models[0].fallbacks");
	refused_naming("PATCH", own, FALLS("slips/gone"), "models[0].fallbacks");
	refused_naming("PATCH", own, FALLS("nobody"), "models[0].fallbacks");
	static const char *const rows[] = { "slips", "ok@slips", "slips/ok@thre", "slip/*", "slips/ok*",
		"*/ok@slips" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused_naming("PUT", routing, js_pack("{s:[s]}", "allow", rows[i]), "allow");
	refused_naming(
	    "PUT", routing, js_pack("{s:{s:[s],s:[s]}}", "aliases", "a", "b", "b", "a"), "aliases");
	refused_naming("PATCH", own, js_pack("{s:[s]}", "addKeys", "sk-upstream-slips-1"), "addKeys[0]");
	refused_naming("PATCH", own, js_pack("{s:[s,s]}", "addKeys", "sk-new", "sk-new"), "addKeys[1]");
	auto_web struct web w = { 0 };
	web_json(&st, "PUT", routing, org.key,
	    js_pack("{s:[s,s,s,s], s:{s:[s]}}", "allow", "slips/*", "slips/ok@two", "swift", "*", "aliases",
		"swift", "slips/ok@two"),
	    &w);
	assert_int_equal(w.status, 200);
	changed("slips", FALLS("swift"));
	web_free(&w);
	web_json(&st, "DELETE", own, org.key, NULL, &w); /* what stood there stays as it was said */
	assert_int_equal(w.status, 200);
	web_free(&w);
	web_json(&st, "PUT", routing, org.key, js_pack("{s:[s,s]}", "allow", "slips/*", "*"), &w);
	assert_int_equal(w.status, 200);
	web_free(&w);
	web_json(&st, "PUT", routing, org.key, js_pack("{s:b,s:{}}", "allowAll", 1, "aliases"), &w);
	assert_int_equal(w.status, 200);
}

static size_t listed(const char *query, const char *first, bool more)
{
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	web_json(&st, "GET", mem_fmt(m, "/v1/models%s", query), org.key, NULL, &w);
	assert_int_equal(w.status, 200);
	assert_string_equal(js_str_or(w.json, "first_id", ""), first);
	assert_int_equal(js_bool(w.json, "has_more", !more), more);
	return json_array_size(js_get(w.json, "data"));
}

/* As the vendors' own lists are read: a page at a time, forth and back. */
static void the_list_of_models_is_read_in_pages(void **s)
{
	(void)s;
	gw_provider(&st, vendor, org.key, "000", "openai-chat", 1, "a b c d"); /* before all others */
	assert_int_equal(listed("?limit=2", "000/a", true), 2);
	assert_int_equal(listed("?limit=2&after=000/b", "000/c", true), 2);
	assert_int_equal(listed("?limit=1&after_id=000/a", "000/b", true), 1);
	assert_int_equal(listed("?limit=2&before_id=000/d", "000/b", true), 2);
	assert_int_equal(listed("?before_id=000/c", "000/a", false), 2);
	assert_int_equal(listed("?after=zzz", "", false), 0);
	assert_true(listed("", "000/a", false) > 4);
	auto_web struct web w = { 0 };
	web_json(&st, "GET", "/v1/models?limit=0", org.key, NULL, &w);
	judge_field(&st, &w, 400, "limit");
}

static void answered_by(const char *key, const char *path, const char *what)
{
	int64_t end = clock_ms() + PATIENCE_MS;
	for (;;) {
		auto_web struct web w = { 0 };
		struct web_req q = { .method = "GET", .path = path, .key = key };
		web_do(&st, &q, &w);
		if (strstr(w.body, what) != NULL)
			return;
		if (clock_ms() > end)
			fail_msg("%s: %s", q.path, w.body);
		(void)usleep(20000);
	}
}

static void a_runs_token_calls_for_the_run_and_within_its_budget(void **s) /* MOD-9, MOD-4 */
{
	(void)s;
	static const char *const later[] = { "Prefer: respond-async", NULL };
	auto_mem struct mem *m = mem_new();
	auto_web struct web run = { 0 }, token = { 0 }, w = { 0 }, budget = { 0 }, over = { 0 },
			    ended = { 0 };
	gw_provider(&st, vendor, org.key, "runs", "openai-chat", 1, "500-once@run ok@run");
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org.key,
		.headers = later,
		.body = "{\"tool\":\"python\",\"prompt\":\"import time; time.sleep(300)\"}" };
	web_do(&st, &q, &run);
	assert_int_equal(run.status, 202);
	const char *id = js_str(run.json, "run"), *session = js_str(run.json, "session");
	web_json(&st, "POST", mem_fmt(m, "/v1/bots/%s/tokens", id), org.key, NULL, &token);
	if (token.status != 201)
		fail_msg("%ld %s", token.status, token.body);
	const char *key = js_str(token.json, "token");
	assert_int_equal(ask(1, key, "runs/500-once@run", &w), 200);
	assert_int_equal(ask(0, key, "runs/ok@run", &over), 200);
	web_free(&over);
	/* Its session tells of the one that needed more than one attempt; the run has a price; its calls are one trace. */
	answered_by(org.key, mem_fmt(m, "/v1/traces?session=%s", session), "\"spans\":2");
	auto_buf struct buf told = BUF(1 << 16);
	stack_sql(&st,
	    mem_fmt(m,
		"SELECT count(*) FROM events WHERE session = '%s' AND payload::text LIKE '%%model call%%'",
		session),
	    &told);
	assert_int_equal(atoi(buf_c(&told)), 1);
	answered_by(org.key, "/v1/billing/usage?by=run", id);
	/* Nothing else, and no more than its budget. */
	web_json(&st, "GET", "/v1/bots", key, NULL, &over);
	assert_int_equal(over.status, 403);
	web_json(&st, "PUT", mem_fmt(m, "/v1/billing/budgets/%s", id), org.key,
	    js_pack("{s:s,s:i}", "period", "total", "hardMillicents", 1), &budget);
	if (budget.status != 200)
		fail_msg("%ld %s", budget.status, budget.body);
	web_free(&over);
	assert_int_equal(ask(0, key, "runs/ok@run", &over), 429); /* MOD-10 */
	assert_int_equal(ask(0, org.key, "runs/ok@run", &w), 200);
	web_free(&w);
	web_json(&st, "POST", mem_fmt(m, "/v1/bots/%s/stop", id), org.key, NULL, &w);
	int64_t end = clock_ms() + PATIENCE_MS;
	while (ask(0, key, "runs/ok@run", &ended) != 401 && clock_ms() < end) {
		web_free(&ended);
		(void)usleep(50000);
	}
	assert_int_equal(ended.status, 401); /* it has ended with the run */
}

/* Of all that these tests gave the service, in its logs, rows and traces. The last one. */
static void no_secret_of_a_provider_is_seen_anywhere(void **s) /* SEC-6 */
{
	(void)s;
	char path[512];
	(void)snprintf(path, sizeof path, "%s/log", st.dir);
	DIR *d = opendir(path);
	assert_non_null(d);
	int files = 0;
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		struct err e = { 0 };
		auto_buf struct buf text = BUF(64 << 20);
		(void)snprintf(path, sizeof path, "%s/log/%s", st.dir, f->d_name);
		if (f->d_name[0] == '.' || file_read(path, &text, &e) != 0)
			continue;
		files++;
		if (strstr(buf_c(&text), "sk-upstream-") != NULL)
			fail_msg("%s holds a provider's key", f->d_name);
	}
	(void)closedir(d);
	assert_true(files > 5);
	static const char *const places[] = {
		"SELECT count(*) FROM spans t WHERE t::text LIKE '%sk-upstream-%'",
		"SELECT count(*) FROM events t WHERE t::text LIKE '%sk-upstream-%'",
		"SELECT count(*) FROM once t WHERE t::text LIKE '%sk-upstream-%'",
		"SELECT count(*) FROM model_keys t WHERE t::text LIKE '%sk-upstream-%'", NULL
	};
	for (const char *const *p = places; *p != NULL; p++) {
		auto_buf struct buf out = BUF(1 << 16);
		stack_sql(&st, *p, &out);
		assert_int_equal(atoi(buf_c(&out)), 0);
	}
}

static int setup(void **s)
{
	(void)s;
	vendor = gw_up(&st, 2, 1, NULL);
	stack_org(&st, &org);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	gw_down(&st, vendor);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_provider_that_is_switched_off_is_used_no_more_at_any_host),
		cmocka_unit_test(a_key_that_cools_at_one_host_is_left_alone_at_the_other),
		cmocka_unit_test(aliases_fallbacks_and_allowlists_are_an_orgs_own),
		cmocka_unit_test(what_leads_nowhere_is_refused_by_its_field),
		cmocka_unit_test(the_list_of_models_is_read_in_pages),
		cmocka_unit_test(a_runs_token_calls_for_the_run_and_within_its_budget),
		cmocka_unit_test(no_secret_of_a_provider_is_seen_anywhere),
	};
	return cmocka_run_group_tests_name("models", tests, setup, teardown);
}
