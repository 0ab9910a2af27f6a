/* ID-7: what an org may use at most, counted in the database by several processes. */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pgtest.h"
#include "auth/limit.h"
#include "auth/principal.h"
#include "base/log.h"
#include "io/conf.h"

enum { HOSTS = 3 };

static struct pgtest *server;
static struct pg_pool *pool;
static struct conf *conf;

static const struct op some_op = { .id = "some" }, public_op = { .id = "public", .flags = OP_PUBLIC };

static int ask(const struct op *op, const struct principal *who, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct ctx c = { .mem = m, .who = who, .db = pool, .conf = conf };
	err_clear(e);
	return limit_request(&c, op, e);
}

/* How many of n are let through. */
static int passed(const char *org, int n)
{
	const struct principal who = { .org = org, .user = "ada" };
	int got = 0;
	for (int i = 0; i < n; i++) {
		struct err e = { 0 };
		if (ask(&some_op, &who, &e) == 0) {
			got++;
			continue;
		}
		assert_int_equal(e.code, ERR_RATE);
		assert_in_range(e.retry_s, 1, 60);
	}
	return got;
}

static void set(const char *org, const char *requests, const char *runs)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *row = NULL;
	struct limit_org l = { requests, runs };
	assert_non_null(db);
	assert_int_equal(limit_set(db, org, &l, &row, &e), 0);
}

static void fresh_org(const char *org)
{
	char sql[120];
	(void)snprintf(sql, sizeof sql, "INSERT INTO orgs (slug) VALUES ('%s')", org);
	pgtest_sql(server, sql);
}

static void an_org_has_the_default_of_the_settings(void **s)
{
	(void)s;
	fresh_org("plain");
	assert_int_equal(passed("plain", 25), 20);
}

static void its_own_limit_overrules_the_default(void **s)
{
	(void)s;
	fresh_org("own");
	set("own", "7", NULL);
	assert_int_equal(passed("own", 10), 7);
	fresh_org("free");
	set("free", "0", NULL);
	assert_int_equal(passed("free", 100), 100);
	fresh_org("back");
	set("back", "3", NULL);
	set("back", "default", NULL);
	assert_int_equal(passed("back", 25), 20);
}

static void one_orgs_limit_is_not_anothers(void **s)
{
	(void)s;
	fresh_org("first");
	fresh_org("second");
	assert_int_equal(passed("first", 30), 20);
	assert_int_equal(passed("second", 15), 15);
}

static void a_new_minute_begins_anew(void **s)
{
	(void)s;
	fresh_org("minute");
	set("minute", "2", NULL);
	assert_int_equal(passed("minute", 3), 2);
	pgtest_sql(server, "UPDATE org_requests SET until = now() - interval '1 ms' WHERE org = 'minute'");
	(void)usleep(1100 * 1000); /* it is remembered for a second that nothing was left */
	assert_int_equal(passed("minute", 3), 2);
}

/* A public op, nobody, and the runner's own errands. */
static void what_is_not_the_orgs_own_request_is_not_counted(void **s)
{
	(void)s;
	fresh_org("errands");
	set("errands", "1", NULL);
	const struct principal who = { .org = "errands" },
			       run = { .org = "errands", .kind = CRED_GRANT, .session = "ses_1" };
	struct err e = { 0 };
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ask(&public_op, &who, &e), 0);
		assert_int_equal(ask(&some_op, NULL, &e), 0);
		assert_int_equal(ask(&some_op, &run, &e), 0);
	}
	assert_int_equal(passed("errands", 3), 1);
}

/* Each in a process of its own, all at the same time: together never more, and hardly less. */
static int hosts(const char *org, int each)
{
	int fds[2], sum = 0;
	assert_int_equal(pipe(fds), 0);
	for (int i = 0; i < HOSTS; i++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			pool = pg_pool_new(pgtest_conninfo(server), 1, 60000);
			int got = passed(org, each);
			_exit(write(fds[1], &got, sizeof got) == (ssize_t)sizeof got ? 0 : 1);
		}
	}
	for (int i = 0; i < HOSTS; i++) {
		int got = 0, status;
		assert_int_equal(read(fds[0], &got, sizeof got), sizeof got);
		assert_true(wait(&status) > 0 && status == 0);
		sum += got;
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
	return sum;
}

static void hosts_together_pass_no_more_than_the_limit(void **s)
{
	(void)s;
	fresh_org("exact");
	set("exact", "90", NULL);
	assert_int_equal(hosts("exact", 60), 90);
	fresh_org("batched");
	set("batched", "1000", NULL);
	int sum = hosts("batched", 600);
	assert_in_range(sum, 1000 - HOSTS * 9, 1000); /* a hundredth may be left over at each */
}

static void a_limit_is_a_number_or_the_default(void **s)
{
	(void)s;
	static const char *const bad[] = { "", "-1", "many", "1.5", "1000000001", "99999999999999999999" };
	fresh_org("bad");
	auto_pg struct pg *db = pg_take(pool, 60000, &(struct err){ 0 });
	assert_non_null(db);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct err e = { 0 };
		auto_res struct pg_res *row = NULL;
		struct limit_org l = { NULL, bad[i] };
		assert_int_equal(limit_set(db, "bad", &l, &row, &e), -1);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	}
	struct err e = { 0 };
	auto_res struct pg_res *row = NULL;
	struct limit_org l = { "5", NULL };
	assert_int_equal(limit_set(db, "nobody", &l, &row, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	assert_int_equal(limit_set(db, "bad", &l, &row, &e), 0);
	assert_string_equal(l.requests_per_minute, "5");
	assert_string_equal(l.concurrent_runs, "default");
}

static int setup(void **s)
{
	(void)s;
	struct err e = { 0 };
	assert_int_equal(setenv("ORG_REQUESTS_PER_MINUTE", "20", 1), 0);
	conf = conf_load("/dev/null", &e);
	assert_non_null(conf);
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 2, 60000);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	conf_free(conf);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_org_has_the_default_of_the_settings),
		cmocka_unit_test(its_own_limit_overrules_the_default),
		cmocka_unit_test(one_orgs_limit_is_not_anothers),
		cmocka_unit_test(a_new_minute_begins_anew),
		cmocka_unit_test(what_is_not_the_orgs_own_request_is_not_counted),
		cmocka_unit_test(hosts_together_pass_no_more_than_the_limit),
		cmocka_unit_test(a_limit_is_a_number_or_the_default),
	};
	return cmocka_run_group_tests_name("limit", tests, setup, teardown);
}
