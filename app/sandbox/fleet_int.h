/* fleet_int.h - shared between the files of the fleet only. */
#pragma once

#include <pthread.h>

#include "base/id.h"
#include "sandbox/fleet.h"

enum { FLEET_CALL_MS = 5000, FLEET_END_MS = 15000, FLEET_PENDING_MS = 15000 };

enum box_state {
	BOX_AWAITED,  /* a pending row that nobody here is building (yet) */
	BOX_BUILDING, /* by one thread */
	BOX_LIVE,
	BOX_GOING, /* being removed by one thread */
	BOX_RETRY, /* its removal, or the word of it to its row, did not succeed: the next round tries again */
};

/* One open channel. A lost one stays until its last user has given it back. */
struct line {
	struct channel *channel;
	int users;
	bool retired;
};
/* What this process knows of a command besides what its box tells. */
struct mark {
	char cmd[ID_MAX];
	unsigned number;      /* they are counted */
	long long oom_before; /* -1: unknown */
	bool over, oom;       /* over: its end was seen, and so oom is settled */
	bool swept;           /* over, and what had to be done then is done */
};
enum { MARKS_MAX = 2 * PROTO_COMMANDS_MAX }; /* as many as a box tells of */
struct box {
	struct box *next;
	char id[ID_MAX];
	enum box_state state;
	bool cancel; /* BUILDING: somebody wants it ended */
	int users;   /* of this struct besides the list: it is freed when 0 and out of the list */
	bool listed;
	bool keeps;           /* it has mounts, or an earlier process built it and nobody knows */
	struct driver_box at; /* LIVE; at.pidfd is -1 otherwise */
	struct line *line;    /* LIVE: the current one, or NULL */
	pthread_mutex_t dial; /* held while a channel is opened */
	int64_t since_ms;     /* when this process first saw it */
	int64_t expires_ms;   /* monotonic: what was left then (REL-6) */
	const char *verdict;  /* GOING, RETRY: "ended" or "error" */
	bool has_row;         /* of the round under way */
	struct mark *marks;   /* MARKS_MAX, the oldest are overwritten; NULL: none yet */
	unsigned next_mark;
	bool minded;           /* its commands were looked at since this process found it */
	char why[ERR_MSG_MAX]; /* ended: empty */
};
struct fleet {
	struct fleet_opts o;
	_Atomic int start_s, idle_s;
	pthread_mutex_t lock; /* everything below, and the boxes' states */
	pthread_cond_t moved; /* a state changed, or the last user went */
	struct box *boxes;
	int64_t measured_ms; /* when the volumes were last measured; the reaper's own */
	bool looked;         /* the first round is done: what is not in the list is not on this node */
	int wake;            /* eventfd: the watcher is to look again */
	bool stop;
	pthread_t watcher;
};
struct held {
	struct fleet *f;
	struct box *box;
	struct line *line;
};

/* All with f->lock held. */
struct box *box_by_id(struct fleet *f, const char *id);
struct box *box_new(struct fleet *f, const char *id, enum box_state state);
void box_state_set(struct fleet *f, struct box *b, enum box_state state);
void box_let_go(struct fleet *f, struct box *b); /* one user less */
/* Wait until fn(b) or the deadline; f->lock is released meanwhile. */
bool box_wait(struct fleet *f, struct box *b, bool (*fn)(const struct box *b), int64_t deadline_ms);

/* Without the lock. Remove what there is of a GOING box and close its row with the verdict; afterwards it is unlisted, or
 * RETRY when something could not be removed or written. */
int box_bury(struct fleet *f, struct box *b, struct err *e);
/* Write the row's end; -1 when the database cannot be asked. */
int box_close_row(struct fleet *f, const char *id, const char *verdict, const char *why, struct err *e);
/* Drop a box that nothing stands behind. */
void box_forget(struct fleet *f, struct box *b);
/* Find a running sandbox of an earlier process; -1 when it is not there. */
int box_adopt(struct fleet *f, struct box *b, struct err *e);
void fleet_wake(struct fleet *f);

/* ---- fleet_gate.c: the egress boundary of the sandboxes. Without the lock. */
/* Can this node hold a sandbox behind the boundary? */
bool fleet_gated(const struct fleet *f);
/* May a sandbox with this policy be built now? ERR_BAD_REQUEST naming `network` when the driver cannot enforce it,
 * ERR_UNAVAILABLE while egress is away. Deny-all always may, and NULL: nothing is promised (DRV-0). */
int box_admit(struct fleet *f, const char *network, struct err *e);
/* Under a policy that lets something out, tools that know no proxy are caught, too (EGR-16). Under deny-all there would be
 * nothing to catch but connections that are better refused at once. */
bool box_transparent(const struct fleet *f, const char *network);
/* Its listeners on their way to egress, while the runtime starts it: that takes longer than egress does to read its policy. */
struct handing {
	struct fleet *f;
	const struct box *b;
	struct listeners l;
	bool begun, threaded;
	pthread_t thread;
	int rc;
	struct err why;
};
void box_hand_over(void *handing); /* driver_spec.listening */
/* Wait for its end. *held: they are there. With deny-all it does not matter whether egress has taken them: it is given them as soon as
 * it does; with another policy it is an error. Call it in any case. */
int box_handed_over(struct handing *h, const char *network, bool *held, struct err *e);
/* The listeners of a live sandbox are held, found again or opened anew: whatever died, this brings them back. -1 with e when
 * something inside has taken their place. */
int box_regain(struct fleet *f, struct box *b, struct err *e);
/* What egress holds of sandboxes that have ended meanwhile. */
void fleet_strays(struct fleet *f);
void *fleet_watch(void *arg);

/* ---- fleet_volume.c: what outlives the sandboxes. Without the lock. */
/* What a row keeps and mounts, into the spec. */
struct row_keeps {
	const char *org, *project, *state_of; /* NULL: none */
	const char *mounts;                   /* checked layout, or empty */
	int64_t project_bytes, state_bytes;
};
int box_mounts(
    struct fleet *f, struct mem *m, const struct row_keeps *k, struct driver_spec *s, struct err *e);
/* The volumes that are due to be deleted, the day they were last used on, and how large they are. */
void fleet_volumes(struct fleet *f);
/* What runs was leased today. */
void fleet_volumes_used(struct fleet *f);
/* A sandbox is gone from the host: what its volumes take now. Before its row is closed. */
void fleet_volumes_left(struct fleet *f, const char *sandbox);
/* A lease that was to make a volume has failed: not even that is left. */
void fleet_volumes_unmade(struct fleet *f);
