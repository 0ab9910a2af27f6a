/*
 * span.h - how long something took, for bounds from above. A bound such as "within a second" is of a machine that keeps up with its
 * work: where tests run beside each other on few processors, what is asked for may be late although nobody was slow. So the time in
 * which tasks of this machine waited for a processor, the disk or memory is told by the kernel and does not count; on a machine
 * with nothing else to do that is next to nothing. Bounds from below are of the clock alone (clock_ms).
 */
#pragma once

#include <stdint.h>

struct span {
	int64_t began_ms, waited_ms;
};

struct span span_begin(void);
int64_t span_ms(const struct span *s);
