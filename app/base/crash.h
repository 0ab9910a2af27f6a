/*
 * crash.h - named points at which tests kill a process (REL-1). Compiled in only with GH_CRASH_POINTS (the sanitizer
 * build that the flow tests run); nothing at all otherwise.
 *
 * crash_point("run.leased"): when $GATEHOUSE_CRASH_DIR/run.leased exists, it is renamed to run.leased.reached (so one
 * process stops there once) and the caller waits, at most 30 s, until that file is gone; the test kills whom it likes
 * meanwhile and removes the file. All names are listed in app/README.md.
 */
#pragma once

#ifdef GH_CRASH_POINTS
void crash_point(const char *name);
#else
#define crash_point(name) ((void)0)
#endif
