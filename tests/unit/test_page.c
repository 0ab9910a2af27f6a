#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "forge/html.h"
#include "forge/page.h"
#include "forge/patch.h"

static const char *esc(struct buf *b, const char *p, size_t n)
{
	buf_reset(b);
	html_esc(b, p, n);
	return buf_c(b);
}

#define CTL(x) "<span class=\"ctl\">" x "</span>"

/* FRG-5 */
static void what_others_made_is_escaped_and_hidden_characters_are_shown(void **s)
{
	(void)s;
	const char *const rows[][2] = {
		{ "plain \xc3\xa4 \xf0\x9f\x98\x80\ttab", "plain \xc3\xa4 \xf0\x9f\x98\x80\ttab" },
		{ "<script>&\"'", "&lt;script&gt;&amp;&quot;&#39;" },
		{ "a\nb\r", "a" CTL("\\n") "b" CTL("\\r") },
		{ "\x1b[31m\x01\x7f", CTL("\\e") "[31m" CTL("\\x01") CTL("\\x7f") },
		{ "x\xe2\x80\xaegnp", "x" CTL("U+202E") "gnp" },
		{ "\xe2\x80\x8b\xef\xbb\xbf\xc2\xad", CTL("U+200B") CTL("U+FEFF") CTL("U+00AD") },
		{ "\xc2\x85\xe2\x80\xa8\xe2\x81\xa6", CTL("U+0085") CTL("U+2028") CTL("U+2066") },
		{ "\xf3\xa0\x81\x81", CTL("U+E0041") },
		{ "\xff\xc3", CTL("\\xff") CTL("\\xc3") },
		{ "\xed\xa0\x80", CTL("\\xed") CTL("\\xa0") CTL("\\x80") },
		{ "\xc0\xaf", CTL("\\xc0") CTL("\\xaf") },
		{ "", "" },
	};
	auto_buf struct buf b = BUF(4096);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(esc(&b, rows[i][0], strlen(rows[i][0])), rows[i][1]);
	assert_string_equal(esc(&b, "a\0b", 3), "a" CTL("\\x00") "b");
}

