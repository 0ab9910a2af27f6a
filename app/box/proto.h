/*
 * proto.h - what gatehouse-sandboxd and gatehouse-box say to each other over the box's unix socket (SBX-63),
 * and how the box is configured. Used by both sides; no allocation, no I/O.
 *
 * A frame is `u32 length of the payload, u8 type, 3 zero bytes, u32 id, payload`, everything little-endian.
 * Ids are chosen by the client, rise (HELLO_OK says the highest one seen, so that they go on rising after a
 * reconnect), and name a command (START), or any other request. Each request gets exactly one last frame:
 * STARTED, EXIT, DONE or ERROR.
 *
 *   client -> box                                   box -> client, same id                          last
 * frame HELLO     magic, version, knock                 - HELLO_OK PING      - - DONE START     struct
 * proto_start                    -                                               STARTED pid GO        (id of
 * a held command: exec now)      -                                               - STDIN     bytes; empty:
 * end of input            -                                               - SUB       struct proto_sub OUT
 * stream, offset, bytes (within credit)       EXIT STOP      cmd (0: all), why                     -
 * (answered when they are gone)                 DONE count LIST      cmd (0: all) LISTED items DONE count
 *   LOOK      struct proto_look                     NODES (the place itself comes first)            DONE (1:
 * cut short) MKDIR     path, mode                          -                                   DONE (1: made,
 * 0: was there) MOVE      from, to, replace                   -                                   DONE
 *   REMOVE    path, whole tree                      -                                               DONE count
 *   PACK      path, credit                          DATA offset, bytes of a tar (within credit)     DONE bytes
 *   UNPACK    path                                  CREDIT (as of WRITE)                            DONE
 * entries
 *   WATCH     path, whole tree, credit              CHANGES, WATCHED first (within credit)          DONE (the
 * place is gone)
 *   READ      path, offset, length, credit          FILE, DATA offset, bytes (within credit) DONE
 * bytes WRITE     path, mode                            CREDIT (PROTO_WINDOW is granted to start with)  DONE
 * bytes DATA      (id of a WRITE or UNPACK) bytes; empty: end     -                                               -
 *   CREDIT    (id of a SUB or READ) bytes           -                                               -
 *   CANCEL    (any request id; no answer if over)   -                                               DONE
 *   INPUT     struct proto_input, bytes             - (answered when all are taken, or cancelled)   DONE
 * bytes SIGNAL    struct proto_signal                   -                                               DONE
 * processes RESIZE    struct proto_resize               -                                           DONE
 *   LEASE     milliseconds from now                 -                                               DONE
 *   END       -                                     the box kills everything and exits              -
 *
 * ERROR with id 0 is about the connection and its last frame. A box accepts one client at a time: a new HELLO
 * with the right knock replaces the connection before it. Commands belong to the box, not to the connection.
 *
 * Versions: HELLO names the newest that the client speaks, HELLO_OK the one that both will. A box of version 1 refuses any
 * other number and hangs up, so it is dialled again with that. Version 2 adds INPUT, SIGNAL, RESIZE, PROTO_STDIN_PIPE and
 * _PTY, the second half of struct proto_item, and LOOK and all that follows it in place of what was STAT.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	PROTO_VERSION = 2,
	PROTO_OLDEST = 1, /* still spoken: a box outlives an upgrade of sandboxd */
	PROTO_CONFIG_VERSION = 2,
	PROTO_MAGIC = 0x58424847, /* "GHBX" */
	PROTO_HEAD = 12,
	PROTO_NONCE = 32,           /* the first half is the client's knock, the second the box's answer */
	PROTO_DATA_MAX = 64 * 1024, /* bytes of output or file in one frame */
	PROTO_REPLY_MAX = PROTO_DATA_MAX + 64, /* payload of a frame from the box */
	PROTO_START_MAX = 2 << 20,             /* payload of a frame to the box */
	PROTO_STDIN_MAX = 1 << 20,             /* fed standard input of one command; more comes from a file */
	PROTO_WINDOW = 256 * 1024,             /* credit of a stream when nothing else is said */
	PROTO_ARGS_MAX = 4096,                 /* strings of argv, and of env */
	PROTO_LABEL_MAX = 40,                  /* with its NUL */
	PROTO_MESSAGE_MAX = 200,
	PROTO_TOLD_MAX = 1024,         /* of a command's arguments, and of its directory, told by LIST */
	PROTO_ENTRIES_MAX = 10000,     /* of one directory listing */
	PROTO_DEPTH_MAX = 16,          /* directories below each other in one */
	PROTO_LOOK_BYTES = 4 << 20,    /* of NODES that answer one LOOK */
	PROTO_COMMANDS_MAX = 64,       /* running at once, and finished ones kept */
	PROTO_ROOTS_MAX = 40,          /* of each of the two lists */
	PROTO_CONFIG_MAX = 256 * 1024, /* of the whole configuration */
};

