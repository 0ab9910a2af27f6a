#include "base/cond.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *held, int64_t until_ms)
{
	const struct timespec t = { .tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000 };
	int rc = pthread_cond_clockwait(c, held, CLOCK_MONOTONIC, &t);
	assert(rc == 0 || rc == ETIMEDOUT);
	return rc == 0;
}
