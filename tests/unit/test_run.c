/* The sequence of a run, good days and bad ones. What a run goes through when processes end: test_run_again.c. */
#include "../span.h"
#include "../t.h"

#include <string.h>

#include "../fakebox.h"
#include "../runtest.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"

/* ---- good days */

/* COD-5, COD-6, COD-10, COD-16 */
static void a_change_comes_back_as_a_pushed_branch(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "good", tip);
	run(&d,
	    task("good", "python", "# Add a line\nopen('a.txt', 'a').write('four\\n')\nprint('working')"));
	assert_over(&d, "done");
	assert_string_equal(story(&d),
	    "status:start step:leased step:fetch step:checkout step:tool tool-call:exit step:tool "
	    "step:commit step:collect step:check "
	    "step:push step:ended step:verify result");
	const char *commit = js_str(d.last, "commit");
	assert_true(js_bool(d.last, "changed", false) && js_bool(d.last, "ok", false));
	assert_string_equal(js_str(d.last, "branch"), branch_of(&d));
	assert_string_equal(in_remote("good", "rev-parse", branch_of(&d)), commit);
	assert_string_equal(in_remote("good", "rev-parse", mem_fmt(mem, "%s^", commit)), tip);
	assert_string_equal(
	    in_remote("good", "show", mem_fmt(mem, "%s:a.txt", commit)), "one\ntwo\nthree\nfour");
	assert_string_equal(in_remote("good", "show", mem_fmt(mem, "%s:sub/b.txt", commit)), "bee");
	auto_free char *log = gittest_out(
	    &gits, "good.git", NULL, 0, "log", "-1", "--format=%an|%ae|%cn|%B", commit, (char *)0);
	assert_string_equal(log,
	    mem_fmt(mem, "gatehouse agent|agent@gatehouse.invalid|gatehouse agent|# Add a line\n\nRun: %s\n",
		d.ids.session));
	const json_t *stat = js_get(d.last, "diffstat");
	assert_int_equal(js_int(stat, "files", 0), 1);
	assert_int_equal(js_int(stat, "insertions", 0), 1);
	assert_string_equal(js_str(d.last, "logTail"), "working\n");
	assert_int_equal(js_int(d.last, "attempts", 0), 1);
	assert_string_equal(js_str(step(&d, "exit"), "message"), "exit 0");
	assert_string_equal(js_str(d.row, "commit"), commit);
}

/* COD-7: the first request carries the credential already, and so does every other. */
static void the_remote_is_never_asked_without_the_credential(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "cred", tip);
	gittest_write(&gits, "password", "x-access-token:" TOKEN);
	gittest_write(&gits, "requests", "");
	run(&d, task("cred", "python", "open('a.txt', 'w')"));
	gittest_python(&gits,
	    "import os, sys; os.remove('password'); lines = open('requests').read().splitlines()\n"
	    "assert len(lines) > 4 and all(l.endswith(' x-access-token:' + sys.argv[1]) for l in lines), "
	    "lines\n"
	    "assert not any('main' in l for l in lines)",
	    TOKEN, NULL);
	assert_over(&d, "done");
}

/* COD-2 */
static void a_run_without_repository_has_no_git_at_all(void **s)
{
	(void)s;
	struct done d = { 0 };
	gittest_write(&gits, "requests", "");
	run(&d, js_pack("{s:s,s:s}", "tool", "node", "prompt", "console.log(6 * 7)"));
	assert_over(&d, "done");
	assert_string_equal(
	    story(&d), "status:start step:leased step:tool tool-call:exit step:tool step:ended result");
	assert_false(js_bool(d.last, "changed", true));
	assert_true(json_is_null(json_object_get(d.last, "branch")));
	assert_string_equal(js_str(d.last, "logTail"), "42\n");
	gittest_python(&gits, "assert open('requests').read() == ''", NULL);
}

/* COD-6 */
static void no_change_is_a_success_without_a_push(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "same", tip);
	run(&d, task("same", "python", "print('looked')"));
	assert_over(&d, "done");
	assert_false(js_bool(d.last, "changed", true));
	assert_true(json_is_null(json_object_get(d.last, "commit")));
	assert_true(json_is_null(json_object_get(d.last, "url")));
	assert_not_pushed("same");
}

static void an_empty_repository_gets_its_first_branch(void **s)
{
	(void)s;
	struct done d = { 0 };
	gittest(&gits, ".", "init", "-q", "--bare", "--initial-branch=main", "void.git");
	run(&d, task("void", "python", "open('README', 'w').write('x\\n')"));
	assert_over(&d, "done");
	assert_string_equal(in_remote("void", "for-each-ref", "--format=%(refname)"),
	    mem_fmt(mem, "refs/heads/%s", branch_of(&d)));
	assert_int_equal(js_int(js_get(d.last, "diffstat"), "insertions", 0), 1);
}

