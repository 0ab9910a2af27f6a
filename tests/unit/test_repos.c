#include "../t.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../forgetest.h"
#include "auth/cred.h"
#include "forge/propose.h"
#include "forge/repo.h"
#include "io/file.h"

/* ---- repositories */

static void a_repository_is_created_listed_read_and_deleted(void **s) /* FRG-1 */
{
	(void)s;
	const json_t *made = must(&ada, "create_repo", js_pack("{s:s}", "name", "demo"));
	assert_string_equal(js_str(made, "cloneUrl"), "https://gh.test/v1/git/acme/demo.git");
	assert_string_equal(js_str(made, "page"), "https://gh.test/git/acme/demo");
	assert_string_equal(js_str(made, "defaultBranch"), "main");
	assert_null(js_str(made, "project"));
	assert_string_equal(GIT("demo", "symbolic-ref", "HEAD"), "refs/heads/main");
	const json_t *got = must(&ada, "get_repo", js_pack("{s:s}", "repo", "demo"));
	assert_true(json_equal(got, made));
	const json_t *list = must(&ada, "list_repos", json_object());
	assert_true(json_equal(json_array_get(json_object_get(list, "data"), 0), made));
	refused(&ada, "create_repo", js_pack("{s:s}", "name", "demo"), ERR_CONFLICT,
	    "already is a repository demo");
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "demo"));
	assert_int_not_equal(access(dir_of("demo"), F_OK), 0);
	refused(&ada, "get_repo", js_pack("{s:s}", "repo", "demo"), ERR_NOT_FOUND, "no repository demo");
	refused(&ada, "delete_repo", js_pack("{s:s}", "repo", "demo"), ERR_NOT_FOUND, "no repository demo");
	assert_int_equal(entries("acme") + entries(".gatehouse/new") + entries(".gatehouse/trash"), 0);
}

static void a_bad_name_leaves_nothing_behind(void **s) /* FRG-1 */
{
	(void)s;
	char long_name[301];
	memset(long_name, 'x', 300);
	long_name[300] = 0;
	const char *const rows[][2] = { { "..", "begin with" }, { "a..b", "'..'" },
		{ "a/b", "may only hold" }, { "a b", "may only hold" }, { "d\xc3\xa9mo", "may only hold" },
		{ "repos", "reserved" }, { long_name, "longer than 100" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(
		    &ada, "create_repo", js_pack("{s:s}", "name", rows[i][0]), ERR_BAD_REQUEST, rows[i][1]);
	refused(&ada, "create_repo", js_pack("{s:s, s:s}", "name", "x", "defaultBranch", "-x"),
	    ERR_BAD_REQUEST, "begin with '-'");
	assert_int_equal(entries("acme"), 0);
	assert_int_equal(
	    json_array_size(json_object_get(must(&ada, "list_repos", json_object()), "data")), 0);
}

static void another_orgs_repository_does_not_exist(void **s) /* ID-4 */
{
	(void)s;
	create("mine");
	static const char *const ops[] = { "get_repo", "delete_repo" };
	struct err theirs, none;
	for (size_t i = 0; i < 2; i++) {
		assert_null(call(&bob, ops[i], js_pack("{s:s}", "repo", "mine"), &theirs));
		assert_null(call(&bob, ops[i], js_pack("{s:s}", "repo", "nope"), &none));
		assert_int_equal(theirs.code, ERR_NOT_FOUND);
		assert_string_equal(theirs.msg, "There is no repository mine in this organisation.");
		assert_int_equal(none.code, ERR_NOT_FOUND);
	}
	refused(
	    &bob, "issue_grant", js_pack("{s:s, s:s}", "repo", "mine", "ref", "x"), ERR_NOT_FOUND, "mine");
	assert_int_equal(
	    json_array_size(json_object_get(must(&bob, "list_repos", json_object()), "data")), 0);
	assert_int_equal(access(dir_of("mine"), F_OK), 0);
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "mine"));
}

static void a_projects_repository_has_no_page(void **s) /* FRG-7 */
{
	(void)s;
	const json_t *made = must(&ada, "create_repo",
	    js_pack("{s:s, s:s, s:s}", "name", "inner", "project", "p1", "defaultBranch", "trunk"));
	assert_string_equal(js_str(made, "page"), "");
	assert_string_equal(js_str(made, "project"), "p1");
	assert_string_equal(GIT("inner", "symbolic-ref", "HEAD"), "refs/heads/trunk");
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "inner"));
}

