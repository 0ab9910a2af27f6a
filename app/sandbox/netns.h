/*
 * netns.h - an empty network namespace, made before anything runs in it (DRV-1): it holds loopback, up, and nothing else.
 * It is held by a descriptor only, never by a mount, so that nothing of it is left when its last process is gone.
 */
#pragma once

#include "base/err.h"

/* A close-on-exec descriptor of a fresh namespace, or -1. A runtime opens it as /proc/<our pid>/fd/<fd>. */
int netns_make(struct err *e);
