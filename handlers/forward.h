/*
 * forward.h - the lines of a command on their way to a client: as they come, with where to go on after each.
 */
#pragma once

#include "base/id.h"
#include "op/op.h"
#include "session/narrate.h"

/* An event's id is the offsets behind it, and whether the command's end is told. */
#define FORWARD_END "-end"
struct forward {
	struct ctx *c;
	struct narrator *to; /* NULL: no session */
	bool stream;         /* lines go to the client */
	bool gone, drained;
	bool announce; /* the client is to be told which command this is */
	bool last;     /* the command's end is told */
	char cmd[ID_MAX];
	long long at[2]; /* behind what was told, of each stream */
	int64_t last_ms;
};

/* Called with struct forward as box_cmd.on_line and .cancelled: a line is passed on and narrated; -1 and true when nobody reads on. */
int forward_line(void *f, const json_t *line);
bool forward_cancelled(void *f);
/* The process ends before the command does: the client goes on from here, at any API host. */
void forward_hint(struct forward *f);
/* The last line of a command whose end nobody knows. */
void forward_lost(struct forward *f, const struct err *e);
