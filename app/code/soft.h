/* soft.h - a soft budget that was reached (BIL-5) is told in the session of the run that reached it. */
#pragma once

#include "money/gate.h"

/* gate_opts.on_soft; arg: struct pg_pool. Nothing when there is no run, or its session is closed. */
void soft_tell(void *arg, const struct gate_soft *s);
