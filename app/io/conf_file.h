/* conf_file.h - the syntax of systemd's EnvironmentFile: comments, quotes, escapes, continued lines (systemd.exec(5)). */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Calls got(arg, key, value, line) for every assignment; its -1 ends the reading. Values may span lines inside quotes. */
typedef int conf_file_fn(void *arg, const char *key, const char *value, int line, struct err *e);
int conf_file_parse(const char *p, size_t n, conf_file_fn *got, void *arg, struct err *e);