/* COD-3: also one that is too long for an argument, with the checkout's modules at hand as for a short one. */
static void a_prompt_of_a_mebibyte_runs(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID], *prompt = mem_alloc(mem, LIMIT_PROMPT_BYTES + 1);
	static const char head[] = "import sub; open('n', 'w').write(sub.__path__[0][-3:])\n#";
	memset(prompt, 'x', LIMIT_PROMPT_BYTES);
	memcpy(prompt, head, sizeof head - 1);
	gittest_repo(&gits, "long", tip);
	run(&d, task("long", "python", prompt));
	assert_over(&d, "done");
	assert_string_equal(in_remote("long", "show", mem_fmt(mem, "%s:n", branch_of(&d))), "sub");
	auto_free char *files = gittest_out(
	    &gits, "long.git", NULL, 0, "ls-tree", "--name-only", branch_of(&d), (char *)0);
	assert_string_equal(files, "a.txt\nn\nsub"); /* and not the prompt's file */
}

static void a_prompt_that_begins_with_a_dash_is_a_program(void **s)
{
	(void)s;
	struct done d = { 0 }, n = { 0 };
	run(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "-print(7)"));
	assert_string_equal(js_str(d.row, "state"), "error"); /* a TypeError of python, not a usage message */
	assert_non_null(strstr(js_str(d.last, "logTail"), "TypeError"));
	run(&n, js_pack("{s:s,s:s}", "tool", "node", "prompt", "-console.log(8)"));
	assert_over(&n, "done");
	assert_string_equal(js_str(n.last, "logTail"), "8\n");
}

/* ---- tools that do odd things */

static void what_the_tool_commits_itself_on_another_branch_is_taken(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "own", tip);
	run(&d,
	    task("own", "python",
		"import subprocess as p\np.check_call(['git', 'checkout', '-qb', 'mine'])\nopen('one\\ntwo', "
		"'w').write('x')\n"
		"p.check_call(['git', 'add', '-A'])\np.check_call(['git', 'commit', '-qm', 'by "
		"hand'])\nopen('b', 'w')"));
	assert_over(&d, "done");
	assert_string_equal(in_remote("own", "rev-parse", mem_fmt(mem, "%s~2", branch_of(&d))), tip);
	auto_free char *log = gittest_out(
	    &gits, "own.git", NULL, 0, "log", "-1", "--format=%an %s", "--skip=1", branch_of(&d), (char *)0);
	assert_string_equal(log, "gatehouse agent by hand");
	auto_free char *refs = gittest_out(&gits, "own.git", NULL, 0, "branch", "--list", "mine", (char *)0);
	assert_string_equal(refs, "");
}

/* COD-7: hooks run where nothing is to steal; helpers and insteadOf of the checkout are not the runner's. */
static void what_a_tool_plants_in_the_checkout_sees_no_credential(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "plant", tip);
	gittest_write(&gits, "requests", "");
	const char *seen = mem_fmt(mem, "%s/seen", gits.dir);
	run(&d,
	    task("plant", "python",
		mem_fmt(mem,
		    "import os, subprocess as p\n"
		    "hook = '#!/bin/sh\\nenv >> %s; cat /proc/*/cmdline >> %s; cat >> %s; git remote -v >> "
		    "%s\\n'\n"
		    "for h in 'pre-commit', 'pre-push', 'post-commit', 'reference-transaction':\n"
		    "    os.makedirs('.git/hooks', exist_ok=True); open('.git/hooks/' + h, 'w').write(hook)\n"
		    "    os.chmod('.git/hooks/' + h, 0o755)\n"
		    "p.check_call(['git', 'config', 'credential.helper', '!tee -a %s'])\n"
		    "p.check_call(['git', 'config', 'url.http://127.0.0.1:1/.insteadOf', 'http://'])\n"
		    "p.check_call(['git', 'config', '--global', 'url.http://127.0.0.1:1/.insteadOf', "
		    "'http://'])\n"
		    "p.Popen(['sh', '-c', 'sleep 3; cat /proc/*/cmdline >> %s'], start_new_session=True,\n"
		    "    stdin=p.DEVNULL, stdout=p.DEVNULL, stderr=p.DEVNULL)\n"
		    "open('a.txt', 'w')",
		    seen, seen, seen, seen, seen, seen)));
	assert_over(&d, "done");
	gittest_python(&gits,
	    "import base64, sys; seen = open('seen', 'rb').read(); t = sys.argv[1].encode()\n"
	    "assert b'origin' in seen and t not in seen and base64.b64encode(b'x-access-token:' + t) not in "
	    "seen",
	    TOKEN, NULL);
}

