/* What is where in a real box: looked at, made, moved, removed. SBX-47. */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/limits.h"

static struct boxtest box;

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	return 0;
}

static int up_in_gvisor(void **s)
{
	(void)s;
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	return 0;
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static void sh(const char *script)
{
	auto_buf struct buf out = BUF(65536);
	if (boxtest_run(&box, script, PATIENCE_MS, &out).exit_code != 0)
		fail_msg("%s\n%s", script, buf_c(&out));
}

/* ---- looking */

struct seen {
	int n, dirs, links;
	struct channel_node self; /* strings are not kept */
	char target[64];
	bool hidden, odd;
	char paths[4096]; /* " path path" */
};

static int on_node(void *arg, const struct channel_node *n)
{
	struct seen *to = arg;
	if (n->path[0] == 0) {
		to->self = *n;
		(void)snprintf(to->target, sizeof to->target, "%s", n->target);
		return 0;
	}
	to->n++;
	to->dirs += n->kind == PROTO_KIND_DIR;
	to->links += n->kind == PROTO_KIND_LINK;
	to->hidden |= strcmp(n->path, ".hidden") == 0 && n->size == 2 && n->mode == 0640 && n->mtime_ms > 0;
	to->odd |= strcmp(n->path, "new\nline \xff") == 0;
	size_t at = strlen(to->paths);
	(void)snprintf(to->paths + at, sizeof to->paths - at, " %s%s%s", n->path,
	    n->kind == PROTO_KIND_LINK ? ">" : "", n->target);
	return 0;
}

static int look(const char *path, int depth, int nodes, struct seen *to, bool *cut, struct err *e)
{
	const struct channel_look l = { .path = path, .depth = depth, .nodes = nodes };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	err_clear(e);
	*to = (struct seen){ .n = 0 };
	return channel_look(box.c, &l, &w, on_node, to, cut, e);
}

static int look_code(const char *path, int depth)
{
	struct err e = { 0 };
	struct seen to;
	assert_int_equal(look(path, depth, 10, &to, NULL, &e), -1);
	assert_string_equal(e.param, "path");
	return (int)e.code;
}

static void a_directory_is_listed(void **s)
{
	(void)s;
	struct seen to;
	struct err e = { 0 };
	bool cut = true;
	sh("mkdir -p d/sub; echo x >d/.hidden; chmod 640 d/.hidden; ln -s /etc d/link; touch \"d/$(printf "
	   "'new\\nline \\377')\"");
	assert_int_equal(look("d", 1, PROTO_ENTRIES_MAX, &to, &cut, &e), 0);
	assert_int_equal(to.self.kind, PROTO_KIND_DIR);
	assert_true(to.hidden && to.odd);
	assert_false(cut);
	assert_int_equal(to.n, 4);
	assert_int_equal(to.dirs, 1);
	assert_int_equal(to.links, 1);
	assert_int_equal(look("d", 0, PROTO_ENTRIES_MAX, &to, &cut, &e), 0);
	assert_int_equal(to.self.kind, PROTO_KIND_DIR);
	assert_int_equal(to.n, 0);
	assert_int_equal(look_code("no", 1), ERR_NOT_FOUND);
	assert_int_equal(look_code("no", 0), ERR_NOT_FOUND);
	assert_int_equal(look_code("/etc", 1), ERR_FORBIDDEN);
	assert_int_equal(look_code("d/link", 1), ERR_FORBIDDEN);
	sh("rm -r d");
}

/* A link is told itself, and what it leads to only where that is in the workspace. */
static void a_link_is_told_with_what_it_leads_to(void **s)
{
	(void)s;
	static const struct {
		const char *name, *target;
		int kind;
	} rows[] = { { "file", "t/plain", PROTO_KIND_FILE }, { "dir", "t", PROTO_KIND_DIR },
		{ "far", "../../etc/passwd", 0 }, { "none", "t/none", 0 }, { "loop", "loop", 0 },
		{ "twice", "file", PROTO_KIND_FILE }, { "pipe", "t/pipe", PROTO_KIND_OTHER } };
	struct seen to;
	struct err e = { 0 };
	sh("mkdir t; echo x >t/plain; mkfifo t/pipe");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char line[200];
		(void)snprintf(line, sizeof line, "ln -s %s %s", rows[i].target, rows[i].name);
		sh(line);
		assert_int_equal(look(rows[i].name, 0, 0, &to, NULL, &e), 0);
		assert_int_equal(to.self.kind, PROTO_KIND_LINK);
		assert_string_equal(to.target, rows[i].target);
		assert_int_equal(to.self.target_kind, rows[i].kind);
	}
	assert_int_equal(look("twice", 1, 0, &to, NULL, &e), 0); /* followed */
	assert_int_equal(to.self.kind, PROTO_KIND_FILE);
	assert_int_equal(look("t/pipe", 0, 0, &to, NULL, &e), 0); /* looked at and not opened */
	assert_int_equal(to.self.kind, PROTO_KIND_OTHER);
	sh("rm -r t file dir far none loop twice pipe");
}

