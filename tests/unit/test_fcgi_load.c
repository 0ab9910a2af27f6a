/* The server core under load and on its last day: queue, streams, stuck peers, no descriptors, drain (STR-1, STR-4, RUN-6). */
#include "../span.h"
#include "../t.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "../nginxtest.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "io/fcgi_int.h"

enum { WORKERS = 2, QUEUE = 2, STREAMS = 2, WAIT_MS = 60000 };

static struct nginxtest *nginx;
static bool kept; /* nginx keeps its connections */
static struct fcgi *core;
static sem_t turn;                /* each post lets one request of /v1/turns come to its handler */
static sem_t go;                  /* each post lets one handler, or one line of a stream, go on */
static atomic_int holding, ended; /* handlers that wait; streams that ended */
static atomic_int end_reason;     /* of the last stream: 1 gone, 2 draining, 3 all lines written */
static atomic_bool woken;

static json_t *hold(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	atomic_fetch_add(&holding, 1);
	while (sem_wait(&go) != 0)
		continue;
	atomic_fetch_sub(&holding, 1);
	return js_pack("{s:b}", "held", 1);
}

static json_t *quick(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	return json_object();
}

/* Like a watcher: it wakes often, and ends for any of three reasons. */
static json_t *lines(struct ctx *c, json_t *in, struct err *e)
{
	(void)e;
	long long n = js_int(in, "n", 1);
	int reason = 3;
	(void)reply_begin(c, 200, "application/x-ndjson");
	(void)reply_flush(c);
	for (long long i = 1; i <= n;) {
		struct timespec t;
		(void)clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += 20000000;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		if (reply_draining(c)) {
			(void)reply_line(c, js_pack("{s:s, s:I}", "type", "reconnect", "after", i - 1));
			reason = 2;
			break;
		}
		if (reply_gone(c)) {
			reason = 1;
			break;
		}
		if (sem_timedwait(&go, &t) == 0)
			(void)reply_line(c, js_pack("{s:I}", "seq", i++));
	}
	atomic_store(&end_reason, reason);
	atomic_fetch_add(&ended, 1);
	return REPLIED;
}

/* A stream that hears nothing: only the end of its connection stops it. */
static json_t *deaf(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	(void)reply_begin(c, 200, "application/x-ndjson");
	(void)reply_flush(c);
	while (!reply_gone(c))
		(void)poll(NULL, 0, 10);
	atomic_fetch_add(&ended, 1);
	return REPLIED;
}

static json_t *upload(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	char piece[1000];
	ssize_t got;
	while ((got = reply_read(c, piece, sizeof piece)) > 0)
		atomic_fetch_add(&holding, 1);
	atomic_fetch_add(&ended, 1);
	atomic_store(&end_reason, got == 0 ? 3 : 1);
	err_set(e, ERR_BAD_REQUEST, "cut");
	return NULL;
}

static const struct param n_in[] = { { .name = "n", .type = T_INT, .min = 1, .max = 1000 }, { 0 } };
static const struct param name_in[] = { { .name = "name", .type = T_STR, .required = true }, { 0 } };
static const struct op toy_ops[] = {
	{ .id = "hold", .routes = { { "GET", "/v1/hold" } }, .run = hold },
	{ .id = "slow", .routes = { { "GET", "/v1/slow" } }, .flags = OP_LONG, .run = hold },
	{ .id = "turns", .routes = { { "GET", "/v1/turns" } }, .flags = OP_LONG, .run = hold },
	{ .id = "quick", .routes = { { "GET", "/v1/quick" } }, .run = quick },
	{ .id = "lines", .routes = { { "GET", "/v1/lines" } }, .in = n_in, .flags = OP_STREAM, .run = lines },
	{ .id = "deaf", .routes = { { "GET", "/v1/deaf" } }, .flags = OP_STREAM, .run = deaf },
	{ .id = "upload",
	    .routes = { { "PUT", "/v1/upload/{name}" } },
	    .in = name_in,
	    .flags = OP_RAW_IN,
	    .run = upload },
	{ 0 },
};
static const struct op *const tables[] = { toy_ops, NULL };

