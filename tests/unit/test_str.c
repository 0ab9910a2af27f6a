#include "../t.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/coding.h"
#include "base/str.h"

/* RFC 3629 from the other side: encode every code point, so that what is valid is known without judging bytes. */
static size_t encode(unsigned cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xC0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 63));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xE0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 63));
		out[2] = (char)(0x80 | (cp & 63));
		return 3;
	}
	out[0] = (char)(0xF0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 63));
	out[2] = (char)(0x80 | (cp >> 6 & 63));
	out[3] = (char)(0x80 | (cp & 63));
	return 4;
}

/* known[a][b] bit c/…: which sequences of two and three bytes begin a character, and which are one. */
static unsigned char two[256][256], three[256][256][256];
enum { WHOLE = 1, BEGINS = 2 };

static int build_oracle(void **state)
{
	(void)state;
	for (unsigned cp = 0x80; cp <= 0x10FFFF; cp++) {
		unsigned char c[4];
		if (cp >= 0xD800 && cp <= 0xDFFF)
			continue;
		size_t n = encode(cp, (char *)c);
		if (n >= 2)
			two[c[0]][c[1]] |= n == 2 ? WHOLE : BEGINS;
		if (n >= 3)
			three[c[0]][c[1]][c[2]] |= n == 3 ? WHOLE : BEGINS;
	}
	return 0;
}

static bool begins_one(unsigned char c)
{
	for (int b = 0; b < 256; b++)
		if (two[c][b] != 0)
			return true;
	return false;
}

static void test_every_code_point_is_valid_and_every_cut_of_it_is_a_tail(void **state)
{
	(void)state;
	for (unsigned cp = 0; cp <= 0x10FFFF; cp++) {
		char text[6] = "a";
		size_t n = encode(cp, text + 1);
		bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
		if (utf8_valid(text, n + 1) != (surrogate ? 1 : n + 1))
			fail_msg("U+%04X is judged wrongly", cp);
		for (size_t cut = 1; cut < n && !surrogate; cut++)
			if (utf8_valid(text, 1 + cut) != 1 || utf8_tail(text, 1 + cut) != cut)
				fail_msg("U+%04X cut after %zu bytes is judged wrongly", cp, cut);
		if (!surrogate && utf8_tail(text, n + 1) != 0)
			fail_msg("U+%04X is whole", cp);
	}
}

static void test_every_sequence_of_up_to_three_bytes_is_judged_as_the_code_points_say(void **state)
{
	(void)state;
	for (unsigned a = 0; a < 256; a++) {
		char s[3] = { (char)a };
		assert_int_equal(utf8_valid(s, 1), a < 0x80);
		assert_int_equal(utf8_tail(s, 1), begins_one((unsigned char)a));
		for (unsigned b = 0; b < 256; b++) {
			s[1] = (char)b;
			size_t want = a < 0x80 ? 1 + (b < 0x80) : two[a][b] == WHOLE ? 2 : 0;
			size_t tail = two[a][b] == BEGINS ? 2 : begins_one((unsigned char)b);
			if (utf8_valid(s, 2) != want || utf8_tail(s, 2) != tail)
				fail_msg("%02x %02x is judged wrongly", a, b);
			for (unsigned c = 0; a >= 0xE0 && c < 256; c++) {
				s[2] = (char)c;
				tail = three[a][b][c] == BEGINS ? 3
				    : two[b][c] == BEGINS       ? 2
								: begins_one((unsigned char)c);
				if (utf8_valid(s, 3) != (three[a][b][c] == WHOLE ? 3 : 0) ||
				    utf8_tail(s, 3) != tail)
					fail_msg("%02x %02x %02x is judged wrongly", a, b, c);
			}
		}
	}
}

/* SBX-42: the use of it. However a stream of text is cut, holding back the tail loses and splits nothing. */
static void test_a_stream_cut_anywhere_comes_out_whole_when_its_tails_are_held_back(void **state)
{
	(void)state;
	static const char text[] = "aé€😀\xf0\x9f\x98 \xff ß\xe2\x82";
	for (size_t a = 0; a < sizeof text; a++) {
		for (size_t b = a; b < sizeof text; b++) {
			char out[sizeof text + 1];
			size_t n = 0, from = 0, cuts[3] = { a, b, sizeof text };
			for (int i = 0; i < 3; i++) {
				size_t to = cuts[i] - utf8_tail(text + from, cuts[i] - from);
				memcpy(out + n, text + from, to - from);
				n += to - from;
				from = to;
			}
			memcpy(out + n, text + from, sizeof text - from);
			assert_memory_equal(out, text, sizeof text);
		}
	}
}

