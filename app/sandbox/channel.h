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
	const char *stdin_path; /* a file in the workspace; NULL too: /dev/null */
	int64_t timeout_ms;     /* measured by the box; 0: none */
	bool live;              /* hold the command back rather than lose output to this reader */
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
	int64_t age_ms;
	uint64_t oldest[2]; /* first offset still held, per stream */
	char label[PROTO_LABEL_MAX];
	struct channel_exit exit; /* bytes so far when running */
};
/* All commands the box knows, or one (cmd != 0; ERR_NOT_FOUND). *items is freed by the caller; the count, or
 * -1. */
int channel_list(struct channel *c, uint32_t cmd, const struct channel_wait *w, struct channel_item **items,
    struct err *e);

/* The pid on the host of a process of the sandbox whose first process is init (on the host); 0 when there is
 * none. */
pid_t channel_host_pid(pid_t init, pid_t inner);

/* ---- files: absolute paths inside the sandbox, or relative to its working directory. ERR_FORBIDDEN outside
 * the workspace, ERR_NOT_FOUND, ERR_CONFLICT (is a directory, is not one), ERR_STORAGE (disk full); e names `path` where it is at fault. */
struct channel_file {
	int kind; /* PROTO_KIND_* */
	unsigned mode;
	uint64_t size;
	int64_t mtime_ms;
	const char *name; /* "" for the path asked about; valid during the call-back */
};
/* on_entry is called for the path itself, then for each entry if it is a directory and entries is set
 * (unordered); -1 aborts. *cut: there were more than PROTO_ENTRIES_MAX. */
int channel_stat(struct channel *c, const char *path, bool entries, const struct channel_wait *w,
    int (*on_entry)(void *arg, const struct channel_file *f), void *arg, bool *cut, struct err *e);
/* A regular file's bytes from offset, at most length (-1: to its end). on_file once (may be NULL), then
 * on_data; -1 aborts. */
int channel_get(struct channel *c, const char *path, uint64_t offset, int64_t length,
    const struct channel_wait *w, int (*on_file)(void *arg, const struct channel_file *f),
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* Replace a file atomically, parents made. read: bytes, 0 at the end, -1 aborts (and nothing is left). mode
 * -1: that of the file before, else 0644. *size: bytes written. */
int channel_put(struct channel *c, const char *path, int mode, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *size, struct err *e);

/* ---- the sandbox's life */
int channel_lease(struct channel *c, int64_t left_ms, const struct channel_wait *w,
    struct err *e); /* a new end, from now */
int channel_end(struct channel *c, const struct channel_wait *w,
    struct err *e); /* kill everything and exit; waits for the hang-up */
