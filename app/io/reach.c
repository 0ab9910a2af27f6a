#include "io/reach.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

enum { PIN_BYTES = 4096, ADDRESSES = 8 };

/* Blocks that are not somebody else's public host (RFC 6890 and its registry). */
static bool public4(uint32_t a)
{
	static const struct {
		uint32_t net;
		int bits;
	} blocks[] = {
		{ 0x00000000, 8 },  /* this network */
		{ 0x0a000000, 8 },  /* private */
		{ 0x64400000, 10 }, /* shared (carriers) */
		{ 0x7f000000, 8 },  /* loopback */
		{ 0xa9fe0000, 16 }, /* link-local: metadata services */
		{ 0xac100000, 12 }, /* private */
		{ 0xc0000000, 24 }, /* protocol assignments */
		{ 0xc0000200, 24 }, /* documentation */
		{ 0xc0a80000, 16 }, /* private */
		{ 0xc6120000, 15 }, /* benchmarks */
		{ 0xc6336400, 24 }, /* documentation */
		{ 0xcb007100, 24 }, /* documentation */
		{ 0xe0000000, 3 },  /* multicast, reserved, broadcast */
	};
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
		if ((a ^ blocks[i].net) >> (32 - blocks[i].bits) == 0)
			return false;
	return true;
}

static uint32_t be32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool public6(const unsigned char p[16])
{
	static const unsigned char nat64[12] = { 0, 0x64, 0xff, 0x9b },
				   mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (memcmp(p, mapped, 12) == 0 || memcmp(p, nat64, 12) == 0)
		return public4(be32(p + 12));
	if (p[0] == 0x20 && p[1] == 0x02) /* 6to4 */
		return public4(be32(p + 2));
	/* Only 2000::/3 is given out at all; of it not Teredo, ORCHID and documentation (2001::/23, 2001:db8::/32). */
	if (p[0] >> 5 != 1)
		return false;
	return !(p[0] == 0x20 && p[1] == 0x01 && (p[2] < 2 || (p[2] == 0x0d && p[3] == 0xb8)));
}

bool reach_public(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, a, sizeof in);
		return public4(ntohl(in.sin_addr.s_addr));
	}
	if (a->sa_family != AF_INET6)
		return false;
	struct sockaddr_in6 in6;
	memcpy(&in6, a, sizeof in6);
	return public6(in6.sin6_addr.s6_addr);
}

static void auto_addrinfo(struct addrinfo **a)
{
	if (*a != NULL)
		freeaddrinfo(*a);
}

int reach_pin(struct mem *m, const char *host, int port, const char **pin, struct err *e)
{
	AUTO(auto_addrinfo) struct addrinfo *all = NULL;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	unsigned char literal[16];
	auto_buf struct buf b = BUF(PIN_BYTES);
	int n = 0;
	*pin = NULL;
	if (getaddrinfo(host, NULL, &hints, &all) != 0)
		return err_set(e, ERR_UPSTREAM, "The host %.200s cannot be found.", host);
	(void)buf_fmt(&b, "%s:%d:", host, port);
	for (const struct addrinfo *a = all; a != NULL && n < ADDRESSES; a = a->ai_next) {
		char text[NI_MAXHOST];
		if (!reach_public(a->ai_addr))
			return err_set(e, ERR_BAD_REQUEST,
			    "The host %.200s is not a public one; an operator can allow it here.", host);
		if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
			(void)buf_fmt(&b, "%s%s", n++ == 0 ? "" : ",", text);
	}
	if (n == 0)
		return err_set(e, ERR_UPSTREAM, "The host %.200s has no address.", host);
	if (inet_pton(AF_INET, host, literal) != 1 && inet_pton(AF_INET6, host, literal) != 1)
		*pin = mem_str(m, buf_c(&b));
	return 0;
}
