/* EGR-16: listeners for tools that know of no proxy, through the real process: Host, server name and names decide. */
#include "../t.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "../tlsorigin.h"
#include "io/egress_ctl.h"

static struct egtest t;
static struct tlsorigin *tls;
static int http_fd, tls_fd, dns_udp, dns_tcp, http_port, tls_port, dns_port;

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 30 },
	{ .name = "key.origin.test", .value = "127.0.0.2", .ttl_s = 30 },
	{ 0 },
};

static void give(const char *kind, int fd)
{
	struct err e = { 0 };
	if (egress_ctl_open(t.ctl, EGT_SANDBOX, kind, fd, &e) != 0)
		fail_msg("%s: %s", kind, e.msg);
}

static int up(void **state)
{
	static char inward[96];
	static const char *const extra[] = { inward, NULL };
	char ca[128], policy[160];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof a;
	(void)state;
	egt_prepare(&t, zone, extra);
	http_fd = egt_listener(&http_port);
	tls_fd = egt_listener(&tls_port);
	dns_tcp = egt_listener(&dns_port);
	dns_udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(dns_udp, (struct sockaddr *)&a, size), 0);
	(void)snprintf(inward, sizeof inward, "EGRESS_ALLOW_INWARD_FOR=.origin.test:%d .origin.test:%d",
	    origin_port(t.origin), tls_port);
	(void)snprintf(ca, sizeof ca, "%s/ca.pem", t.dir);
	/* Where the sandbox connects to is the listener; where the name is, is the origin: at the same port. */
	tls = tlsorigin_start("127.0.0.2", tls_port, "key.origin.test", ca);
	egt_begin(&t);
	(void)snprintf(
	    policy, sizeof policy, "{\"allowedHosts\":[\".origin.test:{P}\",\".origin.test:%d\"]}", tls_port);
	egt_policy(&t, policy);
	give("http", http_fd);
	give("tls", tls_fd);
	give("dns", dns_tcp);
	give("dns", dns_udp);
	return 0;
}

static int down(void **state)
{
	(void)state;
	egt_end(&t);
	tlsorigin_end(tls);
	(void)close(http_fd);
	(void)close(tls_fd);
	(void)close(dns_udp);
	(void)close(dns_tcp);
	return 0;
}

static void says(const char *request, const char *want)
{
	auto_buf struct buf answer = BUF(1 << 16);
	auto_fd int fd = egt_connect(http_port);
	egt_say(fd, "%s", request);
	assert_true(egt_hear(fd, &answer, NULL));
	if (strstr(buf_c(&answer), want) == NULL)
		fail_msg("%s: expected %s, got %s", request, want, buf_c(&answer));
}

static void a_plain_request_goes_where_its_host_says(void **state)
{
	char text[256];
	(void)state;
	(void)snprintf(text, sizeof text,
	    "GET /x HTTP/1.1\r\nHost: a.origin.test:%d\r\nConnection: close\r\n\r\n", origin_port(t.origin));
	says(text, "\r\n\r\norigin");
	says("GET /x HTTP/1.1\r\nHost: denied.test\r\n\r\n",
	    "403 Egress denied: not_on_allowlist denied.test:80");
	says("GET /x HTTP/1.1\r\n\r\n", "400 ");
	says("GET http://a.origin.test/ HTTP/1.1\r\nHost: a.origin.test\r\n\r\n", "400 ");
	says("CONNECT a.origin.test:443 HTTP/1.1\r\nHost: a.origin.test:443\r\n\r\n", "400 ");
	assert_int_equal(dnsserver_asked(t.dns, "denied.test"), 0);
}

/* A client that verifies the origin's certificate itself: 1, or 0 when there is no TLS with it. */
static int tls_get(const char *name, struct buf *answer)
{
	char ca[128];
	auto_fd int fd = egt_connect(tls_port);
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	(void)snprintf(ca, sizeof ca, "%s/ca.pem", t.dir);
	assert_int_equal(SSL_CTX_load_verify_locations(ctx, ca, NULL), 1);
	SSL *ssl = SSL_new(ctx);
	SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	char sni[256]; /* OpenSSL's macro takes the const away */
	(void)snprintf(sni, sizeof sni, "%s", name == NULL ? "" : name);
	if (name != NULL)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, sni), 1);
	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	int ok = SSL_connect(ssl);
	const char q[] = "GET /t HTTP/1.1\r\nHost: key.origin.test\r\n\r\n";
	if (ok == 1 && SSL_write(ssl, q, sizeof q - 1) == sizeof q - 1) {
		char in[4096];
		int n = SSL_read(ssl, in, sizeof in);
		(void)buf_add(answer, in, n > 0 ? (size_t)n : 0);
	}
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return ok == 1;
}

