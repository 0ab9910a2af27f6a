#include "base/crash.h"

#ifdef GH_CRASH_POINTS

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { HELD_MS = 30000 };

void crash_point(const char *name)
{
	const char *dir = getenv("GATEHOUSE_CRASH_DIR");
	char armed[PATH_MAX], reached[PATH_MAX + 16];
	if (dir == NULL || (size_t)snprintf(armed, sizeof armed, "%s/%s", dir, name) >= sizeof armed)
		return;
	(void)snprintf(reached, sizeof reached, "%s.reached", armed);
	/* rename is the claim: of several threads and processes exactly one gets it. */
	if (rename(armed, reached) != 0)
		return;
	const struct timespec pause = { 0, 5000000 };
	for (int64_t end = clock_ms() + HELD_MS; clock_ms() < end && access(reached, F_OK) == 0;)
		(void)nanosleep(&pause, NULL);
}

#endif
