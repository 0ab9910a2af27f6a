/* Idempotency-Key (HTTP-7): ops of every kind, called as the server core calls them. */
#include "../t.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "auth/once.h"
#include "auth/principal.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "io/file.h"

enum { TWINS = 8 };

static struct pgtest *server;
static struct pg_pool *pool;
static struct seal_key *keys;
static char dir[64], file[80];
static atomic_int runs; /* how often an op was run */

/* ---- a request */

struct call {
	struct reply reply;
	const char *key;
	struct mem *mem;
	struct err e;
	json_t *out;
};

static const char *on_param(struct reply *r, const char *name)
{
	return strcmp(name, "HTTP_IDEMPOTENCY_KEY") == 0 ? ((struct call *)r)->key : NULL;
}
static const struct reply_vt vt = { .param = on_param };

static void ask(struct call *k, const char *org, const char *method, const struct op *op, const char *key,
    const char *input)
{
	const struct principal who = { .org = org, .user = "ada" };
	*k = (struct call){ .reply.vt = &vt, .key = key, .mem = mem_new() };
	struct ctx c = { .mem = k->mem,
		.who = &who,
		.db = pool,
		.reply = &k->reply,
		.request_id = "req_1",
		.method = method };
	json_t *in = mem_json(k->mem, js_parse(input, strlen(input), &k->e));
	assert_non_null(in);
	k->out = once_call(&c, keys, op, in, &k->e);
}

static void ended(struct call *k)
{
	json_decref(k->out);
	mem_free(k->mem);
}

/* The usual one, and what came of it: status and body, or the code of the refusal. */
static void post(const char *org, const struct op *op, const char *key, const char *input, const char *want)
{
	struct call k;
	ask(&k, org, "POST", op, key, input);
	const char *got = k.out == NULL
	    ? mem_fmt(k.mem, "%s %s", k.e.reason == NULL ? err_name(k.e.code) : k.e.reason, k.e.param)
	    : mem_fmt(k.mem, "%d %s", k.reply.status, js_dump(k.mem, k.out));
	assert_string_equal(got, want);
	ended(&k);
}

/* ---- ops */

static json_t *simple(struct ctx *c, json_t *in, struct err *e)
{
	int n = ++runs;
	if (js_get(in, "fail") != NULL)
		return err_set(e, ERR_UNAVAILABLE, "Not now."), NULL;
	reply_status(c, 201);
	return js_pack("{s:i}", "n", n);
}
static const struct op simple_op = { .id = "simple", .status = 200, .flags = OP_ONCE, .run = simple };

/* Creates a row of its own in its transaction. */
static json_t *keep(struct ctx *c, json_t *in, struct err *e)
{
	int n = ++runs;
	auto_pg struct pg *db = pg_take(c->db, 60000, e);
	static const struct pg_stmt insert = { "t_insert", "INSERT INTO made (n) VALUES ($1::int)", 1 };
	if (db == NULL || once_begin(c, db, e) != 0)
		return NULL;
	auto_res struct pg_res *r = PG(db, &insert, e, pg_num(c->mem, n));
	if (r == NULL)
		return NULL;
	if (js_get(in, "fail") != NULL)
		return err_set(e, ERR_CONFLICT, "No."), NULL;
	bool whole = js_get(in, "whole") != NULL;
	json_t *answer = whole ? js_pack("{s:i}", "n", n) : js_pack("{s:s, s:i}", "id", "key_7", "made", n);
	if (once_commit(c, db, whole, answer, e) != 0)
		return NULL;
	if (js_get(in, "stream") != NULL)
		return REPLIED;
	if (js_get(in, "late") != NULL)
		return err_set(e, ERR_UNAVAILABLE, "The answer is lost."), NULL;
	return js_pack("{s:s, s:i}", "secret", "hush", "n", n);
}

static json_t *attach(struct ctx *c, json_t *was, struct err *e)
{
	static const struct pg_stmt count = { "t_count", "SELECT count(*) FROM made WHERE n = $1::int", 1 };
	auto_pg struct pg *db = pg_take(c->db, 60000, e);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &count, e, pg_num(c->mem, js_int(was, "made", 0)));
	if (r == NULL)
		return NULL;
	if (js_int(was, "made", 0) < 0)
		return err_set(e, ERR_CONFLICT, "It is at work."), NULL;
	if (pg_int(r, 0, 0) == 0)
		return err_set(e, ERR_NOT_FOUND, "It is gone."), NULL;
	return js_pack("{s:I}", "attached", (json_int_t)js_int(was, "made", 0));
}
static const struct op keep_op = {
	.id = "keep", .status = 201, .flags = OP_ONCE | OP_KEEPS, .run = keep, .again = attach
};
static const struct op secret_op = {
	.id = "secret", .status = 201, .flags = OP_ONCE | OP_KEEPS | OP_SECRET, .run = keep
};
static json_t *turn(struct ctx *c, json_t *in, struct err *e)
{
	(void)c;
	(void)in;
	(void)e;
	return js_pack("{s:s, s:s, s:i}", "id", "key_7", "secret", "hush", "n", ++runs);
}
static const struct op turn_op = { .id = "turn", .status = 200, .flags = OP_ONCE | OP_SECRET, .run = turn };
static const struct op plain_op = { .id = "plain", .status = 200, .run = simple };

