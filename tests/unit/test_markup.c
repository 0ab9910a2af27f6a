/* markup.c: MOD-5, MOD-12. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "model/markup.h"

static const char *const markers[] = {
	"<\xEF\xBD\x9C"
	"DSML\xEF\xBD\x9Ctool_calls>",
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"
	"call\xE2\x96\x81"
	"begin\xEF\xBD\x9C>",
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"
	"calls\xE2\x96\x81"
	"begin\xEF\xBD\x9C>",
	"<tool_call>",
	"[TOOL_CALLS]",
	"<|python_tag|>",
	"<|tool_call>",
};

/* The answer, which must be the same however the text is cut: in two at every place, and byte by byte. */
static bool found(const char *text)
{
	size_t n = strlen(text);
	struct markup whole;
	bool answer = markup_in(text, n, &whole);
	for (size_t cut = 0; cut <= n; cut++) {
		struct markup m = { 0 };
		(void)markup_feed(&m, text, cut);
		(void)markup_feed(&m, text + cut, n - cut);
		assert_int_equal(markup_end(&m), answer);
	}
	struct markup m = { 0 };
	for (size_t i = 0; i < n; i++)
		(void)markup_feed(&m, text + i, 1);
	assert_int_equal(markup_end(&m), answer);
	assert_int_equal(markup_family(&m) != NULL, answer);
	return answer;
}

static bool found_with(const char *before, const char *marker, const char *behind)
{
	char text[2048];
	assert_true(snprintf(text, sizeof text, "%s%s%s", before, marker, behind) < (int)sizeof text);
	return found(text);
}

static void every_marker_is_found_wherever_it_is_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) {
		assert_true(found_with("", markers[i], ""));
		assert_true(found_with("I will look.\n", markers[i], "{\"name\":\"x\"}"));
		assert_true(found_with("a < b [ <", markers[i], "\n"));
		assert_true(found_with("<<", markers[i], ""));
	}
}

static void code_is_not_looked_into(void **state)
{
	static const char *const around[][2] = {
		{ "Use `", "` to call." },
		{ "Use `` a ` ", " `` to call." },
		{ "`", "`" },
		{ "```\n", "\n```\n" },
		{ "text\n  ~~~~ xml\n", "\n~~~\n still\n~~~~\ndone" },
		{ "```xml\r\n", "\r\n```\r\nprose" },
		{ "```\nnever closed: ", "" },
		{ "``` not a fence ", " ``` either" },
		{ "``` info with ", "\n```\n" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
		for (size_t k = 0; k < sizeof around / sizeof *around; k++)
			assert_false(found_with(around[k][0], markers[i], around[k][1]));
}

static void what_only_looks_like_code_is_prose(void **state)
{
	static const char *const around[][2] = {
		{ "a lone ` then ", "" }, { "a lone ` then ", "\nand ` later" }, { "``two ", " one`" },
		{ "```\ncode\n```\n", "" }, { "```\ncode\n```` \n", "" }, { "`code` ", "" },
		{ "~~struck~~ ", "" }, { "~~~ a ` b\ncode\n~~~\n", "" },
		{ "    ```\n", "" }, /* four blanks: no fence, and its run is closed by nothing on its line */
	};
	(void)state;
	for (size_t k = 0; k < sizeof around / sizeof *around; k++)
		assert_true(found_with(around[k][0], "<tool_call>", around[k][1]));
}

static void prose_that_mentions_tools_passes(void **state)
{
	static const char *const texts[] = {
		"",
		"I used the tool_call feature, then <tool> and [TOOL] and <|tool|>.",
		"<tool_call",
		"<tool_calls>",
		"[TOOL_CALLS",
		"if a<b && c>d then [1,2][3]",
		"<|python_tag",
		("<\xEF\xBD\x9Ctool\xE2\x96\x81"
		 "call"),
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_false(found(texts[i]));
}

/* What was not held when a marker is found is what the caller has: no byte of a marker may be in it. */
static void no_byte_of_a_marker_is_given_away(void **state)
{
	static const char *const before[] = { "", "prose ", "a ` b ", "``` x ", "x\n" };
	(void)state;
	for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
		for (size_t b = 0; b < sizeof before / sizeof *before; b++) {
			struct markup m = { 0 };
			size_t lead = strlen(before[b]), n = strlen(markers[i]);
			(void)markup_feed(&m, before[b], lead);
			assert_int_equal(markup_held(&m), 0);
			for (size_t k = 0; k < n; k++) {
				if (markup_feed(&m, markers[i] + k, 1))
					break;
				assert_true(markup_held(&m) >= k + 1);
			}
			if (m.found != 0)
				continue;
			(void)markup_feed(&m, "tail", 4);
			assert_int_equal(markup_held(&m), n + 4);
		}
}

static void what_is_held_is_bounded(void **state)
{
	struct markup m = { 0 };
	(void)state;
	(void)markup_feed(&m, "` <tool_call>", 13);
	assert_int_equal(markup_held(&m), 11);
	size_t fed = 0;
	while (!markup_feed(&m, "x", 1) && fed < 4 * MARKUP_HELD_MAX) {
		assert_true(markup_held(&m) <= MARKUP_HELD_MAX);
		fed++;
	}
	assert_in_range(fed, MARKUP_HELD_MAX - 20, MARKUP_HELD_MAX);
	struct markup closed = { 0 };
	(void)markup_feed(&closed, "`<tool_call>` x", 15);
	assert_int_equal(markup_held(&closed), 0);
	assert_null(markup_family(&closed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_marker_is_found_wherever_it_is_cut),
		cmocka_unit_test(code_is_not_looked_into),
		cmocka_unit_test(what_only_looks_like_code_is_prose),
		cmocka_unit_test(prose_that_mentions_tools_passes),
		cmocka_unit_test(no_byte_of_a_marker_is_given_away),
		cmocka_unit_test(what_is_held_is_bounded),
	};
	return cmocka_run_group_tests_name("markup", tests, NULL, NULL);
}
