#include "code/runs.h"

#include <string.h>

#include "auth/cred.h"
#include "auth/principal.h"
#include "base/js.h"
#include "code/task.h"
#include "session/event.h"
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
	STOP_BY,
	COST
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
	js_set(v, "costMillicents", json_integer(pg_int(r, i, COST)));
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

/* Nobody has begun, so there is nothing to end: session, run and job are closed at once. 1 when that was so; in the order of
 * locks that a runner takes them in. */
static int stop_queued(struct pg *db, const struct principal *who, const json_t *run, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *org = who->org, *id = js_str(run, "id");
	int withdrawn = pg_begin(db, e) != 0 ? -1 : job_withdraw(db, org, TASK_JOB_KIND, id, e);
	if (withdrawn < 1) {
		pg_rollback(db);
		return withdrawn;
	}
	auto_json json_t *last = js_pack("{s:s, s:s, s:s, s:i}", "message",
	    mem_fmt(m, "The run was stopped by %s before it began.", who->user), "code", "stopped", "logTail",
	    "", "attempts", 0);
	if (session_close(db, org, js_str(run, "session"), "stopped", last, NULL, e) != 0)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_run_end_queued, e, org, id, who->user);
	return r == NULL || pg_commit(db, e) != 0 ? -1 : 1;
}

json_t *runs_stop(struct pg *db, const struct principal *who, const char *id, struct err *e)
{
	const char *org = who->org;
	auto_json json_t *run = runs_get(db, org, id, e);
	if (run == NULL)
		return NULL;
	if (!principal_may_stop(who, org, js_str_or(run, "createdBy", ""))) {
		(void)err_set(
		    e, ERR_FORBIDDEN, "Only who started the run, or an admin of the org, can stop it.");
		return NULL;
	}
	int stopped = strcmp(js_str_or(run, "state", ""), "queued") == 0 ? stop_queued(db, who, run, e) : 0;
	if (stopped != 0)
		return stopped < 0 ? NULL : runs_get(db, org, id, e);
	auto_res struct pg_res *r = PG(db, &q_run_ask_stop, e, org, id, who->user);
	return r == NULL ? NULL : runs_get(db, org, id, e);
}

int runs_token(
    struct pg *db, const struct principal *who, const char *id, int ttl_s, struct cred *got, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_run_for_token, e, who->org, id);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no such run.");
	if (!principal_may_stop(who, who->org, pg_str(r, 0, 1)))
		return err_set(e, ERR_FORBIDDEN,
		    "Only who started the run, or an admin of the org, is given a token for it.");
	if (pg_bool(r, 0, 2))
		return err_set(e, ERR_CONFLICT, "The run has ended, and so have its tokens.");
	const struct cred_new want = { .kind = CRED_RUN_TOKEN,
		.org = who->org,
		.user = pg_str(r, 0, 1),
		.name = id,
		.scopes = "models",
		.session = pg_str(r, 0, 0),
		.ttl_s = ttl_s };
	return cred_create(db, &want, got, e);
}
