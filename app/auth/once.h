/*
 * once.h - a POST that creates, sent again with the same Idempotency-Key, creates nothing new (HTTP-7).
 *
 * An op says so by OP_ONCE in its row and needs to do nothing else: its answer is stored in a transaction that is open around
 * it. That costs a connection while it works, and a crash between its work and the commit is not seen. So an op that creates in a
 * transaction of its own says OP_KEEPS too, and opens and commits that one with the two functions below.
 *
 * A twin that comes while the first is at work is told 409 with Retry-After, as the users of such APIs know it. Errors are not
 * stored: what was refused created nothing, and the same key may be tried again.
 *
 * Whether it is the same request says a fingerprint of its input, made with the sealing key, as there may be credentials in it. A
 * row says which key that was, and auth/reseal gives no key up that a row of the last day needs.
 */
#pragma once

#include "auth/seal.h"
#include "io/pg.h"
#include "op/op.h"

enum { ONCE_KEY_BYTES = 255, ONCE_BODY_BYTES = 256 * 1024 };

/* What fcgi_opts.call does with the process's keys: run the op, or answer in its place. */
json_t *once_call(struct ctx *c, const struct seal_key *keys, const struct op *op, json_t *in, struct err *e);

/* pg_begin, and with a key: nobody else is at work with it and nothing was created. -1 with e otherwise: give it back, once_call
 * knows what to answer. */
int once_begin(struct ctx *c, struct pg *db, struct err *e);
/* pg_commit, and with a key: what is answered to a repetition. `answer` is taken. whole: it is the op's answer; otherwise it says
 * only what was created, as op->again or, for an OP_SECRET op, the 409 needs it ("id"). */
int once_commit(struct ctx *c, struct pg *db, bool whole, json_t *answer, struct err *e);
/* Put `made`, which is taken, in the place of what once_commit wrote for op->again. Where it cannot be stored, that stays. */
void once_note(struct ctx *c, json_t *made);
/* What once_commit wrote was not created after all: the key is free again. Nothing without one. */
void once_undo(struct ctx *c);
