/*
 * flow_bad_clients.c - clients that are slow, many, or ask for much: what they cost the others. One byte a minute is told here as
 * one byte in half a second, for as long as the others are watched; 2 000 connections at once; a session of very many
 * events (1 000 000 with GATEHOUSE_HEAVY=1).
 */
#include "../span.h"
#include "../t.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "runs.h"

enum {
	SLOW = 60, /* three kinds of them, each more than there are workers */
	BYTE_MS = 500,
	ROUNDS = 8,
	FAST_MS = 3000, /* for anybody else's request, on a machine that is busy with other tests */
	MANY = 2000,
	MANY_S = 600,
	WAVE = 100,
	ROWS = 200000,
	ROWS_HEAVY = 1000000,
	GROWTH_KIB = 300 * 1024, /* of the sanitizer build, which keeps what it freed for a while */
};

static struct stack stack;
static struct stack_org acme;

/* ---- one byte at a time */

static size_t head_of(int kind, char *out, size_t n)
{
	static const char *const what[] = { "GET /v1/bots", "POST /v1/coding-tasks", NULL };
	char push[120];
	(void)snprintf(push, sizeof push, "POST /v1/git/%s/slow.git/git-receive-pack", acme.slug);
	int k = snprintf(out, n, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n%s",
	    what[kind] == NULL ? push : what[kind], acme.key,
	    kind == 0 ? "X-Slow: "
		: kind == 1
		? "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
		: "Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 500000\r\n\r\n00");
	return (size_t)k;
}

static CURL *slow_one(int kind)
{
	char head[600];
	size_t n = head_of(kind, head, sizeof head), sent = 0;
	CURL *c = curl_easy_init();
	(void)curl_easy_setopt(c, CURLOPT_URL, stack.url[0]);
	(void)curl_easy_setopt(c, CURLOPT_CONNECT_ONLY, 1L);
	(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, stack.ca);
	assert_int_equal(curl_easy_perform(c), CURLE_OK);
	assert_int_equal(curl_easy_send(c, head, n, &sent), CURLE_OK);
	assert_int_equal(sent, n);
	return c;
}

/* SEC-5, STR-6: whoever sends slowly holds up himself. */
static void who_sends_a_byte_at_a_time_delays_nobody_else(void **s)
{
	(void)s;
	CURL *slow[SLOW];
	runs_repo(&stack, &acme, "slow");
	for (int i = 0; i < SLOW; i++)
		slow[i] = slow_one(i % 3);
	for (int round = 0; round < ROUNDS; round++) {
		struct span before = span_begin();
		size_t sent;
		for (int i = 0; i < SLOW; i++) /* one that was cut by now may be */
			(void)curl_easy_send(slow[i], " ", 1, &sent);
		auto_web struct web w = { 0 };
		web_json(&stack, "GET", "/v1/bots", acme.member, NULL, &w);
		assert_int_equal(w.status, 200);
		assert_in_range(span_ms(&before), 0, FAST_MS);
		int64_t took = clock_ms() - before.began_ms;
		if (took < BYTE_MS)
			(void)poll(NULL, 0, (int)(BYTE_MS - took));
	}
	/* A whole run beside them, with its fetch and its push. */
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&stack, &acme, runs_task("python", "slow", "open('a.txt', 'a').write('two\\n')"), &r);
	runs_check(&r, "result");
	for (int i = 0; i < SLOW; i++)
		curl_easy_cleanup(slow[i]);
}

/* ---- many at once */

static size_t drop(char *p, size_t size, size_t n, void *arg)
{
	(void)p, (void)arg;
	return size * n;
}

static CURL *many_one(struct curl_slist *headers)
{
	CURL *c = curl_easy_init();
	(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, stack.ca);
	(void)curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)MANY_S);
	(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, drop);
	return c;
}

/* n requests at the same time, each on a connection of its own; fresh: new ones, which are kept. */
static void all_at_once(CURLM *multi, CURL **all, int n, const char *path, bool fresh)
{
	char url[100];
	(void)snprintf(url, sizeof url, "%s%s", stack.url[0], path);
	for (int i = 0; i < n; i++) {
		(void)curl_easy_setopt(all[i], CURLOPT_URL, url);
		(void)curl_easy_setopt(all[i], CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
		assert_int_equal(curl_multi_add_handle(multi, all[i]), CURLM_OK);
	}
	for (int running = 1; running > 0;) {
		assert_int_equal(curl_multi_perform(multi, &running), CURLM_OK);
		(void)curl_multi_poll(multi, NULL, 0, 100, NULL);
	}
	for (int i = 0; i < n; i++)
		(void)curl_multi_remove_handle(multi, all[i]);
}

/* Each is served, or told at once to come back. Their handshakes come before, as they cost this client more than the server. */
static void two_thousand_connections_at_once_are_all_answered(void **s)
{
	(void)s;
	static CURL *all[MANY];
	char key[200];
	const struct rlimit files = { .rlim_cur = 3 * MANY, .rlim_max = 3 * MANY };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	(void)snprintf(key, sizeof key, "Authorization: Bearer %s", acme.member);
	struct curl_slist *headers = curl_slist_append(NULL, key);
	CURLM *multi = curl_multi_init();
	(void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)MANY);
	for (int i = 0; i < MANY; i++)
		all[i] = many_one(headers);
	for (int i = 0; i < MANY; i += WAVE)
		all_at_once(multi, all + i, WAVE, "/health", true);
	int64_t before = clock_ms();
	all_at_once(multi, all, MANY, "/v1/bots", false);
	int64_t took = clock_ms() - before;
	int served = 0, refused = 0, fresh = 0;
	for (int i = 0; i < MANY; i++) {
		long status = 0, made = 0;
		curl_off_t retry = 0;
		(void)curl_easy_getinfo(all[i], CURLINFO_RESPONSE_CODE, &status);
		(void)curl_easy_getinfo(all[i], CURLINFO_RETRY_AFTER, &retry);
		(void)curl_easy_getinfo(all[i], CURLINFO_NUM_CONNECTS, &made);
		served += status == 200;
		refused += status == 503 && retry > 0;
		fresh += made > 0;
		curl_easy_cleanup(all[i]);
	}
	(void)curl_multi_cleanup(multi);
	curl_slist_free_all(headers);
	print_message("%d connections: %d served, %d told to come back, %.1f s\n", MANY - fresh, served,
	    refused, (double)took / 1000.0);
	assert_int_equal(fresh, 0);
	assert_int_equal(served + refused, MANY);
	auto_web struct web w = { 0 };
	web_json(&stack, "GET", "/v1/bots", acme.member, NULL, &w);
	assert_int_equal(w.status, 200);
}

