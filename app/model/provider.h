/*
 * provider.h - who answers model calls (MOD-2): a provider is a row of an org, or of the deployment (org `admin`), whose
 * providers every org may use. Beside it stand its keys, sealed and never shown, its models with their prices, and what an org
 * routes where: aliases, the defaults of the tiers, and what it allows. Here are the rows as the ops see them; what a call uses
 * is the process's copy (model/catalog.h). Every change is told on the channel `models`, so that it holds everywhere at once.
 */
#pragma once

#include "auth/seal.h"
#include "io/conf.h"
#include "io/pg.h"
#include "model/wire.h" /* enum provider_wire: what a provider speaks */

const char *provider_wire_name(enum provider_wire w); /* "openai-chat", "openai-responses", "anthropic" */
bool provider_wire_of(const char *name, enum provider_wire *w);
extern const char *const provider_wires[]; /* the names, ended by NULL */

enum {
	PROVIDER_NAME_BYTES = 40,
	MODEL_NAME_BYTES = 160,
	MODEL_ADDRESS_BYTES = PROVIDER_NAME_BYTES + 1 + MODEL_NAME_BYTES, /* "provider/model" */
	PROVIDER_KEYS_MAX = 32,
	PROVIDER_MODELS_MAX = 400,
	ROUTE_TARGETS_MAX = 8, /* of an alias or a tier, and of the fallbacks of a model */
	ROUTE_ALIAS_DEPTH = 4, /* aliases from a name to a model */
	PROVIDER_URL_BYTES = 512,
	PROVIDER_SECRET_BYTES = 4096,
	PROVIDER_PRICE_MAX = 1000000000, /* millicents per million tokens: 10 000 dollars */
};

/* Who changes what: an org's admin its own, the deployment's admin (org `admin`) the deployment's. */
struct provider_by {
	const char *org, *user;
	const struct conf *conf;
	const struct seal_key *seal;
	struct mem *mem;
};

/*
 * Changes happen inside a transaction that the caller has opened and commits; each process is told at the commit.
 * Each takes an op's input and returns a row as the ops answer it, a new reference: {name, owner, wire, baseUrl, enabled, keys
 * [{id, state, until, createdAt}], models [{name, …, prices}], createdBy, createdAt}. Never a secret. NULL with e:
 * ERR_BAD_REQUEST naming the field, ERR_CONFLICT when the name is taken, ERR_NOT_FOUND.
 */
json_t *provider_create(struct pg *db, const struct provider_by *by, const json_t *in, struct err *e);
json_t *provider_get(struct pg *db, const char *org, const char *name, struct err *e);
/* Also the deployment's, which other orgs are told without their keys and where they are. By name, behind the key `after` ("" for
 * the start), which is each row's `_key`. */
json_t *provider_list(struct pg *db, const char *org, const char *after, int limit, struct err *e);
/* Of {baseUrl, wire, enabled, addKeys, removeKeys, models}: what is given; models replace all. Another scheme, host or port in
 * baseUrl takes all keys away: they were entrusted to the one before. */
json_t *provider_update(
    struct pg *db, const struct provider_by *by, const char *name, const json_t *in, struct err *e);
int provider_delete(struct pg *db, const char *org, const char *name, struct err *e);

/* What an org routes where: {tier, allow, allowAll, allowedAtMost, aliases}. provider_routing_set changes what is given of {allow
 * or allowAll, aliases}; aliases replace all. ERR_BAD_REQUEST, field `aliases`, for a circle of them, and for a target that was not
 * there before and that nothing has the name of; field `allow` for such a row that matches nothing. Fallbacks of models likewise. */
json_t *provider_routing(struct pg *db, const char *org, struct err *e);
json_t *provider_routing_set(struct pg *db, const struct provider_by *by, const json_t *in, struct err *e);
/* The operator's word on an org: its tier ("free", "paid"), and what it may use at most: an array of names, JSON null for
 * everything; NULL leaves either. ERR_NOT_FOUND when there is no such org. */
int provider_org_set(struct pg *db, const char *org, const char *tier, const json_t *allow, struct err *e);

/*
 * Where a provider's base URL may lead: https to public addresses; plain http, or another address, only where
 * MODEL_INWARD_HOSTS lists the host. Without user, query and fragment, at most PROVIDER_URL_BYTES. ERR_BAD_REQUEST, field
 * `baseUrl`.
 */
int provider_url_ok(const struct conf *conf, const char *url, struct err *e);
/* Do both lead to the same scheme, host and port? */
bool provider_url_same(const char *a, const char *b);
/*
 * Judge where it leads now. *pin: for curl's RESOLVE ("host:port:address,…"), so that what was judged is what is connected to;
 * NULL where MODEL_INWARD_HOSTS lists the host, or the host is an address. Waits as long as the system's resolver; callers
 * keep the answer for a while (catalog_pin).
 */
int provider_url_pin(
    const struct conf *conf, struct mem *m, const char *url, const char **pin, struct err *e);
