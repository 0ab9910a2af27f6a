/*
 * boxdir.h - the directory in which a sandbox's box makes its socket (SBX-63, SBX-65): one per sandbox, named by its id.
 * It is 0700 and the sandbox's until the box has answered; from then on it is ours, so that code in the sandbox can neither
 * put another socket in its place nor fill the host's file system through it.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum {
	BOXDIR_BASE_MAX = 60,
	BOXDIR_PATH_MAX = 108
}; /* the base's bound leaves room for the id and the socket's name */
#define BOXDIR_SOCKET "box.sock"

/* The first of `candidates` (NULL or "" entries are skipped, ended by `n`) that is short enough and can be written. It is
 * made when absent; one that another user could write to or put there is refused. */
int boxdir_base(const char *const *candidates, int n, char out[BOXDIR_BASE_MAX + 1], struct err *e);
/* Where the base may be (SBX-65): the setting alone when there is one; else /run/gatehouse (its s/, which systemd-tmpfiles
 * makes ours, first), $XDG_RUNTIME_DIR, and a directory of ours in the temporary one, written into tmp. Returns how many. */
enum { BOXDIR_NAMES = 4 };
int boxdir_names(const char *setting, char tmp[BOXDIR_PATH_MAX], const char *names[BOXDIR_NAMES]);
/* A fresh, empty directory; whatever stood there is removed. Its path into out. */
int boxdir_make(const char *base, const char *id, uid_t owner, char out[BOXDIR_PATH_MAX], struct err *e);
int boxdir_close(const char *path, struct err *e);
int boxdir_remove(const char *base, const char *id, struct err *e);
