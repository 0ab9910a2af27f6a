/*
 * oci.h - the driver for local OCI runtimes (DRV-1): crun, runc, runsc. No daemon, no bridge, no published port.
 *
 * What a sandbox has on the host, and in which order it is made (removed in the other one): its bundle directory, which is
 * the record that it may exist at all; its socket directory; a network namespace held by nobody but its processes; control
 * groups; processes. The runtime's own state is inside the bundle, one root per sandbox, so no id is ever looked up by
 * prefix. Destroying needs no runtime: the groups are killed and everything is removed by us.
 */
#pragma once

#include "sandbox/driver/driver.h"

struct oci_opts {            /* strings are borrowed for the call */
	const char *dir;     /* of this node: bundles and the image's root */
	const char *sockets; /* base of the socket directories (boxdir.h) */
	const char *cgroup;  /* "/gatehouse/<instance>.<node>" */
	const char *box_binary;
	const char *prefer; /* the binary behind the empty default; "" is the first that works */
	const char *only;   /* boundaries to try, separated by spaces; "" is all */
	/* The host ids that sandboxes may use. Each takes BUNDLE_UID_RANGE of them; where another sandboxd of this host
	 * has taken the first ones, those after them are used. */
	long long uid_base, uid_count;
	bool no_userns;                /* do as on a host without user namespaces */
	int slots, starts;             /* sandboxes at a time, and how many may be starting */
	const struct volumes *volumes; /* borrowed for the driver's life; NULL: none */
};
/* Also proves at once which runtimes work, by running a container with each. NULL with e when there can be no sandbox at all
 * (control groups, root, sockets); no working runtime is not an error here: see offered() and refusal(). */
struct driver *oci_new(const struct oci_opts *o, struct err *e);
