/* BIL-4: what tokens cost. */
#include "../t.h"

#include <limits.h>

#include "money/price.h"

static long long cost(long long rate, long long tokens)
{
	return price_of(&(struct price){ .input = rate }, &(struct tokens){ .input = tokens });
}

static void a_class_has_its_own_rate(void **s)
{
	(void)s;
	const struct price p = { 300000, 30000, 375000, 1500000, 2000000 };
	const struct tokens one[] = { { .input = 1000000 }, { .cached = 1000000 }, { .cache_write = 1000000 },
		{ .output = 1000000 }, { .reasoning = 1000000 } };
	const long long want[] = { 300000, 30000, 375000, 1500000, 2000000 };
	for (int i = 0; i < 5; i++)
		assert_int_equal(price_of(&p, &one[i]), want[i]);
	assert_int_equal(
	    price_of(&p, &(struct tokens){ 1000, 2000, 3000, 4000, 5000 }), 300 + 60 + 1125 + 6000 + 10000);
}

static void a_call_is_rounded_up_once(void **s)
{
	(void)s;
	assert_int_equal(cost(300000, 0), 0);
	assert_int_equal(cost(0, 1000000), 0);
	assert_int_equal(cost(300000, 1), 1);  /* 0.3 */
	assert_int_equal(cost(300000, 3), 1);  /* 0.9 */
	assert_int_equal(cost(300000, 4), 2);  /* 1.2 */
	assert_int_equal(cost(300000, 10), 3); /* exact */
	assert_int_equal(cost(1, 1), 1);
	assert_int_equal(cost(1, 1000000), 1);
	assert_int_equal(cost(1, 1000001), 2);
	/* Five classes of 0.3 are 1.5, not five times one. */
	const struct price p = { 300000, 300000, 300000, 300000, 300000 };
	assert_int_equal(price_of(&p, &(struct tokens){ 1, 1, 1, 1, 1 }), 2);
}

static void nothing_overflows_whatever_an_upstream_says(void **s)
{
	(void)s;
	const struct price top = { PRICE_RATE_MAX, PRICE_RATE_MAX, PRICE_RATE_MAX, PRICE_RATE_MAX,
		PRICE_RATE_MAX };
	const struct tokens mad = { LLONG_MAX, LLONG_MAX, LLONG_MAX, LLONG_MAX, LLONG_MAX };
	assert_true(price_ok(&top));
	assert_int_equal(price_of(&top, &mad), 5LL * PRICE_RATE_MAX * 1000);
	assert_int_equal(price_of(&top, &(struct tokens){ LLONG_MIN, -1, 0, -5, LLONG_MIN }), 0);
	assert_int_equal(tokens_sum(&mad), 5LL * PRICE_TOKENS_MAX);
	assert_false(price_ok(&(struct price){ .output = PRICE_RATE_MAX + 1LL }));
	assert_false(price_ok(&(struct price){ .cached = -1 }));
}

static void the_worst_case_is_never_below_what_comes(void **s)
{
	(void)s;
	const struct price p = { 300000, 30000, 375000, 1500000, 1700000 };
	unsigned seed = 7;
	for (int i = 0; i < 100000; i++) {
		long long v[5], in, out;
		for (int k = 0; k < 5; k++)
			v[k] = (seed = seed * 1103515245u + 12345u) >> 8 & 0xffff;
		in = v[0] + v[1] + v[2];
		out = v[3] + v[4];
		assert_true(price_worst(&p, in, out) >=
		    price_of(&p, &(struct tokens){ v[0], v[1], v[2], v[3], v[4] }));
	}
	assert_int_equal(price_worst(&p, 1000000, 1000000), 375000 + 1700000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_class_has_its_own_rate),
		cmocka_unit_test(a_call_is_rounded_up_once),
		cmocka_unit_test(nothing_overflows_whatever_an_upstream_says),
		cmocka_unit_test(the_worst_case_is_never_below_what_comes),
	};
	return cmocka_run_group_tests_name("price", tests, NULL, NULL);
}
