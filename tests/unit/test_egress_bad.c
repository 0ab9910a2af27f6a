/* Bad days of the boundary, through the real proxy: whatever fails, nothing is let pass, and it is said why. */
#include "../span.h"
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"
#include "io/egress_ctl.h"

enum { FLOOD = 10000, BYTES = 1 << 20 };

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "slow.origin.test", .value = "127.0.0.1", .ttl_s = 0, .delay_ms = 200 },
	{ .name = "late.origin.test", .value = "127.0.0.1", .ttl_s = 0, .delay_ms = 30000 },
	{ .name = "mute.origin.test", .deed = DNS_DROP },
	{ .name = "fail.origin.test", .deed = DNS_SERVFAIL },
	{ .name = "junk.origin.test", .deed = DNS_GARBAGE },
	{ .name = "loop.origin.test", .deed = DNS_LOOP },
	{ .name = "many.public.test", .value = "200", .deed = DNS_MANY },
	{ .name = "some.public.test", .value = "60", .deed = DNS_MANY },
	{ .name = "empty.origin.test", .value = "" },
	{ .name = "mixed.public.test", .value = "93.184.216.34" },
	{ .name = "mixed.public.test", .value = "10.0.0.1" },
	{ .name = "mixed6.public.test", .value = "93.184.216.34" },
	{ .name = "mixed6.public.test", .value = "fd00::1" },
	{ .name = "inner.public.test", .value = "127.0.0.1" },
	{ .name = "meta.origin.test", .value = "169.254.169.254" },
	{ .name = "mapped.public.test", .value = "::ffff:10.0.0.1" },
	{ 0 },
};

/* A second is what is waited for what does not come, and on a slow machine more: who is well must not be late. */
static int room_ms;

