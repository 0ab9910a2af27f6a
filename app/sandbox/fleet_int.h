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
struct box {
	struct box *next;
	char id[ID_MAX];
	enum box_state state;
	bool cancel; /* BUILDING: somebody wants it ended */
	int users;   /* of this struct besides the list: it is freed when 0 and out of the list */
	bool listed;
	struct driver_box at;  /* LIVE; at.pidfd is -1 otherwise */
	struct line *line;     /* LIVE: the current one, or NULL */
	pthread_mutex_t dial;  /* held while a channel is opened */
	int64_t since_ms;      /* when this process first saw it */
	int64_t expires_ms;    /* monotonic: what was left then (REL-6) */
	const char *verdict;   /* GOING, RETRY: "ended" or "error" */
	bool has_row;          /* of the round under way */
	char why[ERR_MSG_MAX]; /* ended: empty */
};
struct fleet {
	struct fleet_opts o;
	_Atomic int start_s, idle_s;
	pthread_mutex_t lock; /* everything below, and the boxes' states */
	pthread_cond_t moved; /* a state changed, or the last user went */
	struct box *boxes;
	bool looked; /* the first round is done: what is not in the list is not on this node */
	int wake;    /* eventfd: the watcher is to look again */
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
void *fleet_watch(void *arg);
