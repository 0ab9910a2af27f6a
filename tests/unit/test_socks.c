/* EGR-6: SOCKS5. */
#include "../t.h"

#include <string.h>

#include "../chance.h"
#include "egress/socks.h"

static void a_greeting_without_login_is_taken(void **s)
{
	(void)s;
	static const struct {
		uint8_t p[8];
		size_t n;
		enum socks_step want;
		size_t used;
	} all[] = {
		{ { 5, 1, 0 }, 3, SOCKS_DONE, 3 },
		{ { 5, 2, 2, 0 }, 4, SOCKS_DONE, 4 },
		{ { 5, 1, 0, 5, 1 }, 5, SOCKS_DONE, 3 },
		{ { 5, 1, 2 }, 3, SOCKS_BAD, 3 },
		{ { 5, 0 }, 2, SOCKS_BAD, 2 },
		{ { 5, 3, 0 }, 3, SOCKS_MORE, 0 },
		{ { 5 }, 1, SOCKS_MORE, 0 },
		{ { 4, 1 }, 2, SOCKS_BAD, 0 },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		size_t used = 0;
		uint8_t reply[2];
		assert_int_equal(socks_greeting(all[i].p, all[i].n, &used, reply), all[i].want);
		assert_int_equal(used, all[i].used);
		assert_int_equal(reply[1], all[i].want == SOCKS_DONE ? 0 : 0xff);
	}
}

/* A request of this type and address bytes for port 443, with `extra` bytes after it. */
static enum socks_step ask(uint8_t cmd, uint8_t type, const char *address, size_t n, struct socks_request *r)
{
	uint8_t p[300] = { 5, cmd, 0, type };
	size_t at = 4;
	if (type == 3)
		p[at++] = (uint8_t)n;
	memcpy(p + at, address, n);
	at += n;
	p[at++] = 1;
	p[at++] = 0xbb;
	p[at] = 'x';
	for (size_t k = 0; k <= at; k++) { /* however it is cut */
		enum socks_step step = socks_read(r, p, k);
		if (step != SOCKS_MORE) {
			struct socks_request again;
			assert_int_equal(socks_read(&again, p, at + 1), step);
			assert_int_equal(again.reason, r->reason);
			return step;
		}
	}
	return SOCKS_MORE;
}

