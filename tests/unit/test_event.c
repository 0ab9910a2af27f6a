#include "../t.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "base/js.h"
#include "base/limits.h"
#include "job/queue.h"
#include "session/event.h"

enum { WRITERS = 16, EACH = 25, BATCH = 3, LEASE_S = 60 };

static struct pgtest *server;
static struct pg_pool *pool;

static const struct pg_stmt q_lapse = { "lapse",
	"UPDATE jobs SET lease_until = now() - interval '1 second' WHERE id = $1", 1 };
static const struct pg_stmt q_lock = { "lock", "SELECT FROM sessions WHERE id = $1 FOR UPDATE", 1 };
static const struct pg_stmt q_waiting = { "waiting",
	"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 0 };

static struct pg *take(void)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	return db;
}

static void opened(struct pg *db, char id[ID_MAX])
{
	struct err e = { 0 };
	assert_int_equal(session_open(db, "admin", "coding", "a title", "ann", NULL, id, &e), 0);
}

static json_t *lines_of(struct pg *db, const char *id)
{
	struct err e = { 0 };
	json_t *lines = session_read(db, "admin", id, 0, 100000, &e);
	assert_non_null(lines);
	return lines;
}

/* STR-2: seq from 1, no gap, no repeat. */
static void counts_from_one(const json_t *lines)
{
	size_t i;
	json_t *line;
	json_array_foreach(lines, i, line) {
		assert_int_equal(js_int(line, "seq", 0), i + 1);
	}
}

static struct session_row row_of(struct pg *db, struct mem *m, const char *id)
{
	struct err e = { 0 };
	struct session_row row;
	assert_int_equal(session_get(db, m, "admin", id, &row, &e), 0);
	return row;
}

static int message(struct pg *db, const char *id, const char *text, const struct fence *f, struct err *e)
{
	auto_json json_t *v = js_pack("{s:s}", "message", text);
	return session_append(db, "admin", id, "message", v, f, e);
}

/* SES-5, STR-2 */
static void events_keep_their_kind_and_the_end_is_a_result(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	char id[ID_MAX];
	opened(db, id);
	auto_json json_t *start = js_pack("{s:s}", "phase", "start");
	auto_json json_t *end = js_pack("{s:b, s:b}", "ok", 1, "changed", 0);
	auto_json json_t *empty = js_pack("{}");
	assert_int_equal(session_append(db, "admin", id, "status", start, NULL, &e), 0);
	assert_int_equal(session_step(db, "admin", id, "leased", "A sandbox.", "ok", NULL, &e), 0);
	assert_int_equal(session_log(db, "admin", id, "hello\n", 6, NULL, &e), 0);
	assert_int_equal(session_append(db, "admin", id, "tool-call", empty, NULL, &e), 0);
	assert_int_equal(session_close(db, "admin", id, "done", end, NULL, &e), 0);
	auto_json json_t *lines = lines_of(db, id);
	static const char *const types[] = { "status", "step", "log", "tool-call", "result" };
	assert_int_equal(json_array_size(lines), 5);
	counts_from_one(lines);
	for (size_t i = 0; i < 5; i++) {
		assert_string_equal(js_str(json_array_get(lines, i), "type"), types[i]);
		assert_int_equal(
		    strlen(js_str(json_array_get(lines, i), "time")), strlen("2026-01-02T03:04:05.678Z"));
	}
	assert_string_equal(js_str(json_array_get(lines, 1), "step"), "leased");
	assert_string_equal(js_str(json_array_get(lines, 2), "message"), "hello");
	assert_true(js_bool(json_array_get(lines, 4), "ok", false));
	struct session_row row = row_of(db, m, id);
	assert_string_equal(row.state, "done");
	assert_int_equal(row.last_seq, 5);
	assert_int_not_equal(strlen(row.closed_at), 0);
	assert_string_equal(row.title, "a title");
}

