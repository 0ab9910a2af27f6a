/* SEC-5: the nginx files as they are shipped, from outside: TLS, headers, limits, clients that are slow on purpose. */
#include "../span.h"
#include "../t.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "judge.h"
#include "stack.h"

enum { CUT_S = 20 /* client_header_timeout and client_body_timeout as shipped */, WAIT_S = 300 };

static struct stack st;
static struct stack_org org;

/* ---- a raw client */

static int port(void)
{
	return (int)strtol(strrchr(st.url[0], ':') + 1, NULL, 10);
}

static int dial(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port()),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval limit = { .tv_sec = WAIT_S };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

struct tls {
	SSL_CTX *ctx;
	SSL *ssl;
	int fd;
};

/* A handshake with exactly this version (0: any), whatever this host's policy says about old ones. */
static bool tls_open(struct tls *t, int version)
{
	t->fd = dial();
	t->ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_security_level(t->ctx, 0);
	assert_int_equal(SSL_CTX_set_cipher_list(t->ctx, "ALL:@SECLEVEL=0"), 1);
	if (version != 0) {
		assert_int_equal(SSL_CTX_set_min_proto_version(t->ctx, version), 1);
		assert_int_equal(SSL_CTX_set_max_proto_version(t->ctx, version), 1);
	}
	t->ssl = SSL_new(t->ctx);
	assert_int_equal(SSL_set_fd(t->ssl, t->fd), 1);
	return SSL_connect(t->ssl) == 1 && (version == 0 || SSL_version(t->ssl) == version);
}

static void tls_close(struct tls *t)
{
	SSL_free(t->ssl);
	SSL_CTX_free(t->ctx);
	(void)close(t->fd);
}

static void tls_say(struct tls *t, const char *text)
{
	assert_int_equal(SSL_write(t->ssl, text, (int)strlen(text)), strlen(text));
}

/* The status of the answer to one request, 0 for none. */
static int tls_status(struct tls *t, const char *request)
{
	char head[64] = "";
	tls_say(t, request);
	int n = SSL_read(t->ssl, head, sizeof head - 1);
	return n > 12 && str_starts(head, "HTTP/1.1 ") ? (int)strtol(head + 9, NULL, 10) : 0;
}

/* The whole answer to a request that asks for the connection's end. */
static void tls_answer(struct tls *t, const char *request, struct web *w)
{
	auto_buf struct buf all = BUF(1 << 20);
	char some[4096];
	tls_say(t, request);
	for (int n; (n = SSL_read(t->ssl, some, sizeof some)) > 0;)
		assert_int_equal(buf_add(&all, some, (size_t)n), 0);
	web_parse(&all, w);
}

static bool speaks(int version)
{
	struct tls t;
	bool is = tls_open(&t, version);
	tls_close(&t);
	return is;
}

/* ---- TLS */

/* In nginx's configuration, replace what begins with `old` (all of it) and reload. */
static void nginx_with(const char *file, const char *old, const char *by)
{
	struct err e = { 0 };
	char path[160];
	auto_buf struct buf text = BUF(1 << 20), out = BUF(1 << 20);
	(void)snprintf(path, sizeof path, "%s/nginx/%s", st.dir, file);
	assert_int_equal(file_read(path, &text, &e), 0);
	const char *from = buf_c(&text), *at;
	int n = 0;
	for (; (at = strstr(from, old)) != NULL; from = at + strlen(old), n++) {
		(void)buf_add(&out, from, (size_t)(at - from));
		(void)buf_str(&out, by);
	}
	(void)buf_str(&out, from);
	assert_true(n > 0);
	assert_int_equal(file_write(path, out.p, out.n, 0644, &e), 0);
	stack_reload_nginx(&st);
}

static void until_speaks(int version, bool is)
{
	for (int64_t deadline = clock_ms() + 60000; speaks(version) != is; (void)poll(NULL, 0, 50))
		assert_true(clock_ms() < deadline);
}

