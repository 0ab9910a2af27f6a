#include "io/pg.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "io/pg_conn.h"

enum {
	SLACK_MS = 1000, /* PostgreSQL ends a slow statement itself; past this it is taken for hung */
	CONNECT_MS = 5000,
	ROLLBACK_MS = 2000,
};

struct pg {
	struct pg_pool *pool;
	PGconn *c; /* NULL: not connected, or lost */
	bool in_tx;
	const struct pg_stmt **prepared; /* on c */
	size_t n_prepared, cap_prepared;
	struct pg *next_idle;
};

struct pg_pool {
	char *conninfo;
	int statement_timeout_ms;
	size_t max;
	pthread_mutex_t lock;
	pthread_cond_t given_back;
	struct pg *idle; /* last used first, so that few connections serve a quiet process */
	struct pg all[];
};

struct pg_res {
	PGresult *r;
};

struct pg_pool *pg_pool_new(const char *conninfo, int max, int statement_timeout_ms)
{
	assert(max > 0 && statement_timeout_ms > 0);
	struct pg_pool *p = xcalloc(1, sizeof *p + (size_t)max * sizeof p->all[0]);
	p->conninfo = xstrdup(conninfo);
	p->statement_timeout_ms = statement_timeout_ms;
	p->max = (size_t)max;
	(void)pthread_cond_init(&p->given_back, NULL);
	(void)pthread_mutex_init(&p->lock, NULL);
	for (size_t i = 0; i < p->max; i++) {
		p->all[i] = (struct pg){ .pool = p, .next_idle = p->idle };
		p->idle = &p->all[i];
	}
	return p;
}

static void drop(struct pg *db)
{
	PQfinish(db->c);
	db->c = NULL;
	db->n_prepared = 0;
}

void pg_pool_free(struct pg_pool *p)
{
	if (p == NULL)
		return;
	size_t back = 0;
	for (const struct pg *db = p->idle; db != NULL; db = db->next_idle)
		back++;
	assert(back == p->max); /* everything taken was put back */
	for (size_t i = 0; i < p->max; i++) {
		drop(&p->all[i]);
		free(p->all[i].prepared);
	}
	(void)pthread_cond_destroy(&p->given_back);
	(void)pthread_mutex_destroy(&p->lock);
	free(p->conninfo);
	free(p);
}

static struct pg_until until_ms(int ms)
{
	return (struct pg_until){ .deadline_ms = clock_ms() + ms, .stop_fd = -1 };
}

/* Make sure of a connection that can take a command. Inside a transaction a lost one stays lost: what the
 * transaction did is gone, and going on elsewhere would do half of it. */
static int ready(struct pg *db, struct err *e)
{
	if (db->in_tx)
		return db->c != NULL ? 0 : pg_conn_lost(e);
	if (db->c != NULL && pg_conn_stale(db->c))
		drop(db);
	if (db->c == NULL) {
		int ms = db->pool->statement_timeout_ms;
		db->c = pg_conn_open(db->pool->conninfo, ms, until_ms(ms < CONNECT_MS ? ms : CONNECT_MS), e);
	}
	return db->c != NULL ? 0 : -1;
}

struct pg *pg_take(struct pg_pool *p, int wait_ms, struct err *e)
{
	int64_t end_ms = clock_ms() + wait_ms;
	(void)pthread_mutex_lock(&p->lock);
	while (p->idle == NULL && cond_wait_until(&p->given_back, &p->lock, end_ms))
		;
	struct pg *db = p->idle;
	if (db != NULL)
		p->idle = db->next_idle;
	(void)pthread_mutex_unlock(&p->lock);
	if (db == NULL) {
		(void)err_set(e, ERR_UNAVAILABLE, "The service is busy; try again in a moment.");
		return NULL;
	}
	/* One that is there is looked at by the first statement: two looks would find the same. */
	if (db->c == NULL && ready(db, e) != 0) {
		pg_put(db);
		return NULL;
	}
	return db;
}