/* STR-3: who has only the stream knows where to come back to. */
static void an_event_may_name_its_own_session_first_and_no_other(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	char id[ID_MAX], other[ID_MAX];
	opened(db, id);
	opened(db, other);
	auto_json json_t *own = js_pack("{s:s, s:s}", "session", id, "phase", "start");
	struct err e = { 0 };
	assert_int_equal(session_append(db, "admin", id, "status", own, NULL, &e), 0);
	json_t *const bad[] = { js_pack("{s:s}", "session", other), js_pack("{s:s}", "session", ""),
		js_pack("{s:i}", "session", 1), js_pack("{s:s, s:s}", "phase", "start", "session", id) };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_json json_t *v = bad[i];
		e = (struct err){ 0 };
		assert_int_equal(session_append(db, "admin", id, "status", v, NULL, &e), -1);
		assert_string_equal(e.param, "session");
	}
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), 1);
	assert_string_equal(js_str(json_array_get(lines, 0), "session"), id);
}

/* SES-1 */
static void a_closed_session_takes_nothing_more(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	struct err e[3] = { 0 };
	char id[ID_MAX];
	opened(db, id);
	auto_json json_t *end = js_pack("{s:s}", "message", "It was stopped.");
	assert_int_equal(session_close(db, "admin", id, "stopped", end, NULL, &e[0]), 0);
	assert_int_equal(session_close(db, "admin", id, "done", end, NULL, &e[1]), -1);
	assert_int_equal(message(db, id, "late", NULL, &e[2]), -1);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(e[i].code, ERR_CONFLICT);
		assert_string_equal(e[i].reason, "closed");
	}
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), 1);
	assert_string_equal(js_str(json_array_get(lines, 0), "type"), "error");
	assert_string_equal(js_str(json_array_get(lines, 0), "code"), "stopped");
}

static void another_orgs_session_is_not_found(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	auto_json json_t *v = js_pack("{s:s}", "message", "x");
	struct err e[5] = { 0 };
	struct session_row row;
	char id[ID_MAX], other[ID_MAX];
	opened(db, id);
	assert_int_equal(session_get(db, m, "other", id, &row, &e[0]), -1);
	assert_int_equal(session_append(db, "other", id, "log", v, NULL, &e[1]), -1);
	assert_int_equal(session_close(db, "other", id, "done", v, NULL, &e[2]), -1);
	assert_int_equal(session_open(db, "other", "coding", "t", "u", id, other, &e[3]), -1);
	assert_int_equal(session_get(db, m, "admin", "ses_nosuch", &row, &e[4]), -1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(e[i].code, ERR_NOT_FOUND);
	assert_string_equal(e[0].msg, e[4].msg);
	auto_json json_t *none = session_list(db, "other", "", 10, NULL, NULL, &e[0]);
	assert_int_equal(json_array_size(none), 0);
	assert_int_equal(row_of(db, m, id).last_seq, 0);
}

static void a_child_joins_its_parents_tree_and_lists_are_newest_first(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	struct err e = { 0 };
	char id[3][ID_MAX];
	opened(db, id[0]);
	for (int i = 1; i < 3; i++)
		assert_int_equal(session_open(db, "admin", "agent", "", "ann", id[i - 1], id[i], &e), 0);
	auto_json json_t *tree = session_list(db, "admin", "", 10, id[0], "open", &e);
	assert_int_equal(json_array_size(tree), 3);
	/* Ids of one millisecond are in any order. */
	for (size_t i = 0; i + 1 < 3; i++)
		assert_true(strcmp(js_str(json_array_get(tree, i), "id"),
				js_str(json_array_get(tree, i + 1), "id")) > 0);
	auto_json json_t *rest = session_list(
	    db, "admin", js_str(json_array_get(tree, 0), "id"), 1, id[0], NULL, &e);
	assert_int_equal(json_array_size(rest), 1);
	assert_string_equal(js_str(json_array_get(rest, 0), "id"), js_str(json_array_get(tree, 1), "id"));
	auto_json json_t *none = session_list(db, "admin", "", 10, id[0], "done", &e);
	assert_int_equal(json_array_size(none), 0);
}

/* RED-1, RED-2: what is stored has been redacted. */
static void secrets_do_not_reach_the_log(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	struct err e = { 0 };
	char id[ID_MAX];
	opened(db, id);
	auto_json json_t *v = js_pack("{s:{s:s}, s:s}", "input", "api_key", "hunter2", "message",
	    "cloning https://ann:hunter2@example.org/x");
	assert_int_equal(session_append(db, "admin", id, "tool-call", v, NULL, &e), 0);
	const char text[] = "one\nhttps://ann:hunter2@example.org\n";
	assert_int_equal(session_log(db, "admin", id, text, strlen(text), NULL, &e), 0);
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), 2);
	auto_free char *all = json_dumps(lines, 0);
	assert_null(strstr(all, "hunter2"));
	assert_non_null(strstr(all, "example.org"));
}

