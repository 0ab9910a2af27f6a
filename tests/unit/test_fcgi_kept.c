/* Connections that nginx keeps: they serve one request after the other, hold nobody meanwhile, and end when they must (fcgi_kept.c). */
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../fcgiclient.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "io/fcgi_int.h"

enum { WORKERS = 2, QUEUE = 40, STREAMS = 2, WAIT_MS = 60000, MANY = 40 };

static char dir[] = "/tmp/ghk.XXXXXX", path[64];
static struct fcgi *core;
static sem_t go;
static atomic_int holding;

static json_t *quick(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)e;
	return json_incref(in);
}

static json_t *hold(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	atomic_fetch_add(&holding, 1);
	while (sem_wait(&go) != 0)
		continue;
	atomic_fetch_sub(&holding, 1);
	return js_pack("{s:b}", "held", 1);
}

static json_t *lines(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	(void)reply_begin(c, 200, "application/x-ndjson");
	for (int i = 0; i < 3; i++)
		(void)reply_line(c, js_pack("{s:i}", "seq", i));
	return REPLIED;
}

/* Reads a byte of what may be much. */
static json_t *some(struct ctx *c, json_t *in, struct err *e)
{
	char one;
	(void)in, (void)e;
	return js_pack("{s:I}", "read", (json_int_t)reply_read(c, &one, 1));
}

static const struct param text_in[] = { { .name = "text", .type = T_STR, .required = true, .max = 1 << 20 },
	{ 0 } };
static const struct op toy_ops[] = {
	{ .id = "quick", .routes = { { "GET", "/v1/quick" } }, .run = quick },
	{ .id = "echo", .routes = { { "POST", "/v1/echo" } }, .in = text_in, .status = 201, .run = quick },
	{ .id = "hold", .routes = { { "GET", "/v1/hold" } }, .run = hold },
	{ .id = "lines", .routes = { { "GET", "/v1/lines" } }, .flags = OP_STREAM, .run = lines },
	{ .id = "some", .routes = { { "PUT", "/v1/some" } }, .flags = OP_RAW_IN, .run = some },
	{ 0 },
};
static const struct op *const tables[] = { toy_ops, NULL };

static int start(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct fcgi_opts o = { .socket_path = path,
		.workers = WORKERS,
		.queue = QUEUE,
		.max_streams = STREAMS,
		.tables = tables,
		.drain_s = 1 };
	if (sem_init(&go, 0, 0) != 0)
		return -1;
	atomic_store(&holding, 0);
	core = fcgi_start(&o, &e);
	return core == NULL ? -1 : 0;
}

static int stop(void **s)
{
	(void)s;
	fcgi_stop(core);
	return sem_destroy(&go);
}

static struct fcgi_stats stats(void)
{
	struct fcgi_stats st;
	fcgi_stats(core, &st);
	return st;
}

static void wait_kept(int n)
{
	for (int64_t deadline = clock_ms() + WAIT_MS; stats().kept != n; (void)poll(NULL, 0, 5))
		assert_true(clock_ms() < deadline);
}

static void wait_holding(int n)
{
	for (int64_t deadline = clock_ms() + WAIT_MS; atomic_load(&holding) != n; (void)poll(NULL, 0, 5))
		assert_true(clock_ms() < deadline);
}

/* The server has closed it, and said nothing more. */
static bool is_closed(const struct fcgiclient *c)
{
	char byte;
	struct pollfd p = { .fd = fcgiclient_fd(c), .events = POLLIN };
	return poll(&p, 1, WAIT_MS) == 1 && recv(p.fd, &byte, 1, 0) == 0;
}

/* ---- tests */