void pg_put(struct pg *db)
{
	pg_rollback(db);
	/* Whatever a script left open must not meet the next user. */
	if (db->c != NULL && PQtransactionStatus(db->c) != PQTRANS_IDLE)
		drop(db);
	struct pg_pool *p = db->pool;
	(void)pthread_mutex_lock(&p->lock);
	db->next_idle = p->idle;
	p->idle = db;
	(void)pthread_cond_signal(&p->given_back);
	(void)pthread_mutex_unlock(&p->lock);
}

/* ---- commands */

static bool state_is(const PGresult *r, const char *state)
{
	const char *got = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	return got != NULL && strcmp(got, state) == 0;
}

/* r when it is no failure; else it is freed, e set, and the connection dropped when it cannot be trusted any more. */
static PGresult *judged(struct pg *db, PGresult *r, const char *what, struct err *e)
{
	if (pg_conn_check(r, what, e) == 0)
		return r;
	/* 25006: after a fail-over this server is a standby. */
	if (PQstatus(db->c) != CONNECTION_OK || state_is(r, "25006"))
		drop(db);
	PQclear(r);
	return NULL;
}

/* Read the answer to what was just sent. */
static PGresult *answer(struct pg *db, const char *what, struct pg_until until, struct err *e)
{
	PGresult *r = pg_conn_finish(db->c, until);
	if (r != NULL)
		return judged(db, r, what, e);
	drop(db);
	(void)pg_conn_lost(e);
	return NULL;
}

static bool is_prepared(const struct pg *db, const struct pg_stmt *q)
{
	for (size_t i = 0; i < db->n_prepared; i++)
		if (db->prepared[i] == q)
			return true;
	return false;
}

static int prepare(struct pg *db, const struct pg_stmt *q, struct pg_until until, struct err *e)
{
	if (is_prepared(db, q))
		return 0;
	if (PQsendPrepare(db->c, q->name, q->sql, 0, NULL) == 0) {
		drop(db);
		return pg_conn_lost(e);
	}
	PGresult *r = answer(db, q->name, until, e);
	if (r == NULL)
		return -1;
	PQclear(r);
	if (db->n_prepared == db->cap_prepared) {
		db->cap_prepared = db->cap_prepared == 0 ? 32 : 2 * db->cap_prepared;
		db->prepared = xrealloc(db->prepared, db->cap_prepared * sizeof(struct pg_stmt *));
	}
	db->prepared[db->n_prepared++] = q;
	return 0;
}

/* One attempt at a statement. *unused says that nothing of it was executed, so that a second attempt is no repetition. */
static PGresult *attempt(struct pg *db, const struct pg_stmt *q, int n, const char *const *params,
    struct pg_until until, bool *unused, struct err *e)
{
	*unused = false; /* nobody there: trying again at once would only double the wait */
	if (ready(db, e) != 0)
		return NULL;
	*unused = true;
	if (prepare(db, q, until, e) != 0)
		return NULL;
	if (PQsendQueryPrepared(db->c, q->name, n, params, NULL, NULL, 0) == 0) {
		drop(db);
		(void)pg_conn_lost(e);
		return NULL;
	}
	PGresult *r = pg_conn_finish(db->c, until);
	/* The schema changed under the plan; only a new connection prepares it anew. */
	*unused = r != NULL && (state_is(r, "0A000") || state_is(r, "26000"));
	if (r == NULL || *unused) {
		PQclear(r);
		drop(db);
		(void)pg_conn_lost(e);
		return NULL;
	}
	return judged(db, r, q->name, e);
}

