/*
 * file.h - files: whole reads, atomic writes, trees. All descriptors are close-on-exec. Errors name the act, not the path:
 * ERR_NOT_FOUND (absent), ERR_TOO_LARGE, ERR_UNAVAILABLE (no space, descriptors or memory), else ERR_INTERNAL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

int file_read(const char *path, struct buf *out, struct err *e); /* up to out->max, appended */
/* Write to a temporary neighbour, fsync, rename: afterwards the old or the new content is there, also after a power cut. */
int file_write(const char *path, const void *p, size_t n, mode_t mode, struct err *e);
int file_mkdirs(const char *path, mode_t mode, struct err *e); /* like mkdir -p; mode for those made here */
/*
 * Remove a tree without following links and without crossing a mount (that is an error, and what is behind it stays);
 * absent is fine. Depth costs neither stack nor descriptors.
 */
int file_rmtree(const char *path, struct err *e);
/* Write everything to a blocking descriptor; -1 with errno. */
int fd_write_all(int fd, const void *p, size_t n);
/* A fresh private directory under parent, its path into out. */
int file_tmpdir(const char *parent, char *out, size_t size, struct err *e);
