#include "code/tool.h"

#include <string.h>

#include "base/js.h"
#include "base/str.h"

/*
 * The agents' rows carry each program's own unattended flags: the sandbox is the boundary, and a question nobody can
 * answer hangs the run. `--` precedes every prompt that is a positional; python's -c takes whatever follows it, and
 * node only takes a value that begins with '-' in the one-word form.
 */
static const struct tool tools[] = {
	{ "dev", "dev", true, { "dev", "exec", "--full-auto", "--skip-git-repo-check", "--", "{prompt}" },
	    { "dev", "exec", "--full-auto", "--skip-git-repo-check", "-" }, TOOL_STDIN, NULL, NULL },
	{ "claude", "dev", true, { "claude", "-p", "--dangerously-skip-permissions", "--", "{prompt}" },
	    { "claude", "-p", "--dangerously-skip-permissions" }, TOOL_STDIN, NULL, NULL },
	{ "codex", "dev", true,
	    { "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--",
		"{prompt}" },
	    { "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-" },
	    TOOL_STDIN, NULL, NULL },
	{ "python", "exec", false, { "python3", "-c", "{prompt}" }, { "python3", "{file}" }, TOOL_FILE,
	    "prompt.py", "PYTHONPATH" },
	/* From standard input, as from --eval, require("./x") means the checkout; from a file it would not. */
	{ "node", "exec", false, { "node", "--eval={prompt}" }, { "node", "-" }, TOOL_STDIN, NULL, NULL },
};
enum { TOOLS = sizeof tools / sizeof tools[0] };

const char *const tool_names[] = { "dev", "claude", "codex", "python", "node", NULL };

const struct tool *tool_find(const char *name)
{
	for (size_t i = 0; i < TOOLS; i++)
		if (strcmp(tools[i].name, name) == 0)
			return &tools[i];
	return NULL;
}

/* `word` with `mark` in it replaced by `value`. */
static json_t *fill(const char *word, const char *mark, const char *value)
{
	const char *at = strstr(word, mark);
	if (at == NULL)
		return json_string(word);
	size_t before = (size_t)(at - word), n = strlen(value);
	auto_buf struct buf b = BUF(strlen(word) + n + 1);
	(void)buf_add(&b, word, before);
	(void)buf_add(&b, value, n);
	(void)buf_str(&b, at + strlen(mark));
	return json_stringn(buf_c(&b), b.n);
}

static json_t *fill_all(const json_t *words, const char *mark, const char *value, struct err *e)
{
	json_t *argv = json_array();
	const json_t *w;
	size_t i;
	json_array_foreach(words, i, w) {
		json_t *v = fill(json_string_value(w), mark, value);
		if (v == NULL) {
			(void)err_set(e, ERR_INTERNAL, "The prompt cannot be an argument.");
			json_decref(argv);
			return NULL;
		}
		js_push(argv, v);
	}
	return argv;
}

static json_t *own_words(const struct tool *t, bool is_long)
{
	const char *const *w = is_long ? t->long_argv : t->argv;
	json_t *words = json_array();
	for (size_t i = 0; i < TOOL_ARGV_MAX && w[i] != NULL; i++)
		js_push(words, json_string(w[i]));
	return words;
}

static bool holds(const json_t *words, const char *mark)
{
	const json_t *w;
	size_t i;
	json_array_foreach(words, i, w) {
		if (strstr(json_string_value(w), mark) != NULL)
			return true;
	}
	return false;
}

/* What the deployment says instead of the row; NULL when it says nothing. */
static json_t *other_words(const struct tool *t, const char *override, bool is_long)
{
	struct err bad = { 0 };
	auto_json json_t *all = override[0] == 0 ? NULL : js_parse(override, strlen(override), &bad);
	const json_t *said = json_object_get(all, t->name);
	if (said == NULL)
		return NULL;
	json_t *words = is_long ? own_words(t, true) : json_copy((json_t *)(uintptr_t)said);
	if (is_long)
		(void)json_array_set(words, 0, json_array_get(said, 0));
	else if (!holds(words, "{prompt}"))
		js_push(words, json_string("{prompt}"));
	return words;
}

json_t *tool_argv(const struct tool *t, const char *override, const char *prompt, bool is_long,
    const char *file, struct err *e)
{
	auto_json json_t *words = other_words(t, override, is_long);
	if (words == NULL)
		words = own_words(t, is_long);
	return is_long ? fill_all(words, "{file}", file, e) : fill_all(words, "{prompt}", prompt, e);
}
