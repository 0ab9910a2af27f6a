/*
 * call.h - one model call (MOD-1, MOD-3…8): reserve, route, attempt, answer, settle. One call is many attempts, and the client sees
 * one answer: the head is held back until the first content is there, so until then another attempt costs nobody anything.
 * app/model/README.md has the rules.
 */
#pragma once

#include "model/catalog.h"
#include "model/record.h"
#include "money/gate.h"
#include "op/op.h"

/* What a call needs of its process. */
struct call_svc {
	struct catalog *catalog;
	struct gate *gate;
	/* Once a call that has come as far as the gate, after its end and from its thread. May be NULL. */
	void (*on_call)(void *arg, const struct call_record *r);
	void *arg;
};

/*
 * Answer the request whose input is `in`, a body of wire w, in that wire's dialect, buffered or streamed as it asks. REPLIED; with an
 * Idempotency-Key a buffered answer is returned instead, so that it can be stored. NULL with e when it came to no attempt; what
 * failed later is answered, too, and left in e for the log.
 */
json_t *call_run(struct ctx *c, const struct call_svc *svc, enum provider_wire w, json_t *in, struct err *e);
/* op.refuse of a wire's ops: any error in its dialect. */
bool call_refuse(struct ctx *c, enum provider_wire w, const struct err *why);
/* op.again: the call that an Idempotency-Key was used for is at work, or its answer was not kept. Never an answer. */
json_t *call_again(struct ctx *c, json_t *made, struct err *e);