struct pg_res *pg_query(
    struct pg *db, const struct pg_stmt *q, struct err *e, int n, const char *const *params)
{
	assert(n == q->n_params);
	struct pg_until until = until_ms(db->pool->statement_timeout_ms + SLACK_MS);
	struct err first = { 0 };
	bool unused;
	PGresult *r = attempt(db, q, n, params, until, &unused, &first);
	/* One more try on a new connection hides a restart or a migration. Not in a transaction: its first half is lost. */
	bool again = r == NULL && unused && db->c == NULL && !db->in_tx && first.code == ERR_UNAVAILABLE;
	if (again && clock_left_ms(until.deadline_ms) > 0)
		r = attempt(db, q, n, params, until, &unused, e);
	else if (r == NULL)
		*e = e->code == ERR_NONE ? first : *e; /* the first error wins */
	if (r == NULL)
		return NULL;
	struct pg_res *res = xcalloc(1, sizeof *res);
	res->r = r;
	return res;
}

/* One text without parameters, by the simple protocol. Its last command tag must be `tag`, when that is given. */
static int command(struct pg *db, const char *sql, const char *tag, int ms, struct err *e)
{
	if (ready(db, e) != 0)
		return -1;
	if (PQsendQuery(db->c, sql) == 0) {
		drop(db);
		return pg_conn_lost(e);
	}
	PGresult *r = answer(db, tag != NULL ? tag : "script", until_ms(ms), e);
	if (r == NULL)
		return -1;
	bool as_wanted = tag == NULL || strcmp(PQcmdStatus(r), tag) == 0;
	PQclear(r);
	/* COMMIT after a failed statement answers "ROLLBACK", which PostgreSQL does not call a failure. */
	return as_wanted ? 0
			 : err_set(e, ERR_INTERNAL, "The change was not stored; the log has the details.");
}

int pg_begin(struct pg *db, struct err *e)
{
	assert(!db->in_tx);
	if (command(db, "BEGIN", "BEGIN", db->pool->statement_timeout_ms + SLACK_MS, e) != 0)
		return -1;
	db->in_tx = true;
	return 0;
}

int pg_commit(struct pg *db, struct err *e)
{
	assert(db->in_tx);
	int rc = command(db, "COMMIT", "COMMIT", db->pool->statement_timeout_ms + SLACK_MS, e);
	db->in_tx = false;
	return rc;
}

void pg_rollback(struct pg *db)
{
	if (!db->in_tx)
		return;
	struct err ignored = { 0 };
	if (db->c != NULL && command(db, "ROLLBACK", "ROLLBACK", ROLLBACK_MS, &ignored) != 0)
		drop(db); /* the server rolls back by itself when the connection goes */
	db->in_tx = false;
}

int pg_script(struct pg *db, const char *sql, struct err *e)
{
	return command(db, sql, NULL, db->pool->statement_timeout_ms + SLACK_MS, e);
}

/* ---- results */

void pg_free(struct pg_res *r)
{
	if (r == NULL)
		return;
	PQclear(r->r);
	free(r);
}

int pg_rows(const struct pg_res *r)
{
	return PQntuples(r->r);
}

long long pg_affected(const struct pg_res *r)
{
	return strtoll(PQcmdTuples(r->r), NULL, 10);
}

const char *pg_str(const struct pg_res *r, int row, int col)
{
	assert(row >= 0 && row < PQntuples(r->r) && col >= 0 && col < PQnfields(r->r));
	return PQgetvalue(r->r, row, col);
}

bool pg_null(const struct pg_res *r, int row, int col)
{
	assert(row >= 0 && row < PQntuples(r->r) && col >= 0 && col < PQnfields(r->r));
	return PQgetisnull(r->r, row, col) == 1;
}

long long pg_int(const struct pg_res *r, int row, int col)
{
	return strtoll(pg_str(r, row, col), NULL, 10);
}

bool pg_bool(const struct pg_res *r, int row, int col)
{
	return pg_str(r, row, col)[0] == 't';
}

int pg_col(const struct pg_res *r, const char *name)
{
	int col = PQfnumber(r->r, name);
	assert(col >= 0);
	return col;
}

const char *pg_num(struct mem *m, long long v)
{
	return mem_num(m, v);
}
