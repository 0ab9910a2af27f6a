/*
 * path.h - the one place that judges paths of file requests (SBX-47): first lexically, then by walking to the place one
 * component at a time, without ever letting the kernel follow a link. Links are read and judged again here, so one may point
 * anywhere inside the workspace and nowhere else, and a link that changes during the walk is either seen or not followed.
 * (openat2 could do a part of this, but gVisor here has none and it cannot allow links from one root into another: one way
 * for all kernels.)
 */
#pragma once

#include "box/box.h"

struct path_at {
	int dir;        /* owned: the directory that holds it */
	char name[256]; /* the last component, no link when it was looked at; "." for a root itself */
};

/* Where a path (absolute, or relative to the working directory) is. parents: make missing directories. 0, or an errno:
 * EXDEV for a path outside. */
int path_find(struct box *b, const char *path, bool parents, struct path_at *at);
/* Open a regular file for reading; -1 with errno (EISDIR, EXDEV, EINVAL for what is neither file nor directory…). */
int path_open_file(struct box *b, const char *path);
/* Open a regular file or a directory for reading. */
int path_open(struct box *b, const char *path);
