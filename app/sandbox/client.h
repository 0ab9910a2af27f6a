/*
 * client.h - talking to the sandboxd that holds a sandbox, from the API and the runner, over its internal door.
 * All calls look the sandbox up by (org, id) first: another org's is ERR_NOT_FOUND.
 */
#pragma once

#include "base/buf.h"
#include "io/conf.h"
#include "io/pg.h"
#include "op/op.h"

struct box_addr { /* where a live sandbox is reached */
	char id[40];
	char socket[108]; /* unix socket of the internal door */
	char node[64];
	char workdir[128];
	int tier; /* of its policy: what its commands are told as SANDBOX_TIER (SBX-33) */
};
int box_find(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e);
/* Somebody ended it, or its lease ran out: also while it is still being ended. False when that is not known. */
bool box_was_ended(struct pg *db, const char *org, const char *id);

/*
 * 0 when some node that offers sandboxes answers at its door within wait_ms; ERR_UNAVAILABLE otherwise. For /ready. *egress: how
 * its boundary is, "ok", "away" or "none"; with several nodes "away" means that it is away on all that answered.
 */
int box_nodes_answer(struct pg *db, int wait_ms, const char **egress, struct err *e);

struct box_cmd {
	const char *id;      /* cmd_…; NULL: made by box_run */
	bool follow;         /* `id` was started before: it is only read, from its beginning */
	const json_t *argv;  /* array of strings */
	const char *dir;     /* NULL: the workdir */
	const json_t *env;   /* object of strings or NULL */
	const void *stdin_p; /* NULL: /dev/null */
	size_t stdin_n;
	const char *stdin_file; /* or a path inside the sandbox */
	bool stdin_open;        /* or box_input, while it runs */
	int cols, rows;         /* not 0: a terminal of this size, with box_input; its output is stdout */
	long long timeout_s;    /* 0: the lease's end is its only bound */
	/* Each line of the streaming form (start, stdout, stderr, exit) as it comes; -1 aborts. NULL: only the tail is fetched, at the
	 * end. */
	int (*on_line)(void *arg, const json_t *line);
	bool (*cancelled)(void *arg); /* asked a few times a second; may be NULL */
	/* What an abort or a cancel ends: the command, its whole tree (false), or only our reading (true: -1 with reason "left"). */
	bool leave;
	void *arg;
};
struct box_exit {
	char cmd[40];
	int exit_code;   /* -1 when a signal ended it */
	char signal[16]; /* "SIGKILL", or "" */
	bool timed_out, stopped;
	long long duration_ms;
	long long stdout_bytes, stderr_bytes;
	struct buf out, errout; /* kept tails (LIMIT_OUTPUT_BYTES each) */
	bool truncated;
	bool oom;          /* the sandbox's memory ran out while it ran */
	char message[160]; /* for 126, 127 and oom; else "" */
};
/*
 * Run a command to its end, across restarts of the node's sandboxd: the output is taken up where it was cut, the command is never
 * run twice. -1 with e when it was refused (and did not run), or with reason "lost" when nobody can say how it ended (SBX-40). What is only
 * followed and not known to its sandbox has reason "unknown".
 */
int box_run(const struct box_addr *a, const struct box_cmd *cmd, struct box_exit *x, struct err *e);
void box_exit_free(struct box_exit *x);
/* Pass on a command's output from these offsets, and its exit: the lines of a live reading. only: 1 stdout, 2 stderr, 0 both. */
int box_output(const struct box_addr *a, const char *cmd, const long long from[2], int only,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e);

/* ---- commands that nobody waits for (SBX-46), client_cmd.c */
struct box_started {
	char cmd[40];
	int pid; /* inside the sandbox */
};
/*
 * Start it and come back; on_line, cancelled and leave mean nothing. -1 with e when it was refused (and did not run), or with
 * reason "lost" when it may run, under s->cmd, and its node cannot say so.
 */
int box_start(const struct box_addr *a, const struct box_cmd *cmd, struct box_started *s, struct err *e);
/* {"data": commands}: those that run and the last ones that have ended, oldest first. New reference.
 * A command is {id, pid, state: running|ended, argv[], argvCut, dir, exitCode, signal, message, timedOut, stopped, oom, ageMs, durationMs,
 * stdoutBytes, stderrBytes, stdoutFrom, stderrFrom (the first bytes still held), stdinOpen, stdinBytes, pty}. */