static void nothing_older_than_tls_1_2_is_spoken(void **s)
{
	(void)s;
	/* This host's OpenSSL refuses old versions by itself; here it is told not to, so that only nginx's own directive is left. */
	nginx_with("nginx.conf", "ssl_session_tickets off;",
	    "ssl_session_tickets off; ssl_ciphers ALL:@SECLEVEL=0;");
	until_speaks(TLS1_3_VERSION, true);
	assert_true(speaks(TLS1_2_VERSION));
	for (int i = 0; i < 20; i++) { /* the old workers and the new ones */
		assert_false(speaks(TLS1_VERSION));
		assert_false(speaks(TLS1_1_VERSION));
	}
	/* The control: without the directive's value it is spoken, so the test can see it; and the include alone still refuses. */
	nginx_with(
	    "nginx.conf", "ssl_protocols TLSv1.2 TLSv1.3;", "ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;");
	until_speaks(TLS1_1_VERSION, true);
	static const struct {
		int version, status;
	} rows[] = { { TLS1_VERSION, 403 }, { TLS1_1_VERSION, 403 }, { TLS1_2_VERSION, 401 },
		{ TLS1_3_VERSION, 401 } };
	static const char *const paths[] = { "/v1/keys", "/v1/git/o/r.git/info/refs", "/git/o/r",
		"/v1/messages/count_tokens" };
	for (size_t i = 0; i < 4; i++)
		for (size_t p = 0; p < 4; p++) {
			char request[200], hsts[80];
			struct tls t;
			(void)snprintf(request, sizeof request,
			    "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", paths[p]);
			assert_true(tls_open(&t, rows[i].version));
			auto_web struct web w = { 0 };
			tls_answer(&t, request, &w);
			assert_int_equal(w.status, p == 3 && rows[i].status == 401 ? 405 : rows[i].status);
			if (rows[i].status == 403 && p == 3) { /* MOD-10 */
				judge_dialect(&st, &w, paths[p], 403, "permission_error", NULL);
			} else if (rows[i].status ==
			    403) { /* the others are answered by the api, a page too */
				judge_refusal(&st, &w, 403);
				assert_non_null(strstr(web_error(&w, "message"), "TLS 1.2"));
			}
			assert_true(web_header(&w, "Strict-Transport-Security", hsts, sizeof hsts));
			assert_null(strstr(w.headers, "nginx/"));
			tls_close(&t);
		}
	nginx_with(
	    "nginx.conf", "ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;", "ssl_protocols TLSv1.2 TLSv1.3;");
	nginx_with("nginx.conf", " ssl_ciphers ALL:@SECLEVEL=0;", "");
	until_speaks(TLS1_1_VERSION, false);
}

/* ---- what every answer says */

static void decent(const struct web *w, const char *what)
{
	char value[200];
	if (!web_header(w, "Strict-Transport-Security", value, sizeof value) ||
	    strcmp(value, "max-age=31536000") != 0)
		fail_msg("%s: no HSTS: %s", what, w->headers);
	if (web_header(w, "Server", value, sizeof value) && strcmp(value, "nginx") != 0)
		fail_msg("%s: %s", what, value);
	if (strstr(w->headers, "nginx/") != NULL || strstr(w->body, "nginx/") != NULL ||
	    strcasestr(w->headers, "X-Powered-By"))
		fail_msg("%s: a version: %s", what, w->headers);
	const char *first = strcasestr(w->headers, "strict-transport-security:");
	assert_null(strcasestr(first + 1, "strict-transport-security:"));
}

static void is_decent(
    const char *method, const char *path, const char *key, const char *body, const char *header, long status)
{
	const char *const headers[] = { header, NULL };
	struct web_req q = { .method = method, .path = path, .key = key, .body = body, .headers = headers };
	auto_web struct web w = { 0 };
	web_do(&st, &q, &w);
	if (w.status != status)
		fail_msg("%s %.80s: %ld %.200s", method, path, w.status, w.body);
	decent(&w, path);
}

