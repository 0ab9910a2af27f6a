#include "egress/ask.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/http.h"
#include "io/proc.h"

enum { KEY_BYTES = ID_MAX + HOST_TEXT + 8, ANSWER_BYTES = 4096, BUCKETS = 512 };

struct ask_job {
	struct later later;
	struct ask *ask;
	struct ask_wait *wait; /* the loop's; NULL: nobody waits any more */
	enum decide_answer answer;
	char org[LIMIT_ORG_SLUG + 1], sandbox[ID_MAX], host[HOST_TEXT];
	const char *form;
	uint16_t port;
	STAILQ_ENTRY(ask_job) next;
};

struct known {
	char key[KEY_BYTES];
	bool yes;
	int64_t until_ms;
	LIST_ENTRY(known) in_bucket;
	TAILQ_ENTRY(known) in_age;
};

struct ask {
	struct loop *loop;
	const char *target, *ca_file;
	int timeout_ms;
	/* the loop's */
	LIST_HEAD(, known) known[BUCKETS];
	TAILQ_HEAD(, known) age;
	int n_known;
	/* of the threads, under lock */
	pthread_mutex_t lock;
	pthread_cond_t some;
	STAILQ_HEAD(, ask_job) jobs;
	int n_jobs;
	bool stop;
	pthread_t threads[ASK_THREADS];
};

/* ---- what is known */

static void key_of(const char *sandbox, const char *host, uint16_t port, char out[KEY_BYTES])
{
	(void)snprintf(out, KEY_BYTES, "%s %s %u", sandbox, host, port);
}

static void drop(struct ask *a, struct known *k)
{
	LIST_REMOVE(k, in_bucket);
	TAILQ_REMOVE(&a->age, k, in_age);
	a->n_known--;
	free(k);
}

static enum decide_answer look_up(struct ask *a, const char *key)
{
	struct known *k, *next;
	for (k = LIST_FIRST(&a->known[hash_slot(key, BUCKETS)]); k != NULL; k = next) {
		next = LIST_NEXT(k, in_bucket);
		if (k->until_ms <= loop_now_ms(a->loop))
			drop(a, k);
		else if (strcmp(k->key, key) == 0)
			return k->yes ? ANSWER_YES : ANSWER_NO;
	}
	return ANSWER_NONE;
}

static void keep(struct ask *a, const char *key, bool yes)
{
	struct known *k = xcalloc(1, sizeof *k);
	memcpy(k->key, key, sizeof k->key);
	k->yes = yes;
	k->until_ms = loop_now_ms(a->loop) + ASK_KEEP_MS;
	LIST_INSERT_HEAD(&a->known[hash_slot(key, BUCKETS)], k, in_bucket);
	TAILQ_INSERT_TAIL(&a->age, k, in_age);
	if (++a->n_known > ASK_KEPT)
		drop(a, TAILQ_FIRST(&a->age));
}

/* ---- asking, in a thread */

static enum decide_answer by_url(const struct ask_job *j, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *q = js_pack("{s:s, s:s, s:s, s:s, s:i}", "org", j->org, "sandbox", j->sandbox,
	    "form", j->form, "host", j->host, "port", j->port);
	static const char *const headers[] = { "Content-Type: application/json", NULL };
	const char *body = js_dump(m, q);
	struct http_res res = { 0 };
	const struct http_req req = { .method = "POST",
		.url = j->ask->target,
		.ca_file = j->ask->ca_file[0] != '\0' ? j->ask->ca_file : NULL,
		.headers = headers,
		.body = body,
		.body_n = strlen(body),
		.connect_ms = j->ask->timeout_ms,
		.total_ms = j->ask->timeout_ms,
		.max_reply_bytes = ANSWER_BYTES };
	int rc = http_do(&req, &res, e);
	auto_json json_t *said = rc == 0 && res.status == 200 ? js_parse(buf_c(&res.body), res.body.n, e)
							      : NULL;
	const json_t *allow = js_get(said, "allow");
	http_res_free(&res);
	return json_is_true(allow) ? ANSWER_YES : json_is_false(allow) ? ANSWER_NO : ANSWER_NONE;
}

static enum decide_answer by_command(const struct ask_job *j, struct err *e)
{
	char port[8];
	(void)snprintf(port, sizeof port, "%u", j->port);
	const char *const argv[] = { j->ask->target, j->org, j->sandbox, j->form, j->host, port, NULL };
	auto_proc struct proc_result r = { 0 };
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = j->ask->timeout_ms,
		.max_out_bytes = ANSWER_BYTES };
	if (proc_run(&o, &r, e) != 0 || r.timed_out)
		return ANSWER_NONE;
	return r.exit_code == 0 ? ANSWER_YES : r.exit_code == 1 ? ANSWER_NO : ANSWER_NONE;
}

