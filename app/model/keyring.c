#include "model/keyring.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "model/catalog_int.h"
#include "sql/model.h"

enum {
	TAKE_MS = 1000,
	ASKED_MAX_MS = 86400 * 1000,
	PROBE_AFTER = 3, /* strikes */
	PROBE_MS = 1000, /* how long the others wait for one that tries */
	STRIKES_MAX = 20,
};

static const struct {
	const char *name;
	int64_t first_ms, most_ms;
} growth[] = {
	[KEY_OK] = { "ok", 0, 0 },
	[KEY_REFUSED] = { "refused", 900000, 86400000 },
	[KEY_REFUSED_MODEL] = { "refused", 900000, 86400000 },
	[KEY_LIMITED] = { "limited", 1000, 60000 },
	[KEY_FAULT] = { "fault", 200, 15000 },
};

enum key_outcome keyring_outcome_of(const char *name)
{
	for (enum key_outcome o = KEY_REFUSED; o <= KEY_FAULT; o++)
		if (strcmp(growth[o].name, name) == 0)
			return o;
	return KEY_OK;
}

/* ---- the table; under its lock */

/* When it is full: whoever cools no more is known from the database again where it matters. */
static void cools_clear(struct catalog *c, int64_t after_ms)
{
	for (int i = 0; i < CATALOG_BUCKETS; i++)
		for (struct cool *k = LIST_FIRST(&c->cools[i]), *next; k != NULL; k = next) {
			next = LIST_NEXT(k, in_bucket);
			if (k->until_ms > after_ms)
				continue;
			LIST_REMOVE(k, in_bucket);
			free(k);
			c->n_cools--;
		}
}

static struct cool *cool_find(struct catalog *c, const char *name)
{
	struct cool *k;
	LIST_FOREACH(k, &c->cools[hash_slot(name, CATALOG_BUCKETS)], in_bucket)
	if (strcmp(k->name, name) == 0)
		return k;
	return NULL;
}

static struct cool *cool_of(struct catalog *c, const char *name)
{
	struct cool *k = cool_find(c, name);
	if (k != NULL)
		return k;
	if (c->n_cools >= COOLS_MAX)
		cools_clear(c, clock_ms());
	k = xcalloc(1, sizeof *k);
	str_put(k->name, sizeof k->name, name, "", "");
	LIST_INSERT_HEAD(&c->cools[hash_slot(name, CATALOG_BUCKETS)], k, in_bucket);
	c->n_cools++;
	return k;
}

void keyring_free(struct catalog *c)
{
	cools_clear(c, INT64_MAX - 1);
}

static const char *rest_name(char out[COOL_NAME], const char *key, const char *model)
{
	str_put(out, COOL_NAME, key, model == NULL ? "" : " ", model == NULL ? "" : model);
	return out;
}

void keyring_told(struct catalog *c, const char *key, const char *model, long long seq, int64_t left_ms,
    int strikes, enum key_outcome why)
{
	char name[COOL_NAME];
	(void)pthread_mutex_lock(&c->cool_lock);
	struct cool *k = cool_of(c, rest_name(name, key, model));
	if (seq > k->seq) {
		k->seq = seq;
		/* clock_ms cuts: who comes before the database's end would be told of as of a key that cools still. */
		k->until_ms = left_ms > 0 ? clock_ms() + left_ms + 1 : 0;
		k->strikes = strikes;
		k->why = why;
	}
	(void)pthread_mutex_unlock(&c->cool_lock);
}

/* ---- whose turn it is */

/* Until when k may not be used; of 0 ms: it may, and is taken. */
static struct key_rest try_key(struct cool *k, int64_t now)
{
	int64_t until = k->until_ms > k->probe_ms ? k->until_ms : k->probe_ms;
	if (until > now)
		return (struct key_rest){ until - now, k->strikes };
	if (k->strikes >= PROBE_AFTER)
		k->probe_ms = now + PROBE_MS;
	return (struct key_rest){ 0 };
}

/* The same for a model: also the rest of its key for it. */
static struct key_rest try_for(struct catalog *c, const char *key, const char *model, int64_t now)
{
	char name[COOL_NAME];
	struct cool *its = cool_find(c, rest_name(name, key, model));
	struct key_rest left = { 0 };
	if (its != NULL)
		left = try_key(its, now);
	return left.ms > 0 ? left : try_key(cool_of(c, key), now);
}

/* The same on every host: a vendor's cache of prompts is the key's. */
static unsigned stuck_to(const char *sticky)
{
	static const unsigned char no_key[SIPHASH_KEY];
	return (unsigned)siphash(no_key, sticky, strlen(sticky));
}

int keyring_take(struct catalog *c, const struct provider *p, const char *model, const char *sticky,
    const struct provider_key **key, struct key_rest *rest, struct err *e)
{
	char name[COOL_NAME];
	str_put(name, sizeof name, p->org, "/", p->name);
	int64_t now = clock_ms();
	struct key_rest least = { .ms = INT64_MAX };
	unsigned n = (unsigned)p->n_keys;
	*key = NULL;
	*rest = (struct key_rest){ 0 };
	if (n == 0)
		return err_set(e, ERR_UNAVAILABLE, "The provider %s has no usable key.", p->name);
	(void)pthread_mutex_lock(&c->cool_lock);
	unsigned first = sticky != NULL ? stuck_to(sticky) : cool_of(c, name)->turn++;
	for (unsigned i = 0; i < n && *key == NULL; i++) {
		const struct provider_key *one = &p->keys[(first + i) % n];
		struct key_rest left = try_for(c, one->id, model, now);
		if (left.ms == 0)
			*key = one;
		else if (left.ms < least.ms)
			least = left;
	}
	(void)pthread_mutex_unlock(&c->cool_lock);
	if (*key != NULL)
		return 0;
	*rest = least;
	err_clear(e);
	e->reason = "keys_cooling";
	e->retry_s = (int)((least.ms + 999) / 1000);
	return p->keys[0].secret == NULL
	    ? err_set(e, ERR_UNAVAILABLE, "The provider %s is not asked for %.160s for another %d s.",
		  p->name, model, e->retry_s)
	    : err_set(e, ERR_UNAVAILABLE,
		  "No key of the provider %s may be used for %.160s for another %d s.", p->name, model,
		  e->retry_s);
}

