#include "../t.h"

#include <string.h>

#include "forge/repo.h"

struct row {
	const char *name, *says; /* says NULL: fine */
};
#define X10  "xxxxxxxxxx"
#define X100 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10

static void check(const struct row *r, int rc, const struct err *e, const char *param)
{
	if (r->says == NULL) {
		assert_int_equal(rc, 0);
		return;
	}
	assert_int_equal(rc, -1);
	assert_int_equal(e->code, ERR_BAD_REQUEST);
	assert_string_equal(e->param, param);
	if (strstr(e->msg, r->says) == NULL)
		fail_msg("\"%s\": \"%s\" does not say \"%s\"", r->name, e->msg, r->says);
}

/* FRG-1 */
static void a_repository_name_is_refused_with_the_rule_it_breaks(void **s)
{
	(void)s;
	const struct row rows[] = { { "demo", NULL }, { "Demo.2_x-y", NULL }, { "0", NULL }, { "a.b", NULL },
		{ "repos2", NULL }, { "git", NULL }, { X100, NULL }, { "", "is empty" },
		{ X100 "x", "longer than 100" }, { X100 X100 X100, "longer than 100" },
		{ "a/b", "only hold" }, { "a b", "only hold" }, { "../x", "only hold" },
		{ "..", "begin with" }, { ".", "begin with" }, { ".git", "begin with" },
		{ "-x", "begin with" }, { "_x", "begin with" }, { "a..b", "'..'" }, { "x.", "end with '.'" },
		{ "x.git", ".git" }, { "x.GIT", ".git" }, { "x.lock", ".lock" }, { "repos", "reserved" },
		{ "Repos", "reserved" }, { "d\xc3\xa9mo", "only hold" }, { "a\nb", "only hold" },
		{ "a\\b", "only hold" }, { "a%2fb", "only hold" }, { "a?b", "only hold" },
		{ "\x7f", "only hold" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		check(&rows[i], repo_name_check(rows[i].name, &e), &e, "name");
	}
}

/* FRG-7, COD-4 */
static void a_branch_name_is_refused_with_the_rule_it_breaks(void **s)
{
	(void)s;
	const struct row rows[] = { { "main", NULL }, { "agent/01jd", NULL }, { "a/b/c.d", NULL },
		{ "fix/#12", NULL }, { "v1.0@x", NULL }, { "heads/x", NULL }, { X100 X100, NULL },
		{ "", "is empty" }, { X100 X100 "x", "longer than 200" }, { "-x", "begin with '-'" },
		{ "--upload-pack=x", "begin with '-'" }, { "a b", "only hold" }, { "a\tb", "only hold" },
		{ "a\nb", "only hold" }, { "a~1", "only hold" }, { "a^", "only hold" },
		{ "a:b", "only hold" }, { "a?b", "only hold" }, { "a*", "only hold" }, { "a[b", "only hold" },
		{ "a\\b", "only hold" }, { "a@{1}", "only hold" }, { "\xc3\xa4", "only hold" },
		{ "<b>", "only hold" }, { "HEAD", "HEAD" }, { "head", "HEAD" }, { "@", "HEAD" },
		{ "refs/heads/main", "without refs/heads/" }, { "a..b", "'..'" }, { "a.", "end with '.'" },
		{ "/a", "'/'" }, { "a/", "'/'" }, { "a//b", "'//'" }, { ".a", "begins with '.'" },
		{ "a/.b", "begins with '.'" }, { "a.lock", ".lock" }, { "a.lock/b", ".lock" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		check(&rows[i], branch_check(rows[i].name, "head", &e), &e, "head");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repository_name_is_refused_with_the_rule_it_breaks),
		cmocka_unit_test(a_branch_name_is_refused_with_the_rule_it_breaks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
