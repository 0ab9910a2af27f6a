/* What calls of models need of the HTTP client: kept connections, heads before bodies, moments that move, packed bodies, pins. */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "../fakemodel.h"
#include "base/clock.h"
#include "io/http.h"

static struct fakemodel *fake;

struct told {
	int heads, status;
	int64_t retry_after_ms, until_ms;
	size_t got;
	int move_ms; /* on_data moves the end there, from now */
	bool refuse; /* on_head does */
};

static int on_head(void *arg, const struct http_res *res)
{
	struct told *t = arg;
	assert_int_equal(t->got, 0);
	t->heads++;
	t->status = res->status;
	t->retry_after_ms = res->retry_after_ms;
	return t->refuse ? -1 : 0;
}

static int on_data(void *arg, const char *p, size_t n)
{
	struct told *t = arg;
	(void)p;
	t->got += n;
	if (t->move_ms != 0)
		t->until_ms = clock_ms() + t->move_ms;
	return 0;
}

static const char *body_of(const char *model, bool stream, char out[200])
{
	(void)snprintf(
	    out, 200, "{\"model\":\"%s\",\"stream\":%s,\"messages\":[]}", model, stream ? "true" : "false");
	return out;
}

static struct http_req ask(struct told *t, const char *model, bool stream, char url[80], char body[200])
{
	static const char *const headers[] = { "Content-Type: application/json", NULL };
	(void)snprintf(url, 80, "http://127.0.0.1:%d/v1/chat/completions", fakemodel_port(fake));
	(void)body_of(model, stream, body);
	return (struct http_req){ .method = "POST",
		.url = url,
		.headers = headers,
		.body = body,
		.body_n = strlen(body),
		.on_head = on_head,
		.on_data = on_data,
		.any_status = true,
		.arg = t,
		.total_ms = PATIENCE_MS,
		.until_ms = &t->until_ms,
		.piece_bytes = 8192,
		.decode = true,
		.keep = true };
}

static int run(struct told *t, const char *model, bool stream, struct err *e)
{
	char url[80], body[200];
	struct http_req q = ask(t, model, stream, url, body);
	struct http_res res;
	int rc = http_do(&q, &res, e);
	http_res_free(&res);
	return rc;
}

static void a_connection_is_kept_for_the_next_request(void **s)
{
	(void)s;
	struct err e = { 0 };
	int before = fakemodel_connections(fake);
	for (int i = 0; i < 5; i++) {
		struct told t = { 0 };
		assert_int_equal(run(&t, "ok", i % 2 == 1, &e), 0);
		assert_true(t.got > 400);
	}
	assert_int_equal(fakemodel_connections(fake) - before, 1);
	char url[80], body[200];
	struct told t = { 0 };
	struct http_req q = ask(&t, "ok", false, url, body);
	struct http_res res;
	q.keep = false;
	assert_int_equal(http_do(&q, &res, &e), 0);
	http_res_free(&res);
	assert_int_equal(fakemodel_connections(fake) - before, 2);
	/* A name that is resolved when it is needed goes another way, and its connection is kept, too. */
	q.keep = true;
	(void)snprintf(url, sizeof url, "http://localhost:%d/v1/chat/completions", fakemodel_port(fake));
	for (int i = 0; i < 3; i++) {
		t = (struct told){ 0 };
		assert_int_equal(http_do(&q, &res, &e), 0);
		http_res_free(&res);
	}
	assert_int_equal(fakemodel_connections(fake) - before, 3);
}

/* One that did not come to its end is not used again. */
static void what_was_broken_off_is_not_kept(void **s)
{
	(void)s;
	struct err e = { 0 }, none = { 0 };
	struct told cut = { 0 }, t = { 0 };
	assert_int_equal(run(&cut, "cut", true, &e), -1);
	assert_int_equal(e.code, ERR_UPSTREAM);
	assert_int_equal(cut.status, 200);
	int before = fakemodel_connections(fake);
	assert_int_equal(run(&t, "ok", true, &none), 0);
	assert_int_equal(fakemodel_connections(fake) - before, 1);
}

