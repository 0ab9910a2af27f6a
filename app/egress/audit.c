#include "egress/audit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/log.h"
#include "base/redact.h"
#include "base/str.h"
#include "sql/egress.h"

enum {
	PRUNE_ROWS = 5000,
	PRUNE_ROUNDS = 200,
	TAKE_MS = 2000,
	BATCH_BYTES = AUDIT_BATCH * 2048,
	TEXT_BYTES = 2048
};

struct item {
	STAILQ_ENTRY(item) next;
	const char *org, *session; /* in text */
	bool tell;
	enum egress_reason reason;
	uint16_t port;
	int more;
	const char *host, *class, *address;
	size_t n_json;
	char *json; /* the row as it is sent */
	char text[];
};
STAILQ_HEAD(items, item);

struct audit {
	struct pg_pool *db;
	int keep_days;
	int64_t prune_at_ms; /* the thread's */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct items queue; /* under lock, as the next four */
	int queued;
	bool stop;
	int64_t stop_by_ms;
	long long written, dropped;
	_Atomic int taken; /* queued, being written, and owed: closes of what was let pass */
	_Atomic bool refused;
};

/* ---- rows */

static void field(struct buf *b, const char *name, const char *value)
{
	(void)buf_fmt(b, ",\"%s\":\"", name);
	for (; *value != '\0'; value++) {
		if (*value == '"' || *value == '\\')
			(void)buf_chr(b, '\\');
		(void)buf_chr(b, *value >= 0x20 && *value < 0x7f ? *value : '?');
	}
	(void)buf_chr(b, '"');
}

static void row_json(const struct audit_row *r, struct buf *b)
{
	(void)buf_fmt(b, "{\"t\":%lld,\"port\":%u,\"observed\":%s", (long long)clock_wall_ms(), r->port,
	    r->observed ? "true" : "false");
	field(b, "org", r->org);
	field(b, "sandbox", r->sandbox);
	if (r->session[0] != '\0')
		field(b, "session", r->session);
	field(b, "kind", r->close ? "close" : "decision");
	field(b, "form", r->form);
	field(b, "host", r->host);
	field(b, "verdict", reason_verdict_name(r->close ? EGRESS_ALLOW : reason_verdict(r->reason)));
	field(b, "reason", reason_name(r->reason));
	if (r->class != NULL)
		field(b, "class", r->class);
	if (r->address != NULL)
		field(b, "address", r->address);
	if (r->close)
		(void)buf_fmt(b, ",\"bytes_out\":%llu,\"bytes_in\":%llu,\"duration_ms\":%lld",
		    (unsigned long long)r->out, (unsigned long long)r->in, (long long)r->duration_ms);
	(void)buf_chr(b, '}');
}

static const char *copied(char **to, const char *s)
{
	size_t n = strlen(s) + 1;
	char *at = memcpy(*to, s, n);
	*to += n;
	return at;
}

static struct item *item_of(const struct audit_row *r, const struct buf *json)
{
	const char *class = r->class == NULL ? "" : r->class, *address = r->address == NULL ? "" : r->address;
	size_t n = json->n + 1;
	if (r->tell)
		n += strlen(r->org) + strlen(r->session) + strlen(r->host) + strlen(class) + strlen(address) +
		    5;
	struct item *i = xcalloc(1, sizeof *i + n);
	char *at = i->text;
	*i = (struct item){ .tell = r->tell, .reason = r->reason, .port = r->port, .more = r->more };
	i->n_json = json->n;
	i->json = at;
	at = (char *)memcpy(at, json->p, json->n + 1) + json->n + 1;
	if (r->tell) {
		i->org = copied(&at, r->org);
		i->session = copied(&at, r->session);
		i->host = copied(&at, r->host);
		i->class = copied(&at, class);
		i->address = copied(&at, address);
	}
	return i;
}

bool audit_ready(const struct audit *a)
{
	return !atomic_load(&a->refused) && atomic_load(&a->taken) + 2 <= AUDIT_QUEUE;
}

