/* probe.h - one tiny real call of a provider, for its admin: does it answer, with which key, how fast. */
#pragma once

#include "model/catalog.h"

struct probe_ask {
	const char *org, *provider; /* the org's own */
	const char *model;          /* NULL: the first */
	const char *key;            /* its id; NULL: any */
};
/*
 * {ok, status, latencyMs, model, key, message}: what came back, without any key in it. A key that answers cools no more; a
 * call that fails cools none. NULL with e when there is nobody to call: ERR_NOT_FOUND, ERR_BAD_REQUEST.
 */
json_t *probe_provider(struct catalog *c, struct mem *m, const struct probe_ask *ask, struct err *e);
