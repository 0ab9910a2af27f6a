/*
 * crowd.h - thousands of watchers of one session, each on a TLS connection of its own through nginx, all read by one thread.
 * Failures end the bench (assertions).
 */
#pragma once

#include <stdbool.h>

#include "../flow/stack.h"

struct crowd;
/* n watchers, connected and answered with the head of their stream. A deaf one never reads after that. */
struct crowd *crowd_new(const struct stack *s, const char *key, const char *session, int n, int deaf);
void crowd_free(struct crowd *c);
/* Read until everybody who listens has had `lines` events; how many have after wait_ms at most. */
int crowd_read(struct crowd *c, int lines, int wait_ms);
