/* What nginx refuses by itself is told in the one envelope, too (HTTP-2, HTTP-4, HTTP-5): raw bytes, as no client would send them. */
#include "../t.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "judge.h"

enum { ANSWER_MS = 60000, LONG = 40000 };

static struct stack st;
static struct stack_org org;

static void wait_for(CURL *c, short events, int64_t deadline)
{
	curl_socket_t fd;
	assert_int_equal(curl_easy_getinfo(c, CURLINFO_ACTIVESOCKET, &fd), CURLE_OK);
	struct pollfd p = { .fd = fd, .events = events };
	assert_true(poll(&p, 1, clock_left_ms(deadline)) > 0);
}

/* A server that has said its word may close while the rest is still under way. */
static void say(CURL *c, const char *p, size_t n)
{
	int64_t deadline = clock_ms() + ANSWER_MS;
	while (n > 0) {
		size_t sent = 0;
		CURLcode rc = curl_easy_send(c, p, n, &sent);
		if (rc == CURLE_AGAIN)
			wait_for(c, POLLOUT, deadline);
		else if (rc != CURLE_OK)
			return;
		p += sent;
		n -= sent;
	}
}

static void hear(CURL *c, struct buf *to)
{
	int64_t deadline = clock_ms() + ANSWER_MS;
	for (;;) {
		char some[4096];
		size_t n = 0;
		CURLcode rc = curl_easy_recv(c, some, sizeof some, &n);
		if (rc == CURLE_AGAIN)
			wait_for(c, POLLIN, deadline);
		else if (rc != CURLE_OK || n == 0)
			return;
		else
			assert_int_equal(buf_add(to, some, n), 0);
	}
}

/* Send these bytes over TLS (or, scheme "http", without) and read the answer until the server closes. */
static void raw(const char *scheme, const char *bytes, struct web *w)
{
	char url[100];
	auto_buf struct buf answer = BUF(1 << 20);
	(void)snprintf(url, sizeof url, "%s%s", scheme, strstr(st.url[0], "://"));
	CURL *c = curl_easy_init();
	(void)curl_easy_setopt(c, CURLOPT_URL, url);
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, st.ca);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(c, CURLOPT_CONNECT_ONLY, 1L);
	assert_int_equal(curl_easy_perform(c), CURLE_OK);
	say(c, bytes, strlen(bytes));
	hear(c, &answer);
	curl_easy_cleanup(c);
	print_message("    %.60s\n", bytes);
	web_parse(&answer, w);
}

static void is_refused(const char *scheme, const char *bytes, long status, const char *code)
{
	auto_web struct web w = { 0 };
	raw(scheme, bytes, &w);
	if (w.json == NULL || w.status != status)
		fail_msg("%.90s: %ld %s", bytes, w.status, w.body);
	judge_refusal(&st, &w, status);
	assert_string_equal(web_error(&w, "code"), code);
	assert_null(strstr(w.body, "nginx"));
}

#define END "Host: x\r\nConnection: close\r\n\r\n"

