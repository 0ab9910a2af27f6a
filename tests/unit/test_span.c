/* What is left of a time when the machine's waiting and its slowness are taken out of it: tests judge by it. */
#include "../span.h"
#include "../t.h"

#include <unistd.h>

#include "base/clock.h"

static void what_waited_and_what_is_dear_does_not_count(void **s)
{
	(void)s;
	assert_int_equal(span_left(1000, 0, 1), 1000);
	assert_int_equal(span_left(1000, 400, 1), 600);
	assert_int_equal(span_left(1000, 400, 6), 100);
	assert_int_equal(span_left(1000, 1000, 6), 0);
	assert_int_equal(span_left(1000, 5000, 6), 0); /* waits of several tasks overlap */
}

static void the_pace_is_bounded_and_measured_once(void **s)
{
	(void)s;
	double pace = span_pace();
	assert_true(pace >= 1 && pace <= 20);
	assert_true(span_pace() == pace);
}

/* What waits by itself is no waiting of the machine's: it counts, and is never longer than the clock says. */
static void a_sleep_counts(void **s)
{
	(void)s;
	struct span quiet = { 0 };
	int64_t most = 0;
	for (int i = 0; i < 5 && most == 0; i++) { /* at a moment when not everything waits */
		quiet = span_begin();
		(void)usleep(200000);
		most = span_ms(&quiet);
		assert_true(most <= clock_ms() - quiet.began_ms);
	}
	assert_true(span_of(&quiet, 100) <= 100);
	assert_int_equal(span_of(&quiet, 0), 0);
}

static void a_limit_has_room_on_a_slow_machine_and_no_end_of_it(void **s)
{
	(void)s;
	assert_in_range(span_room_ms(100), 100, 4000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_waited_and_what_is_dear_does_not_count),
		cmocka_unit_test(the_pace_is_bounded_and_measured_once),
		cmocka_unit_test(a_sleep_counts),
		cmocka_unit_test(a_limit_has_room_on_a_slow_machine_and_no_end_of_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