static void a_payload_is_refused_whole_when_it_is_too_large_or_not_ours(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_free char *big = xcalloc(1, LIMIT_EVENT_BYTES + 1);
	auto_mem struct mem *m = mem_new();
	struct err e[4] = { 0 };
	char id[ID_MAX];
	opened(db, id);
	memset(big, 'x', LIMIT_EVENT_BYTES);
	assert_int_equal(message(db, id, big, NULL, &e[0]), -1);
	assert_int_equal(e[0].code, ERR_TOO_LARGE);
	auto_json json_t *seq = js_pack("{s:i}", "seq", 7);
	assert_int_equal(session_append(db, "admin", id, "log", seq, NULL, &e[1]), -1);
	assert_string_equal(e[1].param, "seq");
	auto_json json_t *list = js_pack("[]");
	assert_int_equal(session_append(db, "admin", id, "log", list, NULL, &e[2]), -1);
	assert_int_equal(row_of(db, m, id).last_seq, 0);
	/* The largest that fits: {"message":"…"} */
	big[LIMIT_EVENT_BYTES - strlen("{\"message\":\"\"}")] = 0;
	assert_int_equal(message(db, id, big, NULL, &e[3]), 0);
	auto_json json_t *lines = lines_of(db, id);
	assert_string_equal(js_str(json_array_get(lines, 0), "message"), big);
}

static void output_of_any_bytes_becomes_whole_lines_of_text(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	struct err e = { 0 };
	char id[ID_MAX];
	opened(db, id);
	auto_buf struct buf text = BUF(1 << 20);
	for (int i = 0; i < 3000; i++)
		(void)buf_fmt(&text, "line %d\n", i);
	assert_int_equal(session_log(db, "admin", id, text.p, text.n, NULL, &e), 0);
	auto_json json_t *lines = lines_of(db, id);
	auto_buf struct buf back = BUF(1 << 20);
	size_t i;
	json_t *line;
	json_array_foreach(lines, i, line) {
		(void)buf_fmt(&back, "%s\n", js_str(line, "message"));
	}
	assert_true(json_array_size(lines) > 1);
	assert_string_equal(buf_c(&back), buf_c(&text));

	char bytes[40000];
	opened(db, id);
	memset(bytes, 0xFF, sizeof bytes); /* no line end, no character */
	memset(bytes, 0, 10);
	assert_int_equal(session_log(db, "admin", id, bytes, sizeof bytes, NULL, &e), 0);
	auto_json json_t *odd = lines_of(db, id);
	assert_int_equal(
	    strncmp(js_str(json_array_get(odd, 0), "message"), "\xEF\xBF\xBD\xEF\xBF\xBD", 6), 0);
	counts_from_one(odd);
}

struct writer {
	pthread_t thread;
	const char *session;
	int number, each, wrote, refused;
	struct err e;
};

