/* oci_int.h - shared between the files of the oci driver only. */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "sandbox/cgroup.h"
#include "sandbox/driver/oci.h"
#include "sandbox/driver/oci_config.h"
#include "sandbox/image.h"

enum { OCI_PATH = 400, OCI_RUNTIMES = 3, OCI_START_MS = 60000, OCI_WORDS_MAX = 8192 };

struct oci_runtime {
	const char *binary, *boundary;
	bool kernel; /* gVisor: own kernel, no ptrace by us, no groups of commands */
	const char *const *flags;
	char why_not[200]; /* empty: it was run and works */
};

struct oci {
	struct driver d; /* first: a struct driver * of ours is a struct oci * */
	struct cgroups cg;
	char dir[200], sockets[64], cgroup[128];
	struct image_binds etc;
	uid_t uid_base;
	bool userns;
	int uid_lock, slots;
	sem_t starts;
	struct oci_runtime rt[OCI_RUNTIMES];
	const struct oci_runtime *dflt; /* behind "", NULL when none */
	const char *offered[OCI_RUNTIMES + 2];
	char refusal[300];
};

struct oci_run { /* one call of a runtime */
	const struct oci_runtime *rt;
	const char *id, *bundle;
	bool detach;
	int in_fd, log_fd; /* standard input; standard output and error */
};
/* Path of an object: fails only when the configuration's directories are absurdly long. */
__attribute__((format(printf, 3, 4))) int oci_path(char out[OCI_PATH], struct err *e, const char *fmt, ...);
/* A file of a bundle: not synced, as it means nothing after a power cut. */
int oci_put(const char *path, const void *p, size_t n, mode_t mode, struct err *e);
/* Start it: 0 when it exited 0. */
int oci_run(const struct oci_run *r, struct err *e);
int oci_write_config(const struct oci *o, const struct oci_runtime *rt, const char *bundle, const char *id,
    const char *socket_dir, uid_t uid_base, int netns, const struct driver_limits *limits,
    const char *const *args, struct err *e);
/* Append the last lines of a sandbox's log, printable, without our own paths. */
void oci_words(const struct oci *o, const char *id, struct buf *out);
/* Find out which runtimes work: fills rt[].why_not, dflt, offered and refusal. */
void oci_probe(struct oci *o, const struct oci_opts *opts);
int oci_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e);
