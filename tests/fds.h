/* fds.h - what a process has open, to find what stays open. Failures end the test. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"

/*
 * How many descriptors, and a line about each into what (may be NULL). Without connections that are dialled when they are needed and
 * kept: to PostgreSQL, of which a pool opens more when two threads ask at once, and to gatehouse-egress. Needs ss, of iproute2.
 */
int fds_open(pid_t pid, struct buf *what);
/* The least that was seen within settle_ms, as what has just ended is closed a moment later. */
int fds_least(pid_t pid, int settle_ms, struct buf *what);
/* Wait until no more than n are open; fails the test after wait_ms with those that are not in `were`, the lines from before. */
void fds_back(pid_t pid, int n, const struct buf *were, int wait_ms);
