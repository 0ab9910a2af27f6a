/* Rotation of the key that seals (SEC-6), on rows of a real database. */
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pgtest.h"
#include "auth/cred.h"
#include "auth/reseal.h"
#include "io/file.h"
#include "sql/seal.h"

enum { ROWS = 450 };

static struct pgtest *server;
static struct pg_pool *pool;
static char dir[64], file[80];
static const char first[] = "1111111111111111111111111111111111111111111111111111111111111111\n",
		  second[] = "2222222222222222222222222222222222222222222222222222222222222222\n";

static const struct pg_stmt q_row = { "q_row",
	"WITH s AS (INSERT INTO sessions (id, org, kind, title, created_by, root) "
	"VALUES ('s_' || $1, 'acme', 'coding', 't', 'ada', 's_' || $1) RETURNING id) "
	"INSERT INTO runs (id, org, tool, session, prompt, timeout_s, created_by, sealed_credential) "
	"SELECT $1, 'acme', 'python', id, 'p', 60, 'ada', $2 FROM s",
	2 };
static const struct pg_stmt q_rows = { "q_rows",
	"SELECT id, sealed_credential FROM runs WHERE sealed_credential IS NOT NULL ORDER BY id", 0 };

static void file_is(const char *a, const char *b)
{
	char text[200];
	struct err e = { 0 };
	int n = snprintf(text, sizeof text, "%s%s", a, b);
	assert_int_equal(file_write(file, text, (size_t)n, 0600, &e), 0);
}

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	return db;
}

static void put_row(struct pg *db, const char *id, const char *sealed)
{
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_row, &e, id, sealed);
	if (r == NULL)
		fail_msg("%s", e.msg);
}

/* ROWS runs, each with its own id as the secret; every third in the form from before keys had ids. */
static void rows_made(const struct seal_key *k)
{
	auto_pg struct pg *db = take();
	pgtest_sql(server, "TRUNCATE runs, sessions CASCADE");
	for (int i = 0; i < ROWS; i++) {
		auto_mem struct mem *m = mem_new();
		const char *id = mem_fmt(m, "run_%04d", i);
		auto_secret struct secret *s = secret_new(id, strlen(id));
		const char *text = seal(m, k, id, s);
		put_row(db, id, i % 3 == 0 ? mem_fmt(m, "1:%s", text + SEAL_ID + 2) : text);
	}
	put_row(db, "run_none", NULL);
}

/* Every row opens with k as what it was; how many of them begin with prefix. */
static int all_open(const struct seal_key *k, const char *prefix)
{
	struct err e = { 0 };
	int n = 0;
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG0(db, &q_rows, &e);
	assert_non_null(r);
	assert_int_equal(pg_rows(r), ROWS);
	for (int i = 0; i < ROWS; i++) {
		auto_secret struct secret *s = seal_open(k, pg_str(r, i, 0), pg_str(r, i, 1), &e);
		assert_non_null(s);
		assert_string_equal(secret_use(s), pg_str(r, i, 0));
		n += strncmp(pg_str(r, i, 1), prefix, strlen(prefix)) == 0;
	}
	return n;
}

static struct seal_key *old_and_new(char prefix[SEAL_ID + 3])
{
	struct err e = { 0 };
	file_is(first, "");
	struct seal_key *k = seal_load(file, &e);
	assert_non_null(k);
	rows_made(k);
	file_is(first, second);
	seal_prefix(k, prefix);
	return k;
}

static void every_row_is_sealed_anew_and_then_the_old_key_can_go(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct reseal_sum sum;
	struct seal_info info[2 * SEAL_KEYS_MAX];
	char prefix[SEAL_ID + 3];
	int dropped;
	struct seal_key *k = old_and_new(prefix);
	auto_pg struct pg *db = take();
	assert_int_equal(all_open(k, prefix), 0);
	assert_int_equal(reseal_drop(db, k, &dropped, &e), -1); /* in use */
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(sum.done, ROWS);
	assert_int_equal(sum.broken, 0);
	assert_int_equal(all_open(k, prefix), ROWS);
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(sum.done, 0); /* nothing is left to do */
	assert_int_equal(reseal_drop(db, k, &dropped, &e), 0);
	assert_int_equal(dropped, 1);
	struct seal_key *fresh = seal_load(file, &e);
	assert_int_equal(seal_list(fresh, info), 1);
	assert_int_equal(all_open(fresh, prefix), ROWS);
	seal_free(fresh);
	seal_free(k);
}

