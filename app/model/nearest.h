/* nearest.h - which names somebody may have meant. Pure, and bounded by the lengths that names may have. */
#pragma once

#include <stddef.h>

#include "model/provider.h"

enum { NEAREST_MAX = 3, NEAREST_BYTES = MODEL_ADDRESS_BYTES };

struct nearest {
	const char *asked;
	const char *names[NEAREST_MAX]; /* the nearest first; borrowed */
	int distance[NEAREST_MAX];
	int n;
};
/* Edits (a letter more, less, another, two swapped; letters' case aside) from one name to another, at most `most`; more is
 * most + 1. Names longer than NEAREST_BYTES are far from everything. */
int nearest_distance(const char *a, const char *b, int most);
/* Consider a name; `by` is what is compared: the name itself, or the part of it that people write. */
void nearest_add(struct nearest *to, const char *name, const char *by);
