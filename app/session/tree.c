/*
 * tree.c - watching many sessions in one stream: a tree of runs, or everything an org does.
 *
 * Each session is a member with a place of its own. A member is attached to its feed when it first has something to tell
 * (an org may have thousands of open sessions that are silent), and done after its terminal line. Members come from a
 * survey of the database, at the start and after every gap in the notifications, and from the notifications themselves.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "session/feed.h"
#include "session/place.h"
#include "session/watch.h"
#include "sql/session.h"

enum {
	MEMBER_BUCKETS = 128,
	DONE_KEPT = 2048, /* a notification that comes late must still meet its member */
	TAKE_MS = 2000,
	RETRY_MS = 1000,
};

struct member {
	struct feed_follower follower; /* first: grown() gets it back */
	struct tree *tree;
	char session[ID_MAX];
	struct feed_reader reader; /* .feed NULL: not attached */
	bool done, ready;
	LIST_ENTRY(member) in_bucket;
	TAILQ_ENTRY(member) in_ready;
	TAILQ_ENTRY(member) in_done;
};

struct tree {
	struct watch_hub *hub;
	const char *org, *root; /* root NULL: the whole org */
	const struct places *places;
	int placed;  /* of places: sessions that are there, and have told that much */
	bool rest;   /* the first survey found something to tell, or to wait for */
	bool live;   /* the first survey is done: a session not known is a new one */
	bool survey; /* one is due */
	bool sure;   /* the last survey found nothing open, and nothing has come since */
	int n_open, n_done;
	char since[ID_MAX]; /* older sessions are members, or were, or are not ours to tell */
	pthread_cond_t wake;
	TAILQ_HEAD(, member) ready;
	TAILQ_HEAD(, member) done;
	LIST_HEAD(, member) buckets[MEMBER_BUCKETS];
	LIST_ENTRY(tree) in_hub;
};

/* ---- members; the lock is held */

static struct member *member_find(struct tree *t, const char *session)
{
	struct member *m;
	LIST_FOREACH(m, &t->buckets[hash_slot(session, MEMBER_BUCKETS)], in_bucket)
	if (strcmp(m->session, session) == 0)
		return m;
	return NULL;
}

static void make_ready(struct member *m)
{
	if (m->ready || m->done)
		return;
	m->ready = true;
	TAILQ_INSERT_TAIL(&m->tree->ready, m, in_ready);
	(void)pthread_cond_signal(&m->tree->wake);
}

static void on_grown(struct feed_follower *w)
{
	make_ready((struct member *)w);
}

static struct member *member_add(struct tree *t, const char *session, long long pos)
{
	struct member *m = xcalloc(1, sizeof *m);
	m->follower.grown = on_grown;
	m->tree = t;
	m->reader.pos = pos;
	(void)snprintf(m->session, sizeof m->session, "%s", session);
	LIST_INSERT_HEAD(&t->buckets[hash_slot(session, MEMBER_BUCKETS)], m, in_bucket);
	t->n_open++;
	t->sure = false;
	return m;
}

static void attach(struct member *m)
{
	if (m->reader.feed != NULL || m->done)
		return;
	feed_open(&m->reader, m->tree->hub, m->tree->org, m->session, m->reader.pos);
	LIST_INSERT_HEAD(&m->reader.feed->followers, &m->follower, in_feed);
	make_ready(m); /* to take its place, which makes the pump read what is wanted there */
}

static void detach(struct member *m)
{
	if (m->reader.feed == NULL)
		return;
	LIST_REMOVE(&m->follower, in_feed);
	feed_close(&m->reader);
}

static void member_free(struct member *m)
{
	detach(m);
	LIST_REMOVE(m, in_bucket);
	free(m);
}

static void member_done(struct member *m)
{
	struct tree *t = m->tree;
	detach(m);
	m->done = true;
	t->n_open--;
	TAILQ_INSERT_TAIL(&t->done, m, in_done);
	if (++t->n_done <= DONE_KEPT)
		return;
	struct member *old = TAILQ_FIRST(&t->done);
	if (strcmp(old->session, t->since) > 0)
		(void)snprintf(t->since, sizeof t->since, "%s", old->session);
	TAILQ_REMOVE(&t->done, old, in_done);
	t->n_done--;
	member_free(old);
}

/* ---- news; the lock is held */

void tree_news(struct watch_hub *h, const char *org, const char *session, long long seq, const char *root)
{
	struct tree *t;
	LIST_FOREACH(t, &h->trees, in_hub)
	{
		if (strcmp(t->org, org) != 0 || (t->root != NULL && strcmp(t->root, root) != 0))
			continue;
		struct member *m = member_find(t, session);
		if (m == NULL && t->live)
			m = member_add(t, session, 0);
		if (m == NULL)
			t->survey = true;
		else if (seq > m->reader.pos)
			attach(m);
	}
}

