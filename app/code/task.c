#include "code/task.h"

#include <string.h>

#include "auth/limit.h"
#include "auth/once.h"
#include "auth/principal.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "code/ask.h"
#include "code/tool.h"
#include "forge/repo.h"
#include "money/balance.h"
#include "money/gate.h"
#include "sandbox/lease.h"
#include "session/event.h"
#include "sql/run.h"

enum { ROOM_RETRY_S = 10, DB_WAIT_MS = 5000, TITLE_BYTES = 120 };

static int unavailable(struct err *e, const char *reason, const char *msg)
{
	(void)err_set(e, ERR_UNAVAILABLE, "%s", msg);
	e->reason = reason;
	return -1;
}

static int check_model(const struct ask *a, struct err *e)
{
	const struct tool *t = tool_find(a->tool);
	if (t == NULL) /* the op's schema names the set */
		return err_field(
		    e, ERR_BAD_REQUEST, "tool", "tool is one of dev, claude, codex, python, node.");
	if (!t->model)
		return 0;
	(void)err_field(e, ERR_UNAVAILABLE, "tool",
	    "No model back end is configured for %s; use tool python or node.", t->name);
	e->reason = "no_model_backend";
	return -1;
}

/* The repository in the caller's org, and the branch that the run starts from. */
static int find_repo(struct ctx *c, struct pg *db, struct ask *a, struct err *e)
{
	struct repo r;
	if (a->repo == NULL)
		return 0;
	if (repo_get(c, db, c->who->org, a->repo, &r, e) != 0)
		return -1;
	if (a->project != NULL && (r.project == NULL || strcmp(r.project, a->project) != 0))
		return err_field(
		    e, ERR_NOT_FOUND, "project", "The repository does not belong to that project.");
	if (a->base == NULL)
		a->base = r.default_branch;
	return 0;
}

static int adopt(struct ctx *c, struct pg *db, const struct ask *a, struct err *e)
{
	struct session_row row;
	if (session_get(db, c->mem, c->who->org, a->session, &row, e) != 0)
		return -1;
	if (strcmp(row.state, "open") != 0)
		return err_field(e, ERR_CONFLICT, "session",
		    "The session is closed; leave session out to open a new one.");
	auto_res struct pg_res *r = PG(db, &q_run_of_session, e, c->who->org, a->session);
	if (r == NULL)
		return -1;
	if (pg_rows(r) > 0)
		return err_field(
		    e, ERR_CONFLICT, "session", "The session already has a run; leave session out.");
	return 0;
}

/* The prompt's first line, bounded: what lists show. */
static const char *title_of(struct mem *m, const char *prompt)
{
	size_t n = strcspn(prompt, "\n");
	if (n > TITLE_BYTES)
		n = utf8_valid(prompt, TITLE_BYTES);
	return mem_strn(m, prompt, n);
}

static int open_session(
    struct ctx *c, struct pg *db, const struct ask *a, struct task_started *got, struct err *e)
{
	if (a->session != NULL) {
		memcpy(got->session, a->session, strlen(a->session) + 1);
		return 0;
	}
	return session_open(
	    db, c->who->org, "coding", title_of(c->mem, a->prompt), c->who->user, NULL, got->session, e);
}

static int put_run(struct ctx *c, struct pg *db, const struct seal_key *seal_key, const struct ask *a,
    const struct task_started *got, struct err *e)
{
	char branch[ASK_BRANCH_MAX];
	const char *sealed = NULL;
	ask_branch(got->session, branch);
	if (a->token != NULL) {
		auto_secret struct secret *s = secret_new(a->token, strlen(a->token));
		sealed = seal(c->mem, seal_key, got->run, s);
	}
	bool repository = a->repo != NULL || a->clone_url != NULL;
	auto_res struct pg_res *r = PG(db, &q_run_put, e, got->run, c->who->org, a->tool, got->session,
	    a->repo, a->clone_url, a->base, repository ? branch : NULL, a->prompt,
	    a->desktop ? "true" : "false", pg_num(c->mem, a->timeout_s), c->who->user, sealed,
	    a->token != NULL ? a->user : NULL);
	return r == NULL ? -1 : 0;
}

static int put_start(
    struct ctx *c, struct pg *db, const struct ask *a, const struct task_started *got, struct err *e)
{
	auto_json json_t *v = js_pack(
	    "{s:s,s:s,s:s,s:s}", "session", got->session, "phase", "start", "run", got->run, "tool", a->tool);
	js_set_str(v, "repo", a->repo);
	js_set_str(v, "message", title_of(c->mem, a->prompt));
	return session_append(db, c->who->org, got->session, "status", v, NULL, e);
}

/* ID-7. Inside the transaction, first of all: the org's row stays locked. */
static int room(struct ctx *c, struct pg *db, struct err *e)
{
	long long most;
	if (limit_runs(c, db, &most, e) != 0 || most == 0)
		return e->code == ERR_NONE ? 0 : -1;
	auto_res struct pg_res *r = PG(db, &q_run_live, e, c->who->org);
	if (r == NULL)
		return -1;
	if (pg_int(r, 0, 0) < most)
		return 0;
	(void)err_set(e, ERR_RATE,
	    "Your organisation has %lld runs queued or at work, which is its limit; try again when one has "
	    "ended.",
	    pg_int(r, 0, 0));
	e->reason = "too_many_runs";
	e->retry_s = ROOM_RETRY_S;
	return -1;
}

int task_start(
    struct ctx *c, const struct seal_key *seal_key, const json_t *in, struct task_started *got, struct err *e)
{
	struct ask a;
	ask_read(in, &a);
	if (ask_check(&a, in, conf_str(c->conf, "ALLOW_HTTP_CLONE_HOSTS"), e) != 0 || check_model(&a, e) != 0)
		return -1;
	if (a.token != NULL && seal_key == NULL)
		return unavailable(
		    e, "no_secret_key", "Credentials cannot be kept here: no SECRET_KEY_FILE is configured.");
	const struct account pool = { .org = c->who->org, .subject = "", .currency = GATE_CURRENCY };
	if (balance_gate(c->conf, c->db, &pool, e) != 0)
		return -1;
	auto_pg struct pg *db = pg_take(c->db, DB_WAIT_MS, e);
	if (db == NULL || find_repo(c, db, &a, e) != 0)
		return -1;
	if (a.session != NULL && adopt(c, db, &a, e) != 0)
		return -1;
	if (lease_offered(c->conf, db, e) != 0) /* COD-14 */
		return -1;
	if (gate_check(c->conf, db, c->who->org, c->who->cred_id, e) != 0) /* BIL-1 */
		return -1;
	id_make("run", got->run);
	if (once_begin(c, db, e) != 0 || room(c, db, e) != 0 || open_session(c, db, &a, got, e) != 0 ||
	    put_run(c, db, seal_key, &a, got, e) != 0 || put_start(c, db, &a, got, e) != 0 ||
	    job_put(db, c->who->org, TASK_JOB_KIND, got->run, e) != 0)
		return -1; /* given back inside a transaction, the connection rolls back */
	return once_commit(c, db, false, js_pack("{s:s,s:s}", "run", got->run, "session", got->session), e);
}
