/* judge.h - what every reply is held to, whatever it is about. Failures fail the running test. */
#pragma once

#include "stack.h"

#include "op/op.h"

/* HTTP-4, HTTP-5: a refusal in the one envelope, with this status, the type that belongs to it, one sentence, the request's
 * id as in the header, and nothing of the server's inside. */
void judge_refusal(const struct stack *s, const struct web *w, long status);
/* MOD-10: a refusal in the envelope of the vendor whose path was asked, with nothing of ours in it: this status and error.type; code:
 * error.code of chat and responses. The request's id is where that vendor's clients look for it. */
void judge_dialect(const struct stack *s, const struct web *w, const char *path, long status,
    const char *type, const char *code);
/* The same as judge_refusal, naming this field. */
void judge_field(const struct stack *s, const struct web *w, long status, const char *param);
/* ID-4: two replies that nobody can tell apart but by the request's id. */
void judge_same(const struct web *a, const struct web *b);
/* A reply of this op that is not a refusal: its status, and its body (or each line of it) against the op's own schema. */
void judge_reply(const struct op *op, const struct web *w);
