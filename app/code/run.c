#include "code/run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "auth/cred.h"
#include "base/js.h"
#include "base/log.h"
#include "base/redact.h"
#include "code/clone.h"
#include "code/runs.h"
#include "code/verify.h"
#include "io/file.h"
#include "money/balance.h"
#include "money/gate.h"
#include "session/narrate.h"
#include "sql/run.h"

enum { LOG_TAIL_BYTES = 3 * NARRATE_TAIL_BYTES, MESSAGE_BYTES = 4096, BALANCE_AGAIN_MS = 250 };

/* ---- the row */

static const char *or_null(struct mem *m, const struct pg_res *q, int col)
{
	return pg_null(q, 0, col) ? NULL : mem_str(m, pg_str(q, 0, col));
}

static int begin(struct run *r, struct pg *db, void *arg, struct err *e)
{
	(void)arg;
	auto_res struct pg_res *q = PG(
	    db, &q_run_begin, e, r->org, r->id, r->job->id, pg_num(r->mem, r->job->fence));
	if (q == NULL)
		return -1;
	if (pg_rows(q) == 0)
		return run_fenced(e);
	const char **text[] = { &r->tool, &r->session, &r->repo, &r->clone_url, &r->base_branch, &r->branch,
		&r->prompt };
	for (int i = 0; i < (int)(sizeof text / sizeof text[0]); i++)
		*text[i] = or_null(r->mem, q, i);
	r->desktop = pg_bool(q, 0, 7);
	r->timeout_s = pg_int(q, 0, 8);
	r->created_by = or_null(r->mem, q, 9);
	r->sealed = or_null(r->mem, q, 10);
	r->credential_user = or_null(r->mem, q, 11);
	r->draft = or_null(r->mem, q, 12);
	if (pg_bool(q, 0, 13))
		task_raise(r->hold, TASK_STOP);
	return 0;
}

/* ---- this attempt's own place */

/* Locked while we live, so that task_sweep of another start leaves it alone; that one holds the root's lock alone. */
static int make_dir(struct run *r, struct err *e)
{
	r->dir = mem_fmt(r->mem, "%s/%s.%lld", conf_str(r->svc->conf, "RUNNER_DIR"), r->id, r->job->fence);
	r->git = (struct rgit_repo){
		.dir = mem_fmt(r->mem, "%s/base.git", r->dir), .cancelled = run_cancelled, .arg = r
	};
	auto_fd int root = open(conf_str(r->svc->conf, "RUNNER_DIR"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || flock(root, LOCK_SH) != 0)
		return err_set(e, ERR_INTERNAL, "The runner could not open its directory.");
	if (file_mkdirs(r->dir, 0700, e) != 0)
		return -1;
	r->dir_lock = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dir_lock < 0 || flock(r->dir_lock, LOCK_EX | LOCK_NB) != 0)
		return err_set(e, ERR_INTERNAL, "The runner could not lock its directory.");
	return 0;
}

static void drop_dir(struct run *r)
{
	struct err e = { 0 };
	if (r->dir != NULL && file_rmtree(r->dir, &e) != 0)
		log_warn("directory not removed", "run", r->id, "org", r->org, "error", e.msg);
	if (r->dir_lock >= 0)
		(void)close(r->dir_lock);
}

/* ---- an attempt */

static int revoke_all(struct run *r, struct pg *db, void *arg, struct err *e)
{
	(void)arg;
	if (pg_begin(db, e) != 0 || run_hold(r, db, e) != 0 ||
	    cred_revoke_session(db, r->org, r->session, e) != 0)
		return -1;
	return pg_commit(db, e);
}

static int look_unended(struct run *r, struct pg *db, void *arg, struct err *e)
{
	auto_res struct pg_res *q = PG(
	    db, &q_run_unended, e, r->org, r->session, "{\"step\":\"leased\"%", "{\"step\":\"ended\"%");
	if (q == NULL)
		return -1;
	*(bool *)arg = pg_bool(q, 0, 0);
	return 0;
}

/* What the runner before us may have left: its grants, its sandboxes, and an end that it could not tell any more. Then say
 * which attempt this is (COD-11). */
