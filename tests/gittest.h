/*
 * gittest.h - repositories for unit tests: plain git in a temporary directory, as a tool in a sandbox or a remote would use
 * it (nothing hardened). Failures end the test.
 */
#pragma once

#include <stddef.h>

#include "base/buf.h"

enum { GITTEST_ID = 65 };

struct gittest {
	char dir[64];
};
void gittest_start(struct gittest *t);
void gittest_end(struct gittest *t);
/* Run git in dir/<where>, feeding n bytes of `in`; the standard output without its last newline. Arguments end with NULL. */
char *gittest_out(const struct gittest *t, const char *where, const void *in, size_t n, ...)
    __attribute__((sentinel));
#define gittest(t, where, ...) free(gittest_out(t, where, NULL, 0, __VA_ARGS__, (char *)0))
/* Run python3 -c script in the directory with arguments, ended by NULL: for bytes that git itself refuses to write. */
void gittest_python(const struct gittest *t, const char *script, ...) __attribute__((sentinel));
void gittest_write(const struct gittest *t, const char *path, const char *text);
/* dir/<path> in memory to be freed. */
char *gittest_path(const struct gittest *t, const char *path);
/* A bare repository "<name>.git" with one commit of a.txt and sub/b.txt on main, and a depth-1 clone of it "<name>". */
void gittest_repo(const struct gittest *t, const char *name, char tip[GITTEST_ID]);

/* ---- the bare repositories as a remote over HTTP: tests/gitserver.py, which says what its files mean */
struct gittest_server;
struct gittest_server *gittest_serve(const struct gittest *t);
void gittest_serve_end(struct gittest_server *s);
int gittest_port(const struct gittest_server *s);