void tree_news_all(struct watch_hub *h)
{
	struct tree *t;
	LIST_FOREACH(t, &h->trees, in_hub)
	{
		struct member *m;
		for (size_t i = 0; i < MEMBER_BUCKETS; i++)
			LIST_FOREACH(m, &t->buckets[i], in_bucket)
		attach(m);
		t->survey = true;
		(void)pthread_cond_signal(&t->wake);
	}
}

void tree_wake_all(struct watch_hub *h)
{
	struct tree *t;
	LIST_FOREACH(t, &h->trees, in_hub)
	(void)pthread_cond_signal(&t->wake);
}

/* ---- surveys: called without the lock */

static void add_missing(struct tree *t, const struct pg_res *r)
{
	for (int i = 0; i < pg_rows(r); i++) {
		const char *session = pg_str(r, i, 0);
		if (member_find(t, session) != NULL)
			continue;
		long long seq = places_seq(t->places, session);
		t->placed += seq > 0 && seq <= pg_int(r, i, 1);
		t->rest = t->rest || seq != pg_int(r, i, 1) || !pg_bool(r, i, 2);
		attach(member_add(t, session, seq));
	}
}

/* The whole org, for the first time: what is open now is told from here on. */
static void add_open(struct tree *t, const struct pg_res *r)
{
	(void)snprintf(t->since, sizeof t->since, "%s", pg_str(r, 0, 2));
	for (int i = 0; i < pg_rows(r); i++)
		if (!pg_null(r, i, 0) && member_find(t, pg_str(r, i, 0)) == NULL)
			(void)member_add(t, pg_str(r, i, 0), pg_int(r, i, 1));
}

static int survey(struct tree *t, struct ctx *c, struct err *e)
{
	bool first = t->root == NULL && !t->live; /* only this thread sets live */
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL)
		return -1;
	/* Whoever is told of from here on may be too new for the query: then another follows. */
	(void)pthread_mutex_lock(&t->hub->lock);
	t->survey = false;
	char since[ID_MAX];
	(void)snprintf(since, sizeof since, "%s", t->since);
	(void)pthread_mutex_unlock(&t->hub->lock);
	auto_res struct pg_res *r = first ? PG(db, &q_session_open_now, e, t->org)
					  : PG(db, &q_session_newer, e, t->org, since, t->root);
	(void)pthread_mutex_lock(&t->hub->lock);
	if (r == NULL)
		t->survey = true;
	else if (first)
		add_open(t, r);
	else
		add_missing(t, r);
	t->live = t->live || r != NULL;
	t->sure = r != NULL && t->n_open == 0;
	(void)pthread_mutex_unlock(&t->hub->lock);
	return r == NULL ? -1 : 0;
}

/* ---- the stream */

/* The places of all others, for the ids of m's events; the lock is held. False when they are too many, or have none. */
static bool others(const struct tree *t, const struct member *m, struct buf *out)
{
	int n = 0;
	const struct member *o;
	for (size_t i = 0; i < MEMBER_BUCKETS; i++)
		LIST_FOREACH(o, &t->buckets[i], in_bucket)
		{
			if (o == m || o->reader.pos == 0)
				continue;
			if (++n >= PLACES_SENT)
				return false;
			(void)buf_fmt(out, "%s:%lld,", o->session, o->reader.pos);
		}
	return t->root != NULL;
}

/* A line is {"seq":…; on this stream it is {"session":"…","seq":…, where it does not name its session itself.
 * An empty id makes an EventSource forget the last one: without a place it is told everything again, and misses nothing. */
static int send_lines(struct ctx *c, const struct member *m, const char *before_or_null, int from, int to)
{
	char head[ID_MAX + 16];
	int n = snprintf(head, sizeof head, "{\"session\":\"%s\",", m->session);
	for (int i = from; i < to; i++) {
		const struct feed_line *l = m->reader.page->lines[i];
		char id[PLACES_SENT * (ID_MAX + 24)] = "";
		if (before_or_null != NULL)
			(void)snprintf(id, sizeof id, "%s%s:%lld", before_or_null, m->session,
			    m->reader.page->first + i);
		size_t skip = l->named ? 0 : 1; /* the line's own brace */
		if (reply_event_open(c, id) != 0 || (skip > 0 && reply_write(c, head, (size_t)n) != 0) ||
		    reply_write(c, l->text + skip, l->n - skip) != 0 || reply_event_close(c) != 0)
			return -1;
	}
	return reply_flush(c);
}

/* Tell what a member has; the lock is held, and let go of while writing. */
static int tell(struct tree *t, struct ctx *c, struct member *m)
{
	int from, to, rc = 0;
	TAILQ_REMOVE(&t->ready, m, in_ready);
	m->ready = false;
	switch (feed_next(&m->reader, &from, &to)) {
	case FEED_WAIT:
		break;
	case FEED_END:
		member_done(m);
		break;
	case FEED_LINES: {
		auto_buf struct buf before = BUF(PLACES_BYTES);
		bool place = c->reply->sse && others(t, m, &before);
		(void)pthread_mutex_unlock(&t->hub->lock);
		rc = send_lines(c, m, place ? buf_c(&before) : NULL, from, to);
		(void)pthread_mutex_lock(&t->hub->lock);
		m->reader.pos += to - from;
		make_ready(m); /* behind the others: there may be more */
		break;
	}
	}
	return rc;
}

