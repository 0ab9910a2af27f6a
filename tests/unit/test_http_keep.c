/* Requests on connections of our own: how answers are read, and when a connection serves again. */
#include "../span.h"
#include "../t.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "../egresstest.h"
#include "../tlsorigin.h"
#include "io/file.h"
#include "io/http.h"
#include "io/http_link.h"
#include "io/http_read.h"

/* ---- the reader */

static enum http_step feed(struct http_read *r, const char *p, size_t n, struct buf *body, size_t *rest)
{
	struct str in = { p, n }, piece;
	enum http_step step;
	while ((step = http_read_next(r, &in, &piece)) == HTTP_HEAD || step == HTTP_BODY)
		if (step == HTTP_BODY)
			assert_int_equal(buf_add(body, piece.p, piece.n), 0);
	*rest = in.n;
	return step;
}

static void an_answer_is_the_same_wherever_it_is_cut(void **state)
{
	(void)state;
	const struct {
		const char *text, *body;
		int status;
		bool closes;
		size_t rest;
	} rows[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, false, 0 },
		{ "HTTP/1.1 200 OK\nContent-Length:5\n\nhelloHTTP", "hello", 200, false, 4 },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", "", 201,
		    false, 0 },
		{ "HTTP/1.1 200 \r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n1 \r\n "
		  "\r\nA\r\n0123456789\r\n"
		  "000\r\nX-Sum: 1\r\n\r\n",
		    "hello 0123456789", 200, false, 0 },
		{ "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nContent-Length: "
		  "9\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		    "x", 200, true, 0 },
		{ "HTTP/1.1 200 OK\r\nConnection: X, Close\r\nContent-Length: 1\r\n\r\nx", "x", 200, true,
		    0 },
		{ "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", "x", 200, true,
		    0 },
		{ "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "", 204, false, 0 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i].text), rest = 0;
		for (size_t cut = 0; cut <= n - rows[i].rest; cut++) {
			struct http_read r = http_read_new(false);
			auto_buf struct buf body = BUF(1000);
			enum http_step step = feed(&r, rows[i].text, cut, &body, &rest);
			assert_int_equal(step, cut == n - rows[i].rest ? HTTP_END : HTTP_MORE);
			if (step == HTTP_MORE)
				step = feed(&r, rows[i].text + cut, n - cut, &body, &rest);
			assert_int_equal(step, HTTP_END);
			assert_string_equal(buf_c(&body), rows[i].body);
			assert_int_equal(r.status, rows[i].status);
			assert_int_equal(r.closes, rows[i].closes);
			assert_true(rest == rows[i].rest || cut == n - rows[i].rest);
			http_read_free(&r);
		}
	}
}

static void what_is_no_answer_is_refused(void **state)
{
	(void)state;
	static const char *const rows[] = { "HTTP/2 200 OK\r\n", "hello\r\n", "\r\n", "HTTP/1.1 099 x\r\n",
		"HTTP/1.1 2000\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n", "HTTP/1.1 200 OK\r\n: v\r\n",
		"HTTP/1.1 200 OK\r\nX : v\r\n", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1234567890123456789\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.1 200 OK\r\n X: folded\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\n" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct http_read r = http_read_new(false);
		auto_buf struct buf body = BUF(1000);
		size_t rest;
		assert_int_equal(feed(&r, rows[i], strlen(rows[i]), &body, &rest), HTTP_BAD);
		http_read_free(&r);
	}
	/* Neither a line nor all of them go on without end. */
	struct http_read r = http_read_new(false), many = http_read_new(false);
	auto_buf struct buf body = BUF(1000);
	size_t rest, n = 0;
	enum http_step step = feed(&r, "HTTP/1.1 200 OK\r\nX: ", 20, &body, &rest);
	for (; step == HTTP_MORE && n < 1 << 20; n++)
		step = feed(&r, "x", 1, &body, &rest);
	assert_int_equal(step, HTTP_BAD);
	assert_true(n <= HTTP_LINE_BYTES);
	step = feed(&many, "HTTP/1.1 200 OK\r\n", 17, &body, &rest);
	for (n = 0; step == HTTP_MORE && n < 1 << 20; n++)
		step = feed(&many, "X: y\r\n", 6, &body, &rest);
	assert_int_equal(step, HTTP_BAD);
	assert_true(n <= HTTP_HEAD_BYTES / 6);
	http_read_free(&r);
	http_read_free(&many);
}

