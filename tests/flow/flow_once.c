/* HTTP-7 through nginx and two api processes: what is sent again with the same Idempotency-Key is done once. */
#include "../span.h"
#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "judge.h"
#include "runs.h"
#include "sbx.h"

enum { TWINS = 8 };

static struct stack st;
static struct stack_org org;

static void send_key(
    const char *path, const char *key, const char *body, int api, const char *more, struct web *w)
{
	char header[400];
	(void)snprintf(header, sizeof header, "Idempotency-Key: %s", key);
	const char *const headers[] = { header, more, NULL };
	struct web_req q = {
		.method = "POST", .path = path, .key = org.key, .headers = headers, .body = body, .api = api
	};
	web_do(&st, &q, w);
}

static bool replayed(const struct web *w)
{
	char value[20];
	return web_header(w, "Idempotent-Replayed", value, sizeof value) && strcmp(value, "true") == 0;
}

static long long number(const char *sql)
{
	auto_buf struct buf out = BUF(1000);
	char text[600];
	sbx_with(sql, org.slug, text, sizeof text);
	stack_sql(&st, text, &out);
	return strtoll(buf_c(&out), NULL, 10);
}

static void the_first_answer_comes_again_from_the_other_host(void **s)
{
	(void)s;
	auto_web struct web a = { 0 }, b = { 0 }, other = { 0 }, reused = { 0 };
	send_key("/v1/git/repos", "repo-1", "{\"name\":\"one\"}", 0, NULL, &a);
	assert_int_equal(a.status, 201);
	assert_false(replayed(&a));
	send_key("/v1/git/repos", "repo-1", "{ \"name\" : \"one\" }", 1, NULL, &b);
	assert_int_equal(b.status, 201);
	assert_true(replayed(&b));
	assert_true(json_equal(a.json, b.json));
	send_key("/v1/git/repos", "repo-2", "{\"name\":\"one\"}", 1, NULL, &other);
	judge_refusal(&st, &other, 409);
	assert_string_equal(web_error(&other, "code"), "conflict");
	send_key("/v1/git/repos", "repo-1", "{\"name\":\"two\"}", 1, NULL, &reused);
	judge_field(&st, &reused, 409, "Idempotency-Key");
	assert_string_equal(web_error(&reused, "code"), "idempotency_key_reused");
}

static void a_key_that_is_none_is_refused_by_its_name(void **s)
{
	(void)s;
	char longest[300];
	memset(longest, 'k', sizeof longest);
	longest[256] = 0;
	const char *const bad[] = { longest, "two words", "\xc3\xa4" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		send_key("/v1/git/repos", bad[i], "{\"name\":\"bad\"}", 0, NULL, &w);
		judge_field(&st, &w, 400, "Idempotency-Key");
	}
}

/* As a second Authorization, which nginx refuses: which of them is meant nobody knows. */
static void two_keys_are_refused_by_their_name(void **s)
{
	(void)s;
	static const char *const seconds[] = { "Idempotency-Key: b", "Idempotency-Key: a" };
	for (int i = 0; i < 2; i++) {
		auto_web struct web w = { 0 };
		send_key("/v1/git/repos", "a", "{\"name\":\"two-keys\"}", 0, seconds[i], &w);
		judge_field(&st, &w, 400, "Idempotency-Key");
	}
	assert_int_equal(number("SELECT count(*) FROM once WHERE org = '@' AND key IN ('a', 'b')"), 0);
}

