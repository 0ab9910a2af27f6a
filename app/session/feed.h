/*
 * feed.h - inside app/session: what the watchers of one process share. A feed is a session that somebody reads here; its
 * events lie in pages of PAGE_LINES ready-made lines, read from PostgreSQL once, counted by their readers, and kept after
 * use up to a bound. One pump thread does all reading; one LISTEN connection tells it when.
 *
 * Everything is guarded by hub->lock, except lines below page->n of a page that is held: those never change.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/id.h"
#include "base/limits.h"
#include "io/pg.h"

enum {
	PAGE_LINES = 64,
	FEED_BUCKETS = 1024,
	/* A stream that has nothing to say yet says so: over HTTP/2 nginx keeps the head of a reply back until the first body
	 * byte, and the client could not tell a stream that is open from one that is stuck. */
	FEED_FIRST_PING_MS = 300,
};

struct feed_line {
	size_t n;
	bool named;  /* it holds `session` by itself */
	char text[]; /* n bytes, the last is '\n' */
};

struct feed_page {
	long long first; /* seq of lines[0]: 1 + a multiple of PAGE_LINES */
	int n;           /* lines that are there */
	int holders;     /* readers, and the pump while it fills it; unheld pages are in hub->unheld */
	size_t bytes;
	struct feed *feed;
	LIST_ENTRY(feed_page) in_feed;
	TAILQ_ENTRY(feed_page) in_unheld;
	struct feed_line *lines[PAGE_LINES];
};

/* Who reads a feed among others and wants to be told of growth, not to wait for it (tree.c). */
struct feed_follower {
	void (*grown)(struct feed_follower *w); /* called under the lock */
	LIST_ENTRY(feed_follower) in_feed;
};

struct feed {
	struct watch_hub *hub;
	char org[LIMIT_ORG_SLUG + 1], session[ID_MAX];
	int users;
	/* Looks at the database that were asked for and that were done: when they differ, last_seq may be old. */
	unsigned asked, answered;
	long long last_seq; /* as of the last look */
	bool closed;        /* nothing comes after last_seq */
	bool lost;          /* the session or some of its events are gone from the database */
	bool queued;
	pthread_cond_t grown;
	LIST_HEAD(, feed_page) pages;
	LIST_HEAD(, feed_follower) followers;
	LIST_ENTRY(feed) in_bucket;
	TAILQ_ENTRY(feed) in_queue;
};

struct tree;
struct watch_hub {
	struct pg_pool *db;
	struct pg_listen *listen;
	pthread_t pump;
	pthread_mutex_t lock;
	pthread_cond_t work; /* the queue is not empty, or stop */
	bool stop, draining;
	int ping_ms; /* of silence */
	TAILQ_HEAD(, feed) queue;
	TAILQ_HEAD(feed_unheld, feed_page) unheld; /* least recently used first */
	size_t unheld_bytes;
	LIST_HEAD(, feed) buckets[FEED_BUCKETS];
	LIST_HEAD(, tree) trees;
	long long reads; /* looks at the database that were tried */
};

/* A reader's place. */
struct feed_reader {
	struct feed *feed;
	struct feed_page *page; /* held; the one of seq pos + 1; NULL at first */
	long long pos;          /* the last seq it has */
};
enum feed_state { FEED_WAIT, FEED_LINES, FEED_END };

/* All with hub->lock held. */
void feed_open(
    struct feed_reader *r, struct watch_hub *h, const char *org, const char *session, long long after);
void feed_close(struct feed_reader *r);
/* What is there for this reader: lines *from..*to of r->page (to be written without the lock, then counted in pos), nothing
 * yet (the pump has been told what is wanted), or nothing ever again. */
enum feed_state feed_next(struct feed_reader *r, int *from, int *to);
/* There is news of a session, up to seq; of all sessions. */
void feed_news(struct watch_hub *h, const char *session, long long seq);
void feed_news_all(struct watch_hub *h);

/* Without the lock. */
void feed_pump_start(struct watch_hub *h);
void feed_pump_stop(struct watch_hub *h);

/* tree.c, with the lock held: news of a session, maybe one that a tree does not know yet; all may have been missed. */
void tree_news(struct watch_hub *h, const char *org, const char *session, long long seq, const char *root);
void tree_news_all(struct watch_hub *h);
void tree_wake_all(struct watch_hub *h);
