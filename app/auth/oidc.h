/*
 * oidc.h - tokens of the one identity provider that the settings OIDC_* name (ID-1). Owner of the process's issuer: its keys
 * are fetched by a thread of its own, never by a request.
 *
 * The keys are fetched at start, every OIDC_KEYS_REFRESH_S, and when a token names a key that is not known, then at most
 * every few seconds. While the issuer is away the last set counts for OIDC_KEYS_STALE_S more. A request that needs a newer
 * set is answered 503; few of them, and only where there are workers to spare, wait a moment for it instead.
 */
#pragma once

#include "auth/principal.h"
#include "io/conf.h"

/* Nothing when OIDC_ISSUER and what needs it are empty. -1 when the settings do not fit together. Before requests come. */
int oidc_start(const struct conf *conf, struct err *e);
void oidc_stop(void); /* joins the thread; no request may be under way */
/*
 * The principal of a token, in the arena: 0 with *who NULL when it is not a valid token of our issuer for an org that exists;
 * -1 only when that cannot be found out now.
 */
int oidc_principal(
    struct mem *m, struct pg_pool *pool, const char *token, const struct principal **who, struct err *e);
