#include "../span.h"
#include "../t.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/clock.h"
#include "io/http.h"

/* ---- a server of one connection, in a thread, that says what it is told to */

struct server {
	int fd;
	pthread_t thread;
	const char *head, *tail; /* sent before and after the replies; may be NULL */
	const char *reply;       /* sent once the request is whole; NULL: nothing */
	size_t repeat;           /* how often reply is sent; 0: once */
	int pause_ms;            /* between two */
	bool hold;               /* keep the connection until the client closes it */
	struct buf request;
	char path[108];
	int port; /* 0: unix socket at path */
};

static bool whole(const char *r)
{
	const char *end = strstr(r, "\r\n\r\n"), *length = strstr(r, "Content-Length: ");
	if (end == NULL)
		return false;
	if (strstr(r, "Transfer-Encoding: chunked") != NULL)
		return strstr(end, "\r\n0\r\n\r\n") != NULL;
	return length == NULL || strlen(end + 4) >= strtoul(length + 16, NULL, 10);
}

/* Until the client closes, or ms have passed. */
static bool client_gone(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };
	return poll(&p, 1, ms) != 0;
}

static void *serve(void *arg)
{
	struct server *s = arg;
	auto_fd int c = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
	char piece[65536];
	ssize_t n = 1;
	while (c >= 0 && !whole(buf_c(&s->request)) && n > 0)
		if ((n = read(c, piece, sizeof piece)) > 0)
			(void)buf_add(&s->request, piece, (size_t)n);
	if (c >= 0 && s->head != NULL)
		(void)send(c, s->head, strlen(s->head), MSG_NOSIGNAL);
	for (size_t i = 0; c >= 0 && s->reply != NULL && i < (s->repeat == 0 ? 1 : s->repeat); i++) {
		if (send(c, s->reply, strlen(s->reply), MSG_NOSIGNAL) < 0)
			break;
		if (s->pause_ms > 0 && client_gone(c, s->pause_ms))
			break;
	}
	if (c >= 0 && s->tail != NULL)
		(void)send(c, s->tail, strlen(s->tail), MSG_NOSIGNAL);
	if (s->hold)
		(void)client_gone(c, 20000);
	return NULL;
}

