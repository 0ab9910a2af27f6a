/*
 * repos.c - repositories: create, list, get, delete (FRG-1), commits without a clone (FRG-4), grants (FRG-3), and what other
 * hosts ask about a branch. The org is always the caller's own; another org's repository does not exist for it (ID-4).
 */
#include <string.h>

#include "auth/once.h"
#include "auth/principal.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "forge/grant.h"
#include "forge/push.h"
#include "handlers/handlers.h"

enum { NAME_MAX_BYTES = 400, PUSH_BODY_BYTES = 32 << 20 };

/* Longer than any good name, so that a bad one is refused with the rule it breaks. */
#define REPO_PARAM                                                                                           \
	IN_REQUIRED(T_STR, "repo", "The repository's name.", "\"demo\"", .min = 1, .max = NAME_MAX_BYTES)

static const struct param repo_out[] = {
	OUT(T_STR, "name", "Its name, unique in the organisation.", "\"demo\""),
	OUT(T_STR, "cloneUrl", "What `git clone` takes; any user name, the key or a grant as password.",
	    NULL),
	OUT(T_STR, "defaultBranch", "Where HEAD points.", "\"main\""),
	OUT(T_STR, "page", "Its page for people; empty for a project's repository.", NULL),
	OUT_NULL(T_STR, "project", "The project it belongs to, if any.", NULL),
	OUT(T_TIME, "createdAt", "When it was created.", NULL),
	{ 0 },
};
static const struct param one_in[] = { REPO_PARAM, { 0 } };

/* ---- create, list, get, delete */

static const struct param create_in[] = {
	IN_REQUIRED(T_STR, "name",
	    "Letters, digits, '.', '_' and '-'; begins with a letter or digit; at most 100 bytes.",
	    "\"demo\"", .min = 1, .max = NAME_MAX_BYTES),
	IN(T_STR, "project", "Make it a project's repository: it has no page.", NULL, .min = 1, .max = 64),
	IN(T_STR, "defaultBranch", "`main` when not given.", "\"main\"", .min = 1, .max = NAME_MAX_BYTES),
	{ 0 },
};

static json_t *create(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	if (repo_create(c, c->who->org, js_str(in, "name"), js_str(in, "project"),
		js_str_or(in, "defaultBranch", "main"), &r, e) != 0)
		return NULL;
	return repo_json(c, &r);
}

static const struct param list_out[] = { LIST_OUT(repo_out, "Repositories by name."), { 0 } };

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor != NULL ? handler_db(c, e) : NULL;
	return db != NULL ? repo_list(c, db, c->who->org, cursor, list_limit(in), e) : NULL;
}

static int find(struct ctx *c, const char *org, const json_t *in, struct repo *r, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db != NULL ? repo_get(c, db, org, js_str(in, "repo"), r, e) : -1;
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	return find(c, c->who->org, in, &r, e) == 0 ? repo_json(c, &r) : NULL;
}

static json_t *delete (struct ctx *c, json_t *in, struct err *e)
{
	return repo_delete(c, c->who->org, js_str(in, "repo"), e) == 0 ? json_object() : NULL;
}

/* ---- push_files */

static const char *const encodings[] = { "utf8", "base64", NULL };
static const struct param file_fields[] = {
	IN_REQUIRED(T_STR, "path", "Where, from the top; '/' between the parts.", "\"docs/hello.md\"",
	    .min = 1, .max = LIMIT_PATH_BYTES + 1),
	IN(T_STR, "content", "The whole new content.", "\"Hello.\\n\"", .max = PUSH_BODY_BYTES),
	IN(T_ENUM, "enc", "How `content` is written; `utf8` when not given.", "\"utf8\"",
	    .values = encodings),
	IN(T_BOOL, "delete", "Delete the file instead; without `content`.", NULL),
	{ 0 },
};
static const struct param push_in[] = {
	REPO_PARAM,
	IN_REQUIRED(T_STR, "branch",
	    "The branch to commit to; created from the default branch when it is not there.", "\"main\"",
	    .min = 1, .max = NAME_MAX_BYTES),
	IN_REQUIRED(T_STR, "message", "The commit message.", "\"Say hello\"", .min = 1, .max = 65536),
	IN_REQUIRED(T_ARR, "files", "What to write and delete; modes of existing files are kept.",
	    "[{\"path\":\"hello.md\",\"content\":\"Hello.\\n\"}]", .min = 1, .max = PUSH_FILES_MAX,
	    .fields = &(const struct param){ .type = T_OBJ, .fields = file_fields, .doc = "One file." }),
	{ 0 },
};
static const struct param push_out[] = {
	OUT(T_STR, "commit", "The branch's tip now; the one before when nothing differed.", NULL),
	OUT(T_STR, "branch", "The branch.", "\"main\""),
	{ 0 },
};