/* Values on the wire are never reused (9 and 70 were): a box outlives an upgrade of sandboxd. */
enum proto_type {
	PROTO_HELLO = 1,
	PROTO_PING = 2,
	PROTO_START = 3,
	PROTO_GO = 4,
	PROTO_STDIN = 5,
	PROTO_SUB = 6,
	PROTO_STOP = 7,
	PROTO_LIST = 8,
	PROTO_READ = 10,
	PROTO_WRITE = 11,
	PROTO_DATA = 12,   /* both directions */
	PROTO_CREDIT = 13, /* both directions */
	PROTO_CANCEL = 14,
	PROTO_LEASE = 15,
	PROTO_END = 16,
	PROTO_INPUT = 17,
	PROTO_SIGNAL = 18,
	PROTO_RESIZE = 19,
	PROTO_LOOK = 32,
	PROTO_MKDIR = 33,
	PROTO_MOVE = 34,
	PROTO_REMOVE = 35,
	PROTO_WATCH = 36,
	PROTO_PACK = 37,
	PROTO_UNPACK = 38,
	PROTO_HELLO_OK = 64,
	PROTO_STARTED = 65,
	PROTO_OUT = 66,
	PROTO_EXIT = 67,
	PROTO_LISTED = 68,
	PROTO_FILE = 69,
	PROTO_DONE = 71,
	PROTO_ERROR = 72,
	PROTO_NODES = 96,
	PROTO_CHANGES = 97,
};

/* ---- bytes in and out. A writer or reader that ran over its end is `bad` and stays so; check once, at the
 * end. */
struct proto_out {
	unsigned char *p;
	size_t n, cap;
	bool bad;
};
struct proto_in {
	const unsigned char *p;
	size_t n; /* bytes left */
	bool bad;
};
void proto_put_u8(struct proto_out *o, uint8_t v);
void proto_put_u32(struct proto_out *o, uint32_t v);
void proto_put_u64(struct proto_out *o, uint64_t v);
void proto_put_bytes(struct proto_out *o, const void *p, size_t n); /* no length */
void proto_put_str(struct proto_out *o, const char *s); /* u32 length, bytes, NUL; NULL becomes "" */
uint8_t proto_get_u8(struct proto_in *i);
uint32_t proto_get_u32(struct proto_in *i);
uint64_t proto_get_u64(struct proto_in *i);
/* The next n bytes, or NULL (bad). */
const unsigned char *proto_get_bytes(struct proto_in *i, size_t n);
/* A string inside the payload, without NULs of its own; "" when bad. */
const char *proto_get_str(struct proto_in *i);
/* True when all was well and nothing is left over. */
bool proto_in_end(const struct proto_in *i);

struct proto_head {
	uint32_t length, id;
	uint8_t type;
};
void proto_head_put(unsigned char to[PROTO_HEAD], uint8_t type, uint32_t id, uint32_t length);
/* False for reserved bytes that are not zero or a payload over max. */
bool proto_head_get(const unsigned char from[PROTO_HEAD], uint32_t max, struct proto_head *h);

/* ---- payloads. Strings of a decoded payload point into it; *_get is false when it is malformed. */
/* FED is whole before the command begins, PIPE is written to while it runs, PTY is a terminal and its output, too. */
enum proto_stdin { PROTO_STDIN_NULL, PROTO_STDIN_FED, PROTO_STDIN_FILE, PROTO_STDIN_PIPE, PROTO_STDIN_PTY };
struct proto_start {
	uint64_t timeout_ms; /* 0: none (the lease still ends it) */
	uint8_t stdin_kind;
	uint16_t cols, rows; /* of a PTY: told with that only */
	bool hold;           /* wait for GO before exec: its cgroup is being made */
	const char *label;   /* the caller's own name for it, told by LIST; shorter than PROTO_LABEL_MAX */
	const char *dir;     /* "": the working directory of the configuration */
	const char *stdin_path;
	uint32_t n_argv, n_env;
	const char *const *argv;         /* encoding only */
	const char *const *env;          /* encoding only; "NAME=value", laid over the lease's environment */
	struct proto_in argv_in, env_in; /* decoding only: checked sequences for proto_get_str */
};
void proto_start_put(struct proto_out *o, const struct proto_start *s);
bool proto_start_get(struct proto_in *i, struct proto_start *s);