static int authorise(struct ctx *c, const struct op *op, struct err *e)
{
	(void)c, (void)e;
	if (strcmp(op->id, "turns") != 0)
		return 0;
	atomic_fetch_add(&holding, 1);
	while (sem_wait(&turn) != 0)
		continue;
	atomic_fetch_sub(&holding, 1);
	return 0;
}

static void on_drain(void *app)
{
	(void)app;
	atomic_store(&woken, true);
}

static struct fcgi_opts opts(void)
{
	return (struct fcgi_opts){ .socket_path = nginxtest_fcgi(nginx),
		.workers = WORKERS,
		.queue = QUEUE,
		.max_streams = STREAMS,
		.tables = tables,
		.authorise = authorise,
		.on_drain = on_drain,
		.drain_s = 1 };
}

static int start_all(void **s)
{
	(void)s;
	fcgi_block_signals();
	log_setup("test", LOG_ERROR_, LOG_LOGFMT);
	nginx = kept ? nginxtest_start_kept() : nginxtest_start();
	return 0;
}

static int stop_all(void **s)
{
	(void)s;
	nginxtest_end(nginx);
	return 0;
}

static int start(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct fcgi_opts o = opts();
	if (sem_init(&go, 0, 0) != 0 || sem_init(&turn, 0, 0) != 0)
		return -1;
	atomic_store(&holding, 0);
	atomic_store(&ended, 0);
	atomic_store(&end_reason, 0);
	atomic_store(&woken, false);
	core = fcgi_start(&o, &e);
	return core == NULL ? -1 : 0;
}

static int stop(void **s)
{
	(void)s;
	fcgi_stop(core);
	return sem_destroy(&turn) + sem_destroy(&go);
}

/* ---- helpers */

static int begin(const char *target)
{
	char head[200];
	int n = snprintf(head, sizeof head, "GET %s HTTP/1.0\r\nHost: x\r\n\r\n", target);
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	nginxtest_send(fd, head, (size_t)n);
	return fd;
}

static int status_of(int fd)
{
	int status = 0;
	struct buf reply = BUF(1 << 20);
	nginxtest_read(fd, &reply);
	(void)close(fd);
	assert_true(sscanf(buf_c(&reply), "HTTP/1.%*c %d", &status) == 1);
	buf_free(&reply);
	return status;
}

static void quick_is_served(void)
{
	struct answer a;
	nginxtest_do(nginx, NGINX_PUBLIC, "GET", "/v1/quick", "", NULL, &a);
	assert_int_equal(a.status, 200);
	answer_free(&a);
}

static void wait_for(const atomic_int *what, int value)
{
	int64_t deadline = clock_ms() + WAIT_MS;
	while (atomic_load(what) != value) {
		assert_true(clock_ms() < deadline);
		(void)poll(NULL, 0, 5);
	}
}

/* Of either, -1 is any number. */
static void wait_for_stats(int queued, int streams)
{
	int64_t deadline = clock_ms() + WAIT_MS;
	struct fcgi_stats st;
	for (fcgi_stats(core, &st);
	     (queued >= 0 && st.queued != queued) || (streams >= 0 && st.streams != streams);
	     fcgi_stats(core, &st))
		assert_true(clock_ms() < deadline && poll(NULL, 0, 5) == 0);
}

static void skip_head(int fd, struct buf *line, char *head, size_t size)
{
	size_t n = 0;
	head[0] = 0;
	while (nginxtest_line(fd, line) && line->n > 2)
		n += (size_t)snprintf(head + n, size - n, "%s", buf_c(line));
	assert_true(n > 0 && line->n == 2);
}

static void a_full_queue_is_503_at_once(void **s)
{
	(void)s;
	int held[WORKERS + QUEUE];
	for (int i = 0; i < WORKERS; i++)
		held[i] = begin("/v1/hold");
	wait_for(&holding, WORKERS);
	for (int i = WORKERS; i < WORKERS + QUEUE; i++)
		held[i] = begin("/v1/hold");
	wait_for_stats(QUEUE, -1);
	struct answer a;
	char retry[20];
	struct span before = span_begin();
	nginxtest_do(nginx, NGINX_PUBLIC, "GET", "/v1/quick", "", NULL, &a);
	assert_int_equal(a.status, 503);
	assert_true(span_ms(&before) < 2000);
	assert_non_null(answer_header(&a, "Retry-After", retry, sizeof retry));
	assert_non_null(answer_header(&a, "X-Request-Id", retry, sizeof retry));
	assert_non_null(strstr(a.body, "\"code\":\"busy\""));
	answer_free(&a);
	for (int i = 0; i < WORKERS + QUEUE; i++)
		(void)sem_post(&go);
	for (int i = 0; i < WORKERS + QUEUE; i++)
		assert_int_equal(status_of(held[i]), 200);
	quick_is_served();
	struct fcgi_stats st;
	fcgi_stats(core, &st);
	assert_int_equal(st.refused, 1);
}