static int recover(struct run *r, struct err *e)
{
	int swept;
	bool unended;
	if (r->job->attempt == 1)
		return 0;
	if (run_try(r, revoke_all, NULL, e) != 0 ||
	    run_step(r, "attempt", "running", e, "attempt %d: the runner before did not finish",
		r->job->attempt) != 0)
		return -1;
	if (run_sweep_leases(r, &swept, e) != 0 || run_try(r, look_unended, &unended, e) != 0)
		return -1;
	return unended ? run_step(r, "ended", "ok", e, "The sandbox from before is gone") : 0;
}

static int open_credential(struct run *r, struct err *e)
{
	if (r->sealed == NULL)
		return 0;
	if (r->svc->seal == NULL)
		return err_set(e, ERR_INTERNAL, "The run's credential cannot be opened by this runner.");
	r->token = seal_open(r->svc->seal, r->id, r->sealed, e);
	return r->token == NULL ? -1 : 0;
}

static int put_draft(struct run *r, struct pg *db, void *arg, struct err *e)
{
	return run_set(r, db, &q_run_set_draft, arg, e);
}

/* A repository inside the checkout is one entry with a commit's id; what that commit holds stayed in the sandbox. */
static int say_repositories(struct run *r, struct err *e)
{
	const json_t *inner = js_get(r->diffstat, "repositories");
	if (json_array_size(inner) == 0)
		return 0;
	return run_step(r, "check", NULL, e,
	    "%s%s a repository of its own: only the id of its commit is taken, its files are not",
	    json_string_value(json_array_get(inner, 0)),
	    json_array_size(inner) > 1 ? ", like others here, is" : " is");
}

/* Check the change, then write down what is about to be pushed: a runner that dies right after the push has not lost it. */
static int check(struct run *r, struct err *e)
{
	auto_fd int pack = -1;
	if (run_collect(r, &pack, e) != 0 || run_step(r, "collect", "ok", e, "Took the new objects out") != 0)
		return -1;
	r->git.quarantine = mem_fmt(r->mem, "%s/incoming", r->dir);
	if (verify_pack(&r->git, pack, r->base, r->tip, &r->diffstat, e) != 0) {
		if (e->code == ERR_BAD_REQUEST) /* the change's fault; the run was asked for rightly */
			e->reason = "change_refused";
		return -1;
	}
	auto_json json_t *draft = js_pack("{s:s,s:O,s:o}", "commit", r->tip, "diffstat", r->diffstat,
	    "logTail", js_text(buf_c(&r->log_tail), r->log_tail.n));
	if (run_try(r, put_draft, js_dump(r->mem, draft), e) != 0)
		return -1;
	crash_point("run.checked");
	if (say_repositories(r, e) != 0)
		return -1;
	return run_step(r, "check", "ok", e, "The change is sound: files %lld, lines +%lld -%lld",
	    js_int(r->diffstat, "files", 0), js_int(r->diffstat, "insertions", 0),
	    js_int(r->diffstat, "deletions", 0));
}

/* 1 when the attempt before had pushed what its draft says: then nothing is redone. */
static int was_pushed(struct run *r, struct err *e)
{
	char stored[RGIT_ID_MAX];
	if (r->draft == NULL)
		return 0;
	auto_json json_t *draft = js_parse(r->draft, strlen(r->draft), e);
	const char *commit = js_str_or(draft, "commit", "");
	if (draft == NULL || !rgit_id_line(commit, strlen(commit), r->tip))
		return err_set(e, ERR_INTERNAL, "What the attempt before was about to push cannot be read.");
	if (clone_init(&r->git, e) != 0 || run_stored_tip(r, stored, e) != 0)
		return -1;
	if (strcmp(stored, r->tip) != 0) {
		r->tip[0] = 0;
		return 0;
	}
	r->diffstat = json_incref(json_object_get(draft, "diffstat"));
	(void)buf_str(&r->log_tail, js_str_or(draft, "logTail", ""));
	return run_step(r, "push", "ok", e, "The attempt before had pushed %.12s to %s", r->tip, r->branch) ==
		0
	    ? 1
	    : -1;
}

static int look_at_balance(struct run *r, struct pg *db, void *arg, struct err *e)
{
	(void)arg;
	return gate_check(r->svc->conf, db, r->org, NULL, e);
}

/* As long as its service is away; no connection is held meanwhile. */
static int wait_for_balance(struct run *r, struct err *e)
{
	const struct account pool = { .org = r->org, .subject = "", .currency = GATE_CURRENCY };
	for (;;) {
		struct err one = { 0 };
		if (balance_gate(r->svc->conf, r->svc->db, &pool, &one) == 0)
			return 0;
		if (run_go(r, e) != 0)
			return -1;
		(void)poll(NULL, 0, BALANCE_AGAIN_MS);
	}
}

