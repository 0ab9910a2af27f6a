/* EGR-3: addresses, as numbers. The rows are in tests/cases/egress/addresses.csv. */
#include "../t.h"

#include <arpa/inet.h>
#include <string.h>

#include "../chance.h"
#include "../csv.h"
#include "base/addr.h"

static struct ip ip_of(const char *text)
{
	struct ip ip;
	if (!addr_parse(str_of(text), &ip))
		fail_msg("%s is not an address", text);
	return ip;
}

static void every_row_of_addresses_is_judged_as_it_says(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/addresses.csv");
	int n = 0;
	for (; csv_next(&c); n++) {
		const char *id = csv_get(&c, "id");
		struct ip a = ip_of(csv_get(&c, "address")), v4;
		const char *block = addr_block(&a), *nat64 = csv_get(&c, "verdict_with_nat64_option");
		if (addr_public(&a, false) != (strcmp(csv_get(&c, "verdict"), "allow") == 0))
			fail_msg("%s: verdict", id);
		if (nat64[0] != 0 && addr_public(&a, true) != (strcmp(nat64, "allow") == 0))
			fail_msg("%s: verdict with NAT64", id);
		if (strcmp(addr_class_name(addr_class(&a)), csv_get(&c, "class")) != 0)
			fail_msg("%s: class %s", id, addr_class_name(addr_class(&a)));
		if (strcmp(block == NULL ? "-" : block, csv_get(&c, "iana_block")) != 0)
			fail_msg("%s: block %s", id, block == NULL ? "-" : block);
		const char *inside = csv_get(&c, "embedded_v4");
		if (inside[0] == 0)
			continue;
		struct ip want = ip_of(inside);
		if (!addr_embedded(&a, &v4) || !addr_equal(&v4, &want) ||
		    strcmp(addr_class_name(addr_class(&v4)), csv_get(&c, "embedded_class")) != 0)
			fail_msg("%s: the IPv4 in it", id);
	}
	csv_close(&c);
	assert_int_equal(n, 195);
}

/* Both registries as IANA lists them, and what is refused besides, written a second time: text and class. */
static const struct {
	const char *block, *class;
} registry[] = {
	{ "0.0.0.0/8", "this_network" },
	{ "0.0.0.0/32", "unspecified" },
	{ "10.0.0.0/8", "private" },
	{ "100.64.0.0/10", "cgnat" },
	{ "127.0.0.0/8", "loopback" },
	{ "169.254.0.0/16", "link_local" },
	{ "172.16.0.0/12", "private" },
	{ "192.0.0.0/24", "ietf_protocol" },
	{ "192.0.0.0/29", "ietf_protocol" },
	{ "192.0.0.8/32", "dummy" },
	{ "192.0.0.9/32", "ietf_protocol" },
	{ "192.0.0.10/32", "ietf_protocol" },
	{ "192.0.0.170/32", "ietf_protocol" },
	{ "192.0.0.171/32", "ietf_protocol" },
	{ "192.0.2.0/24", "documentation" },
	{ "192.31.196.0/24", "as112" },
	{ "192.52.193.0/24", "amt" },
	{ "192.88.99.0/24", "relay_6to4" },
	{ "192.168.0.0/16", "private" },
	{ "192.175.48.0/24", "as112" },
	{ "198.18.0.0/15", "benchmarking" },
	{ "198.51.100.0/24", "documentation" },
	{ "203.0.113.0/24", "documentation" },
	{ "240.0.0.0/4", "reserved" },
	{ "255.255.255.255/32", "broadcast" },
	{ "224.0.0.0/4", "multicast" },
	{ "168.63.129.16/32", "metadata" },
	{ "::1/128", "loopback" },
	{ "::/128", "unspecified" },
	{ "::ffff:0:0/96", NULL }, /* has the class of the IPv4 in it */
	{ "64:ff9b::/96", "nat64" },
	{ "64:ff9b:1::/48", "nat64_local" },
	{ "100::/64", "discard" },
	{ "100:0:0:1::/64", "dummy" },
	{ "2001::/23", "ietf_protocol" },
	{ "2001::/32", "teredo" },
	{ "2001:1::1/128", "ietf_protocol" },
	{ "2001:1::2/128", "ietf_protocol" },
	{ "2001:1::3/128", "ietf_protocol" },
	{ "2001:2::/48", "benchmarking" },
	{ "2001:3::/32", "amt" },
	{ "2001:4:112::/48", "as112" },
	{ "2001:10::/28", "orchid" },
	{ "2001:20::/28", "orchid" },
	{ "2001:30::/28", "det" },
	{ "2001:db8::/32", "documentation" },
	{ "2002::/16", "6to4" },
	{ "2620:4f:8000::/48", "as112" },
	{ "3fff::/20", "documentation" },
	{ "5f00::/16", "srv6" },
	{ "fc00::/7", "unique_local" },
	{ "fe80::/10", "link_local" },
	{ "fec0::/10", "site_local" },
	{ "ff00::/8", "multicast" },
	{ "::/96", "v4_compat" },
	{ "::ffff:0:0:0/96", "v4_translated" },
	{ "200::/7", "unassigned" },
	{ "3ffe::/16", "unassigned" },
};
enum { N_REGISTRY = sizeof registry / sizeof registry[0] };

