#include "session/feed.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/hash.h"
#include "base/log.h"
#include "session/event.h"
#include "sql/session.h"

enum {
	CACHE_BYTES = 32 << 20, /* of pages that nobody holds */
	TAKE_MS = 2000,
	RETRY_MS = 250, /* PostgreSQL is away: everybody waits, nobody is told to go */
	PUMP_STACK_BYTES = 256 * 1024,
};

/* ---- pages */

static void page_free(struct feed_page *p)
{
	assert(p->holders == 0);
	struct watch_hub *h = p->feed->hub;
	TAILQ_REMOVE(&h->unheld, p, in_unheld);
	h->unheld_bytes -= p->bytes;
	LIST_REMOVE(p, in_feed);
	for (int i = 0; i < p->n; i++)
		free(p->lines[i]);
	free(p);
}

static void page_hold(struct feed_page *p)
{
	struct watch_hub *h = p->feed->hub;
	if (p->holders++ == 0) {
		TAILQ_REMOVE(&h->unheld, p, in_unheld);
		h->unheld_bytes -= p->bytes;
	}
}

static void page_let_go(struct feed_page *p)
{
	struct watch_hub *h = p->feed->hub;
	if (--p->holders > 0)
		return;
	TAILQ_INSERT_TAIL(&h->unheld, p, in_unheld);
	h->unheld_bytes += p->bytes;
	while (h->unheld_bytes > CACHE_BYTES)
		page_free(TAILQ_FIRST(&h->unheld));
}

/* The page that holds seq, held. */
static struct feed_page *page_of(struct feed *f, long long seq)
{
	long long first = (seq - 1) / PAGE_LINES * PAGE_LINES + 1;
	struct feed_page *p;
	LIST_FOREACH(p, &f->pages, in_feed)
	if (p->first == first) {
		page_hold(p);
		return p;
	}
	p = xcalloc(1, sizeof *p);
	p->first = first;
	p->feed = f;
	p->holders = 1;
	LIST_INSERT_HEAD(&f->pages, p, in_feed);
	return p;
}

static bool page_wants(const struct feed_page *p)
{
	const struct feed *f = p->feed;
	return p->holders > 0 && p->n < PAGE_LINES &&
	    (f->asked != f->answered || p->first + p->n <= f->last_seq);
}

static struct feed_page *page_to_fill(struct feed *f)
{
	struct feed_page *p;
	if (f->lost)
		return NULL;
	LIST_FOREACH(p, &f->pages, in_feed)
	if (page_wants(p))
		return p;
	return NULL;
}

/* ---- feeds */

static struct feed *feed_find(struct watch_hub *h, const char *session)
{
	struct feed *f;
	LIST_FOREACH(f, &h->buckets[hash_slot(session, FEED_BUCKETS)], in_bucket)
	if (strcmp(f->session, session) == 0)
		return f;
	return NULL;
}

static void feed_release(struct feed *f)
{
	if (--f->users > 0)
		return;
	if (f->queued)
		TAILQ_REMOVE(&f->hub->queue, f, in_queue);
	for (struct feed_page *p = LIST_FIRST(&f->pages), *next; p != NULL; p = next) {
		next = LIST_NEXT(p, in_feed);
		page_free(p);
	}
	LIST_REMOVE(f, in_bucket);
	(void)pthread_cond_destroy(&f->grown);
	free(f);
}

static void enqueue(struct feed *f)
{
	if (f->queued || page_to_fill(f) == NULL)
		return;
	f->queued = true;
	TAILQ_INSERT_TAIL(&f->hub->queue, f, in_queue);
	(void)pthread_cond_signal(&f->hub->work);
}

void feed_open(
    struct feed_reader *r, struct watch_hub *h, const char *org, const char *session, long long after)
{
	struct feed *f = feed_find(h, session);
	if (f == NULL) {
		f = xcalloc(1, sizeof *f);
		f->hub = h;
		f->asked = 1;
		(void)snprintf(f->org, sizeof f->org, "%s", org);
		(void)snprintf(f->session, sizeof f->session, "%s", session);
		(void)pthread_cond_init(&f->grown, NULL);
		LIST_INSERT_HEAD(&h->buckets[hash_slot(session, FEED_BUCKETS)], f, in_bucket);
	}
	f->users++;
	*r = (struct feed_reader){ .feed = f, .pos = after };
}

void feed_close(struct feed_reader *r)
{
	if (r->feed == NULL)
		return;
	if (r->page != NULL)
		page_let_go(r->page);
	feed_release(r->feed);
	*r = (struct feed_reader){ .pos = r->pos };
}

enum feed_state feed_next(struct feed_reader *r, int *from, int *to)
{
	struct feed *f = r->feed;
	long long want = r->pos + 1;
	if (f->lost || (f->closed && want > f->last_seq))
		return FEED_END;
	if (r->page == NULL || want >= r->page->first + PAGE_LINES) {
		if (r->page != NULL)
			page_let_go(r->page);
		r->page = page_of(f, want);
	}
	*from = (int)(want - r->page->first);
	*to = r->page->n;
	if (*from < *to)
		return FEED_LINES;
	enqueue(f);
	return FEED_WAIT;
}

