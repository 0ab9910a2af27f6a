/* flow_run.c - coding runs through all of it: nginx, api, runner, sandboxd, a real sandbox, the forge. */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "runs.h"

static struct stack stack;
static struct stack_org acme, other;

static char *text_of(const struct flow_run *r)
{
	return json_dumps(r->lines, JSON_COMPACT);
}

/* COD-5, COD-6, COD-10, STR-1 */
static void a_change_comes_back_as_a_branch_that_can_be_read(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "good");
	runs_do(&stack, &acme,
	    runs_task("python", "good",
		"# Say two\nopen('a.txt', 'a').write('two\\n')\nopen('new\\nline', 'w')\nprint('working')"),
	    &r);
	runs_check(&r, "result");
	const char *branch = js_str(r.last, "branch");
	assert_true(js_bool(r.last, "changed", false));
	assert_string_equal(branch + strlen("agent/"), id_tail(r.session));
	auto_free char *tip = runs_tip(&stack, &acme, "good", branch),
		       *a = runs_file(&stack, &acme, "good", branch, "a.txt"),
		       *odd = runs_file(&stack, &acme, "good", branch, "new\nline");
	assert_string_equal(js_str(r.last, "commit"), tip);
	assert_string_equal(a, "one\ntwo");
	assert_string_equal(odd, "");
	assert_int_equal(js_int(js_get(r.last, "diffstat"), "files", 0), 2);
	assert_string_equal(js_str(r.last, "logTail"), "working\n");
	/* The page that the result names is there for people of the org. */
	auto_web struct web page = { 0 }, hidden = { 0 };
	const char *url = js_str(r.last, "url");
	assert_string_equal(url, js_str(js_get(r.last, "pr"), "url"));
	web_do(&stack, &(struct web_req){ .method = "GET", .path = strstr(url, "/git/"), .key = acme.member },
	    &page);
	assert_int_equal(page.status, 200);
	assert_non_null(strstr(page.body, "Say two"));
	web_do(&stack, &(struct web_req){ .method = "GET", .path = strstr(url, "/git/"), .key = other.key },
	    &hidden);
	assert_int_equal(hidden.status, 404);
	/* No credential of the run lives on. */
	runs_wait_sql(
	    &stack, "SELECT count(*) FROM credentials WHERE kind = 'grant' AND revoked_at IS NULL", "0");
}

/* COD-2, COD-6 */
static void a_run_may_have_no_repository_or_change_nothing(void **s)
{
	(void)s;
	auto_flow_run struct flow_run none = { 0 }, same = { 0 };
	runs_do(&stack, &acme,
	    runs_task("node", NULL, "console.log(require('fs').readdirSync('.').length, 6 * 7)"), &none);
	runs_check(&none, "result");
	assert_string_equal(js_str(none.last, "logTail"), "0 42\n");
	assert_null(runs_step(&none, "fetch", NULL));
	runs_repo(&stack, &acme, "same");
	runs_do(&stack, &acme, runs_task("python", "same", "print(open('a.txt').read())"), &same);
	runs_check(&same, "result");
	assert_false(js_bool(same.last, "changed", true));
	assert_null(runs_step(&same, "push", NULL));
}

static void an_empty_repository_gets_its_first_branch(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	auto_web struct web made = { 0 };
	web_json(&stack, "POST", "/v1/git/repos", acme.key, js_pack("{s:s}", "name", "void"), &made);
	runs_do(&stack, &acme, runs_task("python", "void", "open('README', 'w').write('first\\n')"), &r);
	runs_check(&r, "result");
	auto_free char *text = runs_file(&stack, &acme, "void", js_str(r.last, "branch"), "README");
	assert_string_equal(text, "first");
}

/* COD-3 */
static void prompts_of_any_kind_are_prompts(void **s)
{
	(void)s;
	auto_flow_run struct flow_run dash = { 0 }, large = { 0 };
	runs_do(&stack, &acme, runs_task("node", NULL, "-console.log('dash')"), &dash);
	runs_check(&dash, "result");
	auto_free char *prompt = xcalloc(1, LIMIT_PROMPT_BYTES + 1);
	memset(prompt, '#', LIMIT_PROMPT_BYTES);
	memcpy(prompt, "print('large')\n", 15);
	runs_do(&stack, &acme, runs_task("python", NULL, prompt), &large);
	runs_check(&large, "result");
	assert_string_equal(js_str(large.last, "logTail"), "large\n");
	auto_web struct web empty = { 0 }, longer = { 0 };
	web_json(&stack, "POST", "/v1/coding-tasks", acme.key, runs_task("python", NULL, ""), &empty);
	assert_int_equal(empty.status, 400);
	assert_string_equal(web_error(&empty, "param"), "prompt");
	auto_free char *over = xcalloc(1, LIMIT_PROMPT_BYTES + 2);
	memset(over, '#', LIMIT_PROMPT_BYTES + 1);
	web_json(&stack, "POST", "/v1/coding-tasks", acme.key, runs_task("python", NULL, over), &longer);
	assert_int_equal(longer.status, 400);
	assert_string_equal(web_error(&longer, "param"), "prompt");
}

