/* Brokered credentials (EGR-8) through the real proxy, with an origin that speaks TLS. */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "../tlsorigin.h"
#include "auth/seal.h"
#include "base/clock.h"
#include "io/file.h"

static struct egtest t;
static struct tlsorigin *tls;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "key.origin.test", .value = "127.0.0.2", .ttl_s = 30 },
	{ .name = "wrong.origin.test", .value = "127.0.0.2", .ttl_s = 30 },
	{ .name = "plain.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ 0 },
};

static void bind_credential(const char *id, const char *host, const char *header, const char *value)
{
	char path[128];
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	(void)snprintf(path, sizeof path, "%s/key", t.dir);
	struct seal_key *k = seal_load(path, &e);
	assert_non_null(k);
	auto_secret struct secret *s = secret_new(value, strlen(value));
	egt_sql(&t,
	    "INSERT INTO egress_credentials (id, org, name, host, header, sealed, created_by) VALUES ('%s', "
	    "'acme', 'n', "
	    "'%s:%d', '%s', '%s', 'u')",
	    id, host, origin_port(t.origin), header, seal(m, k, id, s));
	seal_free(k);
}

static int up(void **state)
{
	static const char *const extra[] = { "EGRESS_CA_FILE={DIR}/ca.pem", NULL };
	char ca[128];
	(void)state;
	egt_prepare(&t, zone, extra);
	(void)snprintf(ca, sizeof ca, "%s/ca.pem", t.dir);
	tls = tlsorigin_start("127.0.0.2", origin_port(t.origin), "key.origin.test", ca);
	egt_begin(&t);
	egt_policy(&t, "{\"mode\":\"static\",\"allowedHosts\":[\".origin.test:{P}\"]}");
	bind_credential(
	    "ecr_00000000000000000000000001", "key.origin.test", "authorization", "Bearer sesame-open-1");
	bind_credential(
	    "ecr_00000000000000000000000002", "wrong.origin.test", "authorization", "Bearer sesame-open-2");
	bind_credential(
	    "ecr_00000000000000000000000003", "plain.origin.test", "authorization", "Bearer sesame-open-3");
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	tlsorigin_end(tls);
	return 0;
}

static void get(const char *host, const char *path, const char *fields, struct buf *answer)
{
	int port = origin_port(t.origin);
	buf_reset(answer);
	egt_ask(&t, answer, "GET http://%s:%d%s HTTP/1.1\r\nHost: %s:%d\r\n%sConnection: close\r\n\r\n", host,
	    port, path, host, port, fields);
}

/* The first one after a change may still meet the state before it: until it is so, at most 5 s. */
static void get_until(const char *host, const char *want, struct buf *answer)
{
	for (int64_t until = clock_ms() + 60000; clock_ms() < until; (void)usleep(5000)) {
		get(host, "/", "", answer);
		if (strstr(buf_c(answer), want) != NULL)
			return;
	}
	fail_msg("%s: expected %s: %s", host, want, buf_c(answer));
}

static void a_request_goes_on_by_tls_with_the_credential(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20), seen = BUF(1 << 20);
	get_until("key.origin.test", "\r\n\r\nsecure", &answer);
	get("key.origin.test", "/mine", "Authorization: Bearer of-the-sandbox\r\nX-Kept: yes\r\n", &answer);
	assert_non_null(strstr(buf_c(&answer), "\r\n\r\nsecure"));
	assert_null(strstr(buf_c(&answer), "sesame"));
	tlsorigin_seen(tls, &seen);
	assert_non_null(strstr(buf_c(&seen), "authorization: Bearer sesame-open-1\r\n"));
	assert_non_null(strstr(buf_c(&seen), "X-Kept: yes\r\n"));
	assert_null(strstr(buf_c(&seen), "of-the-sandbox"));
	get("key.origin.test", "/big", "", &answer);
	assert_true(answer.n > 100000);
}

