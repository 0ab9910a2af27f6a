#include "model/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/hash.h"
#include "base/redact.h"
#include "model/catalog_int.h"

enum { SLOTS_MAX = 2000, WAIT_MS = 5000, PIN_AGE_MS = 30000 };

static void copy_put(void *arg)
{
	struct copy *copy = arg;
	if (copy != NULL && atomic_fetch_sub(&copy->refs, 1) == 1)
		mem_free(copy->mem); /* which holds the copy, too */
}

/* ---- slots; under the lock */

static struct slot *slot_find(struct catalog *c, const char *org)
{
	struct slot *s;
	LIST_FOREACH(s, &c->slots[hash_slot(org, CATALOG_BUCKETS)], in_bucket)
	if (strcmp(s->org, org) == 0)
		return s;
	return NULL;
}

static void slot_free(struct catalog *c, struct slot *s)
{
	LIST_REMOVE(s, in_bucket);
	copy_put(s->copy);
	free(s);
	c->n_slots--;
}

/* More orgs than any process serves in ten seconds: whoever is not just being read goes. */
static void slots_clear(struct catalog *c)
{
	for (int i = 0; i < CATALOG_BUCKETS; i++)
		for (struct slot *s = LIST_FIRST(&c->slots[i]), *next; s != NULL; s = next) {
			next = LIST_NEXT(s, in_bucket);
			if (!s->reading)
				slot_free(c, s);
		}
}

static struct slot *slot_of(struct catalog *c, const char *org)
{
	struct slot *s = slot_find(c, org);
	if (s != NULL)
		return s;
	if (c->n_slots >= SLOTS_MAX)
		slots_clear(c);
	s = xcalloc(1, sizeof *s);
	(void)snprintf(s->org, sizeof s->org, "%s", org);
	LIST_INSERT_HEAD(&c->slots[hash_slot(org, CATALOG_BUCKETS)], s, in_bucket);
	c->n_slots++;
	return s;
}

static void forget(struct catalog *c, const char *org)
{
	if (strcmp(org, "admin") == 0) {
		c->gen++;
		return;
	}
	struct slot *s = slot_find(c, org);
	if (s != NULL)
		s->gen++;
}

void catalog_forget(struct catalog *c, const char *org)
{
	(void)pthread_mutex_lock(&c->lock);
	forget(c, org);
	(void)pthread_mutex_unlock(&c->lock);
}

/* ---- what is told */

static void on_event(void *arg, const char *channel, const char *payload)
{
	struct catalog *c = arg;
	char key[ID_MAX], why[16], model[MODEL_NAME_BYTES + 1];
	long long seq, ms;
	int strikes;
	bool rest = strcmp(channel, "model_rests") == 0;
	if (rest || strcmp(channel, "model_keys") == 0) {
		int n = sscanf(payload, "%31s %lld %lld %d %15s %160s", key, &seq, &ms, &strikes, why, model);
		if (n >= 5 + rest)
			keyring_told(c, key, rest ? model : NULL, seq, ms, strikes, keyring_outcome_of(why));
		return;
	}
	/* Connected again: what was said meanwhile is lost, of the keys, too; reading tells both. */
	catalog_forget(c, *channel == 0 ? "admin" : payload);
}

struct catalog *catalog_start(
    const char *conninfo, struct pg_pool *db, const struct seal_key *seal, const struct conf *conf)
{
	static const char *const channels[] = { "models", "model_keys", "model_rests", NULL };
	struct catalog *c = xcalloc(1, sizeof *c);
	*c = (struct catalog){ .db = db, .seal = seal, .conf = conf };
	(void)pthread_cond_init(&c->read, NULL);
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_mutex_init(&c->cool_lock, NULL);
	(void)pthread_mutex_init(&c->pin_lock, NULL);
	c->listen = pg_listen_start(conninfo, channels, on_event, c);
	return c;
}

static void pins_free(struct catalog *c)
{
	for (int i = 0; i < CATALOG_BUCKETS; i++)
		for (struct pin *p = LIST_FIRST(&c->pins[i]), *next; p != NULL; p = next) {
			next = LIST_NEXT(p, in_bucket);
			LIST_REMOVE(p, in_bucket);
			free(p->text);
			free(p);
		}
	c->n_pins = 0;
}

void catalog_stop(struct catalog *c)
{
	if (c == NULL)
		return;
	pg_listen_stop(c->listen);
	slots_clear(c);
	keyring_free(c);
	pins_free(c);
	(void)pthread_cond_destroy(&c->read);
	(void)pthread_mutex_destroy(&c->lock);
	(void)pthread_mutex_destroy(&c->cool_lock);
	(void)pthread_mutex_destroy(&c->pin_lock);
	free(c);
}