/* The secret was shown once; the 409 says what was made. */
static void a_secret_is_not_shown_again(void **s)
{
	(void)s;
	auto_web struct web repo = { 0 };
	web_json(&st, "POST", "/v1/git/repos", org.key, js_pack("{s:s}", "name", "granted"), &repo);
	static const char *const posts[][2] = { { "/v1/keys", "{\"name\":\"ci\"}" },
		{ "/v1/git/repos/granted/grants", "{\"ref\":\"agent/x\"}" } };
	for (int i = 0; i < 2; i++) {
		char key[20];
		(void)snprintf(key, sizeof key, "secret-%d", i);
		auto_web struct web a = { 0 }, b = { 0 };
		send_key(posts[i][0], key, posts[i][1], 0, NULL, &a);
		assert_int_equal(a.status, 201);
		send_key(posts[i][0], key, posts[i][1], 1, NULL, &b);
		judge_field(&st, &b, 409, "Idempotency-Key");
		assert_string_equal(web_error(&b, "code"), "answer_was_secret");
		assert_non_null(strstr(web_error(&b, "message"), js_str(a.json, "id")));
		const char *secret = js_str_or(a.json, "key", js_str_or(a.json, "grant", "?"));
		assert_null(strstr(b.body, secret));
		assert_int_equal(number("SELECT count(*) FROM once WHERE org = '@' AND body ~ 'g[kg]_'"), 0);
	}
}

/* ---- a run */

static int until_started(void *arg, const char *p, size_t n)
{
	struct buf *b = arg;
	return buf_add(b, p, n) != 0 || strstr(buf_c(b), "\"phase\":\"start\"") != NULL ? -1 : 0;
}

static void a_repeated_post_attaches_to_the_run_it_started(void **s)
{
	(void)s;
	static const char body[] = "{\"tool\":\"python\",\"prompt\":\"print('once')\"}";
	static const char *const headers[] = { "Idempotency-Key: run-1", NULL };
	auto_buf struct buf seen = BUF(1 << 20);
	auto_web struct web cut = { 0 }, again = { 0 }, async = { 0 };
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org.key,
		.headers = headers,
		.body = body,
		.on_data = until_started,
		.arg = &seen };
	web_do(&st, &q, &cut);
	send_key("/v1/coding-tasks", "run-1", body, 1, NULL, &again);
	assert_int_equal(again.status, 200);
	assert_true(replayed(&again));
	assert_int_equal(strncmp(again.body, buf_c(&seen), strcspn(buf_c(&seen), "\n")), 0); /* from seq 1 */
	assert_non_null(strstr(again.body, "\"type\":\"result\""));
	send_key("/v1/coding-tasks", "run-1", body, 0, "Prefer: respond-async", &async);
	assert_int_equal(async.status, 202);
	assert_non_null(strstr(buf_c(&seen), js_str(async.json, "run")));
	assert_int_equal(number("SELECT count(*) FROM runs WHERE org = '@'"), 1);
}

/* A failure is no answer: with the same key it may be tried again. */
static void a_refusal_leaves_the_key_free(void **s)
{
	(void)s;
	auto_web struct web a = { 0 }, b = { 0 };
	send_key("/v1/coding-tasks", "free-1", "{\"tool\":\"claude\",\"prompt\":\"x\"}", 0, NULL, &a);
	judge_refusal(&st, &a, 503);
	send_key("/v1/coding-tasks", "free-1", "{\"tool\":\"python\",\"prompt\":\"print(1)\"}", 1,
	    "Prefer: respond-async", &b);
	assert_int_equal(b.status, 202);
	assert_false(replayed(&b));
}

struct twin {
	pthread_t thread;
	const char *path, *key, *body;
	int api;
	struct web w;
};

static void *twin(void *arg)
{
	struct twin *t = arg;
	send_key(t->path, t->key, t->body, t->api, "Prefer: respond-async", &t->w);
	return NULL;
}

