/*
 * wire.h - the three wires of model calls (MOD-1) and what is between them: one internal form, a reader and a writer for each wire.
 * Pure: bytes and JSON in, bytes and JSON out. What is carried from where to where is one table (model/rules.c, TRANSLATION.md).
 *
 * On the same wire nothing is translated: the client's body goes on as it came (wire_forward), the upstream's frames go back as the
 * bytes they were, and the readers here only look. Between two wires everything passes through the internal form.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/sse.h"

/* chat.completions, responses, messages. Their names are in model/provider.h. */
enum provider_wire { WIRE_CHAT, WIRE_RESPONSES, WIRE_MESSAGES };
enum { WIRES = 3 };

/* ---- what both sides of a call share */

enum wire_finish {
	WIRE_UNFINISHED,
	WIRE_STOP,    /* the model was done, or met a stop sequence */
	WIRE_LENGTH,  /* the limit of output tokens, or the context's end */
	WIRE_CALLS,   /* it waits for the results of its calls */
	WIRE_REFUSED, /* content filter or refusal: not routed around (MOD-8) */
	WIRE_PAUSED,  /* messages: a long turn is to be continued */
};
const char *wire_finish_name(enum wire_finish f); /* in the words of chat.completions */

/* Tokens. input counts all of them, those read from and written to a cache too; output counts reasoning too. */
struct wire_usage {
	bool known;
	bool odd;  /* a figure is no count: below zero, a fraction, too long */
	bool part; /* no figure for all of the output: none, or what a stream of messages begins with */
	long long input, cached, cache_write, output, reasoning;
};
/* Where an upstream tells no usage: four bytes to a token. An estimate, and to be called one wherever it is used. */
long long wire_estimate_tokens(size_t bytes);
/* The same for a request body in any wire: the text in it, and a flat figure for each image and document. */
long long wire_estimate_request(const json_t *body);
/* More input tokens than a request can be, whatever an upstream says: from its bytes, its images and documents, and what vendors
 * add; WIRE_INPUT_ANY where a stored conversation or a vendor's own tool brings more. Looks through all of the body;
 * WIRE_INPUT_LEAST is never above it. */
enum { WIRE_INPUT_ANY = 2000000, WIRE_INPUT_LEAST = 10000 };
long long wire_input_most(const json_t *body);
/* In an answer of wire w, or an event of its stream: put these figures where it tells usage, if it does. */
void wire_usage_put(enum provider_wire w, json_t *v, const struct wire_usage *u);

/* What went wrong, as far as a client needs to know it. wire_refusal has its status and body in each dialect. */
enum wire_fault {
	WIRE_FAULT_NONE,
	WIRE_BAD_REQUEST,
	WIRE_AUTH,          /* the client's key */
	WIRE_GATE,          /* the billing gate is closed (MOD-10) */
	WIRE_FORBIDDEN,     /* a model that the org may not use */
	WIRE_UNKNOWN_MODEL, /* 404 */
	WIRE_NOT_FOUND,
	WIRE_METHOD,
	WIRE_CONFLICT, /* the same idempotency key is at work */
	WIRE_REUSED,   /* it was another request's */
	WIRE_NOT_KEPT, /* its call was answered, and the answer is not kept */
	WIRE_TOO_LARGE,
	WIRE_CONTEXT, /* longer than the model's context: never retried */
	WIRE_POLICY,  /* the content was refused by the provider */
	WIRE_RATE,    /* 429, with Retry-After */
	WIRE_UPSTREAM,
	WIRE_OVERLOADED, /* 503; 529 on messages */
	WIRE_TIMEOUT,
	WIRE_INTERNAL,
	WIRE_FAULTS_
};

/* ---- requests */

/* What a gateway must know of a request before it can route it; also the check that it is one. */
struct wire_ask {
	const char *model; /* NULL: none is named */
	bool stream;
	bool usage_asked;  /* chat: stream_options.include_usage; the other wires always tell it */
	bool tools;        /* tools are offered: raw tool markup is looked for (MOD-5) */
	long long max_out; /* tokens; 0: not stated */
	long long n;       /* completions asked for: 1 but on chat */
};
/* Strings are borrowed from body. ERR_BAD_REQUEST naming the field. */
int wire_look(enum provider_wire w, const json_t *body, struct wire_ask *out, struct err *e);

/* What the writers need to know that the request does not say. */
struct wire_target {
	const char *model;    /* as the provider calls it */
	long long max_output; /* the model's limit; 0: not known */
};
/*
 * The body for an upstream on the client's own wire, a new reference: the model's name replaced, usage asked for on a chat stream,
 * reasoning that another wire's model left in the conversation taken out. Everything else, unknown fields too, is as it came.
 */
json_t *wire_forward(enum provider_wire w, const json_t *body, const struct wire_target *t);

/* How tools are called on the other side: the writer of the answer gives the client its own names and kinds back. */
struct wire_names;
/*
 * The body for an upstream on another wire, in the arena. *names is for the answer. ERR_BAD_REQUEST naming the field that cannot be
 * carried; what is dropped is what the table says.
 */