static void test_a_view_is_cut_at_its_separators(void **state)
{
	(void)state;
	struct str s = str_of("a::b:"), out;
	static const char *const want[] = { "a", "", "b" };
	for (size_t i = 0; i < 3; i++) {
		assert_true(str_cut(&s, ':', &out));
		assert_true(str_eq(out, want[i]));
	}
	assert_false(str_cut(&s, ':', &out));
	s = str_of(NULL);
	assert_false(str_cut(&s, ':', &out));
	assert_true(str_eq(s, ""));
	assert_false(str_eq(str_of("ab"), "a"));
	assert_false(str_eq((struct str){ "a\0b", 3 }, "a"));
}

static void test_a_view_is_read_off_its_front(void **state)
{
	(void)state;
	struct str s = { "abc", 3 }, none = { NULL, 0 };
	char p[8];
	assert_int_equal(str_read(&s, p, 2), 2);
	assert_memory_equal(p, "ab", 2);
	assert_int_equal(str_read(&s, p, sizeof p), 1);
	assert_int_equal(p[0], 'c');
	assert_int_equal(str_read(&s, p, sizeof p), 0);
	assert_int_equal(str_read(&none, p, sizeof p), 0);
}

static void test_whole_numbers_are_taken_within_their_bounds_and_nothing_else_is(void **state)
{
	(void)state;
	static const char *const bad[] = { "", "-", "+1", " 1", "1 ", "1.0", "0x10", "a", "--1", "1-",
		"9223372036854775808", "-9223372036854775809", "99999999999999999999" };
	static const struct {
		const char *text;
		long long value;
	} good[] = { { "0", 0 }, { "-0", 0 }, { "007", 7 }, { "-5", -5 },
		{ "9223372036854775807", LLONG_MAX }, { "-9223372036854775808", LLONG_MIN } };
	long long v = 42;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(str_int(bad[i], LLONG_MIN, LLONG_MAX, &v));
	assert_false(str_int(NULL, 0, 1, &v));
	assert_false(str_int("4", 5, 7, &v) || str_int("8", 5, 7, &v));
	assert_int_equal(v, 42);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_true(str_int(good[i].text, LLONG_MIN, LLONG_MAX, &v));
		assert_true(v == good[i].value);
	}
}

static void test_small_judgements_of_text(void **state)
{
	(void)state;
	static const char *const list[] = { "a", "bc", NULL };
	assert_true(str_starts("abc", "ab") && str_starts("abc", "") && !str_starts("ab", "abc"));
	assert_true(str_ends("abc", "bc") && str_ends("abc", "") && !str_ends("bc", "abc"));
	assert_true(str_only("aba", "ab") && !str_only("", "ab") && !str_only("abc", "ab"));
	assert_true(str_one_of("bc", list) && !str_one_of("b", list) && !str_one_of("", list));
	assert_true(bytes_equal_ct("a\0b", "a\0b", 3) && !bytes_equal_ct("a\0b", "a\0c", 3) &&
	    bytes_equal_ct("", "x", 0));
}

/* SBX-3 */
static void test_a_text_shows_something_or_is_refused(void **state)
{
	(void)state;
	static const char *const good[] = { "ci", "J\xc3\xb6rg", " x ", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
		"a\xc2\xa0" };
	static const char *const bad[] = { "", " ", "\t", "a\nb", "a\x1b[31m", "\x7f", "\xc2\x85", "\xc2\xa0",
		"\xe3\x80\x80 ", "\xe2\x80\x8b", "\xef\xbb\xbf", "a\xe2\x80\xae z", "a\xe2\x80\xa9", "a\xff",
		"\xc3" };
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_true(str_shows(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(str_shows(bad[i]));
}

static void test_a_slug_is_letters_digits_and_single_dashes_and_never_too_long(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "Deep Research", "deep-research" },
		{ "  a__b--C!! ", "a-b-c" },
		{ "123456789012345", "123456789012345" },
		{ "1234567890123 5", "1234567890123-5" },
		{ "ä1", "1" },
		{ "", NULL },
		{ "---", NULL },
		{ "ÄÖ", NULL },
		{ "1234567890123456", NULL },
	};
	char out[16];
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(str_slug(rows[i][0], out, sizeof out), rows[i][1] != NULL);
		if (rows[i][1] != NULL)
			assert_string_equal(out, rows[i][1]);
		char again[16];
		if (rows[i][1] != NULL)
			assert_true(str_slug(out, again, sizeof again) && strcmp(again, out) == 0);
	}
}

