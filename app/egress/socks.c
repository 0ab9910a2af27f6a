#include "egress/socks.h"

#include <string.h>

enum { NO_AUTH = 0, NO_METHOD = 0xff, CONNECT = 1, ATYP_V4 = 1, ATYP_NAME = 3, ATYP_V6 = 4 };

enum socks_step socks_greeting(const uint8_t *p, size_t n, size_t *used, uint8_t reply[2])
{
	reply[0] = SOCKS_VERSION;
	reply[1] = NO_METHOD;
	if (n > 0 && p[0] != SOCKS_VERSION)
		return SOCKS_BAD;
	if (n < 2 || n < 2U + p[1])
		return SOCKS_MORE;
	*used = 2U + p[1];
	if (memchr(p + 2, NO_AUTH, p[1]) == NULL)
		return SOCKS_BAD;
	reply[1] = NO_AUTH;
	return SOCKS_DONE;
}

static enum socks_step bad(struct socks_request *r, enum egress_reason why)
{
	r->reason = why;
	return SOCKS_BAD;
}

/* The address at p, of `len` bytes; a name is what it says, also when it says an address. */
static bool address(struct host *host, uint8_t type, const uint8_t *p, size_t len)
{
	struct ip ip = { .v4 = false };
	char text[ADDR_TEXT];
	if (type == ATYP_NAME)
		return host_canon((struct str){ (const char *)p, len }, HOST_BARE, host);
	if (type == ATYP_V4) {
		ip.b[10] = ip.b[11] = 0xff;
		ip.v4 = true;
	}
	memcpy(ip.b + sizeof ip.b - len, p, len);
	addr_fmt(&ip, text);
	return host_canon(str_of(text), HOST_BARE, host);
}

enum socks_step socks_read(struct socks_request *r, const uint8_t *p, size_t n)
{
	*r = (struct socks_request){ 0 };
	if (n > 0 && p[0] != SOCKS_VERSION)
		return bad(r, REASON_BAD_SOCKS);
	if (n > 1 && p[1] != CONNECT)
		return bad(r, p[1] == 2 || p[1] == 3 ? REASON_COMMAND_NOT_SUPPORTED : REASON_BAD_SOCKS);
	if (n > 2 && p[2] != 0)
		return bad(r, REASON_BAD_SOCKS);
	if (n > 3 && p[3] != ATYP_V4 && p[3] != ATYP_NAME && p[3] != ATYP_V6)
		return bad(r, REASON_BAD_ADDRESS_TYPE);
	if (n < 5)
		return SOCKS_MORE;
	size_t at = p[3] == ATYP_NAME ? 5 : 4, len = p[3] == ATYP_NAME ? p[4] : p[3] == ATYP_V4 ? 4 : 16;
	if (n < at + len + 2)
		return SOCKS_MORE;
	r->used = at + len + 2;
	if (!address(&r->host, p[3], p + at, len))
		return bad(r, REASON_BAD_HOST);
	r->port = (uint16_t)(p[at + len] << 8 | p[at + len + 1]);
	return r->port == 0 ? bad(r, REASON_BAD_PORT) : SOCKS_DONE;
}

/* RFC 1928 6 */
static uint8_t reply_code(enum egress_reason why)
{
	switch (why) {
	case REASON_COMMAND_NOT_SUPPORTED:
		return 7;
	case REASON_BAD_ADDRESS_TYPE:
		return 8;
	case REASON_DNS_NXDOMAIN:
	case REASON_DNS_EMPTY:
	case REASON_DNS_ERROR:
		return 4; /* host unreachable */
	case REASON_CONNECT_FAILED:
		return 5; /* refused */
	case REASON_CONNECT_TIMEOUT:
		return 6; /* TTL expired */
	case REASON_LIMIT_EXCEEDED:
	case REASON_OVERLOADED:
	case REASON_AUDIT_UNAVAILABLE:
		return 1;
	default:
		break;
	}
	switch (reason_verdict(why)) {
	case EGRESS_ALLOW:
		return 0;
	case EGRESS_DENY:
		return 2; /* not allowed by ruleset */
	default:
		return 1; /* general failure */
	}
}

void socks_reply(enum egress_reason reason, uint8_t out[SOCKS_REPLY_BYTES])
{
	memset(out, 0, SOCKS_REPLY_BYTES);
	out[0] = SOCKS_VERSION;
	out[1] = reply_code(reason);
	out[3] = ATYP_V4; /* the bound address: none that concerns the client */
}