json_t *wire_translate(struct mem *m, enum provider_wire from, enum provider_wire to, const json_t *body,
    const struct wire_target *t, const struct wire_names **names, struct err *e);

/* ---- buffered answers */

enum wire_part_kind {
	WIRE_TEXT,
	WIRE_IMAGE,
	WIRE_DOCUMENT,
	WIRE_CALL,
	WIRE_RESULT,
	WIRE_REASONING,
	WIRE_REFUSAL,
};
struct wire_part {
	enum wire_part_kind kind;
	const char
	    *text; /* text, refusal, readable reasoning; the input of a custom call; never NULL in these */
	const char *id;    /* call and result: the call's id */
	const char *name;  /* call: the tool; document: its title */
	const char *space; /* call: the namespace of the tool, or NULL */
	/* Reasoning: what only its maker can read (a signature, an encrypted text), or NULL; redacted: there is nothing readable. */
	const char *opaque;
	enum provider_wire maker;
	bool redacted;
	bool custom; /* call: free text instead of JSON arguments, which are `text` too */
	bool failed; /* result: the tool failed */
	/* image, document: one of data (base64, with its type), url, file_id */
	const char *type, *data, *url, *file_id, *detail;
	struct wire_part *parts; /* result: what the tool gave */
	size_t n_parts;
};

struct wire_answer {
	const char *id, *model; /* the upstream's; NULL when it tells none */
	struct wire_part *parts;
	size_t n_parts;
	enum wire_finish finish;
	const char *stop_sequence; /* or NULL */
	struct wire_usage usage;
	long long n;        /* completions; more than one only on chat */
	bool unparsed_call; /* the arguments of a call are no JSON object */
	bool whole;         /* no answer, and yet JSON to its end: asked again it would hardly be read */
	/* The upstream says 200 and means a failure: kind and its words. */
	enum wire_fault fault;
	const char *fault_text;
};
/*
 * What an upstream wrote as JSON, as a tree (new reference; NULL with e as of js_parse): a byte order mark before it is passed over, and an
 * escape that spells no character (U+0000, which no tree holds, half of a pair of surrogates) is read as U+FFFD. So does scan_unescape.
 */
json_t *wire_parse(const char *p, size_t n, struct err *e);
/* Everything is in the arena. ERR_UPSTREAM: it is no answer of this wire (nothing in it, no choices, HTML, cut off). */
int wire_answer_read(
    struct mem *m, enum provider_wire w, const char *body, size_t n, struct wire_answer *out, struct err *e);
/* The text of all parts that a client would show, joined: what markup is looked for in. */
const char *wire_answer_text(struct mem *m, const struct wire_answer *a);
/* Bytes of text, reasoning, names and arguments in it: to be estimated from, as wire_seen's. Of several completions each counts as the
 * first, which is the one that is read. */
size_t wire_answer_written(const struct wire_answer *a);

/* What a written answer or stream says of itself. */
struct wire_self {
	const char *tail;  /* of its id, to which each dialect's prefix is put */
	const char *model; /* what answered */
	long long created_s;
	bool usage_asked; /* chat streams: send the usage chunk */
	const struct wire_names *names;
};
/* The answer in another wire, new reference. ERR_UPSTREAM when it holds what that wire cannot say (arguments that are no object). */
json_t *wire_answer_write(
    enum provider_wire w, const struct wire_answer *a, const struct wire_self *self, struct err *e);

/* ---- refusals and faults */

struct wire_refusal {
	int status;
	char *body;  /* in the arena */
	int retry_s; /* Retry-After; 0: none */
	bool final;  /* x-should-retry: false, for clients that go by the status alone */
};
/* param: the field at fault, or NULL. retry_s: 0 lets the kind decide. */
struct wire_refusal wire_refuse(struct mem *m, enum provider_wire w, enum wire_fault kind,
    const char *message, const char *param, const char *request_id, int retry_s);
/* How our own errors look to clients of these wires. */
enum wire_fault wire_fault_of(const struct err *e);

/* What an upstream's refusal says: its kind, and its words for the log (they may quote what must not reach a caller). */
struct wire_said {
	enum wire_fault
	    kind; /* WIRE_UPSTREAM where status and body say nothing better; WIRE_AUTH: our key there */
	char code[64];
	char message[400];
	char
	    param[96]; /* the member of the request that is at fault, or "": also where it is no plain name */
	bool quota;    /* the provider's account has no money or quota left: another key may have */
};
void wire_upstream_said(int status, const char *body, size_t n, struct wire_said *out);

/* ---- streams: the upstream's side */

