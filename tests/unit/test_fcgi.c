/* The server core behind a real nginx: what a client sees (HTTP-2…5, STR-1, RUN-2). */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../nginxtest.h"
#include "auth/principal.h"
#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/fcgi.h"

static struct nginxtest *nginx;
static bool kept; /* nginx keeps its connections */
static struct fcgi *core;

/* ---- a fake log: the last request's pairs */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_line[2048];
static sem_t at_work, was_left; /* op `waits` has begun; is logged */

void log_kv(enum log_level level, const char *msg, ...)
{
	va_list ap;
	char line[sizeof log_line];
	int n = snprintf(line, sizeof line, "%d %s", (int)level, msg);
	va_start(ap, msg);
	for (const char *k; (k = va_arg(ap, const char *)) != NULL;) {
		const char *v = va_arg(ap, const char *);
		if (v != NULL)
			n += snprintf(line + n, sizeof line - (size_t)n, " %s=%.200s", k, v);
	}
	va_end(ap);
	pthread_mutex_lock(&log_lock);
	memcpy(log_line, line, sizeof line);
	pthread_mutex_unlock(&log_lock);
	if (strstr(line, " op=waits ") != NULL)
		(void)sem_post(&was_left);
}

/* ---- the ops under test */

static json_t *echo(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)e;
	return json_incref(in);
}

static json_t *about(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	json_t *o = json_object();
	js_set_str(o, "path", c->path);
	js_set_str(o, "query", c->query);
	js_set_str(o, "id", js_str(in, "id"));
	js_set_str(o, "traceparent", c->traceparent);
	js_set_str(o, "method", c->method);
	reply_header(c, "X-Extra", "1");
	return o;
}

static json_t *broken(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in, (void)e;
	return NULL;
}

/* For its client to leave. How: what it says then. */
static json_t *waits(struct ctx *c, json_t *in, struct err *e)
{
	(void)sem_post(&at_work);
	while (!reply_gone(c))
		(void)poll(NULL, 0, 5);
	if (strcmp(js_str(in, "how"), "answers") == 0)
		return js_pack("{}");
	if (strcmp(js_str(in, "how"), "says-nothing") == 0)
		return REPLIED;
	if (strcmp(js_str(in, "how"), "is-cancelled") == 0)
		e->reason = "cancelled";
	err_set(e, ERR_TIMEOUT, "It was broken off.");
	return NULL;
}

static json_t *limited(struct ctx *c, json_t *in, struct err *e)
{
	(void)c, (void)in;
	e->retry_s = 17;
	err_set(e, ERR_RATE, "Slow down.");
	return NULL;
}

static json_t *upload(struct ctx *c, json_t *in, struct err *e)
{
	char piece[1000];
	long long n = 0;
	ssize_t got;
	while ((got = reply_read(c, piece, sizeof piece)) > 0)
		n += got;
	if (got < 0) {
		err_set(e, ERR_INTERNAL, "The body could not be read.");
		return NULL;
	}
	return js_pack("{s:I, s:s}", "bytes", n, "name", js_str(in, "name"));
}

static json_t *page(struct ctx *c, json_t *in, struct err *e)
{
	(void)in, (void)e;
	(void)reply_begin(c, 200, "text/html; charset=utf-8");
	(void)reply_write(c, "<p>hi", 5);
	return REPLIED;
}