/* FRG-5: no byte of an argument can end an attribute or begin a tag. */
static void no_argument_leaves_its_place(void **s)
{
	(void)s;
	auto_buf struct buf b = BUF(1 << 16);
	for (int c = 0; c < 256; c++) {
		char arg[] = { (char)(c == 0 ? 1 : c), '"', '<', '>', 0 };
		buf_reset(&b);
		HTML(&b, "<a t=\"{=}\">", arg);
		const char *value = buf_c(&b) + strlen("<a t=\"");
		assert_string_equal(value + strcspn(value, "\"<>"), "\">");
	}
	buf_reset(&b);
	HTML(&b, "{}-{=}-{}{", "{}", "\n", "{=}");
	assert_string_equal(buf_c(&b), "{}-\\n-{=}{");
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;
	for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

static const char two_files[] =
    "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@ f\n one\n-two\n+zwei\n"
    "-diff --git a/x b/x\n+diff --git a/y b/y\ndiff --git a/b b/b\nnew file mode 100644\n"
    "Binary files /dev/null and b/b differ\n";

/* FRG-5 */
static void a_patch_falls_into_its_files_whatever_they_hold(void **s)
{
	(void)s;
	struct str rest = { two_files, strlen(two_files) }, file;
	assert_true(patch_next(&rest, &file));
	assert_true(patch_has_lines(file));
	auto_buf struct buf b = BUF(1 << 16);
	int budget = 100;
	assert_true(patch_rows(&b, file, &budget));
	assert_int_equal(budget, 95);
	assert_int_equal(count(buf_c(&b), "<tr class=\"a\">"), 2);
	assert_int_equal(count(buf_c(&b), "<tr class=\"d\">"), 2);
	assert_non_null(
	    strstr(buf_c(&b), "<td class=\"n\">1</td><td class=\"n\">1</td><td class=\"c\"><i> </i>one"));
	/* The lines that look like a header belong to the file; only what differs of them is marked. */
	assert_non_null(strstr(buf_c(&b), "diff --git a/<b>y b/y</b>"));
	assert_true(patch_next(&rest, &file));
	assert_false(patch_has_lines(file));
	assert_false(patch_next(&rest, &file));
	assert_int_equal(rest.n, 0);
}

/* FRG-5 */
static void a_patch_cut_anywhere_is_read_to_where_it_goes(void **s)
{
	(void)s;
	for (size_t n = 0; n <= strlen(two_files); n++) {
		char *copy = strndup(two_files, n);
		struct str rest = { copy, n }, file;
		int budget = 100;
		auto_buf struct buf b = BUF(1 << 16);
		while (patch_next(&rest, &file))
			(void)patch_rows(&b, file, &budget);
		assert_true(count(buf_c(&b), "<tr") <= 6);
		assert_int_equal(count(buf_c(&b), "<tr"), count(buf_c(&b), "</tr>"));
		free(copy);
	}
}

static void long_lines_and_many_lines_are_cut_with_a_word(void **s)
{
	(void)s;
	auto_buf struct buf in = BUF(1 << 20), b = BUF(1 << 20);
	(void)buf_str(&in, "diff --git a/a b/a\n@@ -0,0 +1,50 @@\n+");
	for (int i = 0; i < 2000; i++)
		(void)buf_str(&in, "\xc3\xa4");
	for (int i = 1; i < 50; i++)
		(void)buf_str(&in, "\n+x");
	(void)buf_str(&in, "\n\\ No newline at end of file\n");
	struct str rest = { in.p, in.n }, file;
	int budget = 20;
	assert_true(patch_next(&rest, &file));
	assert_false(patch_rows(&b, file, &budget));
	assert_int_equal(count(buf_c(&b), "<tr class=\"a\">"), 20);
	assert_int_equal(count(buf_c(&b), "line cut"), 1);
	assert_int_equal(count(buf_c(&b), "\xc3\xa4"), PATCH_LINE_BYTES / 2);
	assert_int_equal(count(buf_c(&b), "\\xc3"), 0);
	buf_reset(&b);
	budget = 1000;
	assert_true(patch_rows(&b, file, &budget));
	assert_int_equal(count(buf_c(&b), "no line end"), 1);
}

/* FRG-5: the marks never cut a character, and are left out where two lines have little in common. */
static void the_differing_middle_is_marked(void **s)
{
	(void)s;
	const char *const rows[][3] = {
		{ "-return total\n+return sum\n", "return <b>total</b>", "return <b>sum</b>" },
		{ "-a b c d\n+a b x c d\n", "<i>-</i>a b c d</td>", "a b <b>x </b>c d" },
		{ "-the \xc3\xa4 one\n+the \xc3\xb6 one\n", "the <b>\xc3\xa4</b> one",
		    "the <b>\xc3\xb6</b> one" },
		{ "-completely\n+different!!\n", "completely", "different!!" },
		{ "-\n+x\n", "<i>-</i></td>", "<i>+</i>" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_buf struct buf b = BUF(1 << 16);
		char text[200];
		int budget = 10;
		(void)snprintf(text, sizeof text, "diff --git a/a b/a\n@@ -1 +1 @@\n%s", rows[i][0]);
		struct str rest = { text, strlen(text) }, file;
		assert_true(patch_next(&rest, &file));
		assert_true(patch_rows(&b, file, &budget));
		if (strstr(buf_c(&b), rows[i][1]) == NULL || strstr(buf_c(&b), rows[i][2]) == NULL)
			fail_msg("%s: %s", rows[i][0], buf_c(&b));
	}
}

/* FRG-5: nothing outside the page, nothing that runs. */
static void the_style_sheet_is_whole_and_loads_nothing(void **s)
{
	(void)s;
	assert_null(strstr(page_css, "url("));
	assert_null(strstr(page_css, "@import"));
	assert_null(strstr(page_css, "</"));
	assert_int_equal(count(page_css, "{"), count(page_css, "}"));
	assert_non_null(strstr(page_css, "prefers-color-scheme:dark"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_others_made_is_escaped_and_hidden_characters_are_shown),
		cmocka_unit_test(no_argument_leaves_its_place),
		cmocka_unit_test(a_patch_falls_into_its_files_whatever_they_hold),
		cmocka_unit_test(a_patch_cut_anywhere_is_read_to_where_it_goes),
		cmocka_unit_test(long_lines_and_many_lines_are_cut_with_a_word),
		cmocka_unit_test(the_differing_middle_is_marked),
		cmocka_unit_test(the_style_sheet_is_whole_and_loads_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
