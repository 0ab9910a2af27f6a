/*
 * proc.h - the one way to start a child: argv, clean environment, close_range, own process group, deadline, output cap.
 * No shell, ever (SEC-3). Every child is reaped. On deadline and cancel its whole group gets SIGTERM and, half a second
 * later, SIGKILL; what is left of the group when the child itself ends is killed too (a daemon leaves the group first, by
 * setsid). When our own process dies the child is killed by the kernel, and its children see their pipes end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct proc_opts {
	const char *const *argv; /* argv[0] is looked up in a fixed PATH when it has no slash */
	const char *const *env;  /* the whole environment, ended by NULL; NULL: only PATH, LANG=C.UTF-8 */
	const char *cwd;         /* NULL: "/" */
	int stdin_fd;            /* -1: /dev/null, unless in_read is set */
	int stdout_fd;           /* -1: collected into out (or on_out) */
	int stderr_fd;           /* -1: collected into errout (tail kept) */
	const int *
	    keep_fds; /* descriptors that stay open in the child at the same numbers, ended by -1; may be NULL */
	/*
	 * Streaming instead of collecting; -1 aborts the child (the result says cancelled). in_read is asked for up to n bytes
	 * when the child can take them, 0 is the end; while it blocks nothing else moves, so it must not wait for output.
	 */
	ssize_t (*in_read)(void *arg, void *p, size_t n);
	int (*on_out)(void *arg, const char *p, size_t n);
	bool (*cancelled)(void *arg); /* asked at least every 200 ms; may be NULL */
	void *arg;
	/* In the child, right before its program: only async-signal-safe calls. -1 with errno: it is not started. May be NULL. */
	int (*in_child)(const void *child_arg);
	const void *child_arg;
	int64_t timeout_ms; /* from now; 0 is a bug and asserts */
	bool
	    leaves; /* it starts what is to outlive it, in its own group: only a deadline or a cancel kills the group */
	size_t
	    max_out_bytes; /* for the collected stdout: past it the child is killed and ERR_TOO_LARGE set; 0: 1 MiB */
};
struct proc_result {
	int exit_code; /* 0..255, or -1 when a signal ended it */
	int signal;
	bool timed_out, cancelled;
	struct buf out;    /* collected stdout */
	struct buf errout; /* last 16 KiB of stderr */
};

/* Run to its end. 0 when the child was started and reaped (look at the result); -1 with e when it could not be started,
 * (ERR_UNAVAILABLE for no descriptors/processes), or its output passed the cap. Free with proc_free in any case. */
int proc_run(const struct proc_opts *o, struct proc_result *r, struct err *e);
void proc_free(struct proc_result *r);
static inline void auto_procp(struct proc_result *r)
{
	proc_free(r);
}
#define auto_proc AUTO(auto_procp)
