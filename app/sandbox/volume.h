/*
 * volume.h - disks that outlive a sandbox, as files of this host: an ext4 file system in a sparse file, so that its size is
 * enforced by what it is. A name is a pure function of whose it is (volume_name).
 *
 * A volume is never attached to a place of the host: volume_mount gives a descriptor, which the driver moves into the mount
 * namespace of the one sandbox. It is unmounted, and its loop device is gone, when the last process of the sandbox or the
 * last descriptor is, whoever was killed meanwhile. The file is locked for exactly as long: the loop device holds the open
 * file with the lock.
 *
 * Ids on the disk are those inside (agent is 1000), whichever range of the host its sandbox has: the mount maps them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { VOLUME_NAME_MAX = 128, VOLUME_PATH_MAX = 512 };

/* What a volume belongs to: the disk of a project, or the state of a session. */
#define VOLUME_PROJECT "project"
#define VOLUME_SESSION "session"
/* "project.<org>.<slug>": no part has a dot. */
void volume_name(char out[VOLUME_NAME_MAX], const char *kind, const char *org, const char *name);

struct volumes {
	char dir[VOLUME_PATH_MAX]; /* of this node */
	int64_t spare_bytes;       /* that stay free on its file system */
	char why_not[200];         /* empty: they work here */
};
/* Do volumes work here? Proved by using one. Where not, no lease may have one, and those that there are can be deleted only. */
void volumes_open(struct volumes *v, const char *dir, int64_t spare_bytes);
/* The volume, made when absent, with a directory `home` of the agent's (NULL: none), as a mount in which disk id 0… are the host's uid_base…. A close-on-exec descriptor, or -1:
 * ERR_CONFLICT while another sandbox has it, ERR_STORAGE when the host's disk is full. */
int volume_mount(const struct volumes *v, const char *name, int64_t size_bytes, const char *home,
    uid_t uid_base, struct err *e);
/* Wait until nobody has it mounted; absent is 0. ERR_UNAVAILABLE at the deadline. */
int volume_settle(const struct volumes *v, const char *name, int64_t deadline_ms, struct err *e);
/* Delete it; absent is 0. ERR_CONFLICT while it is mounted. */
int volume_remove(const struct volumes *v, const char *name, struct err *e);
/* What it takes of the host's disk; 0 when it is absent. */
int64_t volume_used(const struct volumes *v, const char *name);
/* Room for another sandbox's writes? ERR_STORAGE when less than the spare bytes are free. */
int volumes_room(const struct volumes *v, struct err *e);
