#include "../t.h"

#include <string.h>

#include "forge/refpolicy.h"

#define A    "1111111111111111111111111111111111111111"
#define B    "2222222222222222222222222222222222222222"
#define Z    "0000000000000000000000000000000000000000"
#define Z256 Z "000000000000000000000000"
#define MINE "refs/heads/agent/x"

static const struct ref_rights grant = { .grant_ref = MINE, .default_branch = "main" };
static const struct ref_rights member = { .default_branch = "main" };

static bool allowed(const struct ref_rights *r, const struct ref_change *c, size_t n, const char *says)
{
	struct err e = { 0 };
	int rc = refpolicy_judge(r, c, n, &e);
	if (rc != 0 && says != NULL)
		assert_non_null(strstr(e.msg, says));
	assert_int_equal(rc == 0, e.code == ERR_NONE);
	return rc == 0;
}

/* FRG-3 */
static void a_grant_moves_only_its_own_branch_forward(void **s)
{
	(void)s;
	const struct {
		struct ref_change c;
		const char *says; /* NULL: allowed */
	} rows[] = {
		{ { MINE, Z, A, false }, NULL },
		{ { MINE, A, B, false }, NULL },
		{ { MINE, A, B, true }, "force" },
		{ { MINE, A, Z, false }, "delete" },
		{ { MINE, A, Z, true }, "delete" },
		{ { MINE, A, Z256, false }, "delete" },
		{ { MINE, Z, Z, false }, "delete" },
		{ { "refs/heads/main", A, B, false }, "not refs/heads/main" },
		{ { "refs/heads/agent/x2", Z, A, false }, "not refs/heads/agent/x2" },
		{ { "refs/heads/agent/X", Z, A, false }, "not refs/heads/agent/X" },
		{ { "refs/heads/agent", Z, A, false }, "not refs/heads/agent" },
		{ { "refs/tags/agent/x", Z, A, false }, "not refs/tags" },
		{ { "refs/heads/refs/heads/agent/x", Z, A, false }, "not refs/heads/refs" },
		{ { "agent/x", Z, A, false }, "not agent/x" },
		{ { "HEAD", A, B, false }, "not HEAD" },
		{ { "", A, B, false }, "not" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_int_equal(allowed(&grant, &rows[i].c, 1, rows[i].says), rows[i].says == NULL);
}

/* FRG-3: none, two, the same twice: refused although each alone would do. */
static void a_grant_pushes_exactly_one_ref(void **s)
{
	(void)s;
	const struct ref_change c[3] = { { MINE, Z, A, false }, { MINE, Z, A, false },
		{ "refs/heads/o", Z, A, false } };
	assert_false(allowed(&grant, c, 0, "names 0"));
	assert_true(allowed(&grant, c, 1, NULL));
	assert_false(allowed(&grant, c, 2, "names 2"));
	assert_false(allowed(&grant, c + 1, 2, "names 2"));
	assert_false(allowed(&grant, c, 3, "names 3"));
}

/* FRG-3: grants that nobody issues are refused all the same. */
static void a_grant_for_the_default_branch_or_a_tag_is_worth_nothing(void **s)
{
	(void)s;
	const struct ref_rights on_main = { .grant_ref = "refs/heads/main", .default_branch = "main" };
	const struct ref_rights on_tag = { .grant_ref = "refs/tags/v1", .default_branch = "main" };
	const struct ref_rights on_head = { .grant_ref = "HEAD", .default_branch = "main" };
	assert_false(
	    allowed(&on_main, &(struct ref_change){ "refs/heads/main", A, B, false }, 1, "default branch"));
	assert_false(allowed(&on_tag, &(struct ref_change){ "refs/tags/v1", Z, A, false }, 1, "branch"));
	assert_false(allowed(&on_head, &(struct ref_change){ "HEAD", A, B, false }, 1, "branch"));
}

static void a_push_without_stated_rights_is_refused(void **s)
{
	(void)s;
	const struct ref_change c = { MINE, Z, A, false };
	assert_false(allowed(&(struct ref_rights){ .grant_ref = MINE }, &c, 1, "not judged"));
	assert_false(allowed(&(struct ref_rights){ .default_branch = "" }, &c, 1, "not judged"));
}

/* FRG-3: any branch of its org, several at once, by force, deletes; an empty push harms nobody. */
static void a_member_pushes_any_branch_and_tag(void **s)
{
	(void)s;
	const struct ref_change all[] = { { "refs/heads/main", A, B, true },
		{ "refs/heads/a/b", A, Z, false }, { "refs/tags/v1", Z, A, false },
		{ "refs/heads/\xc3\xa4", Z, A, false }, { "refs/heads/-x", A, Z, false } };
	assert_true(allowed(&member, all, sizeof all / sizeof *all, NULL));
	assert_true(allowed(&member, NULL, 0, NULL));
}

/* In every way of saying it, and only the branch: a tag of that name goes. */
static void nobody_deletes_the_default_branch(void **s)
{
	(void)s;
	const struct ref_change gone[] = { { "refs/heads/main", A, Z, false },
		{ "refs/heads/main", A, Z256, false }, { "refs/heads/main", A, Z, true } };
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
		const struct ref_change two[] = { { "refs/heads/x", Z, A, false }, gone[i] };
		assert_false(allowed(&member, &gone[i], 1, "default branch main cannot be deleted"));
		assert_false(allowed(&member, two, 2, "default branch main cannot be deleted"));
	}
	assert_true(allowed(&member, &(struct ref_change){ "refs/tags/main", A, Z, false }, 1, NULL));
	assert_true(allowed(&member, &(struct ref_change){ "refs/heads/main2", A, Z, false }, 1, NULL));
}

static void a_member_stays_among_branches_and_tags(void **s)
{
	(void)s;
	const char *const refs[] = { ("refs/replace/" A), "refs/pull/1/head", "refs/for/main", "refs/weird",
		"HEAD", "refs/heads", "refs/heads/-x", "refs/heads/HEAD", "refs/tags/-v", "" };
	for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
		const struct ref_change two[] = { { "refs/heads/ok", Z, A, false },
			{ refs[i], Z, A, false } };
		assert_false(allowed(&member, two, 2, refs[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_grant_moves_only_its_own_branch_forward),
		cmocka_unit_test(a_grant_pushes_exactly_one_ref),
		cmocka_unit_test(a_grant_for_the_default_branch_or_a_tag_is_worth_nothing),
		cmocka_unit_test(a_push_without_stated_rights_is_refused),
		cmocka_unit_test(a_member_pushes_any_branch_and_tag),
		cmocka_unit_test(nobody_deletes_the_default_branch),
		cmocka_unit_test(a_member_stays_among_branches_and_tags),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