static void a_kept_connection_makes_one_handshake(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20);
	int port = origin_port(t.origin), before = tlsorigin_handshakes(tls);
	auto_fd int fd = egt_connect(t.port);
	for (int i = 0; i < 3; i++) {
		buf_reset(&answer);
		egt_say(fd, "GET http://key.origin.test:%d/%d HTTP/1.1\r\nHost: x\r\n\r\n", port, i);
		assert_true(egt_hear(fd, &answer, "\r\n\r\nsecure"));
	}
	assert_in_range(tlsorigin_handshakes(tls), before + 1, before + 3); /* tickets may end a kept one */
}

/* A certificate for another name, and an origin that speaks no TLS: the credential is not sent. */
static void an_origin_that_does_not_prove_its_name_gets_nothing(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20), seen = BUF(1 << 20);
	get_until("wrong.origin.test", "502 Egress failed: upstream_tls", &answer);
	get_until("plain.origin.test", "502 Egress failed: upstream_tls", &answer);
	tlsorigin_seen(tls, &seen);
	origin_seen(t.origin, &seen);
	assert_null(memmem(seen.p, seen.n, "sesame-open-2", 13)); /* hellos are binary */
	assert_null(memmem(seen.p, seen.n, "sesame-open-3", 13));
}

static void another_host_does_not_get_it(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20), seen = BUF(1 << 20);
	int port = origin_port(t.origin);
	origin_forget(t.origin);
	/* On one connection, as a client that follows a redirect does. */
	auto_fd int fd = egt_connect(t.port);
	egt_say(fd, "GET http://key.origin.test:%d/redirect HTTP/1.1\r\nHost: x\r\n\r\n", port);
	assert_true(egt_hear(fd, &answer, "\r\n\r\nsecure"));
	egt_say(fd, "GET http://a.origin.test:%d/after HTTP/1.1\r\nHost: x\r\n\r\n", port);
	assert_true(egt_hear(fd, &answer, "\r\n\r\norigin"));
	origin_seen(t.origin, &seen); /* what came late of the hello before is binary */
	assert_non_null(memmem(seen.p, seen.n, "GET /after ", 11));
	assert_null(memmem(seen.p, seen.n, "sesame", 6));
}

static void a_tunnel_to_such_a_host_says_how_to_do_it(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20);
	int port = origin_port(t.origin);
	egt_ask(&t, &answer, "CONNECT key.origin.test:%d HTTP/1.1\r\nHost: key.origin.test\r\n\r\n", port);
	assert_non_null(strstr(buf_c(&answer), "403 Egress denied: broker_tunnel"));
	assert_non_null(strstr(buf_c(&answer), "http://"));
}

/* fault 47 */
static void a_credential_that_is_removed_or_sealed_otherwise_is_not_used(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 20);
	egt_sql(&t, "UPDATE egress_credentials SET sealed = '1:AAAA' WHERE host LIKE 'plain%%'");
	get_until("plain.origin.test", "403 Egress denied: policy_unavailable", &answer);
	egt_sql(&t, "DELETE FROM egress_credentials WHERE host LIKE 'plain%%'");
	get_until("plain.origin.test", "\r\n\r\norigin", &answer);
}

static void values_are_in_no_log_event_or_row(void **state)
{
	(void)state;
	auto_buf struct buf log = BUF(1 << 20);
	struct err e = { 0 };
	assert_int_equal(file_read(t.log, &log, &e), 0);
	assert_null(strstr(buf_c(&log), "sesame"));
	egt_until(&t, "SELECT count(*) > 3 FROM egress_audit WHERE kind = 'close'", "t");
	egt_until(&t,
	    "SELECT (SELECT count(*) FROM egress_audit a WHERE a::text LIKE '%sesame%') + "
	    "(SELECT count(*) FROM events e WHERE e.payload LIKE '%sesame%')",
	    "0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_goes_on_by_tls_with_the_credential),
		cmocka_unit_test(a_kept_connection_makes_one_handshake),
		cmocka_unit_test(an_origin_that_does_not_prove_its_name_gets_nothing),
		cmocka_unit_test(another_host_does_not_get_it),
		cmocka_unit_test(a_tunnel_to_such_a_host_says_how_to_do_it),
		cmocka_unit_test(a_credential_that_is_removed_or_sealed_otherwise_is_not_used),
		cmocka_unit_test(values_are_in_no_log_event_or_row),
	};
	return cmocka_run_group_tests(tests, up, down);
}