static void a_tree_is_listed_to_the_depth_asked_for(void **s)
{
	(void)s;
	struct seen to;
	struct err e = { 0 };
	bool cut = true;
	sh("mkdir -p t/a/b/c; touch t/a/b/c/x; ln -s .. t/a/up");
	assert_int_equal(look("t", 2, 100, &to, &cut, &e), 0);
	assert_int_equal(to.n, 3);
	assert_false(cut);
	assert_int_equal(look("t", PROTO_DEPTH_MAX, 100, &to, &cut, &e), 0);
	assert_int_equal(to.n, 5); /* links are not gone into */
	assert_non_null(strstr(to.paths, " a/b/c/x"));
	assert_non_null(strstr(to.paths, " a/up>.."));
	assert_true(strstr(to.paths, " a ") < strstr(to.paths, " a/b "));
	assert_int_equal(look("t", PROTO_DEPTH_MAX, 3, &to, &cut, &e), 0);
	assert_int_equal(to.n, 3);
	assert_true(cut);
	sh("i=0; p=t/deep; while [ $i -lt 20 ]; do mkdir $p; p=$p/d; i=$((i+1)); done");
	assert_int_equal(look("t", PROTO_DEPTH_MAX, 100, &to, &cut, &e), 0);
	assert_int_equal(to.n, 5 + PROTO_DEPTH_MAX);
	sh("rm -r t");
}

static void a_huge_directory_is_cut_and_says_so(void **s)
{
	(void)s;
	struct seen to;
	struct err e = { 0 };
	bool cut = false;
	sh("mkdir many; cd many; seq 10007 | xargs touch");
	assert_int_equal(look("many", 1, PROTO_ENTRIES_MAX, &to, &cut, &e), 0);
	assert_true(cut);
	assert_int_equal(to.n, PROTO_ENTRIES_MAX);
	/* Or by its bytes: names of 200 are more than one answer may hold. */
	sh("rm -r many; mkdir many; cd many; x=$(printf '%0200d' 0); p=.; i=0;"
	   "while [ $i -lt 10 ]; do p=$p/$x; mkdir $p; i=$((i+1)); done;"
	   "cd $p; seq 5000 | xargs touch");
	assert_int_equal(look("many", PROTO_DEPTH_MAX, PROTO_ENTRIES_MAX, &to, &cut, &e), 0);
	assert_true(cut);
	assert_in_range(to.n, 1000, 4000);
	sh("rm -r many");
}

/* ---- making, moving, removing */

static int make(const char *path, int mode, bool *made, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	err_clear(e);
	return channel_mkdir(box.c, path, mode, &w, made, e);
}

static int move(const char *from, const char *to, bool replace, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	err_clear(e);
	return channel_move(box.c, from, to, replace, &w, e);
}