static int die(void *arg)
{
	if (--*(int *)arg == 0)
		(void)kill(getpid(), SIGKILL);
	return 0;
}

static void killed_half_way_it_has_cost_nothing_and_goes_on(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct reseal_sum sum;
	char prefix[SEAL_ID + 3];
	struct seal_key *k = old_and_new(prefix);
	int batches = 2, status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct pg_pool *own = pg_pool_new(pgtest_conninfo(server), 1, 60000);
		struct pg *db = pg_take(own, 60000, &e);
		(void)(db != NULL && reseal_all(db, k, die, &batches, &sum, &e));
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	int half = all_open(k, prefix);
	assert_in_range(half, 1, ROWS - 1);
	auto_pg struct pg *db = take();
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(sum.done, ROWS - half);
	assert_int_equal(all_open(k, prefix), ROWS);
	seal_free(k);
}

static int end_a_run(void *arg)
{
	(void)arg;
	pgtest_sql(server, "UPDATE runs SET sealed_credential = NULL WHERE id = 'run_0449'");
	return 0;
}

static void a_run_that_ends_meanwhile_is_given_no_credential_again(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct reseal_sum sum;
	char prefix[SEAL_ID + 3];
	struct seal_key *k = old_and_new(prefix);
	auto_pg struct pg *db = take();
	assert_int_equal(reseal_all(db, k, end_a_run, NULL, &sum, &e), 0);
	assert_int_equal(sum.done, ROWS - 1);
	/* Not between the look and the write either, and nothing that changed there is lost. */
	auto_res struct pg_res *ended = PG(db, &q_seal_run_put, &e, "acme", "run_0449", "2:old", "2:new");
	auto_res struct pg_res *changed = PG(db, &q_seal_run_put, &e, "acme", "run_0448", "2:old", "2:new");
	assert_int_equal(pg_affected(ended) + pg_affected(changed), 0);
	auto_res struct pg_res *r = PG0(db, &q_rows, &e);
	assert_int_equal(pg_rows(r), ROWS - 1);
	seal_free(k);
}

static void brokered_credentials_are_sealed_anew_too(void **state)
{
	(void)state;
	static const struct pg_stmt q_put = { "q_put",
		"INSERT INTO egress_credentials (id, org, name, host, header, sealed, created_by) "
		"VALUES ('cred_1', 'acme', 'n', 'h', 'authorization', $1, 'ada')",
		1 };
	static const struct pg_stmt q_get = { "q_get", "SELECT sealed FROM egress_credentials", 0 };
	struct err e = { 0 };
	struct reseal_sum sum;
	char prefix[SEAL_ID + 3];
	auto_mem struct mem *m = mem_new();
	file_is(first, "");
	struct seal_key *k = seal_load(file, &e);
	auto_secret struct secret *s = secret_new("hunter2", 7);
	pgtest_sql(server, "TRUNCATE runs, sessions CASCADE");
	auto_pg struct pg *db = take();
	auto_res struct pg_res *put = PG(db, &q_put, &e, seal(m, k, "cred_1", s));
	assert_non_null(put);
	struct seal_info info[2 * SEAL_KEYS_MAX];
	assert_int_equal(seal_list(k, info), 1);
	assert_int_equal(reseal_uses(db, info[0].id, &e), 1);
	file_is(first, second);
	seal_prefix(k, prefix);
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(sum.done, 1);
	assert_int_equal(reseal_uses(db, info[0].id, &e), 0);
	auto_res struct pg_res *r = PG0(db, &q_get, &e);
	assert_int_equal(strncmp(pg_str(r, 0, 0), prefix, strlen(prefix)), 0);
	auto_secret struct secret *back = seal_open(k, "cred_1", pg_str(r, 0, 0), &e);
	assert_true(back != NULL && secret_equal(back, "hunter2", 7));
	pgtest_sql(server, "TRUNCATE egress_credentials");
	seal_free(k);
}

