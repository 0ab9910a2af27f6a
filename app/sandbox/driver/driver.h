/*
 * driver.h - what builds sandboxes on this host: one interface for every way of doing it. A driver knows resources, not
 * rows: it is given an id and makes, finds again and removes what belongs to it. Commands and files go over the box's
 * channel (sandbox/channel.h), for which the driver says where it is.
 *
 * All calls are safe from any thread for different ids; the caller (sandbox/fleet.c) runs one at a time per id.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "sandbox/channel.h"
#include "sandbox/netns.h"

struct driver_limits {
	long long memory_mb, cpu_milli, pids, disk_mb; /* disk: all writable file systems together */
};
/* What outlives a sandbox and is mounted into it. */
struct driver_mount {
	const char *volume; /* its name (volume.h), or NULL: */
	int64_t size_bytes;
	const char *host, *root; /* a directory of the host, in one that the deployment lists for the org */
	bool read_only;
	const char *at; /* inside; DRIVER_WORK, DRIVER_STATE or below DRIVER_MNT */
};
#define DRIVER_WORK  "/work"
#define DRIVER_STATE "/state"
#define DRIVER_MNT   "/mnt"
enum { DRIVER_MOUNTS_MAX = 32, DRIVER_VOLUMES_MAX = 2, DRIVER_SCRATCH_MAX = 2 };

struct driver_spec {
	const char *id;      /* sbx_…: random, of fixed length, ours (DRV-1) */
	const char *runtime; /* the boundary; "" is the host's default */
	const char *class, *workdir;
	const char *const *env; /* of every command, "NAME=value", ended by NULL */
	int slot;               /* which range of user ids */
	const struct driver_mount *mounts;
	size_t n_mounts;
	/* With a layout of mounts (SBX-32): where it has scratch space, instead of the driver's own place. Ended by NULL; NULL:
	 * there is no layout. */
	const char *const *scratch;
	/* What file requests may reach, and what they may only read; ended by NULL. NULL: the driver's scratch space, nothing. */
	const char *const *roots, *const *ro_roots;
	struct driver_limits limits;
	int64_t lease_ms, idle_ms;    /* after which the box ends itself; idle 0 is never */
	int64_t start_ms;             /* how long it may wait for its turn to start; 0: a minute */
	bool (*cancelled)(void *arg); /* asked several times a second while it is built; may be NULL */
	void *arg;
	/* Opened inside before any code runs there, on success the caller's; NULL: none are wanted. A driver without
	 * listen() leaves them as they are. */
	struct listeners *listeners;
	void (*listening)(
	    void *listening_arg); /* called once they are open, the rest still to come; may be NULL */
	void *listening_arg;
};
/* Where the box of a sandbox is. */
struct driver_box {
	struct channel_opts channel; /* socket_path points into `socket` */
	char socket[108];
	pid_t pid;         /* the sandbox's first process on the host */
	int pidfd;         /* readable when it has ended; close it */
	char workdir[256]; /* where the working directory really is; "" is where it was asked for */
	bool groups;       /* commands can be put into groups of their own (place, kill) */
};

struct driver {
	const char *name;
	/* Build and start it; the box does not answer yet. On failure nothing is left, and e says why: ERR_CONFLICT when the id
	 * is built already or the building was cancelled. */
	int (*create)(struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e);
	/* The box has answered: shut what only its start needed. */
	int (*settle)(struct driver *d, const char *id, struct err *e);
	/* A sandbox that an earlier process of this node built. ERR_NOT_FOUND when it is not there or has ended. */
	int (*find)(struct driver *d, const char *id, struct driver_box *box, struct err *e);
	/* Open its listeners anew, when the ones of its start are lost. ERR_CONFLICT when code inside has taken the port,
	 * ERR_NOT_FOUND when it has ended. NULL: this driver cannot hold a sandbox behind the egress boundary. */
	int (*listen)(struct driver *d, const char *id, const struct driver_box *box, struct listeners *l,
	    struct err *e);
	/* Remove everything of it, whatever state it is in, and make sure of it. Absent is 0. */
	int (*destroy)(struct driver *d, const char *id, int64_t deadline_ms, struct err *e);
	/* Put a process (its host pid) into a group named by the command. */
	int (*place)(struct driver *d, const char *id, const char *cmd, pid_t pid, struct err *e);
	/* Kill a command's group, or every command's (cmd NULL), and remove it. 0 also where there are no groups. */
	int (*kill)(struct driver *d, const char *id, const char *cmd, int64_t deadline_ms, struct err *e);
	/* Remove the groups of commands that have no process left; keep its log short. */
	void (*tidy)(struct driver *d, const char *id);
	/* Its last words: at most 20 lines of both streams, or "no output" (SBX-65). */
	void (*words)(struct driver *d, const char *id, struct buf *out);
	/* How often memory ran out in it; -1 where nobody counts. */
	long long (*oom_kills)(struct driver *d, const char *id);
	/* Call fn for the id of everything it built and that is not wholly removed, dead or alive. */
	void (*each)(struct driver *d, void (*fn)(void *arg, const char *id), void *arg);
	/* Runtimes that were run at start, ended by NULL ("" is the host's default); and why the others are not among them. */
	const char *const *(*offered)(struct driver *d);
	const char *(*refusal)(struct driver *d);
	/* Remove what the node itself keeps on the host; only once each() finds nothing any more. */
	int (*leave)(struct driver *d, int64_t deadline_ms, struct err *e);
	void (*free)(struct driver *d);
};
