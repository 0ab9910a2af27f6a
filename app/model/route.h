/*
 * route.h - from what a client calls a model to who answers (MOD-2). A name is `provider/model`, an alias, a tier alias (`free`,
 * `paid`), or a model's bare name where only one provider that the org may use has it; no name at all is the org's own tier.
 *
 * An org's own providers and aliases come before the deployment's of the same name; what an alias of the deployment names is
 * looked up among the deployment's only. A provider that is switched off is as if it were not there.
 *
 * The operator's list is about what a name resolves to, fallbacks too: an alias on it is the deployment's, and a provider on it is
 * the deployment's where there is one of the name, so that an org's admin does not change what it means.
 */
#pragma once

#include "model/catalog.h"

struct route_target {
	const struct provider *provider;
	const struct provider_model *model;
	const char *address; /* "provider/model": what answered, as clients are told it */
};
/* Who to ask, in this order: the targets of the name, then their fallbacks, each once. At least one. */
struct model_route {
	const char *asked; /* as the client wrote it, or the tier's name */
	struct route_target targets[ROUTE_TARGETS_MAX];
	int n;
};

/*
 * model NULL or "": the default of the org's tier (ERR_BAD_REQUEST, reason "model_required", when it has none). Everything is valid as long as m. ERR_NOT_FOUND, reason "model_not_found",
 * names the nearest names that the org may use; ERR_FORBIDDEN, reason "model_not_allowed", when it exists and the org's
 * allowlist or the operator's excludes it (an excluded fallback is passed over without a word).
 */
int route_resolve(struct catalog *c, struct mem *m, const char *org, const char *model,
    struct model_route *out, struct err *e);

/* The same over a copy. */
int route_of(
    const struct org_models *o, struct mem *m, const char *model, struct model_route *out, struct err *e);
json_t *route_list(const struct org_models *o, struct mem *m);

/* Everything that route_resolve finds for this org, as GET /v1/models lists it: rows {id, object: "model", created, owned_by,
 * …}, by id. New reference. */
json_t *route_models(struct catalog *c, const char *org, struct err *e);
