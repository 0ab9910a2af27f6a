#include "io/reach.h"

#include <netdb.h>

#include "base/addr.h"
#include "base/buf.h"
#include "base/str.h"

enum { PIN_BYTES = 4096, ADDRESSES = 8 };

bool reach_public(const struct sockaddr *a, bool nat64)
{
	struct ip ip;
	return addr_from_sockaddr(a, &ip) && addr_public(&ip, nat64);
}

static void auto_addrinfo(struct addrinfo **a)
{
	if (*a != NULL)
		freeaddrinfo(*a);
}

int reach_pin(struct mem *m, const char *host, int port, bool nat64, const char **pin, struct err *e)
{
	AUTO(auto_addrinfo) struct addrinfo *all = NULL;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct ip literal;
	auto_buf struct buf b = BUF(PIN_BYTES);
	int n = 0;
	*pin = NULL;
	if (getaddrinfo(host, NULL, &hints, &all) != 0)
		return err_set(e, ERR_UPSTREAM, "The host %.200s cannot be found.", host);
	(void)buf_fmt(&b, "%s:%d:", host, port);
	for (const struct addrinfo *a = all; a != NULL && n < ADDRESSES; a = a->ai_next) {
		char text[NI_MAXHOST];
		if (!reach_public(a->ai_addr, nat64))
			return err_set(e, ERR_BAD_REQUEST,
			    "The host %.200s is not a public one; an operator can allow it here.", host);
		if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
			(void)buf_fmt(&b, "%s%s", n++ == 0 ? "" : ",", text);
	}
	if (n == 0)
		return err_set(e, ERR_UPSTREAM, "The host %.200s has no address.", host);
	if (!addr_parse(str_of(host), &literal))
		*pin = mem_str(m, buf_c(&b));
	return 0;
}