/* ---- what became of it */

/* As the statement counts it, for this process before the database knows. True: the database is to be told. */
static bool tell_here(struct catalog *c, const char *key, enum key_outcome outcome, int64_t asked_ms)
{
	int64_t now = clock_ms();
	(void)pthread_mutex_lock(&c->cool_lock);
	struct cool *k = cool_of(c, key);
	bool cools = k->until_ms > now, news = outcome != KEY_OK || (k->strikes > 0 && !cools);
	k->probe_ms = 0;
	if (news && outcome == KEY_OK) {
		k->strikes = 0;
		k->until_ms = 0;
	} else if (news) {
		int64_t ms = growth[outcome].first_ms
		    << (k->strikes < STRIKES_MAX ? k->strikes : STRIKES_MAX);
		if (ms > growth[outcome].most_ms)
			ms = growth[outcome].most_ms;
		if (asked_ms > 0 || cools)
			ms = asked_ms;
		if (!cools && k->strikes < STRIKES_MAX)
			k->strikes++;
		if (now + ms > k->until_ms)
			k->until_ms = now + ms;
		k->why = outcome;
	}
	(void)pthread_mutex_unlock(&c->cool_lock);
	return news;
}

/* model NULL: of the key; so below. */
static int tell_well(
    struct catalog *c, const char *org, const char *key, const char *model, bool cooling, struct err *e)
{
	const char *also = cooling ? "true" : "false";
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = model == NULL ? PG(db, &q_model_key_well, e, org, key, also)
						  : PG(db, &q_model_rest_well, e, org, key, also, model);
	if (r != NULL && pg_rows(r) == 1)
		keyring_told(c, key, model, pg_int(r, 0, 0), 0, 0, KEY_OK);
	return r == NULL ? -1 : 0;
}

static int tell_cool(struct catalog *c, const char *org, const char *key, const char *model,
    enum key_outcome outcome, int64_t asked_ms, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	const char *asked = pg_num(m, asked_ms), *first = pg_num(m, growth[outcome].first_ms),
		   *most = pg_num(m, growth[outcome].most_ms), *why = growth[outcome].name;
	auto_res struct pg_res *r = model == NULL
	    ? PG(db, &q_model_key_cool, e, org, key, asked, first, most, why)
	    : PG(db, &q_model_rest_cool, e, org, key, asked, first, most, why, model);
	if (r != NULL && pg_rows(r) == 1)
		keyring_told(c, key, model, pg_int(r, 0, 0), pg_int(r, 0, 1), (int)pg_int(r, 0, 2), outcome);
	return r == NULL ? -1 : 0;
}

static void said(const char *key, int rc, const struct err *e)
{
	if (rc != 0)
		log_warn("what was seen of a key holds in this process only", "key", key, "why", e->msg);
}

static void tell(struct catalog *c, const struct provider *p, const char *key, const char *model,
    enum key_outcome outcome, int64_t asked_ms)
{
	char name[COOL_NAME];
	struct err e = { 0 };
	if (!tell_here(c, rest_name(name, key, model), outcome, asked_ms))
		return;
	int rc = outcome == KEY_OK ? tell_well(c, p->org, key, model, false, &e)
				   : tell_cool(c, p->org, key, model, outcome, asked_ms, &e);
	said(key, rc, &e);
}

static bool known(struct catalog *c, const char *key, const char *model)
{
	char name[COOL_NAME];
	(void)pthread_mutex_lock(&c->cool_lock);
	bool is = cool_find(c, rest_name(name, key, model)) != NULL;
	(void)pthread_mutex_unlock(&c->cool_lock);
	return is;
}

void keyring_tell(struct catalog *c, const struct provider *p, const struct provider_key *key,
    const char *model, enum key_outcome outcome, int64_t retry_after_ms)
{
	int64_t asked = retry_after_ms < 0  ? 0
	    : retry_after_ms > ASKED_MAX_MS ? ASKED_MAX_MS
					    : retry_after_ms;
	if (outcome == KEY_REFUSED_MODEL) {
		tell(c, p, key->id, model, outcome, asked);
		return;
	}
	tell(c, p, key->id, NULL, outcome, asked);
	if (outcome == KEY_OK && known(c, key->id, model))
		tell(c, p, key->id, model, outcome, asked);
}

static void well(struct catalog *c, const struct provider *p, const char *key, const char *model)
{
	char name[COOL_NAME];
	struct err e = { 0 };
	(void)pthread_mutex_lock(&c->cool_lock);
	struct cool *k = cool_of(c, rest_name(name, key, model));
	k->strikes = 0;
	k->until_ms = k->probe_ms = 0;
	(void)pthread_mutex_unlock(&c->cool_lock);
	said(key, tell_well(c, p->org, key, model, true, &e), &e);
}

void keyring_well(
    struct catalog *c, const struct provider *p, const struct provider_key *key, const char *model)
{
	well(c, p, key->id, NULL);
	if (known(c, key->id, model))
		well(c, p, key->id, model);
}
