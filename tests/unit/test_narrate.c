#include "../t.h"

#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "session/narrate.h"

/* Fakes: a clock that the test moves, and a log that remembers. */
static int64_t now_ms;
static struct buf said;
static int appends, refuse, away;
static char exit_step[200];

int64_t clock_ms(void)
{
	return now_ms;
}
int64_t clock_wall_ms(void)
{
	return now_ms;
}
void clock_rfc3339(int64_t wall_ms, char out[CLOCK_TEXT])
{
	(void)wall_ms;
	strcpy(out, "now");
}
struct pg *pg_take(struct pg_pool *p, int wait_ms, struct err *e)
{
	(void)p;
	(void)e;
	assert_in_range(wait_ms, 1, 5000);
	return (struct pg *)&said;
}
void pg_put(struct pg *db)
{
	(void)db;
}
int session_log(struct pg *db, const char *org, const char *id, const char *p, size_t n,
    const struct fence *f, struct err *e)
{
	(void)db, (void)f;
	assert_string_equal(org, "acme");
	assert_string_equal(id, "ses_1");
	if (away > 0 && away-- > 0)
		return err_set(e, ERR_UNAVAILABLE, "away");
	appends++;
	if (refuse)
		return err_set(e, ERR_CONFLICT, "closed");
	assert_true(n <= 8 * 1024);
	return buf_add(&said, p, n);
}
int session_append(struct pg *db, const char *org, const char *id, const char *kind, const json_t *payload,
    const struct fence *f, struct err *e)
{
	(void)db, (void)org, (void)id, (void)f;
	if (away > 0 && away-- > 0)
		return err_set(e, ERR_UNAVAILABLE, "away");
	assert_string_equal(kind, "tool-call");
	assert_string_equal(js_str(payload, "step"), "exit");
	assert_null(json_object_get(payload, "status"));
	(void)snprintf(exit_step, sizeof exit_step, "%s", js_str(payload, "message"));
	appends++;
	return 0;
}

static int setup(void **s)
{
	(void)s;
	now_ms = 1000000;
	said = BUF(1 << 20);
	appends = refuse = 0;
	exit_step[0] = 0;
	return 0;
}
static int teardown(void **s)
{
	(void)s;
	buf_free(&said);
	return 0;
}
static struct narrator *start(const struct secret *hide)
{
	return narrate_new(&(struct narrate_to){ .org = "acme", .session = "ses_1", .hide = hide });
}
static void out(struct narrator *n, const char *s)
{
	narrate_output(n, s, strlen(s));
}

/* SBX-43 */
static void appends_at_most_once_a_second_and_says_the_last_words(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	for (int i = 0; i < 100; i++) {
		out(n, "line\n");
		now_ms += 10;
	}
	assert_in_range(appends, 1, 2);
	out(n, "last");
	narrate_exit(n, "exit 0");
	assert_string_equal(exit_step, "exit 0");
	assert_int_equal(said.n, 504);
	assert_string_equal(said.p + 500, "last");
}

static void keeps_only_the_tail_of_much_output_and_says_what_is_missing(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	out(n, "first\n");
	for (int i = 0; i < 10000; i++)
		out(n, "a line of some twenty bytes\n");
	out(n, "the end\n");
	narrate_exit(n, "exit 0");
	assert_int_equal(appends, 3);
	assert_true(said.n < 8 * 1024 + 6);
	assert_non_null(strstr(said.p, " bytes left out]\n"));
	assert_string_equal(said.p + said.n - 8, "the end\n");
}

static void a_silent_command_has_its_unfinished_line_said_after_a_second(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	out(n, "Downloading ...");
	narrate_tick(n);
	assert_string_equal(said.p, "Downloading ");
	now_ms += 1100;
	narrate_tick(n);
	assert_string_equal(said.p, "Downloading ...");
	now_ms += 1100;
	narrate_tick(n);
	assert_int_equal(appends, 2);
}

