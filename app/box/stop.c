/* stop.c - killing whole trees (SBX-41, SBX-44), round after round until a walk finds nothing. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "box/box.h"
#include "box/tree.h"

enum {
	ROUND_MS = 5,        /* between rounds, until… */
	SLOW_AFTER_MS = 200, /* …this long; then slower */
	SLOW_ROUND_MS = 50,
	FREEZE_AFTER_MS = 250,
	ANSWER_MS = ESCAPE_MS + 1000,
	STOPPED_MAX = 256,
};

void kill_begin(struct box *b, struct cmd *c, uint8_t flag)
{
	if (c->state == CMD_FEEDING)
		return;
	if (c->state != CMD_ENDED)
		c->flags |= flag;
	if (c->kill_ms == 0) {
		c->kill_ms = clock_ms();
		c->empty = 0;
	}
	b->next_kill_ms = 1; /* in this turn */
}

static bool is_alive(const struct tree_proc *p)
{
	return p->state != 'Z' && p->state != 'X';
}

static bool is_doomed(const struct tree_proc *p, bool old)
{
	return is_alive(p) && !p->keeper &&
	    (p->stray || (p->old && old) || (p->owner != NULL && p->owner->kill_ms != 0));
}

/*
 * A process group first: that is one act in the kernel, so a fork in it cannot get away. Groups do not reach across
 * sessions, and every session but the box's and the keepers' was made below one keeper: a group of the tree is in the tree.
 */
static void kill_one(const struct tree_proc *p, pid_t *last_group)
{
	bool keepers = p->owner != NULL &&
	    p->pgid == p->owner->keeper; /* a leader that has not called setsid yet */
	if (p->pgid > 1 && p->pgid != *last_group && !keepers && p->pgid != getpgrp()) {
		(void)kill(-p->pgid, SIGKILL);
		*last_group = p->pgid;
	}
	(void)kill(p->pid, SIGKILL);
}

/* Kill what the walk found; the highest pid of those, 0 for none. Keepers are only waked, in case somebody stopped them. */
static pid_t round_of_kills(const struct tree_proc *procs, int n, bool old)
{
	pid_t last_group = 0, highest = 0;
	for (int i = 0; i < n; i++) {
		const struct tree_proc *p = &procs[i];
		if (p->owner != NULL && !p->stray && is_alive(p) && !p->keeper)
			p->owner->alive++;
		if (p->keeper && p->owner != NULL && p->owner->kill_ms != 0 && p->state == 'T')
			(void)kill(p->pid, SIGCONT);
		if (is_doomed(p, old)) {
			highest = p->pid;
			kill_one(p, &last_group);
		}
	}
	return highest;
}

static bool was_stopped(const pid_t *stopped, int n, pid_t pid)
{
	for (int i = 0; i < n; i++)
		if (stopped[i] == pid)
			return true;
	return false;
}

/*
 * Something forks faster than it is found, each child in a session of its own, or leaves the box no time to look: a walk was
 * given up, or found what was not there in the one before. Stop the
 * whole sandbox in one act, walk, kill, and let the others go on, but not those that the last walk (n processes) had seen
 * stopped. How many the new walk found. Only as pid 1, where -1 means the sandbox.
 */
static int freeze_round(struct box *b, struct tree_proc *procs, int n)
{
	pid_t stopped[STOPPED_MAX];
	int n_stopped = 0;
	bool cut;
	for (int i = 0; i < n && n_stopped < STOPPED_MAX; i++)
		if (procs[i].state == 'T')
			stopped[n_stopped++] = procs[i].pid;
	(void)kill(-1, SIGSTOP);
	n = tree_walk(b, true, &procs, &cut);
	(void)round_of_kills(procs, n, b->old);
	for (int i = 0; i < n; i++)
		if (!is_doomed(&procs[i], b->old) && procs[i].pid != getpid() &&
		    !was_stopped(stopped, n_stopped, procs[i].pid))
			(void)kill(procs[i].pid, SIGCONT);
	return n;
}

/* When the killing that goes on began; 0: none does. */
static int64_t killing_since(const struct box *b)
{
	int64_t since = 0;
	for (const struct cmd *c = b->cmds; c != NULL; c = c->next)
		if (c->kill_ms != 0 && (since == 0 || c->kill_ms < since))
			since = c->kill_ms;
	return since;
}

