/*
 * reach.h - where a URL that a caller gave may lead our own processes: to public addresses, unless the deployment lists the
 * host. The name is resolved once and the answer pinned, so that what was judged is what is connected to.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"

/* Not loopback, private, link-local (metadata services), shared, reserved, multicast, nor an IPv6 form of such an IPv4. */
bool reach_public(const struct sockaddr *a);
/*
 * Resolve host and judge every address. *pin: "host:port:address,…" for curl, in the arena; NULL for a literal address.
 * ERR_BAD_REQUEST when one is not public, ERR_UPSTREAM when there is none. Waits as long as the system's resolver.
 */
int reach_pin(struct mem *m, const char *host, int port, const char **pin, struct err *e);