/* All at once on both hosts: one is done; the others get its answer or are told to ask again. */
static void twins_on_two_hosts_make_one(void **s)
{
	(void)s;
	static const char *const posts[][3] = {
		{ "/v1/coding-tasks", "{\"tool\":\"python\",\"prompt\":\"print('twin')\"}", "run" },
		{ "/v1/git/repos", "{\"name\":\"twin\"}", "cloneUrl" },
		{ "/v1/git/repos/granted/push",
		    "{\"branch\":\"main\",\"message\":\"twin\",\"files\":[{\"path\":\"a\",\"content\":\"b\"}]"
		    "}",
		    "commit" },
		{ "/v1/sandboxes", "{\"class\":\"exec\"}", "id" },
	};
	for (size_t p = 0; p < sizeof posts / sizeof posts[0]; p++) {
		struct twin t[TWINS] = { 0 };
		char key[20], retry[20];
		(void)snprintf(key, sizeof key, "twins-%zu", p);
		for (int i = 0; i < TWINS; i++) {
			t[i] = (struct twin){
				.path = posts[p][0], .key = key, .body = posts[p][1], .api = i % 2
			};
			assert_int_equal(pthread_create(&t[i].thread, NULL, twin, &t[i]), 0);
		}
		char same[300] = "";
		for (int i = 0; i < TWINS; i++) {
			(void)pthread_join(t[i].thread, NULL);
			const struct web *w = &t[i].w;
			if (w->status == 409) {
				assert_string_equal(web_error(w, "code"), "idempotency_key_in_use");
				assert_true(web_header(w, "Retry-After", retry, sizeof retry));
			} else {
				const char *made = js_str(w->json, posts[p][2]);
				if (made == NULL)
					fail_msg("%s: %ld %s", posts[p][0], w->status, w->body);
				if (same[0] == 0)
					(void)snprintf(same, sizeof same, "%s", made);
				assert_string_equal(made, same);
			}
			web_free(&t[i].w);
		}
		assert_true(same[0] != 0);
		if (strcmp(posts[p][2], "id") == 0)
			sbx_end(&st, org.key, same);
	}
	assert_int_equal(number("SELECT count(*) FROM runs WHERE org = '@' AND prompt ~ 'twin'"), 1);
	assert_int_equal(number("SELECT count(*) FROM sandboxes WHERE org = '@' AND session IS NULL"), 1);
}

/* ---- commands */

/* A command has an effect each time it runs: it runs once, for who waits and for who reads. */
static void a_repeated_command_runs_once(void **s)
{
	(void)s;
	char sbx[40], body[300];
	sbx_lease(&st, org.key, NULL, sbx);
	for (int stream = 0; stream < 2; stream++) {
		char key[20];
		(void)snprintf(key, sizeof key, "cmd-%d", stream);
		(void)snprintf(body, sizeof body,
		    "{\"id\":\"%s\",\"command\":\"echo x >> f%d; sleep %d; wc -l < f%d\",\"stream\":%s}", sbx,
		    stream, 1 + span_room_ms(200) / 1000, stream, stream == 1 ? "true" : "false");
		struct twin t = { .path = "/v1/sandboxes/run", .key = key, .body = body, .api = 0 };
		auto_web struct web b = { 0 }, later = { 0 };
		assert_int_equal(pthread_create(&t.thread, NULL, twin, &t), 0);
		char sql[200];
		(void)snprintf(sql, sizeof sql, "SELECT count(*) FROM once WHERE org = '%s' AND key = '%s'",
		    org.slug, key);
		runs_wait_sql(&st, sql, "1");
		send_key(t.path, key, body, 1, NULL, &b);
		(void)pthread_join(t.thread, NULL);
		send_key(t.path, key, body, 1, NULL, &later);
		assert_int_equal(t.w.status, 200);
		assert_int_equal(b.status, 200);
		assert_int_equal(later.status, 200);
		if (stream == 0) {
			assert_string_equal(js_str(t.w.json, "stdout"), "1\n");
			assert_string_equal(js_str(b.json, "id"), js_str(t.w.json, "id"));
			assert_string_equal(js_str(b.json, "stdout"), "1\n");
			assert_true(json_equal(later.json, t.w.json));
		} else {
			assert_non_null(strstr(b.body, "\"data\":\"1\\n\""));
			assert_non_null(strstr(b.body, "\"type\":\"start\""));
			assert_non_null(strstr(b.body, "\"type\":\"exit\""));
			assert_non_null(strstr(later.body, "\"type\":\"exit\""));
		}
		web_free(&t.w);
	}
	sbx_end(&st, org.key, sbx);
}

/* What a line of `sh` says in a sandbox, without a key. */
static void says(const char *sbx, const char *line, const char *want)
{
	auto_web struct web w = { 0 };
	web_json(
	    &st, "POST", "/v1/sandboxes/run", org.key, js_pack("{s:s,s:s}", "id", sbx, "command", line), &w);
	assert_int_equal(w.status, 200);
	assert_string_equal(js_str(w.json, "stdout"), want);
}