static void start(struct server *s, bool tcp)
{
	s->request = BUF(8 << 20);
	if (tcp) {
		struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t n = sizeof a;
		s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
		assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
		s->port = ntohs(a.sin_port);
	} else {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		(void)snprintf(s->path, sizeof s->path, "/tmp/gh-test-http.%d", (int)getpid());
		memcpy(a.sun_path, s->path, sizeof s->path);
		(void)unlink(s->path);
		s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
	}
	assert_int_equal(listen(s->fd, 4), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
	(void)shutdown(s->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
	(void)close(s->fd);
	if (s->port == 0)
		(void)unlink(s->path);
	buf_free(&s->request);
}

static struct http_req get(const struct server *s)
{
	return (struct http_req){ .method = "GET",
		.url = "http://gatehouse/v1/x",
		.unix_socket = s->path,
		.total_ms = PATIENCE_MS };
}

/* One exchange: the error code, with res for the caller to look at and free. */
static enum err_code ask(const struct http_req *q, struct http_res *res, struct err *e)
{
	int rc = http_do(q, res, e);
	assert_int_equal(rc, e->code == ERR_NONE ? 0 : -1);
	return e->code;
}

static bool has(const struct server *s, const char *text)
{
	return strstr(buf_c(&s->request), text) != NULL;
}

static void auto_resp_(struct http_res *r)
{
	http_res_free(r);
}
#define auto_http AUTO(auto_resp_)

static void a_reply_is_read_and_the_request_is_plain(void **state)
{
	(void)state;
	struct server s = {
		.reply = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nLocation: /v1/y\r\n"
			 "Content-Length: 2\r\n\r\n{}"
	};
	start(&s, false);
	auto_secret struct secret *token = secret_new("gk_a_b", 6);
	const char *const headers[] = { "X-Request-Id: req_1", NULL };
	struct http_req q = get(&s);
	q.bearer = token;
	q.headers = headers;
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(r.status, 202);
	assert_string_equal(r.content_type, "application/json");
	assert_string_equal(r.location, "/v1/y");
	assert_string_equal(buf_c(&r.body), "{}");
	assert_true(has(&s, "GET /v1/x HTTP/1.1\r\nHost: gatehouse\r\n"));
	assert_true(has(&s, "\r\nAuthorization: Bearer gk_a_b\r\n"));
	assert_true(has(&s, "\r\nX-Request-Id: req_1\r\n"));
	assert_false(has(&s, "Content-Type"));
	assert_false(has(&s, "Content-Length"));
	stop(&s);
}

static void bodies_have_their_length(void **state)
{
	(void)state;
	static const char ok[] = "HTTP/1.1 204 No Content\r\n\r\n";
	static char body[200000];
	memset(body, 'x', sizeof body);
	const char *const typed[] = { "content-type: application/json", NULL };
	struct server s = { .reply = ok };
	start(&s, false);
	struct http_req q = get(&s);
	q.method = "PUT";
	q.body = body;
	q.body_n = sizeof body;
	q.headers = typed;
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(r.status, 204);
	assert_true(has(&s, "PUT /v1/x HTTP/1.1"));
	assert_true(has(&s, "Content-Length: 200000\r\n"));
	assert_true(has(&s, "content-type: application/json\r\n"));
	assert_false(has(&s, "Expect"));
	stop(&s);

	struct server empty = { .reply = ok };
	start(&empty, false);
	q = get(&empty);
	q.method = "POST";
	auto_http struct http_res r2;
	assert_int_equal(ask(&q, &r2, &e), ERR_NONE);
	assert_true(has(&empty, "Content-Length: 0\r\n"));
	assert_false(has(&empty, "Content-Type"));
	stop(&empty);
}

/* ---- streams */

struct stream {
	int to_send, pieces, stop_after; /* pieces of the reply after which on_data refuses; 0: never */
	bool fail_read, cancel;
	size_t got;
};

static ssize_t give(void *arg, void *p, size_t n)
{
	struct stream *st = arg;
	if (st->fail_read)
		return -1;
	if (st->to_send == 0)
		return 0;
	size_t take = (size_t)st->to_send < n ? (size_t)st->to_send : n;
	memset(p, 'u', take);
	st->to_send -= (int)take;
	return (ssize_t)take;
}

static int receive(void *arg, const char *p, size_t n)
{
	struct stream *st = arg;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(p[i], 'd');
	st->got += n;
	return ++st->pieces == st->stop_after ? -1 : 0;
}

static bool cancelled(void *arg)
{
	return ((struct stream *)arg)->cancel;
}

static struct http_req stream_req(const struct server *s, struct stream *st)
{
	struct http_req q = get(s);
	q.method = "POST";
	q.body_read = give;
	q.on_data = receive;
	q.cancelled = cancelled;
	q.arg = st;
	return q;
}

static void bodies_stream_both_ways(void **state)
{
	(void)state;
	struct server s = {
		.reply =
		    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndddd\r\n3\r\nddd\r\n0\r\n\r\n"
	};
	start(&s, false);
	struct stream st = { .to_send = 1 << 20 };
	struct http_req q = stream_req(&s, &st);
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(st.to_send, 0);
	assert_int_equal(st.got, 7);
	assert_int_equal(r.body.n, 0);
	assert_true(has(&s, "POST /v1/x HTTP/1.1"));
	assert_true(has(&s, "Transfer-Encoding: chunked\r\n"));
	assert_true(s.request.n > 1 << 20);
	stop(&s);
}

static void an_error_reply_to_a_stream_is_kept(void **state)
{
	(void)state;
	struct server s = {
		.reply =
		    "HTTP/1.1 409 Conflict\r\nContent-Length: 68\r\n\r\n"
		    "{\"error\":{\"code\":\"conflict\",\"message\":\"It is busy.\",\"param\":\"id\"}}    "
	};
	start(&s, false);
	struct stream st = { 0 };
	struct http_req q = stream_req(&s, &st);
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(st.got, 0);
	assert_int_equal(http_envelope(&r, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_string_equal(e.msg, "It is busy.");
	assert_string_equal(e.param, "id");
	stop(&s);
}

static void callbacks_can_give_up(void **state)
{
	(void)state;
	const struct stream how[] = { { .stop_after = 1 }, { .fail_read = true }, { .cancel = true } };
	for (size_t i = 0; i < 3; i++) {
		struct server s = { .reply = i == 2 ? NULL : "HTTP/1.1 200 OK\r\n\r\nddd", .hold = true };
		start(&s, false);
		struct stream st = how[i];
		struct http_req q = stream_req(&s, &st);
		auto_http struct http_res r;
		struct err e = { 0 };
		struct span t0 = span_begin();
		assert_int_equal(ask(&q, &r, &e), ERR_TIMEOUT);
		assert_string_equal(e.reason, "cancelled");
		assert_in_range(span_ms(&t0), 0, 2000);
		stop(&s);
	}
}

/* ---- bad days */

static void a_cut_reply_is_an_upstream_error(void **state)
{
	(void)state;
	static const char *const cut[] = { "", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Len",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nddd",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndddd\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\ndddd\r\n" };
	for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
		struct server s = { .reply = cut[i] };
		start(&s, false);
		struct http_req q = get(&s);
		auto_http struct http_res r;
		struct err e = { 0 };
		assert_int_equal(ask(&q, &r, &e), ERR_UPSTREAM);
		stop(&s);
	}
}

static void a_reply_past_the_limit_is_refused(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		struct server s = { .reply = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789" };
		start(&s, false);
		struct http_req q = get(&s);
		q.max_reply_bytes = over ? 9 : 10;
		auto_http struct http_res r;
		struct err e = { 0 };
		assert_int_equal(ask(&q, &r, &e), over ? ERR_UPSTREAM : ERR_NONE);
		stop(&s);
	}
}

static void silence_and_dripping_end_in_time(void **state)
{
	(void)state;
	struct server silent = { .hold = true };
	start(&silent, false);
	struct http_req q = get(&silent);
	q.idle_ms = 150;
	auto_http struct http_res r;
	struct err e = { 0 };
	struct span t0 = span_begin();
	assert_int_equal(ask(&q, &r, &e), ERR_TIMEOUT);
	assert_null(e.reason);
	assert_true(clock_ms() - t0.began_ms >= 140);
	assert_in_range(span_ms(&t0), 0, 1500);
	stop(&silent);

	/* A byte now and then resets the silence, not the total. */
	struct server drip = { .reply = "HTTP/1.1 100 Continue\r\n\r\n", .repeat = 1000, .pause_ms = 20 };
	start(&drip, false);
	q = get(&drip);
	q.idle_ms = 10000;
	q.total_ms = 300;
	auto_http struct http_res r2;
	err_clear(&e);
	t0 = span_begin();
	assert_int_equal(ask(&q, &r2, &e), ERR_TIMEOUT);
	assert_true(clock_ms() - t0.began_ms >= 290);
	assert_in_range(span_ms(&t0), 0, 1500);
	stop(&drip);
}

static void a_slow_stream_that_moves_is_not_silent(void **state)
{
	(void)state;
	/* Every piece is a whole chunk, and in all they take half as long again as a silence may. */
	int idle_ms = span_room_ms(400), pieces = idle_ms / 30 * 3 / 2;
	struct server s = { .head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		.reply = "1\r\nd\r\n",
		.repeat = (size_t)pieces,
		.pause_ms = 30,
		.tail = "0\r\n\r\n" };
	start(&s, false);
	struct stream st = { 0 };
	struct http_req q = stream_req(&s, &st);
	q.idle_ms = idle_ms;
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(st.got, pieces);
	stop(&s);
}

static void nobody_there_is_unavailable(void **state)
{
	(void)state;
	struct http_req q = {
		.method = "GET", .url = "http://gatehouse/", .unix_socket = "/tmp/gh-test-http.none"
	};
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(http_do(&q, &r, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_null(strstr(e.msg, "/tmp"));
}

static void only_http_without_proxies_and_redirects(void **state)
{
	(void)state;
	assert_int_equal(setenv("http_proxy", "http://127.0.0.1:9", 1), 0);
	assert_int_equal(setenv("ALL_PROXY", "http://127.0.0.1:9", 1), 0);
	struct server s = {
		.reply = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
	};
	start(&s, true);
	char url[64];
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%d/", s.port);
	struct http_req q = { .method = "GET", .url = url, .total_ms = PATIENCE_MS };
	auto_http struct http_res r;
	struct err e = { 0 };
	assert_int_equal(ask(&q, &r, &e), ERR_NONE);
	assert_int_equal(r.status, 302);
	assert_string_equal(r.location, "http://127.0.0.1:9/");
	stop(&s);

	static const char *const bad[] = { "file:///etc/passwd", "ftp://127.0.0.1/", "gopher://x/",
		"not a url" };
	for (size_t i = 0; i < 4; i++) {
		q.url = bad[i];
		auto_http struct http_res none;
		err_clear(&e);
		assert_int_equal(http_do(&q, &none, &e), -1);
		assert_int_equal(e.code, ERR_INTERNAL);
	}
}

/* ---- TLS: a server with a certificate for 127.0.0.1 that signs itself */

static X509 *self_signed(EVP_PKEY *key)
{
	X509 *x = X509_new();
	assert_non_null(x);
	(void)X509_set_version(x, 2);
	(void)ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	(void)X509_gmtime_adj(X509_getm_notBefore(x), -60);
	(void)X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	(void)X509_set_pubkey(x, key);
	(void)X509_NAME_add_entry_by_txt(
	    X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
	(void)X509_set_issuer_name(x, X509_get_subject_name(x));
	X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
	assert_non_null(san);
	(void)X509_add_ext(x, san, -1);
	X509_EXTENSION_free(san);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	return x;
}

struct tls_server {
	int fd;
	SSL_CTX *ctx;
};

static void *serve_tls(void *arg)
{
	static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	const struct tls_server *s = arg;
	char got[4096];
	for (int c; (c = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; (void)close(c)) {
		SSL *ssl = SSL_new(s->ctx);
		(void)SSL_set_fd(ssl, c);
		if (SSL_accept(ssl) == 1 && SSL_read(ssl, got, sizeof got) > 0) {
			(void)SSL_write(ssl, reply, sizeof reply - 1);
			(void)SSL_shutdown(ssl);
		}
		SSL_free(ssl);
	}
	return NULL;
}

static void a_certificate_must_be_known_and_for_that_name(void **state)
{
	(void)state;
	EVP_PKEY *key = EVP_RSA_gen(2048);
	X509 *cert = self_signed(key);
	char ca[] = "/tmp/gh-test-http-ca.XXXXXX";
	int ca_fd = mkstemp(ca);
	FILE *f = fdopen(ca_fd, "w");
	assert_non_null(f);
	assert_int_equal(PEM_write_X509(f, cert), 1);
	assert_int_equal(fclose(f), 0);

	struct tls_server s = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
		.ctx = SSL_CTX_new(TLS_server_method()) };
	assert_int_equal(SSL_CTX_use_certificate(s.ctx, cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(s.ctx, key), 1);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	assert_int_equal(bind(s.fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(getsockname(s.fd, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(listen(s.fd, 4), 0);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, serve_tls, &s), 0);

	const struct {
		const char *host, *ca;
		enum err_code code;
	} rows[] = { { "127.0.0.1", NULL, ERR_UNAVAILABLE }, { "localhost", ca, ERR_UNAVAILABLE },
		{ "127.0.0.1", ca, ERR_NONE }, { "127.0.0.1", "/nonexistent", ERR_INTERNAL } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char url[64];
		(void)snprintf(url, sizeof url, "https://%s:%d/", rows[i].host, ntohs(a.sin_port));
		struct http_req q = {
			.method = "GET", .url = url, .ca_file = rows[i].ca, .total_ms = PATIENCE_MS
		};
		auto_http struct http_res r;
		struct err e = { 0 };
		assert_int_equal(ask(&q, &r, &e), rows[i].code);
	}
	(void)shutdown(s.fd, SHUT_RDWR);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(s.fd);
	(void)unlink(ca);
	SSL_CTX_free(s.ctx);
	X509_free(cert);
	EVP_PKEY_free(key);
}

static void a_line_break_in_a_header_is_refused(void **state)
{
	(void)state;
	const char *const headers[] = { "X-A: b\r\nX-C: d", NULL };
	auto_secret struct secret *token = secret_new("a\nb", 3);
	struct http_req q[] = { { .method = "GET", .url = "http://127.0.0.1:9/", .headers = headers },
		{ .method = "GET", .url = "http://127.0.0.1:9/", .bearer = token } };
	for (size_t i = 0; i < 2; i++) {
		auto_http struct http_res r;
		struct err e = { 0 };
		assert_int_equal(http_do(&q[i], &r, &e), -1);
		assert_int_equal(e.code, ERR_INTERNAL);
	}
}

static void texts_are_escaped_and_envelopes_read(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	assert_string_equal(http_escape(m, "a/b c?&=%ü-._~"), "a%2Fb%20c%3F%26%3D%25%C3%BC-._~");
	assert_string_equal(http_escape(m, ""), "");
	struct http_res r = { .status = 500, .body = BUF(100) };
	struct err e = { 0 };
	assert_int_equal(http_envelope(&r, &e), -1);
	assert_int_equal(e.code, ERR_UPSTREAM);
	(void)buf_str(&r.body, "<html>secret</html>");
	err_clear(&e);
	assert_int_equal(http_envelope(&r, &e), -1);
	assert_null(strstr(e.msg, "secret"));
	http_res_free(&r);
}

static int setup(void **state)
{
	(void)state;
	http_setup();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reply_is_read_and_the_request_is_plain),
		cmocka_unit_test(bodies_have_their_length),
		cmocka_unit_test(bodies_stream_both_ways),
		cmocka_unit_test(an_error_reply_to_a_stream_is_kept),
		cmocka_unit_test(callbacks_can_give_up),
		cmocka_unit_test(a_cut_reply_is_an_upstream_error),
		cmocka_unit_test(a_reply_past_the_limit_is_refused),
		cmocka_unit_test(silence_and_dripping_end_in_time),
		cmocka_unit_test(a_slow_stream_that_moves_is_not_silent),
		cmocka_unit_test(nobody_there_is_unavailable),
		cmocka_unit_test(only_http_without_proxies_and_redirects),
		cmocka_unit_test(a_certificate_must_be_known_and_for_that_name),
		cmocka_unit_test(a_line_break_in_a_header_is_refused),
		cmocka_unit_test(texts_are_escaped_and_envelopes_read),
	};
	return cmocka_run_group_tests_name("http", tests, setup, NULL);
}
