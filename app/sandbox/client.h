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
};
int box_find(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e);

/* 0 when some node that offers sandboxes answers at its door within wait_ms; ERR_UNAVAILABLE otherwise. For /ready. */
int box_nodes_answer(struct pg *db, int wait_ms, struct err *e);

struct box_cmd {
	const json_t *argv;  /* array of strings */
	const char *dir;     /* NULL: the workdir */
	const json_t *env;   /* object of strings or NULL */
	const void *stdin_p; /* NULL: /dev/null */
	size_t stdin_n;
	const char *stdin_file; /* or a path inside the sandbox */
	long long timeout_s;    /* > 0 */
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
 * run twice. -1 with e when it was refused (and did not run), or with reason "lost" when nobody can say how it ended (SBX-40).
 */
int box_run(const struct box_addr *a, const struct box_cmd *cmd, struct box_exit *x, struct err *e);
void box_exit_free(struct box_exit *x);
/* Pass on a command's output from these offsets, and its exit: the lines of a live reading. only: 1 stdout, 2 stderr, 0 both. */
int box_output(const struct box_addr *a, const char *cmd, const long long from[2], int only,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e);
/* Stop everything it runs; *stopped is how many commands ended (SBX-44). */
int box_stop(const struct box_addr *a, int *stopped, struct err *e);
/* Files, streamed in constant memory. The reader returns bytes, 0 at the end, -1 to abort. */
int box_put(const struct box_addr *a, const char *path, int mode,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e);
int box_get(const struct box_addr *a, const char *path, long long offset, long long length,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e);
/* A file's or directory's description: {kind, size, mode, mtime, entries[]}. New reference. */
json_t *box_stat(const struct box_addr *a, const char *path, struct err *e);