static int up(void **state)
{
	static char head[32], idle[32], dns[32], connect[32];
	static const char *const extra[] = { head, idle, dns, connect, NULL };
	(void)state;
	room_ms = span_room_ms(100) / 1000 * 1000;
	(void)snprintf(head, sizeof head, "EGRESS_HEAD_S=%d", 1 + room_ms / 1000);
	(void)snprintf(idle, sizeof idle, "EGRESS_IDLE_S=%d", 1 + room_ms / 1000);
	(void)snprintf(dns, sizeof dns, "EGRESS_DNS_MS=%d", 600 + room_ms);
	(void)snprintf(connect, sizeof connect, "EGRESS_CONNECT_S=%d", 1 + room_ms / 1000);
	egt_start(&t, zone, extra);
	egt_policy(&t,
	    "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\",\".public.test\",\".public.test:{P}"
	    "\"]}");
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

/* What a tunnel to host:port is answered: the reason, or "ok". */
static void tunnel_says(const char *host, int port, const char *reason)
{
	auto_buf struct buf answer = BUF(BYTES);
	char want[128];
	auto_fd int fd = egt_connect(t.port);
	egt_say(fd, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port);
	assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
	if (strcmp(reason, "ok") == 0)
		(void)snprintf(want, sizeof want, "HTTP/1.1 200 ");
	else
		(void)snprintf(want, sizeof want, "X-Egress-Reason: %s\r\n", reason);
	if (strstr(buf_c(&answer), want) == NULL)
		fail_msg("%s:%d: expected %s, got %s", host, port, reason, buf_c(&answer));
}

static void get_says(const char *path, const char *want)
{
	auto_buf struct buf answer = BUF(BYTES);
	int port = origin_port(t.origin);
	egt_ask(&t, &answer, "GET http://a.origin.test:%d%s HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", port,
	    path, port);
	if (strstr(buf_c(&answer), want) == NULL)
		fail_msg("%s: expected %s, got %s", path, want, buf_c(&answer));
}

static void works(void)
{
	tunnel_says("a.origin.test", origin_port(t.origin), "ok");
}

/* EGR-3: down, slow, lying, failing, without sense, with too much. */
static void a_bad_resolver_lets_nothing_pass(void **state)
{
	int port = origin_port(t.origin);
	struct span begin = span_begin();
	(void)state;
	tunnel_says("slow.origin.test", port, "ok");
	tunnel_says("mute.origin.test", port, "dns_error");
	tunnel_says("late.origin.test", port, "dns_error");
	assert_true(clock_ms() - begin.began_ms >= 800);
	assert_in_range(span_ms(&begin), 0, 4000 + 4 * room_ms);
	tunnel_says("fail.origin.test", port, "dns_error");
	tunnel_says("junk.origin.test", port, "dns_error");
	tunnel_says("loop.origin.test", port, "dns_empty");
	tunnel_says("empty.origin.test", port, "dns_empty");
	tunnel_says("absent.origin.test", port, "dns_nxdomain");
	tunnel_says("many.public.test", 443, "dns_error");
	works();
}

/* EGR-3, EGR-4: one record that may not be reached refuses the name, in either family, whatever it is written as. */
/* fault 47 */
static void a_private_record_among_public_ones_refuses_the_name(void **state)
{
	(void)state;
	tunnel_says("mixed.public.test", 443, "address_denied");
	tunnel_says("mixed6.public.test", 443, "address_denied");
	tunnel_says("mapped.public.test", 443, "address_denied");
	tunnel_says("inner.public.test", origin_port(t.origin), "address_denied");
	tunnel_says("meta.origin.test", origin_port(t.origin), "address_denied");
	tunnel_says("127.0.0.1", origin_port(t.origin), "not_on_allowlist");
	works();
}

/* EGR-3: who is not allowed is not even asked for. */
/* fault 43 */
static void no_question_is_asked_for_a_name_that_is_not_allowed(void **state)
{
	(void)state;
	tunnel_says("secret.exfiltrated.example", 443, "not_on_allowlist");
	assert_int_equal(dnsserver_asked(t.dns, "secret.exfiltrated.example"), 0);
	/* One for each family, and none for what is kept. */
	works();
	int before = dnsserver_asked(t.dns, "a.origin.test");
	works();
	assert_int_equal(dnsserver_asked(t.dns, "a.origin.test"), before);
}

static void a_bad_origin_costs_its_own_request_only(void **state)
{
	(void)state;
	struct span begin = span_begin();
	get_says("/silent", "504 Egress failed: upstream_timeout");
	assert_true(clock_ms() - begin.began_ms >= 900);
	assert_in_range(span_ms(&begin), 0, 3000 + room_ms);
	get_says("/headers", "502 Egress failed: upstream_bad");
	get_says("/none", "502 Egress failed: upstream_closed");
	get_says("/two-lengths", "upstream_bad");
	get_says("/both", "upstream_bad");
	get_says("/junk", "upstream_bad");
	get_says("/101", "upstream_bad");
	get_says("/early", "half-");
	tunnel_says("a.origin.test", 1, "port_not_allowed");
	works();
	assert_true(egt_rss_kib(&t) < 200000);
}

/* The answer that came behind the one that was asked for is nobody's. */
static void what_follows_an_answer_is_not_taken_for_the_next_one(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(BYTES);
	int port = origin_port(t.origin);
	egt_ask(&t, &answer,
	    "GET http://a.origin.test:%d/more HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n"
	    "GET http://a.origin.test:%d/next HTTP/1.1\r\nHost: a.origin.test:%d\r\nConnection: "
	    "close\r\n\r\n",
	    port, port, port, port);
	assert_null(strstr(buf_c(&answer), "evil"));
	assert_non_null(strstr(buf_c(&answer), "origin"));
}

/* EGR-12: ten thousand connections of one sandbox; another one is served as ever. */
static void one_sandbox_does_not_starve_another(void **state)
{
	static int fd[FLOOD];
	struct rlimit files = { FLOOD + 1000, FLOOD + 1000 };
	int other_port, refused = 0, origin = origin_port(t.origin);
	char policy[128];
	(void)state;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	(void)snprintf(policy, sizeof policy, "{\"allowedHosts\":[\"a.origin.test:%d\"]}", origin);
	auto_fd int other = egt_sandbox(&t, "sbx_00000000000000000000000002", policy, &other_port);
	int before = egt_fds(&t);
	for (int i = 0; i < FLOOD; i++)
		fd[i] = egt_connect(t.port);
	struct span begin = span_begin();
	auto_buf struct buf answer = BUF(BYTES);
	auto_fd int good = egt_connect(other_port);
	egt_say(good, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", origin, origin);
	assert_true(egt_hear(good, &answer, "\r\n\r\n"));
	assert_memory_equal(buf_c(&answer), "HTTP/1.1 200 ", 13);
	assert_true(span_ms(&begin) < 2000);
	assert_true(egt_fds(&t) < before + 600);
	for (int i = 0; i < FLOOD; i++) {
		char in[64] = "";
		refused += recv(fd[i], in, sizeof in - 1, MSG_DONTWAIT) > 0 &&
		    strncmp(in, "HTTP/1.1 429 ", 13) == 0;
		(void)close(fd[i]);
	}
	/* 256 at a time, those whose time for a head was up replaced by others. */
	assert_in_range(refused, FLOOD / 2, FLOOD - 256);
	egt_until(&t,
	    "SELECT count(*) > 0 FROM events WHERE session = '" EGT_SESSION
	    "' AND payload LIKE '%limit_exceeded%'",
	    "t");
	struct err e = { 0 };
	assert_int_equal(egress_ctl_close(t.ctl, "sbx_00000000000000000000000002", &e), 0);
	works();
}

/* A head in single bytes has the time of a head, not of a byte. */
static void a_head_that_drips_is_cut_in_its_time(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(BYTES);
	auto_fd int fd = egt_connect(t.port);
	struct span begin = span_begin();
	const char *text = "GET http://a.origin.test/ HTTP/1.1\r\n";
	for (const char *p = text; *p != '\0' && clock_ms() - begin.began_ms < 3000 + room_ms; p++) {
		if (send(fd, p, 1, MSG_NOSIGNAL) < 0)
			break;
		(void)usleep(60000);
	}
	assert_true(egt_hear(fd, &answer, NULL));
	assert_true(clock_ms() - begin.began_ms >= 900);
	assert_in_range(span_ms(&begin), 0, 3000 + room_ms);
	assert_non_null(strstr(buf_c(&answer), "408 "));
}

static void a_gigabyte_of_headers_is_refused_after_the_first_kilobytes(void **state)
{
	static char line[65536];
	(void)state;
	auto_buf struct buf answer = BUF(BYTES);
	auto_fd int fd = egt_connect(t.port);
	long before = egt_rss_kib(&t), sent = 0;
	memset(line, 'a', sizeof line);
	memcpy(line, "X-A: ", 5);
	memcpy(line + sizeof line - 2, "\r\n", 2);
	egt_say(fd, "GET http://a.origin.test/ HTTP/1.1\r\nHost: a.origin.test\r\n");
	for (ssize_t n; sent < 1L << 30 && (n = send(fd, line, sizeof line, MSG_NOSIGNAL)) > 0;)
		sent += n;
	assert_true(egt_hear(fd, &answer, NULL));
	assert_true(sent < 1L << 30);
	assert_true(egt_rss_kib(&t) < before + 4096);
	works();
}

/* The limit of descriptors falls under what is in use: accepting waits, nothing spins or ends, and then it goes on. */
static void no_descriptors_stop_accepting_and_nothing_else(void **state)
{
	struct rlimit old, few = { 8, 8 };
	(void)state;
	auto_fd int standing = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	assert_int_equal(prlimit(t.pid, RLIMIT_NOFILE, NULL, &old), 0);
	few.rlim_max = old.rlim_max;
	assert_int_equal(prlimit(t.pid, RLIMIT_NOFILE, &few, NULL), 0);
	auto_fd int waiting = egt_connect(t.port);
	auto_buf struct buf back = BUF(BYTES);
	egt_say(standing, "still here");
	assert_true(egt_hear(standing, &back, "here"));
	long cpu = egt_cpu_ms(&t);
	(void)usleep(300000); /* what is measured is that nothing happens */
	assert_true(egt_cpu_ms(&t) - cpu < 100);
	assert_int_equal(prlimit(t.pid, RLIMIT_NOFILE, &old, NULL), 0);
	int port = origin_port(t.origin);
	egt_say(waiting, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", port, port);
	assert_true(egt_hear(waiting, &back, "200 Connection"));
}

/* EGR-15: what cannot be recorded does not happen. */
static void an_audit_that_cannot_be_written_denies_and_says_so(void **state)
{
	(void)state;
	egt_sql(&t, "ALTER TABLE egress_audit RENAME TO away");
	works(); /* its row is the one that fails */
	auto_buf struct buf answer = BUF(BYTES);
	int port = origin_port(t.origin);
	for (int64_t until = clock_ms() + 60000; clock_ms() < until; (void)usleep(10000)) {
		buf_reset(&answer);
		auto_fd int fd = egt_connect(t.port);
		egt_say(
		    fd, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", port, port);
		assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
		if (strstr(buf_c(&answer), "200 ") == NULL)
			break;
	}
	assert_non_null(strstr(buf_c(&answer), "HTTP/1.1 503 Egress unavailable: audit_unavailable"));
	egt_sql(&t, "ALTER TABLE away RENAME TO egress_audit");
	for (int64_t until = clock_ms() + 60000; clock_ms() < until && strstr(buf_c(&answer), "200 ") == NULL;
	     (void)usleep(10000)) {
		buf_reset(&answer);
		auto_fd int fd = egt_connect(t.port);
		egt_say(
		    fd, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", port, port);
		assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
	}
	assert_non_null(strstr(buf_c(&answer), "200 "));
}

/* EGR-1 */
/* fault 49 */
static void a_policy_that_makes_no_sense_denies_and_says_so(void **state)
{
	static const char good[] = "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\",\".public."
				   "test\",\".public.test:{P}\"]}";
	static const char *const bad[] = { "", "nonsense", "[]", "{\"mode\":\"everything\"}",
		"{\"mode\":\"static\",\"allowedHosts\":[\"*.test\"]}", "{\"allowedHosts\":\"a.test\"}" };
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		egt_policy(&t, bad[i]);
		tunnel_says("a.origin.test", origin_port(t.origin), "policy_unavailable");
	}
	egt_policy(&t, good);
	works();
}

static void with_postgresql_away_the_last_policy_stands_and_nobody_new_is_served(void **state)
{
	struct err e = { 0 };
	int port;
	(void)state;
	pgtest_down(t.pg);
	works();
	tunnel_says("b.elsewhere.test", 443, "not_on_allowlist");
	struct egtest other = t;
	other.listener = egt_listener(&port);
	assert_int_equal(
	    egress_ctl_open(t.ctl, "sbx_00000000000000000000000003", "proxy", other.listener, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_string_equal(e.reason, "policy_unavailable");
	(void)close(other.listener);
	pgtest_up(t.pg);
	works();
	/* What was decided meanwhile is recorded now. */
	egt_until(&t, "SELECT count(*) FROM egress_audit WHERE host = 'b.elsewhere.test'", "1");
	/* Changes are heard of again. */
	egt_policy(&t, "{\"mode\":\"deny-all\"}");
	tunnel_says("a.origin.test", origin_port(t.origin), "mode_deny_all");
	egt_policy(&t,
	    "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\",\".public.test\",\".public.test:{P}"
	    "\"]}");
}

/* Its listener is given to the next process, and everything is as before. */
static void a_killed_proxy_comes_back_with_policy_and_listener(void **state)
{
	(void)state;
	char c;
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_kill(&t, SIGKILL);
	assert_true(recv(fd, &c, 1, 0) <= 0);
	/* Who connects meanwhile waits in the listener's queue. */
	auto_fd int waiting = egt_connect(t.port);
	egt_up(&t);
	egt_give(&t);
	auto_buf struct buf back = BUF(BYTES);
	int port = origin_port(t.origin);
	egt_say(waiting, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n", port, port);
	assert_true(egt_hear(waiting, &back, "200 Connection"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_resolver_lets_nothing_pass),
		cmocka_unit_test(a_private_record_among_public_ones_refuses_the_name),
		cmocka_unit_test(no_question_is_asked_for_a_name_that_is_not_allowed),
		cmocka_unit_test(a_bad_origin_costs_its_own_request_only),
		cmocka_unit_test(what_follows_an_answer_is_not_taken_for_the_next_one),
		cmocka_unit_test(one_sandbox_does_not_starve_another),
		cmocka_unit_test(a_head_that_drips_is_cut_in_its_time),
		cmocka_unit_test(a_gigabyte_of_headers_is_refused_after_the_first_kilobytes),
		cmocka_unit_test(no_descriptors_stop_accepting_and_nothing_else),
		cmocka_unit_test(an_audit_that_cannot_be_written_denies_and_says_so),
		cmocka_unit_test(a_policy_that_makes_no_sense_denies_and_says_so),
		cmocka_unit_test(with_postgresql_away_the_last_policy_stands_and_nobody_new_is_served),
		cmocka_unit_test(a_killed_proxy_comes_back_with_policy_and_listener),
	};
	return cmocka_run_group_tests(tests, up, down);
}
