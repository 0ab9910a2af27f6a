/*
 * flow_bad_upgrade.c - REL-5: a migration under load, one that fails, and a host that is lost and restored from its backup as the
 * README describes it.
 */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "chaos.h"
#include "io/migrate.h"
#include "io/proc.h"
#include "runs.h"

static struct chaos chaos;

/* ---- migrations: this version's set and one more, as the next version would have it */

static int migrate_with(const char *name, const char *sql, struct err *e)
{
	char conninfo[200];
	size_t n = 0;
	while (migrations[n].name != NULL)
		n++;
	struct migration *set = xcalloc(n + 2, sizeof *set);
	memcpy(set, migrations, n * sizeof *set);
	set[n] = (struct migration){ name, sql };
	(void)snprintf(
	    conninfo, sizeof conninfo, "host=%s/run/pg dbname=gatehouse user=gatehouse", chaos.stack.dir);
	struct pg_pool *pool = pg_pool_new(conninfo, 1, 60000);
	int rc = migrate_up(pool, set, e);
	pg_pool_free(pool);
	free(set);
	return rc;
}

static void assert_sql(const char *sql, const char *want)
{
	char got[200];
	runs_sql(&chaos.stack, got, sizeof got, "%s", sql);
	assert_string_equal(got, want);
}

static void a_migration_that_fails_changes_nothing(void **s)
{
	(void)s;
	struct err e = { 0 };
	char before[40];
	runs_sql(&chaos.stack, before, sizeof before, "SELECT count(*) FROM schema_migrations");
	assert_int_equal(
	    migrate_with("9001_fails",
		"CREATE TABLE half (x int); ALTER TABLE runs ADD COLUMN half int; SELECT 1 / 0;", &e),
	    -1);
	assert_non_null(strstr(e.msg, "9001_fails failed and was rolled back"));
	assert_sql("SELECT count(*) FROM schema_migrations", before);
	assert_sql("SELECT to_regclass('half') IS NULL", "t");
	assert_sql("SELECT count(*) FROM information_schema.columns WHERE column_name = 'half'", "0");
	stack_ready(&chaos.stack);
}

/* The old version serves before, while and after: with its statements prepared, and runs on their way. */
static void a_migration_runs_while_the_old_version_serves(void **s)
{
	(void)s;
	struct err e = { 0 };
	chaos_begin(&chaos, 8);
	chaos_wait_events(&chaos, 25);
	int n = migrate_with("9002_next",
	    "ALTER TABLE runs ADD COLUMN note text NOT NULL DEFAULT ''; ALTER TABLE events ADD COLUMN origin "
	    "text; "
	    "CREATE INDEX runs_note ON runs (org, note); CREATE TABLE notes (id text PRIMARY KEY); "
	    "UPDATE runs SET note = 'seen';",
	    &e);
	if (n != 1)
		fail_msg("migrate: %s", e.msg);
	chaos_end(&chaos);
	assert_int_equal(chaos.exits, 0);
	assert_sql("SELECT count(*) > 0 FROM runs WHERE note = 'seen'", "t");
	/* The old version does not take the newer database for its own to migrate. */
	struct err refused = { 0 };
	assert_int_equal(migrate_with("9001_other", "SELECT 1;", &refused), -1);
}

/* ---- backup and restore */

static void run_well(const char *const *argv)
{
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 300000,
		.max_out_bytes = 1 << 20 };
	auto_proc struct proc_result r = { 0 };
	struct err e = { 0 };
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("%s: %s %s", argv[0], e.msg, buf_c(&r.errout));
}
#define RUN(...) run_well((const char *const[]){ __VA_ARGS__, NULL })

static struct stack lost, fresh;
static char instance[64];

static const char *at(struct mem *m, const struct stack *s, const char *sub)
{
	return mem_fmt(m, "%s/%s", s->dir, sub);
}

/* The database first, then the repositories: a branch that the database knows of is never missing. */
static void back_up(struct mem *m, const char *to)
{
	stack_instance(&lost, instance);
	RUN("pg_dump", "-Fc", "-h", at(m, &lost, "run/pg"), "-U", "postgres", "-f", mem_fmt(m, "%s/db", to),
	    "gatehouse");
	RUN("cp", "-a", at(m, &lost, "forge"), mem_fmt(m, "%s/forge", to));
	RUN("cp", "-a", at(m, &lost, "secret.key"), mem_fmt(m, "%s/secret.key", to));
}