static int fresh(void **s)
{
	(void)s;
	pgtest_sql(server, "TRUNCATE once, made");
	runs = 0;
	return 0;
}

static const struct pg_stmt made = { "t_made", "SELECT count(*) FROM made", 0 },
			    stored = { "t_stored", "SELECT count(*) FROM once", 0 },
			    hush = { "t_hush", "SELECT count(*) FROM once WHERE body LIKE '%hush%'", 0 };

static long long rows(const struct pg_stmt *q)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = PG0(db, q, &e);
	assert_non_null(r);
	return pg_int(r, 0, 0);
}

/* ---- tests */

static void a_repetition_is_answered_like_the_first(void **s)
{
	(void)s;
	post("acme", &simple_op, "k1", "{\"a\":1,\"b\":2}", "201 {\"n\":1}");
	post("acme", &simple_op, "k1", "{ \"b\": 2, \"a\": 1 }", "201 {\"n\":1}");
	post("acme", &simple_op, "k2", "{\"a\":1,\"b\":2}", "201 {\"n\":2}");
	post("acme", &keep_op, "k3", "{\"whole\":1}", "0 {\"secret\":\"hush\",\"n\":3}");
	post("acme", &keep_op, "k3", "{\"whole\":1}", "201 {\"n\":3}");
	post("acme", &keep_op, "k4", "{}", "0 {\"secret\":\"hush\",\"n\":4}");
	post("acme", &keep_op, "k4", "{}", "201 {\"secret\":\"hush\",\"n\":4}");
	assert_int_equal(runs, 4);
	assert_int_equal(rows(&made), 2);
}

static void a_key_of_another_request_is_refused(void **s)
{
	(void)s;
	post("acme", &simple_op, "k", "{\"a\":1}", "201 {\"n\":1}");
	post("acme", &simple_op, "k", "{\"a\":2}", "idempotency_key_reused Idempotency-Key");
	post("acme", &keep_op, "k", "{\"a\":1}", "idempotency_key_reused Idempotency-Key");
	assert_int_equal(runs, 1);
}

static void another_orgs_key_is_another_key(void **s)
{
	(void)s;
	post("acme", &simple_op, "k", "{\"a\":1}", "201 {\"n\":1}");
	post("other", &simple_op, "k", "{\"a\":2}", "201 {\"n\":2}");
}

/* Nothing was created, so the key is free. */
static void failures_are_not_stored(void **s)
{
	(void)s;
	post("acme", &simple_op, "k1", "{\"fail\":1}", "unavailable ");
	post("acme", &simple_op, "k1", "{}", "201 {\"n\":2}");
	post("acme", &keep_op, "k2", "{\"fail\":1}", "conflict ");
	post("acme", &keep_op, "k2", "{\"whole\":1}", "0 {\"secret\":\"hush\",\"n\":4}");
	assert_int_equal(rows(&made), 1);
}

static void an_answer_with_a_secret_is_named_and_not_replayed(void **s)
{
	(void)s;
	const struct op *const both[] = { &secret_op, &turn_op };
	for (int i = 0; i < 2; i++) {
		struct call k;
		for (int again = 0; again < 2; again++) {
			ask(&k, "acme", "POST", both[i], i == 0 ? "k0" : "k1", "{}");
			assert_true((k.out == NULL) == (again == 1));
			if (again == 0)
				ended(&k);
		}
		assert_int_equal(k.e.code, ERR_CONFLICT);
		assert_string_equal(k.e.reason, "answer_was_secret");
		assert_non_null(strstr(k.e.msg, "key_7"));
		ended(&k);
		assert_int_equal(runs, i + 1);
		assert_int_equal(rows(&hush), 0);
	}
}

static void a_repeated_stream_attaches_to_what_the_first_made(void **s)
{
	(void)s;
	struct call k;
	ask(&k, "acme", "POST", &keep_op, "k", "{\"stream\":1}");
	assert_true(k.out == REPLIED);
	mem_free(k.mem);
	post("acme", &keep_op, "k", "{\"stream\":1}", "0 {\"attached\":1}");
}