enum { PROTO_STDOUT = 1, PROTO_STDERR = 2 };
struct proto_sub {
	uint32_t cmd, credit;
	uint8_t streams; /* mask; 0: only the exit is told */
	bool live; /* hold the command back rather than lose output (a reader that stands still loses this
		      again) */
	uint64_t from[2]; /* absolute offsets into stdout and stderr */
};
void proto_sub_put(struct proto_out *o, const struct proto_sub *s);
bool proto_sub_get(struct proto_in *i, struct proto_sub *s);

enum proto_how {
	PROTO_RUNNING,        /* only in LISTED */
	PROTO_EXITED,         /* code is the exit status */
	PROTO_SIGNALED,       /* code is the signal's number */
	PROTO_NOT_FOUND,      /* 127 */
	PROTO_NOT_EXECUTABLE, /* 126 */
};
enum {
	PROTO_TIMED_OUT = 1,
	PROTO_STOPPED = 2,
	PROTO_ESCAPED = 4, /* something of it could not be killed: the sandbox must go */
};
struct proto_exit {
	uint8_t how, flags;
	uint32_t code;
	uint64_t duration_ms;
	uint64_t bytes[2];   /* everything it wrote, whether still held or not */
	const char *message; /* for NOT_FOUND and NOT_EXECUTABLE; shorter than PROTO_MESSAGE_MAX */
};
void proto_exit_put(struct proto_out *o, const struct proto_exit *x);
bool proto_exit_get(struct proto_in *i, struct proto_exit *x);

#define PROTO_APPEND UINT64_MAX
struct proto_input { /* followed by at most PROTO_DATA_MAX bytes for the command's standard input */
	uint32_t cmd;
	bool close;  /* its end comes after these bytes */
	uint64_t at; /* where they belong in all that it is given, or PROTO_APPEND */
};
void proto_input_put(struct proto_out *o, const struct proto_input *s); /* without the bytes */
bool proto_input_get(struct proto_in *i, struct proto_input *s);        /* they are what is left */

enum proto_to {
	PROTO_TO_PROCESS = 1, /* the command itself */
	PROTO_TO_GROUP = 2,   /* its process group, as a terminal would */
	PROTO_TO_TREE = 3,    /* everything that it has started; SIGKILL: until nothing is left */
};
struct proto_signal {
	uint32_t cmd;
	uint8_t signal; /* 1…64 */
	uint8_t to;
};
void proto_signal_put(struct proto_out *o, const struct proto_signal *s);
bool proto_signal_get(struct proto_in *i, struct proto_signal *s);

struct proto_resize { /* of its terminal */
	uint32_t cmd;
	uint16_t cols, rows;
};
void proto_resize_put(struct proto_out *o, const struct proto_resize *s);
bool proto_resize_get(struct proto_in *i, struct proto_resize *s);

enum proto_in_state {
	PROTO_IN_NONE, /* it was not started with PROTO_STDIN_PIPE */
	PROTO_IN_OPEN,
	PROTO_IN_CLOSED, /* as we asked, or by the command's end */
	PROTO_IN_BROKEN, /* nothing in there reads it any more */
};
struct
    proto_item { /* LISTED is u32 count and that many of these; from version 2 on, several LISTED may come */
	uint32_t cmd, pid;  /* pid in the sandbox's namespace */
	uint64_t age_ms;    /* since its start */
	uint64_t oldest[2]; /* the first offset still held, per stream */
	const char *label;
	struct proto_exit exit; /* how is PROTO_RUNNING while it runs; bytes so far */
	/* Version 2: */
	uint8_t in_state;
	uint64_t in_bytes; /* given to its standard input, and taken */
	bool pty;          /* it has a terminal */
	bool cut;          /* arguments or directory are longer than is told */
	const char *dir;   /* as asked for; "": the working directory; at most PROTO_TOLD_MAX bytes */
	uint32_t n_args;
	const char *args;        /* encoding only: n_args strings with their NULs, one behind the other */
	struct proto_in args_in; /* decoding only */
};
void proto_item_put(struct proto_out *o, const struct proto_item *t, uint32_t version);
bool proto_item_get(struct proto_in *i, struct proto_item *t, uint32_t version);