/* From the billing gate to the pushed branch. The post was judged too, but a run may have waited long since. */
static int work(struct run *r, struct err *e)
{
	if (wait_for_balance(r, e) != 0 || run_try(r, look_at_balance, NULL, e) != 0 || run_lease(r, e) != 0)
		return -1;
	r->checkout = r->box.workdir;
	if (!run_has_repo(r))
		return run_tool(r, e);
	r->checkout = mem_fmt(r->mem, "%s/repo", r->box.workdir);
	if (run_fetch(r, e) != 0 || run_checkout(r, e) != 0 || run_tool(r, e) != 0 || run_commit(r, e) != 0)
		return -1;
	if (strcmp(r->tip, r->base) == 0) {
		r->tip[0] = 0; /* nothing to push */
		return 0;
	}
	return check(r, e) != 0 ? -1 : run_push(r, e);
}

static json_t *result_of(struct run *r, const char *page)
{
	bool changed = r->tip[0] != 0;
	json_t *v = js_pack("{s:b,s:b}", "ok", 1, "changed", changed);
	js_set_str(v, "branch", changed ? r->branch : NULL);
	js_set_str(v, "commit", changed ? r->tip : NULL);
	js_set(v, "diffstat", changed ? json_incref(r->diffstat) : NULL);
	js_set(v, "pr", page[0] == 0 ? NULL : js_pack("{s:s,s:s}", "identifier", r->branch, "url", page));
	js_set_str(v, "url", changed ? page : NULL);
	js_set(v, "logTail", js_text(buf_c(&r->log_tail), r->log_tail.n));
	js_set(v, "attempts", json_integer(r->job->attempt));
	return v;
}

/* After the push: the lease is gone, and only then what was pushed is believed. */
static int prove(struct run *r, struct err *e)
{
	if (run_unlease(r, e) != 0)
		return -1;
	crash_point("run.ended");
	return r->tip[0] == 0 ? 0 : run_verify(r, e);
}

/* COD-5, COD-6. *result is the payload of the terminal event. */
static int attempt(struct run *r, json_t **result, struct err *e)
{
	const char *page = "";
	if (recover(r, e) != 0 || run_go(r, e) != 0 || open_credential(r, e) != 0 || make_dir(r, e) != 0)
		return -1;
	int pushed = was_pushed(r, e);
	if (pushed < 0 || (pushed == 0 && work(r, e) != 0))
		return -1;
	if (prove(r, e) != 0)
		return -1;
	if (r->tip[0] != 0 && run_propose(r, &page, e) != 0)
		return -1;
	*result = result_of(r, page);
	return 0;
}

/* ---- the end, on every path */

struct closing {
	const char *state;
	const json_t *payload;
};

/* One transaction: the terminal event, the run's end with its credential wiped, the job's end. */
static int close_all(struct run *r, struct pg *db, void *arg, struct err *e)
{
	const struct closing *c = arg;
	bool done = strcmp(c->state, "done") == 0;
	if (pg_begin(db, e) != 0 ||
	    session_close(db, r->org, r->session, c->state, c->payload, &r->fence, e) != 0)
		return -1;
	auto_res struct pg_res *q = PG(db, &q_run_end, e, r->org, r->id, r->job->id,
	    pg_num(r->mem, r->job->fence), c->state, done && r->tip[0] != 0 ? r->tip : NULL);
	if (q == NULL || job_finish(db, r->job, done, e) != 0)
		return -1;
	return pg_commit(db, e);
}

static int read_run(struct run *r, struct pg *db, void *arg, struct err *e)
{
	json_t *run = runs_get(db, r->org, r->id, e);
	*(json_t **)arg = run;
	return run == NULL ? -1 : 0;
}

/* COD-8: text and names that a tool made may hold the credential. */
static json_t *hide(const struct run *r, json_t *v)
{
	const char *key;
	json_t *member;
	size_t i;
	if (r->token != NULL && json_is_string(v)) {
		auto_buf struct buf b = BUF(16 * LOG_TAIL_BYTES + 16 * MESSAGE_BYTES);
		(void)redact_secret(json_string_value(v), json_string_length(v), secret_use(r->token), &b);
		return js_text(buf_c(&b), b.n);
	}
	json_t *copy = json_copy(v);
	json_object_foreach(v, key, member)
		js_set(copy, key, hide(r, member));
	json_array_foreach(v, i, member)
		(void)json_array_set_new(copy, i, hide(r, member));
	return copy;
}