/* Whoever made it died before it could answer. */
static void an_answer_that_was_lost_is_made_from_what_is_there(void **s)
{
	(void)s;
	post("acme", &keep_op, "k", "{\"late\":1}", "unavailable ");
	post("acme", &keep_op, "k", "{\"late\":1}", "0 {\"attached\":1}");
	assert_int_equal(runs, 1);
	pgtest_sql(server, "TRUNCATE made"); /* it was not built after all */
	post("acme", &keep_op, "k", "{\"late\":1}", "unavailable ");
	post("acme", &keep_op, "k", "{\"late\":1}", "0 {\"attached\":2}");
	assert_int_equal(runs, 2);
}

static bool is_replayed(const struct op *op, const char *input, enum err_code want)
{
	struct call k;
	ask(&k, "acme", "POST", op, "k", input);
	assert_int_equal(k.e.code, want);
	bool is = k.reply.headers != NULL && strstr(k.reply.headers, "Idempotent-Replayed: true\r\n") != NULL;
	ended(&k);
	return is;
}

/* Neither a refusal of the repeat says that it is a replay, nor what is done now because nothing came of the first. */
static void only_an_answer_of_the_first_is_called_replayed(void **s)
{
	(void)s;
	assert_false(is_replayed(&keep_op, "{\"late\":1}", ERR_UNAVAILABLE));
	assert_true(is_replayed(&keep_op, "{\"late\":1}", ERR_NONE));
	pgtest_sql(server, "UPDATE once SET body = '{\"made\":-1}'");
	assert_false(is_replayed(&keep_op, "{\"late\":1}", ERR_CONFLICT));
	pgtest_sql(server, "UPDATE once SET body = '{\"made\":99}'"); /* which is not there: it runs again */
	assert_false(is_replayed(&keep_op, "{\"late\":1}", ERR_UNAVAILABLE));
	assert_false(is_replayed(&simple_op, "{}", ERR_CONFLICT)); /* another request's key */
}

static void only_a_post_of_an_op_that_creates_has_keys(void **s)
{
	(void)s;
	post("acme", &plain_op, "not a key", "{}", "201 {\"n\":1}");
	post("acme", &simple_op, NULL, "{}", "201 {\"n\":2}");
	post("acme", &simple_op, NULL, "{}", "201 {\"n\":3}");
	struct call k;
	ask(&k, "acme", "PUT", &simple_op, "k", "{}");
	assert_non_null(k.out);
	ended(&k);
	assert_int_equal(rows(&stored), 0);
}

static void a_key_is_bounded(void **s)
{
	(void)s;
	char key[ONCE_KEY_BYTES + 2];
	memset(key, 'k', sizeof key);
	key[ONCE_KEY_BYTES + 1] = 0;
	static const char *const bad[] = { "", "a b", "a, b", "\xc3\xa9", "a\tb", "\x7f" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		post("acme", &simple_op, bad[i], "{}", "bad_request Idempotency-Key");
	post("acme", &simple_op, key, "{}", "bad_request Idempotency-Key");
	key[ONCE_KEY_BYTES] = 0;
	post("acme", &simple_op, key, "{}", "201 {\"n\":1}");
	post("acme", &simple_op, "';DROP--!~", "{}", "201 {\"n\":2}");
}

static void a_row_counts_for_a_day_and_two_old_ones_go_with_every_new_one(void **s)
{
	(void)s;
	for (int i = 0; i < 6; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "k%d", i);
		struct call k;
		ask(&k, "acme", "POST", &simple_op, key, "{}");
		ended(&k);
	}
	pgtest_sql(server, "UPDATE once SET created_at = now() - interval '23 hours 59 minutes'");
	post("acme", &simple_op, "k0", "{}", "201 {\"n\":1}");
	pgtest_sql(server, "UPDATE once SET created_at = now() - interval '24 hours 1 second'");
	post("acme", &simple_op, "k0", "{\"other\":1}", "201 {\"n\":7}");
	assert_int_equal(rows(&stored), 4);
	post("acme", &simple_op, "k9", "{}", "201 {\"n\":8}");
	assert_int_equal(rows(&stored), 3);
	post("acme", &simple_op, "k8", "{}", "201 {\"n\":9}");
	assert_int_equal(rows(&stored), 3);
}

/* ---- the fingerprint's key (SEC-6) */

#define LINE(c) c c c c c c c c c c c c c c c c "\n"
#define FIRST   LINE("1111")
#define SECOND  LINE("2222")

