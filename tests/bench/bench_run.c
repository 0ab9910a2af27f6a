/* A whole coding run on a repository of a thousand files: from the POST to the terminal event, beside git and python by hand. */
#include "../t.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../flow/gitclient.h"
#include "../flow/runs.h"
#include "base/js.h"
#include "io/file.h"

enum { FILES = 1000, FOLDERS = 20, ROUNDS = 9 };
static const char prompt[] = "# Add a line\nopen('d3/f7.txt', 'a').write('more\\n')\n";

static struct stack stack;
static struct stack_org org;
static struct gitclient git;
static int n_clones;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 1, 1, "SANDBOX_OCI_RUNTIME=runc");
	stack_org(&stack, &org);
	gitclient_start(&git, &stack, org.key);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gitclient_end(&git);
	stack_down(&stack);
	return 0;
}

/* work/ with the files, committed; pushed to the forge and to home/local.git. */
static void make_repository(void)
{
	char url[200], path[300], text[256];
	struct err e = { 0 };
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/git/repos", org.key, js_pack("{s:s}", "name", "thousand"), &w);
	assert_int_equal(w.status, 201);
	GIT_OK(&git, ".", "init", "-q", "-b", "main", "work");
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(path, sizeof path, "%s/work/d%d", git.home, i % FOLDERS);
		(void)mkdir(path, 0755);
		(void)snprintf(path, sizeof path, "%s/work/d%d/f%d.txt", git.home, i % FOLDERS, i / FOLDERS);
		int n = snprintf(text, sizeof text,
		    "file %d of a thousand, with a line of its own and some words more\n", i);
		assert_int_equal(file_write(path, text, (size_t)n, 0644, &e), 0);
	}
	GIT_OK(&git, "work", "add", "-A");
	GIT_OK(&git, "work", "commit", "-q", "-m", "a thousand files");
	GIT_OK(&git, ".", "clone", "-q", "--bare", "work", "local.git");
	GIT_OK(&git, "work", "push", "-q", gitclient_url(&git, org.slug, "thousand", url), "main");
}

static long coding_run(struct bench_side *s)
{
	double begin = bench_now_us();
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&stack, &org, runs_task("python", "thousand", prompt), &r);
	bench_took(s, bench_now_us() - begin);
	runs_check(&r, "result");
	return 1;
}

/* The same without anybody's protection: clone, run, commit, push, all on local paths. */
static long by_hand(struct bench_side *s)
{
	char name[32], branch[48];
	double begin = bench_now_us();
	(void)snprintf(name, sizeof name, "clone%d", n_clones);
	(void)snprintf(branch, sizeof branch, "HEAD:refs/heads/agent/%d", n_clones++);
	GIT_OK(&git, ".", "clone", "-q", "--no-local", "local.git", name);
	GIT_OK(
	    &git, name, "-c", "alias.edit=!python3 -c \"open('d3/f7.txt', 'a').write('more\\n')\"", "edit");
	GIT_OK(&git, name, "commit", "-q", "-a", "-m", "Add a line");
	GIT_OK(&git, name, "push", "-q", "origin", branch);
	bench_took(s, bench_now_us() - begin);
	return 1;
}

static void run(void **state)
{
	(void)state;
	make_repository();
	struct bench_side sides[] = {
		{ .name = "POST to the terminal event",
		    .round = coding_run,
		    .meters = { { "runner", stack_pid(&stack, "runner1") },
			{ "sandboxd", stack_pid(&stack, "node1") }, { "api", stack_pid(&stack, "api1") } } },
		{ .name = "clone, python, commit, push by hand on local paths",
		    .round = by_hand,
		    .meters = { { "git and python", 0 } } },
	};
	bench_compare("A python run on a repository of 1 000 files", "run", sides, 2, ROUNDS);
	bench_at_most("From the POST to the terminal event, median", sides[0].us / 1e6, 2, "s");
	bench_note("… at worst", sides[0].most_us / 1e6, "s");
}

int main(void)
{
	return bench_main("run", setup, run, teardown);
}