/* In the loop's thread. */
static void deliver(struct later *l)
{
	struct ask_job *j = (struct ask_job *)(void *)l;
	char key[KEY_BYTES] = "";
	key_of(j->sandbox, j->host, j->port, key);
	if (j->answer != ANSWER_NONE && look_up(j->ask, key) == ANSWER_NONE)
		keep(j->ask, key, j->answer == ANSWER_YES);
	if (j->wait != NULL) {
		struct ask_wait *w = j->wait;
		w->job = NULL;
		w->on(w, j->answer);
	}
	free(j);
}

static void *work(void *arg)
{
	struct ask *a = arg;
	for (;;) {
		(void)pthread_mutex_lock(&a->lock);
		while (STAILQ_EMPTY(&a->jobs) && !a->stop)
			(void)pthread_cond_wait(&a->some, &a->lock);
		struct ask_job *j = STAILQ_FIRST(&a->jobs);
		if (j != NULL) {
			STAILQ_REMOVE_HEAD(&a->jobs, next);
			a->n_jobs--;
		}
		bool stop = a->stop;
		(void)pthread_mutex_unlock(&a->lock);
		if (j == NULL)
			return NULL;
		struct err e = { 0 };
		if (!stop)
			j->answer = a->target[0] == '/' ? by_command(j, &e) : by_url(j, &e);
		if (j->answer == ANSWER_NONE && !stop)
			log_warn("the policy resolver gave no answer", "sandbox", j->sandbox, "host", j->host,
			    "why", e.msg[0] != '\0' ? e.msg : "it made no sense");
		loop_post(a->loop, &j->later);
	}
}

void ask(struct ask *a, const struct ask_question *q, struct ask_wait *w)
{
	char key[KEY_BYTES] = "";
	key_of(q->sandbox, q->host, q->port, key);
	enum decide_answer known = look_up(a, key);
	w->job = NULL;
	(void)pthread_mutex_lock(&a->lock);
	bool full = a->n_jobs >= ASK_QUEUE;
	(void)pthread_mutex_unlock(&a->lock);
	if (known != ANSWER_NONE || a->target[0] == '\0' || full) {
		w->on(w, known);
		return;
	}
	struct ask_job *j = xcalloc(1, sizeof *j);
	*j = (struct ask_job){ .later.run = deliver, .ask = a, .wait = w, .form = q->form, .port = q->port };
	(void)snprintf(j->org, sizeof j->org, "%s", q->org);
	(void)snprintf(j->sandbox, sizeof j->sandbox, "%s", q->sandbox);
	(void)snprintf(j->host, sizeof j->host, "%s", q->host);
	w->job = j;
	(void)pthread_mutex_lock(&a->lock);
	STAILQ_INSERT_TAIL(&a->jobs, j, next);
	a->n_jobs++;
	(void)pthread_cond_signal(&a->some);
	(void)pthread_mutex_unlock(&a->lock);
}

void ask_forget(struct ask_wait *w)
{
	if (w->job != NULL)
		w->job->wait = NULL;
	w->job = NULL;
}

/* ---- life */

struct ask *ask_start(struct loop *l, const char *target, const char *ca_file, int timeout_ms)
{
	struct ask *a = xcalloc(1, sizeof *a);
	a->loop = l;
	a->target = target;
	a->ca_file = ca_file;
	a->timeout_ms = timeout_ms;
	TAILQ_INIT(&a->age);
	STAILQ_INIT(&a->jobs);
	(void)pthread_mutex_init(&a->lock, NULL);
	(void)pthread_cond_init(&a->some, NULL);
	for (int i = 0; target[0] != '\0' && i < ASK_THREADS; i++)
		if (pthread_create(&a->threads[i], NULL, work, a) != 0)
			abort();
	return a;
}

void ask_stop(struct ask *a)
{
	if (a == NULL)
		return;
	(void)pthread_mutex_lock(&a->lock);
	a->stop = true;
	(void)pthread_cond_broadcast(&a->some);
	(void)pthread_mutex_unlock(&a->lock);
	for (int i = 0; a->target[0] != '\0' && i < ASK_THREADS; i++)
		(void)pthread_join(a->threads[i], NULL);
	loop_drain(a->loop); /* jobs of ours */
	for (struct known *k = TAILQ_FIRST(&a->age), *next; k != NULL; k = next) {
		next = TAILQ_NEXT(k, in_age);
		free(k);
	}
	(void)pthread_cond_destroy(&a->some);
	(void)pthread_mutex_destroy(&a->lock);
	free(a);
}