static void restore(struct mem *m, const char *from)
{
	static const char *const parts[] = { "api1", "runner1", "node1", "egress1" };
	const char *sock = at(m, &fresh, "run/pg");
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		stack_stop(&fresh, parts[i]);
	RUN("dropdb", "-h", sock, "-U", "postgres", "gatehouse");
	RUN("createdb", "-h", sock, "-U", "postgres", "-O", "gatehouse", "gatehouse");
	RUN("pg_restore", "-h", sock, "-U", "postgres", "-d", "gatehouse", mem_fmt(m, "%s/db", from));
	RUN("rm", "-rf", at(m, &fresh, "forge"));
	RUN("cp", "-a", mem_fmt(m, "%s/forge", from), at(m, &fresh, "forge"));
	RUN("cp", "-a", mem_fmt(m, "%s/secret.key", from), at(m, &fresh, "secret.key"));
	/* INSTANCE, like NODE_NAME, is as it was: another deployment may not take a node over. */
	RUN("sed", "-i", mem_fmt(m, "s/^INSTANCE=.*/INSTANCE=%s/", instance),
	    at(m, &fresh, "gatehouse.conf"));
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		stack_start(&fresh, parts[i]);
	runs_ready(&fresh);
}

static void a_lost_host_is_restored_and_its_runs_go_on(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct stack_org acme;
	auto_flow_run struct flow_run done = { 0 }, going = { 0 }, next = { 0 };
	auto_web struct web gone = { 0 };
	char key[128];
	stack_up(&lost, 1, 1, 1, "JOB_LEASE_S=10\n");
	stack_org(&lost, &acme);
	stack_key(&lost, acme.slug, "late", false, NULL, key);
	runs_repo(&lost, &acme, "work");
	runs_do(&lost, &acme, runs_task("python", "work", "open('a.txt', 'a').write('two\\n')"), &done);
	runs_check(&done, "result");
	runs_start(&lost, &acme,
	    runs_task("python", "work",
		mem_fmt(m,
		    "import time\nprint('at work', flush=True)\ntime.sleep(%d)\nopen('a.txt', "
		    "'a').write('three\\n')",
		    8 + span_room_ms(500) / 1000)), /* until it is in the backup */
	    &going);
	runs_until(&lost, &acme, &going, "at work");
	const char *dir = mem_fmt(m, "%s.backup", lost.dir);
	RUN("mkdir", "-m", "700", dir);
	back_up(m, dir);
	stack_down(&lost);
	stack_up(&fresh, 1, 1, 1, "JOB_LEASE_S=10\n");
	restore(m, dir);
	RUN("rm", "-rf", dir);

	/* What was done is there, word for word and commit for commit. */
	auto_flow_run struct flow_run again = { 0 };
	(void)snprintf(again.session, sizeof again.session, "%s", done.session);
	runs_watch(&fresh, &acme, &again, 0, 0);
	assert_true(json_equal(again.lines, done.lines));
	auto_free char *tip = runs_tip(&fresh, &acme, "work", js_str(done.last, "branch"));
	assert_string_equal(tip, js_str(done.last, "commit"));
	/* What was under way is done by another attempt; what comes next is done. Keys work, strangers' do not. */
	runs_watch(&fresh, &acme, &going, 0, 0);
	runs_check(&going, "result");
	runs_sound(&fresh, &going);
	assert_int_equal(js_int(going.last, "attempts", 0), 2);
	auto_free char *text = runs_file(&fresh, &acme, "work", js_str(going.last, "branch"), "a.txt");
	assert_string_equal(text, "one\nthree");
	runs_do(&fresh, &acme, runs_task("python", "work", "open('a.txt', 'a').write('four\\n')"), &next);
	runs_check(&next, "result");
	web_json(&fresh, "GET", "/v1/bots", key, NULL, &gone);
	assert_int_equal(gone.status, 200);
	stack_down(&fresh);
}

static int setup(void **s)
{
	(void)s;
	chaos_stack(&chaos, "JOB_LEASE_S=5\nRUNNER_JOBS=2\n");
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
		cmocka_unit_test(a_migration_that_fails_changes_nothing),
		cmocka_unit_test(a_migration_runs_while_the_old_version_serves),
		cmocka_unit_test(a_lost_host_is_restored_and_its_runs_go_on),
	};
	return cmocka_run_group_tests_name("upgrade and restore", tests, setup, teardown);
}
