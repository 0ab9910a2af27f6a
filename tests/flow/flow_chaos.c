/*
 * flow_chaos.c - REL-1 under load: `make chaos SEED=n RUNS=n`. CHAOS_SEED decides who is killed, in which order and after how many
 * events; CHAOS_RUNS how many coding runs there are; CHAOS_VERBOSE=1 prints each kill. See chaos.h.
 */
#include "../t.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "chaos.h"

static struct chaos chaos;

static unsigned long long number(const char *name, unsigned long long otherwise)
{
	const char *v = getenv(name);
	return v == NULL || v[0] == 0 ? otherwise : strtoull(v, NULL, 10);
}

static void summary(const struct chaos *c, int64_t took_ms)
{
	int kills = 0;
	print_message("chaos: seed %llu, %d runs, %d events, %.0f s; killed", c->seed, c->runs,
	    atomic_load(&c->events), (double)took_ms / 1000.0);
	for (int i = 0; i < CHAOS_PARTS; i++) {
		print_message(" %s %d", chaos_part_names[i], c->kills[i]);
		kills += c->kills[i];
	}
	print_message(", %d in all (%d were away); clients were refused or cut %d times\n", kills, c->missed,
	    atomic_load(&c->refused));
}

/* REL-1, STR-3, COD-11 */
static void whatever_is_killed_nothing_that_was_acknowledged_is_lost(void **s)
{
	struct chaos *c = &chaos;
	(void)s;
	int64_t before = clock_ms();
	c->seed = number("CHAOS_SEED", 1);
	chaos_begin(c, (int)number("CHAOS_RUNS", 20));
	print_message("chaos: seed %llu, %d runs\n", c->seed, c->runs);
	chaos_direct(c);
	summary(c, clock_ms() - before);
	chaos_end(c);
}

static int setup(void **s)
{
	(void)s;
	chaos_stack(&chaos, "JOB_LEASE_S=3\nRUNNER_JOBS=2\n");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&chaos.stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_is_killed_nothing_that_was_acknowledged_is_lost),
	};
	return cmocka_run_group_tests_name("chaos", tests, setup, teardown);
}