static void one_connection_serves_one_request_after_the_other(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(1 << 20);
	struct fcgiclient *c = fcgiclient_new(path, NULL, true);
	for (int i = 0; i < 100; i++) {
		char body[40], want[60];
		(void)snprintf(body, sizeof body, "{\"text\":\"number %d\"}", i);
		(void)snprintf(want, sizeof want, "\r\n\r\n%s", body);
		buf_reset(&out);
		assert_int_equal(fcgiclient_ask(c, "POST", "/v1/echo", body, &out), 201);
		assert_non_null(strstr(buf_c(&out), want));
		assert_int_equal(fcgiclient_ask(c, "GET", "/v1/quick", NULL, NULL), 200);
		/* What is refused before its body was looked at, too: nothing of it may be taken for the next request. */
		assert_int_equal(fcgiclient_ask(c, "POST", "/v1/nothing", body, NULL), 404);
		assert_int_equal(fcgiclient_ask(c, "POST", "/v1/echo", "{", NULL), 400);
	}
	wait_kept(1);
	assert_int_equal(stats().accepted, 400);
	fcgiclient_free(c);
	wait_kept(0);
}

static void a_body_that_nobody_read_is_not_the_next_request(void **s)
{
	(void)s;
	static char body[60000];
	struct fcgiclient *c = fcgiclient_new(path, NULL, true);
	memset(body, 'x', sizeof body - 1);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(fcgiclient_ask(c, "PUT", "/v1/some", body, NULL), 200);
		assert_int_equal(fcgiclient_ask(c, "GET", "/v1/quick", NULL, NULL), 200);
	}
	wait_kept(1);
	fcgiclient_free(c);
}

static void a_streams_connection_is_kept_too(void **s)
{
	(void)s;
	struct fcgiclient *c = fcgiclient_new(path, NULL, true);
	for (int i = 0; i < 20; i++) {
		auto_buf struct buf out = BUF(1 << 20);
		assert_int_equal(fcgiclient_ask(c, "GET", "/v1/lines", NULL, &out), 200);
		assert_non_null(strstr(buf_c(&out), "{\"seq\":0}\n{\"seq\":1}\n{\"seq\":2}\n"));
	}
	wait_kept(1);
	assert_int_equal(stats().streams, 0);
	fcgiclient_free(c);
}

static void who_asks_for_no_keeping_is_closed(void **s)
{
	(void)s;
	struct fcgiclient *c = fcgiclient_new(path, NULL, false);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fcgiclient_ask(c, "GET", "/v1/quick", NULL, NULL), 200);
	assert_int_equal(stats().kept, 0);
	fcgiclient_free(c);
}

/* Many more than there are threads. */
static void connections_between_two_requests_hold_nobody(void **s)
{
	(void)s;
	struct fcgiclient *all[MANY];
	for (int i = 0; i < MANY; i++) {
		all[i] = fcgiclient_new(path, NULL, true);
		assert_int_equal(fcgiclient_ask(all[i], "GET", "/v1/quick", NULL, NULL), 200);
	}
	wait_kept(MANY);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++)
			assert_int_equal(fcgiclient_ask(all[i], "GET", "/v1/quick", NULL, NULL), 200);
	/* W of them are at work, others are served by none of these, and one more waits for its turn. */
	for (int i = 0; i < WORKERS; i++)
		fcgiclient_send(all[i], "GET", "/v1/hold", NULL);
	wait_holding(WORKERS);
	fcgiclient_send(all[WORKERS], "GET", "/v1/quick", NULL);
	for (int64_t deadline = clock_ms() + WAIT_MS; stats().queued != 1; (void)poll(NULL, 0, 5))
		assert_true(clock_ms() < deadline);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(sem_post(&go), 0);
	for (int i = 0; i <= WORKERS; i++)
		assert_int_equal(fcgiclient_hear(all[i], NULL), 200);
	for (int i = 0; i < MANY; i++)
		fcgiclient_free(all[i]);
	wait_kept(0);
}

static void half_a_head_on_a_kept_connection_holds_nobody(void **s)
{
	(void)s;
	struct fcgiclient *half[MANY], *c = fcgiclient_new(path, NULL, true);
	for (int i = 0; i < MANY; i++) {
		half[i] = fcgiclient_new(path, NULL, true);
		assert_int_equal(fcgiclient_ask(half[i], "GET", "/v1/quick", NULL, NULL), 200);
		assert_int_equal(send(fcgiclient_fd(half[i]), "\1\1\0\1", 4, MSG_NOSIGNAL), 4);
	}
	for (int i = 0; i < 20; i++)
		assert_int_equal(fcgiclient_ask(c, "GET", "/v1/quick", NULL, NULL), 200);
	for (int i = 0; i < MANY; i++) {
		assert_true(is_closed(half[i]));
		fcgiclient_free(half[i]);
	}
	fcgiclient_free(c);
}

