/* EGR-6: heads of answers, and chunked bodies. */
#include "../t.h"

#include <string.h>

#include "egress/head.h"

static void answers_are_framed_in_one_way_or_refused(void **s)
{
	(void)s;
	static const struct {
		const char *text;
		bool head_request;
		int body; /* -1: refused */
		bool keep;
	} all[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, BODY_LENGTH, true },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, BODY_NONE, true },
		{ "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", false,
		    BODY_CHUNKED, false },
		{ "HTTP/1.1 200 \r\n\r\n", false, BODY_TO_END, false },
		{ "HTTP/1.0 200 OK\r\n\r\n", false, BODY_TO_END, false },
		{ "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", false, BODY_NONE,
		    true },
		{ "HTTP/1.1 204 No Content\r\n\r\n", false, BODY_NONE, true },
		{ "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", false, BODY_NONE, true },
		{ "HTTP/1.1 100 Continue\r\n\r\n", false, BODY_NONE, true },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false, -1,
		    false },
		{ "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, -1, false },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", false, -1, false },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n", false, -1, false },
		{ "HTTP/1.1 200 OK\nContent-Length: 5\n\n", false, -1, false },
		{ "HTTP/2 200\r\n\r\n", false, -1, false },
		{ "HTTP/1.1 20 OK\r\n\r\n", false, -1, false },
		{ "HTTP/1.1 099 OK\r\n\r\n", false, -1, false },
		{ "HTTP/1.12200 OK\r\n\r\n", false, -1, false },
		{ "ICY 200 OK\r\n\r\n", false, -1, false },
		{ "SSH-2.0-OpenSSH_9.2\r\n", false, -1, false },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		struct head_answer a = { 0 };
		enum head_step step = head_read_answer(
		    &a, all[i].text, strlen(all[i].text), all[i].head_request);
		if (all[i].body < 0
			? step != HEAD_BAD || a.reason != REASON_UPSTREAM_BAD
			: step != HEAD_DONE || (int)a.body != all[i].body || a.keep != all[i].keep)
			fail_msg("%s: %d", all[i].text, a.body);
	}
}

static void an_answer_loses_what_is_between_us_and_the_origin(void **s)
{
	(void)s;
	static const char text[] =
	    "HTTP/1.0 404 Not  Here\r\nServer: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: "
	    "5\r\n"
	    "Proxy-Authenticate: Basic\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n";
	struct head_answer a = { 0 };
	char out[1000];
	assert_int_equal(head_read_answer(&a, text, sizeof text - 1, false), HEAD_DONE);
	size_t n = head_forward_answer(&a, false, out, sizeof out - 1);
	out[n] = 0;
	assert_string_equal(out,
	    "HTTP/1.1 404 Not  Here\r\nServer: x\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: "
	    "c=d\r\n"
	    "Connection: close\r\n\r\n");
	assert_int_equal(head_forward_answer(&a, false, out, 20), 0);
}

/* ---- chunks */

static enum head_step chunks(const char *text, size_t *used)
{
	struct head_chunks c = { 0 };
	return head_chunks(&c, text, strlen(text), used);
}

static void chunks_are_followed_strictly(void **s)
{
	(void)s;
	size_t used;
	assert_int_equal(chunks("5\r\nhello\r\n0\r\n\r\nGET", &used), HEAD_DONE);
	assert_int_equal(used, 15);
	assert_int_equal(
	    chunks("5;a=\"b\"\r\nhello\r\n00000000 \r\nX-Sum: 1\r\nY:\r\n\r\n", &used), HEAD_DONE);
	assert_int_equal(chunks("A\r\n0123456789\r\n0\r\n", &used), HEAD_MORE);
	static const char *const wrong[] = { "\r\n", "x\r\n", "5 5\nhello", "5\nhello\n", "5\rhello",
		"5;a\nhello\r\n0\r\n\r\n", "-5\r\n", "0x5\r\n", "+5\r\n", " 5\r\n", "5\r\nhelloX\r\n",
		"5\r\nhello\n0\r\n\r\n", "ffffffff\r\n", "80000000\r\n", "000000001\r\n",
		"7fffffffffffffff\r\nx", "0\r\nContent-Length: 5\r\n\r\n", "0\r\nhost: a\r\n\r\n",
		"0\r\nTransfer-Encoding: x\r\n\r\n", "0\r\nX Y: 1\r\n\r\n", "0\r\n: 1\r\n\r\n",
		"0\r\n X: 1\r\n\r\n", "0\r\nX: 1\n\r\n", "0\r\n\rX", "5;\x01\r\n" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (chunks(wrong[i], &used) != HEAD_BAD)
			fail_msg("%s", wrong[i]);
	/* Neither a line nor the trailers without end. */
	struct head_chunks c = { 0 };
	static const char ext[] = "5;aaaaaaaaaaaa", trailer[] = "0\r\n";
	assert_int_equal(head_chunks(&c, ext, sizeof ext - 1, &used), HEAD_MORE);
	enum head_step step = HEAD_MORE;
	for (int i = 0; i < 200 && step == HEAD_MORE; i++)
		step = head_chunks(&c, "aaaaaaaaaa", 10, &used);
	assert_int_equal(step, HEAD_BAD);
	c = (struct head_chunks){ 0 };
	step = head_chunks(&c, trailer, sizeof trailer - 1, &used);
	for (int i = 0; i < 2000 && step == HEAD_MORE; i++)
		step = head_chunks(&c, "X: 1\r\n", 6, &used);
	assert_int_equal(step, HEAD_BAD);
}

static void chunks_are_the_same_however_they_are_cut(void **s)
{
	(void)s;
	static const char *const all[] = { "5;x\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\nrest",
		"5\r\nhello\r\n0\r\n\nx", "3\r\nabcd" };
	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(all[i]), used, a, b;
		enum head_step want = chunks(all[i], &used);
		for (size_t k = 0; k <= n; k++) {
			struct head_chunks c = { 0 };
			enum head_step got = head_chunks(&c, all[i], k, &a);
			if (got == HEAD_MORE) {
				got = head_chunks(&c, all[i] + a, n - a, &b);
				a += b;
			}
			assert_int_equal(got, want);
			assert_int_equal(a, used);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_framed_in_one_way_or_refused),
		cmocka_unit_test(an_answer_loses_what_is_between_us_and_the_origin),
		cmocka_unit_test(chunks_are_followed_strictly),
		cmocka_unit_test(chunks_are_the_same_however_they_are_cut),
	};
	return cmocka_run_group_tests_name("egress answers", tests, NULL, NULL);
}