/* First and last address of a block; an IPv4 one is /96 longer. */
static void edges(const char *block, struct ip *first, struct ip *last, int *bits)
{
	const char *slash = strchr(block, '/');
	assert_true(addr_parse((struct str){ block, (size_t)(slash - block) }, first));
	long long n;
	assert_true(str_int(slash + 1, 0, 128, &n));
	*bits = (int)n + (first->v4 ? 96 : 0);
	*last = *first;
	for (int i = *bits; i < 128; i++)
		last->b[i / 8] |= (uint8_t)(0x80 >> i % 8);
}

static bool step(struct ip *a, int by)
{
	for (int i = 15; i >= 0; i--) {
		a->b[i] = (uint8_t)(a->b[i] + by);
		if (a->b[i] != (by > 0 ? 0 : 0xff))
			return true;
	}
	return false; /* went around */
}

/* The narrowest block of the list that holds a, among those of its family. */
static int block_of(const struct ip *a)
{
	int best = -1, best_bits = -1;
	for (int i = 0; i < N_REGISTRY; i++) {
		struct ip first, last;
		int bits;
		edges(registry[i].block, &first, &last, &bits);
		if (first.v4 == a->v4 && bits > best_bits && memcmp(a->b, first.b, 16) >= 0 &&
		    memcmp(a->b, last.b, 16) <= 0) {
			best = i;
			best_bits = bits;
		}
	}
	return best;
}

static bool is_service(const struct ip *a)
{
	return addr_class(a) == ADDR_METADATA;
}

static void judged_by_its_own_block(struct ip a)
{
	char text[ADDR_TEXT];
	if (a.v4 && !addr_is4(&a))
		return; /* stepped out of IPv4 */
	addr_fmt(&a, text);
	int k = block_of(&a);
	const char *block = addr_block(&a), *class = addr_class_name(addr_class(&a));
	if (k < 0) {
		bool given_out = a.v4 || a.b[0] >> 5 == 1;
		if (block != NULL || strcmp(class, given_out ? "public" : "unassigned") != 0)
			fail_msg("%s: %s of %s", text, class, block == NULL ? "no block" : block);
		return;
	}
	if (block == NULL || strcmp(block, registry[k].block) != 0)
		fail_msg("%s: block %s", text, block == NULL ? "-" : block);
	if (registry[k].class != NULL && strcmp(class, registry[k].class) != 0 && !is_service(&a))
		fail_msg("%s: class %s", text, class);
	if (registry[k].class != NULL && (addr_public(&a, false) || addr_public(&a, true)) && a.b[1] != 0x64)
		fail_msg("%s may be connected to", text);
}

/* fault 47, fault 48 */
static void every_block_begins_and_ends_where_the_registry_says(void **s)
{
	(void)s;
	for (int i = 0; i < N_REGISTRY; i++) {
		struct ip first, last;
		int bits;
		edges(registry[i].block, &first, &last, &bits);
		judged_by_its_own_block(first);
		judged_by_its_own_block(last);
		if (step(&first, -1))
			judged_by_its_own_block(first);
		if (step(&last, 1))
			judged_by_its_own_block(last);
	}
}

