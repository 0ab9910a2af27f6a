#include "base/addr.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct block {
	const char *text;
	uint64_t hi, lo;
	uint8_t bits;
	enum addr_class class;
};

#define V4(a, b, c, d, n, cl)                                                                                \
	{                                                                                                    \
#a "." #b "." #c "." #d "/" #n, 0,                                                           \
		    0xffff00000000ULL | (uint64_t)(a) << 24 | (b) << 16 | (c) << 8 | (d), 96 + (n), cl       \
	}
#define V6(text, g0, g1, g2, g3, lo, n, cl)                                                                  \
	{                                                                                                    \
		text, (uint64_t)(g0) << 48 | (uint64_t)(g1) << 32 | (uint64_t)(g2) << 16 | (g3), lo, n, cl   \
	}

/*
 * The IANA IPv4 and IPv6 Special-Purpose Address Registries (IPv4 as of 2021-02-04, IPv6 as of 2024-10-22 and 100:0:0:1::/64 of
 * 2025-04), and after them what has registries of its own or was given back. All of it is refused, whatever the registry's
 * column "Globally Reachable" says: nothing in it is somebody's public host. The first block that holds an address is its block,
 * so narrow ones stand before wide ones.
 */
static const struct block blocks4[] = {
	V4(0, 0, 0, 0, 32, ADDR_UNSPECIFIED), V4(0, 0, 0, 0, 8, ADDR_THIS_NETWORK),
	V4(10, 0, 0, 0, 8, ADDR_PRIVATE), V4(100, 64, 0, 0, 10, ADDR_CGNAT),
	V4(127, 0, 0, 0, 8, ADDR_LOOPBACK), V4(169, 254, 0, 0, 16, ADDR_LINK_LOCAL),
	V4(172, 16, 0, 0, 12, ADDR_PRIVATE), V4(192, 0, 0, 0, 29, ADDR_IETF_PROTOCOL),
	V4(192, 0, 0, 8, 32, ADDR_DUMMY), V4(192, 0, 0, 9, 32, ADDR_IETF_PROTOCOL),
	V4(192, 0, 0, 10, 32, ADDR_IETF_PROTOCOL), V4(192, 0, 0, 170, 32, ADDR_IETF_PROTOCOL),
	V4(192, 0, 0, 171, 32, ADDR_IETF_PROTOCOL), V4(192, 0, 0, 0, 24, ADDR_IETF_PROTOCOL),
	V4(192, 0, 2, 0, 24, ADDR_DOCUMENTATION), V4(192, 31, 196, 0, 24, ADDR_AS112),
	V4(192, 52, 193, 0, 24, ADDR_AMT), V4(192, 88, 99, 0, 24, ADDR_RELAY_6TO4),
	V4(192, 168, 0, 0, 16, ADDR_PRIVATE), V4(192, 175, 48, 0, 24, ADDR_AS112),
	V4(198, 18, 0, 0, 15, ADDR_BENCHMARKING), V4(198, 51, 100, 0, 24, ADDR_DOCUMENTATION),
	V4(203, 0, 113, 0, 24, ADDR_DOCUMENTATION), V4(255, 255, 255, 255, 32, ADDR_BROADCAST),
	V4(240, 0, 0, 0, 4, ADDR_RESERVED),
	/* not in that registry */
	V4(224, 0, 0, 0, 4, ADDR_MULTICAST),
	V4(168, 63, 129, 16, 32, ADDR_METADATA), /* Azure's platform, in public space */
};
static const struct block blocks6[] = {
	V6("::1/128", 0, 0, 0, 0, 1, 128, ADDR_LOOPBACK), V6("::/128", 0, 0, 0, 0, 0, 128, ADDR_UNSPECIFIED),
	V6("::ffff:0:0/96", 0, 0, 0, 0, 0xffff00000000, 96, ADDR_PUBLIC), /* the IPv4 in it decides */
	V6("64:ff9b::/96", 0x64, 0xff9b, 0, 0, 0, 96, ADDR_NAT64),
	V6("64:ff9b:1::/48", 0x64, 0xff9b, 1, 0, 0, 48, ADDR_NAT64_LOCAL),
	V6("100::/64", 0x100, 0, 0, 0, 0, 64, ADDR_DISCARD),
	V6("100:0:0:1::/64", 0x100, 0, 0, 1, 0, 64, ADDR_DUMMY),
	V6("2001::/32", 0x2001, 0, 0, 0, 0, 32, ADDR_TEREDO),
	V6("2001:1::1/128", 0x2001, 1, 0, 0, 1, 128, ADDR_IETF_PROTOCOL),
	V6("2001:1::2/128", 0x2001, 1, 0, 0, 2, 128, ADDR_IETF_PROTOCOL),
	V6("2001:1::3/128", 0x2001, 1, 0, 0, 3, 128, ADDR_IETF_PROTOCOL),
	V6("2001:2::/48", 0x2001, 2, 0, 0, 0, 48, ADDR_BENCHMARKING),
	V6("2001:3::/32", 0x2001, 3, 0, 0, 0, 32, ADDR_AMT),
	V6("2001:4:112::/48", 0x2001, 4, 0x112, 0, 0, 48, ADDR_AS112),
	V6("2001:10::/28", 0x2001, 0x10, 0, 0, 0, 28, ADDR_ORCHID),
	V6("2001:20::/28", 0x2001, 0x20, 0, 0, 0, 28, ADDR_ORCHID),
	V6("2001:30::/28", 0x2001, 0x30, 0, 0, 0, 28, ADDR_DET),
	V6("2001::/23", 0x2001, 0, 0, 0, 0, 23, ADDR_IETF_PROTOCOL),
	V6("2001:db8::/32", 0x2001, 0xdb8, 0, 0, 0, 32, ADDR_DOCUMENTATION),
	V6("2002::/16", 0x2002, 0, 0, 0, 0, 16, ADDR_6TO4),
	V6("2620:4f:8000::/48", 0x2620, 0x4f, 0x8000, 0, 0, 48, ADDR_AS112),
	V6("3fff::/20", 0x3fff, 0, 0, 0, 0, 20, ADDR_DOCUMENTATION),
	V6("5f00::/16", 0x5f00, 0, 0, 0, 0, 16, ADDR_SRV6),
	V6("fc00::/7", 0xfc00, 0, 0, 0, 0, 7, ADDR_UNIQUE_LOCAL),
	V6("fe80::/10", 0xfe80, 0, 0, 0, 0, 10, ADDR_LINK_LOCAL),
	/* not in that registry */
	V6("ff00::/8", 0xff00, 0, 0, 0, 0, 8, ADDR_MULTICAST),
	V6("fec0::/10", 0xfec0, 0, 0, 0, 0, 10, ADDR_SITE_LOCAL),                      /* RFC 3879 */
	V6("::/96", 0, 0, 0, 0, 0, 96, ADDR_V4_COMPAT),                                /* RFC 4291 2.5.5.1 */
	V6("::ffff:0:0:0/96", 0, 0, 0, 0, 0xffff000000000000, 96, ADDR_V4_TRANSLATED), /* RFC 2765 */
	V6("200::/7", 0x200, 0, 0, 0, 0, 7, ADDR_UNASSIGNED),                          /* RFC 4048 */
	V6("3ffe::/16", 0x3ffe, 0, 0, 0, 0, 16, ADDR_UNASSIGNED),                      /* RFC 3701 */
};
/* Services of clouds for their own machines, in blocks that are refused anyway: they are never opened inward (EGR-4). */
static const struct block metadata[] = {
	V4(169, 254, 169, 254, 32, ADDR_METADATA), /* nearly everybody's */
	V4(169, 254, 170, 2, 32, ADDR_METADATA),   /* ECS */
	V4(169, 254, 170, 23, 32, ADDR_METADATA),  /* EKS */
	V4(169, 254, 169, 253, 32, ADDR_METADATA), /* AWS: DNS */
	V4(169, 254, 169, 123, 32, ADDR_METADATA), /* AWS: time */
	V4(169, 254, 42, 42, 32, ADDR_METADATA),   /* Scaleway */
	V4(169, 254, 0, 23, 32, ADDR_METADATA),    /* Tencent */
	V4(100, 100, 100, 200, 32, ADDR_METADATA), /* Alibaba */
	V4(192, 0, 0, 192, 32, ADDR_METADATA),     /* Oracle */
	V6("fd00:ec2::254/128", 0xfd00, 0xec2, 0, 0, 0x254, 128, ADDR_METADATA),
	V6("fd00:ec2::253/128", 0xfd00, 0xec2, 0, 0, 0x253, 128, ADDR_METADATA),
	V6("fd00:ec2::123/128", 0xfd00, 0xec2, 0, 0, 0x123, 128, ADDR_METADATA),
	V6("fd00:ec2::23/128", 0xfd00, 0xec2, 0, 0, 0x23, 128, ADDR_METADATA),
	V6("fd20:ce::254/128", 0xfd20, 0xce, 0, 0, 0x254, 128, ADDR_METADATA),
	V6("fd00:42::42/128", 0xfd00, 0x42, 0, 0, 0x42, 128, ADDR_METADATA),
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static uint64_t be64(const uint8_t *p)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

static const struct block *find(const struct block *blocks, size_t n, const struct ip *a)
{
	uint64_t hi = be64(a->b), lo = be64(a->b + 8);
	for (size_t i = 0; i < n; i++) {
		const struct block *k = &blocks[i];
		uint64_t hi_mask = k->bits >= 64 ? ~0ULL : ~(~0ULL >> k->bits);
		uint64_t lo_mask = k->bits <= 64 ? 0 : k->bits == 128 ? ~0ULL : ~(~0ULL >> (k->bits - 64));
		if (((hi ^ k->hi) & hi_mask) == 0 && ((lo ^ k->lo) & lo_mask) == 0)
			return k;
	}
	return NULL;
}

bool addr_is4(const struct ip *a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	return memcmp(a->b, mapped, sizeof mapped) == 0;
}

bool addr_equal(const struct ip *a, const struct ip *b)
{
	return memcmp(a->b, b->b, sizeof a->b) == 0;
}

static struct ip from4(const uint8_t v4[4])
{
	struct ip a = { .b = { [10] = 0xff, [11] = 0xff }, .v4 = true };
	memcpy(a.b + 12, v4, 4);
	return a;
}

/* RFC 5214 6.1: the interface identifier holds an IPv4 address, after 00-00-5E-FE or 02-00-5E-FE. */
static bool isatap(const struct ip *a)
{
	return (a->b[8] & 0xfd) == 0 && a->b[9] == 0 && a->b[10] == 0x5e && a->b[11] == 0xfe;
}

bool addr_embedded(const struct ip *a, struct ip *v4)
{
	const struct block *k = find(blocks6, COUNT(blocks6), a);
	uint8_t inverted[4];
	switch (k == NULL ? ADDR_PUBLIC : k->class) {
	case ADDR_6TO4:
		*v4 = from4(a->b + 2);
		return true;
	case ADDR_TEREDO:
		for (int i = 0; i < 4; i++)
			inverted[i] = (uint8_t)~a->b[12 + i];
		*v4 = from4(inverted);
		return true;
	case ADDR_NAT64:
	case ADDR_V4_COMPAT:
	case ADDR_V4_TRANSLATED:
		*v4 = from4(a->b + 12);
		return true;
	default:
		*v4 = from4(a->b + 12);
		return addr_is4(a) || isatap(a);
	}
}

static enum addr_class class4(const struct ip *a)
{
	const struct block *k = find(metadata, COUNT(metadata), a);
	if (k == NULL)
		k = find(blocks4, COUNT(blocks4), a);
	return k == NULL ? ADDR_PUBLIC : k->class;
}

enum addr_class addr_class(const struct ip *a)
{
	if (addr_is4(a))
		return class4(a);
	if (find(metadata, COUNT(metadata), a) != NULL)
		return ADDR_METADATA;
	const struct block *k = find(blocks6, COUNT(blocks6), a);
	if (k != NULL)
		return k->class;
	if (a->b[0] >> 5 != 1) /* 2000::/3 is all that was ever given out */
		return ADDR_UNASSIGNED;
	struct ip v4;
	return isatap(a) && addr_embedded(a, &v4) ? class4(&v4) : ADDR_PUBLIC;
}

const char *addr_block(const struct ip *a)
{
	const struct block *k = a->v4 ? find(blocks4, COUNT(blocks4), a) : find(blocks6, COUNT(blocks6), a);
	return k == NULL ? NULL : k->text;
}

bool addr_public(const struct ip *a, bool nat64)
{
	enum addr_class class = addr_class(a);
	struct ip v4;
	if (class == ADDR_NAT64 && nat64 && addr_embedded(a, &v4))
		class = class4(&v4);
	return class == ADDR_PUBLIC;
}

const char *addr_class_name(enum addr_class class)
{
	static const char *const names[ADDR_CLASSES_] = {
		[ADDR_PUBLIC] = "public",
		[ADDR_UNSPECIFIED] = "unspecified",
		[ADDR_THIS_NETWORK] = "this_network",
		[ADDR_PRIVATE] = "private",
		[ADDR_CGNAT] = "cgnat",
		[ADDR_LOOPBACK] = "loopback",
		[ADDR_LINK_LOCAL] = "link_local",
		[ADDR_METADATA] = "metadata",
		[ADDR_IETF_PROTOCOL] = "ietf_protocol",
		[ADDR_DOCUMENTATION] = "documentation",
		[ADDR_AS112] = "as112",
		[ADDR_AMT] = "amt",
		[ADDR_RELAY_6TO4] = "relay_6to4",
		[ADDR_BENCHMARKING] = "benchmarking",
		[ADDR_MULTICAST] = "multicast",
		[ADDR_RESERVED] = "reserved",
		[ADDR_BROADCAST] = "broadcast",
		[ADDR_UNIQUE_LOCAL] = "unique_local",
		[ADDR_SITE_LOCAL] = "site_local",
		[ADDR_V4_COMPAT] = "v4_compat",
		[ADDR_V4_TRANSLATED] = "v4_translated",
		[ADDR_NAT64] = "nat64",
		[ADDR_NAT64_LOCAL] = "nat64_local",
		[ADDR_6TO4] = "6to4",
		[ADDR_TEREDO] = "teredo",
		[ADDR_DISCARD] = "discard",
		[ADDR_DUMMY] = "dummy",
		[ADDR_ORCHID] = "orchid",
		[ADDR_DET] = "det",
		[ADDR_SRV6] = "srv6",
		[ADDR_UNASSIGNED] = "unassigned",
	};
	return names[class];
}

/* ---- text */

bool addr_parse4(struct str text, struct ip *out)
{
	uint8_t v4[4] = { 0 };
	size_t at = 0;
	for (int part = 0; part < 4; part++) {
		size_t begin = at;
		unsigned v = 0;
		for (; at < text.n && at - begin < 3 && text.p[at] >= '0' && text.p[at] <= '9'; at++)
			v = v * 10 + (unsigned)(text.p[at] - '0');
		if (at == begin || v > 255 || (text.p[begin] == '0' && at - begin > 1))
			return false;
		v4[part] = (uint8_t)v;
		if (part < 3 && (at == text.n || text.p[at++] != '.'))
			return false;
	}
	*out = from4(v4);
	return at == text.n;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0'
	    : c >= 'a' && c <= 'f'  ? c - 'a' + 10
	    : c >= 'A' && c <= 'F'  ? c - 'A' + 10
				    : -1;
}

/* One group of 1-4 hex digits at the front of *s. */
static bool group(struct str *s, uint8_t out[2])
{
	unsigned v = 0;
	size_t n = 0;
	for (; n < s->n && n < 4 && hex_digit(s->p[n]) >= 0; n++)
		v = v << 4 | (unsigned)hex_digit(s->p[n]);
	out[0] = (uint8_t)(v >> 8);
	out[1] = (uint8_t)v;
	s->p += n;
	s->n -= n;
	return n > 0;
}

static bool skip(struct str *s, const char *what)
{
	size_t n = strlen(what);
	if (s->n < n || memcmp(s->p, what, n) != 0)
		return false;
	s->p += n;
	s->n -= n;
	return true;
}

bool addr_parse6(struct str text, struct ip *out)
{
	uint8_t b[16] = { 0 };
	size_t n = 0, gap = 0; /* gap: where "::" stands */
	bool has_gap = skip(&text, "::");
	while (text.n > 0) {
		struct ip v4;
		if (n <= 12 && addr_parse4(text, &v4)) {
			memcpy(b + n, v4.b + 12, 4);
			n += 4;
			text.n = 0;
			break;
		}
		if (n > 14 || !group(&text, b + n))
			return false;
		n += 2;
		if (text.n == 0)
			break;
		if (!has_gap && skip(&text, "::")) {
			has_gap = true;
			gap = n;
		} else if (!skip(&text, ":") || text.n == 0) {
			return false;
		}
	}
	if (has_gap ? n > 14 : n != sizeof b)
		return false;
	*out = (struct ip){ .v4 = false };
	size_t before = has_gap ? gap : n;
	memcpy(out->b, b, before);
	memcpy(out->b + sizeof b - (n - before), b + before, n - before);
	return true;
}

bool addr_parse(struct str text, struct ip *out)
{
	return addr_parse4(text, out) || addr_parse6(text, out);
}

void addr_fmt(const struct ip *a, char out[ADDR_TEXT])
{
	if (addr_is4(a)) {
		for (int i = 12; i < 16; i++) {
			out += str_num(a->b[i], out);
			*out++ = i < 15 ? '.' : 0;
		}
		return;
	}
	unsigned g[8];
	int best = -1,
	    best_n = 1; /* RFC 5952 4.2: the longest run of at least two zero groups, the first of equals */
	for (int i = 0, run = 0; i < 8; i++) {
		g[i] = (unsigned)a->b[2 * i] << 8 | a->b[2 * i + 1];
		run = g[i] == 0 ? run + 1 : 0;
		if (run > best_n) {
			best_n = run;
			best = i - run + 1;
		}
	}
	char *p = out;
	for (int i = 0; i < 8; i++) {
		if (i == best) {
			*p++ = ':';
			*p++ = ':';
			i += best_n - 1;
			continue;
		}
		if (p != out && p[-1] != ':')
			*p++ = ':';
		p += snprintf(p, 5, "%x", g[i]);
	}
	*p = 0;
}

/* ---- the kernel's form */

bool addr_from_sockaddr(const struct sockaddr *sa, struct ip *out)
{
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, sa, sizeof in);
		uint8_t v4[4];
		memcpy(v4, &in.sin_addr, 4);
		*out = from4(v4);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	struct sockaddr_in6 in6;
	memcpy(&in6, sa, sizeof in6);
	*out = (struct ip){ .v4 = false };
	memcpy(out->b, &in6.sin6_addr, sizeof out->b);
	return true;
}

socklen_t addr_to_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof *out);
	if (addr_is4(a)) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&in.sin_addr, a->b + 12, 4);
		memcpy(out, &in, sizeof in);
		return sizeof in;
	}
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	memcpy(&in6.sin6_addr, a->b, sizeof a->b);
	memcpy(out, &in6, sizeof in6);
	return sizeof in6;
}
