/* userns.h - a user namespace as a map of ids for an idmapped mount: nothing ever runs in it. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct userns_map {
	uid_t uid;  /* first user on the disk */
	gid_t gid;  /* first group there */
	uid_t host; /* and what both are here */
	uid_t count;
	uid_t spare, spare_host; /* one more user and group; spare 0: none */
};
/* A close-on-exec descriptor of the namespace, or -1. */
int userns_make(const struct userns_map *map, struct err *e);