static void requests_sent_by_half_do_not_stall_others(void **s)
{
	(void)s;
	int half[12];
	for (int i = 0; i < 12; i++) {
		static const char text[] =
		    "POST /v1/quick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
		half[i] = nginxtest_connect(nginx, NGINX_PUBLIC);
		nginxtest_send(half[i], text, i % 2 == 0 ? sizeof text - 1 : 20);
	}
	/* And on the FastCGI socket itself: half a record header holds one acceptor; the other goes on. */
	int raw = nginxtest_connect(nginx, NGINX_FCGI);
	nginxtest_send(raw, "\1\1\0\1", 4);
	for (int i = 0; i < 20; i++)
		quick_is_served();
	for (int i = 0; i < 12; i++)
		(void)close(half[i]);
	(void)close(raw);
}

static void silent_peers_hold_nobody_and_are_given_up(void **s)
{
	(void)s;
	enum { SILENT = 4 * FCGI_SEATS };
	struct pollfd raw[SILENT];
	for (int i = 0; i < SILENT; i++) {
		raw[i] = (struct pollfd){ .fd = nginxtest_connect(nginx, NGINX_FCGI), .events = POLLIN };
		nginxtest_send(raw[i].fd, "\1\1", 2);
	}
	struct span begin = span_begin();
	quick_is_served();
	assert_true(span_ms(&begin) < 1000 * FCGI_HEAD_WAIT_S / 2);
	for (int i = 0; i < SILENT; i++) {
		assert_int_equal(poll(&raw[i], 1, WAIT_MS), 1); /* closed by the server */
		(void)close(raw[i].fd);
	}
}

static void rubbish_on_the_socket_is_dropped(void **s)
{
	(void)s;
	char noise[500];
	for (size_t i = 0; i < sizeof noise; i++)
		noise[i] = (char)(i * 37 + 11);
	for (int i = 0; i < 4; i++) {
		struct buf reply = BUF(10000);
		int fd = nginxtest_connect(nginx, NGINX_FCGI);
		nginxtest_send(fd, noise, sizeof noise);
		(void)shutdown(fd, SHUT_WR);
		nginxtest_read(fd, &reply);
		(void)close(fd);
		buf_free(&reply);
	}
	quick_is_served();
}

/* STR-1 */
static void a_stream_arrives_line_by_line(void **s)
{
	(void)s;
	struct buf line = BUF(1000);
	char head[2000];
	int fd = begin("/v1/lines?n=2");
	skip_head(fd, &line, head, sizeof head);
	assert_non_null(strstr(head, "application/x-ndjson"));
	(void)sem_post(&go);
	assert_true(nginxtest_line(fd, &line));
	assert_string_equal(buf_c(&line), "{\"seq\":1}\n");
	struct pollfd quiet = { .fd = fd, .events = POLLIN };
	assert_int_equal(poll(&quiet, 1, 50), 0); /* the second line was not sent yet */
	(void)sem_post(&go);
	assert_true(nginxtest_line(fd, &line));
	assert_string_equal(buf_c(&line), "{\"seq\":2}\n");
	assert_false(nginxtest_line(fd, &line));
	(void)close(fd);
	buf_free(&line);
}

static void streams_hold_no_worker_and_are_bounded(void **s)
{
	(void)s;
	struct buf line = BUF(1000);
	char head[2000];
	int fd[STREAMS];
	for (int i = 0; i < STREAMS; i++) {
		fd[i] = begin("/v1/lines?n=1");
		skip_head(fd[i], &line, head, sizeof head);
	}
	for (int i = 0; i < 2 * WORKERS; i++)
		quick_is_served();
	assert_int_equal(status_of(begin("/v1/lines?n=1")), 503);
	for (int i = 0; i < STREAMS; i++)
		(void)close(fd[i]);
	wait_for(&ended, STREAMS);
	wait_for_stats(-1, 0);
	fd[0] = begin("/v1/lines?n=1");
	(void)sem_post(&go);
	assert_int_equal(status_of(fd[0]), 200);
	buf_free(&line);
}

