/*
 * channel.h - sandboxd's side of the one channel to a sandbox's gatehouse-box (SBX-63).
 *
 * Safe to use from any number of threads; one thread per channel does the reading. Nothing the box says is
 * believed: lengths, ids, offsets and credit are checked, and the first frame that is wrong closes the
 * channel. Once it is lost every call on it answers ERR_UPSTREAM with reason "lost": what a command did after
 * that is unknown (SBX-40), never a success. Commands go on in the box; open a new channel and channel_resume
 * them.
 *
 * Every call that waits takes a struct channel_wait. Past its deadline the answer is ERR_TIMEOUT; cancelled,
 * it is ERR_TIMEOUT with reason "cancelled".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/proto.h"

struct channel;

struct channel_wait {
	int64_t deadline_ms;          /* clock_ms() */
	bool (*cancelled)(void *arg); /* asked about every 200 ms; may be NULL */
	void *arg;
	/* Of a file on its way: the longest time in which nothing of it moves, in place of the deadline; 0: the deadline. */
	int quiet_ms;
};

struct channel_opts {
	const char *socket_path;
	uid_t sandbox_uid; /* on the host; the socket and its listener must belong to it, to root or to us */
	uid_t
	    sandbox_uids; /* how many from there on are the sandbox's: gVisor's helper is another of them; 0 is 1 */
	pid_t box_pid; /* of the box on the host: the listener must be it; 0 where that is hidden (gVisor) */
	unsigned char nonce[PROTO_NONCE];
	int silence_ms; /* a box that says nothing for so long, though asked, is lost (code in gVisor can stop pid 1); 0: 30 s */
};
/* Look at the socket, connect, exchange hellos. NULL with e: ERR_UNAVAILABLE when nobody listens (yet),
 * ERR_UPSTREAM for a peer that is not our box. */
struct channel *channel_open(const struct channel_opts *o, const struct channel_wait *w, struct err *e);
/* Hang up and free. Every handle made from it must be closed first. */
void channel_close(struct channel *c);
bool channel_lost(struct channel *c);
int channel_ping(struct channel *c, const struct channel_wait *w, struct err *e);

/* ---- commands */
struct channel_spec {            /* strings are borrowed for the call */
	const char *const *argv; /* ended by NULL */
	const char *const *env;  /* "NAME=value", ended by NULL; NULL: nothing besides the lease's */
	const char *dir;         /* NULL: the working directory */
	const char *label;       /* our name for it, told by channel_list; shorter than PROTO_LABEL_MAX */
	const void *stdin_p;     /* at most PROTO_STDIN_MAX bytes; NULL: see stdin_path */
	size_t stdin_n;
	const char *stdin_path; /* a file in the workspace; NULL too: /dev/null, unless: */
	bool stdin_open;        /* it is written to while the command runs, with channel_input */
	bool
	    pty; /* instead it has a terminal of this size, written to with channel_input; its output is stream 1 */
	uint16_t cols, rows;
	int64_t timeout_ms; /* measured by the box; 0: none */
	bool live;          /* hold the command back rather than lose output to this reader */
	/* Move the process into its cgroup: called once between fork and exec, with its pid inside the
	 * sandbox (see channel_host_pid). -1 with e set ends the command unstarted. NULL: it is started at
	 * once. */
	int (*place)(void *arg, uint32_t cmd, pid_t pid, struct err *e);
	void *arg;
};
/* A command and our reading position in its output. One thread at a time may use it. */
struct channel_cmd;

/* Start and read from its first byte. The command outlives the handle (SBX-42). NULL with e: ERR_BAD_REQUEST,
 * ERR_NOT_FOUND or ERR_FORBIDDEN (dir, stdin_path), ERR_UNAVAILABLE (no processes or memory left in there):
 * it did not run; lost or timed out: it may have. */
struct channel_cmd *channel_start(
    struct channel *c, const struct channel_spec *s, const struct channel_wait *w, struct err *e);
/* Read a command again, also a finished one, from these offsets of stdout and stderr (what is no longer held
 * is skipped). An id that the box does not know fails in channel_next with ERR_NOT_FOUND. */
struct channel_cmd *channel_resume(
    struct channel *c, uint32_t cmd, const uint64_t from[2], bool live, struct err *e);