static void a_head_is_told_before_its_body_whatever_its_status(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct told t = { 0 };
	assert_int_equal(run(&t, "429-after@a", false, &e), 0);
	assert_int_equal(t.heads, 1);
	assert_int_equal(t.status, 429);
	assert_true(t.got > 20);
	assert_int_equal(t.retry_after_ms, 1000);
	struct told dated = { 0 }, none = { 0 }, refused = { .refuse = true };
	assert_int_equal(run(&dated, "429-date@a", false, &e), 0);
	assert_true(dated.retry_after_ms >= 0 && dated.retry_after_ms <= 2000);
	assert_int_equal(run(&none, "429", false, &e), 0);
	assert_int_equal(none.retry_after_ms, -1);
	assert_int_equal(run(&refused, "ok", true, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_string_equal(e.reason, "cancelled");
	assert_int_equal(refused.got, 0);
}

static void it_ends_at_the_moment_that_its_user_has_moved(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct span began = span_begin();
	struct told silent = { .until_ms = began.began_ms + 150 };
	assert_int_equal(run(&silent, "silent", true, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_null(e.reason);
	assert_true(clock_ms() - began.began_ms >= 150);
	assert_true(span_ms(&began) < 3000);
	struct err e2 = { 0 };
	struct told stalled = { .until_ms = clock_ms() + 60000, .move_ms = span_room_ms(100) };
	began = span_begin();
	assert_int_equal(run(&stalled, "stall", true, &e2), -1);
	assert_int_equal(e2.code, ERR_TIMEOUT);
	assert_true(stalled.got > 0);
	assert_true(span_ms(&began) < 5000);
}

static void a_packed_body_is_unpacked_though_plain_was_asked_for(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct told plain = { 0 }, packed = { 0 };
	assert_int_equal(run(&plain, "ok@packed", false, &e), 0);
	assert_int_equal(run(&packed, "gzip", false, &e), 0);
	assert_int_equal(packed.got, plain.got - strlen("ok@packed") + strlen("gzip"));
	auto_buf struct buf sent = BUF(65536);
	fakemodel_request(fake, "gzip", 0, &sent);
	assert_non_null(strstr(buf_c(&sent), "Accept-Encoding: identity\r\n"));
}

static void a_pinned_name_leads_to_its_address(void **s)
{
	(void)s;
	char url[80], body[200], pin[60];
	struct told t = { 0 };
	struct err e = { 0 };
	struct http_req q = ask(&t, "ok", false, url, body);
	(void)snprintf(url, sizeof url, "http://models.invalid:%d/v1/chat/completions", fakemodel_port(fake));
	(void)snprintf(pin, sizeof pin, "models.invalid:%d:127.0.0.1", fakemodel_port(fake));
	q.pin = pin;
	struct http_res res;
	assert_int_equal(http_do(&q, &res, &e), 0);
	assert_int_equal(res.status, 200);
	http_res_free(&res);
}

static int group_up(void **s)
{
	(void)s;
	http_setup();
	fake = fakemodel_start();
	fakemodel_times(fake,
	    (struct fakemodel_times){
		.silent_ms = PATIENCE_MS, .stall_ms = PATIENCE_MS, .retry_after_s = 1 });
	return 0;
}

static int group_down(void **s)
{
	(void)s;
	fakemodel_end(fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_is_kept_for_the_next_request),
		cmocka_unit_test(what_was_broken_off_is_not_kept),
		cmocka_unit_test(a_head_is_told_before_its_body_whatever_its_status),
		cmocka_unit_test(it_ends_at_the_moment_that_its_user_has_moved),
		cmocka_unit_test(a_packed_body_is_unpacked_though_plain_was_asked_for),
		cmocka_unit_test(a_pinned_name_leads_to_its_address),
	};
	return cmocka_run_group_tests(tests, group_up, group_down);
}
