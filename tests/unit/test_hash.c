#include "../t.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../chance.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"

static void test_sha256_is_the_published_one(void **state)
{
	(void)state;
	char hex[SHA256_HEX];
	sha256_hex("abc", 3, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_hex("", 0, hex);
	assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* Beside OpenSSL's, told to do as many rounds. */
static void test_siphash_is_the_published_one(void **state)
{
	(void)state;
	unsigned char key[SIPHASH_KEY], text[40], sum[8];
	uint64_t seed = 1;
	unsigned int once = 1, thrice = 3;
	size_t size = sizeof sum;
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
	const OSSL_PARAM params[] = { OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_C_ROUNDS, &once),
		OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_D_ROUNDS, &thrice),
		OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size), OSSL_PARAM_construct_end() };
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (unsigned char)(i * 37);
	for (size_t n = 0; n <= sizeof text; n++) {
		chance_bytes(&seed, key, sizeof key);
		assert_int_equal(EVP_MAC_init(ctx, key, sizeof key, params), 1);
		assert_int_equal(EVP_MAC_update(ctx, text, n), 1);
		assert_int_equal(EVP_MAC_final(ctx, sum, &size, sizeof sum), 1);
		uint64_t ours = siphash(key, text, n);
		for (size_t i = 0; i < 8; i++)
			assert_int_equal(ours >> 8 * i & 0xff, sum[i]);
	}
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
}

/* As many as there are slots: a good spread leaves 37 % empty, and none with many. */
static void test_names_are_spread_over_the_slots(void **state)
{
	(void)state;
	enum { SLOTS = 1000 };
	int in[SLOTS] = { 0 }, empty = 0;
	char name[32];
	for (int i = 0; i < SLOTS; i++) {
		(void)snprintf(name, sizeof name, "ses_%d", i);
		size_t at = hash_slot(name, SLOTS);
		assert_in_range(at, 0, SLOTS - 1);
		assert_int_equal(at, hash_slot(name, SLOTS));
		in[at]++;
	}
	for (int i = 0; i < SLOTS; i++) {
		empty += in[i] == 0;
		assert_in_range(in[i], 0, 12);
	}
	assert_in_range(empty, 300, 440);
}

/* RFC 4648, section 10 */
static void test_base64_is_the_published_one_and_reads_back_what_it_wrote(void **state)
{
	(void)state;
	static const char *const rows[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" } };
	char text[B64_SIZE(300)];
	unsigned char raw[300], back[300];
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(b64_encode(rows[i][0], strlen(rows[i][0]), text), strlen(rows[i][1]));
		assert_string_equal(text, rows[i][1]);
	}
	srand(3);
	for (size_t n = 0; n <= 300; n++) {
		for (size_t i = 0; i < n; i++)
			raw[i] = (unsigned char)rand();
		size_t len = b64_encode(raw, n, text);
		assert_int_equal(len + 1, B64_SIZE(n));
		assert_int_equal(b64_decode(text, len, back), n);
		assert_memory_equal(back, raw, n);
	}
}

static void test_base64_that_is_not_exactly_so_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = { "Z", "Zg", "Zg=", "Zg===", "=",
		"====", "Z===", "Zh==", "Zm9=", "Zm9v\n", "Zm 9", "Zm-_", "Zg==Zg==", "Zm9vZg=v" };
	unsigned char out[16];
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (b64_decode(bad[i], strlen(bad[i]), out) != -1)
			fail_msg("%s was taken", bad[i]);
}

static void test_hex_reads_back_and_refuses_what_is_none(void **state)
{
	(void)state;
	unsigned char all[256], back[256];
	char text[513];
	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	hex_encode(all, 256, text);
	assert_int_equal(hex_decode(text, back, 256), 256);
	assert_memory_equal(back, all, 256);
	assert_int_equal(hex_decode("aBCd", back, 2), 2);
	assert_memory_equal(back, "\xab\xcd", 2);
	assert_int_equal(hex_decode("abc", back, 9), -1);
	assert_int_equal(hex_decode("ag", back, 9), -1);
	assert_int_equal(hex_decode("abcd", back, 1), -1);
	assert_int_equal(hex_decode("", back, 0), 0);
}

