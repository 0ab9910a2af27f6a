/*
 * fakebox.h - in place of sandboxes (sandbox/client.h, lease.h): every lease is a directory of this machine, commands run
 * there as ordinary children, files are its files. Rows of the sandboxes table are kept as the real ones are. For unit tests
 * of what uses sandboxes; it isolates nothing.
 */
#pragma once

#include <stdbool.h>

#include "io/pg.h"

struct fakebox {          /* the module's one piece of state, set by the test */
	const char *root; /* where leases are made */
	struct pg_pool *db;
	int leases, ended;  /* counted */
	int commands;       /* of any kind */
	const char *refuse; /* lease_take answers 503 with this */
	int full;           /* so many times lease_take answers that all nodes are full */
	const char *reason; /* of that; NULL: none */
	int refusals;       /* how often, when there is a reason */
	bool end_fails;     /* lease_end answers 503 */
	bool lose_channel;  /* box_run of the tool (streaming) ends as unknown */
};
extern struct fakebox fakebox;
