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
		ssize_t len = b64_decode(a + 11, strlen(a) - 11, raw);
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

/* The expected digits come from another implementation (Python's hmac and hashlib). */
static void test_a_fingerprint_is_the_same_for_the_same_bytes_purpose_and_key_only(void **state)
{
	(void)state;
	char mac[SEAL_MAC], again[SEAL_MAC], changed[SEAL_MAC];
	struct err e = { 0 };
	struct seal_key *k = load("0123456789abcdef0123456789abcdef", 32, 0600, &e);
	seal_mac(k, "once", "hunter2", 7, mac);
	seal_mac(k, "once", "hunter2", 7, again);
	assert_string_equal(mac, again);
	assert_string_equal(mac, "dbb186b7419f8d8af2526b1fb21bad287d8a934a4fe4b2385bf6ef6115cc01ad");
	assert_int_equal(seal_mac_is(k, "once", "hunter2", 7, mac), SEAL_MAC_SAME);
	assert_int_equal(seal_mac_is(k, "once", "hunter3", 7, mac), SEAL_MAC_OTHER);
	assert_int_equal(seal_mac_is(k, "once", "hunter2", 6, mac), SEAL_MAC_OTHER);
	assert_int_equal(seal_mac_is(k, "twice", "hunter2", 7, mac), SEAL_MAC_OTHER);
	for (size_t i = 0; i < SEAL_MAC - 1; i++) {
		memcpy(changed, mac, sizeof changed);
		changed[i] = changed[i] == '0' ? '1' : '0';
		assert_int_equal(seal_mac_is(k, "once", "hunter2", 7, changed),
		    i < SEAL_ID - 1 ? SEAL_MAC_LOST : SEAL_MAC_OTHER);
	}
	assert_int_equal(seal_mac_is(k, "once", "hunter2", 7, ""), SEAL_MAC_LOST);
	mac[SEAL_MAC - 2] = 0;
	assert_int_equal(seal_mac_is(k, "once", "hunter2", 7, mac), SEAL_MAC_LOST);
	seal_free(k);
	struct seal_key *other = load("1123456789abcdef0123456789abcdef", 32, 0600, &e);
	assert_int_equal(seal_mac_is(other, "once", "hunter2", 7, again), SEAL_MAC_LOST);
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

/* ---- rotation: SEC-6 */

static const char first[] = "1111111111111111111111111111111111111111111111111111111111111111\n",
		  second[] = "2222222222222222222222222222222222222222222222222222222222222222\n",
		  third[] = "# comments and empty lines are fine\n\n"
			    "3333333333333333333333333333333333333333333333333333333333333333\n";

static void file_is(struct mem *m, const char *a, const char *b, const char *c)
{
	struct err e = { 0 };
	const char *text = mem_fmt(m, "%s%s%s", a, b, c);
	assert_int_equal(file_write(file, text, strlen(text), 0600, &e), 0);
}

static bool opens(const struct seal_key *k, const char *text)
{
	struct err e = { 0 };
	auto_secret struct secret *s = seal_open(k, "run_1", text, &e);
	return s != NULL && secret_equal(s, "hunter2", 7);
}

static void test_the_newest_key_seals_and_all_open(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct seal_info info[2 * SEAL_KEYS_MAX];
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	file_is(m, first, "", "");
	struct seal_key *k = seal_load(file, &e), *late = seal_load(file, &e);
	assert_non_null(k);
	const char *a = seal(m, k, "run_1", s);
	file_is(m, first, second, third);
	const char *c = seal(m, k, "run_1", s); /* the changed file is noticed */
	assert_int_equal(seal_list(k, info), 3);
	assert_true(info[2].newest && strncmp(info[2].id, c + 2, 8) == 0);
	assert_true(!info[0].newest && strncmp(info[0].id, a + 2, 8) == 0);
	assert_memory_not_equal(a, c, 11);
	assert_true(opens(k, a) && opens(k, c));
	assert_true(opens(late, c)); /* a process that nobody told meets a key it does not know */
	char prefix[SEAL_ID + 3];
	seal_prefix(k, prefix);
	assert_int_equal(strncmp(c, prefix, strlen(prefix)), 0);
	/* A key's place says nothing about another's: the id of one with the value of another does not open. */
	char *mixed = mem_str(m, a);
	memcpy(mixed + 2, c + 2, 8);
	refused(k, "run_1", mixed);
	seal_free(k);
	seal_free(late);
}

static void test_what_was_sealed_before_keys_had_ids_opens(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	file_is(m, first, "", "");
	struct seal_key *k = seal_load(file, &e);
	const char *old = mem_fmt(m, "1:%s", seal(m, k, "run_1", s) + 11);
	assert_true(opens(k, old));
	file_is(m, first, second, third);
	assert_int_equal(seal_reload(k, &e), 0);
	assert_true(opens(k, old));
	refused(k, "run_2", old);
	seal_free(k);
}

static void test_a_key_goes_only_when_it_is_forgotten(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct seal_info info[2 * SEAL_KEYS_MAX];
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	file_is(m, first, "", "");
	struct seal_key *k = seal_load(file, &e);
	const char *a = seal(m, k, "run_1", s);
	file_is(m, second, "", "");
	assert_int_equal(seal_reload(k, &e), 0);
	assert_int_equal(seal_list(k, info), 2);
	assert_true(!info[0].in_file && info[1].in_file && info[1].newest);
	assert_true(opens(k, a));
	char gone[SEAL_ID];
	memcpy(gone, info[0].id, sizeof gone);
	seal_forget(k, info[1].id); /* is in the file: nothing happens */
	seal_forget(k, gone);
	assert_int_equal(seal_list(k, info), 1);
	assert_false(opens(k, a));
	assert_true(opens(k, seal(m, k, "run_1", s)));
	seal_free(k);
}

static void test_a_bad_file_keeps_the_keys_that_are_there(void **state)
{
	(void)state;
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_secret struct secret *s = secret_new("hunter2", 7);
	file_is(m, first, "", "");
	struct seal_key *k = seal_load(file, &e);
	const char *many = "";
	for (int i = 0; i < SEAL_KEYS_MAX + 1; i++)
		many = mem_fmt(m, "%s%064d\n", many, i);
	const char *const bad[] = { "", "\n", "# nothing\n", "11\n", " 1111\n", many,
		mem_fmt(m, "%s%s", first, first), mem_fmt(m, "%sx\n", first), mem_fmt(m, "%.64s \n", first),
		mem_fmt(m, "%s%20000s\n", first, "") };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		file_is(m, bad[i], "", "");
		err_clear(&e);
		assert_int_equal(seal_reload(k, &e), -1);
		assert_non_null(strstr(e.msg, "SECRET_KEY_FILE"));
		assert_true(opens(k, seal(m, k, "run_1", s)));
	}
	seal_free(k);
}

