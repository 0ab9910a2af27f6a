/* flow_tools.c - the tools that run without a model, python and node: the same things work the same way (COD-3, COD-16). */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/mem.h"
#include "runs.h"

static struct stack stack;
static struct stack_org acme;

/* One thing to do, as each tool's program, and what it then says (NULL: not looked at). */
struct row {
	const char *what, *python, *node, *says;
};
static const char *program(const struct row *row, const char *tool)
{
	return strcmp(tool, "python") == 0 ? row->python : row->node;
}

static void each_tool_changes_a_repository(void **s)
{
	const char *tool = *s;
	static const struct row row = { "change",
		"# Add a line\nopen('a.txt', 'a').write('two\\n'); import os; os.mkdir('new'); open('new/f', "
		"'w').write('é\\n')\nprint('working')",
		"// Add a line\nconst fs = require('fs'); fs.appendFileSync('a.txt', 'two\\n'); "
		"fs.mkdirSync('new'); "
		"fs.writeFileSync('new/f', 'é\\n')\nconsole.log('working')",
		"working\n" };
	char name[32];
	auto_flow_run struct flow_run r = { 0 };
	(void)snprintf(name, sizeof name, "change-%s", tool);
	runs_repo(&stack, &acme, name);
	runs_do(&stack, &acme, runs_task(tool, name, program(&row, tool)), &r);
	runs_check(&r, "result");
	auto_free char *a = runs_file(&stack, &acme, name, js_str(r.last, "branch"), "a.txt"),
		       *f = runs_file(&stack, &acme, name, js_str(r.last, "branch"), "new/f");
	assert_string_equal(a, "one\ntwo");
	assert_string_equal(f, "é");
	assert_string_equal(js_str(r.last, "logTail"), row.says);
}

static void each_tool_takes_any_prompt(void **s)
{
	const char *tool = *s;
	static const struct row rows[] = {
		{ "a dash first", "-1; print('dash')", "-console.log('dash')", "dash\n" },
		{ "two dashes first", "--1; print('dashes')", "- -1; console.log('dashes')", "dashes\n" },
		{ "an option's name", "help and 0; print('ok')", "-0; console.log('ok')", "ok\n" },
		{ "quotes and lines", "print(\"it's\", '\"', '''$HOME `x` \\\\n''')\r\nprint(2)\n",
		    "console.log(\"it's\", '\"', `$HOME \\`x\\` \\\\n`)\r\nconsole.log(2)\n",
		    "it's \" $HOME `x` \\n\n2\n" },
		{ "no input", "import sys; print(len(sys.stdin.read()))",
		    "console.log(require('fs').readFileSync(0, 'utf8').length)", "0\n" },
		{ "no network",
		    "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError: "
		    "print('none')",
		    "require('net').connect(53, '1.1.1.1').on('error', () => console.log('none'))",
		    "none\n" },
		{ "another language's letters", "print('日本語')", "console.log('日本語')", "日本語\n" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_do(&stack, &acme, runs_task(tool, NULL, program(&rows[i], tool)), &r);
		if (strcmp(js_str_or(r.last, "type", ""), "result") != 0)
			fail_msg("%s: %s: %s", tool, rows[i].what, js_str_or(r.last, "message", ""));
		assert_string_equal(js_str(r.last, "logTail"), rows[i].says);
	}
}

/* From the longest argument to the longest prompt: wherever it travels, modules are found in the checkout. */
static void each_tool_takes_a_long_prompt(void **s)
{
	const char *tool = *s;
	static const size_t sizes[] = { LIMIT_PROMPT_ARG_BYTES, LIMIT_PROMPT_ARG_BYTES + 1,
		LIMIT_PROMPT_BYTES };
	static const struct row row = { "module", "import mod; print(mod.v)\n#",
		"console.log(require('./mod').v)\n//", "7\n" };
	char name[32], path[80];
	auto_web struct web made = { 0 };
	(void)snprintf(name, sizeof name, "long-%s", tool);
	(void)snprintf(path, sizeof path, "/v1/git/repos/%s/push", name);
	runs_repo(&stack, &acme, name);
	web_json(&stack, "POST", path, acme.key,
	    js_pack("{s:s,s:s,s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "branch", "main", "message", "modules",
		"files", "path", "mod.py", "content", "v = 7\n", "path", "mod.js", "content",
		"exports.v = 7\n", "path", ".gitignore", "content", "__pycache__/\n"),
	    &made);
	assert_int_equal(made.status, 200);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		auto_flow_run struct flow_run r = { 0 };
		auto_free char *prompt = xcalloc(1, sizes[i] + 1);
		memset(prompt, 'x', sizes[i]);
		memcpy(prompt, program(&row, tool), strlen(program(&row, tool)));
		runs_do(&stack, &acme, runs_task(tool, name, prompt), &r);
		runs_check(&r, "result");
		assert_string_equal(js_str(r.last, "logTail"), row.says);
		assert_false(js_bool(r.last, "changed", true)); /* the prompt itself is in no commit */
	}
}

static void each_tools_failure_is_told(void **s)
{
	const char *tool = *s;
	static const struct row rows[] = {
		{ "exit 3", "import sys; print('out'); sys.exit(3)", "console.log('out'); process.exit(3)",
		    "exit 3" },
		{ "a signal", "import os; os.kill(os.getpid(), 15)", "process.kill(process.pid, 'SIGTERM')",
		    "SIGTERM" },
		{ "nonsense", "this is no program", "this is no program", "exit 1" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_do(&stack, &acme, runs_task(tool, NULL, program(&rows[i], tool)), &r);
		runs_check(&r, "error");
		assert_string_equal(js_str(r.last, "code"), "tool_failed");
		if (strstr(js_str(r.last, "message"), rows[i].says) == NULL)
			fail_msg("%s: %s: %s", tool, rows[i].what, js_str(r.last, "message"));
	}
}

static void each_tools_time_ends(void **s)
{
	const char *tool = *s;
	static const struct row row = { "for ever", "import time; print('on', flush=True); time.sleep(900)",
		"console.log('on'); setTimeout(() => 0, 900000)", NULL };
	auto_flow_run struct flow_run r = { 0 };
	json_t *task = runs_task(tool, NULL, program(&row, tool));
	js_set(task, "timeoutSec", json_integer(2 + span_room_ms(500) / 1000)); /* it has to speak before */
	runs_do(&stack, &acme, task, &r);
	runs_check(&r, "error");
	assert_non_null(strstr(js_str(r.last, "message"), "timed out"));
	assert_string_equal(js_str(r.last, "logTail"), "on\n");
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &acme);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

#define T(test, tool)                                                                                        \
	{                                                                                                    \
#test " (" tool ")", test, NULL, NULL, (char[])                                              \
		{                                                                                            \
			tool                                                                                 \
		}                                                                                            \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(each_tool_changes_a_repository, "python"),
		T(each_tool_changes_a_repository, "node"),
		T(each_tool_takes_any_prompt, "python"),
		T(each_tool_takes_any_prompt, "node"),
		T(each_tool_takes_a_long_prompt, "python"),
		T(each_tool_takes_a_long_prompt, "node"),
		T(each_tools_failure_is_told, "python"),
		T(each_tools_failure_is_told, "node"),
		T(each_tools_time_ends, "python"),
		T(each_tools_time_ends, "node"),
	};
	return cmocka_run_group_tests_name("tools", tests, up, down);
}
