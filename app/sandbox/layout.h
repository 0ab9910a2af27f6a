/*
 * layout.h - the layout of mounts that a lease may state (SBX-32), checked once and made explicit. Pure.
 *
 * The checked form, as it stands in the row and as the node reads it:
 * {"workdir", "mounts": [{"at", "host", "root", "ro"}], "scratch": ["/mnt/…"], "roots": ["/mnt/…"], "roRoots": ["/mnt/…"]}.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "sandbox/driver/driver.h"

/* What SANDBOX_MOUNT_ROOTS lists for the org, the one that holds `host`, into root (PATH_MAX); false when none does. Lexical: the
 * node opens it without following links. */
bool layout_root(const char *setting, const char *org, const char *host, char *root, size_t size);
/* Every violation is a detail of e. New reference. */
json_t *layout_check(const char *setting, const char *org, const json_t *mounts, struct err *e);
/* Of the checked form; strings live as long as it. The lists end with NULL. */
struct layout {
	struct driver_mount mounts[DRIVER_MOUNTS_MAX];
	size_t n_mounts;
	const char *scratch[DRIVER_MOUNTS_MAX], *roots[DRIVER_MOUNTS_MAX], *ro_roots[DRIVER_MOUNTS_MAX];
};
void layout_read(const json_t *checked, struct layout *out);
