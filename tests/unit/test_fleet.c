/* The life of a node's sandboxes, from pending row to nothing (SBX-4, SBX-5, SBX-65). */
#include "../t.h"
#include "../span.h"

#include "fake_fleet.h"

/* ---- building */

static void a_pending_row_becomes_a_running_sandbox(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	assert_row(id, "running", "");
	assert_int_equal(build(&e), 0); /* again is the same */
	assert_usable();
	assert_int_equal(fleet_end(f, id, &e), 0);
	assert_row(id, "ended", "");
	assert_int_equal(left(), 0);
	assert_int_equal(fleet_end(f, id, &e), 0); /* SBX-45 */
	assert_null(fleet_take(f, id, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void a_row_that_is_not_ours_is_not_built(void **s)
{
	(void)s;
	struct err e;
	assert_int_equal(build(&e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	row(id, 0, -1); /* its lease is over before it began */
	assert_int_equal(build(&e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(left(), 0);
}

/* SBX-5 */
static void a_start_that_fails_is_on_the_row_and_leaves_nothing(void **s)
{
	(void)s;
	struct err e;
	create_fails = 1;
	row(id, 0, 600);
	assert_int_equal(build(&e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_row(id, "error", "The runtime said no.");
	assert_int_equal(left(), 0);
}

/* SBX-65 */
static void a_box_that_never_answers_is_removed_with_its_last_words(void **s)
{
	(void)s;
	struct err e;
	box_is = SILENT;
	row(id, 0, 600);
	struct span t = span_begin();
	assert_int_equal(build(&e), -1);
	assert_true(clock_ms() - t.began_ms >= start_s * 1000);
	assert_true(span_ms(&t) < start_s * 1000 + 2000);
	assert_row(id, "error", "did not answer in time: famous last words");
	assert_int_equal(left(), 0);
}

static void a_box_that_dies_first_is_noticed_at_once(void **s)
{
	(void)s;
	struct err e;
	box_is = SILENT;
	on_open = kill_it;
	row(id, 0, 600);
	struct span t = span_begin();
	assert_int_equal(build(&e), -1);
	assert_true(span_ms(&t) < 800);
	assert_row(id, "error", "ended before it answered: famous last words");
	assert_int_equal(left(), 0);
}

static void a_stranger_on_the_socket_is_refused(void **s)
{
	(void)s;
	struct err e;
	box_is = STRANGER;
	row(id, 0, 600);
	assert_int_equal(build(&e), -1);
	assert_row(id, "error", "Somebody else listens");
	assert_int_equal(left(), 0);
}

static void a_row_that_ended_meanwhile_is_not_made_running(void **s)
{
	(void)s;
	struct err e;
	on_open = end_row;
	row(id, 0, 600);
	assert_int_equal(build(&e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_row(id, "ended", "");
	assert_int_equal(left(), 0);
}

static void lose_row(void)
{
	on_open = NULL;
	sql("DELETE FROM sandboxes");
}

/* Its insertion does not wait for the disk, so a crash of PostgreSQL can take it back. */
static void a_row_that_is_lost_meanwhile_is_told_as_lost(void **s)
{
	(void)s;
	struct err e;
	on_open = lose_row;
	row(id, 0, 600);
	assert_int_equal(build(&e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(left(), 0);
}

/* Between its row and this process's word for it there is a moment: who asks then comes too early, not in vain. */
static void what_is_being_built_is_only_not_there_yet(void **s)
{
	(void)s;
	struct err e;
	on_open = want_it;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	assert_told_to_come_again();
	assert_usable();
}

static atomic_bool asked;

static void was_asked(void)
{
	asked = true;
}

static void *build_thread(void *arg)
{
	return fleet_build(f, id, arg) == 0 ? f : NULL;
}

static void end_what_is_being_built(void)
{
	struct err e = { 0 }, mine = { 0 };
	pthread_t t;
	void *built;
	asked = false;
	row(id, 0, 600);
	assert_int_equal(pthread_create(&t, NULL, build_thread, &e), 0);
	int64_t deadline = clock_ms() + 60000;
	while (!asked && clock_ms() < deadline)
		(void)poll(NULL, 0, 1);
	struct span begin = span_begin();
	assert_int_equal(fleet_end(f, id, &mine), 0);
	assert_true(span_ms(&begin) < 5000);
	(void)pthread_join(t, &built);
	assert_null(built);
	assert_row(id, "ended", "");
	assert_int_equal(left(), 0);
}

static void an_end_reaches_a_sandbox_that_is_being_built(void **s)
{
	(void)s;
	box_is = SILENT;
	on_open = was_asked;
	end_what_is_being_built();
}

/* A runtime that hangs, or a queue of starts, is not waited for. */
static void an_end_reaches_a_runtime_that_is_at_work(void **s)
{
	(void)s;
	create_blocks = true;
	on_create = was_asked;
	end_what_is_being_built();
}

/* ---- ending */

static void what_could_not_be_removed_keeps_its_slot_and_is_tried_again(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	destroy_fails = 1;
	assert_int_equal(fleet_end(f, id, &e), -1);
	assert_row(id, "running", "");
	assert_int_equal(left(), 1);
	assert_null(fleet_take(f, id, &e)); /* nobody gets it any more */
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "ended", "");
	assert_int_equal(left(), 0);
}

static void an_end_while_the_database_is_away_is_written_later(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	pgtest_down(server);
	err_clear(&e);
	assert_int_equal(fleet_end(f, id, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(left(), 0); /* on the host it is done */
	assert_int_equal(fleet_round(f), -1);
	pgtest_up(server);
	int64_t deadline = clock_ms() + 60000;
	while (fleet_round(f) != 0 && clock_ms() < deadline)
		;
	assert_row(id, "ended", "");
}

static void a_user_of_an_ended_sandbox_keeps_what_it_holds(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	struct held *h = fleet_take(f, id, &e);
	assert_non_null(h);
	assert_int_equal(fleet_end(f, id, &e), 0);
	assert_false(channel_lost(held_channel(h))); /* still ours to ask */
	auto_buf struct buf why = BUF(500);
	held_why(h, &why);
	assert_string_equal(buf_c(&why), "The sandbox was ended.");
	fleet_give(h);
}

static void a_lost_channel_is_opened_again_beside_its_users(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	struct held *old = fleet_take(f, id, &e);
	channel_is_lost = true;
	struct held *h = fleet_take(f, id, &e);
	assert_non_null(h);
	assert_ptr_not_equal(held_channel(h), held_channel(old));
	assert_int_equal(open_channels, 2);
	fleet_give(old);
	assert_int_equal(open_channels, 1);
	fleet_give(h);
}

static void a_death_is_an_error_with_last_words(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	kill_it();
	wait_row_over();
	assert_row(id, "error", "ended by itself: famous last words");
	assert_int_equal(left(), 0);
}

static void a_death_at_the_end_of_the_lease_is_its_end(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 1);
	assert_int_equal(build(&e), 0);
	kill_it();
	wait_row_over();
	assert_row(id, "ended", "");
}

/* ---- commands that nobody follows (SBX-46) */

static struct channel_item *tell(int i, const char *label, bool running)
{
	n_commands = i + 1 > n_commands ? i + 1 : n_commands;
	commands[i] = (struct channel_item){ .cmd = (uint32_t)i + 1, .running = running };
	(void)snprintf(commands[i].label, sizeof commands[i].label, "%s", label);
	return &commands[i];
}

static struct held *lead(void)
{
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	err_clear(&e);
	struct held *h = fleet_take(f, id, &e);
	assert_non_null(h);
	return h;
}

static void a_command_that_nobody_follows_is_swept_up_after_once(void **s)
{
	(void)s;
	auto_held struct held *h = lead();
	held_began(h, "cmd_a", 0);
	(void)tell(0, "cmd_a", true);
	fleet_mind(f);
	assert_int_equal(sweeps, 0);
	tell(0, "cmd_a", false)->exit.timed_out = true;
	assert_int_equal(
	    held_oom(h, "cmd_a", true), 0); /* somebody has asked how it ended: that does nothing */
	fleet_mind(f);
	fleet_mind(f);
	assert_int_equal(sweeps, 1);
	assert_string_equal(swept, "cmd_a");
	int before = lists;
	fleet_mind(f); /* nothing is under way: a box at rest is not asked */
	assert_int_equal(lists, before);
}

static void what_ends_by_itself_keeps_its_background(void **s)
{
	(void)s;
	auto_held struct held *h = lead();
	held_began(h, "cmd_a", 0);
	(void)tell(0, "cmd_a", false);
	fleet_mind(f);
	assert_int_equal(sweeps, 0);
}

/* What an earlier process started is found in the box's list. */
static void a_command_of_an_earlier_process_is_minded_too(void **s)
{
	(void)s;
	fleet_give(lead());
	fleet_free(f);
	f = fleet_up();
	assert_int_equal(fleet_round(f), 0);
	(void)tell(0, "cmd_a", true);
	fleet_mind(f);
	assert_int_equal(open_channels, 1); /* SBX-66: the box knows that somebody is there */
	tell(0, "cmd_a", false)->exit.stopped = true;
	fleet_mind(f);
	assert_string_equal(swept, "cmd_a");
}

/* fault 12: it is told for whoever asks later, and not for what began after. */
static void running_out_of_memory_is_told_of_who_ran_then(void **s)
{
	(void)s;
	auto_held struct held *h = lead();
	held_began(h, "cmd_a", 0);
	(void)tell(0, "cmd_a", false);
	oom_kills = 1;
	fleet_mind(f);
	held_began(h, "cmd_b", 1);
	assert_int_equal(held_oom(h, "cmd_a", true), 1);
	assert_int_equal(held_oom(h, "cmd_b", false), 0);
	oom_kills = 2;
	assert_int_equal(held_oom(h, "cmd_b", true), 1);
	oom_kills = 3;
	assert_int_equal(held_oom(h, "cmd_c", true), -1);
	for (int i = 0; i < 300; i++) {
		char cmd[ID_MAX];
		(void)snprintf(cmd, sizeof cmd, "cmd_%d", i);
		held_began(h, cmd, 3);
	}
	assert_int_equal(held_oom(h, "cmd_a", true), -1); /* as long as the box remembers it */
	assert_int_equal(held_oom(h, "cmd_299", true), 0);
}

static bool is_over(void)
{
	struct err e = { 0 };
	struct held *h = fleet_take(f, id, &e);
	fleet_give(h);
	return h == NULL;
}

static void a_command_that_cannot_be_killed_costs_the_sandbox(void **s)
{
	(void)s;
	struct held *h = lead();
	held_began(h, "cmd_a", 0);
	tell(0, "cmd_a", false)->exit.escaped = true;
	fleet_mind(f);
	fleet_give(h);
	for (int64_t until = clock_ms() + 60000; !is_over(); (void)poll(NULL, 0, 5))
		assert_true(clock_ms() < until);
	wait_row_over();
	assert_row(id, "error", "could not be stopped");
}

/* ---- many at once */

static void *build_and_end(void *arg)
{
	struct err e = { 0 };
	const char *mine = arg;
	if (fleet_build(f, mine, &e) != 0)
		return NULL;
	struct held *h = fleet_take(f, mine, &e);
	fleet_give(h);
	return h != NULL && fleet_end(f, mine, &e) == 0 ? f : NULL;
}

static void many_at_once_and_the_reaper_beside_them(void **s)
{
	(void)s;
	pthread_t t[FAKES];
	char ids[FAKES][ID_MAX];
	for (int i = 0; i < FAKES; i++) {
		id_make("sbx", ids[i]);
		row(ids[i], i, 600);
	}
	for (int i = 0; i < FAKES; i++)
		assert_int_equal(pthread_create(&t[i], NULL, build_and_end, ids[i]), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fleet_round(f), 0);
	for (int i = 0; i < FAKES; i++) {
		void *ok;
		(void)pthread_join(t[i], &ok);
		assert_non_null(ok);
		assert_row(ids[i], "ended", "");
	}
	assert_int_equal(left(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_pending_row_becomes_a_running_sandbox),
		T(a_row_that_is_not_ours_is_not_built),
		T(a_start_that_fails_is_on_the_row_and_leaves_nothing),
		T(a_box_that_never_answers_is_removed_with_its_last_words),
		T(a_box_that_dies_first_is_noticed_at_once),
		T(a_stranger_on_the_socket_is_refused),
		T(a_row_that_ended_meanwhile_is_not_made_running),
		T(a_row_that_is_lost_meanwhile_is_told_as_lost),
		T(what_is_being_built_is_only_not_there_yet),
		T(an_end_reaches_a_sandbox_that_is_being_built),
		T(an_end_reaches_a_runtime_that_is_at_work),
		T(what_could_not_be_removed_keeps_its_slot_and_is_tried_again),
		T(an_end_while_the_database_is_away_is_written_later),
		T(a_user_of_an_ended_sandbox_keeps_what_it_holds),
		T(a_lost_channel_is_opened_again_beside_its_users),
		T(a_death_is_an_error_with_last_words),
		T(a_death_at_the_end_of_the_lease_is_its_end),
		T(a_command_that_nobody_follows_is_swept_up_after_once),
		T(what_ends_by_itself_keeps_its_background),
		T(a_command_of_an_earlier_process_is_minded_too),
		T(running_out_of_memory_is_told_of_who_ran_then),
		T(a_command_that_cannot_be_killed_costs_the_sandbox),
		T(many_at_once_and_the_reaper_beside_them),
	};
	return cmocka_run_group_tests_name("fleet", tests, up, down);
}
