/*
 * Every row of the request cases through the real proxy, as a client that sends exactly these bytes: what it is told, and what
 * reaches the origin (EGR-6, EGR-15).
 */
#include "../span.h"
#include "../t.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../csv.h"
#include "../egresstest.h"
#include "base/clock.h"

enum { TEXT_BYTES = 256 * 1024, LONG_BYTES = 32 * 1024 };

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "denied.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};

static int up(void **state)
{
	static char head[32]; /* for those that stall; who does not must not be late */
	static const char *const extra[] = { head, NULL };
	(void)state;
	(void)snprintf(head, sizeof head, "EGRESS_HEAD_S=%d", 1 + span_room_ms(100) / 1000);
	egt_start(&t, zone, extra);
	egt_policy(&t, "{\"mode\":\"static\",\"allowedHosts\":[\"a.origin.test:{P}\"]}");
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

/* What the rows stand for: {A} an allowed host, {AU} in upper case, {P} the origin's port, {D} a host not on the list. */
static void fill_in(struct buf *out, const char *p)
{
	auto_free char *big = xcalloc(1, LONG_BYTES + 1);
	char port[8];
	(void)snprintf(port, sizeof port, "%d", origin_port(t.origin));
	memset(big, 'x', LONG_BYTES);
	const struct {
		const char *name, *value;
	} words[] = { { "{A}", "a.origin.test" }, { "{AU}", "A.ORIGIN.TEST" }, { "{P}", port },
		{ "{D}", "denied.test" }, { "{LONG}", big }, { "<stall>", "" }, { "<fin>", "" } };
	for (; *p != '\0'; p++) {
		size_t i = 0;
		while (i < sizeof words / sizeof words[0] &&
		    strncmp(p, words[i].name, strlen(words[i].name)) != 0)
			i++;
		if (i == sizeof words / sizeof words[0]) {
			(void)buf_chr(out, *p);
			continue;
		}
		(void)buf_str(out, words[i].value);
		p += strlen(words[i].name) - 1;
	}
}

/* "400_or_200": is this status one of those? A close without an answer is "close". */
static bool expected(const char *expect, const char *status)
{
	const char *at = strstr(expect, status);
	return at != NULL && (at == expect || at[-1] == '_');
}

static int answers(const struct buf *text, char status[][8])
{
	int n = 0;
	for (const char *at = buf_c(text); (at = strstr(at, "HTTP/1.1 ")) != NULL && n < 4; at += 9)
		if (isdigit((unsigned char)at[9])) /* not the words of an error */
			(void)snprintf(status[n++], 8, "%.3s", at + 9);
	return n;
}

static void check_answers(const char *id, const char *expect, const struct buf *answer)
{
	char status[4][8] = { "close" };
	int n = answers(answer, status);
	const char *then = strstr(expect, "_then_");
	if (then != NULL) {
		if (n != 2 || strncmp(status[0], expect, 3) != 0 || strcmp(status[1], then + 6) != 0)
			fail_msg("%s: %d answers, %s %s: %s", id, n, status[0], status[1], buf_c(answer));
		return;
	}
	if (!expected(expect, status[0]) || n > 1)
		fail_msg("%s: expected %s, got %s (%d): %s", id, expect, status[0], n, buf_c(answer));
}

/* The reason is in the header of the refusal, where there is one and the row names it. */
static void check_reason(const char *id, const char *reason, const struct buf *answer)
{
	char line[128];
	const char *at = strstr(buf_c(answer), "X-Egress-Reason: ");
	(void)snprintf(line, sizeof line, "X-Egress-Reason: %s\r\n", reason);
	if (at != NULL && strcmp(reason, "second judged") != 0 && strncmp(at, line, strlen(line)) != 0)
		fail_msg("%s: expected the reason %s: %s", id, reason, buf_c(answer));
}

static void check_origin(const char *id, const char *may, const char *expect, bool passed)
{
	auto_buf struct buf seen = BUF(8 << 20), want = BUF(TEXT_BYTES);
	origin_seen(t.origin, &seen);
	const char *text = buf_c(&seen);
	if (strcmp(may, "nothing") == 0 && !passed && seen.n > 0)
		fail_msg("%s: the origin saw: %s", id, text);
	if (strcmp(may, "nothing") == 0 || strcmp(may, "tunnel") == 0 || may[0] == '\0' || !passed)
		return;
	fill_in(&want, strncmp(may, "no ", 3) == 0 ? may + 3 : may);
	bool found = strstr(text, buf_c(&want)) != NULL;
	if (found != (strncmp(may, "no ", 3) != 0))
		fail_msg("%s (%s): expected %s at the origin: %s", id, expect, may, text);
	if (strstr(text, "denied.test") != NULL || strcasestr(text, "Proxy-Authorization") != NULL)
		fail_msg("%s: the origin saw: %s", id, text);
}

static void one(const struct csv *c)
{
	const char *id = csv_get(c, "id"), *raw = csv_get(c, "raw_escaped"), *expect = csv_get(c, "expect");
	auto_buf struct buf bytes = BUF(TEXT_BYTES), answer = BUF(1 << 20);
	bool stalls = strstr(raw, "<stall>") != NULL, fin = strstr(raw, "<fin>") != NULL;
	/* The escapes first: what {LONG} stands for has none, and a NUL must survive. */
	auto_free char *copy = strdup(raw);
	fill_in(&bytes, copy);
	bytes.n = csv_unescape(bytes.p);
	origin_forget(t.origin);
	auto_fd int fd = egt_connect(t.port);
	(void)send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
	if (!stalls && fin)
		(void)shutdown(fd, SHUT_WR);
	bool tunnel = strncmp(expect, "200", 3) == 0 && strncmp(raw, "CONNECT", 7) == 0;
	if (tunnel && !fin) {
		assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
		if (strcmp(csv_get(c, "upstream_may_see"), "tunnel") == 0)
			egt_say(fd, "through");
		const char *comes = strcmp(csv_get(c, "upstream_may_see"), "tunnel") == 0 ? "through"
											  : "EARLY";
		assert_true(egt_hear(fd, &answer, comes));
	} else {
		/* A kept connection stays open: both answers, or the one and its end, then. */
		if (!stalls)
			(void)shutdown(fd, SHUT_WR);
		assert_true(egt_hear(fd, &answer, NULL));
	}
	check_answers(id, expect, &answer);
	check_reason(id, csv_get(c, "reason"), &answer);
	check_origin(
	    id, csv_get(c, "upstream_may_see"), expect, strncmp(buf_c(&answer), "HTTP/1.1 200", 12) == 0);
}

static void every_request_is_answered_and_passed_on_as_its_row_says(void **state)
{
	(void)state;
	struct csv c = csv_open("tests/cases/egress/requests.csv");
	int n = 0;
	for (; csv_next(&c); n++)
		one(&c);
	csv_close(&c);
	assert_true(n >= 68);
	/* EGR-3: no name that is not allowed was ever asked for. */
	assert_int_equal(dnsserver_asked(t.dns, "denied.test"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_request_is_answered_and_passed_on_as_its_row_says),
	};
	return cmocka_run_group_tests(tests, up, down);
}