/* COD-8: whatever pieces and pauses a secret is printed in. */
static void a_secret_in_pieces_is_never_said(void **s)
{
	(void)s;
	auto_secret struct secret *k = secret_new("hunter2-token", 13);
	auto_narrate struct narrator *n = start(k);
	for (const char *c = "it is hunter2-token! aHVudGVyMi10b2tlbg== done"; *c != 0; c++) {
		narrate_output(n, c, 1);
		now_ms += 1500;
		narrate_tick(n);
	}
	narrate_exit(n, "exit 0");
	assert_non_null(strstr(said.p, "it is [redacted]!"));
	assert_non_null(strstr(said.p, "done"));
	assert_null(strstr(said.p, "hunter"));
	assert_null(strstr(said.p, "aHVu"));
	auto_buf struct buf tail = BUF(8192);
	narrate_tail(n, &tail);
	assert_null(strstr(tail.p, "hunter"));
	assert_null(strstr(tail.p, "aHVu"));
}

/* COD-8: nor the half of one that remains after the rest was pushed out. */
static void a_secret_cut_at_the_windows_edge_is_not_half_said(void **s)
{
	(void)s;
	auto_secret struct secret *k = secret_new("abcdefghijklmnop", 16);
	for (size_t shift = 0; shift < 40; shift++) {
		auto_narrate struct narrator *n = start(k);
		out(n, "start\n");
		auto_buf struct buf b = BUF(1 << 20);
		(void)buf_str(&b, "x abcdefghijklmnop");
		for (size_t i = 0; i < 8 * 1024 + 128 + 48 - shift; i++)
			(void)buf_chr(&b, '.');
		narrate_output(n, b.p, b.n);
		narrate_exit(n, "exit 0");
		assert_null(strstr(said.p, "nop"));
		buf_reset(&said);
	}
}

static void after_a_failed_append_it_narrates_no_more(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	refuse = 1;
	out(n, "one\n");
	now_ms += 5000;
	out(n, "two\n");
	narrate_tick(n);
	narrate_exit(n, "exit 1");
	assert_int_equal(appends, 1);
	assert_string_equal(exit_step, "");
	auto_buf struct buf tail = BUF(8192);
	narrate_tail(n, &tail);
	assert_string_equal(tail.p, "one\ntwo\n");
}

/* REL-2 */
static void what_was_said_while_postgresql_was_away_is_said_later(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	away = 2;
	out(n, "one\n");
	assert_string_equal(buf_c(&said), "");
	out(n, "two\n"); /* not more often than once a second, also then */
	assert_int_equal(away, 1);
	now_ms += 5000;
	narrate_tick(n);
	now_ms += 5000;
	narrate_tick(n);
	assert_string_equal(said.p, "one\ntwo\n");
	out(n, "three\n");
	away = 1;
	assert_int_equal(narrate_exit(n, "exit 0"), -1);
	assert_string_equal(exit_step, "");
	assert_int_equal(narrate_exit(n, "exit 0"), 0);
	assert_string_equal(said.p, "one\ntwo\nthree\n");
	assert_string_equal(exit_step, "exit 0");
}

static void reads_the_lines_of_a_box(void **s)
{
	(void)s;
	auto_narrate struct narrator *n = start(NULL);
	auto_json json_t *a = js_pack("{s:s,s:s,s:s}", "type", "stdout", "data", "plain\n", "enc", "utf8");
	auto_json json_t *b = js_pack("{s:s,s:s,s:s}", "type", "stderr", "data", "/wo=", "enc", "base64");
	auto_json json_t *c = js_pack("{s:s,s:i}", "type", "exit", "exitCode", 0);
	narrate_box_line(n, a);
	narrate_box_line(n, b);
	narrate_box_line(n, c);
	narrate_exit(n, "exit 0");
	assert_string_equal(said.p, "plain\n\xff\n");
	narrate_output(n, "a\0b", 3);
	auto_buf struct buf tail = BUF(8192);
	narrate_tail(n, &tail);
	assert_string_equal(tail.p,
	    "plain\n\xff\na\xef\xbf\xbd"
	    "b");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(appends_at_most_once_a_second_and_says_the_last_words),
		T(keeps_only_the_tail_of_much_output_and_says_what_is_missing),
		T(a_silent_command_has_its_unfinished_line_said_after_a_second),
		T(a_secret_in_pieces_is_never_said),
		T(a_secret_cut_at_the_windows_edge_is_not_half_said),
		T(after_a_failed_append_it_narrates_no_more),
		T(what_was_said_while_postgresql_was_away_is_said_later),
		T(reads_the_lines_of_a_box),
	};
	return cmocka_run_group_tests_name("narrate", tests, NULL, NULL);
}
