/*
 * mount.h - mounts that belong to no place of the host: made as descriptors, moved into a mount namespace that only the
 * sandbox keeps, gone with its last process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* An ext4 file system of a block device; without set-user-id programs and devices. A close-on-exec descriptor, or -1. */
int mount_ext4(const char *device, struct err *e);
/* What a directory descriptor leads to, as a mount of its own without what is mounted below it. */
int mount_clone(int dir, struct err *e);
/* Map its ids by a user namespace; read_only: nothing can be written through it. */
int mount_set(int mount, int userns, bool read_only, struct err *e);

struct mount_place {
	int mount;        /* -1: only the directory */
	const char *name; /* below the one given: "work", "mnt/skills/a" */
};
/* In a thread that has a mount namespace of its own: an empty file system at `dir` with these in it. Names are made. */
int mount_place_all(const char *dir, const struct mount_place *list, size_t n, struct err *e);