/* COD-6: what only a user without rights and with little room can meet; the other rows are in test_run_commit.c. */
static void work_that_cannot_be_committed_is_an_error(void **s)
{
	(void)s;
	static const struct {
		const char *repo, *prompt, *words;
	} rows[] = {
		{ "unreadable", "import os; open('secret', 'w').write('x'); os.chmod('secret', 0)",
		    "secret" },
		{ "full",
		    "open('new', 'w').write('work')\nf = open('fill', 'wb', 0)\ntry:\n    while True: "
		    "f.write(b'x' * 4096)\nexcept OSError as e: print(e)",
		    "o space left" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_repo(&stack, &acme, rows[i].repo);
		runs_do(&stack, &acme, runs_task("python", rows[i].repo, rows[i].prompt), &r);
		runs_check(&r, "error");
		assert_string_equal(js_str(r.last, "code"), "commit_failed");
		if (strstr(js_str(r.last, "message"), rows[i].words) == NULL)
			fail_msg("\"%s\" is not in: %s", rows[i].words, js_str(r.last, "message"));
	}
}

/* COD-6 */
static void a_failed_tool_pushes_nothing_and_says_why(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "fail");
	runs_do(&stack, &acme,
	    runs_task("python", "fail", "open('a.txt', 'w'); print('oh no'); raise SystemExit(3)"), &r);
	runs_check(&r, "error");
	assert_string_equal(js_str(r.last, "message"), "python failed: exit 3");
	assert_string_equal(js_str(r.last, "logTail"), "oh no\n");
	auto_free char *tip = runs_tip(&stack, &acme, "fail", "agent");
	assert_string_equal(tip, "");
}

static void a_base_that_does_not_exist_is_named(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "nobase");
	json_t *body = runs_task("python", "nobase", "1");
	js_set_str(body, "base", "nowhere");
	runs_do(&stack, &acme, body, &r);
	runs_check(&r, "error");
	assert_non_null(strstr(js_str(r.last, "message"), "no branch nowhere"));
}

/* SBX-41 through a run: children that fork away, ignore signals and hold the pipes. */
static void a_tool_that_will_not_die_dies_at_its_time(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	json_t *body = runs_task("python", NULL,
	    "import os, signal, time\nsignal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN)\n"
	    "for i in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: "
	    "time.sleep(600)\n        os._exit(0)\n"
	    "print('away', flush=True); time.sleep(600)");
	int limit_s = 2 + span_room_ms(400) / 1000; /* it has to speak before */
	char says[60];
	(void)snprintf(says, sizeof says, "python failed: timed out after %d s", limit_s);
	js_set(body, "timeoutSec", json_integer(limit_s));
	runs_do(&stack, &acme, body, &r);
	runs_check(&r, "error");
	assert_string_equal(js_str(r.last, "message"), says);
	assert_string_equal(js_str(r.last, "logTail"), "away\n");
}

/* SBX-42, SBX-43: a gibibyte with GATEHOUSE_HEAVY, else less of the same. */
static void endless_and_broken_output_is_told_in_bounds(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	char prompt[300];
	(void)snprintf(prompt, sizeof prompt,
	    "import sys\no = sys.stdout.buffer; line = b'0123456789abcde ' * 4096\n"
	    "for i in range(%d): o.write(line)\no.write(b'\\n\\xff\\xfe\\x00 the end \\xe2\\x82')",
	    getenv("GATEHOUSE_HEAVY") != NULL ? 16384 : 1024);
	runs_do(&stack, &acme, runs_task("python", NULL, prompt), &r);
	runs_check(&r, "result");
	auto_free char *text = text_of(&r);
	assert_non_null(strstr(text, "\xef\xbf\xbd the end \xef\xbf\xbd"));
	assert_true(strlen(text) < 4 << 20);
	assert_non_null(strstr(text, "bytes left out"));
}

