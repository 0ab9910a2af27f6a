/*
 * git.h - the forge's own git commands: one bare repository, a clean environment, no configuration but ours, no replace
 * refs, literal paths, a deadline and an output cap. What a repository's own config file says is ours too: nobody else
 * writes there.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "io/proc.h"

struct git_call {
	const char *dir;             /* the bare repository; NULL for none (git init) */
	const char *const *args;     /* what follows "git", ended by NULL */
	const char *const *more_env; /* "NAME=value", ended by NULL; may be NULL */
	const void *in;              /* standard input when in_n > 0 */
	size_t in_n;
	ssize_t (*in_read)(void *arg, void *p, size_t n); /* or a stream, see io/proc.h */
	int (*on_out)(void *arg, const char *p, size_t n);
	bool (*cancelled)(void *arg);
	void *arg;
	size_t max_out_bytes; /* 0: 64 KiB */
	int64_t timeout_ms;   /* 0: 20 s */
};

/* Run it. 0 when git ended by itself with any exit code; -1 with e otherwise (not started, too slow, too much output).
 * Free r with proc_free in any case. */
int git_run(struct mem *m, const struct git_call *g, struct proc_result *r, struct err *e);
/* The same, and an exit code other than 0 is ERR_STORAGE when a disk is full, else ERR_INTERNAL; git's words go to the log. */
int git_must(struct mem *m, const struct git_call *g, struct proc_result *r, struct err *e);

/* Configuration that every git process here gets through its environment, and so do its children and hooks. */
struct git_env {
	const char *list[64]; /* "NAME=value", ended by NULL */
	int n, n_config;
};
void git_env_init(struct git_env *v);
void git_env_add(struct git_env *v, struct mem *m, const char *name, const char *value);
void git_env_config(struct git_env *v, struct mem *m, const char *key, const char *value);
/* Write GIT_CONFIG_COUNT: last. */
const char *const *git_env_done(struct git_env *v, struct mem *m);