static void for_want_of_descriptors_a_kept_connection_is_given_up(void **s)
{
	(void)s;
	struct fcgiclient *idle = fcgiclient_new(path, NULL, true), *c = fcgiclient_new(path, NULL, false);
	assert_int_equal(fcgiclient_ask(idle, "GET", "/v1/quick", NULL, NULL), 200);
	wait_kept(1);
	int filler[4096], n = 0, mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct rlimit old, few;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 512;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 4096 && (filler[n] = dup(mine)) >= 0)
		n++;
	assert_int_equal(close(mine), 0); /* for the client's end; there is none for the server's */
	fcgiclient_send(c, "GET", "/v1/quick", NULL);
	assert_int_equal(fcgiclient_hear(c, NULL), 200);
	assert_int_equal(stats().kept, 0);
	while (n > 0)
		(void)close(filler[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(is_closed(idle));
	fcgiclient_free(idle);
	fcgiclient_free(c);
}

static void *drain(void *arg)
{
	fcgi_drain(arg);
	return NULL;
}

/* RUN-6: what was sent is answered, what is between two requests is closed, and nothing is kept any more. */
static void a_drain_answers_what_was_sent_and_closes_the_rest(void **s)
{
	(void)s;
	struct fcgiclient *idle[MANY], *busy = fcgiclient_new(path, NULL, true);
	pthread_t t;
	for (int i = 0; i < MANY; i++) {
		idle[i] = fcgiclient_new(path, NULL, true);
		assert_int_equal(fcgiclient_ask(idle[i], "GET", "/v1/quick", NULL, NULL), 200);
	}
	assert_int_equal(fcgiclient_ask(busy, "GET", "/v1/quick", NULL, NULL), 200);
	fcgiclient_send(busy, "GET", "/v1/hold", NULL);
	wait_holding(1);
	for (int i = 0; i < MANY / 2; i++)
		fcgiclient_send(idle[i], "GET", "/v1/quick", NULL);
	assert_int_equal(pthread_create(&t, NULL, drain, core), 0);
	for (int i = 0; i < MANY; i++) {
		if (i < MANY / 2)
			assert_int_equal(fcgiclient_hear(idle[i], NULL), 200);
		assert_true(is_closed(idle[i]));
		fcgiclient_free(idle[i]);
	}
	assert_int_equal(sem_post(&go), 0);
	assert_int_equal(fcgiclient_hear(busy, NULL), 200);
	assert_true(is_closed(busy));
	assert_int_equal(pthread_join(t, NULL), 0);
	fcgiclient_free(busy);
}

static int begin(void **s)
{
	(void)s;
	fcgi_block_signals();
	log_setup("test", LOG_ERROR_, LOG_LOGFMT);
	if (mkdtemp(dir) == NULL)
		return -1;
	(void)snprintf(path, sizeof path, "%s/app.sock", dir);
	return 0;
}

static int end(void **s)
{
	(void)s;
	return unlink(path) + rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
		    one_connection_serves_one_request_after_the_other, start, stop),
		cmocka_unit_test_setup_teardown(a_body_that_nobody_read_is_not_the_next_request, start, stop),
		cmocka_unit_test_setup_teardown(a_streams_connection_is_kept_too, start, stop),
		cmocka_unit_test_setup_teardown(who_asks_for_no_keeping_is_closed, start, stop),
		cmocka_unit_test_setup_teardown(connections_between_two_requests_hold_nobody, start, stop),
		cmocka_unit_test_setup_teardown(half_a_head_on_a_kept_connection_holds_nobody, start, stop),
		cmocka_unit_test_setup_teardown(
		    for_want_of_descriptors_a_kept_connection_is_given_up, start, stop),
		cmocka_unit_test_setup_teardown(
		    a_drain_answers_what_was_sent_and_closes_the_rest, start, stop),
	};
	return cmocka_run_group_tests_name("fcgi_kept", tests, begin, end);
}
