#include "../t.h"

#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "base/secret.h"

static void test_allocations_are_zeroed_aligned_and_do_not_overlap(void **state)
{
	(void)state;
	struct mem *m = mem_new();
	unsigned char *p[600];
	for (size_t i = 0; i < 600; i++) {
		size_t n = i * 37 % 9001; /* some are larger than a block */
		p[i] = mem_alloc(m, n);
		assert_int_equal((uintptr_t)p[i] % alignof(max_align_t), 0);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(p[i][k], 0);
		memset(p[i], (int)(i % 251) + 1, n);
	}
	for (size_t i = 0; i < 600; i++)
		for (size_t k = 0; k < i * 37 % 9001; k++)
			assert_int_equal(p[i][k], i % 251 + 1);
	mem_free(m);
	mem_free(NULL);
}

static void test_strings_are_copied_and_formatted(void **state)
{
	(void)state;
	auto_mem struct mem *m = mem_new();
	char was[] = "abc";
	const char *copy = mem_str(m, was);
	was[0] = 'x';
	assert_string_equal(copy, "abc");
	assert_string_equal(mem_strn(m, "abcdef", 3), "abc");
	assert_string_equal(mem_strn(m, NULL, 0), "");
	assert_string_equal(mem_fmt(m, "%s-%d", "a", 7), "a-7");
	char big[20000];
	memset(big, 'y', sizeof big - 1);
	big[sizeof big - 1] = 0;
	assert_string_equal(mem_fmt(m, "%s", big), big);
}

static char order[8];

static void note(void *obj)
{
	(void)strcat(order, obj);
}

static void test_what_the_arena_owns_is_destroyed_with_it_last_first(void **state)
{
	(void)state;
	struct mem *m = mem_new();
	json_t *v = json_object();
	json_t *kept = json_incref(v);
	mem_own(m, (void *)(uintptr_t) "a", note);
	assert_ptr_equal(mem_json(m, v), v);
	assert_null(mem_json(m, NULL));
	mem_own(m, (void *)(uintptr_t) "b", note);
	mem_free(m);
	assert_string_equal(order, "ba");
	assert_int_equal(kept->refcount, 1);
	json_decref(kept);
}

static void test_stealing_leaves_nothing_behind(void **state)
{
	(void)state;
	char *kept;
	{
		auto_free char *p = xstrdup("kept");
		kept = steal(p);
		assert_null(p);
	}
	assert_string_equal(kept, "kept");
	free(kept);
	int fd = 7;
	assert_int_equal(steal_fd(&fd), 7);
	assert_int_equal(fd, -1);
}

/* ID-5 */
static void test_a_secret_compares_by_all_its_bytes_and_may_hold_any(void **state)
{
	(void)state;
	auto_secret struct secret *s = secret_new("a\0b", 3);
	assert_int_equal(secret_len(s), 3);
	assert_true(secret_equal(s, "a\0b", 3));
	assert_false(secret_equal(s, "a\0c", 3));
	assert_false(secret_equal(s, "a", 1));
	assert_false(secret_equal(s, "a\0bc", 4));
	assert_memory_equal(secret_use(s), "a\0b", 4);
	auto_secret struct secret *none = secret_new(NULL, 0);
	assert_true(secret_equal(none, "", 0));
	char bytes[] = "wiped";
	secret_wipe(bytes, sizeof bytes);
	assert_memory_equal(bytes, "\0\0\0\0\0", sizeof bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocations_are_zeroed_aligned_and_do_not_overlap),
		cmocka_unit_test(test_strings_are_copied_and_formatted),
		cmocka_unit_test(test_what_the_arena_owns_is_destroyed_with_it_last_first),
		cmocka_unit_test(test_stealing_leaves_nothing_behind),
		cmocka_unit_test(test_a_secret_compares_by_all_its_bytes_and_may_hold_any),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