static void an_answer_that_takes_long_holds_no_worker(void **s)
{
	(void)s;
	int slow[STREAMS];
	for (int i = 0; i < STREAMS; i++)
		slow[i] = begin("/v1/slow");
	wait_for(&holding, STREAMS);
	for (int i = 0; i < 2 * WORKERS; i++)
		quick_is_served();
	for (int i = 0; i < STREAMS; i++)
		(void)sem_post(&go);
	for (int i = 0; i < STREAMS; i++)
		assert_int_equal(status_of(slow[i]), 200);
}

static int threads(void)
{
	pthread_mutex_lock(&core->lock);
	int n = core->n_threads;
	pthread_mutex_unlock(&core->lock);
	return n;
}

static void a_queued_request_is_run_when_one_before_it_turns_out_to_last(void **s)
{
	(void)s;
	int held[WORKERS + 1];
	for (int i = 0; i < WORKERS; i++)
		held[i] = begin("/v1/turns");
	wait_for(&holding, WORKERS);
	held[WORKERS] = begin("/v1/quick");
	wait_for_stats(1, -1);
	(void)sem_post(&turn); /* one of them is a stream now, and has its answer not yet */
	assert_int_equal(status_of(held[WORKERS]), 200);
	wait_for_stats(-1, 1);
	for (int i = 1; i < WORKERS; i++)
		(void)sem_post(&turn);
	wait_for_stats(-1, WORKERS);
	for (int i = 0; i < WORKERS; i++)
		(void)sem_post(&go);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(status_of(held[i]), 200);
}

static void threads_that_streams_needed_are_given_back(void **s)
{
	(void)s;
	int slow[STREAMS], before = threads();
	for (int i = 0; i < STREAMS; i++)
		slow[i] = begin("/v1/slow");
	wait_for(&holding, STREAMS);
	assert_int_equal(threads(), before + STREAMS);
	for (int i = 0; i < STREAMS; i++)
		(void)sem_post(&go);
	for (int i = 0; i < STREAMS; i++)
		assert_int_equal(status_of(slow[i]), 200);
	/* Those in a seat stay. */
	for (int64_t end = clock_ms() + WAIT_MS; threads() > before + FCGI_SEATS; (void)poll(NULL, 0, 20))
		assert_true(clock_ms() < end);
	quick_is_served();
}

/* STR-4 */
static void a_client_that_left_is_noticed(void **s)
{
	(void)s;
	struct buf line = BUF(1000);
	char head[2000];
	int fd = begin("/v1/lines?n=5");
	skip_head(fd, &line, head, sizeof head);
	(void)close(fd);
	wait_for(&ended, 1);
	assert_int_equal(atomic_load(&end_reason), 1);
	wait_for_stats(-1, 0);
	buf_free(&line);
}

static void an_upload_that_is_cut_is_an_error(void **s)
{
	(void)s;
	static const char text[] = "PUT /v1/upload/f HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc";
	static const char chunk[] =
	    "PUT /v1/upload/f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	nginxtest_send(fd, text, sizeof text - 1);
	wait_for(&holding, 1);
	(void)close(fd);
	wait_for(&ended, 1);
	assert_int_equal(atomic_load(&end_reason), 1);
	fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	nginxtest_send(fd, chunk, sizeof chunk - 1);
	wait_for(&holding, 2);
	(void)close(fd);
	wait_for(&ended, 2);
	assert_int_equal(atomic_load(&end_reason), 1);
}

static void running_out_of_descriptors_is_survived(void **s)
{
	(void)s;
	quick_is_served();
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC), top = dup(fd);
	struct rlimit old, none;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 3; /* accept finds no number below this */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	static const char text[] = "GET /v1/quick HTTP/1.0\r\nHost: x\r\n\r\n";
	nginxtest_send(fd, text, sizeof text - 1);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int early = poll(&p, 1, 300);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(early, 0);
	assert_int_equal(status_of(fd), 200);
	(void)close(top);
}

