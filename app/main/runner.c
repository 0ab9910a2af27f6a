/*
 * runner.c - gatehouse-runner: claims jobs, executes coding runs, narrates them.
 *
 * RUNNER_JOBS threads claim and work; one thread renews the leases of what they hold and looks for stops, with
 * connections of its own, so that neither waits for the work; the main thread waits for signals. Beside them the keeper of the
 * books (money/keeper.h) does its own.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "auth/reseal.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "code/soft.h"
#include "code/task.h"
#include "io/http.h"
#include "money/keeper.h"
#include "sql/run.h"

enum {
	POLL_MS = 1000, /* how long a lost notification can delay anything */
	BEATS = 3,      /* renewals in the time of one lease */
	DRAIN_MS =
	    45000, /* below the unit's TimeoutStopSec; what is not handed back then, its lease's end hands back */
	CLAIM_WAIT_MS = 2000,
	END_MS = 60000, /* a node that restarts is back by then */
	JOBS_MAX = 256, /* as conf's RUNNER_JOBS */
	MONEY_POOL = 3, /* its two threads, and what they tell in a session */
};

struct slot {                    /* one working thread */
	struct log_spell claims; /* of its thread */
	struct runner_process *p;
	pthread_t thread;
	bool busy; /* job and hold are in use; under the process's lock */
	struct job job;
	struct task_hold hold;
};

struct runner_process {
	struct runner svc;
	struct conf *conf;
	struct pg_pool *beat_db; /* of the heartbeat alone */
	int lease_s;
	char worker[128];
	pthread_mutex_t lock;
	pthread_cond_t work;  /* a job was announced, or we are ending */
	bool draining, ended; /* ended: no thread works any more */
	struct slot slots[JOBS_MAX];
	int n;
};

/* ---- working */

static void nap(struct runner_process *p)
{
	(void)pthread_mutex_lock(&p->lock);
	if (!p->draining)
		(void)cond_wait_until(&p->work, &p->lock, clock_ms() + POLL_MS);
	(void)pthread_mutex_unlock(&p->lock);
}

static bool is_draining(struct runner_process *p)
{
	(void)pthread_mutex_lock(&p->lock);
	bool is = p->draining;
	(void)pthread_mutex_unlock(&p->lock);
	return is;
}

/* 1 with a job in s->job. Its lease is counted from before the claim, so never too long. */
static int claim(struct slot *s, struct mem *m, struct err *e)
{
	struct runner_process *p = s->p;
	int64_t before = clock_ms();
	auto_pg struct pg *db = pg_take(p->svc.db, CLAIM_WAIT_MS, e);
	int rc = db == NULL ? -1 : job_claim(db, m, p->worker, TASK_JOB_KIND, p->lease_s, &s->job, e);
	if (rc != 1)
		return rc;
	(void)pthread_mutex_lock(&p->lock);
	atomic_store(&s->hold.why, p->draining ? TASK_DRAIN : TASK_GO);
	atomic_store(&s->hold.until_ms, before + 1000LL * p->lease_s);
	s->busy = true;
	(void)pthread_mutex_unlock(&p->lock);
	return 1;
}

/* One job, if there is one: 1, 0, or -1 when PostgreSQL cannot be asked. */
static int work_once(struct slot *s)
{
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	int rc = claim(s, m, &e);
	long long times;
	if (rc >= 0)
		(void)log_spell_works(&s->claims, &times);
	else if (log_spell_fails(&s->claims, clock_ms(), &times))
		log_warn("jobs cannot be claimed", "error", e.msg, "times", mem_fmt(m, "%lld", times));
	if (rc != 1)
		return rc;
	log_info("run claimed", "run", s->job.subject, "org", s->job.org, "attempt",
	    mem_fmt(m, "%d", s->job.attempt));
	if (task_run(&s->p->svc, &s->job, &s->hold, &e) != 0)
		log_warn("run not finished here", "run", s->job.subject, "org", s->job.org, "why", e.msg);
	(void)pthread_mutex_lock(&s->p->lock);
	s->busy = false;
	(void)pthread_mutex_unlock(&s->p->lock);
	return 1;
}

static void *work(void *arg)
{
	struct slot *s = arg;
	while (!is_draining(s->p))
		if (work_once(s) != 1)
			nap(s->p);
	return NULL;
}

/* ---- the heartbeat */

/* A copy of what a slot works on, so that no lock is held while PostgreSQL is asked. */
struct held {
	struct slot *slot;
	char job[ID_MAX], run[ID_MAX], org[64];
	long long fence;
};