static const struct param echo_in[] = {
	{ .name = "text", .type = T_STR, .required = true, .max = 1 << 20 },
	{ .name = "n", .type = T_INT },
	{ 0 },
};
static const struct param thing_in[] = {
	{ .name = "id", .type = T_STR, .required = true },
	{ .name = "limit", .type = T_INT, .min = 1, .max = 200 },
	{ 0 },
};
static const struct param name_in[] = { { .name = "name", .type = T_STR, .required = true }, { 0 } };
static const struct param how_in[] = { { .name = "how", .type = T_STR, .required = true }, { 0 } };
static const struct op toy_ops[] = {
	{ .id = "echo", .routes = { { "POST", "/v1/echo" } }, .in = echo_in, .status = 201, .run = echo },
	{ .id = "get_thing", .routes = { { "GET", "/v1/things/{id}" } }, .in = thing_in, .run = about },
	{ .id = "set_thing", .routes = { { "POST", "/v1/things/{id}" } }, .in = thing_in, .run = echo },
	{ .id = "small",
	    .routes = { { "POST", "/v1/small" } },
	    .in = echo_in,
	    .max_body_bytes = 100,
	    .run = echo },
	{ .id = "broken", .routes = { { "GET", "/v1/broken" } }, .run = broken },
	{ .id = "waits", .routes = { { "GET", "/v1/waits/{how}" } }, .in = how_in, .run = waits },
	{ .id = "limited", .routes = { { "GET", "/v1/limited" } }, .run = limited },
	{ .id = "upload",
	    .routes = { { "PUT", "/v1/upload/{name}" } },
	    .in = name_in,
	    .flags = OP_RAW_IN,
	    .max_body_bytes = 1 << 20,
	    .run = upload },
	{ .id = "page", .routes = { { "GET", "/git/page" } }, .flags = OP_RAW_OUT | OP_HIDDEN, .run = page },
	{ .id = "inside", .routes = { { "GET", "/v1/node/x" } }, .flags = OP_INTERNAL, .run = about },
	{ 0 },
};
static const struct op *const tables[] = { toy_ops, NULL };

static const struct principal somebody = { .org = "acme", .user = "u" };

static int identify(struct ctx *c, const struct principal **who, struct err *e)
{
	const char *a = reply_param(c, "HTTP_AUTHORIZATION");
	if (a != NULL && strcmp(a, "Bearer down") == 0)
		return err_set(e, ERR_UNAVAILABLE, "The database is away.");
	*who = a == NULL || strcmp(a, "Bearer bad") != 0 ? &somebody : NULL;
	return 0;
}

static int authorise(struct ctx *c, const struct op *op, struct err *e)
{
	(void)op;
	return c->who != NULL ? 0 : err_set(e, ERR_UNAUTHORIZED, "The credential is not valid.");
}

static const char *org_of(const struct principal *who)
{
	return who->org;
}

static int start(void **s)
{
	(void)s;
	struct err e = { 0 };
	fcgi_block_signals();
	nginx = kept ? nginxtest_start_kept() : nginxtest_start();
	struct fcgi_opts o = { .socket_path = nginxtest_fcgi(nginx),
		.workers = 2,
		.queue = 4,
		.max_streams = 2,
		.tables = tables,
		.identify = identify,
		.authorise = authorise,
		.org_of = org_of };
	core = fcgi_start(&o, &e);
	return core == NULL ? -1 : 0;
}

static int stop(void **s)
{
	(void)s;
	fcgi_stop(core);
	nginxtest_end(nginx);
	return 0;
}

/* ---- helpers */

static struct answer last;

static json_t *ask(const char *method, const char *target, const char *extra, const char *body)
{
	answer_free(&last);
	nginxtest_do(nginx, NGINX_PUBLIC, method, target, extra, body, &last);
	return last.body[0] == 0 ? NULL : json_loads(last.body, JSON_DECODE_ANY, NULL);
}

static json_t *post(const char *target, const char *body)
{
	return ask("POST", target, "Content-Type: application/json\r\n", body);
}

static const char *header(const char *name)
{
	static char value[300];
	return answer_header(&last, name, value, sizeof value);
}

