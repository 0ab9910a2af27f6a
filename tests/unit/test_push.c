#include "../t.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../forgetest.h"
#include "base/hash.h"
#include "base/str.h"
#include "forge/git.h"
#include "forge/push.h"
#include "forge/store.h"
#include "io/file.h"

static void files_become_a_commit_without_a_clone(void **s) /* FRG-4 */
{
	(void)s;
	const char *first = pushed("main", js_pack("[o, o]", file("a.txt", "one\n"), file("docs/b.md", "")));
	assert_string_equal(
	    GIT("work", "log", "--format=%an|%ae|%cn|%s|%P", "main"), "ada|ada@acme|ada|a change|");
	const char *second = pushed(
	    "main", js_pack("[o, o]", file("a.txt", "two\n"), file("docs/c \xc3\xa4.md", "x")));
	assert_string_equal(GIT("work", "rev-parse", "main^"), first);
	assert_string_equal(GIT("work", "show", "main:a.txt"), "two");
	assert_string_equal(GIT("work", "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "main"),
	    "a.txt\ndocs/b.md\ndocs/c \xc3\xa4.md");
	/* A new branch starts where the default branch is. */
	(void)pushed("feature/x", js_pack("[o]", gone("docs/b.md")));
	assert_string_equal(GIT("work", "rev-parse", "feature/x^"), second);
	assert_string_equal(GIT("work", "diff", "--name-status", "main", "feature/x"), "D\tdocs/b.md");
	assert_string_equal(GIT("work", "fsck", "--strict"), "");
}

static void bytes_are_kept_as_they_are(void **s) /* FRG-4 */
{
	(void)s;
	static const unsigned char raw[] = { 0, 1, 0xff, '\r', '\n', 0, 0x80 };
	char b64[B64_SIZE(sizeof raw)];
	(void)b64_encode(raw, sizeof raw, b64);
	(void)pushed("main", js_pack("[{s:s, s:s, s:s}]", "path", "x.bin", "content", b64, "enc", "base64"));
	const char *const args[] = { "cat-file", "blob", "main:x.bin", NULL };
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	assert_int_equal(
	    git_must(forgetest.mem, &(struct git_call){ .dir = dir_of("work"), .args = args }, &r, &e), 0);
	assert_int_equal(r.out.n, sizeof raw);
	assert_memory_equal(r.out.p, raw, sizeof raw);
	refused(&ada, "push_files",
	    push("main", js_pack("[{s:s, s:s, s:s}]", "path", "x", "content", "a b", "enc", "base64")),
	    ERR_BAD_REQUEST, "not base64");
}

static void modes_are_kept_and_links_are_not_written_through(void **s) /* FRG-4 */
{
	(void)s;
	(void)pushed("main", js_pack("[o, o]", file("run", "1"), file("to", "run")));
	const char *blob = GIT("work", "rev-parse", "main:run");
	const char *tree = mem_fmt(forgetest.mem, "100755 blob %s\trun\n120000 blob %s\tlink\n", blob,
	    GIT("work", "rev-parse", "main:to"));
	const char *const mktree[] = { "mktree", NULL };
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	assert_int_equal(
	    git_must(forgetest.mem,
		&(struct git_call){ .dir = dir_of("work"), .args = mktree, .in = tree, .in_n = strlen(tree) },
		&r, &e),
	    0);
	const char *made = mem_strn(forgetest.mem, buf_c(&r.out), 40);
	const char *const env[] = { "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t", "GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t", NULL };
	const char *const commit[] = { "commit-tree", "-m", "x", made, NULL };
	auto_proc struct proc_result k = { 0 };
	assert_int_equal(
	    git_must(forgetest.mem,
		&(struct git_call){ .dir = dir_of("work"), .args = commit, .more_env = env }, &k, &e),
	    0);
	(void)GIT("work", "update-ref", "refs/heads/main", mem_strn(forgetest.mem, buf_c(&k.out), 40));
	(void)pushed("main", js_pack("[o]", file("run", "2")));
	assert_true(str_starts(GIT("work", "ls-tree", "main", "run"), "100755 "));
	refused(&ada, "push_files", push("main", js_pack("[o]", file("link", "x"))), ERR_CONFLICT,
	    "symbolic link");
	(void)pushed("main", js_pack("[o]", gone("link")));
	(void)pushed("main", js_pack("[o]", file("link", "plain")));
	assert_true(str_starts(GIT("work", "ls-tree", "main", "link"), "100644 "));
}

static void what_differs_in_nothing_makes_no_commit(void **s) /* FRG-4 */
{
	(void)s;
	const char *first = pushed("main", js_pack("[o]", file("a", "1")));
	assert_string_equal(pushed("main", js_pack("[o]", file("a", "1"))), first);
	assert_string_equal(pushed("b", js_pack("[o]", file("a", "1"))), first);
}

static void paths_in_each_others_way_conflict(void **s) /* FRG-4 */
{
	(void)s;
	const char *tip = pushed("main", js_pack("[o, o]", file("a", "1"), file("d/e/f", "1")));
	const struct {
		json_t *files;
		enum err_code code;
		const char *says;
	} rows[] = {
		{ js_pack("[o]", file("a/b", "x")), ERR_CONFLICT, "not a directory" },
		{ js_pack("[o]", file("a/b/c", "x")), ERR_CONFLICT, "not a directory" },
		{ js_pack("[o]", file("d/e", "x")), ERR_CONFLICT, "is a directory" },
		{ js_pack("[o]", gone("d")), ERR_CONFLICT, "is a directory" },
		{ js_pack("[o]", gone("nope")), ERR_CONFLICT, "not there" },
		{ js_pack("[o]", gone("a/b")), ERR_CONFLICT, "not there" },
		{ js_pack("[o, o]", file("x", "1"), file("x", "2")), ERR_BAD_REQUEST, "named twice" },
		{ js_pack("[o, o]", file("x", "1"), file("x/y", "2")), ERR_BAD_REQUEST,
		    "cannot be a file and hold" },
		{ js_pack("[{s:s}]", "path", "x"), ERR_BAD_REQUEST, "needs either" },
		{ js_pack("[{s:s, s:s, s:b}]", "path", "x", "content", "", "delete", 1), ERR_BAD_REQUEST,
		    "needs either" },
		{ js_pack("[o]", file(".git/config", "x")), ERR_BAD_REQUEST, ".git" },
		{ js_pack("[o]", file("../x", "x")), ERR_BAD_REQUEST, "'..'" },
		{ js_pack("[o]", file("/etc/passwd", "x")), ERR_BAD_REQUEST, "relative" },
		{ js_pack("[o, o]", file("fine", "x"), file("a\\..\\b", "x")), ERR_BAD_REQUEST, "backslash" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(&ada, "push_files", push("main", rows[i].files), rows[i].code, rows[i].says);
	assert_string_equal(GIT("work", "rev-parse", "main"), tip);
	/* A file may become a directory, and back, in one commit. */
	(void)pushed("main", js_pack("[o, o]", file("a/b", "x"), gone("a")));
	assert_string_equal(GIT("work", "ls-tree", "-r", "--name-only", "main"), "a/b\nd/e/f");
}

static void branches_in_each_others_way_conflict(void **s) /* FRG-4 */
{
	(void)s;
	(void)pushed("main", js_pack("[o]", file("a", "1")));
	(void)pushed("x", js_pack("[o]", file("a", "2")));
	refused(&ada, "push_files", push("x/y", js_pack("[o]", file("a", "3"))), ERR_CONFLICT, "clashes");
	refused(
	    &ada, "push_files", push("a b", js_pack("[o]", file("a", "3"))), ERR_BAD_REQUEST, "branch name");
	refused(&ada, "push_files", push("--help", js_pack("[o]", file("a", "3"))), ERR_BAD_REQUEST,
	    "begin with '-'");
}

static void many_files_travel_in_one_commit(void **s) /* FRG-4 */
{
	(void)s;
	for (int round = 0; round < 2; round++) {
		json_t *files = json_array();
		char deep[130];
		for (int i = 0; i < 1000; i++) {
			(void)snprintf(deep, sizeof deep, "d%d/%0100d/f", i % 50, i);
			js_push(files, file(deep, round == 0 ? "x" : mem_fmt(forgetest.mem, "%d", i)));
		}
		(void)pushed("main", files);
	}
	assert_string_equal(GIT("work", "show", mem_fmt(forgetest.mem, "main:d49/%0100d/f", 999)), "999");
}

/* Each of several writers at once commits a file of its own; what is not refused is there. */
struct writer {
	int n;
	bool done;
	struct err e;
};

static void *write_one(void *arg)
{
	struct writer *w = arg;
	auto_mem struct mem *m = mem_new();
	char path[20];
	(void)snprintf(path, sizeof path, "w%d", w->n);
	const struct push_file f = { .path = path, .p = "x", .n = 1 };
	const struct push p = { .branch = "main", .message = "m", .user = "ada", .files = &f, .n = 1 };
	struct reply reply = { 0 };
	struct ctx c = forgetest_ctx(&ada, &reply);
	c.mem = m;
	const struct repo r = { .org = "acme",
		.name = "work",
		.default_branch = "main",
		.dir = store_dir(m, forgetest.conf, "acme", "work") };
	char commit[65];
	w->done = push_commit(&c, &r, &p, commit, &w->e) == 0;
	return NULL;
}

/* A git that was killed while it moved a ref: its lock would bar the ref for ever. One of now is somebody's. REL-1 */
static void a_dead_pushs_lock_is_removed_when_nobody_pushes(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	const char *dir = dir_of("work"), *old = mem_fmt(m, "%s/refs/heads/agent/old.lock", dir),
		   *young = mem_fmt(m, "%s/refs/heads/agent/young.lock", dir);
	assert_int_equal(file_mkdirs(mem_fmt(m, "%s/refs/heads/agent", dir), 0755, &e), 0);
	assert_int_equal(file_write(old, "", 0, 0644, &e), 0);
	assert_int_equal(file_write(young, "", 0, 0644, &e), 0);
	const struct timespec long_ago[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	assert_int_equal(utimensat(AT_FDCWD, old, long_ago, 0), 0);
	int a = store_push_begin(m, dir, &e), b = store_push_begin(m, dir, &e);
	store_push_end(m, dir, a);
	assert_int_equal(access(old, F_OK), 0);
	store_push_end(m, dir, b);
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(access(young, F_OK), 0);
}

static void no_commit_is_lost_to_another(void **s) /* FRG-4 */
{
	(void)s;
	enum { N = 8 };
	struct writer w[N];
	pthread_t t[N];
	(void)pushed("main", js_pack("[o]", file("a", "1")));
	for (int i = 0; i < N; i++) {
		w[i] = (struct writer){ .n = i };
		assert_int_equal(pthread_create(&t[i], NULL, write_one, &w[i]), 0);
	}
	int done = 0;
	for (int i = 0; i < N; i++) {
		(void)pthread_join(t[i], NULL);
		done += w[i].done;
		if (!w[i].done)
			assert_int_equal(w[i].e.code, ERR_CONFLICT);
	}
	assert_true(done > 0);
	assert_string_equal(
	    GIT("work", "rev-list", "--count", "main"), mem_fmt(forgetest.mem, "%d", done + 1));
	for (int i = 0; i < N; i++) {
		const char *there = GIT(
		    "work", "ls-tree", "--name-only", "main", mem_fmt(forgetest.mem, "w%d", i));
		assert_int_equal(there[0] != 0, w[i].done);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORK(files_become_a_commit_without_a_clone),
		WORK(bytes_are_kept_as_they_are),
		WORK(modes_are_kept_and_links_are_not_written_through),
		WORK(what_differs_in_nothing_makes_no_commit),
		WORK(paths_in_each_others_way_conflict),
		WORK(branches_in_each_others_way_conflict),
		WORK(many_files_travel_in_one_commit),
		WORK(a_dead_pushs_lock_is_removed_when_nobody_pushes),
		WORK(no_commit_is_lost_to_another),
	};
	return cmocka_run_group_tests_name("push", tests, forgetest_start, forgetest_end);
}