/* Any number at all: the same as the list says. Half of them are made to lie in or beside a block. */
static void any_address_is_judged_by_its_narrowest_block(void **s)
{
	(void)s;
	uint64_t seed = 1;
	for (int i = 0; i < 20000; i++) {
		struct ip a = { .v4 = false };
		chance_bytes(&seed, a.b, sizeof a.b);
		if (i % 2 == 0) {
			struct ip first, last;
			int bits, k = i / 2 % N_REGISTRY;
			edges(registry[k].block, &first, &last, &bits);
			a.v4 = first.v4;
			for (int bit = 0; bit < bits - i % 3; bit++) {
				uint8_t mask = (uint8_t)(0x80 >> bit % 8);
				a.b[bit / 8] = (uint8_t)((a.b[bit / 8] & ~mask) | (first.b[bit / 8] & mask));
			}
		}
		if (!a.v4 && (a.b[10] == 0x5e || a.b[9] == 0))
			a.b[9] = 1; /* ISATAP has a test of its own */
		judged_by_its_own_block(a);
	}
}

static void an_ipv4_inside_is_found_in_every_form(void **s)
{
	(void)s;
	static const struct {
		const char *form;
		int at;
		bool inverted;
	} forms[] = { { "::ffff:0:0", 12, false }, { "::", 12, false }, { "::ffff:0:0:0", 12, false },
		{ "64:ff9b::", 12, false }, { "2002::", 2, false }, { "2001::", 12, true },
		{ "2606:4700::5efe:0:0", 12, false }, { "2606:4700::200:5efe:0:0", 12, false } };
	static const char *const inside[] = { "127.0.0.1", "10.0.0.1", "169.254.169.254", "168.63.129.16",
		"8.8.8.8", "192.168.1.1", "100.64.0.1", "224.0.0.1" };
	for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
		for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
			struct ip a = ip_of(forms[f].form), v4 = ip_of(inside[i]), got;
			for (int k = 0; k < 4; k++)
				a.b[forms[f].at + k] = (uint8_t)(v4.b[12 + k] ^
				    (forms[f].inverted ? 0xff : 0));
			assert_true(addr_embedded(&a, &got));
			assert_true(addr_equal(&got, &v4));
			/* NAT64 only by setting, the others as what they carry or not at all */
			bool public = strcmp(inside[i], "8.8.8.8") == 0;
			if (addr_public(&a, true) && !public)
				fail_msg("%s carrying %s", forms[f].form, inside[i]);
		}
	struct ip none;
	const struct ip plain = ip_of("2606:4700::1111");
	assert_false(addr_embedded(&plain, &none));
	const struct ip isatap = ip_of("2606:4700::5efe:808:808"), nat64 = ip_of("64:ff9b::808:808");
	assert_true(addr_public(&isatap, false));
	assert_true(addr_public(&nat64, true));
	assert_false(addr_public(&nat64, false));
}

/* ---- text */

static void only_the_strict_dotted_quad_is_ipv4(void **s)
{
	(void)s;
	static const char *const wrong[] = { "", ".", "1", "127.1", "127.0.1", "1.2.3", "1.2.3.4.5",
		"1.2.3.4.", ".1.2.3.4", "1..2.3", "01.2.3.4", "1.2.3.04", "0x7f.0.0.1", "1.2.3.256",
		"1.2.3.1000", "1.2.3.-4", "1.2.3.+4", " 1.2.3.4", "1.2.3.4 ", "1.2.3.4/8", "1,2,3,4",
		"0177.0.0.1", "2130706433", "1.2.3.4%eth0", "00.0.0.0" };
	struct ip ip;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (addr_parse4(str_of(wrong[i]), &ip))
			fail_msg("%s", wrong[i]);
	assert_true(addr_parse4(str_of("0.0.0.0"), &ip));
	assert_true(addr_parse4(str_of("255.255.255.255"), &ip));
	assert_false(addr_parse4((struct str){ "1.2.3.4", 6 }, &ip));
	assert_false(addr_parse4((struct str){ "1.2.3.4\0", 8 }, &ip));
}

