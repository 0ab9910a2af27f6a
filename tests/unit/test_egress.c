/* The proxy as a sandbox meets it: the real process, on loopback. */
#include "../span.h"
#include "../t.h"

#include "../fds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"
#include "base/str.h"
#include "io/egress_ctl.h"

enum { MANY = 2000 };

static struct egtest t;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "recorded.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "b.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};
static const char open_policy[] = "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\"]}";

static int up(void **state)
{
	(void)state;
	static const char *const extra[] = { "EGRESS_DRAIN_S=1", NULL };
	egt_start(&t, zone, extra);
	egt_policy(&t, open_policy);
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	return 0;
}

static void a_tunnel_to_an_allowed_host_carries_bytes_both_ways(void **state)
{
	(void)state;
	auto_buf struct buf back = BUF(1 << 20);
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(fd, "hello, origin");
	assert_true(egt_hear(fd, &back, "origin"));
	assert_string_equal(buf_c(&back), "hello, origin");
}

static void a_plain_request_is_answered(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20);
	egt_ask(&t, &answer,
	    "GET http://a.origin.test:%d/x HTTP/1.1\r\nHost: a.origin.test:%d\r\nConnection: close\r\n\r\n",
	    origin_port(t.origin), origin_port(t.origin));
	assert_non_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
}

static void a_refusal_names_the_host_and_the_reason(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20);
	egt_ask(
	    &t, &answer, "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\nCookie: s=1\r\n\r\n");
	assert_memory_equal(
	    buf_c(&answer), "HTTP/1.1 403 Egress denied: not_on_allowlist denied.test:443\r\n", 60);
	assert_non_null(strstr(buf_c(&answer), "X-Egress-Reason: not_on_allowlist\r\n"));
	assert_null(strstr(buf_c(&answer), "s=1"));
}

/* ---- SOCKS5 on the same port (EGR-6) */

static void socks_says(const void *request, size_t n, const char *reply, size_t reply_n, bool bytewise)
{
	auto_buf struct buf got = BUF(1 << 16);
	auto_fd int fd = egt_connect(t.port);
	const char *p = request;
	for (size_t i = 0; bytewise && i < n; i++)
		assert_int_equal(send(fd, p + i, 1, MSG_NOSIGNAL), 1);
	if (!bytewise)
		assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), n);
	while (got.n < reply_n) {
		char *to = buf_room(&got, 256);
		ssize_t k = recv(fd, to, 256, 0);
		assert_true(k > 0);
		buf_grew(&got, (size_t)k);
	}
	assert_memory_equal(got.p, reply, reply_n);
	if (reply_n < 4 || reply[3] != 0)
		return;
	egt_say(fd, "through");
	assert_true(egt_hear(fd, &got, "through"));
}

static size_t socks_name(char *out, const char *name, int port)
{
	size_t n = strlen(name);
	memcpy(out, "\5\1\0\5\1\0\3", 7);
	out[7] = (char)n;
	memcpy(out + 8, name, n);
	out[8 + n] = (char)(port >> 8);
	out[9 + n] = (char)port;
	return 10 + n;
}

static void socks_speaks_on_the_same_port_and_obeys_the_same_rules(void **state)
{
	(void)state;
	char q[300];
	int port = origin_port(t.origin);
	size_t n = socks_name(q, "a.origin.test", port);
	socks_says(q, n, "\5\0\5\0", 4, false);
	socks_says(q, n, "\5\0\5\0", 4, true);
	n = socks_name(q, "denied.test", 443);
	socks_says(q, n, "\5\0\5\2", 4, false);
	n = socks_name(q, "gone.origin.test", port); /* allowed to be asked for, and not there */
	socks_says(q, n, "\5\0\5\4", 4, false);
	/* 127.0.0.1 as an address: not on the list. */
	char literal[] = "\5\1\0\5\1\0\1\177\0\0\1\1\273";
	socks_says(literal, sizeof literal - 1, "\5\0\5\2", 4, false);
	/* BIND, and a login. */
	char bind[] = "\5\1\0\5\2\0\1\177\0\0\1\1\273";
	socks_says(bind, sizeof bind - 1, "\5\0\5\7", 4, false);
	socks_says("\5\1\2", 3, "\5\377", 2, false);
	assert_int_equal(dnsserver_asked(t.dns, "denied.test"), 0);
}