static void a_row_that_no_key_opens_is_told_and_left_as_it_is(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct reseal_sum sum;
	char prefix[SEAL_ID + 3];
	struct seal_key *k = old_and_new(prefix);
	auto_pg struct pg *db = take();
	put_row(db, "run_lost", "2:00000000:AAAA");
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(sum.broken, 1);
	assert_int_equal(sum.done, ROWS);
	assert_int_equal(reseal_uses(db, "00000000", &e), 1);
	seal_free(k);
}

static void a_reload_keeps_a_key_that_rows_need_and_forgets_one_they_do_not(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct reseal_sum sum;
	struct seal_info info[2 * SEAL_KEYS_MAX];
	char prefix[SEAL_ID + 3];
	struct seal_key *k = old_and_new(prefix);
	file_is(second, ""); /* the old one is gone too early */
	assert_int_equal(reseal_reload(pool, k, &e), 0);
	assert_int_equal(seal_list(k, info), 2);
	assert_int_equal(all_open(k, prefix), 0);
	pgtest_down(server); /* nobody can say: kept */
	assert_int_equal(reseal_reload(pool, k, &e), 0);
	assert_int_equal(seal_list(k, info), 2);
	pgtest_up(server);
	auto_pg struct pg *db = take();
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(reseal_reload(pool, k, &e), 0);
	assert_int_equal(seal_list(k, info), 1);
	assert_int_equal(all_open(k, prefix), ROWS);
	file_is("nonsense", "");
	assert_int_equal(reseal_reload(pool, k, &e), -1);
	assert_int_equal(all_open(k, prefix), ROWS);
	seal_free(k);
}

/* A fingerprint cannot be made anew: the key stays as long as the row counts, and not longer. */
static void a_fingerprint_of_the_last_day_keeps_its_key(void **state)
{
	(void)state;
	static const struct pg_stmt put = { "t_once",
		"INSERT INTO once (org, key, hash, status, body) VALUES ('acme', 'k', $1, 200, '{}')", 1 };
	struct err e = { 0 };
	struct reseal_sum sum;
	char prefix[SEAL_ID + 3], mac[SEAL_MAC];
	int dropped;
	file_is(first, "");
	struct seal_key *k = seal_load(file, &e);
	assert_non_null(k);
	seal_mac(k, "once", "x", 1, mac);
	seal_free(k);
	k = old_and_new(prefix);
	auto_pg struct pg *db = take();
	auto_res struct pg_res *r = PG(db, &put, &e, mac);
	assert_non_null(r);
	assert_int_equal(reseal_all(db, k, NULL, NULL, &sum, &e), 0);
	assert_int_equal(reseal_drop(db, k, &dropped, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_non_null(strstr(e.msg, "Idempotency-Key"));
	err_clear(&e);
	assert_int_equal(seal_mac_is(k, "once", "x", 1, mac), SEAL_MAC_SAME);
	pgtest_sql(server, "UPDATE once SET created_at = now() - interval '24 hours 1 second'");
	assert_int_equal(reseal_drop(db, k, &dropped, &e), 0);
	assert_int_equal(dropped, 1);
	seal_free(k);
}

static int start_server(void **state)
{
	(void)state;
	struct err e = { 0 };
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 3, 60000);
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0)
		return -1;
	(void)snprintf(file, sizeof file, "%s/key", dir);
	auto_pg struct pg *db = take();
	return org_create(db, "acme", &e);
}

static int end_server(void **state)
{
	(void)state;
	struct err e = { 0 };
	pg_pool_free(pool);
	pgtest_end(server);
	return file_rmtree(dir, &e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_sealed_anew_and_then_the_old_key_can_go),
		cmocka_unit_test(killed_half_way_it_has_cost_nothing_and_goes_on),
		cmocka_unit_test(a_run_that_ends_meanwhile_is_given_no_credential_again),
		cmocka_unit_test(brokered_credentials_are_sealed_anew_too),
		cmocka_unit_test(a_row_that_no_key_opens_is_told_and_left_as_it_is),
		cmocka_unit_test(a_fingerprint_of_the_last_day_keeps_its_key),
		cmocka_unit_test(a_reload_keeps_a_key_that_rows_need_and_forgets_one_they_do_not),
	};
	return cmocka_run_group_tests_name("reseal", tests, start_server, end_server);
}
