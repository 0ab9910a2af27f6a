#include "base/clock.h"

#include <limits.h>
#include <string.h>
#include <time.h>

static int64_t now(clockid_t id)
{
	struct timespec t;
	(void)clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_us(void)
{
	return now(CLOCK_MONOTONIC);
}

int64_t clock_ms(void)
{
	return clock_us() / 1000;
}

int64_t clock_wall_us(void)
{
	return now(CLOCK_REALTIME);
}

int64_t clock_wall_ms(void)
{
	return clock_wall_us() / 1000;
}

static void digits(char *to, int v, int n)
{
	for (; n > 0; v /= 10)
		to[--n] = (char)('0' + v % 10);
}

/* The years that four digits can say; a file's times may be any number. */
static const int64_t first_ms = -62167219200000, last_ms = 253402300799999;

/* Every line of a log begins with one, so by hand. */
void clock_rfc3339(int64_t wall_ms, char out[CLOCK_TEXT])
{
	wall_ms = wall_ms < first_ms ? first_ms : wall_ms > last_ms ? last_ms : wall_ms;
	int ms = (int)((wall_ms - first_ms) % 1000);
	time_t s = (time_t)((wall_ms - ms) / 1000);
	struct tm tm;
	(void)gmtime_r(&s, &tm);
	memcpy(out, "0000-00-00T00:00:00.000Z", sizeof "0000-00-00T00:00:00.000Z");
	digits(out, tm.tm_year + 1900, 4);
	digits(out + 5, tm.tm_mon + 1, 2);
	digits(out + 8, tm.tm_mday, 2);
	digits(out + 11, tm.tm_hour, 2);
	digits(out + 14, tm.tm_min, 2);
	digits(out + 17, tm.tm_sec, 2);
	digits(out + 20, ms, 3);
}

int clock_left_ms(int64_t deadline_ms)
{
	int64_t left = deadline_ms - clock_ms();
	if (left <= 0)
		return 0;
	return left > INT_MAX ? INT_MAX : (int)left;
}