json_t *box_commands(const struct box_addr *a, struct err *e);
/* One command; with wait_s its end is awaited as long (the answer then says whether it came). ERR_NOT_FOUND; cancelled:
 * ERR_TIMEOUT with reason "cancelled". */
json_t *box_command(const struct box_addr *a, const char *cmd, int wait_s, bool (*cancelled)(void *arg),
    void *arg, struct err *e);
struct box_input {
	const void *p;
	size_t n;         /* at most BOX_INPUT_MAX */
	bool close;       /* then end it, when all was taken */
	long long offset; /* where p belongs in all that it is given; -1: behind what there is */
	int wait_s;       /* for a command that does not read */
};
enum { BOX_INPUT_MAX = 1 << 20 };
/* {taken (of these bytes), stdinBytes, stdinOpen}; taken < n: it does not read. ERR_CONFLICT: nobody reads it any more, it was
 * closed, was never open, or stands at another offset. New reference. */
json_t *box_input(const struct box_addr *a, const char *cmd, const struct box_input *in, struct err *e);
/* Its terminal's new size. ERR_CONFLICT: it has none. */
int box_resize(const struct box_addr *a, const char *cmd, int cols, int rows, struct err *e);
/* "TERM", "SIGTERM", "RTMIN+1" or "15"; 0 when it is none. */
int box_signal_number(const char *text);
/* to: "process", "group" or "tree". {processes}: how many got it; SIGKILL to the tree is answered when it is gone. New reference. */
json_t *box_signal(const struct box_addr *a, const char *cmd, int sig, const char *to, struct err *e);

/* Stop everything it runs; *stopped is how many commands ended (SBX-44). */
int box_stop(const struct box_addr *a, int *stopped, struct err *e);

/* ---- files (SBX-47): paths as the box judges them. ERR_FORBIDDEN outside the workspace, ERR_NOT_FOUND, ERR_CONFLICT, ERR_STORAGE. */

/* Streamed in constant memory, for as long as they move. The reader returns bytes, 0 at the end, -1 to abort. mode -1: that of the
 * file before, else 0644. */
int box_put(const struct box_addr *a, const char *path, int mode,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e);
int box_get(const struct box_addr *a, const char *path, long long offset, long long length,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* A folder as a tar, what is in it at its top. One that could not be packed to its end has no end either: two blocks of zeros. */
int box_pack(const struct box_addr *a, const char *path, int (*on_data)(void *arg, const char *p, size_t n),
    void *arg, struct err *e);
/* The other way. e names the entry that could not be made; those before it stay. */
int box_unpack(const struct box_addr *a, const char *path, ssize_t (*read)(void *arg, void *p, size_t n),
    void *arg, long long *entries, struct err *e);
/* What is at a path: {kind: file|dir|link|other, size, mode: "0644", mtime: RFC 3339}; of a link itself, with `target` and, where it
 * leads to something in the workspace, `targetKind`. New reference. */
json_t *box_stat(const struct box_addr *a, const char *path, struct err *e);
/* The same after a link was followed, and for a directory {…, entries: [{…, name, path (from the directory)}], truncated}: unsorted,
 * each directory before what is in it. depth 1 to 16, limit 0 to 10000. */
json_t *box_list(const struct box_addr *a, const char *path, int depth, int limit, struct err *e);
/* Parents are made; mode -1: 0755. *made (may be NULL): it was not there before. ERR_CONFLICT: something else is. */
int box_mkdir(const struct box_addr *a, const char *path, int mode, bool *made, struct err *e);
/* In one step, parents of `to` made. Without `replace` anything at `to` is ERR_CONFLICT; with it a file takes a file's place, a
 * directory that of an empty one. */
int box_move(const struct box_addr *a, const char *from, const char *to, bool replace, struct err *e);
/* A directory with something in it only with `tree`, else ERR_CONFLICT. *count (may be NULL): how many things went. */
int box_remove(const struct box_addr *a, const char *path, bool tree, long long *count, struct err *e);
/*
 * Changes below a path as they happen, one on_line each: {type: "start"} (from now on everything is told), then create, write, remove,
 * chmod {path (from the path that is watched; "" for that itself), dir}, rename {path, from, dir}, overflow (something was not told: look
 * again) and ping; on_line -1 aborts. 0: the path itself has gone, which was told. -1 with reason "cancelled" when `cancelled`, asked a few
 * times a second, or on_line said so, "lost" when the sandbox or its node went away.
 */
int box_watch(const struct box_addr *a, const char *path, bool recursive,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e);
