/*
 * path.h - the one place that judges paths of file requests (SBX-47): first lexically, then by walking to the place one
 * component at a time, without ever letting the kernel follow a link. Links are read and judged again here, so one may point
 * anywhere inside the workspace and nowhere else, and a link that changes during the walk is either seen or not followed.
 * (openat2 could do a part of this, but gVisor here has none and it cannot allow links from one root into another: one way
 * for all kernels.)
 */
#pragma once

#include "base/limits.h"
#include "box/box.h"

struct path_at {
	int dir;        /* owned: the directory that holds it; -1: none */
	char name[256]; /* the last component, no link when it was looked at; "." for a root itself */
	const struct root *root; /* the one that holds it */
	char path
	    [LIMIT_PATH_BYTES]; /* the same place in words: absolute, without links up to its last component */
};

enum {
	PATH_PARENTS = 1, /* make missing directories */
	PATH_KEEP = 2,    /* a link at the end is meant itself */
	PATH_WRITE = 4,   /* only where the workspace may be written to */
};
/* Where a path (absolute, or relative to the working directory) is. 0, or an errno: EXDEV for a path outside, EROFS for one that is
 * only there to be read. at->dir is -1 on an error. */
int path_find(struct box *b, const char *path, int flags, struct path_at *at);
/* May a link with this target be made at a place? 0, ENAMETOOLONG, or EXDEV when it would lead out of the workspace. */
int path_link(const struct box *b, const struct path_at *at, const char *target);
void path_done(struct path_at *at); /* close what it holds; twice is fine */
/* Open a regular file for reading; -1 with errno (EISDIR, EXDEV, EINVAL for what is neither file nor directory…). */
int path_open_file(struct box *b, const char *path);
/* Open a regular file or a directory for reading. */
int path_open(struct box *b, const char *path);
/* Open a directory for reading, never through a link; -1 with errno. (gVisor of 2022 follows a link where O_DIRECTORY and O_NOFOLLOW stand
 * together without O_PATH, so nothing else opens directories.) */
int path_open_dir(int dir, const char *name);
/* path_open at a place that was found. */
int path_open_at(const struct path_at *at);

/* A new file beside the one that it will be. */
struct fresh_file {
	int dir, fd;   /* dir is borrowed */
	char name[48]; /* "": there is none */
	uint32_t mode;
};
/* What the name of something that a request uses on its way says. */
enum fresh {
	FRESH_NOT,      /* it is not of that kind */
	FRESH_NEW,      /* it will be a file where there was none */
	FRESH_REPLACES, /* … where there was one */
	FRESH_ASIDE,    /* it is being removed */
};
enum fresh fresh_is(const char *name);
int fresh_name(char *to, size_t size, enum fresh what); /* one that nobody else uses */
/* All but the last answer 0 or an errno. */
int fresh_open(struct fresh_file *f, int dir, bool replaces);
int fresh_write(struct fresh_file *f, const unsigned char *p, size_t n);
int fresh_place(struct fresh_file *f, const char *name,
    uint32_t mode);                     /* it is `name` from now on, replacing what was there */
void fresh_close(struct fresh_file *f); /* nothing of it stays, unless it was placed */
