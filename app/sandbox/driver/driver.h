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

struct driver_limits {
	long long memory_mb, cpu_milli, pids, disk_mb; /* disk: all writable file systems together */
};
struct driver_spec {
	const char *id;      /* sbx_…: random, of fixed length, ours (DRV-1) */
	const char *runtime; /* the boundary; "" is the host's default */
	const char *class, *workdir;
	const char *const *env; /* of every command, "NAME=value", ended by NULL */
	int slot;               /* which range of user ids */
	struct driver_limits limits;
	int64_t lease_ms, idle_ms; /* after which the box ends itself; idle 0 is never */
};
/* Where the box of a sandbox is. */
struct driver_box {
	struct channel_opts channel; /* socket_path points into `socket` */
	char socket[108];
	pid_t pid;   /* the sandbox's first process on the host */
	int pidfd;   /* readable when it has ended; close it */
	bool groups; /* commands can be put into groups of their own (place, kill) */
};

struct driver {
	const char *name;
	/* Build and start it; the box does not answer yet. On failure nothing is left, and e says why. */
	int (*create)(struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e);
	/* The box has answered: shut what only its start needed. */
	int (*settle)(struct driver *d, const char *id, struct err *e);
	/* A sandbox that an earlier process of this node built. ERR_NOT_FOUND when it is not there or has ended. */
	int (*find)(struct driver *d, const char *id, struct driver_box *box, struct err *e);
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
