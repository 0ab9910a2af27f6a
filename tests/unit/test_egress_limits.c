/* What one sandbox may use (EGR-12), through the real proxy: reaching a limit is said, and is an event. */
#include "../span.h"
#include "../t.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};
static const char open_policy[] = "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\"]}";

static void begin(const char *const *extra)
{
	egt_start(&t, zone, extra);
	egt_policy(&t, open_policy);
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

static void is_told(const char *limit)
{
	char sql[256];
	(void)snprintf(sql, sizeof sql,
	    "SELECT count(*) FROM events WHERE session = '" EGT_SESSION
	    "' AND payload LIKE '%%egress limit reached: %s\"%%'",
	    limit);
	egt_until(&t, sql, "1");
	(void)snprintf(sql, sizeof sql,
	    "SELECT count(*) FROM egress_audit WHERE form = 'limit' AND host = 'limit:%s'", limit);
	egt_until(&t, sql, "1");
}

static long bytes_of(int fd)
{
	static char in[65536];
	long got = 0;
	for (ssize_t n; (n = recv(fd, in, sizeof in, 0)) > 0; got += n)
		continue;
	return got;
}

static void a_rate_slows_down_and_loses_nothing(void **state)
{
	static const char *const extra[] = { "EGRESS_KIB_PER_S=1024", NULL };
	(void)state;
	begin(extra);
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	struct span start = span_begin();
	egt_say(fd, "GET /big?n=3145728 HTTP/1.1\r\nHost: x\r\n\r\n");
	(void)shutdown(fd, SHUT_WR);
	assert_true(bytes_of(fd) > 3145728);
	/* One second's worth is there at once; the other two MiB take their time. */
	assert_true(clock_ms() - start.began_ms >= 1500);
	assert_in_range(span_ms(&start), 0, 6000);
	is_told("bytes_per_s");
}

static void a_lease_that_has_used_its_bytes_is_cut_off_for_good(void **state)
{
	static const char *const extra[] = { "EGRESS_LEASE_MIB=1", NULL };
	auto_buf struct buf answer = BUF(1 << 16);
	(void)state;
	begin(extra);
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(fd, "GET /big?n=10000000 HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(bytes_of(fd) < 2 * 1024 * 1024); /* what a reset took back is not among them */
	is_told("bytes");
	egt_ask(&t, &answer, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test\r\n\r\n",
	    origin_port(t.origin));
	assert_non_null(strstr(buf_c(&answer), "429 Too many: limit_exceeded"));
	/* Another process reads from the audit what was used. */
	egt_until(&t, "SELECT count(*) FROM egress_audit WHERE kind = 'close' AND bytes_in > 500000", "1");
	egt_kill(&t, SIGTERM);
	egt_up(&t);
	egt_give(&t);
	buf_reset(&answer);
	egt_ask(&t, &answer, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test\r\n\r\n",
	    origin_port(t.origin));
	assert_non_null(strstr(buf_c(&answer), "429 Too many: limit_exceeded"));
}

static void requests_beyond_the_rate_are_turned_away_until_it_is_refilled(void **state)
{
	static const char *const extra[] = { "EGRESS_REQUESTS_PER_S=1", NULL };
	auto_buf struct buf answer = BUF(1 << 20);
	int refused = 0;
	(void)state;
	begin(extra);
	int64_t from = clock_ms();
	for (int i = 0; i < 40; i++) {
		buf_reset(&answer);
		egt_ask(&t, &answer,
		    "GET http://a.origin.test:%d/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		    origin_port(t.origin));
		refused += strstr(buf_c(&answer), "429 Too many: limit_exceeded") != NULL;
	}
	/* Two seconds' worth at once, and one more for each second that they all took. */
	assert_in_range(40 - refused, 2, 2 + (clock_ms() - from + 999) / 1000);
	is_told("requests_per_s");
	for (int64_t until = clock_ms() + PATIENCE_MS; clock_ms() < until; (void)usleep(20000)) {
		buf_reset(&answer);
		egt_ask(&t, &answer,
		    "GET http://a.origin.test:%d/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		    origin_port(t.origin));
		if (strstr(buf_c(&answer), "\r\n\r\norigin") != NULL)
			break;
	}
	assert_non_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
}

static void silence_and_age_end_a_tunnel(void **state)
{
	static char idle[32], total[32];
	static const char *const extra[] = { idle, total, NULL };
	char c;
	int idle_s = 1 + span_room_ms(100) / 1000, total_ms = 2000 * idle_s;
	(void)state;
	(void)snprintf(idle, sizeof idle, "EGRESS_IDLE_S=%d", idle_s);
	(void)snprintf(total, sizeof total, "EGRESS_TOTAL_S=%d", 2 * idle_s);
	begin(extra);
	struct span start = span_begin();
	auto_fd int silent = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	auto_fd int busy = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	assert_true(recv(silent, &c, 1, MSG_DONTWAIT) < 0);
	for (; clock_ms() - start.began_ms < total_ms + PATIENCE_MS;
	     (void)usleep(100000)) { /* not silent, and not for ever */
		if (send(busy, "x", 1, MSG_NOSIGNAL) != 1 || recv(busy, &c, 1, 0) != 1)
			break;
	}
	assert_true(clock_ms() - start.began_ms >= total_ms - 200);
	assert_in_range(span_ms(&start), 0, total_ms + 2000);
	assert_true(recv(silent, &c, 1, MSG_DONTWAIT) <= 0);
	is_told("idle_time");
	is_told("total_time");
}

/* EGR-3: what the host itself is called is no way to it, listed or not. */
static void the_hosts_own_addresses_are_refused_as_that(void **state)
{
	static const char *const extra[] = { "EGRESS_SELF=93.184.216.34:8443", NULL };
	auto_buf struct buf answer = BUF(1 << 16);
	char policy[256], own[64] = "";
	struct ifaddrs *all = NULL;
	(void)state;
	begin(extra);
	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
		    (i->ifa_flags & IFF_LOOPBACK) == 0)
			(void)getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), own, sizeof own, NULL, 0,
			    NI_NUMERICHOST);
	freeifaddrs(all);
	(void)snprintf(policy, sizeof policy, "{\"allowedHosts\":[\"93.184.216.34:8443\"%s%s%s]}",
	    own[0] == '\0' ? "" : ",\"", own, own[0] == '\0' ? "" : "\"");
	egt_policy(&t, policy);
	egt_ask(&t, &answer, "CONNECT 93.184.216.34:8443 HTTP/1.1\r\nHost: 93.184.216.34:8443\r\n\r\n");
	assert_non_null(strstr(buf_c(&answer), "X-Egress-Reason: address_self\r\n"));
	if (own[0] == '\0') /* a host without a network */
		return;
	buf_reset(&answer);
	egt_ask(&t, &answer, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", own, own);
	assert_non_null(strstr(buf_c(&answer), "X-Egress-Reason: address_self\r\n"));
}

/* EGR-3: the settings say where nginx and PostgreSQL are; an inward host on loopback does not reach them. */
/* fault 45 */
static void an_inward_host_leads_to_no_service_of_ours(void **state)
{
	static const char *const extra[] = { "PUBLIC_URL=https://gatehouse.example:5443",
		"FORGE_URL=http://forge.example",
		"EGRESS_ALLOW_INWARD_FOR=a.origin.test:5443 "
		"a.origin.test:5432 a.origin.test:5999 a.origin.test:80",
		NULL };
	static const struct {
		int port;
		const char *reason;
	} all[] = { { 5443, "address_self" }, { 5432, "address_self" }, { 80, "address_self" },
		{ 5999, "connect_failed" } };
	(void)state;
	begin(extra);
	egt_policy(&t,
	    "{\"allowedHosts\":[\"a.origin.test:5443\",\"a.origin.test:5432\",\"a.origin.test:5999\","
	    "\"a.origin.test:80\"]}");
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		auto_buf struct buf answer = BUF(1 << 16);
		char want[64];
		egt_ask(&t, &answer, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test:%d\r\n\r\n",
		    all[i].port, all[i].port);
		(void)snprintf(want, sizeof want, "X-Egress-Reason: %s\r\n", all[i].reason);
		if (strstr(buf_c(&answer), want) == NULL)
			fail_msg("%d: %s", all[i].port, buf_c(&answer));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_rate_slows_down_and_loses_nothing, down),
		cmocka_unit_test_teardown(a_lease_that_has_used_its_bytes_is_cut_off_for_good, down),
		cmocka_unit_test_teardown(
		    requests_beyond_the_rate_are_turned_away_until_it_is_refilled, down),
		cmocka_unit_test_teardown(silence_and_age_end_a_tunnel, down),
		cmocka_unit_test_teardown(the_hosts_own_addresses_are_refused_as_that, down),
		cmocka_unit_test_teardown(an_inward_host_leads_to_no_service_of_ours, down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