static void test_a_dropped_key_is_overwritten_in_its_place(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct seal_info info[2 * SEAL_KEYS_MAX];
	auto_mem struct mem *m = mem_new();
	auto_buf struct buf text = BUF(4096);
	file_is(m, first, third, second);
	struct seal_key *k = seal_load(file, &e);
	assert_int_equal(seal_list(k, info), 3);
	assert_int_equal(seal_drop(k, info[2].id, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(seal_drop(k, "00000000", &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(seal_drop(k, info[0].id, &e), 0);
	assert_int_equal(file_read(file, &text, &e), 0);
	assert_null(strstr(buf_c(&text), "1111"));
	assert_non_null(strstr(buf_c(&text), third));
	assert_int_equal(text.n, strlen(first) + strlen(second) + strlen(third));
	struct seal_key *again = seal_load(file, &e);
	assert_int_equal(seal_list(again, info), 2);
	seal_free(again);
	seal_free(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_sealed_opens_again_whatever_its_length_and_shows_nothing),
		cmocka_unit_test(test_any_changed_character_another_subject_or_another_key_does_not_open),
		cmocka_unit_test(test_a_fingerprint_is_the_same_for_the_same_bytes_purpose_and_key_only),
		cmocka_unit_test(test_a_key_is_32_bytes_or_64_hex_digits_in_a_file_for_its_owner_only),
		cmocka_unit_test(test_the_newest_key_seals_and_all_open),
		cmocka_unit_test(test_what_was_sealed_before_keys_had_ids_opens),
		cmocka_unit_test(test_a_key_goes_only_when_it_is_forgotten),
		cmocka_unit_test(test_a_bad_file_keeps_the_keys_that_are_there),
		cmocka_unit_test(test_a_dropped_key_is_overwritten_in_its_place),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
