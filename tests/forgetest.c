#include "forgetest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/cred.h"
#include "forge/git.h"
#include "forge/store.h"
#include "io/file.h"
#include "pgtest.h"
#include "t.h"

extern const struct op repos_ops[];

struct forgetest forgetest = { .root = "/tmp/ghr.XXXXXX" };
static struct pgtest *server;

const struct principal ada = { .kind = CRED_KEY, .org = "acme", .user = "ada", .scopes = "*" };
const struct principal bob = { .kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "git" };

struct ctx forgetest_ctx(const struct principal *who, struct reply *reply)
{
	return (struct ctx){ .mem = forgetest.mem,
		.db = forgetest.pool,
		.conf = forgetest.conf,
		.who = who,
		.reply = reply,
		.request_id = "req_1" };
}

/* An op as the server calls it: authorised, its input checked, its reply checked against its own schema. NULL with e. */
json_t *call(const struct principal *who, const char *id, json_t *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ repos_ops, NULL }, id);
	assert_non_null(op);
	struct reply reply = { 0 };
	struct ctx c = forgetest_ctx(who, &reply);
	err_clear(e);
	json_t *in = mem_json(forgetest.mem, input);
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out == NULL) {
		assert_int_not_equal(e->code, ERR_NONE);
		return NULL;
	}
	if (op_check_out(op->out, out, e) != 0)
		fail_msg("%s: %s", id, e->msg);
	return mem_json(forgetest.mem, out);
}

json_t *must(const struct principal *who, const char *id, json_t *input)
{
	struct err e;
	json_t *out = call(who, id, input, &e);
	if (out == NULL)
		fail_msg("%s: %s", id, e.msg);
	return out;
}

void refused(const struct principal *who, const char *id, json_t *input, enum err_code code, const char *says)
{
	struct err e;
	assert_null(call(who, id, input, &e));
	assert_int_equal(e.code, code);
	if (strstr(e.msg, says) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
	assert_null(strstr(e.msg, forgetest.root));
}

void create(const char *name)
{
	(void)must(&ada, "create_repo", js_pack("{s:s}", "name", name));
}

const char *dir_of(const char *name)
{
	return store_dir(forgetest.mem, forgetest.conf, "acme", name);
}

int entries(const char *what)
{
	DIR *d = opendir(mem_fmt(forgetest.mem, "%s/%s", forgetest.root, what));
	int n = 0;
	if (d == NULL)
		return 0;
	for (const struct dirent *f; (f = readdir(d)) != NULL;)
		n += f->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

/* What git says about a repository, without its last line end. */
const char *forge_git(const char *repo, const char *const *args)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	if (git_must(forgetest.mem, &(struct git_call){ .dir = dir_of(repo), .args = args }, &r, &e) != 0)
		fail_msg("git %s: %s", args[0], buf_c(&r.errout));
	size_t n = r.out.n;
	while (n > 0 && r.out.p[n - 1] == '\n')
		n--;
	return mem_strn(forgetest.mem, buf_c(&r.out), n);
}

json_t *file(const char *path, const char *content)
{
	return js_pack("{s:s, s:s}", "path", path, "content", content);
}

json_t *gone(const char *path)
{
	return js_pack("{s:s, s:b}", "path", path, "delete", 1);
}

json_t *push(const char *branch, json_t *files)
{
	return js_pack(
	    "{s:s, s:s, s:s, s:o}", "repo", "work", "branch", branch, "message", "a change", "files", files);
}

const char *pushed(const char *branch, json_t *files)
{
	const json_t *out = must(&ada, "push_files", push(branch, files));
	assert_string_equal(js_str(out, "branch"), branch);
	assert_string_equal(
	    js_str(out, "commit"), GIT("work", "rev-parse", mem_fmt(forgetest.mem, "refs/heads/%s", branch)));
	return js_str(out, "commit");
}

int make_work(void **s)
{
	(void)s;
	create("work");
	return 0;
}

int drop_work(void **s)
{
	(void)s;
	(void)must(&ada, "delete_repo", js_pack("{s:s}", "repo", "work"));
	assert_int_equal(entries(".gatehouse/tmp"), 0);
	return 0;
}

int forgetest_start(void **s)
{
	(void)s;
	struct err e = { 0 };
	assert_non_null(mkdtemp(forgetest.root));
	assert_int_equal(
	    setenv("FORGE_ROOT", forgetest.root, 1) + setenv("PUBLIC_URL", "https://gh.test", 1), 0);
	forgetest.conf = conf_load("/dev/null", &e);
	if (forgetest.conf == NULL)
		fail_msg("%s", e.msg);
	server = pgtest_start();
	forgetest.pool = pg_pool_new(pgtest_conninfo(server), 2, 5000);
	forgetest.mem = mem_new();
	auto_pg struct pg *db = pg_take(forgetest.pool, 60000, &e);
	return org_create(db, "acme", &e) + org_create(db, "other", &e);
}

int forgetest_end(void **s)
{
	(void)s;
	struct err e = { 0 };
	mem_free(forgetest.mem);
	pg_pool_free(forgetest.pool);
	pgtest_end(server);
	conf_free(forgetest.conf);
	return file_rmtree(forgetest.root, &e);
}