/* COD-7 */
static void a_tool_that_works_against_git_gets_only_its_branch(void **s)
{
	(void)s;
	auto_flow_run struct flow_run own = { 0 }, gone = { 0 }, evil = { 0 };
	runs_repo(&stack, &acme, "odd");
	runs_do(&stack, &acme,
	    runs_task("python", "odd",
		"import subprocess as p\np.check_call(['git', 'checkout', '-qb', 'main2'])\nopen('c', 'w')\n"
		"p.check_call(['git', 'add', '-A'])\np.check_call(['git', 'commit', '-qm', 'mine'])\n"
		"assert p.call(['git', 'push', '-q', 'origin', 'main2'], stderr=p.DEVNULL) != 0\n"
		"print(p.check_output(['git', 'remote', '-v']).decode())"),
	    &own);
	runs_check(&own, "result");
	auto_free char *main2 = runs_tip(&stack, &acme, "odd", "main2"),
		       *tip = runs_tip(&stack, &acme, "odd", js_str(own.last, "branch"));
	assert_string_equal(main2, "");
	assert_string_equal(tip, js_str(own.last, "commit"));
	assert_null(strstr(js_str(own.last, "logTail"), "@")); /* the plain URL */
	runs_do(&stack, &acme, runs_task("python", "odd", "import shutil; shutil.rmtree('.git')"), &gone);
	runs_check(&gone, "error");
	runs_do(&stack, &acme,
	    runs_task("python", "odd",
		"import subprocess as p, hashlib\n"
		"b = p.check_output(['git', 'hash-object', '-w', '--stdin'], input=b'x').decode().strip()\n"
		"t = p.check_output(['git', 'hash-object', '-t', 'tree', '--literally', '-w', '--stdin'],\n"
		"    input=b'100755 .git\\0' + bytes.fromhex(b)).decode().strip()\n"
		"c = p.check_output(['git', 'commit-tree', t, '-p', 'HEAD', '-m', 'trap']).decode().strip()\n"
		"p.check_call(['git', 'update-ref', 'HEAD', c]); p.check_call(['git', 'config', "
		"'core.protectNTFS', 'false'])"),
	    &evil);
	runs_check(&evil, "error");
	assert_null(runs_step(&evil, "push", NULL));
}

/* ID-4 */
static void another_orgs_run_does_not_exist(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	char path[100];
	runs_do(&stack, &acme, runs_task("python", NULL, "1"), &r);
	(void)snprintf(path, sizeof path, "/v1/bots/%s", r.run);
	auto_web struct web theirs = { 0 }, none = { 0 }, mine = { 0 };
	web_json(&stack, "GET", path, other.key, NULL, &theirs);
	web_json(&stack, "GET", "/v1/bots/run_0123456789abcdefghjkmnpqrs", other.key, NULL, &none);
	web_json(&stack, "GET", path, acme.key, NULL, &mine);
	assert_int_equal(theirs.status, 404);
	assert_string_equal(web_error(&theirs, "message"), web_error(&none, "message"));
	assert_string_equal(js_str(mine.json, "state"), "done");
	assert_string_equal(js_str(mine.json, "createdBy"), "member");
}

/* STR-3, STR-4, STR-5: the reader leaves, the run goes on, and the rest is read from the other api. */
static void a_reader_that_comes_back_misses_nothing(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "leave");
	runs_start(&stack, &acme,
	    runs_task(
		"python", "leave", "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.7)"),
	    &r);
	runs_until(&stack, &acme, &r, "\"step\":\"tool\"");
	runs_watch(&stack, &acme, &r, 2, 1);
	assert_int_equal(js_int(json_array_get(r.lines, 0), "seq", 0), 3);
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "result");
	auto_web struct web over = { 0 };
	char path[200];
	(void)snprintf(path, sizeof path, "/v1/agents/sessions/%s/stream?after=%lld", r.session,
	    js_int(r.last, "seq", 0));
	web_json(&stack, "GET", path, acme.key, NULL, &over);
	assert_int_equal(over.status, 200);
	assert_int_equal(over.body_n, 0);
}

static void stop(const struct flow_run *r, const char *key, int api, int status)
{
	char path[100];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/bots/%s/stop", r->run);
	web_do(&stack,
	    &(struct web_req){ .method = "POST", .path = path, .key = key, .body = "{}", .api = api }, &w);
	if (w.status != status)
		fail_msg("stop: %ld %s", w.status, w.body);
}

/* COD-11, COD-15 */
static void a_stop_ends_everything_from_any_api(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	char stranger[128];
	stack_key(&stack, acme.slug, "stranger", false, NULL, stranger);
	runs_repo(&stack, &acme, "stop");
	runs_start(&stack, &acme,
	    runs_task("python", "stop",
		"import time; open('a.txt', 'w'); print('on', flush=True); time.sleep(600)"),
	    &r);
	runs_until(&stack, &acme, &r, "\"on\"");
	stop(&r, stranger, 0, 403);
	stop(&r, other.key, 0, 404);
	stop(&r, acme.member, 1, 200);
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "error");
	assert_string_equal(js_str(r.last, "code"), "stopped");
	assert_string_equal(js_str(runs_step(&r, "exit", NULL), "message"), "stopped");
	stop(&r, acme.key, 0, 200); /* again: nothing changes */
	runs_watch(&stack, &acme, &r, 0, 1);
	runs_check(&r, "error");
}