/* ---- a server that follows a script, a connection a row: what it says to each request; NULL, or "!" before it, to close */

struct script {
	const char *says[4][3];
	bool early; /* it does not wait for the body, and reads it only when its answer was */
	sem_t read; /* by the client */
	int fd, port, n;
	pthread_t thread;
};

static bool heard(int c, bool early)
{
	char p[65536];
	size_t n = 0;
	ssize_t got = 1;
	while (n < sizeof p - 1 && (got = recv(c, p + n, sizeof p - 1 - n, 0)) > 0) {
		n += (size_t)got;
		p[n] = 0;
		const char *end = strstr(p, "\r\n\r\n"), *length = strstr(p, "Content-Length: ");
		if (end != NULL &&
		    (early || length == NULL || strlen(end + 4) >= strtoul(length + 16, NULL, 10)))
			return true;
	}
	return false;
}

static void *serve(void *arg)
{
	struct script *s = arg;
	for (int i = 0, c; i < 4 && (c = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; i++) {
		s->n++;
		bool open = true;
		for (int k = 0; open && heard(c, s->early); k++) {
			const char *says = k < 3 ? s->says[i][k] : NULL;
			open = says != NULL && says[0] != '!';
			if (says != NULL)
				(void)send(c, says + !open, strlen(says + !open), MSG_NOSIGNAL);
			char rest[65536];
			while (s->early && sem_wait(&s->read) != 0)
				;
			while (s->early && open && recv(c, rest, sizeof rest, 0) > 0)
				;
			open = open && !s->early;
		}
		(void)close(c);
	}
	return NULL;
}

static void begin(struct script *s)
{
	s->fd = egt_listener(&s->port);
	assert_int_equal(sem_init(&s->read, 0, 0), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* What is kept keeps a server waiting. */
static void forget(const char *host, int port)
{
	char url[80];
	struct http_at at;
	struct http_link *l;
	(void)snprintf(url, sizeof url, "%s:%d/", host, port);
	assert_true(http_at_of(url, &at));
	while ((l = http_link_kept(&at)) != NULL)
		http_link_free(l);
}

static void end(struct script *s)
{
	forget("http://127.0.0.1", s->port);
	forget("http://models.invalid", s->port);
	(void)shutdown(s->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
	(void)close(s->fd);
}

/* Of requests that may have been done: they are told, and sent again unless that is not wished. */
static struct {
	int told;
	bool refuse;
} twice;
static int on_again(void *arg)
{
	(void)arg;
	twice.told++;
	return twice.refuse ? -1 : 0;
}

static int post(int port, const char *pin, const char *body, size_t n, struct http_res *res, struct err *e)
{
	char url[80];
	(void)snprintf(
	    url, sizeof url, "http://%s:%d/x?y=1", pin == NULL ? "127.0.0.1" : "models.invalid", port);
	const struct http_req q = { .method = "POST",
		.url = url,
		.pin = pin,
		.body = body,
		.body_n = n,
		.total_ms = PATIENCE_MS,
		.on_again = on_again,
		.keep = true };
	return http_do(&q, res, e);
}

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* Closed in the moment of its use: nobody has answered, and another connection is asked. Where a byte had come it is not. */
static void a_connection_that_was_closed_costs_nothing(void **state)
{
	(void)state;
	struct script s = { .says = { { OK, NULL }, { OK, "!HTTP/1.1 2" } } };
	begin(&s);
	twice.told = 0;
	for (int i = 0; i < 3; i++) {
		struct err e = { 0 };
		struct http_res res;
		assert_int_equal(post(s.port, NULL, "{}", 2, &res, &e), i == 2 ? -1 : 0);
		assert_int_equal(twice.told, i == 0 ? 0 : 1);
		assert_int_equal(e.code, i == 2 ? ERR_UPSTREAM : ERR_NONE);
		http_res_free(&res);
		assert_int_equal(s.n, i == 0 ? 1 : 2);
	}
	end(&s);
}

/* MOD-4: whoever counts attempts decides. */
static void what_may_have_been_done_is_not_sent_again_unseen(void **state)
{
	(void)state;
	struct script s = { .says = { { OK, NULL }, { OK } } };
	struct err e = { 0 }, none = { 0 };
	struct http_res res;
	begin(&s);
	twice.told = 0;
	assert_int_equal(post(s.port, NULL, "{}", 2, &res, &e), 0);
	http_res_free(&res);
	twice.refuse = true;
	assert_int_equal(post(s.port, NULL, "{}", 2, &res, &e), -1);
	twice.refuse = false;
	http_res_free(&res);
	assert_int_equal(e.code, ERR_UPSTREAM);
	assert_int_equal(twice.told, 1);
	assert_int_equal(s.n, 1); /* no other connection was made */
	assert_int_equal(post(s.port, NULL, "{}", 2, &res, &none), 0);
	http_res_free(&res);
	end(&s);
}

static void what_was_answered_before_it_was_sent_is_an_answer(void **state)
{
	(void)state;
	enum { BODY = 24 << 20 };
	struct script s = { .says = { { "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig" },
				{ OK } },
		.early = true };
	auto_free char *body = xcalloc(BODY, 1);
	struct http_res res;
	struct err e = { 0 };
	begin(&s);
	assert_int_equal(post(s.port, NULL, body, BODY, &res, &e), 0);
	assert_int_equal(sem_post(&s.read), 0);
	assert_int_equal(res.status, 413);
	assert_string_equal(buf_c(&res.body), "big");
	http_res_free(&res);
	assert_int_equal(post(s.port, NULL, "{}", 2, &res, &e), 0);
	assert_int_equal(sem_post(&s.read), 0);
	assert_int_equal(res.status, 200);
	http_res_free(&res);
	assert_int_equal(s.n, 2);
	end(&s);
}

static void the_next_address_is_tried(void **state)
{
	(void)state;
	struct script s = { .says = { { OK } } };
	struct http_res res;
	struct err e = { 0 };
	char pin[100];
	begin(&s);
	(void)snprintf(pin, sizeof pin, "models.invalid:%d:127.0.0.9,::1,127.0.0.1", s.port);
	assert_int_equal(post(s.port, pin, "{}", 2, &res, &e), 0);
	http_res_free(&res);
	(void)snprintf(pin, sizeof pin, "models.invalid:%d:127.0.0.9,::1", s.port);
	end(&s);
	assert_int_equal(post(s.port, pin, "{}", 2, &res, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	http_res_free(&res);
}

static void no_header_breaks_a_line(void **state)
{
	(void)state;
	static const char *const headers[] = { "X-A: b\r\nX-C: d", NULL };
	const struct http_req q = { .method = "POST",
		.url = "http://127.0.0.1:9/",
		.headers = headers,
		.total_ms = 1000,
		.keep = true };
	struct http_res res;
	struct err e = { 0 };
	assert_int_equal(http_do(&q, &res, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	http_res_free(&res);
}

/* ---- TLS; what is trusted is what OpenSSL is told to trust */

static int ask_tls(const char *name, int port, const char *pin, struct err *e)
{
	char url[80];
	struct http_res res;
	(void)snprintf(url, sizeof url, "https://%s:%d/", name, port);
	const struct http_req q = { .method = "GET",
		.url = url,
		.pin = pin,
		.total_ms = PATIENCE_MS,
		.connect_ms = PATIENCE_MS,
		.keep = true };
	int rc = http_do(&q, &res, e);
	http_res_free(&res);
	return rc;
}

/* A server at a port of its own, which is told apart by what it was asked. */
static struct tlsorigin *origin(bool expired, const char *ca, int *port)
{
	assert_int_equal(close(egt_listener(port)), 0);
	return expired ? tlsorigin_expired("127.0.0.1", *port, "models.test", ca)
		       : tlsorigin_start("127.0.0.1", *port, "models.test", ca);
}

static void trust(const char *all, const char *some)
{
	auto_buf struct buf text = BUF(1 << 20);
	struct err e = { 0 };
	assert_int_equal(file_read(all, &text, &e), 0);
	assert_int_equal(file_read(some, &text, &e), 0);
	assert_int_equal(file_write(all, text.p, text.n, 0600, &e), 0);
	assert_int_equal(setenv("SSL_CERT_FILE", all, 1), 0);
}

static void a_certificate_must_be_known_and_for_that_name_here_too(void **state)
{
	(void)state;
	char ca[] = "/tmp/gh-test-keep-ca.XXXXXX", old[] = "/tmp/gh-test-keep-ca.XXXXXX",
	     other[] = "/tmp/gh-test-keep-ca.XXXXXX";
	auto_fd int a = mkstemp(ca), b = mkstemp(old), c = mkstemp(other);
	int port[3];
	assert_true(a >= 0 && b >= 0 && c >= 0);
	struct tlsorigin *o[] = { origin(false, ca, &port[0]), origin(true, old, &port[1]),
		origin(false, other, &port[2]) };
	trust(ca, old); /* the third signed itself, and nobody knows it */
	const struct {
		const char *name;
		int at;
		bool good;
	} rows[] = { { "other.test", 0, false }, { "127.0.0.1", 0, false }, { "models.test", 1, false },
		{ "models.test", 2, false }, { "models.test", 0, true }, { "models.test", 0, true } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		char pin[80];
		(void)snprintf(pin, sizeof pin, "%s:%d:127.0.0.1", rows[i].name, port[rows[i].at]);
		int rc = ask_tls(rows[i].name, port[rows[i].at], pin, &e);
		assert_int_equal(rc, rows[i].good ? 0 : -1);
		assert_int_equal(e.code, rows[i].good ? ERR_NONE : ERR_UNAVAILABLE);
		assert_true(rows[i].good || strstr(e.msg, "certificate") != NULL);
	}
	auto_buf struct buf seen = BUF(65536);
	tlsorigin_seen(o[1], &seen);
	tlsorigin_seen(o[2], &seen);
	assert_int_equal(seen.n, 0);                     /* nothing was asked of whom nobody knows */
	assert_int_equal(tlsorigin_handshakes(o[0]), 1); /* it was kept */
	forget("https://models.test", port[0]);
	for (int i = 0; i < 3; i++)
		tlsorigin_end(o[i]);
	(void)unlink(ca);
	(void)unlink(old);
	(void)unlink(other);
}

static int up(void **state)
{
	(void)state;
	http_setup();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_the_same_wherever_it_is_cut),
		cmocka_unit_test(what_is_no_answer_is_refused),
		cmocka_unit_test(a_connection_that_was_closed_costs_nothing),
		cmocka_unit_test(what_may_have_been_done_is_not_sent_again_unseen),
		cmocka_unit_test(what_was_answered_before_it_was_sent_is_an_answer),
		cmocka_unit_test(the_next_address_is_tried),
		cmocka_unit_test(no_header_breaks_a_line),
		cmocka_unit_test(a_certificate_must_be_known_and_for_that_name_here_too),
	};
	return cmocka_run_group_tests(tests, up, NULL);
}
