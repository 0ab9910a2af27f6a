#include "base/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static int64_t now(clockid_t id)
{
	struct timespec t;
	(void)clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_ms(void)
{
	return now(CLOCK_MONOTONIC);
}

int64_t clock_wall_ms(void)
{
	return now(CLOCK_REALTIME);
}

void clock_rfc3339(int64_t wall_ms, char out[CLOCK_TEXT])
{
	time_t s = (time_t)(wall_ms / 1000);
	struct tm tm;
	char day[24];
	(void)gmtime_r(&s, &tm);
	(void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(out, CLOCK_TEXT, "%s.%03dZ", day, (int)(wall_ms % 1000));
}

int clock_left_ms(int64_t deadline_ms)
{
	int64_t left = deadline_ms - clock_ms();
	if (left <= 0)
		return 0;
	return left > INT_MAX ? INT_MAX : (int)left;
}
