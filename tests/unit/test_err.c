#include "../t.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

static void test_the_first_error_wins_until_it_is_replaced(void **state)
{
	(void)state;
	struct err e = { 0 };
	assert_int_equal(err_field(&e, ERR_BAD_REQUEST, "name", "Say %s.", "more"), -1);
	assert_int_equal(err_set(&e, ERR_INTERNAL, "Later."), -1);
	assert_int_equal(err_field(&e, ERR_INTERNAL, "x", "Later."), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_string_equal(e.msg, "Say more.");
	assert_string_equal(e.param, "name");
	e.reason = "why";
	assert_int_equal(err_replace(&e, ERR_NOT_FOUND, "Gone."), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_string_equal(e.param, "");
	assert_null(e.reason);
	err_clear(&e);
	assert_int_equal(e.code, ERR_NONE);
}

static void test_an_error_can_be_told_within_another(void **state)
{
	(void)state;
	struct err e = { 0 };
	(void)err_field(&e, ERR_NOT_FOUND, "id", "There is no such command.");
	assert_int_equal(err_replace(&e, ERR_UPSTREAM, "It is unknown (%s): %.300s", e.param, e.msg), -1);
	assert_string_equal(e.msg, "It is unknown (id): There is no such command.");
	assert_string_equal(e.param, "");
	assert_int_equal(e.code, ERR_UPSTREAM);
	e.code = ERR_NONE; /* and where the first error is still to come */
	(void)err_field(&e, ERR_INTERNAL, e.msg + strlen(e.msg) - 2, "[%s]", e.msg);
	assert_string_equal(e.msg, "[It is unknown (id): There is no such command.]");
	assert_string_equal(e.param, "d.");
}

/* HTTP-4 */
static void test_details_are_gathered_and_the_first_is_the_error(void **state)
{
	(void)state;
	struct err e = { 0 };
	for (int i = 0; i < ERR_DETAILS_MAX + 3; i++)
		assert_int_equal(err_detail(&e, ERR_BAD_REQUEST, i == 0 ? "a" : "b", "Number %d.", i), -1);
	assert_int_equal(e.n_details, ERR_DETAILS_MAX);
	assert_string_equal(e.msg, "Number 0.");
	assert_string_equal(e.param, "a");
	assert_string_equal(e.details[7].msg, "Number 7.");
}

static void test_a_message_that_is_cut_stays_valid_utf8(void **state)
{
	(void)state;
	static const char *const units[] = { "x", "é", "€", "😀", "xé" };
	for (size_t u = 0; u < 5; u++) {
		for (size_t lead = 0; lead < 8; lead++) {
			char text[4 * ERR_MSG_MAX] = "1234567";
			text[lead] = 0;
			while (strlen(text) < 2 * ERR_MSG_MAX)
				(void)strcat(text, units[u]);
			struct err e = { 0 };
			(void)err_detail(&e, ERR_BAD_REQUEST, "p", "%s", text);
			assert_in_range(strlen(e.msg), ERR_MSG_MAX - 8, ERR_MSG_MAX - 1);
			assert_int_equal(utf8_valid(e.msg, strlen(e.msg)), strlen(e.msg));
			assert_int_equal(
			    utf8_valid(e.details[0].msg, strlen(e.details[0].msg)), strlen(e.details[0].msg));
			assert_memory_equal(e.msg, text, strlen(e.msg));
		}
	}
}

static void test_every_code_has_a_status_a_name_a_type_and_an_exit_status(void **state)
{
	(void)state;
	for (int c = ERR_NONE + 1; c < ERR_MAX_; c++) {
		enum err_code code = (enum err_code)c;
		assert_in_range(err_http(code), 400, 507);
		assert_true(strlen(err_name(code)) > 3);
		assert_non_null(strchr(err_type(code), '_'));
		assert_in_range(err_exit(code), 64, 78);
		assert_int_equal(err_from_http(err_http(code)), code);
	}
	assert_int_equal(err_from_http(418), ERR_BAD_REQUEST);
	assert_int_equal(err_from_http(599), ERR_UPSTREAM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_error_wins_until_it_is_replaced),
		cmocka_unit_test(test_an_error_can_be_told_within_another),
		cmocka_unit_test(test_details_are_gathered_and_the_first_is_the_error),
		cmocka_unit_test(test_a_message_that_is_cut_stays_valid_utf8),
		cmocka_unit_test(test_every_code_has_a_status_a_name_a_type_and_an_exit_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