static void a_rewritten_repository_is_refused(void **s)
{
	(void)s;
	struct done d = { 0 }, gone = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "rewrite", tip);
	run(&d,
	    task("rewrite", "python",
		"import shutil, subprocess as p; shutil.rmtree('.git'); p.check_call(['git', 'init', "
		"'-q'])"));
	assert_over(&d, "error");
	assert_non_null(strstr(js_str(d.last, "message"), "The change"));
	assert_string_equal(js_str(d.last, "code"), "change_refused");
	run(&gone, task("rewrite", "python", "import shutil; shutil.rmtree('.git')"));
	assert_over(&gone, "error");
	assert_non_null(strstr(js_str(gone.last, "message"), "can no longer be read"));
	assert_not_pushed("rewrite");
}

static void output_that_is_no_text_and_without_end_is_told(void **s)
{
	(void)s;
	struct done d = { 0 };
	run(&d,
	    js_pack("{s:s,s:s}", "tool", "python", "prompt",
		"import sys; o = sys.stdout.buffer; o.write(b'\\xff\\xfe start\\n')\n"
		"for i in range(2000): o.write(b'0123456789' * 5000 + b'\\n')\n"
		"o.write(b'the end \\x80')"));
	assert_over(&d, "done");
	assert_non_null(strstr(js_str(d.last, "logTail"), "the end \xef\xbf\xbd"));
	assert_true(json_array_size(d.lines) < 40);
}

/* COD-8 */
static void a_tool_that_prints_the_credential_is_not_repeated(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "leak", tip);
	run(&d,
	    task("leak", "python",
		"import base64; t = 'the-t0ken-' + 'of-the-remote'\nprint(t); print(base64.b64encode(b'x:' + "
		"t.encode()))\n"
		"open(t, 'w'); open('a.txt', 'w')"));
	assert_over(&d, "done"); /* looks for the token in every line */
	assert_null(strstr(text_of(&d), "dGhlLXQwa2VuLW9mLXRoZS1yZW1vdGU"));
	assert_non_null(strstr(text_of(&d), "[redacted]"));
}

/* ---- bad days */

static void a_failed_tool_pushes_nothing(void **s)
{
	(void)s;
	struct done d = { 0 }, killed = { 0 }, slow = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "fail", tip);
	run(&d, task("fail", "python", "open('a.txt', 'w'); print('oh'); raise SystemExit(3)"));
	assert_over(&d, "error");
	assert_string_equal(js_str(d.last, "message"), "python failed: exit 3");
	assert_string_equal(js_str(d.last, "code"), "tool_failed");
	assert_string_equal(js_str(d.last, "logTail"), "oh\n");
	run(&killed, task("fail", "python", "import os; os.kill(os.getpid(), 9)"));
	assert_string_equal(js_str(killed.last, "message"), "python failed: killed by SIGKILL");
	json_t *body = task("fail", "python", "import time; time.sleep(60)");
	js_set(body, "timeoutSec", json_integer(1));
	run(&slow, body);
	assert_over(&slow, "error");
	assert_string_equal(js_str(slow.last, "message"), "python failed: timed out after 1 s");
	assert_not_pushed("fail");
}

static void a_base_that_does_not_exist_is_named(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "nobase", tip);
	json_t *body = task("nobase", "python", "1");
	js_set_str(body, "base", "release/9");
	run(&d, body);
	assert_over(&d, "error");
	assert_non_null(strstr(js_str(d.last, "message"), "no branch release/9"));
	assert_string_equal(story(&d), "status:start step:leased step:ended error");
}

static void a_push_that_is_refused_fails_the_run(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "locked", tip);
	gittest_write(&gits, "refuse-push", "");
	run(&d, task("locked", "python", "open('a.txt', 'w')"));
	gittest_python(&gits, "import os; os.remove('refuse-push')", NULL);
	assert_over(&d, "error");
	assert_non_null(strstr(js_str(d.last, "message"), "Pushing the branch failed"));
	assert_null(step(&d, "verify"));
}

static void a_clone_url_does_not_lead_into_our_own_network(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "inside", tip);
	gittest_write(&gits, "requests", "");
	json_t *body = task("inside", "python", "1");
	(void)json_object_del(body, "credential");
	js_set_str(body, "cloneUrl", mem_fmt(mem, "http://localhost:%d/inside.git", runtest_port()));
	run(&d, body);
	assert_over(&d, "error");
	assert_non_null(strstr(js_str(d.last, "message"), "not a public one"));
	gittest_python(&gits, "assert open('requests').read() == ''", NULL);
}