static void what_is_no_request_is_400(void **s)
{
	(void)s;
	is_refused("https", "what\r\n\r\n", 400, "bad_request");
	is_refused(
	    "https", "GET /v1/bots HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "bad_request"); /* no Host */
	is_refused("https", "GET /v1/bots HTTP/1.1\r\nHost: a\r\n" END, 400, "bad_request");
	is_refused("https", "POST /v1/keys HTTP/1.1\r\nContent-Length: many\r\n" END, 400, "bad_request");
	is_refused("https",
	    "POST /v1/keys HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" END, 400,
	    "bad_request");
	is_refused("https", "GET /v1/%zz HTTP/1.1\r\n" END, 400, "bad_request");
	is_refused("https", "GET /../../etc/passwd HTTP/1.1\r\n" END, 400, "bad_request");
	is_refused("http", "GET /v1/bots HTTP/1.1\r\n" END, 400, "bad_request"); /* without TLS */
}

/* HTTP-2: of methods that nginx itself refuses. */
static void a_method_that_nginx_refuses_is_405_with_allow(void **s)
{
	(void)s;
	static const char *const methods[] = { "TRACE", "CONNECT" };
	for (size_t i = 0; i < 2; i++) {
		char bytes[200], allow[100];
		(void)snprintf(bytes, sizeof bytes, "%s /v1/bots HTTP/1.1\r\n" END, methods[i]);
		is_refused("https", bytes, 405, "method_not_allowed");
		auto_web struct web w = { 0 };
		raw("https", bytes, &w);
		assert_true(web_header(&w, "Allow", allow, sizeof allow));
	}
}

/* Before a byte of the body has come. */
static void a_body_that_is_announced_too_large_is_413(void **s)
{
	(void)s;
	is_refused("https", "POST /v1/keys HTTP/1.1\r\nContent-Length: 33554433\r\n" END, 413, "too_large");
	is_refused("https", "POST /v1/keys HTTP/1.1\r\nContent-Length: 9223372036854775807\r\n" END, 413,
	    "too_large");
}

static void an_address_or_header_that_is_too_long_is_400(void **s)
{
	(void)s;
	auto_buf struct buf b = BUF(LONG + 1000);
	auto_free char *xs = xcalloc(1, LONG + 1);
	memset(xs, 'x', LONG);
	(void)buf_fmt(&b, "GET /v1/%s HTTP/1.1\r\n" END, xs); /* 414 of nginx */
	is_refused("https", buf_c(&b), 400, "bad_request");
	buf_reset(&b);
	(void)buf_fmt(&b, "GET /v1/bots HTTP/1.1\r\nX-Long: %s\r\n" END, xs); /* 494 of nginx */
	is_refused("https", buf_c(&b), 400, "bad_request");
}

static void an_encoding_that_is_not_known_is_400(void **s)
{
	(void)s;
	is_refused("https", "POST /v1/keys HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" END, 400, "bad_request");
	is_refused("https", "GET /v1/bots HTTP/7.0\r\n" END, 400, "bad_request");
}

/* MOD-10: the clients of the three wires are refused in their own dialect by nginx, too, and with what makes them stop or come back. */
static const char *const doors[] = { "/v1/chat/completions", "/v1/responses", "/v1/messages",
	"/v1/messages/count_tokens" };
enum { DOORS = sizeof doors / sizeof doors[0] };

static void at_door(const char *method, const char *path, const char *head, struct web *w)
{
	char bytes[400];
	(void)snprintf(bytes, sizeof bytes, "%s %s HTTP/1.1\r\n%s" END "{}", method, path, head);
	raw("https", bytes, w);
}

static void a_body_too_large_is_told_in_the_dialect_of_its_client(void **s)
{
	(void)s;
	for (int i = 0; i < DOORS; i++) {
		auto_web struct web w = { 0 };
		at_door("POST", doors[i], "Content-Length: 33554433\r\n", &w);
		judge_dialect(&st, &w, doors[i], 413, i < 2 ? "invalid_request_error" : "request_too_large",
		    "request_too_large");
	}
}

/* Chat and responses read the one envelope as their own: a request that is none has no path to rely on. */
static void what_is_no_request_is_told_in_the_dialect_of_messages(void **s)
{
	(void)s;
	for (int i = 2; i < DOORS; i++) {
		auto_web struct web bad = { 0 }, method = { 0 };
		at_door("POST", doors[i], "Content-Length: many\r\n", &bad);
		judge_dialect(&st, &bad, doors[i], 400, "invalid_request_error", NULL);
		at_door("TRACE", doors[i], "", &method);
		judge_dialect(&st, &method, doors[i], 405, "invalid_request_error", NULL);
	}
}

static void away_in_the_dialect_of_its_client(void)
{
	for (int i = 0; i < DOORS; i++) {
		char retry[20];
		auto_web struct web w = { 0 };
		at_door("POST", doors[i], "Content-Length: 2\r\n", &w);
		if (i < 2)
			judge_dialect(&st, &w, doors[i], 503, "server_error", "overloaded");
		else /* what that vendor itself answers then, and the api too */
			judge_dialect(&st, &w, doors[i], 529, "overloaded_error", NULL);
		assert_true(web_header(&w, "Retry-After", retry, sizeof retry));
	}
}

/* STR-3: a browser's EventSource never comes back after an error; what only asks for events by the way is told the truth. */
static void away_for_a_reader_of_events(void)
{
	static const char path[] = "/v1/agents/sessions/stream";
	static const char *const accept[] = { "Accept: text/event-stream", NULL };
	struct web_req q = { .method = "GET", .path = path, .key = org.key, .headers = accept };
	char type[60];
	auto_web struct web w = { 0 }, post = { 0 };
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 200);
	assert_true(web_header(&w, "Content-Type", type, sizeof type));
	assert_string_equal(type, "text/event-stream");
	assert_string_equal(w.body, ": gatehouse is not answering; try again.\nretry: 2000\n\n");
	q.method = "POST";
	web_do(&st, &q, &post);
	judge_refusal(&st, &post, 503);
}

/* HTTP-5, and the same over HTTP/2 as libcurl speaks it. */
static void an_api_that_is_away_is_503_with_retry_after(void **s)
{
	(void)s;
	char retry[20];
	stack_kill(&st, "api1");
	is_refused("https", "GET /v1/bots HTTP/1.1\r\n" END, 503, "unavailable");
	auto_web struct web w = { 0 };
	web_json(&st, "GET", "/v1/bots", org.key, NULL, &w);
	judge_refusal(&st, &w, 503);
	assert_true(web_header(&w, "Retry-After", retry, sizeof retry));
	away_in_the_dialect_of_its_client();
	away_for_a_reader_of_events();
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* HTTP-2: nginx merges slashes and decodes before it looks; what a client wrote is what counts. */
static void no_value_in_a_path_makes_it_another_path(void **s)
{
	(void)s;
	static const struct {
		const char *target;
		long status;
	} rows[] = {
		{ "/v1/agents/sessions//stream", 404 }, /* an empty id: not the stream of the whole org */
		{ "/v1//keys", 404 },
		{ "//v1/keys", 404 },
		{ "/v1/sandboxes/..%2fkeys", 400 },
		{ "/v1/sandboxes/%2e%2e%2Fkeys", 400 },
		{ "/v1/sandboxes/%2e%2e/keys", 400 },
		{ "/v1/sandboxes/../keys", 400 },
		{ "/v1/bots/a%2fstop", 400 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char bytes[400];
		(void)snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nAuthorization: Bearer %s\r\n" END,
		    rows[i].target, org.key);
		is_refused(
		    "https", bytes, rows[i].status, rows[i].status == 404 ? "not_found" : "bad_request");
	}
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 1, 1, 1, NULL);
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
		cmocka_unit_test(what_is_no_request_is_400),
		cmocka_unit_test(a_method_that_nginx_refuses_is_405_with_allow),
		cmocka_unit_test(a_body_that_is_announced_too_large_is_413),
		cmocka_unit_test(a_body_too_large_is_told_in_the_dialect_of_its_client),
		cmocka_unit_test(what_is_no_request_is_told_in_the_dialect_of_messages),
		cmocka_unit_test(an_address_or_header_that_is_too_long_is_400),
		cmocka_unit_test(an_encoding_that_is_not_known_is_400),
		cmocka_unit_test(no_value_in_a_path_makes_it_another_path),
		cmocka_unit_test(an_api_that_is_away_is_503_with_retry_after),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
