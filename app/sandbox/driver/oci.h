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
	long long
	    uid_base; /* of slot 0; a range that another sandboxd of this host has taken is passed over */
	int slots, starts; /* uid ranges; how many may start at a time */
};
/* Also proves at once which runtimes work, by running a container with each. NULL with e when there can be no sandbox at all
 * (control groups, root, sockets); no working runtime is not an error here: see offered() and refusal(). */
struct driver *oci_new(const struct oci_opts *o, struct err *e);
