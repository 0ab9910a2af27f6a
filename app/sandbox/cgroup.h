/*
 * cgroup.h - control groups of sandboxes and of single commands, on cgroup v2 and v1 (hybrid counts as v1).
 * Paths are relative to the hierarchy, e.g. "/gatehouse/main.node1/runc-sbx_…"; a command's group is a child of its sandbox's.
 * On v1 a command's group exists in the freezer hierarchy only: it is there to kill a whole tree, limits are the sandbox's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { CGROUP_PATH_MAX = 192, CGROUP_HIERARCHIES = 24 };

struct cgroups {
	char root[64];
	bool v2;
	bool swap; /* memory+swap can be limited */
	int n;
	char hierarchy[CGROUP_HIERARCHIES][96]; /* mount points: all of them on v1, the one on v2 */
};

/* Read what is mounted at root ("/sys/fs/cgroup"). ERR_UNAVAILABLE with the reason when memory or pids cannot be limited. */
int cgroups_detect(struct cgroups *g, const char *root, struct err *e);
/* Make a command's group. */
int cgroup_make(const struct cgroups *g, const char *path, struct err *e);
int cgroup_add(const struct cgroups *g, const char *path, pid_t pid, struct err *e);
/* Kill every process of path and of its children, until none is left or the deadline passed (-1, ERR_TIMEOUT). An absent
 * group is 0. */
int cgroup_kill(const struct cgroups *g, const char *path, int64_t deadline_ms, struct err *e);
/* Remove path and its children from every hierarchy; absent is 0. The processes must be gone: waits for them until the deadline. */
int cgroup_remove(const struct cgroups *g, const char *path, int64_t deadline_ms, struct err *e);
/* Remove path itself, where it holds nothing any more: for a group that several nodes share. */
void cgroup_prune(const struct cgroups *g, const char *path);
bool cgroup_exists(const struct cgroups *g, const char *path);
/* Processes in path and its children. */
int cgroup_count(const struct cgroups *g, const char *path);
/* How often the kernel killed for memory in path; how many bytes are charged to it now. -1 when that cannot be read. */
long long cgroup_oom_kills(const struct cgroups *g, const char *path);
long long cgroup_memory_bytes(const struct cgroups *g, const char *path);
/* Call fn for the name of each child group of path in the kill hierarchy. */
void cgroup_each(
    const struct cgroups *g, const char *path, void (*fn)(void *arg, const char *name), void *arg);