static int take_file(struct ctx *c, const json_t *o, struct push_file *f, struct err *e)
{
	const json_t *content = js_get(o, "content");
	*f = (struct push_file){ .path = js_str(o, "path"), .remove = js_bool(o, "delete", false) };
	if (f->remove != (content == NULL))
		return err_field(e, ERR_BAD_REQUEST, "files.content",
		    "\"%.200s\" needs either its `content` or `delete: true`.", f->path);
	if (f->remove)
		return 0;
	f->p = json_string_value(content);
	f->n = json_string_length(content);
	if (strcmp(js_str_or(o, "enc", "utf8"), "utf8") == 0)
		return 0;
	unsigned char *bytes = mem_alloc(c->mem, f->n + 1);
	ssize_t n = b64_decode(f->p, f->n, bytes);
	if (n < 0)
		return err_field(e, ERR_BAD_REQUEST, "files.content",
		    "The `content` of \"%.200s\" is not base64.", f->path);
	f->p = bytes;
	f->n = (size_t)n;
	return 0;
}

static json_t *push_files(struct ctx *c, json_t *in, struct err *e)
{
	const json_t *files = js_get(in, "files");
	size_t n = json_array_size(files);
	struct push_file *list = mem_alloc(c->mem, n * sizeof *list);
	for (size_t i = 0; i < n; i++)
		if (take_file(c, json_array_get(files, i), &list[i], e) != 0)
			return NULL;
	struct repo r;
	char commit[65];
	const struct push p = { .branch = js_str(in, "branch"),
		.message = js_str(in, "message"),
		.user = c->who->user,
		.files = list,
		.n = n };
	if (find(c, c->who->org, in, &r, e) != 0 || push_commit(c, &r, &p, commit, e) != 0)
		return NULL;
	return js_pack("{s:s, s:s}", "commit", commit, "branch", p.branch);
}

/* ---- grants */

static const struct param grant_in[] = {
	REPO_PARAM,
	IN_REQUIRED(T_STR, "ref", "The one branch that may be pushed; not the default branch.",
	    "\"agent/fix\"", .min = 1, .max = NAME_MAX_BYTES),
	IN(T_INT, "ttlSec", "Seconds that it lives; 900 when not given.", "900", .min = GRANT_TTL_MIN_S,
	    .max = GRANT_TTL_MAX_S),
	{ 0 },
};
static const struct param grant_out[] = {
	OUT(T_STR, "id", "Names the grant in logs.", NULL),
	OUT(T_STR, "grant", "The credential, shown this once: a password for git.", NULL),
	OUT(T_TIME, "expiresAt", "When it stops working.", NULL),
	{ 0 },
};

static json_t *issue_grant(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	if (find(c, c->who->org, in, &r, e) != 0)
		return NULL;
	auto_pg struct pg *db = handler_db(c, e);
	struct cred got = { 0 };
	const struct grant_want want = {
		.ref = js_str(in, "ref"), .user = c->who->user, .ttl_s = js_int(in, "ttlSec", GRANT_TTL_S)
	};
	if (db == NULL || once_begin(c, db, e) != 0 || grant_issue(db, &r, &want, &got, e) != 0)
		return NULL;
	auto_secret struct secret *text = got.text;
	if (once_commit(c, db, false, js_pack("{s:s}", "id", got.id), e) != 0)
		return NULL;
	return js_pack(
	    "{s:s, s:s, s:s}", "id", got.id, "grant", secret_use(text), "expiresAt", got.expires_at);
}

static const struct param grants_in[] = { REPO_PARAM, LIST_PARAMS, { 0 } };
static const struct param grant_row[] = {
	OUT(T_STR, "id", "Names the grant.", "\"grt_01jdvk2m8q4e6r8t0v2x4z6a8c\""),
	OUT(T_STR, "ref", "The branch it may push.", "\"refs/heads/agent/fix\""),
	OUT(T_STR, "user", "Who is answerable for it.", "\"ada\""),
	OUT_NULL(T_STR, "session", "The run that it belongs to and ends with.", "null"),
	OUT(T_TIME, "createdAt", "When it was issued.", "\"2026-11-29T12:00:00.000Z\""),
	OUT(T_TIME, "expiresAt", "When it stops working.", "\"2026-11-29T12:15:00.000Z\""),
	{ 0 },
};
static const struct param grants_out[] = { LIST_OUT(grant_row, "Grants that work, newest first."), { 0 } };
static const struct param revoke_in[] = {
	REPO_PARAM,
	IN_ID("id", "The grant.", "\"grt_01jdvk2m8q4e6r8t0v2x4z6a8c\""),
	{ 0 },
};