static void *wait_for_signal(void *arg)
{
	fcgi_wait(arg, NULL);
	return NULL;
}

/* RUN-6 */
static void sigterm_finishes_requests_and_ends_streams_with_a_hint(void **s)
{
	(void)s;
	struct buf line = BUF(1000);
	char head[2000];
	pthread_t waiter;
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_signal, core), 0);
	int stream = begin("/v1/lines?n=5");
	skip_head(stream, &line, head, sizeof head);
	(void)sem_post(&go);
	assert_true(nginxtest_line(stream, &line));
	int held[WORKERS + 1];
	for (int i = 0; i < WORKERS; i++)
		held[i] = begin("/v1/hold");
	wait_for(&holding, WORKERS);
	held[WORKERS] = begin("/v1/quick"); /* queued behind them */
	wait_for_stats(1, -1);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	assert_true(nginxtest_line(stream, &line));
	assert_string_equal(buf_c(&line), "{\"type\":\"reconnect\",\"after\":1}\n");
	assert_false(nginxtest_line(stream, &line));
	(void)close(stream);
	assert_true(atomic_load(&woken));
	assert_int_equal(status_of(begin("/v1/quick")), 502); /* nobody listens any more */
	for (int i = 0; i < WORKERS; i++)
		(void)sem_post(&go);
	for (int i = 0; i <= WORKERS; i++)
		assert_int_equal(status_of(held[i]), 200);
	assert_int_equal(pthread_join(waiter, NULL), 0);
	buf_free(&line);
}

static void a_stream_that_does_not_listen_is_cut(void **s)
{
	(void)s;
	struct buf line = BUF(1000);
	char head[2000];
	int fd = begin("/v1/deaf");
	skip_head(fd, &line, head, sizeof head);
	struct span before = span_begin();
	fcgi_drain(core);
	assert_true(span_ms(&before) < 5000);
	assert_int_equal(atomic_load(&ended), 1);
	(void)close(fd);
	buf_free(&line);
}

static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct fcgi_opts o = opts();
	assert_null(fcgi_start(&o, &e)); /* `core` is alive */
	assert_non_null(strstr(e.msg, "Another process serves"));
	fcgi_stop(core); /* leaves its socket behind */
	struct stat st;
	assert_int_equal(stat(o.socket_path, &st), 0);
	err_clear(&e);
	core = fcgi_start(&o, &e);
	assert_non_null(core);
	assert_int_equal(stat(o.socket_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	quick_is_served();
}

#define WITH_CORE(t) cmocka_unit_test_setup_teardown(t, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_CORE(a_full_queue_is_503_at_once),
		WITH_CORE(requests_sent_by_half_do_not_stall_others),
		WITH_CORE(silent_peers_hold_nobody_and_are_given_up),
		WITH_CORE(rubbish_on_the_socket_is_dropped),
		WITH_CORE(a_stream_arrives_line_by_line),
		WITH_CORE(streams_hold_no_worker_and_are_bounded),
		WITH_CORE(an_answer_that_takes_long_holds_no_worker),
		WITH_CORE(a_queued_request_is_run_when_one_before_it_turns_out_to_last),
		WITH_CORE(threads_that_streams_needed_are_given_back),
		WITH_CORE(a_client_that_left_is_noticed),
		WITH_CORE(an_upload_that_is_cut_is_an_error),
		WITH_CORE(sigterm_finishes_requests_and_ends_streams_with_a_hint),
		WITH_CORE(a_stream_that_does_not_listen_is_cut),
		WITH_CORE(a_stale_socket_is_replaced_and_a_live_one_is_not),
	};
	/* On a kept connection it is served all the same (test_fcgi_kept). */
	const struct CMUnitTest fresh[] = { WITH_CORE(running_out_of_descriptors_is_survived) };
	int failed = cmocka_run_group_tests_name("fcgi_load", tests, start_all, stop_all) +
	    cmocka_run_group_tests_name("fcgi_load, fresh", fresh, start_all, stop_all);
	kept = true;
	return failed + cmocka_run_group_tests_name("fcgi_load, kept", tests, start_all, stop_all);
}
