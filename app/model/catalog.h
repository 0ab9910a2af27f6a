/*
 * catalog.h - a process's copy of providers, keys and routes, so that a model call costs no look at the database for them.
 *
 * A copy of an org is read at its first call, is never changed, and is dropped when the channel `models` tells of a change of
 * the org's or the deployment's rows, when the process has changed them itself (catalog_forget), or after CATALOG_AGE_MS.
 * Whoever holds one keeps it whole to the end of its request. Which keys cool down is not in it: that is kept beside it, in one
 * table that the channel `model_keys` keeps equal in all processes (model/keyring.h).
 */
#pragma once

#include "base/id.h"
#include "base/secret.h"
#include "model/provider.h"
#include "money/price.h"

enum { CATALOG_AGE_MS = 10000 };

struct catalog; /* one per process */
struct catalog *catalog_start(const char *conninfo, struct pg_pool *db, const struct seal_key *seal,
    const struct conf *conf) __attribute__((warn_unused_result));
void catalog_stop(struct catalog *c);

struct provider_key {
	char id[ID_MAX];
	const struct secret *secret; /* NULL: this provider wants no key */
};
struct provider_model {
	const char *name;                        /* as clients write it */
	const char *upstream;                    /* as the provider calls it */
	long long context_tokens, output_tokens; /* limits; 0: not stated */
	struct price price;           /* complete: what a row leaves open was filled in when it was written */
	const char *const *fallbacks; /* addresses, in their order */
	int n_fallbacks;
	long long created_s; /* since 1970 */
};
struct provider {
	const char *org;             /* the owner: the caller's own, or "admin" */
	const char *name, *base_url; /* without a slash at the end */
	enum provider_wire wire;
	bool enabled;
	struct provider_key *keys; /* at least one: a provider without a key has one without a secret */
	int n_keys;
	struct provider_model *models;
	int n_models;
};

struct alias {
	const char *org; /* the owner, as of a provider */
	const char *name;
	const char *const *targets; /* addresses or aliases of the owner's, in their order */
	int n_targets;
};
struct allowlist {
	const char *const
	    *names; /* NULL: everything; "provider/model", "provider/" and a star, an alias, "*" */
	int n;
};
/* What one org may use: its own rows first, then the deployment's. */
struct org_models {
	const char *org, *tier; /* "free", "paid" */
	struct provider *providers;
	int n_providers;
	struct alias *aliases;
	int n_aliases;
	struct allowlist allow[2]; /* its own, the operator's: both must allow a model */
};
/* Valid as long as m. -1 when it has to be read and PostgreSQL does not answer. */
int catalog_of(
    struct catalog *c, struct mem *m, const char *org, const struct org_models **out, struct err *e);
/* After a change that this process has committed, so that its next request sees it, whatever the channel does. */
void catalog_forget(struct catalog *c, const char *org);
/* provider_url_pin, kept for half a minute. In the arena. */
int catalog_pin(struct catalog *c, struct mem *m, const struct provider *p, const char **pin, struct err *e);
/* Text of this provider's without any of its keys (redact_secret), whichever was used: a provider may know them all as one
 * account's. Appends to out; -1 when it does not fit. */
int catalog_redact(const struct provider *p, const char *text, size_t n, struct buf *out);
