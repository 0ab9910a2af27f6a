/*
 * keyring.h - which key of a provider a call uses (MOD-3). Keys are used in turn; one that a provider answers 401, 429 or
 * 5xx cools down and returns by itself. One that it answers 402 or 403 cools down for the model that was asked for, as the same account may
 * well use the others. A cooldown is a column of the key's row, in the database's time, and only ever grows by
 * what is told: every process hears of it within a moment (channel `model_keys`), and a process that starts reads it.
 *
 * A 400, a context that is too long or a refusal of the content is nobody's cooldown: the caller does not tell them.
 */
#pragma once

#include <stdint.h>

#include "model/catalog.h"

/* What became of an attempt, as far as its key is concerned. */
enum key_outcome {
	KEY_OK,            /* it answered: a cooldown's growth starts anew */
	KEY_REFUSED,       /* 401: a quarter of an hour, doubling up to a day */
	KEY_REFUSED_MODEL, /* 402, 403: the same, for this model only */
	KEY_LIMITED, /* 429, or 529 of the anthropic wire: Retry-After, or a second, doubling up to a minute */
	KEY_FAULT, /* any other 5xx, a reset, silence: Retry-After, or a fifth of a second, doubling up to 15 s */
};

/* How long until the first key returns, and how many faults in a row brought that about. */
struct key_rest {
	int64_t ms;
	int strikes;
};
/*
 * The next key that is not cooling, nor for this model (its name as clients write it; also below); `sticky` (NULL: none) names a
 * conversation that likes to stay with one key. ERR_UNAVAILABLE with reason "keys_cooling" when all are: *rest says until when, and
 * e->retry_s the same rounded up. After three faults in a row one caller at a time tries a key that returns; for the others it still cools.
 * *key is valid as long as the copy that p is of.
 */
int keyring_take(struct catalog *c, const struct provider *p, const char *model, const char *sticky,
    const struct provider_key **key, struct key_rest *rest, struct err *e);
/*
 * Tell how an attempt went. retry_after_ms: what the provider asked for, 0 nothing; at most a day counts. It holds in this
 * process at once; in the others when PostgreSQL has it. KEY_OK costs nothing unless the key had failed before. Where PostgreSQL
 * is away it holds here only, and is logged.
 */
void keyring_tell(struct catalog *c, const struct provider *p, const struct provider_key *key,
    const char *model, enum key_outcome outcome, int64_t retry_after_ms);
/* Somebody has seen that a key works for this model: it cools no more, whatever was said of it. */
void keyring_well(
    struct catalog *c, const struct provider *p, const struct provider_key *key, const char *model);
