/*
 * price.h - what tokens cost (BIL-4): integers only, in millicents (thousandths of a cent; 1 USD is 100 000 of them). Pure.
 */
#pragma once

#include <stdbool.h>

enum {
	PRICE_TOKENS_MAX = 1000000000, /* of one class in one call */
	PRICE_RATE_MAX = 1000000000,   /* millicents for a million tokens: 10 000 USD */
	PRICE_PER_TOKENS = 1000000,
};

/* Of one call. The classes do not overlap: what a vendor counts inside another number is taken out of it by whoever reads it. */
struct tokens {
	long long input;       /* neither from a cache nor written to one */
	long long cached;      /* input that came from the vendor's cache */
	long long cache_write; /* input that was written to it */
	long long output;      /* without reasoning */
	long long reasoning;
};
/* Millicents for a million tokens of each class. */
struct price {
	long long input, cached, cache_write, output, reasoning;
};

/* Every rate is from 0 to PRICE_RATE_MAX. */
bool price_ok(const struct price *p);
/* What a call costs: the exact sum of its classes, rounded up once to a whole millicent. Counts outside 0…PRICE_TOKENS_MAX (an
 * upstream may say anything) count as the nearest bound, so no sum overflows. p must be price_ok. */
long long price_of(const struct price *p, const struct tokens *t);
/* The most that so many tokens in and out can cost, whatever classes they turn out to be: for a reservation. */
long long price_worst(const struct price *p, long long tokens_in, long long tokens_out);
/* All classes together, each within its bounds. */
long long tokens_sum(const struct tokens *t);
