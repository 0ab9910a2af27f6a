/*
 * addr.h - IP addresses as numbers: parsing, canonical text, and the class that decides whether a connection may go there
 * (EGR-3). The blocks of both IANA special-purpose registries are one table in addr.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/str.h"

/* An IPv4 address is held as ::ffff:a.b.c.d, so that both families and the mapped form compare as 16 bytes. */
struct ip {
	uint8_t b[16];
	bool v4; /* was given as IPv4: says only which registry names its block */
};

enum { ADDR_TEXT = 46 };

enum addr_class {
	ADDR_PUBLIC, /* global unicast, in no special-purpose block: the only class that may be connected to */
	ADDR_UNSPECIFIED,
	ADDR_THIS_NETWORK,
	ADDR_PRIVATE,
	ADDR_CGNAT,
	ADDR_LOOPBACK,
	ADDR_LINK_LOCAL,
	ADDR_METADATA, /* a cloud's own services, wherever they are */
	ADDR_IETF_PROTOCOL,
	ADDR_DOCUMENTATION,
	ADDR_AS112,
	ADDR_AMT,
	ADDR_RELAY_6TO4,
	ADDR_BENCHMARKING,
	ADDR_MULTICAST,
	ADDR_RESERVED,
	ADDR_BROADCAST,
	ADDR_UNIQUE_LOCAL,
	ADDR_SITE_LOCAL,
	ADDR_V4_COMPAT,
	ADDR_V4_TRANSLATED,
	ADDR_NAT64,
	ADDR_NAT64_LOCAL,
	ADDR_6TO4,
	ADDR_TEREDO,
	ADDR_DISCARD,
	ADDR_DUMMY,
	ADDR_ORCHID,
	ADDR_DET,
	ADDR_SRV6,
	ADDR_UNASSIGNED, /* IPv6 outside 2000::/3, or given back */
	ADDR_CLASSES_
};

/* Strict: four decimal numbers without leading zeros; RFC 4291 text without a zone. Nothing that inet_aton would guess. */
bool addr_parse4(struct str text, struct ip *out);
bool addr_parse6(struct str text, struct ip *out);
bool addr_parse(struct str text, struct ip *out);

/* Dotted quad (also of the mapped form), or RFC 5952. */
void addr_fmt(const struct ip *a, char out[ADDR_TEXT]);
bool addr_equal(const struct ip *a, const struct ip *b);
bool addr_is4(const struct ip *a); /* IPv4 or its mapped form: connect with AF_INET */

/* A mapped or ISATAP address has the class of the IPv4 in it; other embedding forms are classes of their own. */
enum addr_class addr_class(const struct ip *a);
const char *addr_class_name(enum addr_class class);
/* The registry block that decided, as "100.64.0.0/10"; NULL when it is in none. */
const char *addr_block(const struct ip *a);
/* The IPv4 inside a mapped, compatible, translated, NAT64, 6to4, Teredo or ISATAP address. */
bool addr_embedded(const struct ip *a, struct ip *v4);
/* May be connected to. nat64: the host reaches IPv4 through 64:ff9b::/96, which is then judged as the IPv4 in it. */
bool addr_public(const struct ip *a, bool nat64);

bool addr_from_sockaddr(const struct sockaddr *sa, struct ip *out); /* false: another family */
socklen_t addr_to_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *out);
