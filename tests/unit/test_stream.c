/* A stream of events, byte for byte (STR-1, STR-3, STR-4, HTTP-5). */
#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "op/op.h"

struct fake {
	struct reply base;
	struct buf head, body;
	const char *accept;
	int flushes;
	bool gone;
};
static int fake_head(struct reply *r, int status, const char *headers)
{
	return buf_fmt(&((struct fake *)r)->head, "%d\n%s", status, headers);
}
static int fake_write(struct reply *r, const void *p, size_t n)
{
	struct fake *f = (struct fake *)r;
	return f->gone ? -1 : buf_add(&f->body, p, n);
}
static int fake_flush(struct reply *r)
{
	((struct fake *)r)->flushes++;
	return 0;
}
static const char *fake_param(struct reply *r, const char *name)
{
	return strcmp(name, "HTTP_ACCEPT") == 0 ? ((struct fake *)r)->accept : NULL;
}
static const struct reply_vt fake_vt = {
	.head = fake_head, .write = fake_write, .flush = fake_flush, .param = fake_param
};

static struct ctx begun(struct fake *f, struct mem *m, const char *accept)
{
	*f = (struct fake){ .base = { .vt = &fake_vt, .unbuffered = true },
		.head = BUF(1000),
		.body = BUF(LIMIT_LINE_BYTES * 2),
		.accept = accept };
	struct ctx c = { .mem = m, .reply = &f->base, .request_id = "req_1" };
	reply_header(&c, "X-A", "b");
	assert_int_equal(reply_stream(&c), 0);
	return c;
}

static void ended(struct fake *f)
{
	buf_free(&f->head);
	buf_free(&f->body);
}

/* HTTP-5, STR-1 */
static void a_stream_is_headed_once_and_flushed_by_line(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct fake f;
	struct ctx c = begun(&f, m, "*/*");
	assert_int_equal(reply_line(&c, js_pack("{s:i}", "seq", 1)), 0);
	assert_int_equal(reply_event(&c, "2", js_pack("{s:s}", "a", "x\ny")), 0);
	assert_int_equal(reply_ping(&c), 0);
	assert_string_equal(buf_c(&f.head),
	    "200\nX-A: b\r\nCache-Control: no-store\r\nVary: Accept\r\nContent-Type: application/x-ndjson\r\n"
	    "X-Accel-Buffering: no\r\nX-Request-Id: req_1\r\n");
	assert_string_equal(buf_c(&f.body), "{\"seq\":1}\n{\"a\":\"x\\ny\"}\n{\"type\":\"ping\"}\n");
	assert_int_equal(f.flushes, 3);
	ended(&f);
}

/* STR-1, STR-3, STR-4: an id only where there is a place to go on; a ping is a comment. */
static void the_same_lines_are_messages_where_sse_is_asked_for(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct fake f;
	struct ctx c = begun(&f, m, "text/event-stream");
	assert_int_equal(reply_event(&c, "7", js_pack("{s:s}", "a", "x\r\ny")), 0);
	assert_int_equal(reply_ping(&c), 0);
	assert_int_equal(reply_line(&c, js_pack("{s:s}", "type", "error")), 0);
	static const char ready[] = "{\"seq\":8}\n";
	assert_int_equal(reply_event_open(&c, "8"), 0);
	assert_int_equal(reply_write(&c, ready, sizeof ready - 1), 0);
	assert_int_equal(reply_event_close(&c), 0);
	assert_non_null(strstr(buf_c(&f.head), "Content-Type: text/event-stream\r\n"));
	assert_string_equal(buf_c(&f.body),
	    "id: 7\ndata: {\"a\":\"x\\r\\ny\"}\n\n"
	    ": ping\n\n"
	    "data: {\"type\":\"error\"}\n\n"
	    "id: 8\ndata: {\"seq\":8}\n\n");
	assert_int_equal(f.flushes, 3);
	ended(&f);
}

/* STR-1: nothing of it is sent, not even the id. */
static void a_line_beyond_the_limit_is_not_begun(void **s)
{
	(void)s;
	static const char *const accepts[] = { NULL, "text/event-stream" };
	for (int i = 0; i < 2; i++) {
		auto_mem struct mem *m = mem_new();
		struct fake f;
		struct ctx c = begun(&f, m, accepts[i]);
		auto_free char *big = xcalloc(1, LIMIT_LINE_BYTES + 1);
		memset(big, 'x', LIMIT_LINE_BYTES);
		assert_int_equal(reply_event(&c, "1", js_pack("{s:s}", "a", big)), -1);
		assert_int_equal(f.body.n, 0);
		assert_int_equal(f.flushes, 0);
		ended(&f);
	}
}