static json_t *list_grants(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	const char *before = list_cursor(c, in, e);
	if (before == NULL || find(c, c->who->org, in, &r, e) != 0)
		return NULL;
	int limit = list_limit(in);
	auto_pg struct pg *db = handler_db(c, e);
	json_t *rows = db == NULL ? NULL : cred_grants(db, r.org, r.name, before, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *revoke_grant(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	if (find(c, c->who->org, in, &r, e) != 0)
		return NULL;
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || cred_revoke_grant(db, r.org, r.name, js_str(in, "id"), e) != 0)
		return NULL;
	return json_object();
}

/* ---- internal: what a branch is in the forge's own storage */

static const struct param tip_in[] = {
	IN_REQUIRED(T_STR, "org", "The organisation.", NULL, .max = NAME_MAX_BYTES),
	REPO_PARAM,
	IN_REQUIRED(T_STR, "branch", "The branch.", NULL, .min = 1, .max = NAME_MAX_BYTES),
	{ 0 },
};
static const struct param tip_out[] = {
	OUT(T_STR, "commit", "Its tip.", NULL),
	{ 0 },
};

static json_t *tip(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	char commit[65];
	if (find(c, js_str(in, "org"), in, &r, e) != 0 || repo_tip(&r, js_str(in, "branch"), commit, e) != 0)
		return NULL;
	return js_pack("{s:s}", "commit", commit);
}

const struct op repos_ops[] = {
	{ .id = "create_repo",
	    .routes = { { "POST", "/v1/git/repos" } },
	    .summary = "Create a repository",
	    .doc = "An empty repository that is cloned and pushed over smart HTTP.",
	    .scope = "git",
	    .in = create_in,
	    .out = repo_out,
	    .status = 201,
	    .flags = OP_TOOL | OP_ONCE | OP_KEEPS,
	    .run = create },
	{ .id = "list_repos",
	    .routes = { { "GET", "/v1/git/repos" } },
	    .summary = "List repositories",
	    .doc = "The organisation's repositories, by name.",
	    .scope = "git",
	    .in = op_list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list },
	{ .id = "get_repo",
	    .routes = { { "GET", "/v1/git/repos/{repo}" } },
	    .summary = "Look at a repository",
	    .doc = "One repository of the organisation.",
	    .scope = "git",
	    .in = one_in,
	    .out = repo_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = get },
	{ .id = "delete_repo",
	    .routes = { { "DELETE", "/v1/git/repos/{repo}" } },
	    .summary = "Delete a repository",
	    .doc = "Delete the repository with everything in it. This cannot be undone.",
	    .scope = "git",
	    .in = one_in,
	    .out = op_none,
	    .status = 200,
	    .run = delete },
	{ .id = "push_files",
	    .routes = { { "POST", "/v1/git/repos/{repo}/push" } },
	    .summary = "Commit files",
	    .doc = "Write and delete files in one commit on one branch, without a clone. Either all of it "
		   "happens or nothing; 409 when the branch moved meanwhile.",
	    .scope = "git",
	    .in = push_in,
	    .out = push_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_ONCE,
	    .max_body_bytes = PUSH_BODY_BYTES,
	    .run = push_files },
	{ .id = "issue_grant",
	    .routes = { { "POST", "/v1/git/repos/{repo}/grants" } },
	    .summary = "Issue a grant",
	    .doc = "A short-lived password for git that reads this repository and moves one branch of it "
		   "forward, and nothing else.",
	    .scope = "git",
	    .in = grant_in,
	    .out = grant_out,
	    .status = 201,
	    .flags = OP_ONCE | OP_KEEPS | OP_SECRET,
	    .run = issue_grant },
	{ .id = "list_grants",
	    .routes = { { "GET", "/v1/git/repos/{repo}/grants" } },
	    .summary = "List grants",
	    .doc = "The grants for a repository that still work, those of runs too; never their secrets.",
	    .scope = "git",
	    .in = grants_in,
	    .out = grants_out,
	    .status = 200,
	    .run = list_grants },
	{ .id = "revoke_grant",
	    .routes = { { "DELETE", "/v1/git/repos/{repo}/grants/{id}" } },
	    .summary = "Take a grant back",
	    .doc = "From now on no host accepts it. A run whose grant is taken back cannot push.",
	    .scope = "git",
	    .in = revoke_in,
	    .out = op_none,
	    .status = 200,
	    .run = revoke_grant },
	{ .id = "forge_tip",
	    .routes = { { "GET", "/v1/forge/{org}/{repo}/tip" } },
	    .summary = "The tip of a branch in the forge's own storage",
	    .scope = "git",
	    .in = tip_in,
	    .out = tip_out,
	    .status = 200,
	    .flags = OP_INTERNAL,
	    .run = tip },
	{ 0 },
};