/* Without the lock: 0 go on, -1 leave. */
static int idle(struct tree *t, struct ctx *c, int64_t *silent_until)
{
	struct err ignored = { 0 }; /* PostgreSQL is away; logged there */
	if (clock_ms() >= *silent_until) {
		*silent_until = clock_ms() + t->hub->ping_ms;
		if (reply_gone(c) || reply_ping(c) != 0)
			return -1;
	}
	(void)pthread_mutex_lock(&t->hub->lock);
	bool due = t->survey;
	(void)pthread_mutex_unlock(&t->hub->lock);
	if (!due || survey(t, c, &ignored) == 0)
		return 0;
	int64_t retry = clock_ms() + RETRY_MS;
	(void)pthread_mutex_lock(&t->hub->lock);
	while (!t->hub->draining && cond_wait_until(&t->wake, &t->hub->lock, retry))
		continue;
	(void)pthread_mutex_unlock(&t->hub->lock);
	return 0;
}

/* Tell what there is, then sleep; the lock is held. True when the stream is over. */
static bool turn(struct tree *t, struct ctx *c, int64_t *silent_until, int *rc)
{
	struct watch_hub *h = t->hub;
	for (struct member *m; *rc == 0 && !h->draining && (m = TAILQ_FIRST(&t->ready)) != NULL;) {
		*rc = tell(t, c, m);
		*silent_until = clock_ms() + t->hub->ping_ms;
	}
	if (*rc != 0 || h->draining)
		return true;
	/* All of the tree is closed; a child whose notification is still under way would show in one more survey. */
	bool ended = t->root != NULL && t->n_open == 0;
	if (ended && !t->sure)
		t->survey = true;
	else if (!ended && !t->survey)
		(void)cond_wait_until(&t->wake, &h->lock, *silent_until);
	return ended && t->sure;
}

static void serve(struct tree *t, struct ctx *c)
{
	int64_t silent_until = clock_ms() + FEED_FIRST_PING_MS;
	int rc = 0;
	bool over = false, draining = false;
	while (rc == 0 && !over) {
		(void)pthread_mutex_lock(&t->hub->lock);
		over = turn(t, c, &silent_until, &rc);
		draining = t->hub->draining;
		(void)pthread_mutex_unlock(&t->hub->lock);
		if (rc == 0 && !over)
			rc = idle(t, c, &silent_until);
	}
	if (rc == 0 && draining)
		(void)reply_line(c, js_pack("{s:s}", "type", "reconnect"));
}

static void join(struct tree *t)
{
	TAILQ_INIT(&t->ready);
	TAILQ_INIT(&t->done);
	(void)pthread_cond_init(&t->wake, NULL);
	(void)pthread_mutex_lock(&t->hub->lock);
	LIST_INSERT_HEAD(&t->hub->trees, t, in_hub);
	(void)pthread_mutex_unlock(&t->hub->lock);
}

static void leave(struct tree *t)
{
	(void)pthread_mutex_lock(&t->hub->lock);
	LIST_REMOVE(t, in_hub);
	for (size_t i = 0; i < MEMBER_BUCKETS; i++)
		for (struct member *m = LIST_FIRST(&t->buckets[i]), *next; m != NULL; m = next) {
			next = LIST_NEXT(m, in_bucket);
			member_free(m);
		}
	(void)pthread_mutex_unlock(&t->hub->lock);
	(void)pthread_cond_destroy(&t->wake);
}

static json_t *begin(struct tree *t, struct ctx *c, struct err *e)
{
	if (survey(t, c, e) != 0)
		return NULL;
	if (t->placed != t->places->n) {
		(void)err_field(e, ERR_BAD_REQUEST, "after",
		    "`after` names a session that is not in this tree, or an event that it does not have.");
		return NULL;
	}
	if (t->root != NULL && !t->rest && t->placed > 0 && reply_wants_sse(c))
		return reply_begin(c, 204, NULL), REPLIED; /* as for one session */
	if (reply_stream(c) == 0 && reply_flush(c) == 0 && strcmp(c->method, "HEAD") != 0)
		serve(t, c);
	return REPLIED;
}

json_t *watch_tree(struct watch_hub *h, struct ctx *c, const char *org, const char *root_or_null,
    const struct places *places_or_null, struct err *e)
{
	static const struct places none = { 0 };
	struct tree *t = mem_alloc(c->mem, sizeof *t);
	*t = (struct tree){ .hub = h,
		.org = org,
		.root = root_or_null,
		.places = places_or_null != NULL ? places_or_null : &none };
	join(t);
	json_t *out = begin(t, c, e);
	leave(t);
	return out;
}
