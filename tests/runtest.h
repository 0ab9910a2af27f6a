/*
 * runtest.h - whole runs for unit tests: a real PostgreSQL, a real git remote over HTTP (tests/gitserver.py), and sandboxes
 * that are tests/fakebox.c. Failures end the test.
 */
#pragma once

#include <jansson.h>

#include "code/task.h"
#include "gittest.h"
#include "pgtest.h"

#define TOKEN "the-t0ken-of-the-remote"

struct done { /* one run, from the post to its session's lines */
	struct task_started ids;
	struct job job;
	struct task_hold hold;
	int end_ms; /* its patience with what is away for a moment; 0: 700, of what stays away */
	int rc;     /* of task_run */
	struct err err;
	json_t *lines;      /* of the session */
	const json_t *last; /* its last line */
	const json_t *row;  /* as the API shows it */
};

/* What a group of tests shares, and the arena of the test under way. */
extern struct gittest gits;
extern struct pgtest *server;
extern struct pg_pool *pool;
extern struct mem *mem;
int runtest_setup(void **s);
int runtest_teardown(void **s);
int runtest_begin(void **s);
int runtest_end(void **s);

void post(struct done *d, json_t *body); /* taken */
void claim(struct done *d);
void work(struct done *d); /* task_run, then look */
void look(struct done *d);
void run(struct done *d, json_t *body); /* all of them */
/* A task for repository `name` of the remote, with TOKEN. */
json_t *task(const char *name, const char *tool, const char *prompt);

int runtest_port(void); /* of the remote */
/* BILLING_MODE from now on. */
void runtest_billing(const char *mode);

/* The first line of that step, or NULL. */
const json_t *step(const struct done *d, const char *name);
/* "status:start step:leased …": the order of what was told, logs left out. */
const char *story(const struct done *d);
const char *text_of(const struct done *d);
/* Whatever happened: one terminal line, no lease, no job, no live credential, nothing in the runner's directory. */
void assert_over(struct done *d, const char *state);
const char *in_remote(const char *name, const char *a, const char *b);
const char *branch_of(const struct done *d);
void assert_not_pushed(const char *name);
/* A directory locked as a living attempt locks its own: its descriptor. */
int runtest_lock(const char *dir);