static int write_one(struct pg *db, struct writer *w, int i)
{
	if (i % 5 == 0) {
		auto_json json_t *batch = js_pack(
		    "[{s:i}, {s:i}, {s:i}]", "w", w->number, "w", w->number, "w", w->number);
		return session_append_all(db, "admin", w->session, "log", batch, NULL, &w->e) == 0 ? BATCH
												   : -1;
	}
	auto_json json_t *one = js_pack("{s:i, s:i}", "w", w->number, "i", i);
	return session_append(db, "admin", w->session, "log", one, NULL, &w->e) == 0 ? 1 : -1;
}

static void *write_events(void *arg)
{
	struct writer *w = arg;
	struct pg *db = pg_take(pool, 60000, &w->e);
	for (int i = 0; db != NULL && i < w->each; i++) {
		int n = write_one(db, w, i);
		if (n < 0) {
			w->refused = 1;
			break;
		}
		w->wrote += n;
	}
	if (db != NULL)
		pg_put(db);
	return NULL;
}

static void start_writers(struct writer w[WRITERS], const char *session, int each)
{
	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .session = session, .number = i, .each = each };
		assert_int_equal(pthread_create(&w[i].thread, NULL, write_events, &w[i]), 0);
	}
}

static int join_writers(struct writer w[WRITERS])
{
	int wrote = 0;
	for (int i = 0; i < WRITERS; i++) {
		(void)pthread_join(w[i].thread, NULL);
		wrote += w[i].wrote;
	}
	return wrote;
}

/* STR-2, SES-1 */
static void sixteen_writers_leave_no_gap_and_no_repeat(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	struct writer w[WRITERS];
	char id[ID_MAX];
	opened(db, id);
	start_writers(w, id, EACH);
	int wrote = join_writers(w);
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(w[i].e.code, ERR_NONE);
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), wrote);
	counts_from_one(lines);
}

static void a_close_among_appends_is_the_last_event(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	auto_json json_t *end = js_pack("{s:b}", "ok", 1);
	struct writer w[WRITERS];
	struct err e = { 0 };
	char id[ID_MAX];
	opened(db, id);
	start_writers(w, id, INT_MAX);
	while (row_of(db, m, id).last_seq < WRITERS) /* they are under way */
		continue;
	assert_int_equal(session_close(db, "admin", id, "done", end, NULL, &e), 0);
	int wrote = join_writers(w);
	for (int i = 0; i < WRITERS; i++) {
		assert_true(w[i].refused);
		assert_string_equal(w[i].e.reason, "closed");
	}
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), wrote + 1);
	counts_from_one(lines);
	assert_string_equal(js_str(json_array_get(lines, (size_t)wrote), "type"), "result");
}

/* ---- fences */

static struct job claimed(struct pg *db, struct mem *m, const char *subject)
{
	struct err e = { 0 };
	struct job j;
	assert_int_equal(job_put(db, "admin", subject, subject, &e), 0);
	assert_int_equal(job_claim(db, m, "w", subject, LEASE_S, &j, &e), 1);
	return j;
}

static struct job taken_over(struct pg *db, struct mem *m, const struct job *old)
{
	struct err e = { 0 };
	struct job j;
	auto_res struct pg_res *r = PG(db, &q_lapse, &e, old->id);
	assert_non_null(r);
	assert_int_equal(job_claim(db, m, "w2", old->kind, LEASE_S, &j, &e), 1);
	return j;
}

static struct fence fence_of(const struct job *j)
{
	return (struct fence){ j->id, j->fence };
}

