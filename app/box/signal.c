/* signal.c - any signal to a command (SBX-46): found by a walk, so that it never goes to who has got a pid since. */
#include <signal.h>

#include "box/box.h"
#include "box/tree.h"

static bool is_meant(const struct tree_proc *p, const struct cmd *c, uint8_t to)
{
	if (p->owner != c || p->keeper || p->stray || p->state == 'Z' || p->state == 'X')
		return false;
	switch (to) {
	case PROTO_TO_PROCESS:
		return p->pid == c->pid;
	case PROTO_TO_GROUP:
		return p->pgid == c->pid;
	default:
		return true;
	}
}

/* How many it went to. A group gets it in one act of the kernel, in which no fork gets away. */
static uint32_t deliver(
    const struct tree_proc *procs, int n, const struct cmd *c, const struct proto_signal *s)
{
	uint32_t count = 0;
	for (int i = 0; i < n; i++) {
		if (!is_meant(&procs[i], c, s->to))
			continue;
		if (s->to == PROTO_TO_GROUP && count == 0)
			(void)kill(-c->pid, s->signal);
		else if (s->to != PROTO_TO_GROUP)
			(void)kill(procs[i].pid, s->signal);
		count++;
	}
	return count;
}

void signal_request(struct box *b, uint32_t id, const struct proto_signal *s)
{
	struct cmd *c = cmd_find(b, s->cmd);
	if (c == NULL) {
		say_error(b, id, PROTO_MISSING, "There is no such command.");
		return;
	}
	if (c->state < CMD_RUNNING) {
		say_error(b, id, PROTO_CONFLICT, "The command has not begun yet.");
		return;
	}
	struct tree_proc *procs;
	bool cut;
	int n = tree_walk(b, true, &procs, &cut);
	uint32_t count = deliver(procs, n, c, s);
	if (s->signal != SIGKILL || s->to != PROTO_TO_TREE) {
		say_done(b, id, count);
		return;
	}
	/* What has been forked meanwhile dies, too, before this is answered. */
	if (stop_await(b, id, c->id, count))
		kill_begin(b, c, 0);
}
