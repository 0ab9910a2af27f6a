/*
 * oci_ids.h - starting runsc as the root of a sandbox's own id range.
 *
 * With the host's network (here: an empty namespace of the sandbox's own) runsc starts its kernel in the user namespace that
 * config.json asks for, but keeps its own user id. Started by the host's root that id is not mapped there, and the kernel has no
 * right to set itself up; started by the id that is the namespace's root, it has. So runsc runs as that id, with the
 * capabilities of sandboxd. An id that is not root has no right to write maps in runsc's eyes: it calls newuidmap and newgidmap,
 * which on a host know nothing of our ranges. Those two are links to sandboxd itself, in a directory only runsc is told of.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* proc_opts.in_child; arg: a uid_t. */
int oci_ids_enter(const void *arg);
/* Make <dir>/newuidmap and newgidmap. */
int oci_ids_links(const char *dir, struct err *e);
/* In sandboxd's main: called by one of those names it does their work and exits with *rc; false: it is something else. */
bool oci_ids_main(int argc, char **argv, int *rc);
