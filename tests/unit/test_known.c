/* Who was identified a moment ago: for how long it is believed, and that nobody becomes somebody else by it (ID-5, ID-6). */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "auth/known.h"
#include "base/clock.h"

static struct mem *mem;

static struct cred_parts parts_of(const char *id, char secret)
{
	struct cred_parts p = { .kind = CRED_KEY };
	(void)snprintf(p.id, sizeof p.id, "%s", id);
	memset(p.hash, secret, SHA256_HEX - 1);
	return p;
}

static struct principal of_org(const char *id, const char *org)
{
	return (struct principal){ .kind = CRED_KEY,
		.cred_id = id,
		.org = org,
		.user = "ann",
		.scopes = "git keys",
		.org_admin = true };
}

static int start(void **s)
{
	(void)s;
	mem = mem_new();
	return 0;
}

static int stop(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

static void a_key_is_known_with_all_that_its_row_says(void **s)
{
	(void)s;
	struct cred_parts a = parts_of("key_a", 'a');
	struct principal p = of_org("key_a", "acme");
	assert_null(known_find(mem, &a));
	known_keep(&a, &p, known_ask());
	const struct principal *got = known_find(mem, &a);
	assert_non_null(got);
	assert_string_equal(got->cred_id, "key_a");
	assert_string_equal(got->org, "acme");
	assert_string_equal(got->user, "ann");
	assert_string_equal(got->scopes, "git keys");
	assert_true(got->org_admin && !got->super_admin && got->kind == CRED_KEY);
	known_forget("key_a");
}

/* From before the row was read, whatever reading it took. */
static void it_is_believed_for_half_a_second(void **s)
{
	(void)s;
	struct cred_parts a = parts_of("key_a", 'a');
	struct principal p = of_org("key_a", "acme");
	struct known_asked asked = known_ask();
	asked.ms = clock_ms() - KNOWN_MS;
	known_keep(&a, &p, asked);
	assert_null(known_find(mem, &a));
	assert_true(KNOWN_MS <= 500);
}

static void another_secret_or_another_key_is_not_known_by_it(void **s)
{
	(void)s;
	struct cred_parts a = parts_of("key_a", 'a'), wrong = parts_of("key_a", 'b'),
			  other = parts_of("key_b", 'a');
	struct principal p = of_org("key_a", "acme");
	known_keep(&a, &p, known_ask());
	assert_null(known_find(mem, &wrong));
	assert_null(known_find(mem, &other));
	known_forget("key_a");
}

/* More keys than there are places: each is itself or not known. */
static void no_key_is_ever_that_of_another_org(void **s)
{
	(void)s;
	enum { KEYS = 5000 };
	int n = 0;
	for (int i = 0; i < KEYS; i++) {
		char id[32], org[32];
		(void)snprintf(id, sizeof id, "key_%d", i);
		(void)snprintf(org, sizeof org, "org-%d", i);
		struct cred_parts k = parts_of(id, 'c');
		struct principal p = of_org(id, org);
		known_keep(&k, &p, known_ask());
	}
	for (int i = 0; i < KEYS; i++) {
		char id[32], org[32];
		(void)snprintf(id, sizeof id, "key_%d", i);
		(void)snprintf(org, sizeof org, "org-%d", i);
		struct cred_parts k = parts_of(id, 'c');
		const struct principal *got = known_find(mem, &k);
		n += got != NULL;
		if (got != NULL)
			assert_string_equal(got->org, org);
		known_forget(id);
	}
	assert_true(n > 0 && n < KEYS);
}

static void what_was_read_before_a_revocation_is_not_kept_after_it(void **s)
{
	(void)s;
	struct cred_parts a = parts_of("key_a", 'a');
	struct principal p = of_org("key_a", "acme");
	struct known_asked asked = known_ask();
	known_forget("key_a"); /* by another thread, while the row is read */
	known_keep(&a, &p, asked);
	assert_null(known_find(mem, &a));
	known_keep(&a, &p, known_ask());
	assert_non_null(known_find(mem, &a));
	known_forget("key_a");
	assert_null(known_find(mem, &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_is_known_with_all_that_its_row_says),
		cmocka_unit_test(it_is_believed_for_half_a_second),
		cmocka_unit_test(another_secret_or_another_key_is_not_known_by_it),
		cmocka_unit_test(no_key_is_ever_that_of_another_org),
		cmocka_unit_test(what_was_read_before_a_revocation_is_not_kept_after_it),
	};
	return cmocka_run_group_tests_name("known", tests, start, stop);
}
