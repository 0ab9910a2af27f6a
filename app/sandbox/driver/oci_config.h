/*
 * oci_config.h - the config.json of a sandbox (OCI runtime specification 1.0): pure, from its inputs to JSON.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "sandbox/driver/bundle.h"

/* Resource limits of a sandbox's processes; no runtime may raise one above its own hard limit without CAP_SYS_RESOURCE. */
enum { OCI_RLIMITS = 6 };
extern const struct oci_rlimit {
	const char *name;
	int resource; /* RLIMIT_… */
	long long want;
} oci_rlimits[OCI_RLIMITS];

#define OCI_PLACED "v%zu" /* by its number */
#define OCI_PLACES "mnt"

struct oci_config {
	const char *root;       /* the read-only root */
	const char *const *etc; /* directories bound read-only at their own place, ended by NULL */
	const char *socket_dir; /* becomes /run/gatehouse */
	const char *cgroup;     /* explicit, never derived from an id */
	const char *netns;      /* path of the namespace; NULL: the runtime makes an empty one of its own */
	/* Host id of the sandbox's id 0. Without user namespaces (the host has none) `agent` is the host's uid_base + 1000, and
	 * passwd and group are files that say so. */
	uid_t uid_base;
	bool userns;
	const char *passwd, *group;
	bool kernel;             /* gVisor: it needs processes of its own besides the sandbox's */
	bool swap;               /* memory+swap can be limited here */
	const char *const *args; /* the first process; NULL: the box */
	/* Of driver_spec; what outlives it stands below `placed` while the runtime starts, each at a name of its own, and the
	 * directories for it at another: a runtime may not bind a tree without what is mounted in it. */
	const char *placed;
	const struct driver_mount *mounts;
	size_t n_mounts;
	const char *const *scratch;
	long long rlimit_max[OCI_RLIMITS]; /* our own hard limits, in the order of oci_rlimits */
	struct driver_limits limits;
};
json_t *oci_config(const struct oci_config *c);