/* The same, but only its exit is told: for a caller that wants nothing but the tail, afterwards. */
struct channel_cmd *channel_follow(struct channel *c, uint32_t cmd, struct err *e);
void channel_cmd_close(struct channel_cmd *k); /* NULL is fine; the command goes on */

uint32_t channel_cmd_id(const struct channel_cmd *k);
pid_t channel_cmd_pid(const struct channel_cmd *k); /* inside the sandbox; 0 when resumed */

struct channel_exit {
	enum proto_how how;
	int exit_code;   /* also 126 and 127; -1 when a signal ended it */
	char signal[16]; /* "SIGKILL", or "" */
	bool timed_out, stopped;
	bool escaped; /* not everything of it could be killed: destroy the sandbox */
	int64_t duration_ms;
	uint64_t bytes[2]; /* everything it wrote to stdout and stderr */
	char message[PROTO_MESSAGE_MAX];
};
struct channel_event {
	enum { CHANNEL_NOTHING, CHANNEL_OUT, CHANNEL_EXIT } type;
	int stream;      /* OUT: 1 stdout, 2 stderr */
	uint64_t offset; /* OUT: of its first byte; a jump means that bytes in between are no longer held */
	const char *p;   /* OUT: valid until the next channel_next on this handle */
	size_t n;
	struct channel_exit exit; /* EXIT: the last event, after all output; asked again, it is told again */
};
/* The next event. CHANNEL_NOTHING when none came by the deadline or w->cancelled said so: both are up to the
 * caller. */
int channel_next(
    struct channel_cmd *k, const struct channel_wait *w, struct channel_event *ev, struct err *e);

/* Kill one command's whole tree, or everything (SBX-44); waits until they are gone. *ended: how many commands
 * that ended. */
int channel_stop_one(
    struct channel *c, uint32_t cmd, const struct channel_wait *w, int *ended, struct err *e);
int channel_stop(struct channel *c, const struct channel_wait *w, int *ended, struct err *e);

struct channel_item {
	uint32_t cmd;
	pid_t pid; /* inside the sandbox */
	bool running;
	int64_t age_ms;     /* since its start */
	uint64_t oldest[2]; /* first offset still held, per stream */
	char label[PROTO_LABEL_MAX];
	struct channel_exit exit; /* bytes so far when running */
	bool pty;
	enum proto_in_state in_state;
	uint64_t in_bytes; /* taken by its standard input */
	/* What it was started with, unless the box is of version 1: bytes, not text. */
	bool cut; /* there was more than is told */
	uint32_t n_args;
	char args[PROTO_TOLD_MAX]; /* n_args strings with their NULs, one behind the other */
	char dir[PROTO_TOLD_MAX + 1];
};
/* All commands the box knows, or one (cmd != 0; ERR_NOT_FOUND). *items is freed by the caller; the count, or
 * -1. */
int channel_list(struct channel *c, uint32_t cmd, const struct channel_wait *w, struct channel_item **items,
    struct err *e);

/* Give a command's open standard input n bytes, and then close it if `close` is set and all were taken. at: where the first of
 * them belongs in all that it is given; PROTO_APPEND. Waits for a command that does not read until w is over: *taken tells how
 * many of these bytes it has got by then (the call is 0; some more may be in its pipe, unread). ERR_CONFLICT: it is not open, nobody
 * reads it any more, or it stands at another offset; ERR_NOT_FOUND. Lost: reason "lost", and *taken is a lower bound. */
struct channel_input {
	uint32_t cmd;
	const void *p;
	size_t n;
	bool close;
	uint64_t at;
};
int channel_input(struct channel *c, const struct channel_input *in, const struct channel_wait *w,
    uint64_t *taken, struct err *e);
/* A new size of its terminal. ERR_CONFLICT: it has none, or nothing has that open any more. */
int channel_resize(
    struct channel *c, const struct proto_resize *s, const struct channel_wait *w, struct err *e);
/* Send a signal (1…64). *processes: how many it went to; 0 is a true answer (they had ended). SIGKILL to the tree waits until it
 * is gone. */
int channel_signal(struct channel *c, uint32_t cmd, int sig, enum proto_to to, const struct channel_wait *w,
    int *processes, struct err *e);

