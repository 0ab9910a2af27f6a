/*
 * known.h - who has proved to be who a moment ago, so that a client's next request asks the database nothing. Only keys that do not end
 * within a second, by their present secret, for KNOWN_MS from before they were looked up: a revocation, rotation or end that another
 * process makes holds here within that, one that this process makes at once (ID-6). What is kept is the hash that the row has too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "auth/cred.h"

enum { KNOWN_MS = 500 };

/* The principal in the arena, or NULL: nothing is known. */
const struct principal *known_find(struct mem *m, const struct cred_parts *parts);
/* Before the row is read; known_keep keeps nothing when anything was forgotten since. */
struct known_asked {
	int64_t ms;
	uint64_t forgotten;
};
struct known_asked known_ask(void);
void known_keep(const struct cred_parts *parts, const struct principal *p, struct known_asked asked);
/* After the change of the row is committed. */
void known_forget(const char *id);
