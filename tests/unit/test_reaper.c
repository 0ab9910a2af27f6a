/* What the reaper finds and what it makes of it (SBX-60, REL-6). */
#include "../t.h"

#include "fake_fleet.h"
#include "sandbox/lease.h"

/* ---- the reaper */

static void restart(void)
{
	fleet_free(f);
	f = fleet_up();
}

static void the_next_process_finds_what_runs(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	restart();
	err_clear(&e);
	assert_null(fleet_take(f, id, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE); /* it has not looked yet: not "there is none" */
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(fleet_round(f), 0); /* twice is the same */
	err_clear(&e);
	struct held *h = fleet_take(f, id, &e);
	assert_non_null(h);
	fleet_give(h);
	assert_row(id, "running", "");
	kill_it(); /* and its death is noticed as ever */
	wait_row_over();
	assert_row(id, "error", "ended by itself");
}

static void a_row_without_a_sandbox_is_an_error(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	fleet_free(f);
	(void)d_destroy(&driver, id, 0, &e);
	f = fleet_up();
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "error", "while its node was not watching");
}

static void a_sandbox_without_a_row_is_removed(void **s)
{
	(void)s;
	(void)fake_add(id);
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(left(), 0);
	assert_int_equal(destroyed, 1);
}

static void a_live_sandbox_whose_row_was_ended_is_removed(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	end_row();
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(left(), 0);
	assert_row(id, "ended", "");
}

static void a_start_that_its_process_did_not_survive_is_closed(void **s)
{
	(void)s;
	row(id, 0, 600);
	(void)fake_add(id);
	restart();
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "error", "never finished");
	assert_int_equal(left(), 0);
}

static void a_row_just_written_is_left_to_its_api(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "pending", "");
	assert_int_equal(build(&e), 0);
	assert_row(id, "running", "");
}

static void expire_row(void)
{
	char text[200];
	(void)snprintf(text, sizeof text,
	    "UPDATE sandboxes SET expires_at = now() - interval '1 s' WHERE id = '%s'", id);
	sql(text);
}

static void ask_end(void)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 5000, &e);
	assert_non_null(db);
	assert_int_equal(lease_ask_end(db, "nobody", id, &e), 0); /* ID-4 */
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "running", "");
	assert_int_equal(lease_ask_end(db, "admin", id, &e), 0);
}

/* REL-6: the database's clock stepped; nobody has watched for that long. */
static void a_clock_step_ends_no_lease(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	expire_row();
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "running", "");
	assert_int_equal(left(), 1);
}

static void a_lease_past_its_end_is_ended(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 1);
	assert_int_equal(build(&e), 0);
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "running", "");
	int64_t deadline = clock_ms() + 5000;
	while (left() > 0 && clock_ms() < deadline) {
		assert_int_equal(fleet_round(f), 0);
		(void)poll(NULL, 0, 50);
	}
	assert_row(id, "ended", "");
}

/* Whoever asked for the end could not reach us; a clock has no say in it. */
static void a_lease_whose_end_was_asked_for_ends_at_the_next_round(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 3600);
	assert_int_equal(build(&e), 0);
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "running", "");
	ask_end();
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(left(), 0);
	assert_row(id, "ended", "");
}

static void it_ends_also_under_the_next_process(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 3600);
	assert_int_equal(build(&e), 0);
	ask_end();
	restart();
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(left(), 0);
	assert_row(id, "ended", "");
}

static void a_node_that_can_build_nothing_says_why(void **s)
{
	(void)s;
	struct err e = { 0 };
	row(id, 0, 600);
	fleet_free(f);
	f = fleet_new(
	    &(struct fleet_opts){ .db = pool, .node = "n1", .refusal = "no runtime works", .start_s = 1 });
	assert_int_equal(fleet_round(f), 0);
	assert_int_equal(fleet_build(f, id, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "no runtime works"));
	assert_row(id, "error", "no runtime works");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_next_process_finds_what_runs),
		T(a_row_without_a_sandbox_is_an_error),
		T(a_sandbox_without_a_row_is_removed),
		T(a_live_sandbox_whose_row_was_ended_is_removed),
		T(a_start_that_its_process_did_not_survive_is_closed),
		T(a_row_just_written_is_left_to_its_api),
		T(a_clock_step_ends_no_lease),
		T(a_lease_past_its_end_is_ended),
		T(a_lease_whose_end_was_asked_for_ends_at_the_next_round),
		T(it_ends_also_under_the_next_process),
		T(a_node_that_can_build_nothing_says_why),
	};
	return cmocka_run_group_tests_name("reaper", tests, up, down);
}
