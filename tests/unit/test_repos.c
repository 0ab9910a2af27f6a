#include "../t.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../pgtest.h"
#include "auth/cred.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "forge/git.h"
#include "forge/propose.h"
#include "forge/repo.h"
#include "forge/store.h"
#include "io/file.h"

extern const struct op repos_ops[];

static struct pgtest *server;
static struct pg_pool *pool;
static struct conf *conf;
static struct mem *mem; /* of the group */
static char root[64] = "/tmp/ghr.XXXXXX";

static const struct principal ada = { .kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "*" };
static const struct principal bob = { .kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "git" };

static struct ctx ctx(const struct principal *who, struct reply *reply)
{
	return (struct ctx){
		.mem = mem, .db = pool, .conf = conf, .who = who, .reply = reply, .request_id = "req_1"
	};
}

/* An op as the server calls it: authorised, its input checked, its reply checked against its own schema. NULL with e. */
static json_t *call(const struct principal *who, const char *id, json_t *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ repos_ops, NULL }, id);
	assert_non_null(op);
	struct reply reply = { 0 };
	struct ctx c = ctx(who, &reply);
	err_clear(e);
	json_t *in = mem_json(mem, input);
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out == NULL) {
		assert_int_not_equal(e->code, ERR_NONE);
		return NULL;
	}
	if (op_check_out(op->out, out, e) != 0)
		fail_msg("%s: %s", id, e->msg);
	return mem_json(mem, out);
}

static json_t *must(const struct principal *who, const char *id, json_t *input)
{
	struct err e;
	json_t *out = call(who, id, input, &e);
	if (out == NULL)
		fail_msg("%s: %s", id, e.msg);
	return out;
}

static void refused(
    const struct principal *who, const char *id, json_t *input, enum err_code code, const char *says)
{
	struct err e;
	assert_null(call(who, id, input, &e));
	assert_int_equal(e.code, code);
	if (strstr(e.msg, says) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
	assert_null(strstr(e.msg, root));
}

static void create(const char *name)
{
	(void)must(&ada, "create_repo", js_pack("{s:s}", "name", name));
}

static const char *dir_of(const char *name)
{
	return store_dir(mem, conf, "acme", name);
}

static int entries(const char *what)
{
	DIR *d = opendir(mem_fmt(mem, "%s/%s", root, what));
	int n = 0;
	if (d == NULL)
		return 0;
	for (const struct dirent *f; (f = readdir(d)) != NULL;)
		n += f->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

/* What git says about a repository, without its last line end. */
static const char *git(const char *repo, const char *const *args)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	if (git_must(mem, &(struct git_call){ .dir = dir_of(repo), .args = args }, &r, &e) != 0)
		fail_msg("git %s: %s", args[0], buf_c(&r.errout));
	size_t n = r.out.n;
	while (n > 0 && r.out.p[n - 1] == '\n')
		n--;
	return mem_strn(mem, buf_c(&r.out), n);
}
#define GIT(repo, ...) git(repo, (const char *const[]){ __VA_ARGS__, NULL })

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
	/* A directory without a row, a half built one, one half removed. */
	static const char *const left[] = { "acme/again.git/objects", ".gatehouse/new/new_x",
		".gatehouse/trash/old_x/objects" };
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(file_mkdirs(mem_fmt(mem, "%s/%s", root, left[i]), 0755, &e), 0);
	create("again");
	assert_string_equal(GIT("again", "rev-parse", "--is-bare-repository"), "true");
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "again"));
	assert_int_equal(entries(".gatehouse/new") + entries(".gatehouse/trash") + entries("acme"), 0);
}

static void a_repository_that_cannot_be_built_has_no_row(void **s) /* FRG-1 */
{
	(void)s;
	struct err e = { 0 };
	/* Where the organisation's directory should be is a file. */
	const char *path = mem_fmt(mem, "%s/other", root);
	assert_int_equal(file_write(path, "", 0, 0644, &e), 0);
	assert_null(call(&bob, "create_repo", js_pack("{s:s}", "name", "x"), &e));
	assert_null(strstr(e.msg, root));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(entries(".gatehouse/new"), 0);
	(void)must(&bob, "create_repo", js_pack("{s:s}", "name", "x"));
	(void)must(&bob, "delete_repo", js_pack("{s:s}", "repo", "x"));
}

/* ---- push_files */

static json_t *file(const char *path, const char *content)
{
	return js_pack("{s:s, s:s}", "path", path, "content", content);
}

static json_t *gone(const char *path)
{
	return js_pack("{s:s, s:b}", "path", path, "delete", 1);
}

static json_t *push(const char *branch, json_t *files)
{
	return js_pack(
	    "{s:s, s:s, s:s, s:o}", "repo", "work", "branch", branch, "message", "a change", "files", files);
}