static void what_a_crash_left_is_replaced_and_swept(void **s) /* REL-1 */
{
	(void)s;
	struct err e = { 0 };
	/* A directory without a row, and what is half built, half removed and temporary: some of long ago, some of now. */
	static const char *const left[] = { "acme/again.git/objects", ".gatehouse/new/new_x",
		".gatehouse/trash/old_x/objects", ".gatehouse/tmp/x", ".gatehouse/new/new_y",
		".gatehouse/tmp/y" };
	const struct timespec long_ago[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(
		    file_mkdirs(mem_fmt(forgetest.mem, "%s/%s", forgetest.root, left[i]), 0755, &e), 0);
	static const char *const old[] = { "new/new_x", "trash/old_x", "tmp/x" };
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(
		    utimensat(AT_FDCWD, mem_fmt(forgetest.mem, "%s/.gatehouse/%s", forgetest.root, old[i]),
			long_ago, 0),
		    0);
	create("again");
	assert_string_equal(GIT("again", "rev-parse", "--is-bare-repository"), "true");
	assert_int_equal(entries(".gatehouse/new"), 1);
	assert_int_equal(entries(".gatehouse/tmp"), 1);
	/* The directory without a row. */
	assert_int_equal(entries(".gatehouse/trash"), 1);
	static const char *const rest[] = { "new", "tmp", "trash" };
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(
		    file_rmtree(mem_fmt(forgetest.mem, "%s/.gatehouse/%s", forgetest.root, rest[i]), &e), 0);
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "again"));
	assert_int_equal(entries("acme"), 0);
}

static void a_repository_that_cannot_be_built_has_no_row(void **s) /* FRG-1 */
{
	(void)s;
	struct err e = { 0 };
	/* Where the organisation's directory should be is a file. */
	const char *path = mem_fmt(forgetest.mem, "%s/other", forgetest.root);
	assert_int_equal(file_write(path, "", 0, 0644, &e), 0);
	assert_null(call(&bob, "create_repo", js_pack("{s:s}", "name", "x"), &e));
	assert_null(strstr(e.msg, forgetest.root));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(entries(".gatehouse/new"), 0);
	(void)must(&bob, "create_repo", js_pack("{s:s}", "name", "x"));
	(void)must(&bob, "delete_repo", js_pack("{s:s}", "repo", "x"));
}

/* ---- grants, propose, tip */

static void a_grant_is_for_one_branch_that_is_not_the_default(void **s) /* FRG-3 */
{
	(void)s;
	const char *const bad[][2] = { { "main", "default branch" }, { "refs/heads/main", "default branch" },
		{ "refs/tags/v1", "branch name" }, { "refs/heads/refs/x", "branch name" }, { "HEAD", "HEAD" },
		{ "-x", "'-'" }, { "a b", "only hold" }, { "a*", "only hold" } };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(&ada, "issue_grant", js_pack("{s:s, s:s}", "repo", "work", "ref", bad[i][0]),
		    ERR_BAD_REQUEST, bad[i][1]);
	refused(&ada, "issue_grant", js_pack("{s:s, s:s, s:i}", "repo", "work", "ref", "x", "ttlSec", 86401),
	    ERR_BAD_REQUEST, "ttlSec");
	const json_t *out = must(
	    &ada, "issue_grant", js_pack("{s:s, s:s, s:i}", "repo", "work", "ref", "agent/x", "ttlSec", 60));
	struct err e = { 0 };
	const struct principal *who;
	auto_pg struct pg *db = pg_take(forgetest.pool, 60000, &e);
	assert_int_equal(principal_of(forgetest.mem, db, js_str(out, "grant"), &who, &e), 0);
	assert_non_null(who);
	assert_string_equal(who->repo, "work");
	assert_string_equal(who->ref, "refs/heads/agent/x");
	refused(
	    who, "issue_grant", js_pack("{s:s, s:s}", "repo", "work", "ref", "y"), ERR_FORBIDDEN, "grant");
	refused(who, "push_files", push("agent/x", js_pack("[o]", file("a", "1"))), ERR_FORBIDDEN, "grant");
}

static size_t grants_of(const char *repo)
{
	return json_array_size(
	    json_object_get(must(&ada, "list_grants", js_pack("{s:s}", "repo", repo)), "data"));
}