/* fault 44, fault 48 */
static void tls_goes_where_its_server_name_says(void **state)
{
	(void)state;
	auto_buf struct buf answer = BUF(1 << 16);
	assert_int_equal(tls_get("key.origin.test", &answer), 1);
	assert_non_null(strstr(buf_c(&answer), "secure"));
	assert_int_equal(tls_get("denied.test", &answer), 0);
	assert_int_equal(tls_get(NULL, &answer), 0);
	assert_int_equal(tlsorigin_handshakes(tls), 1);
	egt_until(&t,
	    "SELECT concat_ws(' ', form, verdict, reason) FROM egress_audit WHERE host = 'denied.test' AND "
	    "port > 80",
	    "transparent deny not_on_allowlist");
}

/* The answer's code, how many answers, and the first one's address. */
static unsigned ask(bool stream, const char *name, int type, int *answers, unsigned char address[4])
{
	unsigned char q[600] = { 0, 0, 0x12, 0x34, 1, 0, 0, 1 }, in[600];
	size_t n = 14;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof to;
	for (const char *p = name; *p != '\0';) {
		size_t label = strcspn(p, ".");
		q[n++] = (unsigned char)label;
		memcpy(q + n, p, label);
		n += label;
		p += label + (p[label] == '.');
	}
	n += 2;
	q[n++] = (unsigned char)type;
	n++;
	q[n++] = 1;
	q[1] = (unsigned char)(n - 2);
	auto_fd int fd = stream ? egt_connect(dns_port) : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (!stream) {
		assert_int_equal(getsockname(dns_udp, (struct sockaddr *)&to, &size), 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&to, size), 0);
	}
	size_t skip = stream ? 0 : 2;
	assert_int_equal(send(fd, q + skip, n - skip, 0), n - skip);
	ssize_t k = recv(fd, in + skip, sizeof in - skip, 0);
	assert_true(k >= 12);
	assert_memory_equal(in + 2, q + 2, 2);
	assert_int_equal(in[4] & 0x80, 0x80);
	*answers = in[9];
	memcpy(address, in + skip + k - 4, 4);
	return in[5] & 15;
}

/* fault 43 */
static void names_that_are_allowed_have_an_address_and_others_do_not_exist(void **state)
{
	unsigned char address[4];
	int n;
	(void)state;
	for (int stream = 0; stream < 2; stream++) {
		assert_int_equal(ask(stream, "A.Origin.Test", 1, &n, address), 0);
		assert_int_equal(n, 1);
		assert_memory_equal(address, "\306\022\0\1", 4); /* 198.18.0.1 */
		assert_int_equal(ask(stream, "a.origin.test", 28, &n, address), 0);
		assert_int_equal(n, 0);
		assert_int_equal(ask(stream, "secret-data.evil.example", 1, &n, address), 3);
		assert_int_equal(n, 0);
	}
	/* Nobody outside was asked. */
	assert_int_equal(dnsserver_asked(t.dns, "secret-data.evil.example"), 0);
	egt_until(&t,
	    "SELECT count(*) > 0 FROM egress_audit WHERE host = 'secret-data.evil.example' AND port = 0",
	    "t");
}

/* Packets that were a question before some of their bytes changed. */
static void the_resolver_outlives_whatever_it_is_sent(void **state)
{
	static const unsigned char good[] = "\x12\x34\1\0\0\1\0\0\0\0\0\0\1a\6origin\4test\0\0\1\0\1";
	struct sockaddr_in to = { 0 };
	socklen_t size = sizeof to;
	unsigned seed = 11;
	unsigned char address[4];
	int n;
	(void)state;
	assert_int_equal(getsockname(dns_udp, (struct sockaddr *)&to, &size), 0);
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, size), 0);
	for (int i = 0; i < 20000; i++) {
		unsigned char q[sizeof good - 1], in[600];
		memcpy(q, good, sizeof q);
		for (int k = rand_r(&seed) % 4; k >= 0; k--)
			q[(size_t)rand_r(&seed) % sizeof q] = (unsigned char)rand_r(&seed);
		(void)send(fd, q, 1 + (size_t)rand_r(&seed) % sizeof q, MSG_DONTWAIT);
		(void)recv(fd, in, sizeof in, MSG_DONTWAIT);
	}
	assert_int_equal(ask(true, "a.origin.test", 1, &n, address), 0);
	assert_int_equal(n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_request_goes_where_its_host_says),
		cmocka_unit_test(tls_goes_where_its_server_name_says),
		cmocka_unit_test(the_resolver_outlives_whatever_it_is_sent),
		cmocka_unit_test(names_that_are_allowed_have_an_address_and_others_do_not_exist),
	};
	return cmocka_run_group_tests(tests, up, down);
}
