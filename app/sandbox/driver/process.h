/*
 * process.h - DRV-0: no isolation at all, for a developer's machine that cannot make namespaces. A sandbox is a directory, a
 * user id of its own and gatehouse-box running as that id among the host's processes: it sees the host's files, processes
 * and network. It exists only where the deployment names it, never as a fallback.
 *
 * What holds all the same: a sandbox's processes cannot change their id (no-new-privileges), so everything of that id is
 * what the sandbox is, and destroying it kills until nothing of the id runs. Commands are ended by the box's keepers.
 * What does not: code in it can kill its own box (the sandbox then ends); files that it writes outside its directory, where
 * the host lets everybody write, stay; nothing limits memory, processor or disk.
 */
#pragma once

#include "sandbox/driver/driver.h"

struct process_opts {        /* strings are borrowed for the call */
	const char *dir;     /* of this node */
	const char *sockets; /* base of the socket directories (boxdir.h) */
	const char *box_binary;
	long long uid_base, uid_count; /* as oci_opts' */
	int slots;
};
/* NULL with e where it cannot work (root, ids, sockets, the programs it needs). */
struct driver *process_new(const struct process_opts *o, struct err *e);
