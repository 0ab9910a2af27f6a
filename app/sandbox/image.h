/*
 * image.h - the embedded image "host" (SBX-24): the host's /usr, read-only, under a root that we make. Nothing of the
 * host's /etc, /home, /root, /var, /run or /opt is in it besides what image.c names.
 */
#pragma once

#include "base/err.h"

#define IMAGE_HOST "host"
#define IMAGE_INIT "/init" /* gatehouse-box inside the root */
enum { IMAGE_UID = 1000 }; /* of `agent`, inside */
#define IMAGE_HOME "/state/home"
#define IMAGE_DATA "/mnt/data" /* scratch space where commands start, unless something is mounted for them */

/* Directories of the host that are bound read-only at the same place; those that exist, at most 8, ended by NULL. */
struct image_binds {
	const char *path[9];
};
/* Make or refresh the root in `dir` with a copy of the box binary as its init. Safe while sandboxes run on it. */
int image_host_make(const char *dir, const char *box_binary, struct image_binds *binds, struct err *e);
