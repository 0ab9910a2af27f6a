/* Errors in the form of an op's own clients (MOD-10), also where it comes to no op: a wrong method, a full queue. */
#include "../t.h"

#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../nginxtest.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/fcgi_int.h"

enum { WAIT_MS = 60000 };

static struct nginxtest *nginx;
static struct fcgi *core;
static sem_t inside, go; /* a request is being held, it may go on */

static json_t *hold(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	(void)sem_post(&inside);
	while (sem_wait(&go) != 0)
		continue;
	return json_object();
}

static bool shaped(struct ctx *c, const struct err *why)
{
	char text[64];
	int n = snprintf(
	    text, sizeof text, "oops: %s", why->reason != NULL ? why->reason : err_name(why->code));
	(void)reply_begin(c, err_http(why->code), "text/plain");
	(void)reply_write(c, text, (size_t)n);
	return true;
}

static const struct op toy_ops[] = {
	{ .id = "hold", .routes = { { "GET", "/v1/hold" } }, .run = hold },
	{ .id = "shaped", .routes = { { "GET", "/v1/shaped/{id}" } }, .run = hold, .refuse = shaped },
	{ 0 },
};
static const struct op *const tables[] = { toy_ops, NULL };

static void is(const char *method, const char *path, int status, const char *body)
{
	struct answer a;
	nginxtest_do(nginx, NGINX_PUBLIC, method, path, "", NULL, &a);
	if (a.status != status || strstr(a.body, body) == NULL)
		fail_msg("%s %s: %d %s", method, path, a.status, a.body);
	answer_free(&a);
}

static void a_wrong_method_is_told_in_the_form_of_that_path(void **s)
{
	(void)s;
	struct answer a;
	char allow[60];
	nginxtest_do(nginx, NGINX_PUBLIC, "DELETE", "/v1/shaped/1", "", NULL, &a);
	assert_int_equal(a.status, 405);
	assert_string_equal(a.body, "oops: method_not_allowed");
	assert_string_equal(answer_header(&a, "Allow", allow, sizeof allow), "GET, HEAD");
	answer_free(&a);
	is("DELETE", "/v1/hold", 405, "{\"error\":");
	is("GET", "/v1/elsewhere", 404, "{\"error\":");
	is("GET", "/v1/shaped/a%2Fb", 400, "{\"error\":"); /* it is no such path */
}

static int begin(void)
{
	static const char head[] = "GET /v1/hold HTTP/1.0\r\nHost: x\r\n\r\n";
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	nginxtest_send(fd, head, sizeof head - 1);
	return fd;
}

static void a_full_queue_is_told_in_the_form_of_who_asks(void **s)
{
	(void)s;
	int held[2];
	int64_t deadline = clock_ms() + WAIT_MS;
	held[0] = begin();
	while (sem_wait(&inside) != 0) /* the queue, which has one place, is empty again */
		continue;
	held[1] = begin();
	for (struct fcgi_stats st = { 0 }; st.queued != 1; fcgi_stats(core, &st))
		assert_true(clock_ms() < deadline && poll(NULL, 0, 5) == 0);
	is("GET", "/v1/shaped/1", 503, "oops: busy");
	is("GET", "/v1/hold", 503, "\"code\":\"busy\"");
	is("GET", "/v1/elsewhere", 503, "\"code\":\"busy\"");
	for (int i = 0; i < 2; i++) {
		struct buf reply = BUF(1 << 16);
		(void)sem_post(&go);
		nginxtest_read(held[i], &reply);
		assert_non_null(strstr(buf_c(&reply), " 200 "));
		buf_free(&reply);
		(void)close(held[i]);
	}
}

static int setup(void **s)
{
	(void)s;
	struct err e = { 0 };
	fcgi_block_signals();
	log_setup("test", LOG_ERROR_, LOG_LOGFMT);
	nginx = nginxtest_start();
	const struct fcgi_opts o = { .socket_path = nginxtest_fcgi(nginx),
		.workers = 1,
		.queue = 1,
		.max_streams = 1,
		.tables = tables,
		.drain_s = 1 };
	core = fcgi_start(&o, &e);
	return core == NULL || sem_init(&go, 0, 0) != 0 || sem_init(&inside, 0, 0) != 0 ? -1 : 0;
}

static int teardown(void **s)
{
	(void)s;
	for (int i = 0; i < 2; i++) /* what a test that failed left held */
		(void)sem_post(&go);
	fcgi_stop(core);
	nginxtest_end(nginx);
	return sem_destroy(&inside) + sem_destroy(&go);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_method_is_told_in_the_form_of_that_path),
		cmocka_unit_test(a_full_queue_is_told_in_the_form_of_who_asks),
	};
	return cmocka_run_group_tests_name("fcgi_forms", tests, setup, teardown);
}