static void a_grant_is_listed_until_it_is_taken_back(void **s) /* FRG-3, ID-4 */
{
	(void)s;
	create("taken");
	create("beside");
	const json_t *out = must(&ada, "issue_grant", js_pack("{s:s, s:s}", "repo", "taken", "ref", "x"));
	const char *id = js_str(out, "id");
	(void)must(&ada, "issue_grant", js_pack("{s:s, s:s}", "repo", "taken", "ref", "y"));
	assert_int_equal(grants_of("taken"), 2);
	assert_int_equal(grants_of("beside"), 0);
	/* Ids of one millisecond are in no order. */
	const json_t *both = json_object_get(
			 must(&ada, "list_grants", js_pack("{s:s}", "repo", "taken")), "data"),
		     *row = json_array_get(both, 0);
	if (strcmp(js_str(row, "id"), id) != 0)
		row = json_array_get(both, 1);
	assert_string_equal(js_str(row, "id"), id);
	assert_string_equal(js_str(row, "ref"), "refs/heads/x");
	assert_string_equal(js_str(row, "user"), "ada");
	refused(&bob, "list_grants", js_pack("{s:s}", "repo", "taken"), ERR_NOT_FOUND, "no repository taken");
	refused(&bob, "revoke_grant", js_pack("{s:s, s:s}", "repo", "taken", "id", id), ERR_NOT_FOUND,
	    "no repository taken");
	refused(&ada, "revoke_grant", js_pack("{s:s, s:s}", "repo", "beside", "id", id), ERR_NOT_FOUND,
	    "no such grant");
	(void)must(&ada, "revoke_grant", js_pack("{s:s, s:s}", "repo", "taken", "id", id));
	struct err e = { 0 };
	const struct principal *who;
	auto_pg struct pg *db = pg_take(forgetest.pool, 60000, &e);
	assert_int_equal(principal_of(forgetest.mem, db, js_str(out, "grant"), &who, &e), 0);
	assert_null(who);
	pg_put(steal(db));
	assert_int_equal(grants_of("taken"), 1);
	refused(&ada, "revoke_grant", js_pack("{s:s, s:s}", "repo", "taken", "id", id), ERR_NOT_FOUND,
	    "no such grant");
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "taken"));
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "beside"));
}

static void a_grant_ends_with_its_repository(void **s) /* FRG-3 */
{
	(void)s;
	create("brief");
	const json_t *out = must(&ada, "issue_grant", js_pack("{s:s, s:s}", "repo", "brief", "ref", "x"));
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "brief"));
	create("brief");
	struct err e = { 0 };
	const struct principal *who;
	auto_pg struct pg *db = pg_take(forgetest.pool, 60000, &e);
	assert_int_equal(principal_of(forgetest.mem, db, js_str(out, "grant"), &who, &e), 0);
	assert_null(who);
	pg_put(steal(db));
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "brief"));
}

static void a_tip_is_read_from_storage(void **s) /* COD-5 */
{
	(void)s;
	const char *id = pushed("agent/x", js_pack("[o]", file("a", "1")));
	static const char *const none[] = { "main", "agent", "agent/x2", "agent/x^", "-x",
		"refs/heads/agent/x", "agent/x~0" };
	const json_t *out = must(NULL, "forge_tip",
	    js_pack("{s:s, s:s, s:s}", "org", "acme", "repo", "work", "branch", "agent/x"));
	assert_string_equal(js_str(out, "commit"), id);
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		refused(NULL, "forge_tip",
		    js_pack("{s:s, s:s, s:s}", "org", "acme", "repo", "work", "branch", none[i]),
		    ERR_NOT_FOUND, "no branch");
	refused(NULL, "forge_tip",
	    js_pack("{s:s, s:s, s:s}", "org", "other", "repo", "work", "branch", "agent/x"), ERR_NOT_FOUND,
	    "no repository");
}

static void a_proposal_is_the_branchs_page(void **s) /* FRG-7 */
{
	(void)s;
	struct reply reply = { 0 };
	struct ctx c = forgetest_ctx(&ada, &reply);
	struct err e = { 0 };
	const struct repo plain = { .org = "acme", .name = "work", .default_branch = "main" };
	const struct repo inner = { .org = "acme", .name = "work", .default_branch = "main", .project = "p" };
	assert_string_equal(
	    propose(&c, &plain, "agent/01x", &e), "https://gh.test/git/acme/work?ref=agent%2F01x");
	assert_string_equal(propose(&c, &inner, "agent/01x", &e), "");
	char too_long[202];
	memset(too_long, 'x', 201);
	too_long[201] = 0;
	const char *const bad[] = { "-x", "--upload-pack=touch /tmp/x", "a b", "a\tb", "", "main", too_long };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		err_clear(&e);
		assert_null(propose(&c, &plain, bad[i], &e));
		assert_int_equal(e.code, ERR_BAD_REQUEST);
		assert_string_equal(e.param, "head");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repository_is_created_listed_read_and_deleted),
		cmocka_unit_test(a_bad_name_leaves_nothing_behind),
		cmocka_unit_test(another_orgs_repository_does_not_exist),
		cmocka_unit_test(a_projects_repository_has_no_page),
		cmocka_unit_test(what_a_crash_left_is_replaced_and_swept),
		cmocka_unit_test(a_repository_that_cannot_be_built_has_no_row),
		WORK(a_grant_is_for_one_branch_that_is_not_the_default),
		cmocka_unit_test(a_grant_is_listed_until_it_is_taken_back),
		cmocka_unit_test(a_grant_ends_with_its_repository),
		WORK(a_tip_is_read_from_storage),
		cmocka_unit_test(a_proposal_is_the_branchs_page),
	};
	return cmocka_run_group_tests_name("repos", tests, forgetest_start, forgetest_end);
}
