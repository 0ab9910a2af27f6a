/*
 * place.h - a place in a stream of many sessions (STR-3): "ses_a:12,ses_b:7", the last seq that is known of each. A session that is
 * not named has told nothing yet, so such a list misses and repeats nothing in a tree, which is told from its beginning.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

enum {
	PLACES_MAX = 100,
	PLACES_SENT = 32, /* most sessions in an `id` that is sent: it comes with every event */
	PLACES_BYTES = PLACES_MAX * (ID_MAX + 21),
};
struct places {
	int n;
	struct {
		char session[ID_MAX];
		long long seq;
	} at[PLACES_MAX];
};

/* NULL is nothing known. Each session once; -1 with e naming `field`. */
int places_parse(const char *text_or_null, const char *field, struct places *p, struct err *e);
long long places_seq(const struct places *p, const char *session); /* 0: not named */