/* ---- what a tunnel to a TLS port may begin with (EGR-7) */

static size_t hello(unsigned char *out, const char *name)
{
	size_t n = strlen(name), ext = n == 0 ? 0 : n + 9;
	static const unsigned char suites[] = { 0, 2, 0x13, 0x01, 1, 0 };
	unsigned char *p = out + 9;
	*p++ = 3, *p++ = 3;
	memset(p, 7, 32);
	p += 32;
	*p++ = 0; /* no session id */
	memcpy(p, suites, sizeof suites);
	p += sizeof suites;
	*p++ = (unsigned char)(ext >> 8), *p++ = (unsigned char)ext;
	if (n > 0) {
		const unsigned char head[] = { 0, 0, 0, (unsigned char)(n + 5), 0, (unsigned char)(n + 3), 0,
			0, (unsigned char)n };
		memcpy(p, head, sizeof head);
		memcpy(p + sizeof head, name, n);
		p += sizeof head + n;
	}
	size_t body = (size_t)(p - out) - 9;
	const unsigned char record[] = { 22, 3, 1, (unsigned char)((body + 4) >> 8),
		(unsigned char)(body + 4), 1, 0, (unsigned char)(body >> 8), (unsigned char)body };
	memcpy(out, record, sizeof record);
	return (size_t)(p - out);
}

/* What the proxy makes of a hello in a tunnel to a.origin.test: passed on (and echoed), or an alert and the end. */
static void hello_is(const char *name, bool passes, size_t piece)
{
	unsigned char h[512];
	size_t n = hello(h, name);
	auto_buf struct buf got = BUF(1 << 16);
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	origin_forget(t.origin);
	for (size_t at = 0; at < n; at += piece)
		(void)send(fd, h + at, n - at < piece ? n - at : piece, MSG_NOSIGNAL);
	if (passes) {
		while (got.n < n) {
			char *to = buf_room(&got, 512);
			ssize_t k = recv(fd, to, 512, 0);
			assert_true(k > 0);
			buf_grew(&got, (size_t)k);
		}
		assert_memory_equal(got.p, h, n);
		return;
	}
	assert_true(egt_hear(fd, &got, NULL));
	assert_int_equal(got.n, 7);
	assert_memory_equal(got.p, "\25\3\3\0\2\2\61", 7);
	auto_buf struct buf seen = BUF(1 << 20);
	origin_seen(t.origin, &seen);
	assert_int_equal(seen.n, 0);
}

/* fault 44 */
static void a_tunnel_carries_tls_to_its_own_host_only(void **state)
{
	(void)state;
	hello_is("a.origin.test", true, 512);
	hello_is("A.Origin.Test", true, 1);
	hello_is("b.origin.test", false, 512);
	hello_is("denied.test", false, 3);
	hello_is("", false, 512);
	egt_until(&t,
	    "SELECT count(*) > 0 FROM egress_audit WHERE reason = 'sni_mismatch' AND verdict = 'deny'", "t");
}

/* ---- the life of a tunnel */