/* An answer that is not stored is made again from what the sandbox holds, and nothing runs again. */
static void a_long_answer_is_read_from_the_sandbox_again(void **s)
{
	(void)s;
	char sbx[40], body[300];
	auto_web struct web a = { 0 }, b = { 0 };
	sbx_lease(&st, org.key, NULL, sbx);
	(void)snprintf(body, sizeof body,
	    "{\"id\":\"%s\",\"command\":\"echo x >> ran; head -c 300000 /dev/zero | tr '\\\\0' y\"}", sbx);
	send_key("/v1/sandboxes/run", "cmd-long", body, 0, NULL, &a);
	assert_int_equal(a.status, 200);
	assert_int_equal(strspn(js_str(a.json, "stdout"), "y"), 300000);
	assert_int_equal(
	    number("SELECT count(*) FROM once WHERE org = '@' AND key = 'cmd-long' AND status IS NULL"), 1);
	for (int i = 0; i < 2; i++) {
		send_key("/v1/sandboxes/run", "cmd-long", body, 1 - i, NULL, &b);
		assert_int_equal(b.status, 200);
		assert_true(replayed(&b));
		assert_true(json_equal(a.json, b.json));
		web_free(&b);
	}
	says(sbx, "cat ran", "x\n");
	sbx_end(&st, org.key, sbx);
}

/* Refused as its directory is not there; once it is, the same request is a first one. */
static void a_command_that_was_refused_leaves_the_key_free(void **s)
{
	(void)s;
	char sbx[40], body[300];
	auto_web struct web a = { 0 }, b = { 0 }, c = { 0 };
	sbx_lease(&st, org.key, NULL, sbx);
	(void)snprintf(body, sizeof body,
	    "{\"id\":\"%s\",\"command\":\"echo x >> ../ran; cat ../ran\",\"dir\":\"later\"}", sbx);
	send_key("/v1/sandboxes/run", "cmd-refused", body, 0, NULL, &a);
	judge_refusal(&st, &a, 404);
	assert_int_equal(number("SELECT count(*) FROM once WHERE org = '@' AND key = 'cmd-refused'"), 0);
	says(sbx, "mkdir later; ls", "later\n"); /* nothing ran */
	send_key("/v1/sandboxes/run", "cmd-refused", body, 1, NULL, &b);
	assert_int_equal(b.status, 200);
	assert_false(replayed(&b));
	assert_string_equal(js_str(b.json, "stdout"), "x\n");
	send_key("/v1/sandboxes/run", "cmd-refused", body, 0, NULL, &c);
	assert_true(replayed(&c));
	assert_true(json_equal(b.json, c.json));
	says(sbx, "cat ran", "x\n");
	sbx_end(&st, org.key, sbx);
}

/* ---- crashes */

