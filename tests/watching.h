/*
 * watching.h - for tests of live watching: a client of a stream whose connection the test plays, and the run that talks.
 * Failures end the test (assertions); every wait has a deadline.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/id.h"
#include "io/pg.h"
#include "op/op.h"
#include "session/watch.h"

struct client {
	struct reply reply; /* first: the callbacks get the client back */
	struct ctx c;
	struct watch_hub *hub;
	const char *session, *root; /* session NULL: a tree or the org "admin" */
	const char *places;         /* of a tree */
	long long after;
	int leave_at; /* hang up at this many lines; 0: never */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buf text; /* what it was sent, without pings */
	int lines, pings;
	bool blocked; /* reads nothing meanwhile */
	bool gone;    /* has left without a word */
	bool ended;   /* the server is done with it */
};
/* A client that is all zero besides what it asks for. */
void client_start(struct client *k, struct watch_hub *h, struct pg_pool *db);
void client_set(struct client *k, bool *flag, bool value);
/* Until it has n lines (n < 0: it has ended), n pings, or been sent this text n times. */
void client_wait(struct client *k, int n);
void client_wait_pings(struct client *k, int n);
void client_wait_text(struct client *k, const char *text, int n);
bool client_has(struct client *k, const char *text);
void client_join(struct client *k);
void client_free(struct client *k);
/* What it was sent, as an array. */
json_t *client_lines(const struct client *k);

/* A session of org; events {"i": from} … {"i": to} in it; its end. */
void session_made(struct pg_pool *db, const char *org, const char *parent, char id[ID_MAX]);
void session_says(struct pg_pool *db, const char *org, const char *id, int from, int to);
void session_ends(struct pg_pool *db, const char *org, const char *id);
