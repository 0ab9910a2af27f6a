/* The grants of one repository: what still works, and taking one back (FRG-3). */
#include "auth/cred.h"
#include "base/js.h"
#include "sql/auth.h"

json_t *cred_grants(
    struct pg *db, const char *org, const char *repo, const char *before, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_auth_grants, e, org, repo, before, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows,
		    js_pack("{s:s, s:s, s:s, s:s?, s:s, s:s}", "id", pg_str(r, i, 0), "ref", pg_str(r, i, 1),
			"user", pg_str(r, i, 2), "session", pg_null(r, i, 3) ? NULL : pg_str(r, i, 3),
			"createdAt", pg_str(r, i, 4), "expiresAt", pg_str(r, i, 5)));
	return rows;
}

int cred_revoke_grant(struct pg *db, const char *org, const char *repo, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_auth_revoke_grant, e, org, repo, id);
	if (r == NULL)
		return -1;
	return pg_affected(r) == 1 ? 0 : err_set(e, ERR_NOT_FOUND, "There is no such grant.");
}
