#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/seal.h"
#include "base/hash.h"
#include "io/file.h"

static char dir[64], file[80];
static struct seal_key *key;

static struct seal_key *load(const char *text, size_t n, mode_t mode, struct err *e)
{
	*e = (struct err){ 0 };
	assert_int_equal(file_write(file, text, n, mode, e), 0);
	return seal_load(file, e);
}

static int setup(void **state)
{
	(void)state;
	struct err e = { 0 };
	if (file_tmpdir("/tmp", dir, sizeof dir, &e) != 0)
		return -1;
	(void)snprintf(file, sizeof file, "%s/key", dir);
	key = load("0123456789abcdef0123456789abcdef", 32, 0600, &e);
	return key == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	struct err e = { 0 };
	seal_free(key);
	return file_rmtree(dir, &e);
}

/* SEC-6 */
static void test_what_is_sealed_opens_again_whatever_its_length_and_shows_nothing(void **state)
{
	(void)state;
	char plain[200];
	memset(plain, 'x', sizeof plain);
	for (size_t n = 0; n <= sizeof plain; n++) {
		struct err e = { 0 };
		auto_mem struct mem *m = mem_new();
		auto_secret struct secret *s = secret_new(plain, n);
		const char *a = seal(m, key, "run_1", s), *b = seal(m, key, "run_1", s);
		assert_string_not_equal(a, b); /* a nonce each */
		unsigned char raw[400];
		ssize_t len = b64_decode(a + 2, strlen(a) - 2, raw);
		assert_true(len > 0 && memmem(raw, (size_t)len, "xxxxxxxx", 8) == NULL);
		auto_secret struct secret *back = seal_open(key, "run_1", a, &e);
		assert_non_null(back);
		assert_true(secret_equal(back, plain, n));
	}
}

static void refused(const struct seal_key *k, const char *what, const char *text)
{
	struct err e = { 0 };
	auto_secret struct secret *s = seal_open(k, what, text, &e);
	assert_null(s);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_null(strstr(e.msg, "hunter2"));
}

static void test_any_changed_character_another_subject_or_another_key_does_not_open(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	char *text = seal(m, key, "run_1", s);
	refused(key, "run_2", text);
	refused(key, "run_", text);
	for (size_t i = 0; text[i] != 0; i++) {
		char was = text[i];
		text[i] = was == 'A' ? 'B' : 'A';
		refused(key, "run_1", text);
		text[i] = was;
	}
	for (size_t n = 0; n < strlen(text); n++)
		refused(key, "run_1", mem_strn(m, text, n));
	refused(key, "run_1", "");
	refused(key, "run_1", "hunter2");
	struct seal_key *other = load("1123456789abcdef0123456789abcdef", 32, 0600, &e);
	refused(other, "run_1", text);
	seal_free(other);
}

static void test_a_key_is_32_bytes_or_64_hex_digits_in_a_file_for_its_owner_only(void **state)
{
	(void)state;
	char hex[80];
	hex_encode("0123456789abcdef0123456789abcdef", 32, hex);
	hex[64] = '\n';
	struct err e;
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	for (size_t n = 64; n <= 65; n++) {
		struct seal_key *k = load(hex, n, 0400, &e);
		assert_non_null(k);
		auto_secret struct secret *back = seal_open(k, "x", seal(m, key, "x", s), &e);
		assert_non_null(back); /* the same key in its other form */
		seal_free(k);
	}
	static const mode_t open_modes[] = { 0640, 0604, 0660, 0610 };
	for (size_t i = 0; i < 4; i++) {
		assert_null(load(hex, 64, open_modes[i], &e));
		assert_non_null(strstr(e.msg, "SECRET_KEY_FILE"));
		assert_null(strstr(e.msg, dir));
	}
	static const size_t lengths[] = { 0, 1, 31, 33, 63 };
	for (size_t i = 0; i < 5; i++)
		assert_null(load(hex, lengths[i], 0600, &e));
	hex[10] = 'g';
	assert_null(load(hex, 64, 0600, &e));
	assert_null(seal_load(dir, &e));
	e = (struct err){ 0 };
	assert_null(seal_load("/no/such/key", &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_sealed_opens_again_whatever_its_length_and_shows_nothing),
		cmocka_unit_test(test_any_changed_character_another_subject_or_another_key_does_not_open),
		cmocka_unit_test(test_a_key_is_32_bytes_or_64_hex_digits_in_a_file_for_its_owner_only),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
