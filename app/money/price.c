#include "money/price.h"

static long long within(long long n)
{
	return n < 0 ? 0 : n > PRICE_TOKENS_MAX ? PRICE_TOKENS_MAX : n;
}

static bool rate_ok(long long rate)
{
	return rate >= 0 && rate <= PRICE_RATE_MAX;
}

bool price_ok(const struct price *p)
{
	return rate_ok(p->input) && rate_ok(p->cached) && rate_ok(p->cache_write) && rate_ok(p->output) &&
	    rate_ok(p->reasoning);
}

/* Five products of at most 10^18 each: 5·10^18 is below 2^63. */
long long price_of(const struct price *p, const struct tokens *t)
{
	long long sum = p->input * within(t->input) + p->cached * within(t->cached) +
	    p->cache_write * within(t->cache_write) + p->output * within(t->output) +
	    p->reasoning * within(t->reasoning);
	return sum / PRICE_PER_TOKENS + (sum % PRICE_PER_TOKENS != 0);
}

static long long most(long long a, long long b)
{
	return a > b ? a : b;
}

long long price_worst(const struct price *p, long long tokens_in, long long tokens_out)
{
	const struct price worst = {
		.input = most(p->input, most(p->cached, p->cache_write)),
		.output = most(p->output, p->reasoning),
	};
	return price_of(&worst, &(struct tokens){ .input = tokens_in, .output = tokens_out });
}

long long tokens_sum(const struct tokens *t)
{
	return within(t->input) + within(t->cached) + within(t->cache_write) + within(t->output) +
	    within(t->reasoning);
}