static int held(struct runner_process *p, struct held *out)
{
	int n = 0;
	(void)pthread_mutex_lock(&p->lock);
	for (int i = 0; i < p->n; i++) {
		struct slot *s = &p->slots[i];
		if (!s->busy || task_held(&s->hold) == TASK_LOST) /* a lost one's lease runs out */
			continue;
		struct held *h = &out[n++];
		*h = (struct held){ .slot = s, .fence = s->job.fence };
		(void)snprintf(h->job, sizeof h->job, "%s", s->job.id);
		(void)snprintf(h->run, sizeof h->run, "%s", s->job.subject);
		(void)snprintf(h->org, sizeof h->org, "%s", s->job.org);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

/* Tell a slot something, if it still works on the same job. */
static void tell(struct runner_process *p, const struct held *h, enum task_why why, int64_t until_ms)
{
	(void)pthread_mutex_lock(&p->lock);
	if (h->slot->busy && h->slot->job.fence == h->fence) {
		if (why != TASK_GO)
			task_raise(&h->slot->hold, why);
		if (until_ms != 0)
			atomic_store(&h->slot->hold.until_ms, until_ms);
	}
	(void)pthread_mutex_unlock(&p->lock);
}

static void renew_all(struct runner_process *p, const struct held *h, int n)
{
	struct err e = { 0 };
	auto_pg struct pg *db = n == 0 ? NULL : pg_take(p->beat_db, CLAIM_WAIT_MS, &e);
	for (int i = 0; db != NULL && i < n; i++) {
		struct job j = { .org = h[i].org, .fence = h[i].fence };
		memcpy(j.id, h[i].job, sizeof j.id);
		int64_t before = clock_ms();
		struct err one = { 0 };
		if (job_renew(db, &j, p->lease_s, &one) == 0)
			tell(p, &h[i], TASK_GO, before + 1000LL * p->lease_s);
		else if (one.code == ERR_CONFLICT)
			tell(p, &h[i], TASK_LOST, 0);
		/* Anything else: unknown, and the hold's own end decides. */
	}
}

/* Runs whose end was asked for, where the notification was lost. */
static void look_for_stops(struct runner_process *p, const struct held *h, int n)
{
	auto_buf struct buf orgs = BUF(JOBS_MAX * 70), runs = BUF(JOBS_MAX * 40);
	struct err e = { 0 };
	if (n == 0)
		return;
	for (int i = 0; i < n; i++) { /* slugs and ids need no quoting in an array's text */
		(void)buf_fmt(&orgs, "%c%s", i == 0 ? '{' : ',', h[i].org);
		(void)buf_fmt(&runs, "%c%s", i == 0 ? '{' : ',', h[i].run);
	}
	(void)buf_chr(&orgs, '}');
	(void)buf_chr(&runs, '}');
	auto_pg struct pg *db = pg_take(p->beat_db, CLAIM_WAIT_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &q_run_asked_to_stop, &e, buf_c(&orgs), buf_c(&runs));
	for (int k = 0; r != NULL && k < pg_rows(r); k++)
		for (int i = 0; i < n; i++)
			if (strcmp(h[i].run, pg_str(r, k, 0)) == 0)
				tell(p, &h[i], TASK_STOP, 0);
}

static void *beat(void *arg)
{
	struct runner_process *p = arg;
	struct held *h = xcalloc(JOBS_MAX, sizeof *h);
	int64_t every = 1000LL * p->lease_s / BEATS, last = 0;
	for (bool ended = false; !ended;) {
		int n = held(p, h);
		if (clock_ms() - last >= every) {
			last = clock_ms();
			renew_all(p, h, n);
		}
		look_for_stops(p, h, n);
		const struct timespec pause = { .tv_nsec = 500 * 1000 * 1000 };
		(void)nanosleep(&pause, NULL);
		(void)pthread_mutex_lock(&p->lock);
		ended = p->ended;
		(void)pthread_mutex_unlock(&p->lock);
	}
	free(h);
	return NULL;
}

/* From the listening thread. Channel "" is a new connection: whoever waits looks again. */
static void on_event(void *arg, const char *channel, const char *payload)
{
	struct runner_process *p = arg;
	(void)pthread_mutex_lock(&p->lock);
	for (int i = 0; strcmp(channel, "gh_stop") == 0 && i < p->n; i++)
		if (p->slots[i].busy && strcmp(p->slots[i].job.subject, payload) == 0)
			task_raise(&p->slots[i].hold, TASK_STOP);
	if (channel[0] == 0)
		(void)pthread_cond_broadcast(&p->work);
	else if (strcmp(channel, "gh_job") == 0)
		(void)pthread_cond_signal(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
}

/* ---- the process */

static void start_threads(struct runner_process *p, pthread_t *heart)
{
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->work, NULL);
	bool ok = pthread_create(heart, NULL, beat, p) == 0;
	for (int i = 0; ok && i < p->n; i++) {
		p->slots[i].p = p;
		ok = pthread_create(&p->slots[i].thread, NULL, work, &p->slots[i]) == 0;
	}
	if (!ok) {
		log_error("threads cannot be started");
		_exit(1); /* nothing was acknowledged yet; a supervisor tries again */
	}
}

/* Hand everything back (RUN-6). A thread that does not end in time is left to its lease. */
static void drain(struct runner_process *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->draining = true;
	for (int i = 0; i < p->n; i++)
		if (p->slots[i].busy)
			task_raise(&p->slots[i].hold, TASK_DRAIN);
	(void)pthread_cond_broadcast(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
	struct timespec until;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += DRAIN_MS / 1000;
	for (int i = 0; i < p->n; i++)
		if (pthread_clockjoin_np(p->slots[i].thread, NULL, CLOCK_MONOTONIC, &until) != 0) {
			log_error("a run could not be handed back in time; its lease runs out");
			_exit(1);
		}
}

static void wait_for_end(struct runner_process *p, const sigset_t *signals)
{
	for (int sig = 0; sigwait(signals, &sig) != 0 || (sig != SIGTERM && sig != SIGINT);) {
		struct err e = { 0 }, bad = { 0 };
		if (sig == SIGHUP && reseal_reload(p->svc.db, p->svc.seal, &bad) != 0)
			log_error("the key file is not read again, the old keys stay", "why", bad.msg);
		if (sig == SIGHUP && conf_reload(p->conf, &e) != 0)
			log_error("configuration not reloaded, the old values stay", "why", e.msg);
		else if (sig == SIGHUP)
			conf_log(p->conf, "gatehouse-runner");
	}
}

static int run(struct conf *conf, const sigset_t *signals, struct err *e)
{
	static const char *const channels[] = { "gh_job", "gh_stop", NULL };
	const char *database = conf_str(conf, "DATABASE_URL");
	struct seal_key *seal = seal_load(conf_str(conf, "SECRET_KEY_FILE"), e);
	if (seal == NULL)
		return -1;
	struct pg_pool *money_db = pg_pool_new(
	    database, MONEY_POOL, (int)conf_int(conf, "DATABASE_TIMEOUT_MS"));
	struct keeper *keeper = keeper_start(
	    &(struct gate_opts){ .db = money_db, .conf = conf, .on_soft = soft_tell, .arg = money_db }, e);
	if (keeper == NULL) {
		pg_pool_free(money_db);
		seal_free(seal);
		return -1;
	}
	struct runner_process *p = xcalloc(1, sizeof *p);
	p->conf = conf;
	p->n = (int)conf_int(conf, "RUNNER_JOBS");
	p->lease_s = (int)conf_int(conf, "JOB_LEASE_S");
	p->beat_db = pg_pool_new(database, 1, 1000 * p->lease_s / BEATS);
	p->svc = (struct runner){ .conf = conf,
		.seal = seal,
		.end_ms = END_MS,
		.db = pg_pool_new(database, (int)conf_int(conf, "DATABASE_POOL"),
		    (int)conf_int(conf, "DATABASE_TIMEOUT_MS")) };
	char host[64] = "";
	(void)gethostname(host, sizeof host - 1);
	(void)snprintf(p->worker, sizeof p->worker, "%s:%d", host, (int)getpid());
	task_sweep(conf);
	pthread_t heart;
	start_threads(p, &heart);
	struct pg_listen *listen = pg_listen_start(database, channels, on_event, p);
	log_info("ready");
	wait_for_end(p, signals);
	log_info("ending");
	drain(p);
	keeper_stop(keeper);
	pg_pool_free(money_db);
	pg_listen_stop(listen);
	(void)pthread_mutex_lock(&p->lock);
	p->ended = true;
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_join(heart, NULL);
	pg_pool_free(p->beat_db);
	pg_pool_free(p->svc.db);
	seal_free(seal);
	free(p);
	return 0;
}

int main(void)
{
	struct err e = { 0 };
	sigset_t signals;
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)sigaddset(&signals, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: all of them inherit it */
	(void)signal(SIGPIPE, SIG_IGN);
	http_setup();
	struct conf *conf = conf_load(NULL, &e);
	int rc = -1;
	if (conf != NULL) {
		conf_log(conf, "gatehouse-runner");
		rc = run(conf, &signals, &e);
		conf_free(conf);
	}
	if (rc != 0)
		(void)fprintf(stderr, "gatehouse-runner: %s\n", e.msg);
	return rc == 0 ? 0 : err_exit(e.code);
}