/* The system's reader is the judge of what is an address and which; it knows no zone either. */
static void texts_are_read_as_the_system_reads_them(void **s)
{
	(void)s;
	static const char alphabet[] = "0123456789abcdefABCDEF:::::...%g[]/ ";
	uint64_t seed = 1;
	for (int i = 0; i < 200000; i++) {
		unsigned char r[40];
		char text[ADDR_TEXT];
		struct ip a = { .v4 = false }, b;
		chance_bytes(&seed, r, sizeof r);
		memcpy(a.b, r, 16);
		for (int k = 0; k < 16; k++)
			a.b[k] = (r[16] >> k % 8 & 1) != 0 ? 0 : a.b[k];
		addr_fmt(&a, text);
		size_t n = strlen(text);
		for (int k = 0; k < (i % 4) && n > 0; k++) /* none to three changes */
			text[r[20 + k] % n] = alphabet[r[30 + k] % (sizeof alphabet - 1)];
		unsigned char want6[16], want4[4];
		bool ours6 = addr_parse6(str_of(text), &b), theirs6 = inet_pton(AF_INET6, text, want6) == 1;
		if (ours6 != theirs6 || (ours6 && memcmp(b.b, want6, 16) != 0))
			fail_msg("%s: IPv6 %d, the system says %d", text, ours6, theirs6);
		bool ours4 = addr_parse4(str_of(text), &b), theirs4 = inet_pton(AF_INET, text, want4) == 1;
		if (ours4 != theirs4 || (ours4 && memcmp(b.b + 12, want4, 4) != 0))
			fail_msg("%s: IPv4 %d, the system says %d", text, ours4, theirs4);
	}
}

static void an_address_has_one_text_and_the_text_is_that_address(void **s)
{
	(void)s;
	static const struct {
		const char *in, *out;
	} rfc5952[] = { { "2001:0db8::0001", "2001:db8::1" }, { "2001:db8:0:0:0:0:2:1", "2001:db8::2:1" },
		{ "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1" }, { "2001:0:0:1:0:0:0:1", "2001:0:0:1::1" },
		{ "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1" }, { "2001:DB8::A", "2001:db8::a" },
		{ "0:0:0:0:0:0:0:0", "::" }, { "0:0:0:0:0:0:0:1", "::1" }, { "1:0:0:0:0:0:0:0", "1::" },
		{ "::ffff:8.8.8.8", "8.8.8.8" }, { "::127.0.0.1", "::7f00:1" },
		{ "64:ff9b::127.0.0.1", "64:ff9b::7f00:1" }, { "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0" },
		{ "::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8" } };
	char text[ADDR_TEXT];
	for (size_t i = 0; i < sizeof rfc5952 / sizeof rfc5952[0]; i++) {
		struct ip a = ip_of(rfc5952[i].in);
		addr_fmt(&a, text);
		assert_string_equal(text, rfc5952[i].out);
	}
	uint64_t seed = 1;
	for (int i = 0; i < 100000; i++) {
		struct ip a = { .v4 = false };
		uint8_t zero;
		chance_bytes(&seed, a.b, sizeof a.b);
		chance_bytes(&seed, &zero, 1);
		for (int k = 0; k < 16; k++)
			a.b[k] = (zero >> k / 2 & 1) != 0 ? 0 : a.b[k];
		addr_fmt(&a, text);
		struct ip b = ip_of(text);
		assert_true(addr_equal(&a, &b));
	}
}

static void the_kernels_form_is_the_same_address(void **s)
{
	(void)s;
	static const char *const all[] = { "1.2.3.4", "::ffff:1.2.3.4", "2001:db8::1" };
	for (size_t i = 0; i < 3; i++) {
		struct ip a = ip_of(all[i]), b;
		struct sockaddr_storage ss;
		socklen_t n = addr_to_sockaddr(&a, 443, &ss);
		assert_int_equal(ss.ss_family, addr_is4(&a) ? AF_INET : AF_INET6);
		assert_int_equal(n, addr_is4(&a) ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
		assert_true(addr_from_sockaddr((const struct sockaddr *)&ss, &b));
		assert_true(addr_equal(&a, &b));
	}
	struct ip none;
	assert_false(addr_from_sockaddr(&(struct sockaddr){ .sa_family = AF_UNIX }, &none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_addresses_is_judged_as_it_says),
		cmocka_unit_test(every_block_begins_and_ends_where_the_registry_says),
		cmocka_unit_test(any_address_is_judged_by_its_narrowest_block),
		cmocka_unit_test(an_ipv4_inside_is_found_in_every_form),
		cmocka_unit_test(only_the_strict_dotted_quad_is_ipv4),
		cmocka_unit_test(texts_are_read_as_the_system_reads_them),
		cmocka_unit_test(an_address_has_one_text_and_the_text_is_that_address),
		cmocka_unit_test(the_kernels_form_is_the_same_address),
	};
	return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
