/* EGR-2: one form of every name, and what a pattern matches. */
#include "../t.h"

#include <string.h>

#include "../chance.h"
#include "base/host.h"

static bool canon(const char *text, enum host_form form, const char *want)
{
	struct host h;
	bool ok = host_canon(str_of(text), form, &h);
	return want == NULL ? !ok : ok && strcmp(h.name, want) == 0 && h.n == strlen(want);
}

static void a_name_has_one_form(void **s)
{
	(void)s;
	static const struct {
		const char *in, *out;
	} same[] = { { "API.Example.COM", "api.example.com" }, { "api.example.com.", "api.example.com" },
		{ "a", "a" }, { "_dmarc.a_b.c-d", "_dmarc.a_b.c-d" },
		{ "xn--bcher-kva.example", "xn--bcher-kva.example" }, { "1e9", "1e9" },
		{ "0x7f.com", "0x7f.com" }, { "1.2.3.4.com", "1.2.3.4.com" }, { "1.2.3.4", "1.2.3.4" },
		{ "7f", "7f" }, { "0xg", "0xg" }, { "a.0xyz", "a.0xyz" } };
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
		if (!canon(same[i].in, HOST_IN_AUTHORITY, same[i].out) ||
		    !canon(same[i].in, HOST_BARE, same[i].out))
			fail_msg("%s", same[i].in);
	static const char *const wrong[] = { "", ".", "..", ".a", "a..b", "a..", "-a.b", "a-.b", "a.-b",
		"a.b-", "a b", "a/b", "a%62", "a@b", "a\\b", "a:b", "a*", "*.a", "a\tb", "\xc3\xa9.a", "a.1",
		"a.0x7f", "a.0x", "1", "127.1", "0x7f000001", "1.2.3.4.5", "1.2.3.4.", "0177.0.0.1",
		"127.0.0.01", "a.00", "1.2.3.256", "[1.2.3.4]", "[a]", "[]", "[", "]", "[::1", "[::1]x",
		"[::1%1]", "a,b", "a;b", "a?b", "a#b", "a'b", "a\"b", "a\x7f" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (!canon(wrong[i], HOST_IN_AUTHORITY, NULL) || !canon(wrong[i], HOST_BARE, NULL))
			fail_msg("%s", wrong[i]);
	/* Where brackets belong, and where they do not. */
	assert_true(canon("[2001:DB8:0::1]", HOST_IN_AUTHORITY, "2001:db8::1"));
	assert_true(canon("2001:DB8:0::1", HOST_BARE, "2001:db8::1"));
	assert_true(canon("[2001:DB8:0::1]", HOST_BARE, NULL));
	assert_true(canon("2001:DB8:0::1", HOST_IN_AUTHORITY, NULL));
	assert_true(canon("[::ffff:8.8.8.8]", HOST_IN_AUTHORITY, "8.8.8.8"));
}

static void lengths_are_those_of_the_domain_name_system(void **s)
{
	(void)s;
	char name[300];
	struct host h;
	memset(name, 'a', sizeof name);
	for (size_t i = 63; i < sizeof name; i += 64)
		name[i] = '.';
	assert_true(host_canon((struct str){ name, 63 }, HOST_BARE, &h));
	assert_true(host_canon((struct str){ name, 253 }, HOST_BARE, &h));
	assert_int_equal(h.n, 253);
	assert_false(host_canon((struct str){ name, 254 }, HOST_BARE, &h));
	name[253] = '.';
	assert_true(
	    host_canon((struct str){ name, 254 }, HOST_BARE, &h)); /* the trailing dot does not count */
	name[63] = 'a';
	assert_false(host_canon((struct str){ name, 253 }, HOST_BARE, &h)); /* a label of 127 */
	assert_false(host_canon((struct str){ "a\0b", 3 }, HOST_BARE, &h));
}

static void ports_are_decimal_and_do_not_wrap(void **s)
{
	(void)s;
	uint16_t p;
	assert_true(host_port(str_of("1"), &p) && p == 1);
	assert_true(host_port(str_of("65535"), &p) && p == 65535);
	static const char *const wrong[] = { "", "0", "00", "080", "65536", "99999", "443x", "x", "-1", "+1",
		" 1", "1 ", "4294967739", "18446744073709552059", "0x50", "4e2" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (host_port(str_of(wrong[i]), &p))
			fail_msg("%s", wrong[i]);
}

/* ---- patterns */

static enum host_match match(const char *pattern, const char *host, uint16_t port)
{
	struct host_pattern p;
	struct host h;
	const char *why;
	if (!host_pattern_parse(str_of(pattern), &p, &why))
		fail_msg("%s: %s", pattern, why);
	if (!host_canon(str_of(host), HOST_BARE, &h))
		fail_msg("%s", host);
	enum host_match m = host_pattern_match(&p, &h, port);
	host_pattern_free(&p);
	return m;
}

static void a_pattern_matches_a_host_or_a_domain_and_nothing_beside_it(void **s)
{
	(void)s;
	static const struct {
		const char *pattern, *host;
		uint16_t port;
		enum host_match want;
	} all[] = {
		{ "a.example", "a.example", 443, HOST_EXACT },
		{ "A.Example.", "a.example", 80, HOST_EXACT },
		{ "a.example", "b.a.example", 443, HOST_NO },
		{ "a.example", "example", 443, HOST_NO },
		{ "a.example", "xa.example", 443, HOST_NO },
		{ "a.example", "a.example.evil", 443, HOST_NO },
		{ ".a.example", "a.example", 443, HOST_SUFFIX },
		{ ".a.example", "x.y.a.example", 443, HOST_SUFFIX },
		{ ".a.example", "xa.example", 443, HOST_NO },
		{ ".a.example", "x-a.example", 443, HOST_NO },
		{ ".a.example", "example", 443, HOST_NO },
		{ "a.example", "a.example", 8080, HOST_OTHER_PORT },
		{ "a.example:8080", "a.example", 8080, HOST_EXACT },
		{ "a.example:8080", "a.example", 443, HOST_OTHER_PORT },
		{ ".a.example:22", "x.a.example", 22, HOST_SUFFIX },
		{ "93.184.216.34", "93.184.216.34", 443, HOST_EXACT },
		{ "93.184.216.34", "::ffff:93.184.216.34", 443, HOST_EXACT },
		{ "93.184.216.34", "93.184.216.35", 443, HOST_NO },
		{ "93.184.216.34:22", "93.184.216.34", 22, HOST_EXACT },
		{ "2606:4700::1111", "2606:4700:0:0::1111", 443, HOST_EXACT },
		{ "[2606:4700::1111]:22", "2606:4700::1111", 22, HOST_EXACT },
		{ "[2606:4700::1111]", "2606:4700::1111", 443, HOST_EXACT },
		{ ".a.example", "93.184.216.34", 443, HOST_NO },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (match(all[i].pattern, all[i].host, all[i].port) != all[i].want)
			fail_msg("%s on %s:%u", all[i].pattern, all[i].host, all[i].port);
}

static void a_pattern_that_could_mean_more_is_refused_with_a_reason(void **s)
{
	(void)s;
	static const char *const wrong[] = { "", "*", "*.a.example", "a.*", "**", ".", "..", "..a.example",
		".com", ".com.", ".1", ".34", ".1.2.3.4", "a.example/path", "a.example:0", "a.example:99999",
		"a.example:", "a.example:80:80", "http://a.example", "u@a.example", "a example",
		"b\xc3\xbc.example", "a.example?", "[a.example]", "[1.2.3.4]", "[::1", "127.1", "0x7f.1",
		":80", ".:80", "a.example,b.example", "-a.example", "\n", "1.2.3.0/24" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct host_pattern p;
		const char *why = NULL;
		if (host_pattern_parse(str_of(wrong[i]), &p, &why))
			fail_msg("%s", wrong[i]);
		assert_true(strlen(why) > 20);
	}
	struct host_pattern p;
	const char *why;
	assert_false(host_pattern_parse((struct str){ "a\0b.example", 11 }, &p, &why));
	static const char *const urls[] = { "http://a.b/", "https://a.example", "a.example/path", "a.b:80/" };
	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		assert_false(host_pattern_parse(str_of(urls[i]), &p, &why));
		assert_non_null(strstr(why, "no scheme and no path"));
	}
}

static void an_address_stands_alone_or_with_a_port(void **s)
{
	(void)s;
	static const struct {
		const char *text, *ip;
		int port; /* -1: refused */
	} all[] = { { "1.2.3.4", "1.2.3.4", 0 }, { "1.2.3.4:53", "1.2.3.4", 53 },
		{ "1.2.3.4:65535", "1.2.3.4", 65535 }, { "::1", "::1", 0 }, { "[::1]:8443", "::1", 8443 },
		{ "[::1]", "::1", 0 }, { "1.2.3.4:99999", "", -1 }, { "1.2.3.4:0", "", -1 },
		{ "1.2.3.4:", "", -1 }, { "", "", -1 }, { "[1.2.3.4]:53", "", -1 },
		{ "a.example:53", "", -1 }, { "1.2.3.4 ", "", -1 }, { "[::1]53", "", -1 },
		{ "1.2.3.4:53:53", "", -1 } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char text[ADDR_TEXT] = "";
		struct ip ip;
		uint16_t port;
		bool good = host_socket(str_of(all[i].text), &ip, &port);
		if (good)
			addr_fmt(&ip, text);
		if (good != (all[i].port >= 0) || strcmp(text, all[i].ip) != 0 ||
		    (good && port != all[i].port))
			fail_msg("%s: %s %u", all[i].text, text, port);
	}
}

/* ---- whatever comes */

static void mutate(uint64_t *seed, char *text, size_t *n, size_t size)
{
	static const char bytes[] = "abc019.-_:[]%@*/\\x \t\r\n\0\x80\xc3\xbc\xff";
	unsigned char r[4];
	chance_bytes(seed, r, sizeof r);
	size_t at = r[0] % (*n + 1);
	char c = bytes[r[1] % (sizeof bytes - 1)];
	if (r[2] % 3 == 0 && *n < size) {
		memmove(text + at + 1, text + at, *n - at);
		text[at] = c;
		++*n;
	} else if (r[2] % 3 == 1 && at < *n) {
		memmove(text + at, text + at + 1, *n - at - 1);
		--*n;
	} else if (at < *n) {
		text[at] = c;
	}
}

/* The canonical form is a host, canonical, matches what the host matched, and is made of the bytes of a name. */
static void a_canonical_host_stays_what_it_is(void **s)
{
	(void)s;
	uint64_t seed = 1;
	static const char *const seeds[] = { "API.Example.COM.", "a.b.c.example.com", "93.184.216.34",
		"2606:4700::1111", "xn--bcher-kva.example", "0x7f.1", "127.0.0.1", "::ffff:10.0.0.1" };
	struct host_pattern exact, suffix;
	const char *why;
	assert_true(host_pattern_parse(str_of("api.example.com"), &exact, &why));
	assert_true(host_pattern_parse(str_of(".example.com"), &suffix, &why));
	for (int i = 0; i < 200000; i++) {
		char text[80];
		size_t n = strlen(seeds[i % 8]);
		memcpy(text, seeds[i % 8], n);
		for (int k = 0; k < i % 5; k++)
			mutate(&seed, text, &n, sizeof text);
		struct host h, again;
		if (!host_canon((struct str){ text, n }, HOST_BARE, &h))
			continue;
		assert_int_equal(strlen(h.name), h.n);
		assert_true(h.literal || strspn(h.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == h.n);
		assert_true(host_canon((struct str){ h.name, h.n }, HOST_BARE, &again));
		assert_string_equal(h.name, again.name);
		assert_true(host_equal(&h, &again));
		assert_int_equal(
		    host_pattern_match(&exact, &h, 443), host_pattern_match(&exact, &again, 443));
		assert_int_equal(host_pattern_match(&exact, &h, 443) == HOST_EXACT,
		    strcmp(h.name, "api.example.com") == 0);
		bool below = h.n >= 12 && strcmp(h.name + h.n - 12, ".example.com") == 0;
		assert_int_equal(host_pattern_match(&suffix, &h, 443) == HOST_SUFFIX,
		    below || strcmp(h.name, "example.com") == 0);
	}
	host_pattern_free(&exact);
	host_pattern_free(&suffix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_has_one_form),
		cmocka_unit_test(lengths_are_those_of_the_domain_name_system),
		cmocka_unit_test(ports_are_decimal_and_do_not_wrap),
		cmocka_unit_test(a_pattern_matches_a_host_or_a_domain_and_nothing_beside_it),
		cmocka_unit_test(a_pattern_that_could_mean_more_is_refused_with_a_reason),
		cmocka_unit_test(an_address_stands_alone_or_with_a_port),
		cmocka_unit_test(a_canonical_host_stays_what_it_is),
	};
	return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
