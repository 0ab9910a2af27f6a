#include "forge/repo.h"

#include <string.h>

#include "auth/cred.h"
#include "auth/once.h"
#include "base/js.h"
#include "base/str.h"
#include "forge/git.h"
#include "forge/store.h"
#include "sql/forge.h"

enum { DB_WAIT_MS = 5000 };

int repo_absent(const char *name, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "There is no repository %.100s in this organisation.", name);
}

static void fill(struct ctx *c, struct repo *r, const struct pg_res *rows, int row, const char *org)
{
	*r = (struct repo){
		.org = mem_str(c->mem, org),
		.name = mem_str(c->mem, pg_str(rows, row, pg_col(rows, "name"))),
		.default_branch = mem_str(c->mem, pg_str(rows, row, pg_col(rows, "default_branch"))),
		.created_at = mem_str(c->mem, pg_str(rows, row, pg_col(rows, "created_at"))),
	};
	int project = pg_col(rows, "project");
	if (!pg_null(rows, row, project))
		r->project = mem_str(c->mem, pg_str(rows, row, project));
	r->dir = store_dir(c->mem, c->conf, org, r->name);
}

/* Row and directory under one lock and in one transaction: a failure of either leaves neither. */
static int create_locked(struct ctx *c, struct repo *r, const char *built, struct err *e)
{
	auto_fd int lock = store_lock(c->mem, c->conf, e);
	auto_pg struct pg *db = lock >= 0 ? pg_take(c->db, DB_WAIT_MS, e) : NULL;
	if (db == NULL || once_begin(c, db, e) != 0)
		return -1;
	auto_res struct pg_res *row = PG(
	    db, &q_repo_insert, e, r->org, r->name, r->project, r->default_branch);
	if (row == NULL && e->code == ERR_CONFLICT)
		return err_replace(
		    e, ERR_CONFLICT, "There already is a repository %s in this organisation.", r->name);
	if (row == NULL)
		return -1;
	r->created_at = mem_str(c->mem, pg_str(row, 0, 0));
	if (store_place(c->mem, c->conf, built, r->dir, e) != 0)
		return -1;
	/* When this fails nobody knows whether the row exists. A row without directory would be worse than a directory without
	 * row, which nobody reaches and the next creation replaces: it stays. */
	return once_commit(c, db, true, repo_json(c, r), e);
}

int repo_create(struct ctx *c, const char *org, const char *name, const char *project,
    const char *default_branch, struct repo *r, struct err *e)
{
	if (repo_name_check(name, e) != 0 || branch_check(default_branch, "defaultBranch", e) != 0)
		return -1;
	*r = (struct repo){
		.org = mem_str(c->mem, org),
		.name = mem_str(c->mem, name),
		.project = project != NULL ? mem_str(c->mem, project) : NULL,
		.default_branch = mem_str(c->mem, default_branch),
		.dir = store_dir(c->mem, c->conf, org, name),
	};
	store_sweep(c->mem, c->conf);
	const char *built = store_build(c->mem, c->conf, default_branch, e);
	if (built == NULL)
		return -1;
	int rc = create_locked(c, r, built, e);
	store_remove(built);
	return rc;
}

int repo_get(struct ctx *c, struct pg *db, const char *org, const char *name, struct repo *r, struct err *e)
{
	auto_res struct pg_res *rows = PG(db, &q_repo_by_name, e, org, name);
	if (rows == NULL)
		return -1;
	if (pg_rows(rows) == 0)
		return repo_absent(name, e);
	fill(c, r, rows, 0, org);
	return 0;
}

json_t *repo_list(struct ctx *c, struct pg *db, const char *org, const char *cursor, int limit, struct err *e)
{
	auto_res struct pg_res *rows = PG(db, &q_repo_page, e, org, cursor, pg_num(c->mem, limit + 1));
	if (rows == NULL)
		return NULL;
	json_t *list = json_array();
	for (int i = 0; i < pg_rows(rows); i++) {
		struct repo r;
		fill(c, &r, rows, i, org);
		js_push(list, repo_json(c, &r));
	}
	return list_reply(list, limit, "name");
}

static int drop_row(struct pg *db, const char *org, const char *name, struct err *e)
{
	if (pg_begin(db, e) != 0)
		return -1;
	auto_res struct pg_res *gone = PG(db, &q_repo_drop, e, org, name);
	if (gone == NULL)
		return -1;
	if (pg_affected(gone) == 0)
		return repo_absent(name, e);
	return cred_revoke_repo(db, org, name, e) != 0 ? -1 : pg_commit(db, e);
}

/* The row decides. A crash after that leaves a directory that nobody reaches. */
static int delete_locked(struct ctx *c, const char *org, const char *name, const char **away, struct err *e)
{
	auto_fd int lock = store_lock(c->mem, c->conf, e);
	auto_pg struct pg *db = lock >= 0 ? pg_take(c->db, DB_WAIT_MS, e) : NULL;
	if (db == NULL || drop_row(db, org, name, e) != 0)
		return -1;
	*away = store_drop(c->mem, c->conf, store_dir(c->mem, c->conf, org, name));
	return 0;
}

int repo_delete(struct ctx *c, const char *org, const char *name, struct err *e)
{
	const char *away = NULL;
	if (delete_locked(c, org, name, &away, e) != 0)
		return -1;
	store_remove(away);
	return 0;
}

const char *repo_page_url(struct ctx *c, const struct repo *r)
{
	return r->project != NULL
	    ? ""
	    : mem_fmt(c->mem, "%s/git/%s/%s", conf_str(c->conf, "PUBLIC_URL"), r->org, r->name);
}

json_t *repo_json(struct ctx *c, const struct repo *r)
{
	return js_pack("{s:s, s:s, s:s, s:s, s:s?, s:s}", "name", r->name, "cloneUrl",
	    mem_fmt(c->mem, "%s/v1/git/%s/%s.git", conf_str(c->conf, "PUBLIC_URL"), r->org, r->name),
	    "defaultBranch", r->default_branch, "page", repo_page_url(c, r), "project", r->project,
	    "createdAt", r->created_at);
}

int repo_tip(const struct repo *r, const char *branch, char out[65], struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *const args[] = { "show-ref", "--verify", "--hash", mem_fmt(m, "refs/heads/%s", branch),
		NULL };
	auto_proc struct proc_result p = { 0 };
	if (branch_check(branch, "branch", &(struct err){ 0 }) == 0) {
		if (git_run(m, &(struct git_call){ .dir = r->dir, .args = args }, &p, e) != 0)
			return -1;
		size_t n = strcspn(buf_c(&p.out), "\n");
		if (p.exit_code == 0 && (n == 40 || n == 64)) {
			memcpy(out, p.out.p, n);
			out[n] = 0;
			return 0;
		}
	}
	return err_set(e, ERR_NOT_FOUND, "There is no branch %.200s in the repository %s.", branch, r->name);
}