enum {
	PROTO_KIND_FILE = 1,
	PROTO_KIND_DIR = 2,
	PROTO_KIND_LINK = 3,
	PROTO_KIND_OTHER = 4
};                  /* 3, 4: nodes only */
struct proto_file { /* FILE */
	uint8_t kind;
	uint32_t mode; /* permission bits */
	uint64_t size;
	int64_t mtime_ms;
	const char *name;
};
void proto_file_put(struct proto_out *o, const struct proto_file *f);
bool proto_file_get(struct proto_in *i, struct proto_file *f);

struct proto_look {
	const char *path;
	uint8_t
	    depth; /* 0: only the place itself, and a link at its end is not followed; 1: what is in it; … PROTO_DEPTH_MAX */
	uint32_t nodes; /* at most so many below it, up to PROTO_ENTRIES_MAX */
};
void proto_look_put(struct proto_out *o, const struct proto_look *l);
bool proto_look_get(struct proto_in *i, struct proto_look *l);

struct proto_node { /* NODES are any number */
	uint8_t kind;
	uint8_t target_kind; /* of a link: what stands where it leads; 0: nothing, or outside */
	uint32_t mode;       /* permission bits */
	uint64_t size;
	int64_t mtime_ms;
	const char *path;   /* from the place asked about; "" for that itself */
	const char *target; /* of a link: what it says; "" otherwise */
};
void proto_node_put(struct proto_out *o, const struct proto_node *n);
bool proto_node_get(struct proto_in *i, struct proto_node *n);

enum proto_what {
	PROTO_WATCHED = 1, /* from now on everything is told; the first, and once */
	PROTO_CREATED,     /* also what came from where nobody watches */
	PROTO_WRITTEN,
	PROTO_REMOVED, /* also what went there */
	PROTO_RENAMED,
	PROTO_CHMOD,    /* permissions, times or links changed */
	PROTO_OVERFLOW, /* something was not told: look for yourself */
};
struct proto_change { /* CHANGES are any number */
	uint8_t what;
	bool dir;
	const char *path; /* from the place that is watched; "" for that itself */
	const char *from; /* RENAMED: where it was; "" otherwise */
};
void proto_change_put(struct proto_out *o, const struct proto_change *c);
bool proto_change_get(struct proto_in *i, struct proto_change *c);

enum proto_fault {     /* ERROR is u8 fault, string message */
	PROTO_BAD = 1, /* the request makes no sense */
	PROTO_MISSING = 2,
	PROTO_OUTSIDE = 3, /* a path that is not in the workspace */
	PROTO_CONFLICT = 4,
	PROTO_TOO_LARGE = 5,
	PROTO_NO_ROOM = 6, /* no memory, processes or descriptors: another time it may work */
	PROTO_INTERNAL = 7,
	PROTO_FULL = 8, /* no disk: it will not work until something is removed */
};
/* The error a fault becomes for callers; an unknown one is ERR_UPSTREAM. */
enum err_code proto_fault_code(uint8_t fault);

/* ---- the configuration, written to the box's descriptor 0 and read from there to its end, once (SBX-66,
 * SBX-25). */
struct proto_config {
	unsigned char nonce[PROTO_NONCE];
	const char *socket_path; /* as the box sees it */
	const char *class;
	const char *workdir;
	/* A file of the image that must begin with this text (its version and class, SBX-25); path "" checks
	 * nothing. */
	const char *check_path, *check_text;
	uint64_t lease_ms; /* from now until it ends itself */
	uint64_t idle_ms;  /* without channel and command; 0: never */
	uint32_t n_roots, n_ro_roots, n_env;
	const char *const *roots;    /* encoding only: directories that file requests may reach */
	const char *const *ro_roots; /* encoding only: further ones that they may only read */
	const char *const *env;      /* encoding only: the environment of every command; SANDBOX_* is dropped,
				     SANDBOX_TIER kept */
	struct proto_in roots_in, ro_roots_in, env_in; /* decoding only */
};
void proto_config_put(struct proto_out *o, const struct proto_config *c);
bool proto_config_get(struct proto_in *i, struct proto_config *c);
