#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "code/tool.h"

static struct mem *m;

static int setup(void **s)
{
	(void)s;
	m = mem_new();
	return 0;
}
static int teardown(void **s)
{
	(void)s;
	mem_free(m);
	return 0;
}

static char *argv_text(const char *tool, const char *override, const char *prompt, bool is_long)
{
	struct err e = { 0 };
	auto_json json_t *v = tool_argv(
	    tool_find(tool), override, prompt, is_long, "/mnt/data/prompt.py", &e);
	assert_non_null(v);
	return js_dump(m, v);
}

/* COD-3 */
static void each_tool_is_a_row_with_its_argv(void **s)
{
	(void)s;
	assert_string_equal(argv_text("python", "", "print(1)", false), "[\"python3\",\"-c\",\"print(1)\"]");
	assert_string_equal(argv_text("node", "", "1+1", false), "[\"node\",\"--eval=1+1\"]");
	assert_string_equal(argv_text("claude", "", "P", false),
	    "[\"claude\",\"-p\",\"--dangerously-skip-permissions\",\"--\",\"P\"]");
	assert_string_equal(argv_text("dev", "", "P", false),
	    "[\"dev\",\"exec\",\"--full-auto\",\"--skip-git-repo-check\",\"--\",\"P\"]");
	for (size_t i = 0; tool_names[i] != NULL; i++)
		assert_non_null(tool_find(tool_names[i]));
	assert_null(tool_find("bash"));
	assert_null(tool_find("Python"));
}

static void a_prompt_that_looks_like_an_option_is_a_prompt(void **s)
{
	(void)s;
	assert_string_equal(argv_text("python", "", "-h", false), "[\"python3\",\"-c\",\"-h\"]");
	assert_string_equal(argv_text("node", "", "-h", false), "[\"node\",\"--eval=-h\"]");
	assert_string_equal(
	    argv_text("node", "", "{prompt}{file}", false), "[\"node\",\"--eval={prompt}{file}\"]");
}

/* COD-16 */
static void agents_run_in_class_dev_and_interpreters_in_exec(void **s)
{
	(void)s;
	assert_string_equal(tool_find("codex")->class, "dev");
	assert_true(tool_find("codex")->model);
	assert_string_equal(tool_find("node")->class, "exec");
	assert_false(tool_find("node")->model);
}

static void a_long_prompt_is_a_file_or_standard_input(void **s)
{
	(void)s;
	assert_string_equal(argv_text("python", "", "long", true), "[\"python3\",\"/mnt/data/prompt.py\"]");
	assert_int_equal(tool_find("python")->how, TOOL_FILE);
	assert_int_equal(tool_find("claude")->how, TOOL_STDIN);
	assert_string_equal(argv_text("node", "", "long", true), "[\"node\",\"-\"]");
	assert_int_equal(tool_find("node")->how, TOOL_STDIN);
	assert_null(strstr(argv_text("claude", "", "long", true), "long"));
}

static void a_deployment_may_override_the_words_of_a_row(void **s)
{
	(void)s;
	static const char over[] =
	    "{\"python\":[\"/opt/py\",\"-I\",\"-c\"],\"node\":[\"/opt/node\",\"-e={prompt}\",\"x\"]}";
	assert_string_equal(argv_text("python", over, "-p", false), "[\"/opt/py\",\"-I\",\"-c\",\"-p\"]");
	assert_string_equal(argv_text("python", over, "-p", true), "[\"/opt/py\",\"/mnt/data/prompt.py\"]");
	assert_string_equal(argv_text("node", over, "P", false), "[\"/opt/node\",\"-e=P\",\"x\"]");
	assert_string_equal(argv_text("codex", over, "P", true),
	    "[\"codex\",\"exec\",\"--dangerously-bypass-approvals-and-sandbox\",\"--skip-git-repo-check\",\"-"
	    "\"]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_tool_is_a_row_with_its_argv),
		cmocka_unit_test(a_prompt_that_looks_like_an_option_is_a_prompt),
		cmocka_unit_test(agents_run_in_class_dev_and_interpreters_in_exec),
		cmocka_unit_test(a_long_prompt_is_a_file_or_standard_input),
		cmocka_unit_test(a_deployment_may_override_the_words_of_a_row),
	};
	return cmocka_run_group_tests_name("tool", tests, setup, teardown);
}