static void a_number_is_what_printf_writes(void **state)
{
	(void)state;
	static const long long numbers[] = { 0, 1, -1, 9, 10, 99, 100, 1234567890123, LLONG_MAX, LLONG_MIN };
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		char got[STR_NUM], want[STR_NUM];
		int n = snprintf(want, sizeof want, "%lld", numbers[i]);
		assert_int_equal(str_num(numbers[i], got), n);
		assert_string_equal(got, want);
	}
}

static void strings_behind_one_another_are_cut_to_what_fits(void **state)
{
	(void)state;
	for (size_t size = 1; size < 12; size++) {
		char got[16] = "###############", want[16];
		str_put(got, size, "abc", "", "defgh");
		memcpy(want, "abcdefgh", 9);
		if (size < 9)
			want[size - 1] = 0;
		assert_string_equal(got, want);
		assert_int_equal(got[size], '#');
	}
}

/* Every byte at every place of texts of every length about a word of the machine, whatever stands around it. */
static void a_plain_stretch_ends_where_it_should(void **state)
{
	(void)state;
	char text[40];
	for (size_t n = 1; n <= 26; n++)
		for (size_t at = 0; at < n; at++)
			for (int c = 0; c < 256; c++) {
				bool ascii = true, ends = c < 0x20 || c == '"' || c == '\\';
				memset(text, 'a', sizeof text);
				text[at] = (char)c;
				if (str_plain(text, n, &ascii) != (ends ? at : n))
					fail_msg("%02x at %zu of %zu", (unsigned)c, at, n);
				assert_int_equal(ascii, c < 0x80);
				text[n - 1] = (char)0x80;
				ascii = true;
				(void)str_plain(text, n, &ascii);
				assert_true(!ascii || (ends && at < n - 1));
			}
}

static void a_content_encoding_is_one_of_ours_or_another(void **state)
{
	(void)state;
	static const struct {
		const char *value;
		enum coding coding;
	} all[] = { { NULL, CODING_PLAIN }, { "", CODING_PLAIN }, { "Identity", CODING_PLAIN },
		{ "gzip", CODING_GZIP }, { "X-GZip", CODING_GZIP }, { "deflate", CODING_DEFLATE },
		{ "br", CODING_OTHER }, { "gzip, gzip", CODING_OTHER }, { "gzi", CODING_OTHER },
		{ "gzip2", CODING_OTHER } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		assert_int_equal(coding_of(str_of(all[i].value)), all[i].coding);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_content_encoding_is_one_of_ours_or_another),
		cmocka_unit_test(a_number_is_what_printf_writes),
		cmocka_unit_test(a_plain_stretch_ends_where_it_should),
		cmocka_unit_test(strings_behind_one_another_are_cut_to_what_fits),
		cmocka_unit_test(test_every_code_point_is_valid_and_every_cut_of_it_is_a_tail),
		cmocka_unit_test(test_every_sequence_of_up_to_three_bytes_is_judged_as_the_code_points_say),
		cmocka_unit_test(test_a_stream_cut_anywhere_comes_out_whole_when_its_tails_are_held_back),
		cmocka_unit_test(test_a_view_is_cut_at_its_separators),
		cmocka_unit_test(test_a_view_is_read_off_its_front),
		cmocka_unit_test(test_whole_numbers_are_taken_within_their_bounds_and_nothing_else_is),
		cmocka_unit_test(test_small_judgements_of_text),
		cmocka_unit_test(test_a_text_shows_something_or_is_refused),
		cmocka_unit_test(test_a_slug_is_letters_digits_and_single_dashes_and_never_too_long),
	};
	return cmocka_run_group_tests(tests, build_oracle, NULL);
}
