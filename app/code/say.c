#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/redact.h"
#include "base/str.h"
#include "code/run.h"
#include "sql/run.h"

enum { DB_WAIT_MS = 2000, AGAIN_MS = 250, MESSAGE_BYTES = 2000, CTX_MS = 120 * 1000 };

void task_raise(struct task_hold *h, enum task_why to)
{
	int now = atomic_load(&h->why);
	while (now < (int)to && !atomic_compare_exchange_weak(&h->why, &now, (int)to))
		;
}

/* Lost once is lost: who was interrupted by it cannot be told otherwise by a renewal that came through late. */
enum task_why task_held(struct task_hold *h)
{
	if (clock_ms() >= atomic_load(&h->until_ms))
		task_raise(h, TASK_LOST);
	return (enum task_why)atomic_load(&h->why);
}

enum task_why run_why(const struct run *r)
{
	return task_held(r->hold);
}

bool run_cancelled(void *arg)
{
	return run_why(arg) != TASK_GO;
}

int run_go(const struct run *r, struct err *e)
{
	enum task_why why = run_why(r);
	if (why == TASK_GO)
		return 0;
	(void)err_set(e, ERR_CONFLICT, "%s",
	    why == TASK_STOP        ? "The run was stopped."
		: why == TASK_DRAIN ? "The runner is ending; another one takes over."
				    : "The run belongs to another runner now.");
	e->reason = "interrupted";
	return -1;
}

static int once(struct run *r, int (*fn)(struct run *r, struct pg *db, void *arg, struct err *e), void *arg,
    struct err *e)
{
	auto_pg struct pg *db = pg_take(r->svc->db, DB_WAIT_MS, e);
	return db == NULL ? -1 : fn(r, db, arg, e);
}

int run_try(struct run *r, int (*fn)(struct run *r, struct pg *db, void *arg, struct err *e), void *arg,
    struct err *e)
{
	for (;;) {
		struct err one = { 0 };
		if (once(r, fn, arg, &one) == 0)
			return 0;
		if (one.code == ERR_CONFLICT && err_is(&one, "fenced"))
			task_raise(r->hold, TASK_LOST);
		/* The heartbeat gives up with the lease, so this ends. */
		if (one.code != ERR_UNAVAILABLE || run_why(r) == TASK_LOST) {
			if (e->code == ERR_NONE)
				*e = one;
			return -1;
		}
		(void)poll(NULL, 0, AGAIN_MS);
	}
}

int run_fail(struct err *e, const char *code, const char *fmt, ...)
{
	char text[ERR_MSG_MAX];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	text[utf8_valid(text, strlen(text))] = 0;
	if (e->code == ERR_NONE)
		e->reason = code;
	return err_set(e, ERR_UPSTREAM, "%s", text);
}

int run_fenced(struct err *e)
{
	(void)err_set(e, ERR_CONFLICT, "The run belongs to another runner now.");
	e->reason = "fenced";
	return -1;
}

int run_hold(struct run *r, struct pg *db, struct err *e)
{
	auto_res struct pg_res *res = PG(
	    db, &q_run_hold, e, r->org, r->job->id, pg_num(r->mem, r->job->fence));
	if (res == NULL)
		return -1;
	return pg_rows(res) == 1 ? 0 : run_fenced(e);
}

int run_set(struct run *r, struct pg *db, const struct pg_stmt *q, const char *value, struct err *e)
{
	auto_res struct pg_res *res = PG(
	    db, q, e, r->org, r->id, r->job->id, pg_num(r->mem, r->job->fence), value);
	if (res == NULL)
		return -1;
	return pg_affected(res) == 1 ? 0 : run_fenced(e);
}

struct step {
	const char *step, *status, *message;
};

static int put_step(struct run *r, struct pg *db, void *arg, struct err *e)
{
	const struct step *s = arg;
	return session_step(db, r->org, r->session, s->step, s->message, s->status, &r->fence, e);
}

int run_step(struct run *r, const char *step, const char *status, struct err *e, const char *fmt, ...)
{
	char text[MESSAGE_BYTES];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	auto_buf struct buf clean = BUF(8 * MESSAGE_BYTES);
	size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
	if (r->token != NULL)
		(void)redact_secret(text, len, secret_use(r->token), &clean);
	else
		(void)buf_add(&clean, text, len);
	struct step s = { step, status, buf_c(&clean) };
	return run_try(r, put_step, &s, e);
}

struct ctx run_ctx(const struct run *r)
{
	return (struct ctx){
		.mem = r->mem,
		.db = r->svc->db,
		.conf = r->svc->conf,
		.request_id = r->id,
		.deadline_ms = clock_ms() + CTX_MS,
	};
}
