/*
 * host.h - host names in the one form in which they are compared, dialled and shown (EGR-2), and the patterns that allow them.
 * Pure and without allocation, but for host_pattern_parse. Bytes outside [a-z0-9-_.] are never mapped: they are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/str.h"

enum { HOST_TEXT = 254 }; /* RFC 1035: 253 bytes, and a NUL */

struct host {
	char name[HOST_TEXT]; /* lower case, no trailing dot; a literal in canonical form without brackets */
	uint8_t n;
	bool literal; /* ip holds it */
	struct ip ip;
};

/* Where a host stands: in an authority IPv6 has brackets, elsewhere (SOCKS, SNI, a pattern) it must not have them. */
enum host_form { HOST_IN_AUTHORITY, HOST_BARE };

/* False: not a host. A name whose last label is a number in any notation is refused unless it is a strict dotted quad. */
bool host_canon(struct str in, enum host_form form, struct host *out);
bool host_equal(const struct host *a, const struct host *b);

/* "host", "host:port", "[v6]:port" cut at the colon; has_port tells "host:" from "host". False: brackets or colons are wrong. */
bool host_split(struct str authority, struct str *host, struct str *port, bool *has_port);
/* 1…65535 in decimal without leading zeros. */
bool host_port(struct str text, uint16_t *port);

/* "address", "address:port" or "[v6]:port"; port 0: none is given. False: it is none of them. */
bool host_socket(struct str text, struct ip *ip, uint16_t *port);

struct host_pattern {
	char *name; /* canonical; without the leading dot of a suffix */
	struct ip ip;
	uint16_t port; /* 0: 80 and 443 */
	uint8_t n;
	bool suffix, literal;
};

/* On false *why is one static sentence for whoever wrote the pattern. Free with host_pattern_free. */
bool host_pattern_parse(struct str in, struct host_pattern *out, const char **why);
void host_pattern_free(struct host_pattern *p);

enum host_match { HOST_NO, HOST_OTHER_PORT, HOST_SUFFIX, HOST_EXACT };
/* HOST_OTHER_PORT: the name matches and the port does not. */
enum host_match host_pattern_match(const struct host_pattern *p, const struct host *h, uint16_t port);
/* The best answer of n patterns. */
enum host_match host_patterns_match(
    const struct host_pattern *p, size_t n, const struct host *h, uint16_t port);
