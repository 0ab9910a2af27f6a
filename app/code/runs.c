#include "code/runs.h"

#include "auth/principal.h"
#include "base/js.h"
#include "sql/run.h"

enum {
	ID,
	KIND,
	TOOL,
	REPO,
	CLONE_URL,
	BASE,
	BRANCH,
	STATE,
	SESSION,
	COMMIT,
	CREATED_BY,
	CREATED_AT,
	ENDED_AT,
	STOP_AT,
	MS,
	STOP_BY
};

static json_t *row_json(const struct pg_res *r, int i)
{
	static const struct {
		const char *name;
		int col;
	} text[] = {
		{ "id", ID },
		{ "kind", KIND },
		{ "tool", TOOL },
		{ "repo", REPO },
		{ "cloneUrl", CLONE_URL },
		{ "base", BASE },
		{ "branch", BRANCH },
		{ "state", STATE },
		{ "session", SESSION },
		{ "commit", COMMIT },
		{ "createdBy", CREATED_BY },
		{ "createdAt", CREATED_AT },
		{ "endedAt", ENDED_AT },
		{ "stopRequestedAt", STOP_AT },
		{ "stopRequestedBy", STOP_BY },
	};
	json_t *v = json_object();
	for (size_t k = 0; k < sizeof text / sizeof text[0]; k++)
		js_set_str(v, text[k].name, pg_null(r, i, text[k].col) ? NULL : pg_str(r, i, text[k].col));
	js_set(v, "durationMs", json_integer(pg_int(r, i, MS)));
	js_set_str(v, "costMillicents", NULL); /* null, not 0: nothing here knows a price */
	return v;
}

json_t *runs_get(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_run_get, e, org, id);
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 0) {
		(void)err_set(e, ERR_NOT_FOUND, "There is no such run.");
		return NULL;
	}
	return row_json(r, 0);
}

json_t *runs_list(struct pg *db, const char *org, const char *before, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	/* Above every id in any collation: letters sort behind letters. */
	auto_res struct pg_res *r = PG(
	    db, &q_run_list, e, org, before[0] == 0 ? "zzzz" : before, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, row_json(r, i));
	return rows;
}

json_t *runs_stop(struct pg *db, const struct principal *who, const char *id, struct err *e)
{
	const char *org = principal_org(who);
	auto_json json_t *run = runs_get(db, org, id, e);
	if (run == NULL)
		return NULL;
	if (!principal_may_stop(who, org, js_str_or(run, "createdBy", ""))) {
		(void)err_set(
		    e, ERR_FORBIDDEN, "Only who started the run, or an admin of the org, can stop it.");
		return NULL;
	}
	auto_res struct pg_res *r = PG(db, &q_run_ask_stop, e, org, id, who->user);
	return r == NULL ? NULL : runs_get(db, org, id, e);
}
