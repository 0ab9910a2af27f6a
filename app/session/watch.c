#include "session/watch.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/str.h"
#include "session/feed.h"

/* ---- the hub */

/* "ORG SESSION SEQ ROOT" */
static void on_event(void *arg, const char *channel, const char *payload)
{
	struct watch_hub *h = arg;
	char org[LIMIT_ORG_SLUG + 1], session[ID_MAX], root[ID_MAX];
	long long seq;
	(void)pthread_mutex_lock(&h->lock);
	if (*channel == 0) { /* connected again: whatever was said meanwhile is lost */
		feed_news_all(h);
		tree_news_all(h);
	} else if (sscanf(payload, "%40s %31s %lld %31s", org, session, &seq, root) == 4) {
		feed_news(h, session, seq);
		tree_news(h, org, session, seq, root);
	}
	(void)pthread_mutex_unlock(&h->lock);
}

struct watch_hub *watch_start(const char *conninfo, struct pg_pool *db)
{
	static const char *const channels[] = { "gh_event", NULL };
	struct watch_hub *h = xcalloc(1, sizeof *h);
	h->db = db;
	h->ping_ms = LIMIT_PING_S * 1000;
	(void)pthread_mutex_init(&h->lock, NULL);
	(void)pthread_cond_init(&h->work, NULL);
	TAILQ_INIT(&h->queue);
	TAILQ_INIT(&h->unheld);
	feed_pump_start(h);
	h->listen = pg_listen_start(conninfo, channels, on_event, h);
	return h;
}

void watch_drain(struct watch_hub *h)
{
	struct feed *f;
	(void)pthread_mutex_lock(&h->lock);
	h->draining = true;
	for (size_t i = 0; i < FEED_BUCKETS; i++)
		LIST_FOREACH(f, &h->buckets[i], in_bucket)
	(void)pthread_cond_broadcast(&f->grown);
	tree_wake_all(h);
	(void)pthread_mutex_unlock(&h->lock);
}

void watch_stop(struct watch_hub *h)
{
	if (h == NULL)
		return;
	pg_listen_stop(h->listen);
	feed_pump_stop(h);
	for (size_t i = 0; i < FEED_BUCKETS; i++)
		assert(LIST_EMPTY(&h->buckets[i]));
	(void)pthread_cond_destroy(&h->work);
	(void)pthread_mutex_destroy(&h->lock);
	free(h);
}

/* ---- one session */

enum turn { TURN_LINES, TURN_PING, TURN_DRAIN, TURN_END };

/* Sleep until there is something to say. */
static enum turn next_turn(
    struct watch_hub *h, struct feed_reader *r, int64_t silent_until, int *from, int *to)
{
	enum feed_state state;
	bool in_time = true;
	(void)pthread_mutex_lock(&h->lock);
	while ((state = feed_next(r, from, to)) == FEED_WAIT && in_time && !h->draining)
		in_time = cond_wait_until(&r->feed->grown, &h->lock, silent_until);
	bool draining = h->draining;
	(void)pthread_mutex_unlock(&h->lock);
	if (state == FEED_END)
		return TURN_END;
	if (draining)
		return TURN_DRAIN;
	return state == FEED_LINES ? TURN_LINES : TURN_PING;
}

static int send_lines(struct ctx *c, struct feed_reader *r, int from, int to)
{
	for (int i = from; i < to; i++) {
		char id[24];
		const struct feed_line *l = r->page->lines[i];
		(void)snprintf(id, sizeof id, "%lld", r->page->first + i);
		if (reply_event_open(c, id) != 0 || reply_write(c, l->text, l->n) != 0 ||
		    reply_event_close(c) != 0)
			return -1;
	}
	r->pos += to - from;
	return reply_flush(c); /* nothing waits unflushed: these are all there are */
}

static void follow(struct watch_hub *h, struct ctx *c, struct feed_reader *r)
{
	int64_t silent_until = clock_ms() + FEED_FIRST_PING_MS;
	for (int from, to;; silent_until = clock_ms() + h->ping_ms) {
		switch (next_turn(h, r, silent_until, &from, &to)) {
		case TURN_LINES:
			if (send_lines(c, r, from, to) != 0)
				return;
			break;
		case TURN_PING: /* STR-4: a client that left shows here or at the write */
			if (reply_gone(c) || reply_ping(c) != 0)
				return;
			mem_stack_rest(); /* nothing is said here, perhaps for hours */
			break;
		case TURN_DRAIN:
			(void)reply_line(
			    c, js_pack("{s:s, s:I}", "type", "reconnect", "after", (json_int_t)r->pos));
			return;
		case TURN_END:
			return;
		}
	}
}

json_t *watch_session(
    struct watch_hub *h, struct ctx *c, const char *org, const char *session, long long after)
{
	if (reply_stream(c) != 0 || reply_flush(c) != 0 || strcmp(c->method, "HEAD") == 0)
		return REPLIED;
	struct feed_reader r;
	(void)pthread_mutex_lock(&h->lock);
	feed_open(&r, h, org, session, after);
	(void)pthread_mutex_unlock(&h->lock);
	follow(h, c, &r);
	(void)pthread_mutex_lock(&h->lock);
	feed_close(&r);
	(void)pthread_mutex_unlock(&h->lock);
	return REPLIED;
}