/* ---- reading */

/* True: the slot's copy serves. False: the caller reads it, and nobody else does. Waits while somebody reads. */
static int copy_ready(struct catalog *c, struct slot **s, const char *org, struct err *e)
{
	int64_t end_ms = clock_ms() + WAIT_MS;
	for (;;) {
		*s = slot_of(c, org);
		const struct copy *copy = (*s)->copy;
		bool holds = copy != NULL && copy->gen == c->gen + (*s)->gen;
		/* One that is only old serves on while one reader looks whether anything has changed. */
		bool young = holds && clock_ms() - copy->read_ms < CATALOG_AGE_MS;
		if (young || (holds && (*s)->reading))
			return 1;
		if (!(*s)->reading)
			return 0;
		if (!cond_wait_until(&c->read, &c->lock, end_ms))
			return err_set(
			    e, ERR_UNAVAILABLE, "The providers cannot be read; try again in a moment.");
	}
}

int catalog_of(
    struct catalog *c, struct mem *m, const char *org, const struct org_models **out, struct err *e)
{
	struct slot *s;
	struct copy *copy = NULL;
	(void)pthread_mutex_lock(&c->lock);
	int rc = copy_ready(c, &s, org, e);
	if (rc == 1) {
		copy = s->copy;
		(void)atomic_fetch_add(&copy->refs, 1);
	} else if (rc == 0) {
		s->reading = true;
		long long gen = c->gen + s->gen;
		(void)pthread_mutex_unlock(&c->lock);
		copy = catalog_read(c, org, e);
		(void)pthread_mutex_lock(&c->lock);
		s->reading = false; /* which kept the slot where it is */
		if (copy != NULL) {
			copy->gen = gen;
			copy_put(s->copy);
			s->copy = copy;
			(void)atomic_fetch_add(&copy->refs, 1);
		}
		(void)pthread_cond_broadcast(&c->read);
	}
	(void)pthread_mutex_unlock(&c->lock);
	if (copy == NULL)
		return -1;
	mem_own(m, copy, copy_put);
	*out = &copy->models;
	return 0;
}

/* ---- where names lead */

static struct pin *pin_find(struct catalog *c, const char *url)
{
	struct pin *p;
	LIST_FOREACH(p, &c->pins[hash_slot(url, CATALOG_BUCKETS)], in_bucket)
	if (strcmp(p->url, url) == 0)
		return p;
	return NULL;
}

static void pin_keep(struct catalog *c, const char *url, const char *text)
{
	struct pin *p = pin_find(c, url);
	if (p == NULL) {
		if (c->n_pins >= PINS_MAX)
			pins_free(c);
		p = xcalloc(1, sizeof *p);
		(void)snprintf(p->url, sizeof p->url, "%s", url);
		LIST_INSERT_HEAD(&c->pins[hash_slot(url, CATALOG_BUCKETS)], p, in_bucket);
		c->n_pins++;
	}
	free(p->text);
	p->text = text == NULL ? NULL : xstrdup(text);
	p->at_ms = clock_ms();
}

int catalog_pin(struct catalog *c, struct mem *m, const struct provider *p, const char **pin, struct err *e)
{
	*pin = NULL;
	(void)pthread_mutex_lock(&c->pin_lock);
	const struct pin *known = pin_find(c, p->base_url);
	bool young = known != NULL && clock_ms() - known->at_ms < PIN_AGE_MS;
	if (young && known->text != NULL)
		*pin = mem_str(m, known->text);
	(void)pthread_mutex_unlock(&c->pin_lock);
	if (young)
		return 0;
	if (provider_url_pin(c->conf, m, p->base_url, pin, e) != 0)
		return -1;
	(void)pthread_mutex_lock(&c->pin_lock);
	pin_keep(c, p->base_url, *pin);
	(void)pthread_mutex_unlock(&c->pin_lock);
	return 0;
}

/* ---- what a provider says */

int catalog_redact(const struct provider *p, const char *text, size_t n, struct buf *out)
{
	auto_buf struct buf from = BUF(out->max), to = BUF(out->max);
	if (buf_add(&from, text, n) != 0)
		return -1;
	for (int i = 0; i < p->n_keys; i++) {
		if (p->keys[i].secret == NULL)
			continue;
		buf_reset(&to);
		if (redact_secret(buf_c(&from), from.n, secret_use(p->keys[i].secret), &to) != 0)
			return -1;
		struct buf other = from;
		from = to;
		to = other;
	}
	return buf_add(out, buf_c(&from), from.n);
}