static const char *pushed(const char *branch, json_t *files)
{
	const json_t *out = must(&ada, "push_files", push(branch, files));
	assert_string_equal(js_str(out, "branch"), branch);
	assert_string_equal(
	    js_str(out, "commit"), GIT("work", "rev-parse", mem_fmt(mem, "refs/heads/%s", branch)));
	return js_str(out, "commit");
}

static int make_work(void **s)
{
	(void)s;
	create("work");
	return 0;
}

static int drop_work(void **s)
{
	(void)s;
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "work"));
	assert_int_equal(entries(".gatehouse/tmp"), 0);
	return 0;
}

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
	assert_int_equal(git_must(mem, &(struct git_call){ .dir = dir_of("work"), .args = args }, &r, &e), 0);
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
	const char *tree = mem_fmt(
	    mem, "100755 blob %s\trun\n120000 blob %s\tlink\n", blob, GIT("work", "rev-parse", "main:to"));
	const char *const mktree[] = { "mktree", NULL };
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	assert_int_equal(
	    git_must(mem,
		&(struct git_call){ .dir = dir_of("work"), .args = mktree, .in = tree, .in_n = strlen(tree) },
		&r, &e),
	    0);
	const char *made = mem_strn(mem, buf_c(&r.out), 40);
	const char *const env[] = { "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t", "GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t", NULL };
	const char *const commit[] = { "commit-tree", "-m", "x", made, NULL };
	auto_proc struct proc_result k = { 0 };
	assert_int_equal(
	    git_must(
		mem, &(struct git_call){ .dir = dir_of("work"), .args = commit, .more_env = env }, &k, &e),
	    0);
	(void)GIT("work", "update-ref", "refs/heads/main", mem_strn(mem, buf_c(&k.out), 40));
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
			js_push(files, file(deep, round == 0 ? "x" : mem_fmt(mem, "%d", i)));
		}
		(void)pushed("main", files);
	}
	assert_string_equal(GIT("work", "show", mem_fmt(mem, "main:d49/%0100d/f", 999)), "999");
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
	auto_pg struct pg *db = pg_take(pool, 1000, &e);
	assert_int_equal(principal_of(mem, db, js_str(out, "grant"), &who, &e), 0);
	assert_non_null(who);
	assert_string_equal(who->repo, "work");
	assert_string_equal(who->ref, "refs/heads/agent/x");
	refused(
	    who, "issue_grant", js_pack("{s:s, s:s}", "repo", "work", "ref", "y"), ERR_FORBIDDEN, "grant");
	refused(who, "push_files", push("agent/x", js_pack("[o]", file("a", "1"))), ERR_FORBIDDEN, "grant");
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
	auto_pg struct pg *db = pg_take(pool, 1000, &e);
	assert_int_equal(principal_of(mem, db, js_str(out, "grant"), &who, &e), 0);
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
	struct ctx c = ctx(&ada, &reply);
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

static int start_server(void **s)
{
	(void)s;
	struct err e = { 0 };
	assert_non_null(mkdtemp(root));
	assert_int_equal(setenv("FORGE_ROOT", root, 1) + setenv("PUBLIC_URL", "https://gh.test", 1), 0);
	conf = conf_load("/dev/null", &e);
	if (conf == NULL)
		fail_msg("%s", e.msg);
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 2, 5000);
	mem = mem_new();
	auto_pg struct pg *db = pg_take(pool, 1000, &e);
	return org_create(db, "acme", &e) + org_create(db, "other", &e);
}

static int end_server(void **s)
{
	(void)s;
	struct err e = { 0 };
	mem_free(mem);
	pg_pool_free(pool);
	pgtest_end(server);
	conf_free(conf);
	return file_rmtree(root, &e);
}

#define WORK(name) cmocka_unit_test_setup_teardown(name, make_work, drop_work)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repository_is_created_listed_read_and_deleted),
		cmocka_unit_test(a_bad_name_leaves_nothing_behind),
		cmocka_unit_test(another_orgs_repository_does_not_exist),
		cmocka_unit_test(a_projects_repository_has_no_page),
		cmocka_unit_test(what_a_crash_left_is_replaced_and_swept),
		cmocka_unit_test(a_repository_that_cannot_be_built_has_no_row),
		WORK(files_become_a_commit_without_a_clone),
		WORK(bytes_are_kept_as_they_are),
		WORK(modes_are_kept_and_links_are_not_written_through),
		WORK(what_differs_in_nothing_makes_no_commit),
		WORK(paths_in_each_others_way_conflict),
		WORK(branches_in_each_others_way_conflict),
		WORK(many_files_travel_in_one_commit),
		WORK(a_grant_is_for_one_branch_that_is_not_the_default),
		cmocka_unit_test(a_grant_ends_with_its_repository),
		WORK(a_tip_is_read_from_storage),
		cmocka_unit_test(a_proposal_is_the_branchs_page),
	};
	return cmocka_run_group_tests_name("repos", tests, start_server, end_server);
}