/* The envelope (HTTP-4) of an error, with a param and words in its message. */
static void is_error(const json_t *v, int status, const char *code, const char *param, const char *words)
{
	const json_t *o = json_object_get(v, "error");
	assert_int_equal(last.status, status);
	assert_string_equal(js_str(o, "code"), code);
	assert_non_null(js_str(o, "type"));
	assert_string_equal(js_str(o, "request_id"), header("X-Request-Id"));
	assert_string_equal(js_str_or(o, "param", ""), param);
	if (strstr(js_str(o, "message"), words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", js_str(o, "message"), words);
}

/* ---- tests */

static void a_json_op_answers_with_its_status(void **s)
{
	(void)s;
	auto_json json_t *v = post("/v1/echo", "{\"text\":\"h\\u00e9\",\"n\":2}");
	assert_int_equal(last.status, 201);
	assert_string_equal(js_str(v, "text"), "h\xC3\xA9");
	assert_string_equal(header("Content-Type"), "application/json");
	assert_non_null(header("Content-Length"));
}

/* HTTP-5 */
static void the_callers_request_id_is_kept_if_it_is_sane(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/things/a", "X-Request-Id: my.id-1_Z\r\n", NULL);
	assert_non_null(a);
	assert_string_equal(header("X-Request-Id"), "my.id-1_Z");
	static const char *const insane[] = { "", "a b", "a\"b", "\xC3\xA9",
		"12345678901234567890123456789012345678901234567890123456789012345", NULL };
	for (const char *const *i = insane; *i != NULL; i++) {
		char extra[120];
		(void)snprintf(extra, sizeof extra, "X-Request-Id: %s\r\n", *i);
		auto_json json_t *b = ask("GET", "/v1/nothing", extra, NULL);
		assert_non_null(b);
		assert_true(id_is("req", header("X-Request-Id")));
	}
}

static void a_trace_is_continued_with_a_span_of_ours(void **s)
{
	(void)s;
	static const char theirs[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
	auto_json json_t *v = ask("GET", "/v1/things/a",
	    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n", NULL);
	const char *ours = js_str(v, "traceparent");
	assert_int_equal(strlen(ours), 55);
	assert_memory_equal(ours, theirs, 36);
	assert_memory_not_equal(ours + 36, theirs + 36, 16);
	assert_string_equal(ours + 52, "-01");
	static const char *const bad[] = { "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x", NULL };
	for (const char *const *b = bad; *b != NULL; b++) {
		char extra[120];
		(void)snprintf(extra, sizeof extra, "traceparent: %s\r\n", *b);
		auto_json json_t *w = ask("GET", "/v1/things/a", extra, NULL);
		assert_true(json_is_null(json_object_get(w, "traceparent")));
	}
}

/* HTTP-1, HTTP-2 */
static void unknown_paths_and_wrong_methods_are_told_apart(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/nothing", "", NULL);
	is_error(a, 404, "not_found", "", "openapi.json");
	auto_json json_t *b = ask("GET", "/api/v1/things", "", NULL);
	is_error(b, 404, "not_found", "", "");
	auto_json json_t *c = ask("PATCH", "/v1/things/a", "", NULL);
	is_error(c, 405, "method_not_allowed", "", "GET, HEAD, POST");
	assert_string_equal(header("Allow"), "GET, HEAD, POST");
}

static void internal_ops_are_only_behind_the_internal_door(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/node/x", "Gatehouse-Door: internal\r\n", NULL);
	is_error(a, 404, "not_found", "", "");
	struct answer in;
	nginxtest_do(nginx, NGINX_INTERNAL, "GET", "/v1/node/x", "", NULL, &in);
	assert_int_equal(in.status, 200);
	answer_free(&in);
}

static void a_body_must_be_json(void **s)
{
	(void)s;
	auto_json json_t *a = ask("POST", "/v1/echo", "Content-Type: text/plain\r\n", "{\"text\":\"a\"}");
	is_error(a, 415, "unsupported_media_type", "", "application/json");
	auto_json json_t *b = ask("POST", "/v1/echo", "", "{\"text\":\"a\"}");
	is_error(b, 415, "unsupported_media_type", "", "");
	auto_json json_t *c = ask(
	    "POST", "/v1/echo", "Content-Type: application/jsonish\r\n", "{\"text\":\"a\"}");
	is_error(c, 415, "unsupported_media_type", "", "");
	auto_json json_t *d = ask(
	    "POST", "/v1/echo", "Content-Type: Application/JSON; charset=utf-8\r\n", "{\"text\":\"a\"}");
	assert_int_equal(last.status, 201);
	assert_non_null(d);
	auto_json json_t *packed = ask("POST", "/v1/echo",
	    "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "\x1f\x8b\x08");
	is_error(packed, 415, "unsupported_media_type", "", "without Content-Encoding");
	auto_json json_t *plain = ask("POST", "/v1/echo",
	    "Content-Type: application/json\r\nContent-Encoding: identity\r\n", "{\"text\":\"a\"}");
	assert_int_equal(last.status, 201);
	assert_non_null(plain);
}

static void bad_json_is_told_with_its_place(void **s)
{
	(void)s;
	auto_json json_t *a = post("/v1/echo", "{\"text\":");
	is_error(a, 400, "invalid_json", "", "line 1");
	auto_json json_t *b = post("/v1/echo", "{\"text\":\"\xff\"}");
	is_error(b, 400, "invalid_json", "", "UTF-8");
	auto_json json_t *c = post("/v1/echo", "{\"text\":\"a\\u0000\"}");
	is_error(c, 400, "invalid_json", "", "U+0000");
	auto_json json_t *d = post("/v1/echo", "[1]");
	is_error(d, 400, "bad_request", "", "JSON object");
	char deep[203];
	memset(deep, '[', 100);
	memset(deep + 100, ']', 100);
	deep[200] = 0;
	auto_json json_t *f = post("/v1/echo", deep);
	is_error(f, 400, "json_too_deep", "", "32");
	auto_json json_t *g = post("/v1/echo", "{\"text\":\"a\",\"text\":\"b\"}");
	is_error(g, 400, "invalid_json", "", "twice");
}

/* HTTP-3 */
static void the_input_is_checked_against_the_schema(void **s)
{
	(void)s;
	auto_json json_t *a = post("/v1/echo", "{\"text\":\"a\",\"txt\":1}");
	is_error(a, 400, "bad_request", "txt", "known here: text, n");
	auto_json json_t *b = post("/v1/echo", NULL);
	is_error(b, 400, "bad_request", "text", "required");
	auto_json json_t *c = ask("GET", "/v1/things/a?limit=500", "", NULL);
	is_error(c, 400, "bad_request", "limit", "1 to 200");
	auto_json json_t *d = ask("GET", "/v1/things/a?nope=1", "", NULL);
	is_error(d, 400, "bad_request", "nope", "Unknown");
	/* everything in a query is text: that is not what is wrong with it */
	auto_json json_t *l = ask("GET", "/v1/things/a?limit=", "", NULL);
	is_error(l, 400, "bad_request", "limit", "a whole number.");
	auto_json json_t *i = post("/v1/things/a", "{\"limit\":\"7\"}");
	is_error(i, 400, "bad_request", "limit", "a whole number, not a string.");
	/* a name of the path can stand nowhere else */
	auto_json json_t *j = post("/v1/things/a", "{\"lim\":7}");
	is_error(j, 400, "bad_request", "lim", "known here: limit.");
	auto_json json_t *f = post("/v1/echo?n=1", "{\"text\":\"a\"}");
	is_error(f, 400, "bad_request", "n", "JSON body");
	auto_json json_t *g = post("/v1/things/a", "{\"id\":\"b\"}");
	is_error(g, 400, "bad_request", "id", "in the path");
	auto_json json_t *h = ask("GET", "/v1/things/a", "", "{}");
	is_error(h, 400, "bad_request", "", "no body");
}

static void a_body_past_the_limit_is_413_however_it_is_announced(void **s)
{
	(void)s;
	char body[300];
	(void)snprintf(body, sizeof body, "{\"text\":\"%0200d\"}", 1);
	auto_json json_t *a = post("/v1/small", body);
	is_error(a, 413, "too_large", "", "100 bytes");
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	struct buf head = BUF(1000), reply = BUF(10000);
	(void)buf_fmt(&head,
	    "POST /v1/small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
	    "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
	    strlen(body), body);
	nginxtest_send(fd, head.p, head.n);
	nginxtest_read(fd, &reply);
	if (strstr(buf_c(&reply), "HTTP/1.1 413 ") == NULL)
		fail_msg("%s", buf_c(&reply));
	(void)close(fd);
	buf_free(&head);
	buf_free(&reply);
	/* The default of 1 MiB: a byte less than it passes. */
	auto_free char *big = xcalloc(1, LIMIT_BODY_BYTES + 2);
	memset(big, 'x', LIMIT_BODY_BYTES + 1);
	memcpy(big, "{\"text\":\"", 9);
	memcpy(big + LIMIT_BODY_BYTES - 2, "\"}", 3);
	auto_json json_t *b = post("/v1/echo", big);
	assert_int_equal(last.status, 201);
	assert_non_null(b);
	memset(big + LIMIT_BODY_BYTES - 2, 'x', 3);
	auto_json json_t *c = post("/v1/echo", big);
	is_error(c, 413, "too_large", "", "1048576");
}

static void head_is_get_without_a_body(void **s)
{
	(void)s;
	auto_json json_t *v = ask("HEAD", "/v1/things/a", "", NULL);
	assert_null(v);
	assert_int_equal(last.status, 200);
	assert_string_equal(header("X-Extra"), "1");
	assert_true(atoi(header("Content-Length")) > 20);
}

static void a_missing_credential_is_challenged(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/things/a", "Authorization: Bearer bad\r\n", NULL);
	is_error(a, 401, "unauthorized", "", "not valid");
	assert_string_equal(header("WWW-Authenticate"), "Bearer realm=\"gatehouse\"");
	auto_json json_t *b = ask("GET", "/git/page", "Authorization: Bearer bad\r\n", NULL);
	assert_non_null(b);
	assert_non_null(strstr(header("WWW-Authenticate"), "Basic realm=\"gatehouse\""));
}

static void an_identity_that_cannot_be_looked_up_is_503(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/things/a", "Authorization: Bearer down\r\n", NULL);
	is_error(a, 503, "unavailable", "", "away");
	assert_non_null(header("Retry-After"));
	auto_json json_t *b = ask("GET", "/v1/limited", "", NULL);
	is_error(b, 429, "rate_limited", "", "Slow");
	assert_string_equal(header("Retry-After"), "17");
}

static void a_handler_without_an_answer_is_a_500(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/broken", "", NULL);
	is_error(a, 500, "internal", "", "no answer");
}

/* The path that nginx matched its locations with is the one that is routed, where it is the one that was written; nothing is
 * decoded twice. */
static void a_path_is_decoded_once_and_never_becomes_another(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/x/%2e%2e/things/a%20b", "", NULL);
	is_error(a, 400, "bad_request", "", "\"..\"");
	auto_json json_t *g = ask("GET", "/v1/x%2f..%2fthings/a", "", NULL);
	is_error(g, 400, "bad_request", "", "encoded slash");
	auto_json json_t *h = ask("GET", "/v1//things/a", "", NULL);
	is_error(h, 404, "not_found", "", "empty");
	auto_json json_t *b = ask("GET", "/v1/%74hings/a%20b", "", NULL);
	assert_string_equal(js_str(b, "path"), "/v1/things/a b");
	assert_string_equal(js_str(b, "id"), "a b");
	auto_json json_t *c = ask("GET", "/v1/things/%252e%252e", "", NULL);
	assert_string_equal(js_str(c, "id"), "%2e%2e");
	auto_json json_t *d = ask("GET", "/v1/things/%ff", "", NULL);
	is_error(d, 400, "bad_request", "", "plain UTF-8");
	auto_json json_t *f = ask("GET", "/v1/things/a%0Ab", "", NULL);
	is_error(f, 400, "bad_request", "", "control");
}

static void bytes_are_read_as_they_come(void **s)
{
	(void)s;
	auto_free char *big = xcalloc(1, (1 << 20) + 2);
	memset(big, 'x', 1 << 20);
	auto_json json_t *a = ask("PUT", "/v1/upload/f", "Content-Type: application/octet-stream\r\n", big);
	assert_int_equal(js_int(a, "bytes", 0), 1 << 20);
	assert_string_equal(js_str(a, "name"), "f");
	big[1 << 20] = 'x';
	auto_json json_t *b = ask("PUT", "/v1/upload/f", "", big);
	is_error(b, 413, "too_large", "", "1048576");
	/* Chunked, so that the length is not known before its end. */
	int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
	struct buf head = BUF(2 << 20), reply = BUF(10000);
	(void)buf_fmt(&head,
	    "PUT /v1/upload/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "%zx\r\n%s\r\n0\r\n\r\n",
	    strlen(big), big);
	nginxtest_send(fd, head.p, head.n);
	nginxtest_read(fd, &reply);
	if (strstr(buf_c(&reply), "HTTP/1.1 413 ") == NULL)
		fail_msg("%s", buf_c(&reply));
	(void)close(fd);
	buf_free(&head);
	buf_free(&reply);
}

static void something_else_than_json_is_answered_as_it_is(void **s)
{
	(void)s;
	auto_json json_t *v = ask("GET", "/git/page", "", NULL);
	assert_null(v);
	assert_string_equal(last.body, "<p>hi");
	assert_string_equal(header("Content-Type"), "text/html; charset=utf-8");
	assert_non_null(header("X-Request-Id"));
}

/* RUN-2 */
static void one_line_is_logged_per_request(void **s)
{
	(void)s;
	auto_json json_t *a = ask("GET", "/v1/things/a", "X-Request-Id: logged\r\n", NULL);
	assert_non_null(a);
	pthread_mutex_lock(&log_lock);
	char line[sizeof log_line];
	memcpy(line, log_line, sizeof line);
	pthread_mutex_unlock(&log_lock);
	static const char want[] = "1 request id=logged org=acme op=get_thing method=GET status=200 ms=";
	if (strncmp(line, want, sizeof want - 1) != 0)
		fail_msg("logged: %s", line);
}

/* Nobody is told, and it is no fault of ours: not a 5xx, for which people are woken. */
static void who_left_before_an_answer_is_logged_as_499(void **s)
{
	(void)s;
	static const struct {
		const char *how, *logged;
	} all[] = { { "says-nothing", "1 request id=left org=acme op=waits method=GET status=499 ms=" },
		{ "is-cancelled", "1 request id=left org=acme op=waits method=GET status=499 ms=" },
		{ "answers", "1 request id=left org=acme op=waits method=GET status=200 ms=" },
		{ "fails", "2 request id=left org=acme op=waits method=GET status=504 ms=" } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char text[120], line[sizeof log_line];
		int n = snprintf(text, sizeof text,
		    "GET /v1/waits/%s HTTP/1.1\r\nHost: x\r\nX-Request-Id: left\r\n\r\n", all[i].how);
		int fd = nginxtest_connect(nginx, NGINX_PUBLIC);
		nginxtest_send(fd, text, (size_t)n);
		assert_int_equal(sem_wait(&at_work), 0);
		(void)close(fd);
		assert_int_equal(sem_wait(&was_left), 0);
		pthread_mutex_lock(&log_lock);
		memcpy(line, log_line, sizeof line);
		pthread_mutex_unlock(&log_lock);
		if (strncmp(line, all[i].logged, strlen(all[i].logged)) != 0 ||
		    strstr(line, " gone=true") == NULL)
			fail_msg("%s is logged: %s", all[i].how, line);
	}
}

int main(void)
{
	(void)sem_init(&at_work, 0, 0);
	(void)sem_init(&was_left, 0, 0);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_json_op_answers_with_its_status),
		cmocka_unit_test(the_callers_request_id_is_kept_if_it_is_sane),
		cmocka_unit_test(a_trace_is_continued_with_a_span_of_ours),
		cmocka_unit_test(unknown_paths_and_wrong_methods_are_told_apart),
		cmocka_unit_test(internal_ops_are_only_behind_the_internal_door),
		cmocka_unit_test(a_body_must_be_json),
		cmocka_unit_test(bad_json_is_told_with_its_place),
		cmocka_unit_test(the_input_is_checked_against_the_schema),
		cmocka_unit_test(a_body_past_the_limit_is_413_however_it_is_announced),
		cmocka_unit_test(head_is_get_without_a_body),
		cmocka_unit_test(a_missing_credential_is_challenged),
		cmocka_unit_test(an_identity_that_cannot_be_looked_up_is_503),
		cmocka_unit_test(a_handler_without_an_answer_is_a_500),
		cmocka_unit_test(a_path_is_decoded_once_and_never_becomes_another),
		cmocka_unit_test(bytes_are_read_as_they_come),
		cmocka_unit_test(something_else_than_json_is_answered_as_it_is),
		cmocka_unit_test(one_line_is_logged_per_request),
		cmocka_unit_test(who_left_before_an_answer_is_logged_as_499),
	};
	int rc = cmocka_run_group_tests_name("fcgi", tests, start, stop);
	kept = true;
	rc += cmocka_run_group_tests_name("fcgi, kept", tests, start, stop);
	answer_free(&last);
	return rc;
}