enum wire_piece_kind {
	WIRE_P_START,     /* id, model */
	WIRE_P_TEXT,      /* text */
	WIRE_P_REASONING, /* text that people may read */
	WIRE_P_OPAQUE, /* text: what only its maker can read; ends a piece of reasoning. custom: there was nothing readable */
	WIRE_P_REFUSAL,  /* text */
	WIRE_P_CALL,     /* call, id, name, space: a call begins */
	WIRE_P_ARGS,     /* call, text: more of its arguments */
	WIRE_P_CALL_END, /* call: has all its arguments. Not told by chat */
	WIRE_P_USAGE,    /* usage, so far */
	WIRE_P_FINISH,   /* finish; text: the stop sequence */
	WIRE_P_FAULT,    /* the upstream's error: fault, text (its words), id (its code) */
	WIRE_P_PING,
	WIRE_P_END, /* the terminal event */
};
struct wire_piece {
	enum wire_piece_kind kind;
	int choice; /* of several completions; 0 but on chat */
	int call;   /* 0, 1, 2 … in the order they began, whatever the upstream's indexes are */
	bool custom;
	enum provider_wire maker; /* opaque: whose it is */
	struct str text, id, name, space;
	enum wire_finish finish;
	enum wire_fault fault;
	struct wire_usage usage;
};

/* What becomes of a frame on the same wire. */
enum wire_pass {
	WIRE_PASS, /* pass on sse_event.raw, exactly */
	WIRE_PASS_FIXED, /* pass on what wire_in_fixed makes of it: indexes or finish reason are not what they should be */
	WIRE_PASS_NOT, /* it is not for the client: usage it did not ask for, an error in place of which it gets ours */
};
struct wire_read {
	const struct wire_piece *pieces; /* valid until the next event */
	size_t n;
	enum wire_pass pass;
};

/* What was seen so far: what the buffered path records, too (MOD-6). */
struct wire_seen {
	char id[128], model[128];
	struct wire_usage usage;
	enum wire_finish finish;
	bool content;  /* text, reasoning, a refusal or a call: from here on nothing is retried */
	bool finished; /* all that the client needs was said: a finish reason, or the terminal event */
	bool ended;    /* the terminal event was seen */
	bool fault;    /* the upstream told of an error */
	int calls;     /* that began */
	/* responses: when it was created, and the number of the event that would follow; 0: not told */
	long long created_s, next;
	size_t written; /* bytes of text, reasoning and arguments: to be estimated from */
};

struct wire_in;
/* usage_asked: the client wants chat's usage chunk. */
struct wire_in *wire_in_new(enum provider_wire w, bool usage_asked);
void wire_in_free(struct wire_in *in);
/* One event. -1 (ERR_UPSTREAM): it is not JSON, or not of this wire. What was seen is then as it was before it. */
int wire_in_event(struct wire_in *in, const struct sse_event *ev, struct wire_read *out, struct err *e);
/* Nothing may come for long: memory that it can do without is given back. */
void wire_in_silent(struct wire_in *in);
const struct wire_seen *wire_in_seen(const struct wire_in *in);
/* The frame of the last event as it should have been; usage: in place of what it tells, or NULL. -1: it cannot be made, or has no
 * room; the stream is then no success. */
int wire_in_fixed(
    struct wire_in *in, const struct sse_event *ev, const struct wire_usage *usage, struct buf *out);
/* Same wire, the upstream left after `finished` without its terminal event: what is missing of it. */
int wire_in_rest(const struct wire_in *in, struct buf *out);

static inline void auto_wire_inp(struct wire_in **in)
{
	wire_in_free(*in);
}
#define auto_wire_in AUTO(auto_wire_inp)

/* ---- streams: the client's side */

struct wire_out;
struct wire_out *wire_out_new(enum provider_wire w, const struct wire_self *self); /* keeps self's pointers */
void wire_out_free(struct wire_out *o);
/*
 * Append what the client gets for this piece; many pieces give nothing at once. WIRE_P_END (or wire_out_end, where the upstream left
 * it out) writes the terminal events. -1: ERR_UPSTREAM for what this wire cannot say; WIRE_P_FAULT is not for this, but for
 * wire_out_fault.
 */
int wire_out_piece(struct wire_out *o, const struct wire_piece *p, struct buf *to, struct err *e);
int wire_out_end(struct wire_out *o, struct buf *to, struct err *e);
/* The whole stream of an answer that came in one piece. */
int wire_out_answer(struct wire_out *o, const struct wire_answer *a, struct buf *to, struct err *e);
/* The number of its next event, of responses. What was written from there on was never sent: it is not counted. */
long long wire_out_next(const struct wire_out *o);
void wire_out_unsent(struct wire_out *o, long long next);
/* What a stream of responses said of itself when it began: its end says the same. */
struct wire_head {
	const char *id, *model;
	long long created_s, next;
};
/* The stream ends in an error that this dialect's clients take for one: no other terminal event follows. Also without a wire_out, on
 * the same wire: wire_stream_fault. */
void wire_out_fault(
    struct wire_out *o, enum wire_fault kind, const char *message, const char *request_id, struct buf *to);
void wire_stream_fault(enum provider_wire w, enum wire_fault kind, const char *message,
    const char *request_id, const struct wire_head *head, struct buf *to);
/* What keeps a silent stream open, in a form that no client takes for an answer. */
void wire_stream_ping(enum provider_wire w, struct buf *to);

static inline void auto_wire_outp(struct wire_out **o)
{
	wire_out_free(*o);
}
#define auto_wire_out AUTO(auto_wire_outp)