static void a_request_names_a_host_in_any_of_three_ways(void **s)
{
	(void)s;
	struct socks_request r;
	assert_int_equal(ask(1, 3, "API.example.com.", 16, &r), SOCKS_DONE);
	assert_string_equal(r.host.name, "api.example.com");
	assert_int_equal(r.port, 443);
	assert_int_equal(r.used, 4 + 1 + 16 + 2);
	assert_int_equal(ask(1, 3, "2606:4700::1111", 15, &r), SOCKS_DONE);
	assert_true(r.host.literal);
	assert_int_equal(ask(1, 1, "\x0a\x00\x00\x01", 4, &r), SOCKS_DONE);
	assert_string_equal(r.host.name, "10.0.0.1");
	assert_true(r.host.literal);
	assert_int_equal(ask(1, 4, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", 16, &r), SOCKS_DONE);
	assert_string_equal(r.host.name, "2001:db8::1");
	assert_int_equal(ask(1, 4, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x08\x08\x08\x08", 16, &r), SOCKS_DONE);
	assert_string_equal(r.host.name, "8.8.8.8");
}

static void everything_else_is_refused_with_its_reply(void **s)
{
	(void)s;
	static const struct {
		uint8_t cmd, type;
		const char *address;
		size_t n;
		enum egress_reason why;
		uint8_t reply;
	} all[] = {
		{ 2, 3, "a", 1, REASON_COMMAND_NOT_SUPPORTED, 7 },
		{ 3, 1, "\1\1\1\1", 4, REASON_COMMAND_NOT_SUPPORTED, 7 },
		{ 9, 3, "a", 1, REASON_BAD_SOCKS, 1 },
		{ 1, 2, "a", 1, REASON_BAD_ADDRESS_TYPE, 8 },
		{ 1, 0, "a", 1, REASON_BAD_ADDRESS_TYPE, 8 },
		{ 1, 3, "", 0, REASON_BAD_HOST, 1 },
		{ 1, 3, "a\0b", 3, REASON_BAD_HOST, 1 },
		{ 1, 3, "a b", 3, REASON_BAD_HOST, 1 },
		{ 1, 3, "[::1]", 5, REASON_BAD_HOST, 1 },
		{ 1, 3, "127.1", 5, REASON_BAD_HOST, 1 },
		{ 1, 3, "a:443", 5, REASON_BAD_HOST, 1 },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		struct socks_request r;
		uint8_t reply[SOCKS_REPLY_BYTES];
		assert_int_equal(ask(all[i].cmd, all[i].type, all[i].address, all[i].n, &r), SOCKS_BAD);
		assert_int_equal(r.reason, all[i].why);
		socks_reply(r.reason, reply);
		assert_int_equal(reply[1], all[i].reply);
	}
	static const uint8_t zero[] = { 5, 1, 0, 1, 1, 1, 1, 1, 0, 0 }, reserved[] = { 5, 1, 1 },
			     four[] = { 4 };
	struct socks_request r;
	assert_int_equal(socks_read(&r, zero, sizeof zero), SOCKS_BAD);
	assert_int_equal(r.reason, REASON_BAD_PORT);
	assert_int_equal(socks_read(&r, reserved, sizeof reserved), SOCKS_BAD);
	assert_int_equal(socks_read(&r, four, sizeof four), SOCKS_BAD);
}

static void a_reply_says_what_kind_of_refusal_it_is(void **s)
{
	(void)s;
	static const struct {
		enum egress_reason why;
		uint8_t code;
	} all[] = { { REASON_OK, 0 }, { REASON_SUFFIX, 0 }, { REASON_NOT_ON_ALLOWLIST, 2 },
		{ REASON_ADDRESS_DENIED, 2 }, { REASON_DNS_NXDOMAIN, 4 }, { REASON_CONNECT_FAILED, 5 },
		{ REASON_CONNECT_TIMEOUT, 6 }, { REASON_AUDIT_UNAVAILABLE, 1 },
		{ REASON_LIMIT_EXCEEDED, 1 } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		uint8_t out[SOCKS_REPLY_BYTES];
		socks_reply(all[i].why, out);
		assert_int_equal(out[0], 5);
		assert_int_equal(out[1], all[i].code);
	}
}

static void no_bytes_break_the_reader(void **s)
{
	(void)s;
	uint64_t seed = 1;
	for (int i = 0; i < 100000; i++) {
		uint8_t p[64], reply[2];
		size_t used = 0;
		struct socks_request r;
		chance_bytes(&seed, p, sizeof p);
		p[0] = 5;
		p[1] = (uint8_t)(i % 4);
		p[2] = (uint8_t)(i % 9 == 0);
		p[3] = (uint8_t)(i % 5);
		p[4] = (uint8_t)(p[4] % 70);
		size_t n = (size_t)(i % 65);
		if (socks_read(&r, p, n) == SOCKS_DONE)
			assert_true(r.used <= n && r.host.n > 0 && r.port > 0);
		if (socks_greeting(p, n, &used, reply) == SOCKS_DONE)
			assert_true(used <= n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_greeting_without_login_is_taken),
		cmocka_unit_test(a_request_names_a_host_in_any_of_three_ways),
		cmocka_unit_test(everything_else_is_refused_with_its_reply),
		cmocka_unit_test(a_reply_says_what_kind_of_refusal_it_is),
		cmocka_unit_test(no_bytes_break_the_reader),
	};
	return cmocka_run_group_tests_name("socks", tests, NULL, NULL);
}
