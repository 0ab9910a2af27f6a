/* file.h - files: whole reads, atomic writes, trees. All descriptors close-on-exec. Errors name the act, not the path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

int file_read(const char *path, struct buf *out, struct err *e); /* up to out->max */
/* Write to a temporary neighbour, fsync, rename. */
int file_write(const char *path, const void *p, size_t n, mode_t mode, struct err *e);
int file_mkdirs(const char *path, mode_t mode, struct err *e); /* like mkdir -p */
/* Remove a tree without following links and without leaving its file system; absent is fine. */
int file_rmtree(const char *path, struct err *e);
/* Write everything to a descriptor. */
int fd_write_all(int fd, const void *p, size_t n);
/* A fresh private directory under parent, its path into out. */
int file_tmpdir(const char *parent, char *out, size_t size, struct err *e);
