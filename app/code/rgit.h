/*
 * rgit.h - the runner's own git, hardened (COD-7): no configuration, hook, helper, attribute or prompt but what is stated here.
 * A credential travels as an http.<URL>.extraHeader in the environment of the one invocation that needs it.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"
#include "io/proc.h"

enum { RGIT_ID_MAX = 65 }; /* a commit id in hex (SHA-1, or SHA-256 one day), and a NUL */

struct rgit_remote {
	const char *url;            /* plain, without userinfo */
	const char *protocols;      /* what git may speak to it: "https", "http:https" (GIT_ALLOW_PROTOCOL) */
	const char *user;           /* sent with token */
	const struct secret *token; /* NULL: anonymous */
	const char *ca_file;        /* NULL: the system's */
	const char *pin;            /* NULL, or the addresses of its host, as reach_pin has them */
};

struct rgit_repo {
	const char *dir; /* a bare repository of the runner's own */
	const char *
	    quarantine; /* NULL, or an object directory that is written instead of dir's and reads through to it */
	bool (*cancelled)(void *arg);
	void *arg;
};

struct rgit_call {
	const char *const *args;          /* what follows "git", ended by NULL */
	const struct rgit_remote *remote; /* NULL: no protocol is allowed at all */
	bool hostile;   /* the input came out of a sandbox: memory, time and file size are bounded */
	int stdin_fd;   /* 0: see in */
	const void *in; /* NULL: /dev/null */
	size_t in_n;
	int64_t timeout_ms;
	size_t max_out_bytes; /* 0: 64 KiB */
};

/* Run to its end: 0 whatever the exit code; -1 with e when it did not end by itself (no start, time, limits, cancelled).
 * Free r with proc_free in any case. */
int rgit_run(const struct rgit_repo *repo, const struct rgit_call *c, struct proc_result *r, struct err *e);
/* Set e from a failed command: `doing` and git's own last words, without secrets and paths of this machine. A remote that is
 * away for the moment is ERR_UNAVAILABLE, one that refuses ERR_UPSTREAM. Returns -1. */
int rgit_failed(const struct rgit_repo *repo, const struct rgit_call *c, const struct proc_result *r,
    const char *doing, struct err *e);
/* rgit_run, and any other exit code than 0 is an error. */
int rgit_must(const struct rgit_repo *repo, const struct rgit_call *c, const char *doing,
    struct proc_result *r, struct err *e);
/* 40 or 64 lower-case hex digits. */
bool rgit_id_ok(const char *s, size_t n);
/* The first line of p when it is an id and nothing follows it. */
bool rgit_id_line(const char *p, size_t n, char out[RGIT_ID_MAX]);
