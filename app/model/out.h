/*
 * out.h - pieces of any wire, put into the order that all three can say: one block after another, each opened, grown and closed.
 * Calls whose arguments arrive interleaved (chat allows it) wait for the one before; text that comes between them follows them.
 */
#pragma once

#include "model/answer.h"

enum wire_block { WIRE_B_NONE, WIRE_B_TEXT, WIRE_B_REFUSAL, WIRE_B_REASONING, WIRE_B_CALL };

struct wire_out_call {
	struct wire_part own; /* as the client named its tool; strings are the arena's */
	bool raw_custom;      /* its arguments are the custom input itself */
	bool ended;           /* no more comes */
	struct buf args;
	size_t sent;
};

struct wire_out {
	enum provider_wire w;
	struct wire_self self;
	struct mem *mem;
	bool begun, ended, bad_args;
	char model[128];
	enum wire_block open;
	bool redacted;   /* the reasoning that is open has nothing readable */
	struct buf text; /* of the open block, and of what waits behind calls */
	struct buf late;
	struct wire_part mark; /* reasoning: maker, id and opaque */
	struct wire_out_call *calls;
	int n_calls, cap_calls, head; /* head: the first that is not closed */
	struct wire_usage usage;
	enum wire_finish finish;
	bool refused;
	char stop[256];
	/* Of the wire that is written. */
	int blocks;    /* so far: the open one's index is blocks - 1 */
	long long seq; /* responses */
	json_t *items; /* responses: those that are done */
	char id[96];   /* responses: the open item's */
};

struct wire_out_ops {
	void (*begin)(struct wire_out *o, struct buf *to);
	void (*open)(struct wire_out *o, struct buf *to);
	void (*delta)(struct wire_out *o, struct str text, struct buf *to);
	void (*close)(struct wire_out *o, struct buf *to);
	void (*end)(struct wire_out *o, struct buf *to);
};
extern const struct wire_out_ops wire_out_chat, wire_out_responses, wire_out_messages;

struct wire_out_call *wire_out_head(struct wire_out *o);
/* What marks the reasoning that is open: a mark, or what its maker wrote where that reads it itself. In the arena. */
const char *wire_out_mark(struct wire_out *o);
void wire_put_text(struct buf *to, struct str s);                /* a JSON string with its quotes */
void wire_put_json(struct buf *to, const char *name, json_t *v); /* an event of it; takes v */
