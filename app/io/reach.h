/*
 * reach.h - where a URL that a caller gave may lead our own processes: to public addresses, unless the deployment lists the
 * host. The name is resolved once and the answer pinned, so that what was judged is what is connected to.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"

/* In no special-purpose block: as addr_public() of base/addr.h judges it, for this and for what sandboxes reach. */
bool reach_public(const struct sockaddr *a, bool nat64);
/*
 * Resolve host and judge every address. *pin: "host:port:address,…" for curl, in the arena; NULL for a literal address.
 * ERR_BAD_REQUEST when one is not public, ERR_UPSTREAM when there is none. Waits as long as the system's resolver.
 */
int reach_pin(struct mem *m, const char *host, int port, bool nat64, const char **pin, struct err *e);
