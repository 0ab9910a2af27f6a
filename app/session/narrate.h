/*
 * narrate.h - a command's output told into a session while it runs (SBX-43): at most one append a second, each at most
 * 8 KiB of tail, the last words always, then the step `exit`. A failed append never fails the command. What cannot be said
 * because PostgreSQL is away waits; after any other failure that command narrates no more. Not thread-safe: one thread feeds it.
 */
#pragma once

#include "base/buf.h"
#include "base/secret.h"
#include "session/event.h"

enum { NARRATE_TAIL_BYTES = 4096 }; /* kept for narrate_tail */

struct narrate_to { /* borrowed for the narrator's life */
	struct pg_pool *db;
	const char *org, *session;
	const struct fence *fence; /* NULL: no job is behind the session */
	const struct secret *hide; /* NULL, or what must not appear in any form (COD-8) */
};
struct narrator;

void narrate_free(struct narrator *n);
struct narrator *narrate_new(const struct narrate_to *to) MADE_FOR(narrate_free);
/* Bytes of either stream, in the order they came. */
void narrate_output(struct narrator *n, const char *p, size_t len);
/* What box_run's on_line is given: stdout and stderr lines are output, the others are ignored. */
void narrate_box_line(struct narrator *n, const json_t *line);
/* To be called about once a second: says what waits when the command has fallen silent. */
void narrate_tick(struct narrator *n);
/* The last words, then a `tool-call` step `exit` with `how` ("exit 0", "killed by SIGKILL", "the channel was lost: …").
 * -1 when PostgreSQL is away: call it again to have it said after all; what was said is not said twice. */
int narrate_exit(struct narrator *n, const char *how);
/* Append the end of all output, without secrets: NARRATE_TAIL_BYTES of it (U+0000 becomes U+FFFD, three bytes). */
void narrate_tail(const struct narrator *n, struct buf *out);

static inline void auto_narratep(struct narrator **n)
{
	narrate_free(*n);
}
#define auto_narrate AUTO(auto_narratep)