int audit_put(struct audit *a, const struct audit_row *row)
{
	char room[TEXT_BYTES];
	struct buf json = { .p = room, .cap = sizeof room, .max = sizeof room - 1 };
	bool owed = row->close;
	if (!owed && !audit_ready(a)) {
		(void)pthread_mutex_lock(&a->lock);
		a->dropped++;
		(void)pthread_mutex_unlock(&a->lock);
		return -1;
	}
	row_json(row, &json);
	struct item *i = item_of(row, &json);
	if (!owed)
		(void)atomic_fetch_add(&a->taken, row->passes ? 2 : 1);
	(void)pthread_mutex_lock(&a->lock);
	STAILQ_INSERT_TAIL(&a->queue, i, next);
	if (++a->queued == 1 || a->queued == AUDIT_BATCH)
		(void)pthread_cond_signal(&a->some);
	(void)pthread_mutex_unlock(&a->lock);
	return 0;
}

void audit_stats(struct audit *a, struct audit_stats *out)
{
	(void)pthread_mutex_lock(&a->lock);
	*out = (struct audit_stats){
		.queued = a->queued, .written = a->written, .dropped = a->dropped, .refused = a->refused
	};
	(void)pthread_mutex_unlock(&a->lock);
}

/* ---- the thread */

/* What a person reads in the session. */
static json_t *event_of(const struct item *i)
{
	auto_buf struct buf text = BUF(1024);
	if (str_starts(i->host, AUDIT_LIMIT)) {
		(void)buf_fmt(&text, "egress limit reached: %s", i->host + strlen(AUDIT_LIMIT));
		return js_pack("{s:s, s:{s:s, s:s}}", "message", buf_c(&text), "egress", "limit",
		    i->host + strlen(AUDIT_LIMIT), "reason", reason_name(i->reason));
	}
	(void)buf_fmt(&text, "egress to %s:%u refused: %s", i->host[0] == '\0' ? "?" : i->host, i->port,
	    reason_name(i->reason));
	if (i->class[0] != '\0')
		(void)buf_fmt(&text, " (%s, %s)", i->address, i->class);
	(void)buf_fmt(&text, ". %s", reason_text(i->reason));
	if (i->more > 0)
		(void)buf_fmt(&text, " (%d more before it)", i->more);
	return js_pack("{s:s, s:{s:s, s:i, s:s}}", "message", buf_c(&text), "egress", "host", i->host, "port",
	    i->port, "reason", reason_name(i->reason));
}

/* The events of one session in this batch, from `first` on. */
static void tell_one(struct pg *db, const struct item *first)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *events = json_array();
	struct err e = { 0 };
	for (const struct item *i = first; i != NULL; i = STAILQ_NEXT(i, next))
		if (i->tell && strcmp(i->session, first->session) == 0) {
			auto_json json_t *event = event_of(i);
			js_push(events, redact_json(event));
		}
	auto_res struct pg_res *r = PG(db, &q_egress_tell, &e, first->session, first->org, js_dump(m, events),
	    pg_num(m, (long long)json_array_size(events)));
	if (r == NULL) /* no reason to hold the audit up */
		log_warn("refusals could not be told to a session", "session", first->session, "why", e.msg);
}

static void tell(struct pg *db, const struct items *batch)
{
	const struct item *i;
	STAILQ_FOREACH(i, batch, next)
	{
		const struct item *before = STAILQ_FIRST(batch);
		while (before != i && !(before->tell && i->tell && strcmp(before->session, i->session) == 0))
			before = STAILQ_NEXT(before, next);
		if (i->tell && before == i)
			tell_one(db, i);
	}
}

static int write_batch(struct audit *a, const struct items *batch, struct err *e)
{
	auto_buf struct buf json = BUF(BATCH_BYTES);
	const struct item *i;
	char sep = '[';
	STAILQ_FOREACH(i, batch, next)
	{
		(void)buf_chr(&json, sep);
		(void)buf_add(&json, i->json, i->n_json);
		sep = ',';
	}
	(void)buf_chr(&json, ']');
	auto_pg struct pg *db = pg_take(a->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_egress_audit_put, e, buf_c(&json));
	if (r == NULL)
		return -1;
	tell(db, batch);
	return 0;
}