/* ---- a long session */

static long rss_kib(void)
{
	char path[64];
	auto_buf struct buf b = BUF(65536);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)stack_pid(&stack, "api1"));
	assert_int_equal(file_read(path, &b, &e), 0);
	const char *at = strstr(buf_c(&b), "VmRSS:");
	assert_non_null(at);
	return strtol(at + 6, NULL, 10);
}

struct reading {
	long lines, most;
};

static int count(void *arg, const char *p, size_t n)
{
	struct reading *r = arg;
	for (size_t i = 0; i < n; i++)
		r->lines += p[i] == '\n';
	return r->lines >= r->most ? -1 : 0;
}

/* Lines behind `after`, at most `most`: how many came; in *ms how long it took. */
static long lines_after(const char *session, long after, long most, int64_t *ms)
{
	char path[200];
	struct reading r = { .most = most };
	auto_web struct web w = { 0 };
	struct span before = span_begin();
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream?after=%ld", session, after);
	web_do(&stack,
	    &(struct web_req){
		.method = "GET", .path = path, .key = acme.member, .on_data = count, .arg = &r },
	    &w);
	*ms = span_ms(&before);
	return r.lines;
}

static int64_t timed(const char *path)
{
	auto_web struct web w = { 0 };
	struct span before = span_begin();
	web_json(&stack, "GET", path, acme.member, NULL, &w);
	assert_int_equal(w.status, 200);
	return span_ms(&before);
}

static void a_session_of_very_many_events_is_read_anywhere_in_no_time(void **s)
{
	(void)s;
	static const char id[] = "ses_01kb00000000000000000000zz";
	char sql[1200], path[200];
	int64_t end_ms, middle_ms;
	int rows = getenv("GATEHOUSE_HEAVY") != NULL ? ROWS_HEAVY : ROWS;
	(void)snprintf(sql, sizeof sql,
	    "INSERT INTO sessions (id, org, kind, title, root, state, last_seq, created_by, closed_at) "
	    "VALUES ('%s', "
	    "'%s', 'coding', 'long', '%s', 'done', %d, 'ada', now()); INSERT INTO events (session, seq, org, "
	    "kind, "
	    "ends, payload) SELECT '%s', i, '%s', CASE WHEN i = %d THEN 'status' ELSE 'log' END, CASE WHEN i "
	    "= %d THEN "
	    "'done' END, '{\"message\":\"line ' || i || '\"}' FROM generate_series(1, %d) i; ANALYZE events",
	    id, acme.slug, id, rows, id, acme.slug, rows, rows, rows);
	stack_sql(&stack, sql, NULL);
	long before = rss_kib();
	assert_int_equal(lines_after(id, rows - 10, 100, &end_ms), 10);
	assert_in_range(lines_after(id, rows / 2, 20000, &middle_ms), 20000, 40000);
	int64_t list_ms = timed("/v1/agents/sessions");
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s", id);
	int64_t get_ms = timed(path);
	long grown = rss_kib() - before;
	print_message(
	    "%d events: the last ten in %d ms, 20 000 from the middle in %d ms, the list in %d ms, the "
	    "session in %d ms; the api grew by %ld KiB\n",
	    rows, (int)end_ms, (int)middle_ms, (int)list_ms, (int)get_ms, grown);
	assert_in_range(end_ms, 0, FAST_MS);
	assert_in_range(list_ms, 0, FAST_MS);
	assert_in_range(get_ms, 0, FAST_MS);
	assert_in_range(middle_ms, 0, 5 * FAST_MS);
	assert_true(grown < GROWTH_KIB);
}

/* However long it takes to make very many of them here. */
static void keep_connections(void)
{
	static const char at[] = "access_log off;";
	char path[128];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 20), more = BUF(1 << 20);
	(void)snprintf(path, sizeof path, "%s/nginx/nginx.conf", stack.dir);
	assert_int_equal(file_read(path, &text, &e), 0);
	const char *found = strstr(buf_c(&text), at);
	assert_non_null(found);
	(void)buf_fmt(
	    &more, "%.*skeepalive_timeout 900s;\n  %s", (int)(found - buf_c(&text)), buf_c(&text), found);
	assert_int_equal(file_write(path, more.p, more.n, 0644, &e), 0);
	stack_reload_nginx(&stack);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &acme);
	keep_connections();
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_sends_a_byte_at_a_time_delays_nobody_else),
		cmocka_unit_test(two_thousand_connections_at_once_are_all_answered),
		cmocka_unit_test(a_session_of_very_many_events_is_read_anywhere_in_no_time),
	};
	return cmocka_run_group_tests_name("bad clients", tests, setup, teardown);
}
