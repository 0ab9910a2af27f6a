#include "../t.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* What a buffer of that maximum should hold after the same appends, kept naively. */
struct model {
	char text[512];
	size_t n, max;
	bool full;
};

static int model_add(struct model *m, const char *p, size_t n)
{
	if (m->full || m->n + n > m->max) {
		m->full = true;
		return -1;
	}
	memcpy(m->text + m->n, p, n);
	m->n += n;
	return 0;
}

static void same(const struct buf *b, const struct model *m)
{
	assert_int_equal(b->n, m->n);
	assert_true(b->n <= b->max);
	assert_int_equal(b->full, m->full);
	assert_memory_equal(buf_c(b), m->text, m->n);
	if (b->p != NULL)
		assert_int_equal(b->p[b->n], 0);
}

static void one_step(struct buf *b, struct model *m)
{
	char piece[64];
	size_t n = (size_t)rand() % 20;
	for (size_t i = 0; i < n; i++)
		piece[i] = (char)(rand() % 4 == 0 ? 0 : 'a' + rand() % 26);
	piece[n] = 0;
	switch (rand() % 6) {
	case 0:
		assert_int_equal(buf_add(b, piece, n), model_add(m, piece, n));
		break;
	case 1:
		assert_int_equal(buf_str(b, piece), model_add(m, piece, strlen(piece)));
		break;
	case 2:
		assert_int_equal(buf_chr(b, piece[0]), model_add(m, piece, 1));
		break;
	case 3: {
		char text[80];
		int len = snprintf(text, sizeof text, "<%s %d>", piece, (int)n);
		assert_int_equal(buf_fmt(b, "<%s %d>", piece, (int)n), model_add(m, text, (size_t)len));
		break;
	}
	case 4: {
		size_t drop = m->n == 0 ? 0 : (size_t)rand() % (m->n + 1);
		buf_drop(b, drop);
		memmove(m->text, m->text + drop, m->n - drop);
		m->n -= drop;
		break;
	}
	default: {
		char *to = buf_room(b, n);
		bool fits = !m->full && m->n + n <= m->max;
		assert_int_equal(to != NULL, fits);
		m->full = m->full || !fits;
		if (to != NULL && n > 0) { /* less than was asked for may be counted */
			memcpy(to, piece, n / 2);
			buf_grew(b, n / 2);
			(void)model_add(m, piece, n / 2);
		}
	}
	}
}

static void test_it_holds_what_was_appended_never_passes_its_maximum_and_remembers_that_something_did_not_fit(
    void **state)
{
	(void)state;
	srand(7);
	for (size_t max = 1; max < 400; max += 3) {
		auto_buf struct buf b = BUF(max);
		struct model m = { .max = max };
		for (int i = 0; i < 60; i++) {
			one_step(&b, &m);
			same(&b, &m);
		}
		buf_reset(&b);
		m = (struct model){ .max = max };
		same(&b, &m);
		assert_int_equal(buf_add(&b, "x", 1), model_add(&m, "x", 1));
		same(&b, &m);
	}
}

static void test_an_empty_one_is_an_empty_string(void **state)
{
	(void)state;
	struct buf b = BUF(1);
	assert_string_equal(buf_c(&b), "");
	assert_int_equal(buf_str(&b, ""), 0);
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_int_equal(b.n, 0);
	buf_drop(&b, 0);
	buf_free(&b);
	assert_string_equal(buf_c(&b), "");
	assert_int_equal(b.max, 1);
}

static void test_one_byte_at_a_time_moves_the_memory_rarely(void **state)
{
	(void)state;
	auto_buf struct buf b = BUF(1 << 20);
	int moved = 0;
	for (size_t i = 0; i < (1 << 20); i++) {
		size_t cap = b.cap;
		assert_int_equal(buf_chr(&b, 'x'), 0);
		moved += b.cap != cap;
	}
	assert_in_range(moved, 1, 20);
	assert_int_equal(buf_chr(&b, 'x'), -1);
}

static void test_numbers_are_written_to_their_bounds(void **state)
{
	(void)state;
	static const struct {
		long long v;
		const char *text;
	} rows[] = { { 0, "0" }, { -1, "-1" }, { 10, "10" }, { LLONG_MAX, "9223372036854775807" },
		{ LLONG_MIN, "-9223372036854775808" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_buf struct buf b = BUF(20), tight = BUF(strlen(rows[i].text) - (i > 0));
		assert_int_equal(buf_num(&b, rows[i].v), 0);
		assert_string_equal(b.p, rows[i].text);
		assert_int_equal(buf_num(&tight, rows[i].v), i > 0 ? -1 : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_are_written_to_their_bounds),
		cmocka_unit_test(
		    test_it_holds_what_was_appended_never_passes_its_maximum_and_remembers_that_something_did_not_fit),
		cmocka_unit_test(test_an_empty_one_is_an_empty_string),
		cmocka_unit_test(test_one_byte_at_a_time_moves_the_memory_rarely),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
