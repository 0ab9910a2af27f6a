/*
 * gate.h - sandboxd's hold of the listeners through which its sandboxes reach the egress boundary (EGR-10, EGR-11): it keeps a
 * descriptor of each, gives them to gatehouse-egress, and gives them again when that has been restarted. Egress keeps its own:
 * a restarted sandboxd is given them back. A namespace lives as long as anybody holds a listener of it, so both let go when
 * the sandbox ends.
 *
 * Safe from any thread; a call waits at most a few seconds for egress.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sandbox/netns.h"

struct gate;
struct gate *gate_start(const char *socket_path); /* a thread that keeps the connection */
void gate_stop(struct gate *g); /* lets go of our descriptors, not of egress's; NULL is fine */

/* Take the listeners over (none are left in l) and give them to egress. -1 with e when egress has not taken them: it is away, or
 * cannot read the sandbox's policy. They are kept and given as soon as it can. */
int gate_open(struct gate *g, const char *id, struct listeners *l, struct err *e);
bool gate_has(struct gate *g, const char *id);
/* A sandbox of an earlier sandboxd: are its listeners among those that egress gave back? Then they are ours again. */
bool gate_claim(struct gate *g, const char *id);
/* Egress is there, and what it holds is known: a listener that nobody has is nowhere. */
bool gate_known(struct gate *g);
/* Let go, and tell egress to. A sandbox that it holds beyond that is found by gate_strays. */
void gate_close(struct gate *g, const char *id);
/* Call fn for what egress gave back and nobody has claimed, and do as it says. */
enum gate_verdict {
	GATE_KEEP,
	GATE_FORGET, /* it is not ours to hold */
	GATE_CLOSE,  /* it is over: egress lets go of it, too */
};
void gate_strays(struct gate *g, enum gate_verdict (*fn)(void *arg, const char *id), void *arg);
