#include "auth/known.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

enum { SLOTS = 1024 }; /* of one key each; a second one takes the place of the first */

struct known {
	struct cred_parts parts; /* the secret as its hash */
	int64_t until_ms;        /* monotonic */
	struct mem *mem;         /* what `p` points to; NULL: the slot is empty */
	struct principal p;
};
/* The module's one piece of state. */
static struct {
	pthread_mutex_t lock;
	uint64_t forgotten; /* how often */
	struct known slots[SLOTS];
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct known *slot_of(const char *id)
{
	return &all.slots[hash_slot(id, SLOTS)];
}

static struct principal copy(struct mem *m, const struct principal *p)
{
	struct principal c = *p;
	c.cred_id = mem_str(m, p->cred_id);
	c.org = mem_str(m, p->org);
	c.user = mem_str(m, p->user);
	c.scopes = mem_str(m, p->scopes);
	return c;
}

const struct principal *known_find(struct mem *m, const struct cred_parts *parts)
{
	struct principal *p = NULL;
	struct known *k = slot_of(parts->id);
	(void)pthread_mutex_lock(&all.lock);
	/* ID-5: by id, then the hashes. */
	if (k->mem != NULL && strcmp(k->parts.id, parts->id) == 0 && k->parts.kind == parts->kind &&
	    bytes_equal_ct(k->parts.hash, parts->hash, SHA256_HEX - 1) && clock_ms() < k->until_ms) {
		p = mem_alloc(m, sizeof *p);
		*p = copy(m, &k->p);
	}
	(void)pthread_mutex_unlock(&all.lock);
	return p;
}

struct known_asked known_ask(void)
{
	(void)pthread_mutex_lock(&all.lock);
	struct known_asked a = { .ms = clock_ms(), .forgotten = all.forgotten };
	(void)pthread_mutex_unlock(&all.lock);
	return a;
}

static void clear(struct known *k)
{
	mem_free(k->mem);
	*k = (struct known){ 0 };
}

void known_keep(const struct cred_parts *parts, const struct principal *p, struct known_asked asked)
{
	struct known *k = slot_of(parts->id);
	(void)pthread_mutex_lock(&all.lock);
	if (asked.forgotten == all.forgotten) {
		clear(k);
		k->parts = *parts;
		k->until_ms = asked.ms + KNOWN_MS;
		k->mem = mem_new();
		k->p = copy(k->mem, p);
	}
	(void)pthread_mutex_unlock(&all.lock);
}

void known_forget(const char *id)
{
	struct known *k = slot_of(id);
	(void)pthread_mutex_lock(&all.lock);
	all.forgotten++;
	if (strcmp(k->parts.id, id) == 0)
		clear(k);
	(void)pthread_mutex_unlock(&all.lock);
}