static void key_file(const char *text)
{
	struct err e = { 0 };
	assert_int_equal(file_write(file, text, strlen(text), 0600, &e), 0);
}

/* Back to the one key that all tests begin with. */
static int first_key(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct seal_info info[2 * SEAL_KEYS_MAX];
	key_file(FIRST);
	assert_int_equal(seal_reload(keys, &e), 0);
	int n = seal_list(keys, info);
	for (int i = 0; i < n; i++)
		seal_forget(keys, info[i].id);
	return 0;
}

static const struct pg_stmt q_hash = { "t_hash", "SELECT hash FROM once", 0 };

static void what_is_stored_of_an_input_cannot_be_guessed_at_without_the_key(void **s)
{
	(void)s;
	static const char text[] = "[\"simple\",{\"token\":\"1234\"}]"; /* as it is understood */
	char plain[SHA256_HEX], first[SEAL_MAC];
	struct err e = { 0 };
	post("acme", &simple_op, "k", "{\"token\":\"1234\"}", "201 {\"n\":1}");
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = PG0(db, &q_hash, &e);
	(void)snprintf(first, sizeof first, "%s", pg_str(r, 0, 0));
	sha256_hex(text, strlen(text), plain);
	assert_null(strstr(first, "1234"));
	for (size_t i = 0; i + 8 <= strlen(plain); i++) /* no part of the plain hash either */
		assert_null(memmem(first, strlen(first), plain + i, 8));
	/* The same request under another key has nothing in common with it. */
	key_file(SECOND);
	assert_int_equal(seal_reload(keys, &e), 0);
	pgtest_sql(server, "TRUNCATE once");
	post("acme", &simple_op, "k", "{\"token\":\"1234\"}", "201 {\"n\":2}");
	auto_res struct pg_res *other = PG0(db, &q_hash, &e);
	assert_int_not_equal(strncmp(pg_str(other, 0, 0), first, SEAL_ID - 1), 0);
	assert_string_not_equal(pg_str(other, 0, 0) + SEAL_ID - 1, first + SEAL_ID - 1);
}

/* Also of what is only half answered: it is completed, and given back, under the key that its row names. */
static void a_repeat_is_one_whatever_key_has_become_the_newest(void **s)
{
	(void)s;
	struct err e = { 0 };
	post("acme", &simple_op, "k1", "{\"a\":1}", "201 {\"n\":1}");
	post("acme", &keep_op, "k2", "{\"late\":1}", "unavailable ");
	key_file(FIRST SECOND);
	assert_int_equal(seal_reload(keys, &e), 0);
	post("acme", &simple_op, "k1", "{\"a\":1}", "201 {\"n\":1}");
	post("acme", &simple_op, "k1", "{\"a\":2}", "idempotency_key_reused Idempotency-Key");
	post("acme", &keep_op, "k2", "{\"late\":1}", "0 {\"attached\":2}");
	pgtest_sql(server, "TRUNCATE made");
	post("acme", &keep_op, "k2", "{\"late\":1}",
	    "unavailable "); /* the row was dropped, and it ran again */
	assert_int_equal(runs, 3);
	assert_int_equal(rows(&made), 1);
	/* Out of the file, but not yet given up. */
	key_file(SECOND);
	assert_int_equal(seal_reload(keys, &e), 0);
	post("acme", &simple_op, "k1", "{\"a\":1}", "201 {\"n\":1}");
}

static void with_its_key_gone_a_repeat_is_not_called_another_request(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct seal_info info[2 * SEAL_KEYS_MAX];
	post("acme", &simple_op, "k", "{}", "201 {\"n\":1}");
	(void)seal_list(keys, info);
	key_file(SECOND);
	assert_int_equal(seal_reload(keys, &e), 0);
	seal_forget(keys, info[0].id);
	post("acme", &simple_op, "k", "{}", "outcome_unknown Idempotency-Key");
	assert_int_equal(runs, 1);
	post("acme", &simple_op, "k2", "{}", "201 {\"n\":2}");
	post("acme", &simple_op, "k2", "{}", "201 {\"n\":2}");
}

/* ---- twins */

static pthread_barrier_t all;
static json_t *slow(struct ctx *c, json_t *in, struct err *e)
{
	/* All others have been refused before this one goes on. */
	(void)pthread_barrier_wait(&all);
	return simple(c, in, e);
}
static const struct op slow_op = { .id = "slow", .status = 200, .flags = OP_ONCE, .run = slow };

