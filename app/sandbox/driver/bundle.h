/*
 * bundle.h - what drivers of this host share: a directory per sandbox, the bundle, which is the record that it may exist at
 * all (made first, removed last), what is kept in it, and the ranges of user ids.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "sandbox/driver/driver.h"
#include "sandbox/volume.h"

enum { BUNDLE_PATH = 400, BUNDLE_WORDS_MAX = 8192 };
enum { BUNDLE_UID_RANGE = 65536 }; /* ids of one sandbox */

/* A path: fails only when the configuration's directories are absurdly long. */
__attribute__((format(printf, 3, 4))) int bundle_path(
    char out[BUNDLE_PATH], struct err *e, const char *fmt, ...);
/* A file of a bundle: not synced, as it means nothing after a power cut. */
int bundle_put(const char *path, const void *p, size_t n, mode_t mode, struct err *e);

/* What a later sandboxd must know to find the box again. Only root may read it, for the nonce. */
struct bundle_record {
	bool kernel;
	uid_t uid_base;
	unsigned char nonce[PROTO_NONCE];
	int n_volumes; /* what must be unmounted before it is gone */
	char volumes[DRIVER_VOLUMES_MAX][VOLUME_NAME_MAX];
};
int bundle_record_write(const char *bundle, const struct bundle_record *r, struct err *e);
/* ERR_NOT_FOUND when it is absent or not whole. */
int bundle_record_read(const char *bundle, struct bundle_record *r, struct err *e);

struct bundle_box { /* as the box sees it */
	const char *socket, *workdir;
	const char *const
	    *roots; /* workspace roots, ended by NULL; what is only read is driver_spec.ro_roots */
	const char *const *env; /* ended by NULL */
};
/* What the box reads from its descriptor 0: never a file, as it holds the nonce. The descriptor, or -1. */
int bundle_box_fd(const struct driver_spec *s, const struct bundle_box *b,
    const unsigned char nonce[PROTO_NONCE], struct err *e);

/* The process of the bundle's pid file; 0 when there is none. It may be somebody else's by now. */
pid_t bundle_pid(const char *bundle);
/* Append the last lines of <bundle>/log, printable and without `hide` (a directory of ours), or "no output". */
void bundle_words(const char *bundle, const char *hide, struct buf *out);
/* Its log, kept short. */
void bundle_trim(const char *bundle);
/* Call fn for the name of each bundle in dir. */
void bundle_each(const char *dir, void (*fn)(void *arg, const char *id), void *arg);

/* What another driver built is found and ended by that driver only: refuse to start while its directory `other` of this
 * node holds a bundle. */
int bundle_alone(const char *dir, const char *other, struct err *e);

/*
 * Two sandboxds of one host never use the same ids: each holds a lock on its part, for slots + 1 sandboxes (the last one is
 * for trying things out). The lock's descriptor, to be kept open, with the first id in *base; -1 with e.
 */
int bundle_uids(long long uid_base, long long uid_count, int slots, uid_t *base, struct err *e);