/* The pid on the host of a process of the sandbox whose first process is init (on the host); 0 when there is
 * none. */
pid_t channel_host_pid(pid_t init, pid_t inner);

/* ---- files: absolute paths inside the sandbox, or relative to its working directory. ERR_FORBIDDEN outside
 * the workspace, ERR_NOT_FOUND, ERR_CONFLICT (is a directory, is not one), ERR_STORAGE (disk full); e names `path` where it is at fault. */
struct channel_file {
	unsigned mode;
	uint64_t size;
	int64_t mtime_ms;
};
struct channel_node {    /* strings are valid during the call-back */
	int kind;        /* PROTO_KIND_* */
	int target_kind; /* of a link: what it leads to; 0: nothing, or something outside */
	unsigned mode;
	uint64_t size;
	int64_t mtime_ms;
	const char *path;   /* from the path asked about; "" for that itself */
	const char *target; /* of a link: what it says; "" otherwise */
};
struct channel_look {
	const char *path;
	int depth; /* 0: only what it is itself, a link too; 1: what is in it …, up to PROTO_DEPTH_MAX */
	int nodes; /* at most so many below it, up to PROTO_ENTRIES_MAX */
};
/* on_node is called for the path itself, then for what is below it, each directory before what is in it and unsorted; -1 aborts.
 * *cut (may be NULL): there was more. */
int channel_look(struct channel *c, const struct channel_look *l, const struct channel_wait *w,
    int (*on_node)(void *arg, const struct channel_node *n), void *arg, bool *cut, struct err *e);
/* Make a directory and those above it; mode -1: 0755. *made: it was not there before. ERR_CONFLICT: something else is. */
int channel_mkdir(
    struct channel *c, const char *path, int mode, const struct channel_wait *w, bool *made, struct err *e);
/* In one step, a link itself and not what it leads to; directories above `to` are made. ERR_CONFLICT: there is something at `to`, and
 * without `replace` nothing is replaced; or they are on different disks. */
int channel_move(struct channel *c, const char *from, const char *to, bool replace,
    const struct channel_wait *w, struct err *e);
/* A link itself; a directory with something in it only with `tree`. *count: how many things went. What is removed before an error
 * is gone. */
int channel_remove(struct channel *c, const char *path, bool tree, const struct channel_wait *w,
    uint64_t *count, struct err *e);
struct channel_change { /* strings are valid during the call-back */
	enum proto_what what;
	bool dir;
	const char *path; /* from the path that is watched; "" for that itself */
	const char *from; /* PROTO_RENAMED: where it was; "" otherwise */
};
/* Tell changes below a path as they happen, in a whole tree if recursive; on_change -1 aborts. PROTO_WATCHED comes first: everything
 * after it is told, but for an PROTO_OVERFLOW. 0: the path itself is gone (its PROTO_REMOVED was told). */
int channel_watch(struct channel *c, const char *path, bool recursive, const struct channel_wait *w,
    int (*on_change)(void *arg, const struct channel_change *n), void *arg, struct err *e);
/* A regular file's bytes from offset, at most length (-1: to its end). on_file once (may be NULL), then
 * on_data; -1 aborts. */
int channel_get(struct channel *c, const char *path, uint64_t offset, int64_t length,
    const struct channel_wait *w, int (*on_file)(void *arg, const struct channel_file *f),
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* Replace a file atomically, parents made. read: bytes, 0 at the end, -1 aborts (and nothing is left). mode
 * -1: that of the file before, else 0644. *size: bytes written. */
int channel_put(struct channel *c, const char *path, int mode, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *size, struct err *e);

/* A folder as a tar, what is in it at its top. An error after the first on_data: the archive has no end. */
int channel_pack(struct channel *c, const char *path, const struct channel_wait *w,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* The other way, into a folder that is made if need be. e names the entry that could not be made; those before it stay. */
int channel_unpack(struct channel *c, const char *path, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *entries, struct err *e);

/* ---- the sandbox's life */
int channel_lease(struct channel *c, int64_t left_ms, const struct channel_wait *w,
    struct err *e); /* a new end, from now */
int channel_end(struct channel *c, const struct channel_wait *w,
    struct err *e); /* kill everything and exit; waits for the hang-up */
