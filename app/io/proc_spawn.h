/* proc_spawn.h - fork and exec for proc.c: everything that happens in the child before exec. */
#pragma once

#include "io/proc.h"

enum { PROC_IN, PROC_OUT, PROC_ERR, PROC_STREAMS };

/* Start the child with these descriptors as 0, 1 and 2 (borrowed). Its pid, which is also its group; -1 with e. */
pid_t proc_spawn(const struct proc_opts *o, const int fds[PROC_STREAMS], struct err *e);
