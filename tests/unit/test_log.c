#include "../t.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/js.h"
#include "base/log.h"

static int saved_stderr;
static FILE *sink;
static char text[1 << 20];

static int capture(void **state)
{
	(void)state;
	sink = tmpfile();
	assert_non_null(sink);
	saved_stderr = dup(STDERR_FILENO);
	/* Appending, as a journal or a pipe does: several writers do not overwrite each other. */
	assert_int_equal(fcntl(fileno(sink), F_SETFL, O_APPEND), 0);
	assert_true(dup2(fileno(sink), STDERR_FILENO) >= 0);
	return 0;
}

static int release(void **state)
{
	(void)state;
	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	(void)close(saved_stderr);
	(void)fclose(sink);
	return 0;
}

static const char *logged(void)
{
	ssize_t n = pread(fileno(sink), text, sizeof text - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	return text;
}

/* The part after the time, which differs. */
static const char *after_time(void)
{
	const char *s = strchr(logged(), ' ');
	assert_non_null(s);
	return s + 1;
}

/* RUN-2 */
static void test_a_line_has_time_level_process_message_and_pairs(void **state)
{
	(void)state;
	log_setup("test", LOG_INFO_, LOG_LOGFMT);
	log_info("job claimed", "job", "job_1", "none", (char *)0, "attempt", "2", "empty", "");
	assert_string_equal(
	    after_time(), "level=info process=test msg=\"job claimed\" job=job_1 attempt=2 empty=\"\"\n");
	assert_int_equal(strncmp(text, "time=20", 7), 0);
	assert_int_equal(strchr(text, ' ') - text, strlen("time=2026-01-02T03:04:05.678Z"));
}

static void test_levels_below_the_least_are_not_written(void **state)
{
	(void)state;
	log_setup("test", LOG_WARN_, LOG_LOGFMT);
	log_debug("a");
	log_info("b");
	assert_string_equal(logged(), "");
	log_error("c");
	assert_string_equal(after_time(), "level=error process=test msg=c\n");
}

static void test_control_bytes_and_bytes_that_are_no_text_cannot_forge_a_line(void **state)
{
	(void)state;
	log_setup("test", LOG_INFO_, LOG_LOGFMT);
	log_info("x", "v", "a\nlevel=error \x1b[31m\x7f \xc2\x9b \xff \"q\" \\ é=");
	assert_string_equal(after_time(),
	    "level=info process=test msg=x v=\"a\\nlevel=error \\u001b[31m\\u007f \\u009b "
	    "\\ufffd \\\"q\\\" \\\\ é=\"\n");
}

static void test_the_json_form_is_one_json_object_a_line(void **state)
{
	(void)state;
	log_setup("test", LOG_INFO_, LOG_JSON);
	log_info("x\n", "v", "\"\\\x01\xff\xc2\x85é");
	struct err e = { 0 };
	const char *line = logged();
	auto_json json_t *v = js_parse(line, strlen(line), &e);
	assert_non_null(v);
	assert_string_equal(js_str(v, "msg"), "x\n");
	assert_string_equal(js_str(v, "v"), "\"\\\x01\xef\xbf\xbd\xc2\x85é");
	assert_string_equal(js_str(v, "level"), "info");
	assert_string_equal(js_str(v, "process"), "test");
	assert_int_equal(strchr(text, '\n') - text, strlen(text) - 1);
}

/* RED-1, RED-2, RED-3 */
static void test_values_pass_the_redactor(void **state)
{
	(void)state;
	log_setup("test", LOG_INFO_, LOG_LOGFMT);
	log_info("clone https://u:hunter2@h failed", "api_key", "hunter2", "url", "https://hunter2@h", "body",
	    "{\"token\":\"hunter2\"}", "key", "gk_01hzy3v9k2m4n6p8q0r2s4t6v8_hunter2");
	assert_null(strstr(logged(), "hunter2"));
	assert_non_null(strstr(text, "api_key=[redacted] url=https://[redacted]@h "));
}

static void test_a_long_value_is_cut_with_a_mark_and_a_line_stays_below_a_pipes_atomic_write(void **state)
{
	(void)state;
	static char big[200000];
	memset(big, 'y', sizeof big - 1);
	for (int json = 0; json < 2; json++) {
		log_setup("test", LOG_INFO_, json ? LOG_JSON : LOG_LOGFMT);
		log_info("x", "a", big, "b", big, "c", big, "d", big, "last", "kept");
		const char *line = logged() + (json ? strchr(text, '\n') + 1 - text : 0);
		assert_in_range(strlen(line), 2000, 4096);
		assert_non_null(strstr(line, "yyy…"));
		assert_non_null(strstr(line, json ? "\"last\":\"kept\"}\n" : " last=kept\n"));
	}
}

static void *shout(void *arg)
{
	for (int i = 0; i < 200; i++)
		log_info("from a thread", "who", arg, "pad", "0123456789012345678901234567890123456789");
	return NULL;
}

static void test_lines_of_several_threads_stay_whole(void **state)
{
	(void)state;
	log_setup("test", LOG_INFO_, LOG_LOGFMT);
	pthread_t t[4];
	static const char *const who[] = { "a", "b", "c", "d" };
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, shout, (void *)(uintptr_t)who[i]), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	int lines = 0;
	char *rest = (char *)(uintptr_t)logged();
	for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != 0; lines++) {
		assert_int_equal(strncmp(line, "time=", 5), 0);
		assert_non_null(strstr(line, " pad=0123456789012345678901234567890123456789"));
		assert_int_equal(strlen(line),
		    strlen("time=2026-01-02T03:04:05.678Z level=info process=test "
			   "msg=\"from a thread\" who=a pad=0123456789012345678901234567890123456789"));
	}
	assert_int_equal(lines, 800);
}

