/* wire_int.h - what the readers and writers of the three wires share among themselves. Nobody else includes this. */
#pragma once

#include "model/scan.h"
#include "model/wire.h"

/* ---- usage, as the three wires spell it; each field is the largest that was told, so that cumulative figures count once */
struct wire_counts {
	bool known, odd, output; /* output: its figure is for all of it */
	long long in, out, read, written, cached,
	    reasoning; /* read, written: of a cache, beside `in` on messages */
};
void wire_counts_scan(struct scan *s, struct wire_counts *c); /* takes one value */
void wire_counts_json(const json_t *usage, struct wire_counts *c);
void wire_count(struct wire_counts *c, struct str key, long long n); /* one member; n below 0 is no count */
struct wire_usage wire_counts_usage(enum provider_wire w, const struct wire_counts *c);
/* {…} as the wire writes it, new reference. */
json_t *wire_usage_json(enum provider_wire w, const struct wire_usage *u);

/* A plain answer of chat.completions, read without a tree: as wire_answer_read does, into *out; false, and *out is as it was: it is not
 * plain, which says nothing of it. */
bool wire_answer_plain(struct mem *m, struct str body, struct wire_answer *out);

/* A finish reason of a wire; WIRE_UNFINISHED for "" and what is no word. */
enum wire_finish wire_finish_of(enum provider_wire w, struct str word);
/* How an upstream names a fault in a stream or a body, by `code` and `type`. */
enum wire_fault wire_fault_named(int status, const char *code, const char *type, const char *message);

/* ---- reasoning of another wire (opaque.c) */
bool wire_marked(const char *s);
void wire_mark(struct buf *out, enum provider_wire maker, bool redacted, struct str id, struct str opaque);
/* maker, opaque, redacted and id of a part, from what a client of `here` sends. */
void wire_unmark(struct mem *m, enum provider_wire here, const char *s, struct wire_part *part);

/* ---- stream readers */
enum { WIRE_ITEMS_MAX = 512 };
struct wire_in_call {
	long long index; /* the upstream's: an index on chat and responses, a block's on messages */
	int choice, nth; /* nth: among the calls of its choice */
	char *id;        /* never NULL */
	bool ended, custom;
	size_t args; /* bytes so far */
};
struct wire_in_fix {
	int call;
	bool wants_id;
};
enum { WIRE_AGAIN_BYTES = 1024 }; /* at most: an open stream holds them */
struct wire_again {               /* an event that others repeat but for its text; offsets in it */
	struct buf event;
	bool known;
	enum wire_piece_kind kind;
	int choice;
	size_t text, behind;    /* of its text: the opening quote, and what follows the closing one */
	size_t pad, pad_behind; /* likewise of a text that nobody reads; event.n: there is none */
};
struct wire_in {
	enum provider_wire w;
	bool usage_asked, started;
	struct wire_seen seen;
	struct wire_counts counts;
	struct wire_piece *pieces;
	size_t n_pieces, cap_pieces;
	enum wire_pass pass;
	uint64_t begun, done; /* completions, a bit each */
	struct buf text;      /* what had to be unescaped in this event */
	size_t most;          /* its bound: the event's size */
	bool repeats;         /* another event with another text would do the same; set by the reader */
	struct wire_again again;
	struct wire_in_call *calls;
	int n_calls, cap_calls;
	struct wire_in_fix *fixed; /* chat: the calls of this event's deltas, in order */
	int n_fixed, cap_fixed;
	long long open_index; /* messages: the block that is open, and what it is; responses: the item */
	int open_kind;
	long long items_done; /* responses */
	unsigned char
	    given[WIRE_ITEMS_MAX / 8]; /* responses: of which items something was given; a bit each */
	char stop[256];                /* messages: the stop sequence that was met */
};

typedef int wire_in_fn(struct wire_in *in, const struct sse_event *ev, struct err *e);
wire_in_fn wire_in_chat, wire_in_responses, wire_in_messages;

struct wire_piece *wire_in_add(
    struct wire_in *in, enum wire_piece_kind kind); /* zeroed; valid until the next add */
void wire_in_text(
    struct wire_in *in, enum wire_piece_kind kind, int choice, struct str text); /* nothing for "" */
/* again.c: is it the event that was learnt last, with another text? Then that is given, and nothing is left to do. */
bool wire_again(struct wire_in *in, struct str data);
void wire_again_learn(struct wire_in *in, struct str data); /* the event that was just read */
bool wire_in_utf8(struct str s);
struct str wire_in_str(struct wire_in *in, struct scan_text t); /* the text, valid for this event */
void wire_in_start(struct wire_in *in, struct str id,
    struct str model);                                  /* the first time only; before what this event gave */
void wire_in_usage(struct wire_in *in, struct scan *s); /* takes a value */
void wire_in_finish(struct wire_in *in, int choice, enum wire_finish f, struct str stop);
void wire_in_end(struct wire_in *in);
/* A new call; id empty: one is made up. Its number. */
int wire_in_begin(struct wire_in *in, int choice, long long index, struct str id, struct str name,
    struct str space, bool custom);
void wire_in_args(struct wire_in *in, int call, struct str text);
void wire_in_call_end(struct wire_in *in, int call);
/* The value of an `error` member, or a whole object that is one: {message, type, code}, or a string. */
void wire_in_fault(struct wire_in *in, struct scan *s);
int wire_in_malformed(const struct wire_in *in, struct err *e);
void wire_copy(char *out, size_t size, struct str s); /* cut at a character */
