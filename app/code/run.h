/*
 * run.h - one attempt at a run, as its steps share it (COD-5). Private to app/code.
 *
 * Every step returns 0, or -1 with e. Between and inside steps run_go() says whether the attempt may go on; what was started is
 * put away by run.c, whatever happened. Database writes go through run_try and carry the fence.
 */
#pragma once

#include "base/buf.h"
#include "base/crash.h"
#include "base/secret.h"
#include "code/rgit.h"
#include "code/task.h"
#include "sandbox/client.h"
#include "session/event.h"

struct run {
	const struct runner *svc;
	const struct job *job;
	struct task_hold *hold;
	struct mem *mem;
	struct fence fence;

	/* The row. */
	const char *id, *org, *tool, *session, *repo, *clone_url, *base_branch, *branch, *prompt, *created_by;
	const char *sealed, *credential_user, *draft;
	bool desktop;
	long long timeout_s;

	struct secret *token; /* of clone_url; NULL for none */
	const char *dir;      /* this attempt's own directory under RUNNER_DIR */
	int dir_lock;         /* a locked descriptor of it, -1 */
	struct rgit_repo git;

	struct box_addr box;
	bool leased;          /* box is a lease of ours that has not been ended */
	const char *checkout; /* where the tool works, inside the sandbox */

	char base[RGIT_ID_MAX]; /* "": the repository was empty */
	char tip[RGIT_ID_MAX];
	json_t *diffstat;
	struct buf log_tail;
};

static inline bool run_has_repo(const struct run *r)
{
	return r->repo != NULL || r->clone_url != NULL;
}

/* ---- say.c: going on, writing, narrating */

enum task_why run_why(const struct run *r);
/* The `cancelled` callback of git and of commands: anything raised ends them. */
bool run_cancelled(void *arg);
/* 0, or -1 with e (reason "interrupted") when the attempt may not go on. */
int run_go(const struct run *r, struct err *e);
/* A fault of the run itself, under the `code` of its terminal event (handlers/coding.c lists them). Returns -1. */
int run_fail(struct err *e, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/*
 * Call fn with a connection, again and again while PostgreSQL is away (REL-2), until it works, fails otherwise, or the job is
 * lost. A stale fence raises TASK_LOST. A write whose answer was lost may be done twice: fn must bear that.
 */
int run_try(struct run *r, int (*fn)(struct run *r, struct pg *db, void *arg, struct err *e), void *arg,
    struct err *e);
/* The error of a write that found its fence gone. Returns -1. */
int run_fenced(struct err *e);
/* Inside a transaction: 0 when the job is ours, and until its end nobody takes it over. For what carries no fence itself. */
int run_hold(struct run *r, struct pg *db, struct err *e);
/* An UPDATE of the run's row under the fence: $1 org, $2 run, $3 job, $4 fence, $5 value. For use inside run_try. */
int run_set(struct run *r, struct pg *db, const struct pg_stmt *q, const char *value, struct err *e);
/* A `step` event; status "running", "ok", "failed". */
int run_step(struct run *r, const char *step, const char *status, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A context for neighbours that want a request's. */
struct ctx run_ctx(const struct run *r);

/* ---- place.c: the lease */

int run_lease(struct run *r, struct err *e);
/* End the lease of this attempt, once it is really gone, and say `ended`. Nothing when there is none. */
int run_unlease(struct run *r, struct err *e);
/* End what earlier attempts, or a lease that failed half-way, left (COD-11), and say `ended` of each. *n: how many. */
int run_sweep_leases(struct run *r, int *n, struct err *e);

/* ---- checkout.c: fetch with the runner's credential, hand the commit to the sandbox */

/* Where git talks to and with which credential, for one act. The grant (of a repository of this forge) or the opened
 * credential stays in *token, which the caller frees after the act. */
int run_remote(struct run *r, struct rgit_remote *to, struct secret **token, struct err *e);
/* The URL that is recorded in the checkout. */
const char *run_plain_url(const struct run *r);
int run_fetch(struct run *r, struct err *e);
int run_checkout(struct run *r, struct err *e);

/* ---- work.c: commands inside the sandbox */

/* After a failed talk with a node or a remote: true when it may only be away for a moment, after a pause; until_ms is when
 * patience ends. Commands that were refused (not lost) did not run; files may be moved, refs fetched and pushed again. */
bool run_again(const struct run *r, const struct err *e, int64_t until_ms);
int64_t run_patience(const struct run *r);

/* Run argv (taken) to its end in `dir` as git or the like of ours: output collected, nothing narrated. */
int run_inside(struct run *r, const char *dir, json_t *argv, const char *in, long long timeout_s,
    struct box_exit *x, struct err *e);
/* The same, and any other end than exit 0 is an error that says `doing`. */
int run_inside_must(struct run *r, const char *dir, json_t *argv, const char *doing, struct err *e);
/* The tool, narrated. A failed tool is an error: `exit N`. */
int run_tool(struct run *r, struct err *e);

/* ---- commit.c: what the tool did, taken out of the sandbox */

/* The commit that HEAD is, "" when there is none. */
int run_read_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e);
int run_commit(struct run *r, struct err *e);
/* The new objects as a pack file of ours; its descriptor in *fd. */
int run_collect(struct run *r, int *fd, struct err *e);
/* COD-10: the first line of the prompt, bounded, and the trailer; appended. */
void run_message(const struct run *r, struct buf *out);

/* ---- land.c: push, prove, propose */

int run_push(struct run *r, struct err *e);
/* The branch in the repository's own storage; "" when it has none. */
int run_stored_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e);
int run_verify(struct run *r, struct err *e);
/* The branch's page, "" for none; a failure is said in an event and never the run's. */
int run_propose(struct run *r, const char **url, struct err *e);
