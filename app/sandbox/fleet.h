/*
 * fleet.h - the sandboxes of this node, in gatehouse-sandboxd: built, used, watched, found again after a restart, ended.
 * Everything durable is in the rows and on the host; this is only what one process knows of it. One thing at a time is done
 * to a sandbox; any number of requests may use it meanwhile.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "io/pg.h"
#include "sandbox/channel.h"
#include "sandbox/driver/driver.h"
#include "sandbox/gate.h"
#include "sandbox/volume.h"

struct fleet;
struct fleet_opts { /* borrowed for the fleet's life */
	struct pg_pool *db;
	struct driver *driver; /* NULL: this node can build nothing, `refusal` says why */
	struct gate *gate;     /* NULL: nothing is ever let out */
	bool transparent;      /* clients that know no proxy are let out, too (EGR-16) */
	const char *node, *refusal;
	const struct volumes *volumes; /* NULL: this node has none */
	const char *mount_roots;       /* SANDBOX_MOUNT_ROOTS */
	int start_s, idle_s;
};
struct fleet *fleet_new(const struct fleet_opts *o);
/* For sandboxes built from now on (SIGHUP). */
void fleet_times(struct fleet *f, int start_s, int idle_s);
/* Its sandboxes go on running; the next sandboxd finds them. */
void fleet_free(struct fleet *f);

/* Build what a pending row asks for; the row is running or error afterwards, and on an error nothing is left (SBX-5). A
 * sandbox that is running already is 0. ERR_NOT_FOUND: there is no row, or none any more. */
int fleet_build(struct fleet *f, const char *id, struct err *e);
/* Remove a sandbox and close its row; 0 once it is really gone, also when it was gone before. */
int fleet_end(struct fleet *f, const char *id, struct err *e);
/* End every sandbox of this node and remove what the node keeps on the host: `gatehouse-sandboxd leave`. */
int fleet_leave(struct fleet *f, struct err *e);
/* The egress boundary of this node: "ok", "away", or "none" where the driver cannot have one. */
const char *fleet_egress(const struct fleet *f);
/* Delete a volume that was asked to be; absent is 0. ERR_CONFLICT while a sandbox has it. */
int fleet_purge(struct fleet *f, const char *org, const char *kind, const char *name, struct err *e);
/* One pass of the reaper (SBX-60): strays without a row, rows without a sandbox, leases past their end, starts that never
 * finished. Only ever called by one thread; safe beside everything else. -1 when the database did not answer. */
int fleet_round(struct fleet *f);

/* One look at commands that have ended unseen: what is left of those that were killed is swept up, who could not be killed costs the
 * sandbox (SBX-41). Channels that are gone are dialled again, so that boxes know that somebody is there (SBX-66). Only ever called
 * by one thread; a silent box holds up nobody else. */
void fleet_mind(struct fleet *f);

/* A sandbox in use: its channel stays open until it is given back. ERR_NOT_FOUND, ERR_CONFLICT (ending), ERR_UNAVAILABLE (no answer
 * from its box; or, with reason "node_starting", it is being built or looked for and soon known). */
struct held;
struct held *fleet_take(struct fleet *f, const char *id, struct err *e);
void fleet_give(struct held *h); /* NULL is fine */
struct channel *held_channel(struct held *h);
/* Put a command's first process into its own group: what channel_spec.place needs; 0 also where there are no groups. */
int held_place(struct held *h, const char *cmd, pid_t inner, struct err *e);
/* Kill what is left of a command's group and forget the group. */
void held_sweep(struct held *h, const char *cmd);
/* End the whole sandbox, with this reason on its row: where less is not enough. */
void held_condemn(struct held *h, const char *why);
long long held_oom_kills(struct held *h);
/* A command has begun, when the kernel had killed so often for memory. */
void held_began(struct held *h, const char *cmd, long long oom_kills);
/* Did the sandbox's memory run out while it ran? -1: it began before this process did. ended: it is over by now. */
int held_oom(struct held *h, const char *cmd, bool ended);
/* Is it being ended, or gone? What its commands die of from then on is that, also where the box is quick enough to tell. */
bool held_ending(struct held *h);
/* Why the channel was lost, as far as that is known within a moment: one line for the client. */
void held_why(struct held *h, struct buf *out);
/* Stop one command (by label), or all (NULL); *ended: how many that ended (SBX-44). */
int held_stop(struct held *h, const char *cmd, int *ended, struct err *e);
/* A new end of the lease, so far from now: in the box, which ends itself, and here. */
int held_renew(struct held *h, int64_t left_ms, struct err *e);
/* The box's number of a command by our label; ERR_NOT_FOUND. */
int held_find(struct held *h, const char *cmd, uint32_t *number, struct err *e);

static inline void auto_heldp(struct held **h)
{
	fleet_give(*h);
}
#define auto_held AUTO(auto_heldp)
