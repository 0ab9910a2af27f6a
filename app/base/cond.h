/* cond.h - the one way to wait on a condition until a time. The condition has no attributes: PTHREAD_COND_INITIALIZER will do. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Until it is signalled, or the monotonic until_ms (clock_ms). False: the time has come. As ever it may also return for nothing. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *held, int64_t until_ms);
