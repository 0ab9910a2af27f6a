/*
 * record.h - what became of one model call: filled by the engine, told once at its end to whoever counts, traces and narrates
 * (call_svc.on_call). Strings are static or live as long as that call; nothing in here is content, a secret, or an upstream's words.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "model/route.h"
#include "model/wire.h"
#include "money/price.h"

enum { RECORD_ATTEMPTS_MAX = 24 };

struct call_attempt {
	const char *provider, *model,
	    *address;       /* the row's name, the model as the provider calls it, "provider/model" */
	const char *key;    /* its id; "" where the provider wants none */
	int status;         /* HTTP; 0: no head came */
	const char *reason; /* NULL: it answered. Else one of a fixed set: "rate_limited", "cut", … */
	int64_t began_us, ended_us; /* CLOCK_MONOTONIC */
	int64_t first_us;           /* the first content; 0: none came */
};

struct call_record {
	char id[ID_MAX];                        /* call_… */
	const char *org, *user, *key, *session; /* session: of the run it belongs to, or NULL */
	const char *request_id, *traceparent;   /* traceparent: NULL when there is none */
	enum provider_wire wire;                /* the client's */
	const char *asked;                      /* the model, as the client named it, or its tier */
	bool stream, tools;
	long long max_out; /* as asked for; 0: not stated */

	struct call_attempt attempts[RECORD_ATTEMPTS_MAX]; /* more than fit are counted only */
	int n_attempts, n_failovers;

	const struct call_attempt *answered; /* NULL: nobody */
	char response_id[128], response_model[128];
	enum wire_finish finish;
	struct tokens tokens;
	bool estimated;     /* the tokens are: the upstream did not tell them all */
	const char *markup; /* the family whose raw tool call was refused; NULL */
	int skipped;        /* malformed events of the upstream that were left out */

	int status;        /* what the client got; 200 for a stream that broke off */
	const char *error; /* NULL: it was served. Else the kind: "timeout", "overloaded", … */
	bool client_left;
	int64_t began_us, first_us, ended_us; /* first_us: the first byte to the client */
	int64_t
	    upstream_us; /* of that time, waited for upstreams and for their cooldowns, up to the first byte */
};
