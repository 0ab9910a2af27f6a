/*
 * pace.h - an upstream for benches that answers every request with a stream of chat of PACE_EVENTS events, PACE_MS before each, and remembers
 * when it sent them: how long an event takes to a client is then the difference. One stream at a time is remembered. Failures end the bench.
 */
#pragma once

enum { PACE_EVENTS = 6, PACE_MS = 3 };

int pace_start(void); /* its port */
void pace_end(void);
/* When event i of the last stream was given to the kernel (bench_now_us). */
double pace_sent_us(int i);
