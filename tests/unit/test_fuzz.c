/* SEC-1: every reader of what comes from outside, over the seeds of its fuzz target; fixed findings are among them. */
#include "../t.h"

#include "../fuzz/fuzz.h"

static void run(void *arg, const uint8_t *p, size_t n)
{
	/* A copy of exactly that size, so that the sanitizers see a read past its end. */
	uint8_t *copy = malloc(n + (n == 0));
	assert_non_null(copy);
	for (size_t i = 0; i < n; i++)
		copy[i] = p[i];
	((const struct fuzz_target *)arg)->run(copy, n);
	for (size_t k = 0; k < n; k += 1 + n / 64) /* and cut short */
		((const struct fuzz_target *)arg)->run(copy, k);
	free(copy);
}

static void every_seed_of_every_target_passes(void **s)
{
	(void)s;
	for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
		struct fuzz_target one = *t;
		if (fuzz_seeds(t, run, &one) < 3)
			fail_msg("the target %s has no seeds worth the name", t->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_seed_of_every_target_passes) };
	return cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
}
