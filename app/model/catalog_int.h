/* catalog_int.h - private to app/model/catalog*.c and keyring.c: what a process holds. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/limits.h"
#include "model/catalog.h"
#include "model/keyring.h"

enum { CATALOG_BUCKETS = 256, COOLS_MAX = 20000, PINS_MAX = 1000 };

/* Never changed once it is in a slot; freed by whoever gives the last reference back. */
struct copy {
	atomic_int refs;
	struct mem *mem;
	struct org_models models;
	long long gen; /* of the slot, before it was read */
	int64_t read_ms;
};
struct slot {
	LIST_ENTRY(slot) in_bucket;
	char org[LIMIT_ORG_SLUG + 1];
	struct copy *copy; /* NULL: not read yet */
	long long gen;     /* counts what was told of the org */
	bool reading;
};
/* A key's cooldown; that of a key for one model, under "KEY MODEL"; or, under the name of a provider, whose turn it is. */
enum { COOL_NAME = ID_MAX + 1 + MODEL_NAME_BYTES };
struct cool {
	LIST_ENTRY(cool) in_bucket;
	char name[COOL_NAME];
	long long seq; /* of the row: the highest told is the newest */
	int64_t until_ms, probe_ms;
	int strikes;
	enum key_outcome why;
	unsigned turn;
};
struct pin {
	LIST_ENTRY(pin) in_bucket;
	char url[PROVIDER_URL_BYTES + 1];
	char *text; /* NULL: none is needed */
	int64_t at_ms;
};

struct catalog {
	struct pg_pool *db;
	const struct seal_key *seal;
	const struct conf *conf;
	struct pg_listen *listen;

	pthread_mutex_t lock; /* of the slots */
	pthread_cond_t read;  /* a copy was read, or could not be */
	LIST_HEAD(, slot) slots[CATALOG_BUCKETS];
	int n_slots;
	long long gen; /* counts what was told of the deployment, or may have been missed */

	pthread_mutex_t cool_lock;
	LIST_HEAD(, cool) cools[CATALOG_BUCKETS];
	int n_cools;

	pthread_mutex_t pin_lock;
	LIST_HEAD(, pin) pins[CATALOG_BUCKETS];
	int n_pins;
};

/* Read an org's rows anew: a copy with one reference, and its keys' cooldowns into the table. NULL with e. */
struct copy *catalog_read(struct catalog *c, const char *org, struct err *e);

/* keyring.c: what the database says of a key's cooldown, or, model not NULL, of that for one model; left_ms from now. Older words than
 * those known are ignored. */
void keyring_told(struct catalog *c, const char *key, const char *model, long long seq, int64_t left_ms,
    int strikes, enum key_outcome why);
enum key_outcome keyring_outcome_of(const char *name); /* "refused", …; KEY_OK for anything else */
void keyring_free(struct catalog *c);
