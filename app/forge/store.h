/*
 * store.h - the directories of repositories on the forge host. FORGE_ROOT/<org>/<name>.git are the repositories; beside them
 * FORGE_ROOT/.gatehouse holds what is ours: the hooks directory, repositories being built or removed, and one lock file
 * that makes creating and deleting exclusive among the processes of the host. No org slug begins with a dot.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "io/conf.h"

const char *store_dir(struct mem *m, const struct conf *conf, const char *org, const char *name);

/* Hold while a row and its directory change together: close the descriptor to let go. -1 with e when it is not free in time. */
int store_lock(struct mem *m, const struct conf *conf, struct err *e);
/* Build an empty bare repository whose HEAD is refs/heads/<branch>, aside; its path, or NULL with e. Needs no lock. */
const char *store_build(struct mem *m, const struct conf *conf, const char *branch, struct err *e);
/* Put what was built in its place. A directory that is already there has no row (the caller's insert went through) and is moved
 * away. Under the lock. */
int store_place(struct mem *m, const struct conf *conf, const char *built, const char *dir, struct err *e);
/* Rename dir out of the way, under the lock; the path it has now, or NULL when there was none or it cannot be moved. */
const char *store_drop(struct mem *m, const struct conf *conf, const char *dir);
/* Remove what store_build or store_drop returned, if it is still there; NULL is fine. Needs no lock. */
void store_remove(const char *path);
/* Where temporary files of one request may be. NULL with e. */
const char *store_tmp(struct mem *m, const struct conf *conf, struct err *e);
/* Remove what a crash left: what is half built, half removed or temporary for more than an hour. */
void store_sweep(struct mem *m, const struct conf *conf);

/*
 * Around a push: git leaves the directory it received into, and its lock on a ref, behind when it is killed (by a signal handler
 * of its own it removes neither).
 * store_push_begin holds a shared lock on the repository, -1 with e when it cannot; store_push_end gives it back and, when no
 * other push is under way in any process, removes what such pushes left.
 */
int store_push_begin(struct mem *m, const char *dir, struct err *e);
void store_push_end(struct mem *m, const char *dir, int lock);

/* The hooks directory with the one hook that starts this installation's `gatehouse` program; written when it is not as it
 * should be. NULL with e: then nothing may be pushed. */
const char *store_hooks(struct mem *m, const struct conf *conf, struct err *e);