static int removed(const char *path, bool tree, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	uint64_t count = 0;
	err_clear(e);
	return channel_remove(box.c, path, tree, &w, &count, e) == 0 ? (int)count : -(int)e->code;
}

static void a_directory_is_made_with_those_above_it(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct seen seen;
	bool made;
	assert_int_equal(make("a/b/c", -1, &made, &e), 0);
	assert_true(made);
	assert_int_equal(make("a/b/c", 0700, &made, &e), 0);
	assert_false(made);
	assert_int_equal(make("a/own", 0777, &made, &e), 0);
	assert_int_equal(make(".", -1, &made, &e), 0);
	assert_false(made);
	assert_int_equal(look("a/b/c", 0, 0, &seen, NULL, &e), 0);
	assert_int_equal(seen.self.mode, 0755);
	assert_int_equal(look("a/own", 0, 0, &seen, NULL, &e), 0);
	assert_int_equal(seen.self.mode, 0777);
	sh("echo x >a/file && ln -s /etc a/out");
	assert_int_equal(make("a/file", -1, &made, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(make("a/file/x", -1, &made, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(make("a/out/x", -1, &made, &e), -1);
	assert_int_equal(e.code, ERR_FORBIDDEN);
	assert_int_equal(make("shown/x", -1, &made, &e), -1);
	assert_int_equal(e.code, ERR_FORBIDDEN);
	sh("rm -r a");
}

static int move_code(const char *from, const char *to, bool replace, const char *param)
{
	struct err e = { 0 };
	assert_int_equal(move(from, to, replace, &e), -1);
	assert_string_equal(e.param, param);
	return (int)e.code;
}

static void what_is_moved_is_moved_in_one_step(void **s)
{
	(void)s;
	struct err e = { 0 };
	sh("mkdir -p d/e; echo one >one; echo two >two; ln -s one link; echo x >d/e/x; mkdir empty");
	assert_int_equal(move("one", "new/place/one", false, &e), 0);
	assert_int_equal(move("link", "renamed", false, &e), 0);
	assert_int_equal(move("d", "moved", false, &e), 0);
	sh("test \"$(cat new/place/one)\" = one && test -L renamed && test ! -e one && test ! -e link &&"
	   "test -e moved/e/x && test ! -e d");
	assert_int_equal(move_code("two", "new/place/one", false, "to"), ERR_CONFLICT);
	assert_int_equal(move_code("moved", "empty", false, "to"), ERR_CONFLICT);
	assert_int_equal(move_code("two", "empty", true, "to"), ERR_CONFLICT); /* file and directory */
	assert_int_equal(move_code("moved", "moved/e/in", false, "to"), ERR_CONFLICT);
	assert_int_equal(move_code("empty", "new", true, "to"), ERR_CONFLICT); /* not empty */
	assert_int_equal(move_code("gone", "never/made", false, "from"), ERR_NOT_FOUND);
	assert_int_equal(move_code(".", "new/x", false, "to"), ERR_CONFLICT);
	assert_int_equal(move_code("two", "/etc/two", false, "to"), ERR_FORBIDDEN);
	assert_int_equal(move_code("/etc/passwd", "two", true, "to"), ERR_FORBIDDEN);
	assert_int_equal(move_code("two", "shown/two", false, "to"), ERR_FORBIDDEN);
	sh("test \"$(cat two)\" = two && test -d empty && test ! -e never");
	assert_int_equal(move("two", "new/place/one", true, &e), 0);
	assert_int_equal(move("moved", "empty", true, &e), 0);
	sh("test \"$(cat new/place/one)\" = two && test -e empty/e/x && rm -r new empty renamed");
}

static void a_tree_is_removed_only_when_that_is_asked(void **s)
{
	(void)s;
	struct err e = { 0 };
	sh("mkdir -p d/e/f d/g; echo x >d/e/f/x; ln -s /etc d/out; echo y >../out/keep; ln -s ../../../out "
	   "d/g/out;"
	   "echo z >z; ln -s z ln; mkdir none; chmod 0 d/e/f");
	assert_int_equal(removed("ln", false, &e), 1);
	assert_int_equal(removed("none", false, &e), 1);
	sh("test -e z && test ! -L ln && test ! -e none");
	assert_int_equal(removed("d", false, &e), -ERR_CONFLICT);
	sh("test -e d/g/out/keep");
	assert_int_equal(removed("d", true, &e), 7);
	sh("test ! -e d && test -e ../out/keep && rm ../out/keep");
	assert_int_equal(removed("z", true, &e), 1);
	assert_int_equal(removed("z", true, &e), -ERR_NOT_FOUND);
	assert_int_equal(removed("/etc/passwd", true, &e), -ERR_FORBIDDEN);
	assert_int_equal(removed("..", true, &e), -ERR_FORBIDDEN);
	assert_int_equal(removed(".", true, &e), -ERR_CONFLICT); /* a root itself */
	sh("echo x >shown/x");
	assert_int_equal(removed("shown/x", false, &e), -ERR_FORBIDDEN);
	sh("rm shown/x");
}

/* As the sandbox would: directories in each other, deeper than any path can be. */
static void dig(int levels)
{
	char name[201], top[128];
	memset(name, 'x', 200);
	name[200] = 0;
	(void)snprintf(top, sizeof top, "%s/t", box.work);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool good = setresgid(box.uid, box.uid, box.uid) == 0 &&
		    setresuid(box.uid, box.uid, box.uid) == 0 && mkdir(top, 0755) == 0 && chdir(top) == 0;
		for (int i = 0; good && i < levels; i++)
			good = mkdir(name, 0755) == 0 && chdir(name) == 0 && symlink("..", "up") == 0;
		_exit(good ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* With three descriptors and no memory. */
static void a_tree_of_any_depth_is_removed(void **s)
{
	(void)s;
	struct err e = { 0 };
	dig(60);
	sh("mkdir t/wide; cd t/wide; seq 3000 | xargs touch; seq 3001 3300 | xargs mkdir");
	assert_int_equal(removed("t", true, &e), 1 + 120 + 1 + 3300);
	sh("test ! -e t");
}

/* What cannot be removed is an error, and what is beside it was removed or not. */
static void a_place_that_is_needed_stays(void **s)
{
	(void)s;
	struct err e = { 0 };
	sh("mkdir -p d; echo x >d/x");
	char path[128];
	(void)snprintf(path, sizeof path, "%s/d/theirs", box.work);
	assert_int_equal(mkdir(path, 0755), 0); /* of root: not to be emptied by the box */
	(void)snprintf(path, sizeof path, "%s/d/theirs/x", box.work);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(removed("d", true, &e), -ERR_FORBIDDEN);
	assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_listed),
		cmocka_unit_test(a_link_is_told_with_what_it_leads_to),
		cmocka_unit_test(a_tree_is_listed_to_the_depth_asked_for),
		cmocka_unit_test(a_huge_directory_is_cut_and_says_so),
		cmocka_unit_test(a_directory_is_made_with_those_above_it),
		cmocka_unit_test(what_is_moved_is_moved_in_one_step),
		cmocka_unit_test(a_tree_is_removed_only_when_that_is_asked),
		cmocka_unit_test(a_tree_of_any_depth_is_removed),
		cmocka_unit_test(a_place_that_is_needed_stays),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(a_directory_is_listed),
		cmocka_unit_test(a_link_is_told_with_what_it_leads_to),
		cmocka_unit_test(a_tree_is_listed_to_the_depth_asked_for),
		cmocka_unit_test(a_directory_is_made_with_those_above_it),
		cmocka_unit_test(what_is_moved_is_moved_in_one_step),
		cmocka_unit_test(a_tree_is_removed_only_when_that_is_asked),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
