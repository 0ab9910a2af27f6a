/*
 * span.h - how long something took, for bounds from above. A bound such as "within a second" is of an ordinary machine that keeps up
 * with its work. Two things make a test late although nobody was slow, and neither counts:
 *  - where tests run beside each other on few processors, their tasks wait for a processor, the disk or memory. The kernel tells how
 *    long, and that is subtracted; on a machine with nothing else to do it is next to nothing.
 *  - a small virtual machine takes many times longer for the same work: the processes and pages that every test is made of may cost
 *    it ten times what they cost elsewhere, and a sanitizer asks for many. How many times is measured (the pace), and what is left is
 *    divided by it. It is 1 on an ordinary machine and on every faster one, and 20 at most, so that a bound stays one.
 * Bounds from below are of the clock alone (clock_ms).
 */
#pragma once

#include <stdint.h>

/* For what ends by itself: longer than anything takes on a machine that does ten other things. What has to be quick is measured. */
enum { PATIENCE_MS = 60000 };

struct span {
	int64_t began_ms, waited_ms;
};

struct span span_begin(void);
int64_t span_ms(const struct span *s);
/* The same of a time that somebody else measured, of something that began and ended since span_begin(): duration_ms of a reply. */
int64_t span_of(const struct span *s, int64_t told_ms);

/* What counts of took_ms when tasks waited for waited_ms at this pace. */
int64_t span_left(int64_t took_ms, int64_t waited_ms, double pace);
/* For a limit that has to be met with and must not be met with too early: ms, as many times longer as this machine is slower and has
 * more to do than an ordinary one with nothing else, 40 times at most. ms is ten times what it takes there. */
int span_room_ms(int ms);
/* How much dearer processes and pages are here than on an ordinary machine, 1 to 20; measured at the first call, in 0.1 s at most. */
double span_pace(void);