/* Settle who is empty; is there more to do? */
static bool settle(struct box *b)
{
	bool more = b->strays || b->old;
	for (struct cmd *c = b->cmds; c != NULL; c = c->next) {
		if (c->kill_ms == 0)
			continue;
		/* With a subreaper the keeper's end is the proof; without, two walks in a row must agree. */
		c->empty = c->alive > 0 || c->keeper != 0 ? 0 : b->subreaper ? 2 : c->empty + 1;
		if (c->empty < 2)
			more = true;
		else if (c->state == CMD_ENDED)
			c->kill_ms = 0;
	}
	return more;
}

void kill_tick(struct box *b, int64_t now)
{
	if (b->next_kill_ms == 0 || now < b->next_kill_ms)
		return;
	int64_t since = killing_since(b);
	for (struct cmd *c = b->cmds; c != NULL; c = c->next)
		c->alive = 0;
	struct tree_proc *procs;
	bool cut;
	int n = tree_walk(b, !b->init, &procs, &cut);
	pid_t before = b->kill_max;
	b->kill_max = cut ? 0 : round_of_kills(procs, n, b->old);
	bool grows = before != 0 && b->kill_max > before,
	     lasts = b->kill_max != 0 && since != 0 && now - since > FREEZE_AFTER_MS;
	if (b->init && (cut || grows || lasts))
		n = freeze_round(b, procs, n);
	bool old = b->old;
	b->strays = b->old = false;
	for (int i = 0; i < n; i++) {
		b->strays |= procs[i].stray && is_alive(&procs[i]);
		b->old |= old && procs[i].old && is_alive(&procs[i]);
	}
	bool more = settle(b);
	bool slow = since != 0 && now - since > SLOW_AFTER_MS;
	if (!more)
		b->kill_max = 0;
	b->next_kill_ms = more ? now + (slow ? SLOW_ROUND_MS : ROUND_MS) : 0;
}

bool stop_await(struct box *b, uint32_t id, uint32_t cmd, uint32_t count)
{
	struct stop *s = b->n_stops >= STOPS_MAX ? NULL : calloc(1, sizeof *s);
	if (s == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "Too many stops are waiting.");
		return false;
	}
	*s = (struct stop){ .next = b->stops, .id = id, .cmd = cmd, .count = count, .since_ms = clock_ms() };
	b->stops = s;
	b->n_stops++;
	return true;
}

void stop_request(struct box *b, uint32_t id, uint32_t cmd)
{
	struct cmd *one = cmd == 0 ? NULL : cmd_find(b, cmd);
	if (cmd != 0 && one == NULL) {
		say_error(b, id, PROTO_MISSING, "There is no such command.");
		return;
	}
	if (!stop_await(b, id, cmd, 0))
		return;
	struct stop *s = b->stops;
	if (cmd == 0 && !b->subreaper) {
		b->old = true;
		b->next_kill_ms = 1;
	}
	for (struct cmd *c = b->cmds, *next; c != NULL; c = next) {
		next = c->next;
		if (cmd != 0 && c != one)
			continue;
		s->count += c->state != CMD_ENDED;
		if (c->state == CMD_FEEDING) {
			say_error(b, c->id, PROTO_CONFLICT, "The command was stopped before it began.");
			cmd_forget(b, c);
		} else if (c->state != CMD_ENDED || c->keeper != 0 || !b->subreaper) {
			kill_begin(b, c, PROTO_STOPPED);
		}
	}
}

void stop_hangup(struct box *b)
{
	while (b->stops != NULL) {
		struct stop *s = b->stops;
		b->stops = s->next;
		free(s);
	}
	b->n_stops = 0;
}

void stop_tick(struct box *b, int64_t now)
{
	for (struct stop **at = &b->stops; *at != NULL;) {
		struct stop *s = *at;
		bool busy = s->cmd == 0 && b->old;
		for (const struct cmd *c = b->cmds; c != NULL; c = c->next)
			busy |= (s->cmd == 0 || c->id == s->cmd) &&
			    (c->state != CMD_ENDED || c->kill_ms != 0);
		if (busy && now - s->since_ms < ANSWER_MS) {
			at = &s->next;
			continue;
		}
		say_done(b, s->id, s->count);
		*at = s->next;
		b->n_stops--;
		free(s);
	}
}
