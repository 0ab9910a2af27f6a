/*
 * explain.h - what the boundary would say, for the operator's command and for tests: the functions of the proxy, with
 * the answer of name resolution given as text. Nothing is looked up.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/decide.h"
#include "egress/policy.h"

struct explain_ask {
	const char *allow; /* patterns separated by commas; NULL: no list */
	const char *
	    mode; /* NULL: static with a list, deny-all without; an unknown one is a policy that cannot be read */
	const char *
	    resolve; /* addresses, or NXDOMAIN or SERVFAIL, separated by commas or spaces; NULL: no address */
	enum egress_form form;
	const char *target; /* host[:port]; for SOCKS also as "ATYP=1 192.0.2.1:443" or "CMD=2" */
};

/* Are `mode` and `resolve` as they are said to be here? -1, ERR_BAD_REQUEST: e names the option and what is allowed. */
int explain_check(const struct explain_ask *ask, struct err *e);
/* New references, never NULL. {verdict, reason, canonical, address, class}: null where there is none. */
json_t *explain_host(const struct egress_site *site, const struct explain_ask *ask);
/* {verdict, class, block}: the block is "-" for an address in none. */
json_t *explain_address(const struct egress_site *site, const char *text);
/* {verdict, reason, name}: these bytes are all that a client of a tunnel to target sends. */
json_t *explain_hello(const struct egress_site *site, const char *target, const uint8_t *p, size_t n);