static atomic_int refused;
static void *slow_twin(void *arg)
{
	(void)arg;
	struct call k;
	ask(&k, "acme", "POST", &slow_op, "k", "{}");
	if (k.out == NULL) {
		if (err_is(&k.e, "idempotency_key_in_use") && k.e.retry_s > 0)
			refused++;
		(void)pthread_barrier_wait(&all);
	}
	ended(&k);
	return NULL;
}

static void a_twin_is_refused_while_the_first_is_at_work(void **s)
{
	(void)s;
	pthread_t t[TWINS];
	refused = 0;
	assert_int_equal(pthread_barrier_init(&all, NULL, TWINS), 0);
	for (int i = 0; i < TWINS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, slow_twin, NULL), 0);
	for (int i = 0; i < TWINS; i++)
		(void)pthread_join(t[i], NULL);
	(void)pthread_barrier_destroy(&all);
	assert_int_equal(runs, 1);
	assert_int_equal(refused, TWINS - 1);
	post("acme", &slow_op, "k", "{}", "201 {\"n\":1}");
}

/* Without any barrier: whatever the timing, one is made, and whoever is answered is answered the same. */
static atomic_int answers;
static void *keep_twin(void *arg)
{
	struct call k;
	ask(&k, "acme", "POST", &keep_op, arg, "{\"whole\":1}");
	if (k.out != NULL)
		answers++;
	else
		assert_string_equal(k.e.reason, "idempotency_key_in_use");
	ended(&k);
	return NULL;
}

static void twins_make_one_whatever_the_timing(void **s)
{
	(void)s;
	for (int round = 0; round < 20; round++) {
		char key[16];
		pthread_t t[TWINS];
		answers = 0;
		(void)snprintf(key, sizeof key, "r%d", round);
		for (int i = 0; i < TWINS; i++)
			assert_int_equal(pthread_create(&t[i], NULL, keep_twin, key), 0);
		for (int i = 0; i < TWINS; i++)
			(void)pthread_join(t[i], NULL);
		assert_true(answers > 0);
		assert_int_equal(rows(&made), round + 1);
	}
}

/* REL-2 */
static void postgresql_away_runs_nothing(void **s)
{
	(void)s;
	pgtest_down(server);
	struct call k;
	ask(&k, "acme", "POST", &simple_op, "k", "{}");
	assert_null(k.out);
	assert_int_equal(k.e.code, ERR_UNAVAILABLE);
	ended(&k);
	assert_int_equal(runs, 0);
	pgtest_up(server);
	post("acme", &simple_op, "k", "{}", "201 {\"n\":1}");
}

static int setup(void **s)
{
	(void)s;
	log_setup("test", LOG_ERROR_, LOG_LOGFMT); /* PostgreSQL goes away on purpose */
	struct err e = { 0 };
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0)
		return -1;
	(void)snprintf(file, sizeof file, "%s/key", dir);
	key_file(FIRST);
	keys = seal_load(file, &e);
	assert_non_null(keys);
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), TWINS * 2, 60000);
	pgtest_sql(server, "INSERT INTO orgs (slug) VALUES ('acme'), ('other'); CREATE TABLE made (n int)");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	seal_free(keys);
	struct err e = { 0 };
	return file_rmtree(dir, &e);
}

#define FRESH(t) cmocka_unit_test_setup(t, fresh)
#define T(t)     cmocka_unit_test_setup_teardown(t, fresh, first_key)
int main(void)
{
	const struct CMUnitTest tests[] = {
		FRESH(a_repetition_is_answered_like_the_first),
		FRESH(a_key_of_another_request_is_refused),
		FRESH(another_orgs_key_is_another_key),
		FRESH(failures_are_not_stored),
		FRESH(an_answer_with_a_secret_is_named_and_not_replayed),
		FRESH(a_repeated_stream_attaches_to_what_the_first_made),
		FRESH(an_answer_that_was_lost_is_made_from_what_is_there),
		FRESH(only_an_answer_of_the_first_is_called_replayed),
		FRESH(only_a_post_of_an_op_that_creates_has_keys),
		FRESH(a_key_is_bounded),
		FRESH(a_row_counts_for_a_day_and_two_old_ones_go_with_every_new_one),
		T(what_is_stored_of_an_input_cannot_be_guessed_at_without_the_key),
		T(a_repeat_is_one_whatever_key_has_become_the_newest),
		T(with_its_key_gone_a_repeat_is_not_called_another_request),
		FRESH(a_twin_is_refused_while_the_first_is_at_work),
		FRESH(twins_make_one_whatever_the_timing),
		FRESH(postgresql_away_runs_nothing),
	};
	return cmocka_run_group_tests_name("once", tests, setup, teardown);
}
