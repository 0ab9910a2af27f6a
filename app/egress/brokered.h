/*
 * brokered.h - the credentials of one org that the proxy adds to plain requests, which it then sends on by TLS (EGR-8). A set is
 * immutable and counted, by one thread; the values are wiped with it.
 */
#pragma once

#include <stdint.h>

#include "auth/seal.h"
#include "base/host.h"
#include "egress/head.h"

enum { BROKERED_MAX = 4 /* headers of one request */ };

struct brokered;

struct brokered *brokered_new(void);
/* A row of egress_credentials. One that cannot be opened stays, so that its host is refused and not asked without it. */
void brokered_add(struct brokered *b, const struct seal_key *key, const char *id, const char *host,
    const char *header, const char *sealed);
struct brokered *brokered_ref(struct brokered *b);
void brokered_unref(struct brokered *b); /* NULL is fine */
/*
 * The headers to set for host:port into out, ended by one without a name; an exact host's go before a domain's of the same name.
 * How many; 0 for a host without any; -1 when one of them cannot be opened. b may be NULL.
 */
int brokered_find(
    const struct brokered *b, const struct host *host, uint16_t port, struct head_set out[BROKERED_MAX + 1]);