/* HTTP-8 */
static void test_ids_have_their_form_and_sort_by_time(void **state)
{
	(void)state;
	char was[ID_MAX], is[ID_MAX];
	id_make("ses", was);
	assert_true(id_is("ses", was));
	assert_int_equal(strlen(was), 4 + ID_TAIL);
	assert_string_equal(id_tail(was), was + 4);
	assert_string_equal(id_tail("nothing"), "nothing");
	int64_t begin = clock_wall_ms();
	while (clock_wall_ms() <= begin)
		;
	id_make("ses", is);
	assert_true(strcmp(was, is) < 0);
	static const char *const bad[] = { "", "ses", "ses_", "run_01hzy3v9k2m4n6p8q0r2s4t6v8",
		"ses_01hzy3v9k2m4n6p8q0r2s4t6v", "ses_01hzy3v9k2m4n6p8q0r2s4t6v88",
		"ses_01HZY3V9K2M4N6P8Q0R2S4T6V8", "ses_01hzy3v9k2m4n6p8q0r2s4t6vu",
		"ses_01hzy3v9k2m4n6p8q0r2s4t6v/", "sess_01hzy3v9k2m4n6p8q0r2s4t6v8" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(id_is("ses", bad[i]));
	assert_false(id_is("ses", NULL));
	assert_true(id_is("ses", "ses_01hzy3v9k2m4n6p8q0r2s4t6v8"));
}

enum { THREADS = 4, EACH = 5000 };
static char made[THREADS * EACH][ID_MAX];

static void *make_many(void *arg)
{
	char(*to)[ID_MAX] = arg;
	for (int i = 0; i < EACH; i++)
		id_make("x", to[i]);
	return NULL;
}

static int order(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void test_no_two_ids_are_alike_though_made_in_the_same_millisecond_by_several_threads(void **state)
{
	(void)state;
	pthread_t t[THREADS];
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, make_many, made + i * EACH), 0);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	qsort(made, THREADS * EACH, ID_MAX, order);
	for (size_t i = 1; i < THREADS * EACH; i++)
		assert_string_not_equal(made[i - 1], made[i]);
}

/* HTTP-8 */
static void test_times_are_rfc_3339_in_utc_with_milliseconds(void **state)
{
	(void)state;
	char text[CLOCK_TEXT];
	clock_rfc3339(0, text);
	assert_string_equal(text, "1970-01-01T00:00:00.000Z");
	clock_rfc3339(951782400007, text);
	assert_string_equal(text, "2000-02-29T00:00:00.007Z");
	clock_rfc3339(4102444799999, text);
	assert_string_equal(text, "2099-12-31T23:59:59.999Z");
}

/* A file's times may be any number. */
static void a_time_that_four_digits_of_a_year_cannot_say_is_cut(void **state)
{
	(void)state;
	char text[CLOCK_TEXT];
	clock_rfc3339(-1, text);
	assert_string_equal(text, "1969-12-31T23:59:59.999Z");
	clock_rfc3339(-1000, text);
	assert_string_equal(text, "1969-12-31T23:59:59.000Z");
	clock_rfc3339(INT64_MIN, text);
	assert_string_equal(text, "0000-01-01T00:00:00.000Z");
	clock_rfc3339(253402300800000, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
	clock_rfc3339(INT64_MAX, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
}

static void test_a_deadline_never_has_less_than_nothing_left(void **state)
{
	(void)state;
	assert_int_equal(clock_left_ms(clock_ms() - 5), 0);
	assert_int_equal(clock_left_ms(0), 0);
	assert_in_range(clock_left_ms(clock_ms() + 100000), 90000, 100000);
	assert_int_equal(clock_left_ms(INT64_MAX), 0x7fffffff);
}

/* What is drawn for many at once is handed out once: not to two threads, and not to a child and its parent. */
static void test_what_is_random_comes_once_also_in_a_child(void **state)
{
	(void)state;
	unsigned char a[16], b[16], theirs[16];
	int fds[2], status;
	random_some(a, sizeof a);
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		random_some(b, sizeof b);
		_exit(write(fds[1], b, sizeof b) == (ssize_t)sizeof b ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(fds[0], theirs, sizeof theirs), sizeof theirs);
	for (int i = 0; i < 200; i++) {
		random_some(b, sizeof b);
		assert_memory_not_equal(a, b, sizeof a);
		assert_memory_not_equal(theirs, b, sizeof b);
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256_is_the_published_one),
		cmocka_unit_test(test_siphash_is_the_published_one),
		cmocka_unit_test(test_names_are_spread_over_the_slots),
		cmocka_unit_test(test_what_is_random_comes_once_also_in_a_child),
		cmocka_unit_test(test_base64_is_the_published_one_and_reads_back_what_it_wrote),
		cmocka_unit_test(test_base64_that_is_not_exactly_so_is_refused),
		cmocka_unit_test(test_hex_reads_back_and_refuses_what_is_none),
		cmocka_unit_test(test_ids_have_their_form_and_sort_by_time),
		cmocka_unit_test(
		    test_no_two_ids_are_alike_though_made_in_the_same_millisecond_by_several_threads),
		cmocka_unit_test(test_times_are_rfc_3339_in_utc_with_milliseconds),
		cmocka_unit_test(a_time_that_four_digits_of_a_year_cannot_say_is_cut),
		cmocka_unit_test(test_a_deadline_never_has_less_than_nothing_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
