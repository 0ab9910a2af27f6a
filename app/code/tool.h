/*
 * tool.h - the tools a run may use, as data (COD-3): name → argv, the class of sandbox that carries the program, and what it
 * needs. A deployment may override a row's words with CODING_TOOLS.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/mem.h"

/* How a prompt that is too long for an argument reaches the program. */
enum tool_long { TOOL_FILE, TOOL_STDIN };

enum { TOOL_ARGV_MAX = 16 };

struct tool {
	const char *name, *class;
	bool model;                      /* talks to a model: refused where no back end is configured */
	const char *argv[TOOL_ARGV_MAX]; /* one element holds "{prompt}" */
	const char
	    *long_argv[TOOL_ARGV_MAX]; /* the same for a long prompt; TOOL_FILE: one element holds "{file}" */
	enum tool_long how;
	const char *file;     /* TOOL_FILE: the file's name */
	const char *path_env; /* TOOL_FILE: where the program looks for the checkout's own modules, or NULL */
};

extern const char *const tool_names[];          /* for schemas, ended by NULL */
const struct tool *tool_find(const char *name); /* NULL when unknown */

/*
 * The argv of a tool, as an array of strings; NULL with e. `override` is the value of CODING_TOOLS (io/conf has checked its
 * shape): {"python": ["/opt/python", "-I", "-c"]} replaces the words of the row; the prompt takes the place of "{prompt}", or
 * follows when no word holds it. A long prompt goes the row's own way, with the program replaced. `file`: its path inside
 * the sandbox when `is_long`.
 */
json_t *tool_argv(const struct tool *t, const char *override, const char *prompt, bool is_long,
    const char *file, struct err *e);
