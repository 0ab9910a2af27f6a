/* sse.c: MOD-6. */
#include "../t.h"

#include <string.h>

#include "model/sse.h"

enum { MAX_EVENT = 4096 };

/* Everything that comes out, as one text: [name|data|raw] an event; cut 0: a byte a feed. rests: it is silent after each. */
static void run(const char *in, size_t n, size_t cut, bool rests, struct buf *out)
{
	struct sse s = sse_new(MAX_EVENT);
	struct sse_event ev;
	struct err e = { 0 };
	for (size_t at = 0; at < n;) {
		size_t part = cut == 0 ? 1 : at == 0 ? cut : n - at;
		assert_int_equal(sse_feed(&s, in + at, part, &e), 0);
		at += part;
		while (sse_next(&s, &ev))
			(void)buf_fmt(out, "[%.*s|%.*s|%.*s|%d]", (int)ev.name.n, ev.name.p, (int)ev.data.n,
			    ev.data.p, (int)ev.raw.n, ev.raw.p, ev.has_data);
		if (rests)
			sse_rest(&s);
	}
	while (sse_end(&s, &ev))
		(void)buf_fmt(out, "[%.*s|%.*s|%.*s|%d]", (int)ev.name.n, ev.name.p, (int)ev.data.n,
		    ev.data.p, (int)ev.raw.n, ev.raw.p, ev.has_data);
	sse_free(&s);
}

static void check(const char *in, const char *want)
{
	size_t n = strlen(in);
	for (size_t i = 0; i <= 2 * n + 1; i++) {
		auto_buf struct buf out = BUF(1 << 16);
		run(in, n, i / 2, i % 2 == 1, &out);
		assert_string_equal(buf_c(&out), want);
	}
}

static void an_event_is_the_same_however_it_arrives(void **state)
{
	(void)state;
	check("event: a\ndata: {\"x\":\"\xE2\x82\xAC\"}\n\ndata: [DONE]\n\n",
	    "[a|{\"x\":\"\xE2\x82\xAC\"}|event: a\ndata: {\"x\":\"\xE2\x82\xAC\"}\n\n|1][|[DONE]|data: "
	    "[DONE]\n\n|1]");
}

static void every_line_end_is_one(void **state)
{
	(void)state;
	check("event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n",
	    "[a|1|event: a\r\ndata: 1\r\n\r\n|1][|2|data: 2\r\n\r\n|1]");
	check("data: 1\r\rdata: 2\r\r", "[|1|data: 1\r\r|1][|2|data: 2\r\r|1]");
	check("data: 1\rdata: 2\n\r\ndata: 3\n\n", "[|1\n2|data: 1\rdata: 2\n\r|1][|3|data: 3\n\n|1]");
}

static void lines_of_data_are_joined(void **state)
{
	(void)state;
	check("data: a\ndata: b\ndata:c\ndata\n\n", "[|a\nb\nc\n|data: a\ndata: b\ndata:c\ndata\n\n|1]");
}

static void comments_and_other_fields_are_no_data(void **state)
{
	(void)state;
	check(": ping\n\nid: 4\nretry: 10\n\ndata:x\n\n",
	    "[||: ping\n\n|0][||id: 4\nretry: 10\n\n|0][|x|data:x\n\n|1]");
	check("data: : ping\n\n", "[|: ping|data: : ping\n\n|1]");
}

static void a_byte_order_mark_is_no_part_of_it(void **state)
{
	(void)state;
	check("\xEF\xBB\xBF"
	      "data: 1\n\n",
	    "[|1|data: 1\n\n|1]");
	check("\xEF\xBB", "[||\xEF\xBB\n\n|0]");
	check("\xEF\xBB\xBF", "");
}

static void a_last_event_without_its_end_is_given_with_one(void **state)
{
	(void)state;
	check("data: 1\n\ndata: 2", "[|1|data: 1\n\n|1][|2|data: 2\n\n|1]");
	check("data: 2\n", "[|2|data: 2\n\n|1]");
	check("data: 1\r\n\r\ndata: 2\r\n\r", "[|1|data: 1\r\n\r\n|1][|2|data: 2\r\n\r|1]");
	check("data: 2\r", "[|2|data: 2\r\r|1]");
}

static void a_cr_stream_does_not_wait_for_more(void **state)
{
	(void)state;
	struct sse s = sse_new(MAX_EVENT);
	struct sse_event ev;
	struct err e = { 0 };
	assert_int_equal(sse_feed(&s, "data: 1\r\r", 9, &e), 0);
	assert_true(sse_next(&s, &ev));
	sse_free(&s);
}

/* A 10 MB line is refused when it is too long, not when it ends. */
static void an_event_has_a_bound(void **state)
{
	(void)state;
	struct sse s = sse_new(MAX_EVENT);
	struct sse_event ev;
	struct err e = { 0 };
	char chunk[1024];
	int feeds = 0;
	memset(chunk, 'x', sizeof chunk);
	while (sse_feed(&s, chunk, sizeof chunk, &e) == 0 && feeds < 100) {
		feeds++;
		assert_false(sse_next(&s, &ev));
	}
	assert_int_equal(e.code, ERR_UPSTREAM);
	assert_in_range(feeds, 4, 6);
	struct err again = { 0 };
	assert_int_equal(sse_feed(&s, "\n\n", 2, &again), -1);
	assert_false(sse_next(&s, &ev));
	sse_free(&s);
}

static void what_is_written_is_read(void **state)
{
	(void)state;
	auto_buf struct buf out = BUF(1 << 16);
	assert_int_equal(sse_write(&out, "ping", "{}", 2), 0);
	assert_int_equal(sse_write(&out, NULL, "a\nb", 3), 0);
	assert_string_equal(buf_c(&out), "event: ping\ndata: {}\n\ndata: a\ndata: b\n\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_the_same_however_it_arrives),
		cmocka_unit_test(every_line_end_is_one),
		cmocka_unit_test(lines_of_data_are_joined),
		cmocka_unit_test(comments_and_other_fields_are_no_data),
		cmocka_unit_test(a_byte_order_mark_is_no_part_of_it),
		cmocka_unit_test(a_last_event_without_its_end_is_given_with_one),
		cmocka_unit_test(a_cr_stream_does_not_wait_for_more),
		cmocka_unit_test(an_event_has_a_bound),
		cmocka_unit_test(what_is_written_is_read),
	};
	return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}
