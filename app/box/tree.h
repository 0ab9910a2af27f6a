/*
 * tree.h - which processes belong to which command, told from one walk through /proc.
 *
 * Every command runs under a keeper, a forked copy of the box that does nothing but wait. On Linux the keeper is a child
 * subreaper: whatever double-forks or calls setsid below it is re-parented to the keeper, so descent from the keeper is
 * complete, and the keeper's own exit (it has no child left) is the proof that the tree is gone. Code in the sandbox can
 * kill a keeper, as it has the same uid; then its orphans come to the box, which kills every child that is no keeper.
 *
 * gVisor ignores PR_SET_CHILD_SUBREAPER: orphans come to the box at once. There a process is told by its mark, a hard
 * RLIMIT_RSS that no kernel enforces and that fork and exec keep. It can only be lowered, so code that tampers with it ends
 * up with a mark that nobody has, and is killed at sight, unless it copies the mark of a later command of the same sandbox:
 * then it dies with that one. A mark that was given out, to a command that is forgotten by now, is left alone until everything
 * is stopped.
 */
#pragma once

#include "box/box.h"

struct tree_proc {
	pid_t pid, ppid, pgid, sid;
	char state;
	bool keeper;
	bool stray; /* a child of the box that nobody keeps */
	bool old;   /* left behind by a command that is forgotten */
	struct cmd *owner;
};

enum { TREE_MAX = 8192 }; /* processes of one walk; more are found by the next, when these are dead */

/*
 * Walk and attribute. The processes, in rising order of pid, in a table of the module's own: how many, or -1 (no /proc).
 * Without patience a walk that takes much longer than it should is given up (*cut): so many processes run that the box
 * hardly does. What was seen by then is not attributed.
 */
int tree_walk(struct box *b, bool patient, struct tree_proc **procs, bool *cut);
void tree_setup(void); /* once, while there are descriptors */
/* A mark for a new command, lower than any before it. */
uint64_t tree_mark(uint32_t id);