/* Up to a batch off the queue; fewer than a batch wait a moment for more. */
static int take(struct audit *a, struct items *batch)
{
	int n = 0;
	(void)pthread_mutex_lock(&a->lock);
	while (a->queued == 0 && !a->stop)
		(void)pthread_cond_wait(&a->some, &a->lock);
	int64_t until_ms = clock_ms() + AUDIT_PAUSE_MS;
	while (a->queued < AUDIT_BATCH && !a->stop && cond_wait_until(&a->some, &a->lock, until_ms))
		;
	for (; n < AUDIT_BATCH && a->queued > 0; n++, a->queued--) {
		struct item *i = STAILQ_FIRST(&a->queue);
		STAILQ_REMOVE_HEAD(&a->queue, next);
		STAILQ_INSERT_TAIL(batch, i, next);
	}
	(void)pthread_mutex_unlock(&a->lock);
	return n;
}

/* Wait before the next try; false when we are to stop. */
static bool pause_for_retry(struct audit *a)
{
	int64_t until_ms = clock_ms() + AUDIT_RETRY_MS;
	(void)pthread_mutex_lock(&a->lock);
	while (!a->stop && cond_wait_until(&a->some, &a->lock, until_ms))
		;
	bool on = !a->stop || clock_ms() < a->stop_by_ms;
	(void)pthread_mutex_unlock(&a->lock);
	return on;
}

static void forget(struct audit *a, struct items *batch, int n, bool written)
{
	for (struct item *i; (i = STAILQ_FIRST(batch)) != NULL;) {
		STAILQ_REMOVE_HEAD(batch, next);
		free(i);
	}
	(void)atomic_fetch_sub(&a->taken, n);
	(void)pthread_mutex_lock(&a->lock);
	*(written ? &a->written : &a->dropped) += n;
	(void)pthread_mutex_unlock(&a->lock);
}

/* Between two batches; what it does not get to, the next hour does. */
static void prune(struct audit *a)
{
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 };
	if (a->keep_days == 0 || clock_ms() < a->prune_at_ms)
		return;
	a->prune_at_ms = clock_ms() + AUDIT_PRUNE_MS;
	auto_pg struct pg *db = pg_take(a->db, TAKE_MS, &e);
	for (int i = 0; db != NULL && i < PRUNE_ROUNDS; i++) {
		auto_res struct pg_res *r = PG(
		    db, &q_egress_audit_prune, &e, pg_num(m, a->keep_days), pg_num(m, PRUNE_ROWS));
		if (r == NULL)
			log_warn("old rows of the audit could not be removed", "why", e.msg);
		if (r == NULL || pg_affected(r) < PRUNE_ROWS)
			return;
	}
}

static void *work(void *arg)
{
	struct audit *a = arg;
	for (;;) {
		struct items batch = STAILQ_HEAD_INITIALIZER(batch);
		int n = take(a, &batch);
		if (n == 0)
			return NULL;
		for (bool first = true;; first = false) {
			struct err e = { 0 };
			int rc = write_batch(a, &batch, &e);
			/* Away: the queue holds until it is full. Anything else is a table that cannot be written. */
			atomic_store(&a->refused, rc != 0 && e.code != ERR_UNAVAILABLE);
			if (rc == 0)
				break;
			if (first)
				log_error("egress decisions cannot be recorded", "why", e.msg);
			if (!pause_for_retry(a)) {
				forget(a, &batch, n, false);
				return NULL;
			}
		}
		forget(a, &batch, n, true);
		prune(a);
	}
}

struct audit *audit_start(struct pg_pool *db, int keep_days)
{
	struct audit *a = xcalloc(1, sizeof *a);
	a->db = db;
	a->keep_days = keep_days;
	STAILQ_INIT(&a->queue);
	(void)pthread_mutex_init(&a->lock, NULL);
	(void)pthread_cond_init(&a->some, NULL);
	if (pthread_create(&a->thread, NULL, work, a) != 0)
		abort();
	return a;
}

void audit_stop(struct audit *a, int wait_ms)
{
	(void)pthread_mutex_lock(&a->lock);
	a->stop = true;
	a->stop_by_ms = clock_ms() + wait_ms;
	(void)pthread_cond_signal(&a->some);
	(void)pthread_mutex_unlock(&a->lock);
	(void)pthread_join(a->thread, NULL);
	for (struct item *i; (i = STAILQ_FIRST(&a->queue)) != NULL;) {
		STAILQ_REMOVE_HEAD(&a->queue, next);
		free(i);
	}
	(void)pthread_cond_destroy(&a->some);
	(void)pthread_mutex_destroy(&a->lock);
	free(a);
}
