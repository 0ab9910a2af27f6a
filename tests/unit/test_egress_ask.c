/* Mode `resolver` (EGR-1) through the real proxy: a program and a service of the deployment decide. */
#include "../span.h"
#include "../t.h"

#include "../fds.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"
#include "io/file.h"

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "yes.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "no.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "inner.public.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};

/* Writes down what it is asked; yes.* is allowed, unless there is a file `changed`. */
static const char program[] = "#!/bin/sh\n"
			      "echo \"$@\" >>%s/asked\n"
			      "case $4 in\n"
			      "yes.*|inner.*) [ ! -e %s/changed ] ;;\n"
			      "hang.*) sleep 600 ;;\n"
			      "crash.*) kill -9 $$ ;;\n"
			      "odd.*) exit 77 ;;\n"
			      "*) exit 1 ;;\n"
			      "esac\n";

/* Short, as one test waits for it, and room for a program that is there. */
static const char *patience(void)
{
	static char text[40];
	(void)snprintf(text, sizeof text, "EGRESS_RESOLVER_MS=%d", span_room_ms(500));
	return text;
}

static int up_url(void **state)
{
	static char url[96];
	static const char *extra[] = { url, NULL, NULL };
	(void)state;
	extra[1] = patience();
	egt_prepare(&t, zone, extra);
	(void)snprintf(url, sizeof url, "EGRESS_RESOLVER=http://127.0.0.1:%d/decide", origin_port(t.origin));
	egt_begin(&t);
	egt_policy(&t, "{\"mode\":\"resolver\"}");
	return 0;
}

static int up(void **state)
{
	static const char *extra[] = { "EGRESS_RESOLVER={DIR}/decide", NULL, NULL };
	char path[128], text[1024];
	struct err e = { 0 };
	(void)state;
	extra[1] = patience();
	egt_prepare(&t, zone, extra);
	(void)snprintf(path, sizeof path, "%s/decide", t.dir);
	int n = snprintf(text, sizeof text, program, t.dir, t.dir);
	assert_int_equal(file_write(path, text, (size_t)n, 0755, &e), 0);
	egt_begin(&t);
	egt_policy(&t, "{\"mode\":\"resolver\"}");
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

static void says(const char *host, const char *want)
{
	auto_buf struct buf answer = BUF(1 << 16);
	int port = origin_port(t.origin);
	auto_fd int fd = egt_connect(t.port);
	egt_say(fd, "CONNECT %s:%d HTTP/1.1\r\nHost: %s\r\n\r\n", host, port, host);
	assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
	if (strstr(buf_c(&answer), want) == NULL)
		fail_msg("%s: expected %s, got %s", host, want, buf_c(&answer));
}

static void its_answer_counts_and_what_is_none_denies(void **state)
{
	char path[128], want[256];
	struct err e = { 0 };
	auto_buf struct buf asked = BUF(1 << 16);
	(void)state;
	says("yes.origin.test", " 200 ");
	says("no.origin.test", "resolver_denied");
	says("odd.origin.test", "policy_unavailable");
	says("crash.origin.test", "policy_unavailable");
	says("hang.origin.test", "policy_unavailable");
	/* It has no say about addresses. */
	says("inner.public.test", "address_denied");
	(void)snprintf(path, sizeof path, "%s/asked", t.dir);
	(void)snprintf(
	    want, sizeof want, "acme %s connect yes.origin.test %d\n", EGT_SANDBOX, origin_port(t.origin));
	assert_int_equal(file_read(path, &asked, &e), 0);
	assert_non_null(strstr(buf_c(&asked), want));
	assert_int_equal(dnsserver_asked(t.dns, "no.origin.test"), 0);
	assert_int_equal(dnsserver_asked(t.dns, "odd.origin.test"), 0);
}

/* Kept for two seconds at most, and not a moment longer. */
static void an_answer_is_not_served_stale(void **state)
{
	char path[128];
	struct err e = { 0 };
	(void)state;
	(void)snprintf(path, sizeof path, "%s/changed", t.dir);
	says("yes.origin.test", " 200 ");
	assert_int_equal(file_write(path, "x", 1, 0644, &e), 0);
	struct span begin = span_begin();
	for (;; (void)usleep(50000)) {
		auto_buf struct buf answer = BUF(1 << 16);
		auto_fd int fd = egt_connect(t.port);
		egt_say(fd, "CONNECT yes.origin.test:%d HTTP/1.1\r\nHost: yes.origin.test\r\n\r\n",
		    origin_port(t.origin));
		assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
		if (strstr(buf_c(&answer), "resolver_denied") != NULL)
			break;
		assert_true(span_ms(&begin) < 2500);
	}
	assert_int_equal(unlink(path), 0);
}

static void a_client_that_leaves_while_it_is_asked_is_forgotten(void **state)
{
	(void)state;
	auto_buf struct buf were = BUF(1 << 20);
	int before = fds_open(t.pid, &were);
	for (int i = 0; i < 20; i++) {
		int fd = egt_connect(t.port);
		egt_say(fd, "CONNECT hang.no%d.test:443 HTTP/1.1\r\nHost: hang.no%d.test\r\n\r\n", i, i);
		(void)close(fd);
	}
	fds_back(t.pid, before, &were, PATIENCE_MS);
}

static void a_service_is_asked_by_post_and_decides(void **state)
{
	auto_buf struct buf seen = BUF(1 << 16);
	char want[256];
	(void)state;
	says("yes.origin.test", " 200 ");
	says("no.origin.test", "resolver_denied");
	origin_seen(t.origin, &seen);
	(void)snprintf(want, sizeof want,
	    "{\"org\":\"acme\",\"sandbox\":\"%s\",\"form\":\"connect\",\"host\":\"yes.origin.test\",\"port\":"
	    "%d}",
	    EGT_SANDBOX, origin_port(t.origin));
	assert_non_null(strstr(buf_c(&seen), want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_answer_counts_and_what_is_none_denies),
		cmocka_unit_test(an_answer_is_not_served_stale),
		cmocka_unit_test(a_client_that_leaves_while_it_is_asked_is_forgotten),
	};
	const struct CMUnitTest by_url[] = {
		cmocka_unit_test(a_service_is_asked_by_post_and_decides),
	};
	int failed = cmocka_run_group_tests(tests, up, down);
	return failed + cmocka_run_group_tests(by_url, up_url, down);
}
