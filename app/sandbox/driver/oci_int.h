/* oci_int.h - shared between the files of the oci driver only. */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "sandbox/cgroup.h"
#include "sandbox/driver/bundle.h"
#include "sandbox/driver/oci.h"
#include "sandbox/driver/oci_config.h"
#include "sandbox/image.h"
#include "sandbox/mount.h"

enum { OCI_GVISOR = 2, OCI_RUNTIMES, OCI_START_MS = 60000 };
#define OCI_UNIFIED "/sys/fs/cgroup/unified"

struct oci_runtime {
	const char *binary, *boundary;
	bool kernel; /* gVisor: own kernel, no ptrace by us, no groups of commands */
	const char *const *flags;
	bool no_hybrid; /* refuses hosts where cgroup v2 is mounted beside v1 */
	bool
	    own_network; /* gVisor that cannot use a namespace of ours: nothing is ever let out of its sandboxes */
	char why_not[200]; /* empty: it was run and works */
};

struct oci {
	struct driver d; /* first: a struct driver * of ours is a struct oci * */
	struct cgroups cg;
	char dir[200], ids[216], placed[216], sockets[64], cgroup[128];
	const struct volumes *volumes; /* NULL: this node has none */
	struct image_binds etc;
	uid_t uid_base;
	bool userns, hybrid;
	int uid_lock, slots;
	sem_t starts;
	struct oci_runtime rt[OCI_RUNTIMES];
	const struct oci_runtime *dflt; /* behind "", NULL when none */
	const char *offered[OCI_RUNTIMES + 2];
	char refusal[ERR_MSG_MAX];
};

struct oci_run { /* one call of a runtime */
	const struct oci_runtime *rt;
	const char *id, *bundle;
	bool detach;
	int in_fd, log_fd;  /* standard input; standard output and error */
	const char *hide;   /* a mount that the runtime is not to see, or NULL */
	const char *placed; /* where it is to see these mounts */
	const struct mount_place *places;
	size_t n_places;
	const uid_t *as; /* the id it runs as (oci_ids.h), or NULL: ours */
	const char *ids; /* then: the directory of its helpers */
	bool (*cancelled)(void *arg);
	void *arg;
};
/* What must be hidden from this runtime on this host: see oci_run.hide. */
const char *oci_hide(const struct oci *o, const struct oci_runtime *rt);
/* Does this runtime use a namespace that we make, and does it run as the sandbox's own root then? */
bool oci_our_network(const struct oci_runtime *rt);
bool oci_as_root_of_range(const struct oci *o, const struct oci_runtime *rt);
/* Start it: 0 when it exited 0. */
int oci_run(const struct oci_run *r, struct err *e);
struct oci_built { /* what a configuration is made from, besides what the node is */
	const struct oci_runtime *rt;
	const char *bundle, *socket_dir;
	uid_t uid_base;
	int netns;               /* -1: the runtime makes one */
	const char *const *args; /* NULL: the box */
};
int oci_write_config(
    const struct oci *o, const struct oci_built *b, const struct driver_spec *s, struct err *e);

/* ---- oci_mounts.c: what outlives a sandbox */
struct oci_mounts { /* the descriptors of s->mounts, and of directories that only have to be there */
	struct mount_place at[2 * DRIVER_MOUNTS_MAX];
	size_t n;
	char names[DRIVER_MOUNTS_MAX][24];
};
/* All of them, or none. The names of volumes have to be on the record before. */
int oci_mounts_make(
    const struct oci *o, const struct driver_spec *s, uid_t uid_base, struct oci_mounts *m, struct err *e);
void oci_mounts_close(struct oci_mounts *m);
/* True when this host lets us make no namespaces at all, with one line about it and the way out. */
bool oci_no_namespaces(char why[ERR_MSG_MAX]);
/* Find out which runtimes work: fills rt[].why_not, dflt, offered and refusal. */
void oci_probe(struct oci *o, const struct oci_opts *opts);
int oci_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e);