/* REL-1: the run is there, its client was told nothing; it attaches at the other host. */
static void a_host_that_dies_before_it_answers_has_started_one_run(void **s)
{
	(void)s;
	struct twin t = { .path = "/v1/coding-tasks",
		.key = "crash-1",
		.body = "{\"tool\":\"python\",\"prompt\":\"print('crash')\"}" };
	stack_crash_arm(&st, "once.kept");
	assert_int_equal(pthread_create(&t.thread, NULL, twin, &t), 0);
	assert_true(stack_crash_reached(&st, "once.kept"));
	stack_kill(&st, "api1");
	stack_crash_release(&st, "once.kept");
	(void)pthread_join(t.thread, NULL);
	assert_int_not_equal(t.w.status, 202);
	auto_web struct web again = { 0 };
	send_key(t.path, t.key, t.body, 1, "Prefer: respond-async", &again);
	assert_int_equal(again.status, 202);
	assert_true(replayed(&again));
	assert_int_equal(number("SELECT count(*) FROM runs WHERE org = '@' AND prompt ~ 'crash'"), 1);
	web_free(&t.w);
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* An op without a transaction of its own is done again, and what it does twice is the same. */
static void a_host_that_dies_before_it_stores_an_answer_commits_nothing_twice(void **s)
{
	(void)s;
	struct twin t = {
		.path = "/v1/git/repos/granted/push",
		.key = "crash-2",
		.body =
		    "{\"branch\":\"main\",\"message\":\"m\",\"files\":[{\"path\":\"c\",\"content\":\"d\"}]}"
	};
	stack_crash_arm(&st, "once.done");
	assert_int_equal(pthread_create(&t.thread, NULL, twin, &t), 0);
	assert_true(stack_crash_reached(&st, "once.done"));
	auto_web struct web twin_ = { 0 }, again = { 0 }, third = { 0 };
	send_key(t.path, t.key, t.body, 1, NULL, &twin_);
	judge_field(&st, &twin_, 409, "Idempotency-Key");
	char *tip = runs_tip(&st, &org, "granted", "main");
	stack_kill(&st, "api1");
	stack_crash_release(&st, "once.done");
	(void)pthread_join(t.thread, NULL);
	send_key(t.path, t.key, t.body, 1, NULL, &again);
	assert_int_equal(again.status, 200);
	assert_string_equal(js_str(again.json, "commit"), tip);
	send_key(t.path, t.key, t.body, 1, NULL, &third);
	assert_true(replayed(&third));
	free(tip);
	web_free(&t.w);
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* Written down and never sent: nobody can say so for certain, so it is not run, and a new key is asked for. */
static void a_command_that_its_sandbox_does_not_know_is_409_outcome_unknown(void **s)
{
	(void)s;
	char sbx[40], body[300];
	sbx_lease(&st, org.key, NULL, sbx);
	(void)snprintf(body, sizeof body, "{\"id\":\"%s\",\"command\":\"echo x >> ran; cat ran\"}", sbx);
	struct twin t = { .path = "/v1/sandboxes/run", .key = "crash-3", .body = body };
	stack_crash_arm(&st, "once.kept");
	assert_int_equal(pthread_create(&t.thread, NULL, twin, &t), 0);
	assert_true(stack_crash_reached(&st, "once.kept"));
	stack_kill(&st, "api1");
	stack_crash_release(&st, "once.kept");
	(void)pthread_join(t.thread, NULL);
	assert_int_not_equal(t.w.status, 200);
	for (int i = 0; i < 2; i++) {
		auto_web struct web again = { 0 };
		send_key(t.path, t.key, body, 1, NULL, &again);
		judge_refusal(&st, &again, 409);
		assert_string_equal(web_error(&again, "code"), "outcome_unknown");
	}
	web_free(&t.w);
	stack_start(&st, "api1");
	stack_ready(&st);
	says(sbx, "ls", "");
	auto_web struct web fresh = { 0 };
	send_key(t.path, "crash-4", body, 1, NULL, &fresh);
	assert_int_equal(fresh.status, 200);
	assert_string_equal(js_str(fresh.json, "stdout"), "x\n");
	sbx_end(&st, org.key, sbx);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, NULL);
	stack_org(&st, &org);
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
		cmocka_unit_test(the_first_answer_comes_again_from_the_other_host),
		cmocka_unit_test(a_key_that_is_none_is_refused_by_its_name),
		cmocka_unit_test(two_keys_are_refused_by_their_name),
		cmocka_unit_test(a_secret_is_not_shown_again),
		cmocka_unit_test(a_repeated_post_attaches_to_the_run_it_started),
		cmocka_unit_test(a_refusal_leaves_the_key_free),
		cmocka_unit_test(twins_on_two_hosts_make_one),
		cmocka_unit_test(a_repeated_command_runs_once),
		cmocka_unit_test(a_long_answer_is_read_from_the_sandbox_again),
		cmocka_unit_test(a_command_that_was_refused_leaves_the_key_free),
		cmocka_unit_test(a_host_that_dies_before_it_answers_has_started_one_run),
		cmocka_unit_test(a_host_that_dies_before_it_stores_an_answer_commits_nothing_twice),
		cmocka_unit_test(a_command_that_its_sandbox_does_not_know_is_409_outcome_unknown),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
