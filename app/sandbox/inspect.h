/*
 * inspect.h - SBX-64: what a sandbox looks like from inside. A script that is run there, and a judgement of what it said: a
 * label is no boundary. Pure; what the host looks like is told by the caller, who has made sure that its own listener can
 * be reached (the control, without which "cannot be reached" proves nothing).
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct inspect_host {
	const char *version, *boot_id; /* of /proc */
	const char *listener; /* "ADDRESS/PORT" of ours that the host reaches; NULL: it has no address */
	int port;             /* of the same listener on every address */
	const char *const
	    *hidden;         /* files and directories of the host that nobody inside may see; ended by NULL */
	const char *workdir; /* of the sandbox */
};
/* For `bash -c`: needs cat, timeout and /proc. */
void inspect_script(const struct inspect_host *h, struct buf *out);

enum inspect_line { INSPECT_KERNEL, INSPECT_NETWORK, INSPECT_CAPABILITIES, INSPECT_MOUNTS, INSPECT_LINES };
extern const char *const inspect_names[INSPECT_LINES];
/* `said` is what the script printed; own_kernel what the lease says. 0 with what was seen in *seen; -1 with e. */
int inspect_judge(enum inspect_line line, const struct inspect_host *h, bool own_kernel, const char *said,
    struct buf *seen, struct err *e);

/* What outlives a lease: the first script leaves a token wherever something can be written, the second one, in the next lease of the
 * project, says where it still is. It must be in the volume, and nowhere else. */
void inspect_leave_script(const char *token, struct buf *out);
void inspect_find_script(struct buf *out);
int inspect_outlived(const char *token, const char *left, const char *found, struct buf *seen, struct err *e);