/* REL-2, RUN-2 */
static void test_what_fails_again_and_again_is_told_once_a_change_and_once_a_minute(void **state)
{
	(void)state;
	struct log_spell s = { 0 };
	long long n;
	int told = 0;
	int64_t now = 1000000;
	assert_false(log_spell_works(&s, &n));     /* nothing has changed */
	for (int i = 0; i < 1500; i++, now += 100) /* ten a second for two and a half minutes */
		if (log_spell_fails(&s, now, &n)) {
			assert_int_equal(n, told == 0 ? 1 : 600);
			told++;
		}
	assert_int_equal(told, 3);
	assert_true(log_spell_works(&s, &n));
	assert_int_equal(n, 299);
	assert_false(log_spell_works(&s, &n));
	/* What works and fails in turn is bounded, too: a burst, then one every ten seconds. */
	now += 600000;
	told = 0;
	for (int i = 0; i < 600; i++, now += 100) {
		told += log_spell_fails(&s, now, &n) ? 1 : 0;
		(void)log_spell_works(&s, &n);
	}
	assert_in_range(told, LOG_SPELL_BURST, LOG_SPELL_BURST + 6);
}

#define CAPTURED(t) cmocka_unit_test_setup_teardown(t, capture, release)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CAPTURED(test_a_line_has_time_level_process_message_and_pairs),
		CAPTURED(test_levels_below_the_least_are_not_written),
		CAPTURED(test_control_bytes_and_bytes_that_are_no_text_cannot_forge_a_line),
		CAPTURED(test_the_json_form_is_one_json_object_a_line),
		CAPTURED(test_values_pass_the_redactor),
		CAPTURED(test_a_long_value_is_cut_with_a_mark_and_a_line_stays_below_a_pipes_atomic_write),
		CAPTURED(test_lines_of_several_threads_stay_whole),
		cmocka_unit_test(test_what_fails_again_and_again_is_told_once_a_change_and_once_a_minute),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