static void a_remote_that_is_away_for_a_moment_costs_nothing(void **s)
{
	(void)s;
	struct done d = { .end_ms = 60000 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "distant", tip);
	gittest_write(&gits, "away", "1");
	run(&d,
	    task("distant", "python",
		mem_fmt(mem, "open('a.txt', 'w'); open('%s/away', 'w').write('1')", gits.dir)));
	assert_over(&d, "done");
	gittest_python(&gits, "assert open('away').read() == '0'", NULL);
}

/* SBX-40: what is not known is not a success. */
static void a_lost_channel_fails_the_run(void **s)
{
	(void)s;
	struct done d = { 0 };
	char tip[GITTEST_ID];
	gittest_repo(&gits, "lost", tip);
	fakebox.lose_channel = true;
	run(&d, task("lost", "python", "open('a.txt', 'w')"));
	fakebox.lose_channel = false;
	assert_over(&d, "error");
	assert_non_null(strstr(js_str(d.last, "message"), "lost"));
	assert_non_null(strstr(js_str(step(&d, "exit"), "message"), "unknown"));
	assert_not_pushed("lost");
}

static void no_room_for_a_lease_fails_with_the_nodes_words(void **s)
{
	(void)s;
	struct done d = { 0 };
	fakebox.refuse = "Every node is full.";
	run(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "1"));
	fakebox.refuse = NULL;
	assert_over(&d, "error");
	assert_string_equal(js_str(d.last, "message"), "Every node is full.");
	assert_string_equal(story(&d), "status:start error");
}

static void a_full_node_is_waited_for(void **s)
{
	(void)s;
	struct done d = { 0 };
	fakebox.full = 2;
	run(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "print(1)"));
	assert_over(&d, "done");
	assert_string_equal(story(&d),
	    "status:start step:lease step:leased step:tool tool-call:exit step:tool step:ended result");
}

/* No longer than the run may take itself. */
static void a_node_that_stays_full_fails_the_run_at_its_time_out(void **s)
{
	(void)s;
	struct done d = { 0 };
	fakebox.full = 1000;
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "print(1)"));
	pgtest_sql(server, "UPDATE runs SET timeout_s = 2 WHERE state = 'queued'");
	claim(&d);
	struct span t = span_begin();
	work(&d);
	int64_t ms = clock_ms() - t.began_ms, counts_ms = span_ms(&t);
	fakebox.full = 0;
	assert_over(&d, "error");
	assert_true(ms >= 2000 && counts_ms < 10000);
	assert_string_equal(js_str(d.last, "code"), "nodes_full");
	assert_string_equal(story(&d), "status:start step:lease error");
}

/* COD-5, BIL-1: the gate comes before the lease, also for a run that waited while the money went. */
static void a_run_without_balance_ends_before_anything_is_leased(void **s)
{
	(void)s;
	struct done d = { 0 };
	post(&d, js_pack("{s:s,s:s}", "tool", "python", "prompt", "print(1)"));
	claim(&d);
	runtest_billing("closed");
	work(&d);
	runtest_billing("open");
	assert_over(&d, "error");
	assert_string_equal(js_str(d.last, "code"), "insufficient_quota");
	assert_string_equal(story(&d), "status:start error");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, runtest_begin, runtest_end)
	const struct CMUnitTest tests[] = {
		T(a_change_comes_back_as_a_pushed_branch),
		T(the_remote_is_never_asked_without_the_credential),
		T(a_run_without_repository_has_no_git_at_all),
		T(no_change_is_a_success_without_a_push),
		T(an_empty_repository_gets_its_first_branch),
		T(a_prompt_of_a_mebibyte_runs),
		T(a_prompt_that_begins_with_a_dash_is_a_program),
		T(what_the_tool_commits_itself_on_another_branch_is_taken),
		T(what_a_tool_plants_in_the_checkout_sees_no_credential),
		T(a_rewritten_repository_is_refused),
		T(output_that_is_no_text_and_without_end_is_told),
		T(a_tool_that_prints_the_credential_is_not_repeated),
		T(a_failed_tool_pushes_nothing),
		T(a_base_that_does_not_exist_is_named),
		T(a_push_that_is_refused_fails_the_run),
		T(a_clone_url_does_not_lead_into_our_own_network),
		T(a_remote_that_is_away_for_a_moment_costs_nothing),
		T(a_lost_channel_fails_the_run),
		T(no_room_for_a_lease_fails_with_the_nodes_words),
		T(a_full_node_is_waited_for),
		T(a_node_that_stays_full_fails_the_run_at_its_time_out),
		T(a_run_without_balance_ends_before_anything_is_leased),
	};
	return cmocka_run_group_tests_name("run", tests, runtest_setup, runtest_teardown);
}
