/*
 * boundary.h - the isolation boundary is derived here and nowhere else (SBX-10…17). Pure functions over one table.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct boundary_row {
	const char *name;
	bool kernel; /* a kernel of its own */
	bool shares; /* can mount a volume */
};
extern const struct boundary_row boundary_table[]; /* ended by a row without name */

struct boundary_ask {
	const char *org;        /* whose code: only "admin" is ours */
	bool volume;            /* keeps a volume */
	const char *requested;  /* the caller's runtime, NULL when none */
	const char *preference; /* SANDBOX_RUNTIME_CLASS, "" for the host's default */
	bool contained;         /* read from the node table (SBX-14) */
	const char *const
	    *offered; /* runtimes some node really offers, ended by NULL; "" among them is the host default */
};
struct boundary {
	char runtime[16]; /* "" is the host's default */
	bool kernel;
};
/* 0 with *got; -1 with e (400 naming `runtime` for a caller's request, 503 for a preference that cannot be met). */
int boundary_derive(const struct boundary_ask *ask, struct boundary *got, struct err *e);
const struct boundary_row *boundary_find(const char *name); /* exact case; NULL */
