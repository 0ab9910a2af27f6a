#include "egress/brokered.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/secret.h"

struct entry {
	struct host_pattern host;
	char *header;
	struct secret *value; /* NULL: it cannot be opened */
};

struct brokered {
	struct entry *entries;
	size_t n;
	int refs;
};

struct brokered *brokered_new(void)
{
	struct brokered *b = xcalloc(1, sizeof *b);
	b->refs = 1;
	return b;
}

void brokered_add(struct brokered *b, const struct seal_key *key, const char *id, const char *host,
    const char *header, const char *sealed)
{
	struct entry e = { 0 };
	struct err why = { 0 };
	const char *wrong = "";
	if (!host_pattern_parse(str_of(host), &e.host, &wrong)) {
		log_error("a credential's host makes no sense", "credential", id, "why", wrong);
		return;
	}
	e.value = seal_open(key, id, sealed, &why);
	if (e.value == NULL)
		log_error(
		    "a credential cannot be opened: its host is refused", "credential", id, "why", why.msg);
	e.header = xstrdup(header);
	b->entries = xrealloc(b->entries, (b->n + 1) * sizeof e);
	b->entries[b->n++] = e;
}

struct brokered *brokered_ref(struct brokered *b)
{
	if (b != NULL)
		b->refs++;
	return b;
}

void brokered_unref(struct brokered *b)
{
	if (b == NULL || --b->refs > 0)
		return;
	for (size_t i = 0; i < b->n; i++) {
		host_pattern_free(&b->entries[i].host);
		secret_free(b->entries[i].value);
		free(b->entries[i].header);
	}
	free(b->entries);
	free(b);
}

static bool set_already(const struct head_set *out, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(out[i].name, name) == 0)
			return true;
	return false;
}

int brokered_find(
    const struct brokered *b, const struct host *host, uint16_t port, struct head_set out[BROKERED_MAX + 1])
{
	static const enum host_match order[] = { HOST_EXACT, HOST_SUFFIX };
	int n = 0;
	for (size_t o = 0; b != NULL && o < sizeof order / sizeof order[0]; o++)
		for (size_t i = 0; i < b->n && n < BROKERED_MAX; i++) {
			const struct entry *e = &b->entries[i];
			if (host_pattern_match(&e->host, host, port) != order[o] ||
			    set_already(out, n, e->header))
				continue;
			if (e->value == NULL)
				return -1;
			out[n++] = (struct head_set){ e->header, secret_use(e->value) };
		}
	out[n] = (struct head_set){ 0 };
	return n;
}
