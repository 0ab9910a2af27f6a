/* memory.h - what a process holds. Failures end the test. */
#pragma once

#include <sys/types.h>

/* Resident memory of one process that nobody else has (Private_Clean + Private_Dirty of smaps_rollup), in KiB. */
long memory_private_kib(pid_t pid);