static void a_stale_fence_writes_nothing(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_mem struct mem *m = mem_new();
	auto_json json_t *end = js_pack("{}");
	struct err e[5] = { 0 };
	char id[ID_MAX];
	opened(db, id);
	struct job dead = claimed(db, m, "stale");
	struct fence old = fence_of(&dead);
	assert_int_equal(message(db, id, "first", &old, &e[0]), 0);
	struct job j = taken_over(db, m, &dead);
	struct fence now = fence_of(&j);
	assert_int_equal(message(db, id, "late", &old, &e[1]), -1);
	assert_int_equal(session_close(db, "admin", id, "done", end, &old, &e[2]), -1);
	assert_int_equal(message(db, id, "second", &now, &e[3]), 0);
	assert_int_equal(job_finish(db, &j, true, &e[3]), 0);
	assert_int_equal(message(db, id, "after the job", &now, &e[4]), -1);
	assert_string_equal(e[1].reason, "fenced");
	assert_string_equal(e[2].reason, "fenced");
	assert_string_equal(e[4].reason, "fenced");
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), 2);
	assert_string_equal(row_of(db, m, id).state, "open");
}

struct late {
	const char *session;
	struct fence fence;
	struct err e;
	int rc;
};

static void *append_late(void *arg)
{
	struct late *l = arg;
	struct pg *db = pg_take(pool, 60000, &l->e);
	l->rc = db == NULL ? -1 : message(db, l->session, "from the old worker", &l->fence, &l->e);
	if (db != NULL)
		pg_put(db);
	return NULL;
}

/*
 * The old worker's append has passed its fence check and waits for the session; its job cannot be taken over until that is
 * settled, so nothing of the old worker ever stands behind an event of the new one.
 */
static void a_job_is_not_taken_over_under_an_append_that_holds_its_fence(void **s)
{
	(void)s;
	auto_pg struct pg *db = take();
	auto_pg struct pg *other = take();
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	char id[ID_MAX];
	opened(db, id);
	struct job dead = claimed(db, m, "held"), j;
	auto_res struct pg_res *lapse = PG(db, &q_lapse, &e, dead.id);
	assert_non_null(lapse);
	assert_int_equal(pg_begin(db, &e), 0);
	auto_res struct pg_res *locked = PG(db, &q_lock, &e, id);
	assert_non_null(locked);
	struct late late = { .session = id, .fence = fence_of(&dead) };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, append_late, &late), 0);
	for (bool waits = false; !waits;) {
		auto_res struct pg_res *r = PG0(other, &q_waiting, &e);
		assert_non_null(r);
		waits = pg_int(r, 0, 0) > 0;
	}
	assert_int_equal(job_claim(other, m, "w2", "held", LEASE_S, &j, &e), 0);
	assert_int_equal(pg_commit(db, &e), 0);
	(void)pthread_join(t, NULL);
	assert_int_equal(late.rc, 0);
	assert_int_equal(job_claim(other, m, "w2", "held", LEASE_S, &j, &e), 1);
	struct fence now = fence_of(&j);
	assert_int_equal(message(other, id, "from the new worker", &now, &e), 0);
	auto_json json_t *lines = lines_of(db, id);
	assert_int_equal(json_array_size(lines), 2);
}

static int setup(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), WRITERS + 2, 60000);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_keep_their_kind_and_the_end_is_a_result),
		cmocka_unit_test(an_event_may_name_its_own_session_first_and_no_other),
		cmocka_unit_test(a_closed_session_takes_nothing_more),
		cmocka_unit_test(another_orgs_session_is_not_found),
		cmocka_unit_test(a_child_joins_its_parents_tree_and_lists_are_newest_first),
		cmocka_unit_test(secrets_do_not_reach_the_log),
		cmocka_unit_test(a_payload_is_refused_whole_when_it_is_too_large_or_not_ours),
		cmocka_unit_test(output_of_any_bytes_becomes_whole_lines_of_text),
		cmocka_unit_test(sixteen_writers_leave_no_gap_and_no_repeat),
		cmocka_unit_test(a_close_among_appends_is_the_last_event),
		cmocka_unit_test(a_stale_fence_writes_nothing),
		cmocka_unit_test(a_job_is_not_taken_over_under_an_append_that_holds_its_fence),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