static int close_run(struct run *r, const char *state, json_t *payload, struct err *e)
{
	auto_json json_t *shown = hide(r, payload);
	struct closing c = { state, shown };
	auto_json json_t *now = NULL;
	struct err one = { 0 };
	crash_point("run.closing");
	if (run_try(r, revoke_all, NULL, e) != 0)
		return -1;
	if (run_try(r, close_all, &c, e) == 0)
		return 0;
	/* A commit whose answer was lost: tried again, it finds its own fence gone. */
	return run_try(r, read_run, &now, &one) == 0 && js_get(now, "endedAt") != NULL ? 0 : -1;
}

static int close_failed(struct run *r, const struct err *fault, struct err *e)
{
	bool stopped = run_why(r) == TASK_STOP;
	auto_json json_t *v = json_object(), *row = NULL;
	if (stopped && run_try(r, read_run, &row, e) != 0)
		return -1;
	const char *by = js_str(row, "stopRequestedBy");
	js_set_str(v, "message",
	    !stopped         ? fault->msg
		: by == NULL ? "The run was stopped."
			     : mem_fmt(r->mem, "The run was stopped by %s.", by));
	js_set_str(v, "code",
	    stopped                     ? "stopped"
		: fault->reason != NULL ? fault->reason
					: err_name(fault->code));
	js_set(v, "logTail", js_text(buf_c(&r->log_tail), r->log_tail.n));
	js_set(v, "attempts", json_integer(r->job->attempt));
	return close_run(r, stopped ? "stopped" : "error", v, e);
}

static int release(struct run *r, struct pg *db, void *arg, struct err *e)
{
	(void)arg;
	return job_release(db, r->job, e);
}

static int hand_back(struct run *r, struct err *e)
{
	struct err said = { 0 };
	(void)run_try(r, revoke_all, NULL, &said);
	(void)run_step(r, "attempt", NULL, &said, "The runner is ending; another one takes over");
	if (run_try(r, release, NULL, e) == 0)
		(void)err_set(e, ERR_UNAVAILABLE, "The run was handed back.");
	return -1;
}

/* Put away what the attempt holds and write its end. */
static int conclude(struct run *r, int rc, json_t *result, const struct err *fault, struct err *e)
{
	struct err said = { 0 };
	(void)run_unlease(r, &said);
	switch (run_why(r)) {
	case TASK_LOST:
		return err_set(e, ERR_CONFLICT, "The run belongs to another runner now.");
	case TASK_DRAIN:
		return rc == 0 ? close_run(r, "done", result, e) : hand_back(r, e);
	default:
		return rc == 0 ? close_run(r, "done", result, e) : close_failed(r, fault, e);
	}
}

static int poisoned(struct run *r, struct err *e)
{
	struct err said = { 0 };
	int n;
	(void)run_sweep_leases(r, &n, &said);
	return err_set(
	    e, ERR_INTERNAL, "The run ended its runner %d times; it is not tried again.", JOB_MAX_CRASHES);
}

static void log_end(const struct run *r, int rc, const struct err *fault)
{
	auto_mem struct mem *m = mem_new();
	log_info(rc == 0 ? "run done" : "run not done", "run", r->id, "org", r->org, "session", r->session,
	    "attempt", mem_fmt(m, "%d", r->job->attempt), "error", rc == 0 ? NULL : fault->msg);
}

int task_run(const struct runner *svc, const struct job *j, struct task_hold *hold, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct run r = {
		.svc = svc,
		.job = j,
		.hold = hold,
		.mem = m,
		.fence = { .job_id = j->id, .fence = j->fence },
		.id = j->subject,
		.org = j->org,
		.dir_lock = -1,
		.log_tail = BUF(LOG_TAIL_BYTES),
	};
	struct err fault = { 0 };
	json_t *result = NULL;
	if (run_try(&r, begin, NULL, e) != 0)
		return -1;
	crash_point("run.claimed");
	int rc = j->poisoned ? poisoned(&r, &fault) : attempt(&r, &result, &fault);
	log_end(&r, rc, &fault);
	rc = conclude(&r, rc, result, &fault, e);
	json_decref(result);
	json_decref(r.diffstat);
	buf_free(&r.log_tail);
	secret_free(r.token);
	drop_dir(&r);
	return rc;
}
