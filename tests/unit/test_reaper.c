/* What the reaper finds and what it makes of it (SBX-60, REL-6). */
#include "../t.h"

#include "../fds.h"
#include "fake_fleet.h"
#include "io/file.h"
#include "sandbox/lease.h"

/* ---- the reaper */

static void restart(void)
{
	fleet_free(f);
	f = fleet_up();
}

/* fault 35 */
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
	assert_usable();
	assert_row(id, "running", "");
	kill_it(); /* and its death is noticed as ever */
	wait_row_over();
	assert_row(id, "error", "ended by itself");
}

static void end_it(void)
{
	struct err e = { 0 };
	on_find = NULL;
	assert_int_equal(fleet_end(f, id, &e), 0);
}

/* Found by one thread and ended by another at the same moment: it is gone, and its descriptor with it. */
static void what_is_ended_while_it_is_found_again_is_not_taken_up(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	restart();
	auto_buf struct buf were = BUF(1 << 16);
	int before = fds_open(getpid(), &were);
	on_find = end_it;
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "ended", "");
	assert_int_equal(left(), 0);
	err_clear(&e);
	assert_null(fleet_take(f, id, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	fds_back(getpid(), before, &were, 5000);
}

/* Who comes back to a command before its node has found the sandbox again is to come once more: nothing about it is lost. */
static void what_is_being_found_again_is_only_not_known_yet(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	restart();
	want_it(); /* before the first round */
	assert_told_to_come_again();
	on_find = want_it; /* during it */
	assert_int_equal(fleet_round(f), 0);
	assert_told_to_come_again();
	assert_usable();
}

/* Built, and gone from the host while no process watches; the next one is there. */
static void gone_unwatched(void)
{
	struct err e;
	row(id, 0, 600);
	assert_int_equal(build(&e), 0);
	fleet_free(f);
	(void)d_destroy(&driver, id, 0, &e);
	f = fleet_up();
}

static void a_row_without_a_sandbox_is_an_error(void **s)
{
	(void)s;
	gone_unwatched();
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "error", "while its node was not watching");
}

/* A box ends itself with its lease, also while nobody watches: no fault of it. */
static void a_lease_that_ran_out_unwatched_has_ended(void **s)
{
	(void)s;
	gone_unwatched();
	sql("UPDATE sandboxes SET expires_at = now() - interval '1 s'");
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "ended", "");
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

/* fault 36 */
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
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
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

/* fault 34 */
static void a_lease_past_its_end_is_ended(void **s)
{
	(void)s;
	struct err e;
	row(id, 0, 1);
	assert_int_equal(build(&e), 0);
	assert_int_equal(fleet_round(f), 0);
	assert_row(id, "running", "");
	int64_t deadline = clock_ms() + 60000;
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

/* ---- volumes */

static struct volumes disks;

static struct fleet *with_disks(void)
{
	return fleet_new(&(struct fleet_opts){ .db = pool,
	    .driver = &driver,
	    .node = "n1",
	    .refusal = "",
	    .volumes = &disks,
	    .mount_roots = "",
	    .start_s = 1,
	    .idle_s = 60 });
}

static void disk(const char *kind, const char *name, const char *more)
{
	char path[VOLUME_PATH_MAX + 100], text[300];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/%s.admin.%s.ext4", disks.dir, kind, name);
	assert_int_equal(file_write(path, "x", 1, 0600, &e), 0);
	(void)snprintf(text, sizeof text,
	    "INSERT INTO volumes (org, kind, name, node, size_bytes, %s) VALUES ('admin', '%s', '%s', 'n1', "
	    "1, %s)",
	    strcmp(more, "now()") == 0 ? "purge_asked_at" : "made_for", kind, name, more);
	sql(text);
}

static bool disk_there(const char *kind, const char *name)
{
	char volume[VOLUME_NAME_MAX];
	volume_name(volume, kind, "admin", name);
	return volume_used(&disks, volume) > 0;
}

struct purger {
	pthread_t thread;
	struct fleet *fleet;
	int rc;
};

static void *purge_it(void *arg)
{
	struct purger *p = arg;
	struct err e = { 0 };
	p->rc = fleet_purge(p->fleet, "admin", "project", "p", &e);
	return NULL;
}

static void two_who_delete_one_volume_do_it_once(void **s)
{
	(void)s;
	struct purger two[2] = { { .fleet = with_disks() }, { .fleet = with_disks() } };
	disk("project", "p", "now()");
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&two[i].thread, NULL, purge_it, &two[i]), 0);
	assert_int_equal(fleet_round(two[0].fleet), 0);
	for (int i = 0; i < 2; i++) {
		(void)pthread_join(two[i].thread, NULL);
		assert_int_equal(two[i].rc, 0);
	}
	assert_false(disk_there("project", "p"));
	for (int i = 0; i < 2; i++)
		fleet_free(two[i].fleet);
}

/* SBX-45: what was asked for, what no lease came to have, and what belongs to no open session; and nothing else. */
static void only_what_is_due_is_deleted_and_nothing_in_use(void **s)
{
	(void)s;
	char text[200];
	struct err e = { 0 };
	struct fleet *g = with_disks();
	disk("project", "asked", "now()");
	disk("project", "unmade", "'sbx_gone'");
	disk("session", "ses_over", "NULL");
	disk("project", "kept", "NULL");
	disk("project", "used", "now()");
	row(id, 3, 600);
	(void)snprintf(text, sizeof text, "UPDATE sandboxes SET project = 'used' WHERE id = '%s'", id);
	sql(text);
	assert_int_equal(fleet_purge(g, "admin", "project", "used", &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(fleet_round(g), 0);
	assert_true(disk_there("project", "used"));
	assert_true(disk_there("project", "kept"));
	assert_false(disk_there("project", "asked"));
	assert_false(disk_there("project", "unmade"));
	assert_false(disk_there("session", "ses_over"));
	fleet_free(g);
	sql("DELETE FROM volumes");
}

static int disks_up(void **s)
{
	struct err e = { 0 };
	return up(s) == 0 ? file_tmpdir("/tmp", disks.dir, sizeof disks.dir, &e) : -1;
}

static int disks_down(void **s)
{
	struct err e = { 0 };
	return file_rmtree(disks.dir, &e) == 0 ? down(s) : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(two_who_delete_one_volume_do_it_once),
		T(only_what_is_due_is_deleted_and_nothing_in_use),
		T(the_next_process_finds_what_runs),
		T(what_is_ended_while_it_is_found_again_is_not_taken_up),
		T(what_is_being_found_again_is_only_not_known_yet),
		T(a_row_without_a_sandbox_is_an_error),
		T(a_lease_that_ran_out_unwatched_has_ended),
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
	return cmocka_run_group_tests_name("reaper", tests, disks_up, disks_down);
}