static void a_half_closed_tunnel_delivers_the_rest(void **state)
{
	(void)state;
	auto_buf struct buf got = BUF(4 << 20);
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(fd, "GET /big?n=3000000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_true(egt_hear(fd, &got, NULL));
	assert_true(got.n > 3000000);
}

static void an_origins_reset_is_the_clients_reset(void **state)
{
	(void)state;
	char c;
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(fd, "!");
	assert_int_equal(recv(fd, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	auto_fd int calm = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(calm, "~");
	assert_int_equal(recv(calm, &c, 1, 0), 0);
}

/* One side ends, the other neither speaks nor ends: not for ever. */
static void the_drain_of_a_half_closed_tunnel_is_bounded(void **state)
{
	(void)state;
	char c;
	auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	egt_say(fd, "GET /silent HTTP/1.1\r\n\r\n");
	struct span begin = span_begin();
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_true(recv(fd, &c, 1, 0) <= 0);
	assert_true(span_ms(&begin) < 5000);
}

/* EGR-9 */
static void a_new_policy_holds_at_once_and_cuts_what_it_no_longer_allows(void **state)
{
	(void)state;
	char c;
	auto_buf struct buf got = BUF(1 << 16);
	auto_fd int cut = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
	auto_fd int stays = egt_tunnel(&t, "b.origin.test", origin_port(t.origin));
	char policy[160];
	(void)snprintf(policy, sizeof policy, "{\"mode\":\"static\",\"allowedHosts\":[\"b.origin.test:%d\"]}",
	    origin_port(t.origin));
	struct span begin = span_begin();
	egt_sql(&t, "UPDATE sandboxes SET network = '%s' WHERE id = '%s'", policy, EGT_SANDBOX);
	assert_int_equal(recv(cut, &c, 1, 0), -1); /* a reset */
	assert_true(span_ms(&begin) < 1000);       /* starting psql included; the bench has the figure */
	egt_say(stays, "still");
	assert_true(egt_hear(stays, &got, "still"));
	auto_buf struct buf answer = BUF(1 << 16);
	egt_ask(&t, &answer, "CONNECT a.origin.test:%d HTTP/1.1\r\nHost: a.origin.test\r\n\r\n",
	    origin_port(t.origin));
	assert_non_null(strstr(buf_c(&answer), "not_on_allowlist"));
	egt_policy(&t, open_policy);
	egt_until(&t,
	    "SELECT count(*) > 0 FROM egress_audit WHERE kind = 'close' AND reason = 'policy_changed'", "t");
}

/* EGR-15: what was allowed a moment ago, on the same connection to the same origin. */
static void each_request_of_a_kept_connection_is_judged_anew(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 16);
	int port = origin_port(t.origin), before = origin_accepted(t.origin);
	auto_fd int fd = egt_connect(t.port);
	for (int i = 0; i < 3; i++) {
		buf_reset(&answer);
		egt_say(fd, "GET http://a.origin.test:%d/%d HTTP/1.1\r\nHost: x\r\n\r\n", port, i);
		assert_true(egt_hear(fd, &answer, "\r\n\r\norigin"));
	}
	assert_int_equal(origin_accepted(t.origin), before + 1);
	egt_policy(&t, "{\"mode\":\"deny-all\"}");
	buf_reset(&answer);
	egt_say(fd, "GET http://a.origin.test:%d/4 HTTP/1.1\r\nHost: x\r\n\r\n", port);
	assert_true(egt_hear(fd, &answer, NULL));
	assert_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
	egt_policy(&t, open_policy);
}

static void bodies_and_answers_pass_in_every_framing(void **state)
{
	static const struct {
		const char *path, *want;
	} rows[] = { { "/chunked", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n" }, { "/to-end", "until the end" },
		{ "/100", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK" }, { "/x", "\r\n\r\norigin" } };
	int port = origin_port(t.origin);
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_buf struct buf answer = BUF(1 << 16);
		egt_ask(&t, &answer,
		    "POST http://a.origin.test:%d%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
		    "chunked\r\nConnection: close\r\n\r\n"
		    "3\r\nabc\r\n0\r\n\r\n",
		    port, rows[i].path);
		if (strstr(buf_c(&answer), rows[i].want) == NULL)
			fail_msg("%s: %s", rows[i].path, buf_c(&answer));
	}
	auto_buf struct buf answer = BUF(1 << 16), seen = BUF(1 << 20);
	origin_forget(t.origin);
	egt_ask(
	    &t, &answer, "POST http://a.origin.test:%d/ HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", port);
	assert_non_null(strstr(buf_c(&answer), "\r\n\r\norigin"));
	origin_seen(t.origin, &seen);
	assert_non_null(strstr(buf_c(&seen), "\r\n\r\nhello"));
	/* HEAD has a length and no body. */
	buf_reset(&answer);
	egt_ask(&t, &answer, "HEAD http://a.origin.test:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	    port);
	assert_true(str_ends(buf_c(&answer), "\r\n\r\n"));
}

/* ---- what is written down (EGR-5, EGR-15) */

static void decisions_closes_and_refusals_are_recorded(void **state)
{
	(void)state;
	auto_buf struct buf got = BUF(1 << 16), answer = BUF(1 << 16);
	egt_sql(&t, "DELETE FROM egress_audit");
	int fd = egt_tunnel(&t, "recorded.origin.test", origin_port(t.origin));
	egt_say(fd, "0123456789");
	assert_true(egt_hear(fd, &got, "9"));
	(void)close(fd);
	egt_ask(&t, &answer,
	    "GET http://audited.test/secret?token=1 HTTP/1.1\r\nHost: audited.test\r\nCookie: s=1\r\n\r\n");
	egt_until(&t,
	    "SELECT concat_ws(' ', org, sandbox, form, verdict, reason, address, class, observed) FROM "
	    "egress_audit "
	    "WHERE kind = 'decision' AND host = 'recorded.origin.test'",
	    "acme " EGT_SANDBOX " connect allow suffix 127.0.0.1 loopback f");
	egt_until(&t,
	    "SELECT concat_ws(' ', verdict, bytes_out, bytes_in, duration_ms >= 0) FROM egress_audit "
	    "WHERE kind = 'close' AND host = 'recorded.origin.test'",
	    "allow 10 10 t");
	egt_until(&t,
	    "SELECT concat_ws(' ', form, verdict, reason) FROM egress_audit WHERE host = 'audited.test'",
	    "http deny not_on_allowlist");
	egt_until(&t,
	    "SELECT payload FROM events WHERE session = '" EGT_SESSION "' AND payload LIKE '%audited.test%'",
	    "{\"message\":\"egress to audited.test:80 refused: "
	    "not_on_allowlist. The host is not on this sandbox's list; add it to allowedHosts to reach "
	    "it.\",\"egress\":{\"host\":\"audited.test\","
	    "\"port\":80,\"reason\":\"not_on_allowlist\"}}");
	egt_until(&t, "SELECT count(*) FROM egress_audit WHERE egress_audit::text ~ 'secret|token|s=1'", "0");
}

static void old_rows_are_removed(void **state)
{
	(void)state;
	egt_sql(&t,
	    "INSERT INTO egress_audit (at, org, sandbox, kind, form, host, port, verdict, reason) SELECT "
	    "now() - make_interval("
	    "days => d), 'acme', 's', 'decision', 'http', 'old.test', 80, 'deny', 'eof' FROM "
	    "generate_series(80, 99) d");
	/* A process that starts looks first. */
	egt_kill(&t, SIGTERM);
	egt_up(&t);
	egt_give(&t);
	(void)close(egt_tunnel(&t, "a.origin.test", origin_port(t.origin)));
	egt_until(&t, "SELECT count(*) FROM egress_audit WHERE host = 'old.test'", "10");
}

static void metrics_are_told_on_the_control_socket(void **state)
{
	(void)state;
	auto_buf struct buf text = BUF(1 << 17);
	struct err e = { 0 };
	assert_int_equal(egress_ctl_metrics(t.ctl, &text, &e), 0);
	assert_non_null(strstr(buf_c(&text), "gatehouse_egress_sandboxes 1\n"));
	assert_non_null(strstr(
	    buf_c(&text), "gatehouse_egress_decisions_total{verdict=\"deny\",reason=\"not_on_allowlist\"} "));
}

/* ---- the socket of sandboxd */

struct found {
	int n, fd;
	char sandbox[64], kind[16];
};

static void on_found(void *arg, const char *sandbox, const char *kind, int fd)
{
	struct found *f = arg;
	f->n++;
	(void)snprintf(f->sandbox, sizeof f->sandbox, "%s", sandbox);
	(void)snprintf(f->kind, sizeof f->kind, "%s", kind);
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = fd;
}

static void listeners_are_listed_given_again_and_closed(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct found f = { .fd = -1 };
	int port;
	auto_fd int fd = egt_sandbox(&t, "sbx_00000000000000000000000009", "{}", &port);
	assert_int_equal(egress_ctl_list(t.ctl, on_found, &f, &e), 0);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.kind, "proxy");
	assert_true(f.fd >= 0);
	(void)close(f.fd);
	auto_buf struct buf were = BUF(1 << 20);
	int before = fds_least(t.pid, 500, &were);
	for (int i = 0; i < 3; i++) /* the same one again: nothing is cut or lost */
		egt_give(&t);
	assert_int_equal(egt_fds(&t), before);
	assert_int_equal(egress_ctl_close(t.ctl, "sbx_00000000000000000000000009", &e), 0);
	assert_int_equal(egress_ctl_close(t.ctl, "sbx_00000000000000000000000009", &e), 0);
	assert_int_equal(egt_fds(&t), before - 1);
	/* More than a socket's buffer holds. */
	egt_sql(&t,
	    "INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, "
	    "iso_tier, node, workdir, "
	    "created_by, expires_at) SELECT 'sbx_' || lpad(i::text, 26, '0'), 'acme', 'exec', 'running', "
	    "'i', '', false, 'proxy', 1, "
	    "'n', '/w', 'u', now() + interval '1 hour' FROM generate_series(1000, 1000 + %d) i",
	    MANY - 1);
	char id[64];
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(id, sizeof id, "sbx_%026d", 1000 + i);
		if (egress_ctl_open(t.ctl, id, "proxy", fd, &e) != 0)
			fail_msg("%s", e.msg);
	}
	f.n = 0;
	f.fd = -1;
	assert_int_equal(egress_ctl_list(t.ctl, on_found, &f, &e), 0);
	(void)close(f.fd);
	assert_int_equal(f.n, MANY + 1);
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(id, sizeof id, "sbx_%026d", 1000 + i);
		assert_int_equal(egress_ctl_close(t.ctl, id, &e), 0);
	}
	assert_int_equal(egress_ctl_open(t.ctl, "sbx_of_nobody", "proxy", fd, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	assert_int_equal(egress_ctl_open(t.ctl, EGT_SANDBOX, "magic", fd, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tunnel_to_an_allowed_host_carries_bytes_both_ways),
		cmocka_unit_test(a_plain_request_is_answered),
		cmocka_unit_test(a_refusal_names_the_host_and_the_reason),
		cmocka_unit_test(socks_speaks_on_the_same_port_and_obeys_the_same_rules),
		cmocka_unit_test(a_tunnel_carries_tls_to_its_own_host_only),
		cmocka_unit_test(a_half_closed_tunnel_delivers_the_rest),
		cmocka_unit_test(an_origins_reset_is_the_clients_reset),
		cmocka_unit_test(the_drain_of_a_half_closed_tunnel_is_bounded),
		cmocka_unit_test(a_new_policy_holds_at_once_and_cuts_what_it_no_longer_allows),
		cmocka_unit_test(each_request_of_a_kept_connection_is_judged_anew),
		cmocka_unit_test(bodies_and_answers_pass_in_every_framing),
		cmocka_unit_test(decisions_closes_and_refusals_are_recorded),
		cmocka_unit_test(metrics_are_told_on_the_control_socket),
		cmocka_unit_test(old_rows_are_removed),
		cmocka_unit_test(listeners_are_listed_given_again_and_closed),
	};
	return cmocka_run_group_tests(tests, up, down);
}
