/* clock.h - monotonic time for durations and deadlines, wall time only to be shown. */
#pragma once

#include <stdint.h>

int64_t clock_ms(void); /* CLOCK_MONOTONIC */
int64_t clock_us(void);
int64_t clock_wall_ms(void); /* CLOCK_REALTIME, milliseconds since 1970 */
int64_t clock_wall_us(void);
/* RFC 3339 UTC with milliseconds (HTTP-8). */
enum { CLOCK_TEXT = 32 };
void clock_rfc3339(int64_t wall_ms, char out[CLOCK_TEXT]);
/* Milliseconds left until a monotonic deadline, never below 0, capped for poll(). */
int clock_left_ms(int64_t deadline_ms);
