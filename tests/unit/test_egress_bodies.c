/* EGR-6: bodies of plain requests that come after their heads, in pieces, broken off, malformed half-way. */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"
#include "base/str.h"

enum { BODY = 200000, PIECE = 7001 };

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};

static int up(void **state)
{
	(void)state;
	egt_start(&t, zone, NULL);
	egt_policy(&t, "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\"]}");
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

static int post(const char *framing)
{
	int fd = egt_connect(t.port);
	origin_forget(t.origin);
	egt_say(fd, "POST http://a.origin.test:%d/x HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", origin_port(t.origin),
	    framing);
	return fd;
}

static size_t count(const struct buf *b, char c)
{
	size_t n = 0;
	for (size_t i = 0; i < b->n; i++)
		n += b->p[i] == c;
	return n;
}

/* The head has reached the origin: what follows is read by itself. */
static void until_seen(const char *what)
{
	for (int64_t end = clock_ms() + 60000;; (void)usleep(2000)) {
		auto_buf struct buf seen = BUF(1 << 20);
		origin_seen(t.origin, &seen);
		if (seen.n > 0 && memmem(seen.p, seen.n, what, strlen(what)) != NULL)
			return;
		assert_true(clock_ms() < end);
	}
}

static void a_body_in_pieces_arrives_whole(void **state)
{
	(void)state;
	char framing[64], piece[PIECE];
	auto_buf struct buf answer = BUF(1 << 16), seen = BUF(1 << 20);
	memset(piece, '~', sizeof piece);
	(void)snprintf(framing, sizeof framing, "Content-Length: %d", BODY);
	auto_fd int fd = post(framing);
	until_seen("\r\n\r\n");
	for (size_t left = BODY; left > 0;) {
		ssize_t n = send(fd, piece, left < PIECE ? left : PIECE, MSG_NOSIGNAL);
		assert_true(n > 0);
		left -= (size_t)n;
	}
	assert_true(egt_hear(fd, &answer, "\r\n\r\norigin"));
	origin_seen(t.origin, &seen);
	assert_int_equal(count(&seen, '~'), BODY);
	/* And the connection carries the next one. */
	buf_reset(&answer);
	egt_say(fd, "GET http://a.origin.test:%d/y HTTP/1.1\r\nHost: x\r\n\r\n", origin_port(t.origin));
	assert_true(egt_hear(fd, &answer, "\r\n\r\norigin"));
}

static void chunks_pass_however_they_are_cut(void **state)
{
	(void)state;
	static const char text[] = "5;x=y\r\nhello\r\n00a\r\n0123456789\r\n0\r\n\r\n";
	for (size_t by = 1; by < sizeof text; by += 11) {
		auto_buf struct buf answer = BUF(1 << 16), seen = BUF(1 << 20);
		auto_fd int fd = post("Transfer-Encoding: chunked");
		until_seen("\r\n\r\n");
		for (size_t at = 0; at < sizeof text - 1; at += by) {
			size_t n = sizeof text - 1 - at < by ? sizeof text - 1 - at : by;
			assert_int_equal(send(fd, text + at, n, MSG_NOSIGNAL), n);
		}
		assert_true(egt_hear(fd, &answer, "\r\n\r\norigin"));
		origin_seen(t.origin, &seen);
		assert_non_null(memmem(seen.p, seen.n, "hello\r\n00a\r\n0123456789\r\n0\r\n", 27));
	}
}

static void a_chunk_that_goes_wrong_half_way_ends_the_connection(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 16), seen = BUF(1 << 20);
	auto_fd int fd = post("Transfer-Encoding: chunked");
	egt_say(fd, "5\r\nhello\r\n");
	until_seen("hello");
	egt_say(fd, "7;\nGET http://evil.test/ HTTP/1.1\r\n\r\n");
	assert_true(egt_hear(fd, &answer, NULL));
	assert_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
	origin_seen(t.origin, &seen);
	assert_null(memmem(seen.p, seen.n, "evil", 4));
}

static void who_leaves_in_the_middle_takes_the_origins_connection_along(void **state)
{
	(void)state;
	int fd = post("Content-Length: 1000");
	egt_say(fd, "some of it");
	until_seen("some of it");
	assert_int_equal(close(fd), 0);
	for (int64_t end = clock_ms() + 60000; origin_open(t.origin) > 0; (void)usleep(2000))
		assert_true(clock_ms() < end);
}

/* More than the length says is the next request, and judged as one. */
static void what_follows_a_body_is_another_request(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 16), seen = BUF(1 << 20);
	auto_fd int fd = post("Content-Length: 5");
	until_seen("\r\n\r\n");
	egt_say(fd, "helloGET http://denied.test/ HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(egt_hear(fd, &answer, "not_on_allowlist"));
	assert_non_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
	origin_seen(t.origin, &seen);
	assert_null(memmem(seen.p, seen.n, "denied", 6));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_in_pieces_arrives_whole),
		cmocka_unit_test(chunks_pass_however_they_are_cut),
		cmocka_unit_test(a_chunk_that_goes_wrong_half_way_ends_the_connection),
		cmocka_unit_test(who_leaves_in_the_middle_takes_the_origins_connection_along),
		cmocka_unit_test(what_follows_a_body_is_another_request),
	};
	return cmocka_run_group_tests_name("egress bodies", tests, up, down);
}
