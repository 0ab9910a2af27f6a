#include "../t.h"

#include <arpa/inet.h>
#include <string.h>

#include "io/reach.h"

static bool judged(const char *text, bool nat64)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		return reach_public((struct sockaddr *)&in, nat64);
	assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
	return reach_public((struct sockaddr *)&in6, nat64);
}

static bool is_public(const char *text)
{
	return judged(text, false);
}

static void only_hosts_that_are_public_are_public(void **s)
{
	(void)s;
	static const char *const ours[] = { "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255",
		"127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "224.0.0.1", "240.0.0.1",
		"255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1",
		"2001::1", "::127.0.0.1", "192.0.0.9", "168.63.129.16", "64:ff9b::808:808",
		"2002:808:808::" };
	static const char *const theirs[] = { "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255",
		"100.128.0.0", "128.0.0.1", "169.253.0.1", "172.15.255.255", "172.32.0.0", "192.167.0.1",
		"192.169.0.0", "198.17.0.1", "198.20.0.0", "223.255.255.255", "2606:4700::1111",
		"2a00:1450::1", "::ffff:8.8.8.8" };
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		if (is_public(ours[i]))
			fail_msg("%s", ours[i]);
	for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
		if (!is_public(theirs[i]))
			fail_msg("%s", theirs[i]);
	assert_true(judged("64:ff9b::808:808", true));
	assert_false(judged("64:ff9b::7f00:1", true));
}

static void a_name_that_leads_inside_is_refused_in_every_spelling(void **s)
{
	(void)s;
	static const char *const hosts[] = { "localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001",
		"0", "::1", "::ffff:127.0.0.1", "169.254.169.254" };
	auto_mem struct mem *m = mem_new();
	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
		struct err e = { 0 };
		const char *pin;
		assert_int_equal(reach_pin(m, hosts[i], 443, false, &pin, &e), -1);
		if (e.code != ERR_BAD_REQUEST)
			fail_msg("%s: %d %s", hosts[i], e.code, e.msg);
	}
}

static void a_public_address_needs_no_pin_and_an_unknown_name_is_said(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const char *pin = "";
	assert_int_equal(reach_pin(m, "1.1.1.1", 443, false, &pin, &e), 0);
	assert_null(pin);
	assert_int_equal(reach_pin(m, "no-such-host.invalid", 443, false, &pin, &e), -1);
	assert_int_equal(e.code, ERR_UPSTREAM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_hosts_that_are_public_are_public),
		cmocka_unit_test(a_name_that_leads_inside_is_refused_in_every_spelling),
		cmocka_unit_test(a_public_address_needs_no_pin_and_an_unknown_name_is_said),
	};
	return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
