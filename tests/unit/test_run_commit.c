/* What becomes of a tool's work when committing it goes wrong (COD-6). Rows that need a user without rights: flow_run.c. */
#include "../t.h"

#include <string.h>

#include "../fakebox.h"
#include "../runtest.h"
#include "base/js.h"

#define GIT_BY_HAND                                                                                          \
	"import os, subprocess as p\n"                                                                       \
	"def git(*a): p.check_call(['git', *a])\n"                                                           \
	"def hook(name, text):\n"                                                                            \
	"    os.makedirs('.git/hooks', exist_ok=True); open('.git/hooks/' + name, "                          \
	"'w').write('#!/bin/sh\\n' + "                                                                       \
	"text)\n"                                                                                            \
	"    os.chmod('.git/hooks/' + name, 0o755)\n"

/* The run of `program` in a repository of its own. */
static void work_on(struct done *d, const char *repo, const char *program)
{
	char tip[GITTEST_ID];
	gittest_repo(&gits, repo, tip);
	run(d, task(repo, "python", mem_fmt(mem, GIT_BY_HAND "%s", program)));
}

static void assert_refused(const struct done *d, const char *repo, const char *words)
{
	assert_over((struct done *)(uintptr_t)d, "error");
	assert_string_equal(js_str(d->last, "code"), "commit_failed");
	if (strstr(js_str(d->last, "message"), words) == NULL)
		fail_msg("\"%s\" is not in: %s", words, js_str(d->last, "message"));
	assert_not_pushed(repo);
}

static void work_that_cannot_be_committed_is_an_error_with_gits_words(void **s)
{
	(void)s;
	static const struct {
		const char *repo, *program, *words;
	} rows[] = {
		{ "hook", "open('new', 'w'); hook('pre-commit', 'echo no tabs here; exit 1')",
		    "no tabs here" },
		{ "msghook", "open('new', 'w'); hook('commit-msg', 'echo bad subject >&2; exit 7')",
		    "bad subject" },
		{ "case", "os.makedirs('.GIT/hooks'); open('.GIT/hooks/x', 'w')", ".GIT/hooks" },
		{ "index", "open('.git/index', 'wb').write(b'garbage' * 99); open('new', 'w')", "index" },
		{ "lockdir", "os.makedirs('.git/index.lock/x'); open('new', 'w')", "index.lock" },
		{ "unborn", "git('init', '-q', 'inner'); open('inner/f', 'w')", "inner" },
		{ "object",
		    "import shutil; shutil.rmtree('.git/objects'); open('.git/objects', 'w'); "
		    "open('new', 'w')",
		    "" },
		{ "back", "open('new', 'w'); hook('post-commit', 'git reset -q --soft HEAD^')",
		    "began with" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct done d = { 0 };
		work_on(&d, rows[i].repo, rows[i].program);
		assert_refused(&d, rows[i].repo, rows[i].words);
	}
}

/* With nothing to commit, a hook that would refuse a commit has nothing to refuse. */
static void nothing_to_commit_is_measured(void **s)
{
	(void)s;
	struct done d = { 0 }, ignored = { 0 };
	work_on(&d, "calm", "hook('pre-commit', 'exit 1')");
	assert_over(&d, "done");
	assert_false(js_bool(d.last, "changed", true));
	work_on(&ignored, "ignored", "open('.git/info-x', 'w'); os.makedirs('empty/dir')");
	assert_over(&ignored, "done");
	assert_false(js_bool(ignored.last, "changed", true));
}

static void the_lock_of_a_killed_git_is_no_obstacle(void **s)
{
	(void)s;
	struct done d = { 0 };
	work_on(&d, "stale", "open('new', 'w').write('kept\\n'); open('.git/index.lock', 'w')");
	assert_over(&d, "done");
	assert_string_equal(
	    in_remote("stale", "show", mem_fmt(mem, "%s:new", js_str(d.last, "commit"))), "kept");
}

static void what_the_tool_committed_is_delivered_and_the_rest_is_told(void **s)
{
	(void)s;
	struct done d = { 0 };
	work_on(&d, "half",
	    "open('one', 'w'); git('add', '-A'); git('commit', '-qm', 'by hand'); open('two', 'w')\n"
	    "hook('pre-commit', 'echo enough >&2; exit 1')");
	assert_over(&d, "done");
	assert_true(js_bool(d.last, "changed", false));
	auto_free char *files = gittest_out(
	    &gits, "half.git", NULL, 0, "ls-tree", "--name-only", branch_of(&d), (char *)0);
	assert_string_equal(files, "a.txt\none\nsub");
	const json_t *said = step(&d, "commit");
	assert_string_equal(js_str(said, "status"), "failed");
	assert_non_null(strstr(js_str(said, "message"), "Only what the tool committed itself"));
	assert_non_null(strstr(js_str(said, "message"), "enough"));
}

/* Git records a commit's id for it, and a push sends nothing else. */
static void a_repository_inside_the_checkout_is_named(void **s)
{
	(void)s;
	struct done d = { 0 };
	work_on(&d, "outer",
	    "open('new', 'w'); git('init', '-q', 'inner'); open('inner/f', 'w')\n"
	    "git('-C', 'inner', 'add', '-A'); git('-C', 'inner', 'commit', '-qm', 'x')");
	assert_over(&d, "done");
	const json_t *inner = js_get(js_get(d.last, "diffstat"), "repositories");
	assert_int_equal(json_array_size(inner), 1);
	assert_string_equal(json_string_value(json_array_get(inner, 0)), "inner");
	assert_non_null(strstr(text_of(&d), "inner is a repository of its own"));
	/* And who goes on from there is told before anything is lost in it. */
	struct done next = { 0 };
	json_t *body = task("outer", "python", "open('inner/lost', 'w')");
	js_set_str(body, "base", branch_of(&d));
	run(&next, body);
	assert_over(&next, "done");
	assert_false(js_bool(next.last, "changed", true));
	assert_non_null(strstr(text_of(&next), "inner is a repository of its own and empty here"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, runtest_begin, runtest_end)
	const struct CMUnitTest tests[] = {
		T(work_that_cannot_be_committed_is_an_error_with_gits_words),
		T(nothing_to_commit_is_measured),
		T(the_lock_of_a_killed_git_is_no_obstacle),
		T(a_repository_inside_the_checkout_is_named),
		T(what_the_tool_committed_is_delivered_and_the_rest_is_told),
	};
	return cmocka_run_group_tests_name("run_commit", tests, runtest_setup, runtest_teardown);
}