static void who_is_gone_is_noticed_at_every_write(void **s)
{
	(void)s;
	static const char *const accepts[] = { NULL, "text/event-stream" };
	for (int i = 0; i < 2; i++) {
		auto_mem struct mem *m = mem_new();
		struct fake f;
		struct ctx c = begun(&f, m, accepts[i]);
		f.gone = true;
		assert_int_equal(reply_event(&c, "1", js_pack("{}")), -1);
		assert_int_equal(reply_ping(&c), -1);
		ended(&f);
	}
}

/* RFC 9110 12.5.1, and HTTP-2: there is no 406. */
static void what_accept_says_decides(void **s)
{
	(void)s;
	static const struct {
		const char *accept;
		bool sse;
	} rows[] = {
		{ NULL, false },
		{ "", false },
		{ "*/*", false },
		{ "text/*", false },
		{ "application/json", false },
		{ "text/event-stream", true },
		{ "Text/Event-Stream", true },
		{ "text/html, text/event-stream;charset=utf-8 , */*;q=0.1", true },
		{ "text/event-stream;q=0", false },
		{ "text/event-stream; q=0.000", false },
		{ "text/event-stream; q=0.001", true },
		{ "text/event-stream, application/x-ndjson", true },
		{ "application/x-ndjson, text/event-stream;q=0.9", false },
		{ "application/x-ndjson;q=0.5, text/event-stream;q=0.75", true },
		{ "text/event-streams", false },
		{ "text/event-stream;q=", true },
		{ ",,;,", false },
		{ "text/event-stream;q=1.000", true },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct fake f = { .base = { .vt = &fake_vt }, .accept = rows[i].accept };
		struct ctx c = { .reply = &f.base };
		if (reply_wants_sse(&c) != rows[i].sse)
			fail_msg("%s", rows[i].accept);
	}
}

/* STR-3: an EventSource gives up for good after an error status, and comes back after an end. */
static void who_reads_events_is_asked_to_come_back(void **s)
{
	(void)s;
	static const struct {
		const char *method, *accept;
		enum err_code code;
		int retry_s;
		const char *body; /* NULL: it is told as any error */
	} rows[] = {
		{ "GET", "text/event-stream", ERR_UNAVAILABLE, 0, ": Away.\nretry: 2000\n\n" },
		{ "GET", "text/event-stream", ERR_RATE, 7, ": Away.\nretry: 7000\n\n" },
		{ "GET", "text/event-stream", ERR_NOT_FOUND, 0, NULL },
		{ "GET", "text/event-stream", ERR_UNAUTHORIZED, 0, NULL },
		{ "GET", "application/x-ndjson", ERR_UNAVAILABLE, 0, NULL },
		{ "GET", NULL, ERR_UNAVAILABLE, 0, NULL },
		{ "POST", "text/event-stream", ERR_UNAVAILABLE, 0, NULL },
		{ NULL, "text/event-stream", ERR_UNAVAILABLE, 0, NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_mem struct mem *m = mem_new();
		struct fake f = { .base = { .vt = &fake_vt },
			.head = BUF(1000),
			.body = BUF(1000),
			.accept = rows[i].accept };
		struct ctx c = {
			.mem = m, .reply = &f.base, .request_id = "req_1", .method = rows[i].method
		};
		struct err why = {
			.code = rows[i].code, .retry_s = rows[i].retry_s, .msg = "Away.\nretry: 1"
		};
		assert_int_equal(reply_come_back(&c, &why), rows[i].body != NULL);
		assert_string_equal(buf_c(&f.body), rows[i].body != NULL ? rows[i].body : "");
		assert_int_equal(strncmp(buf_c(&f.head), "200\n", 4) == 0, rows[i].body != NULL);
		ended(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_is_headed_once_and_flushed_by_line),
		cmocka_unit_test(the_same_lines_are_messages_where_sse_is_asked_for),
		cmocka_unit_test(a_line_beyond_the_limit_is_not_begun),
		cmocka_unit_test(who_is_gone_is_noticed_at_every_write),
		cmocka_unit_test(what_accept_says_decides),
		cmocka_unit_test(who_reads_events_is_asked_to_come_back),
	};
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
