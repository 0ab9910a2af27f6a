#include "../t.h"

#include <string.h>

#include "base/ndjson.h"

static const char stream[] = "one\ntwo\r\n\n{\"a\":\"\\n\"}\nrest";
static const char *const lines[] = { "one", "two", "", "{\"a\":\"\\n\"}" };
enum { LINES = 4 };

static void take_all(struct ndjson *r, int *got)
{
	struct str line;
	while (ndjson_next(r, &line)) {
		assert_in_range(*got, 0, LINES - 1);
		assert_true(str_eq(line, lines[*got]));
		(*got)++;
	}
}

/* STR-1 */
static void test_lines_are_the_same_whichever_two_places_split_the_stream(void **state)
{
	(void)state;
	size_t n = strlen(stream);
	for (size_t a = 0; a <= n; a++) {
		for (size_t b = a; b <= n; b++) {
			struct ndjson r = ndjson_new(16);
			int got = 0;
			assert_int_equal(ndjson_feed(&r, stream, a), 0);
			take_all(&r, &got);
			assert_int_equal(ndjson_feed(&r, stream + a, b - a), 0);
			take_all(&r, &got);
			assert_int_equal(ndjson_feed(&r, stream + b, n - b), 0);
			take_all(&r, &got);
			assert_int_equal(got, LINES);
			assert_true(str_eq(ndjson_rest(&r), "rest"));
			ndjson_free(&r);
		}
	}
}

static void test_lines_not_taken_before_the_next_feed_are_kept(void **state)
{
	(void)state;
	struct ndjson r = ndjson_new(16);
	int got = 0;
	for (size_t i = 0; i < strlen(stream); i++)
		assert_int_equal(ndjson_feed(&r, stream + i, 1), 0);
	take_all(&r, &got);
	assert_int_equal(got, LINES);
	ndjson_free(&r);
}

static void test_a_line_over_the_bound_is_refused_however_it_arrives(void **state)
{
	(void)state;
	static const char text[] = "12345\n123456\nx\n";
	for (size_t a = 0; a <= strlen(text); a++) {
		struct ndjson r = ndjson_new(5);
		struct str line;
		int first = ndjson_feed(&r, text, a);
		int second = ndjson_feed(&r, text + a, strlen(text) - a);
		assert_true(first == -1 || second == -1);
		assert_true(ndjson_next(&r, &line) && str_eq(line, "12345"));
		assert_false(ndjson_next(&r, &line));
		assert_int_equal(ndjson_feed(&r, "\n", 1), -1);
		ndjson_free(&r);
	}
}

static void test_a_line_of_exactly_the_bound_is_taken_and_many_lines_may_pass_it_together(void **state)
{
	(void)state;
	struct ndjson r = ndjson_new(3);
	struct str line;
	assert_int_equal(ndjson_feed(&r, "abc\ndef\nghi\njkl", 15), 0);
	for (int i = 0; i < 3; i++)
		assert_true(ndjson_next(&r, &line) && line.n == 3);
	assert_true(str_eq(ndjson_rest(&r), "jkl"));
	assert_int_equal(ndjson_feed(&r, "m", 1), -1);
	ndjson_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_are_the_same_whichever_two_places_split_the_stream),
		cmocka_unit_test(test_lines_not_taken_before_the_next_feed_are_kept),
		cmocka_unit_test(test_a_line_over_the_bound_is_refused_however_it_arrives),
		cmocka_unit_test(
		    test_a_line_of_exactly_the_bound_is_taken_and_many_lines_may_pass_it_together),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