void feed_news(struct watch_hub *h, const char *session, long long seq)
{
	struct feed *f = feed_find(h, session);
	if (f == NULL || (f->answered > 0 && seq <= f->last_seq))
		return;
	f->asked++;
	enqueue(f);
}

void feed_news_all(struct watch_hub *h)
{
	struct feed *f;
	for (size_t i = 0; i < FEED_BUCKETS; i++)
		LIST_FOREACH(f, &h->buckets[i], in_bucket)
		{
			f->asked++;
			enqueue(f);
		}
}

/* ---- the pump */

struct look { /* one read of the database */
	long long last_seq;
	bool closed, found;
	int n;
	struct feed_line *lines[PAGE_LINES];
};

static struct feed_line *line_new(const struct pg_res *r, int row)
{
	auto_buf struct buf b = BUF(LIMIT_LINE_BYTES);
	if (session_line(&b, r, row) != 0 || buf_chr(&b, '\n') != 0)
		return NULL;
	struct feed_line *l = xcalloc(1, sizeof *l + b.n);
	l->n = b.n;
	l->named = session_line_named(r, row);
	memcpy(l->text, b.p, b.n);
	return l;
}

/* Lines after `after`, at most limit. -1 when PostgreSQL could not say. */
static int look(struct watch_hub *h, const struct feed *f, long long after, int limit, struct look *got)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = pg_take(h->db, TAKE_MS, &e);
	if (db == NULL)
		return -1;
	auto_res struct pg_res *r = PG(
	    db, &q_session_page, &e, f->session, f->org, pg_num(m, after), pg_num(m, limit));
	if (r == NULL)
		return -1;
	*got = (struct look){ .found = pg_rows(r) > 0 };
	if (!got->found)
		return 0;
	got->last_seq = pg_int(r, 0, 4);
	got->closed = pg_bool(r, 0, 5);
	/* In order and without a gap, else the reader is told nothing at all. */
	for (int i = 0; i < pg_rows(r) && !pg_null(r, i, 0); i++) {
		struct feed_line *l = pg_int(r, i, 0) == after + 1 + i ? line_new(r, i) : NULL;
		if (l == NULL)
			break;
		got->lines[got->n++] = l;
	}
	return 0;
}

static void apply(struct feed *f, struct feed_page *p, unsigned asked, const struct look *got)
{
	f->answered = asked;
	f->last_seq = got->last_seq;
	f->closed = got->closed;
	if (!got->found || (got->n == 0 && p->first + p->n <= got->last_seq)) {
		f->lost = true;
		log_warn("events of a watched session are missing", "session", f->session);
	}
	for (int i = 0; i < got->n; i++) {
		p->lines[p->n++] = got->lines[i];
		p->bytes += got->lines[i]->n;
	}
	(void)pthread_cond_broadcast(&f->grown);
	struct feed_follower *w;
	LIST_FOREACH(w, &f->followers, in_feed)
	w->grown(w);
}

/* Fill one page of f; false when PostgreSQL is away. */
static bool fill(struct watch_hub *h, struct feed *f, struct feed_page *p)
{
	struct look got;
	unsigned asked = f->asked;
	f->users++;
	page_hold(p);
	(void)pthread_mutex_unlock(&h->lock);
	bool ok = look(h, f, p->first + p->n - 1, PAGE_LINES - p->n, &got) == 0;
	(void)pthread_mutex_lock(&h->lock);
	h->reads++;
	if (ok)
		apply(f, p, asked, &got);
	page_let_go(p);
	enqueue(f); /* what came meanwhile, or what still has to be fetched */
	feed_release(f);
	return ok;
}

static void *pump(void *arg)
{
	struct watch_hub *h = arg;
	(void)pthread_mutex_lock(&h->lock);
	while (!h->stop) {
		struct feed *f = TAILQ_FIRST(&h->queue);
		if (f == NULL) {
			(void)pthread_cond_wait(&h->work, &h->lock);
			continue;
		}
		TAILQ_REMOVE(&h->queue, f, in_queue);
		f->queued = false;
		struct feed_page *p = page_to_fill(f);
		if (p == NULL || fill(h, f, p))
			continue;
		int64_t retry = clock_ms() + RETRY_MS;
		while (!h->stop && cond_wait_until(&h->work, &h->lock, retry))
			continue;
	}
	(void)pthread_mutex_unlock(&h->lock);
	return NULL;
}

void feed_pump_start(struct watch_hub *h)
{
	pthread_attr_t a;
	(void)pthread_attr_init(&a);
	(void)pthread_attr_setstacksize(&a, PUMP_STACK_BYTES);
	int rc = pthread_create(&h->pump, &a, pump, h);
	(void)pthread_attr_destroy(&a);
	if (rc != 0)
		abort(); /* at the start of the process: its supervisor tries again */
}

void feed_pump_stop(struct watch_hub *h)
{
	(void)pthread_mutex_lock(&h->lock);
	h->stop = true;
	(void)pthread_cond_broadcast(&h->work);
	(void)pthread_mutex_unlock(&h->lock);
	(void)pthread_join(h->pump, NULL);
}