/* COD-11: no runner is there, and none is waited for. */
static void a_queued_run_is_stopped_at_once(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	stack_stop(&stack, "runner1");
	stack_stop(&stack, "runner2");
	runs_start(&stack, &acme, runs_task("python", NULL, "print('never')"), &r);
	stop(&r, acme.member, 1, 200);
	runs_watch(&stack, &acme, &r, 0, 0); /* to its end */
	assert_int_equal(json_array_size(r.lines), 2);
	assert_string_equal(js_str(r.last, "type"), "error");
	assert_string_equal(js_str(r.last, "code"), "stopped");
	stack_start(&stack, "runner1");
	stack_start(&stack, "runner2");
}

/* RUN-6, COD-11 */
static void a_runner_that_is_stopped_hands_its_run_to_the_other(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	char prompt[120]; /* it lasts until its runner is told to end */
	(void)snprintf(prompt, sizeof prompt,
	    "import time; open('a.txt', 'w'); print('on', flush=True); time.sleep(%d)",
	    6 + span_room_ms(300) / 1000);
	runs_repo(&stack, &acme, "drain");
	runs_start(&stack, &acme, runs_task("python", "drain", prompt), &r);
	runs_until(&stack, &acme, &r, "\"on\"");
	char holder[RUNS_PART];
	runs_runner(&stack, &r, holder);
	stack_stop(&stack, holder);
	stack_start(&stack, holder);
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "result");
	assert_true(js_int(r.last, "attempts", 0) >= 2);
	assert_non_null(runs_step(&r, "attempt", "running"));
}

/* REL-2 */
static void a_restart_of_postgresql_under_a_run_loses_nothing(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	runs_repo(&stack, &acme, "pg");
	runs_start(&stack, &acme,
	    runs_task(
		"python", "pg", "import time; open('a.txt', 'w'); print('on', flush=True); time.sleep(4)"),
	    &r);
	runs_until(&stack, &acme, &r, "\"on\"");
	stack_stop(&stack, "pg");
	stack_start(&stack, "pg");
	stack_ready(&stack);
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "result");
	auto_free char *tip = runs_tip(&stack, &acme, "pg", js_str(r.last, "branch"));
	assert_string_equal(tip, js_str(r.last, "commit"));
}

static int setup(void **s)
{
	(void)s;
	stack_up(&stack, 2, 2, 2, "JOB_LEASE_S=20\nRUNNER_JOBS=2\nSANDBOX_DISK_MB=64\n");
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	auto_buf struct buf what = BUF(1 << 20);
	runs_wait_sql(&stack, "SELECT count(*) FROM sandboxes WHERE status IN ('pending', 'running')", "0");
	int left = stack_leaks(&stack, &what);
	stack_down(&stack);
	if (left != 0)
		print_error("left behind:\n%s", buf_c(&what));
	return left == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_comes_back_as_a_branch_that_can_be_read),
		cmocka_unit_test(a_run_may_have_no_repository_or_change_nothing),
		cmocka_unit_test(an_empty_repository_gets_its_first_branch),
		cmocka_unit_test(prompts_of_any_kind_are_prompts),
		cmocka_unit_test(work_that_cannot_be_committed_is_an_error),
		cmocka_unit_test(a_failed_tool_pushes_nothing_and_says_why),
		cmocka_unit_test(a_base_that_does_not_exist_is_named),
		cmocka_unit_test(a_tool_that_will_not_die_dies_at_its_time),
		cmocka_unit_test(endless_and_broken_output_is_told_in_bounds),
		cmocka_unit_test(a_tool_that_works_against_git_gets_only_its_branch),
		cmocka_unit_test(another_orgs_run_does_not_exist),
		cmocka_unit_test(a_reader_that_comes_back_misses_nothing),
		cmocka_unit_test(a_stop_ends_everything_from_any_api),
		cmocka_unit_test(a_queued_run_is_stopped_at_once),
		cmocka_unit_test(a_runner_that_is_stopped_hands_its_run_to_the_other),
		cmocka_unit_test(a_restart_of_postgresql_under_a_run_loses_nothing),
	};
	return cmocka_run_group_tests_name("runs", tests, setup, teardown);
}
