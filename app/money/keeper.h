/*
 * keeper.h - what keeps the books while nobody calls; in the runner, on any number of hosts.
 *
 * The reaper settles the open calls of processes that died, by what they had noted; a process is dead when it gave no sign of
 * life through BILLING_REAP_S of the reaper's own time in which PostgreSQL answered, so no step of a clock and no restart of
 * PostgreSQL kills anybody.
 * The reporter sends usage rows to BILLING_REPORT_URL (BIL-4): in batches of REPORT_ROWS or every BILLING_REPORT_EVERY_S, in the
 * order in which they became visible, REPORT_TRIES tries with backoff, kept until they are acknowledged by a 2xx. One reporter
 * works at a time; another takes over when it stood still. Each row has its request's id: what was acknowledged and could not
 * be noted as such is sent again.
 */
#pragma once

#include "money/gate.h"

enum { REPORT_ROWS = 50, REPORT_TRIES = 3 };

struct keeper;
/* -1 with e: BILLING_REPORT_KEY_FILE cannot be read or others can read it. */
struct keeper *keeper_start(const struct gate_opts *o, struct err *e);
void keeper_stop(
    struct keeper *k); /* joins its threads; a batch that is being sent is given up. NULL is fine */