static void every_answer_has_hsts_and_no_version(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	is_decent("GET", "/v1/agents/sessions", org.key, NULL, NULL, 200);
	is_decent("GET", "/health", NULL, NULL, NULL, 200);
	is_decent("GET", "/v1/agents/sessions", NULL, NULL, NULL, 401);
	is_decent("GET", "/v1/nothing", org.key, NULL, NULL, 404);
	is_decent("GET", "/elsewhere", NULL, NULL, NULL, 404);
	is_decent("PATCH", "/v1/keys", org.key, NULL, NULL, 405);
	is_decent("TRACE", "/v1/keys", org.key, NULL, NULL, 405);
	is_decent("POST", "/v1/keys", org.key, mem_fmt(m, "%02000000d", 1), NULL, 413);
	stack_stop(&st, "api1");
	is_decent("GET", "/v1/agents/sessions", org.key, NULL, NULL, 503);
	is_decent("GET", mem_fmt(m, "/v1/git/%s/x.git/info/refs", org.slug), org.key, NULL, NULL, 503);
	stack_start(&st, "api1");
	stack_ready(&st);
}

/* The status of a request over HTTP/1.1 with n headers of so many bytes each. */
static int with_headers(int n, size_t bytes)
{
	struct tls t;
	auto_mem struct mem *m = mem_new();
	const char *head = mem_fmt(m, "GET /v1/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
	for (int i = 0; i < n; i++)
		head = mem_fmt(m, "%sX-Long-%d: %0*d\r\n", head, i, (int)bytes, 1);
	assert_true(tls_open(&t, 0));
	int status = tls_status(&t, mem_fmt(m, "%s\r\n", head));
	tls_close(&t);
	return status;
}

/* 4 buffers of 16 KiB: all FastCGI parameters together stay under 64 KiB. */
static void heads_have_limits(void **s)
{
	(void)s;
	assert_int_equal(with_headers(1, 15000), 401);
	assert_int_equal(with_headers(1, 17000), 400);
	assert_int_equal(with_headers(3, 15000), 401);
	assert_int_equal(with_headers(5, 15000), 400);
}

/* ---- slow clients: each is cut at the shipped time, though it never falls quite silent */

struct slow {
	const char *name, *head;
	bool tls, drips; /* drips: a byte a second */
	pthread_t thread;
	int64_t took_ms, counts_ms; /* by the clock, and by span.h */
};

static bool cut(struct slow *w, struct tls *t, int fd)
{
	char piece[512];
	ssize_t n = w->tls ? SSL_read(t->ssl, piece, sizeof piece) : recv(fd, piece, sizeof piece, 0);
	if (n > 0)
		return false; /* a 408, and then the end */
	if (w->tls) {
		int why = SSL_get_error(t->ssl, (int)n);
		return why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
	}
	return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static void *be_slow(void *arg)
{
	struct slow *w = arg;
	struct tls t = { .fd = -1 };
	struct timeval second = { .tv_sec = 1 };
	struct span from = span_begin();
	int fd = w->tls ? -1 : dial();
	if (w->tls) {
		assert_true(tls_open(&t, 0));
		fd = t.fd;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	if (w->tls && w->head[0] != 0)
		tls_say(&t, w->head);
	while (!cut(w, &t, fd) && clock_ms() - from.began_ms < WAIT_S * 1000LL)
		if (w->drips)
			(void)(w->tls ? SSL_write(t.ssl, "x", 1) : send(fd, "\x16", 1, MSG_NOSIGNAL));
	w->took_ms = clock_ms() - from.began_ms;
	w->counts_ms = span_of(&from, w->took_ms);
	if (w->tls)
		tls_close(&t);
	else
		(void)close(fd);
	return NULL;
}

static void a_client_that_is_slow_on_purpose_is_cut(void **s)
{
	(void)s;
#define POST(path, length)                                                                                   \
	"POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" length "\r\n\r\n"
	struct slow clients[] = {
		{ .name = "no handshake" },
		{ .name = "a handshake byte by byte", .drips = true },
		{ .name = "no head", .tls = true, .head = "" },
		{ .name = "a head that does not go on",
		    .tls = true,
		    .head = "GET /v1/keys HTTP/1.1\r\nHost: localhost\r\nX-A: " },
		{ .name = "a head byte by byte",
		    .tls = true,
		    .drips = true,
		    .head = "GET /v1/keys HTTP/1.1\r\nHost: localhost\r\nX-A: " },
		{ .name = "a body of which a byte a minute would come",
		    .tls = true,
		    .head = POST("/v1/keys", "Content-Length: 1000") "{" },
		{ .name = "a chunked one",
		    .tls = true,
		    .head = POST("/v1/keys", "Transfer-Encoding: chunked") "3e8\r\n{" },
		{ .name = "a push that does not go on", .tls = true },
	};
	enum { N = sizeof clients / sizeof clients[0] };
	char push[400]; /* unbuffered: a process of the api waits for it */
	auto_web struct web repo = { 0 };
	web_json(&st, "POST", "/v1/git/repos", org.key, js_pack("{s:s}", "name", "slow"), &repo);
	assert_int_equal(repo.status, 201);
	(void)snprintf(push, sizeof push,
	    "POST /v1/git/%s/slow.git/git-receive-pack HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
	    "%s\r\n"
	    "Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 1000\r\n\r\n00",
	    org.slug, org.key);
	clients[N - 1].head = push;
	for (size_t i = 0; i < N; i++)
		assert_int_equal(pthread_create(&clients[i].thread, NULL, be_slow, &clients[i]), 0);
	for (size_t i = 0; i < N; i++) {
		(void)pthread_join(clients[i].thread, NULL);
		print_message("    %s: %.1f s\n", clients[i].name, (double)clients[i].took_ms / 1000);
		/* What is no handshake may be noticed earlier. */
		int least_s = clients[i].tls || !clients[i].drips ? CUT_S - 2 : 0;
		assert_true(clients[i].took_ms >= least_s * 1000);
		assert_in_range(clients[i].counts_ms, 0, (CUT_S + 6) * 1000);
	}
	/* Others were served meanwhile and are now. */
	is_decent("GET", "/v1/agents/sessions", org.key, NULL, NULL, 200);
}

/* ---- identity headers end at the edge: in place of the api stands a listener that writes down what nginx tells it */

static size_t length(const unsigned char **p)
{
	size_t n = **p;
	if (n < 128) {
		*p += 1;
		return n;
	}
	const unsigned char *b = *p;
	*p += 4;
	return (size_t)(b[0] & 0x7f) << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
}

/* FastCGI 1.0, 3.3: records of eight bytes and a content; type 4 are the parameters, an empty one ends them. */
static json_t *params_of(int fd)
{
	unsigned char head[8], text[65536 + 256];
	json_t *params = js_pack("{}");
	for (;;) {
		assert_int_equal(recv(fd, head, 8, MSG_WAITALL), 8);
		size_t n = (size_t)head[4] << 8 | head[5], all = n + head[6];
		assert_int_equal(recv(fd, text, all, MSG_WAITALL), all);
		if (head[1] == 4 && n == 0)
			return params;
		for (const unsigned char *p = text; head[1] == 4 && p < text + n;) {
			size_t a = length(&p), b = length(&p);
			char name[256];
			(void)snprintf(name, sizeof name, "%.*s", (int)a, p);
			js_set(params, name, js_text((const char *)p + a, b));
			p += a + b;
		}
	}
}

struct record {
	int listen_fd;
	json_t *params;
};

static void *record(void *arg)
{
	static const char body[] = "Status: 200\r\nContent-Type: text/plain\r\n\r\n";
	struct record *r = arg;
	int fd = accept(r->listen_fd, NULL, NULL);
	assert_true(fd >= 0);
	r->params = params_of(fd);
	unsigned char out[8 + sizeof body - 1] = { 1, 6, 0, 1, 0, sizeof body - 1 },
					    end[16] = { 1, 3, 0, 1, 0, 8 };
	memcpy(out + 8, body, sizeof body - 1);
	(void)send(fd, out, sizeof out, MSG_NOSIGNAL);
	(void)send(fd, end, sizeof end, MSG_NOSIGNAL);
	(void)close(fd);
	return NULL;
}

static json_t *told_to_the_api(const char *path, const char *const *headers)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	pthread_t thread;
	struct record r = { .listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s/run/api1.sock", st.dir);
	(void)unlink(a.sun_path);
	assert_int_equal(bind(r.listen_fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(chmod(a.sun_path, 0666), 0);
	assert_int_equal(listen(r.listen_fd, 4), 0);
	assert_int_equal(pthread_create(&thread, NULL, record, &r), 0);
	auto_web struct web w = { 0 };
	struct web_req q = { .method = "GET", .path = path, .key = org.key, .headers = headers };
	web_do(&st, &q, &w);
	assert_int_equal(w.status, 200);
	(void)pthread_join(thread, NULL);
	(void)close(r.listen_fd);
	(void)unlink(a.sun_path);
	return r.params;
}

static void no_identity_of_a_client_passes_the_edge(void **s) /* ID-2 */
{
	(void)s;
	static const char *const headers[] = { "X-Org-Id: admin", "X-User-Id: root", "X-User-IsAdmin: true",
		"Remote-User: root", "X-Remote-User: root", "X-Forwarded-User: root", "Proxy: http://evil",
		"X_Org_Id: admin", "Gatehouse-Door: internal", "X-Plain: passes", NULL };
	static const char *const gone[] = { "HTTP_X_ORG_ID", "HTTP_X_USER_ID", "HTTP_X_USER_ISADMIN",
		"HTTP_REMOTE_USER", "HTTP_X_REMOTE_USER", "HTTP_X_FORWARDED_USER", "HTTP_PROXY", NULL };
	auto_mem struct mem *m = mem_new();
	const char *const paths[] = { "/v1/keys", "/health",
		mem_fmt(m, "/v1/git/%s/x.git/info/refs", org.slug), "/v1/sandboxes/sbx_1/files",
		mem_fmt(m, "/git/%s/x", org.slug) };
	stack_stop(&st, "api1");
	for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
		auto_json json_t *params = told_to_the_api(paths[p], headers);
		for (const char *const *g = gone; *g != NULL; g++)
			if (js_str_or(params, *g, "")[0] != 0)
				fail_msg("%s: %s is %s", paths[p], *g, js_str(params, *g));
		assert_string_equal(js_str_or(params, "GATEHOUSE_DOOR", ""), "public");
		assert_string_equal(
		    js_str_or(params, "HTTP_X_PLAIN", ""), "passes"); /* headers do come through */
		assert_non_null(js_str(params, "HTTP_AUTHORIZATION"));
	}
	stack_start(&st, "api1");
	stack_ready(&st);
}

static int setup(void **s)
{
	(void)s;
	(void)signal(SIGPIPE, SIG_IGN);
	stack_up(&st, 1, 0, 1, NULL);
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
		cmocka_unit_test(every_answer_has_hsts_and_no_version),
		cmocka_unit_test(heads_have_limits),
		cmocka_unit_test(a_client_that_is_slow_on_purpose_is_cut),
		cmocka_unit_test(no_identity_of_a_client_passes_the_edge),
		cmocka_unit_test(nothing_older_than_tls_1_2_is_spoken),
	};
	return cmocka_run_group_tests_name("edge", tests, setup, teardown);
}
