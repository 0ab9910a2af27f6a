/*
 * refpolicy.h - may this push happen (FRG-3)? Pure; called from the pre-receive hook inside git's quarantine, so what is
 * checked is what is written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct ref_change {
	const char *ref, *old_id, *new_id; /* full ref; ids in hex, all zeros for none */
	bool forced;                       /* old is not an ancestor of new */
};
struct ref_rights {
	const char *grant_ref;      /* full ref of a grant; NULL for a principal of the org */
	const char *default_branch; /* short name */
};
int refpolicy_judge(
    const struct ref_rights *rights, const struct ref_change *changes, size_t n, struct err *e);
