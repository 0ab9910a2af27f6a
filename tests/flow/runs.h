/* runs.h - coding runs for flow tests: a repository to work on, posting, watching, and what must hold when a run is over. */
#pragma once

#include <jansson.h>

#include "base/id.h"
#include "stack.h"

struct flow_run {
	char run[ID_MAX], session[ID_MAX];
	json_t *lines;      /* the stream, whole */
	const json_t *last; /* its last line */
};
void flow_run_free(struct flow_run *r);
static inline void auto_flow_runp(struct flow_run *r)
{
	flow_run_free(r);
}
#define auto_flow_run __attribute__((cleanup(auto_flow_runp)))

/* Repository `name` of the org with a.txt ("one\n") and dir/b.txt on main. */
void runs_repo(const struct stack *s, const struct stack_org *org, const char *name);
/* {"tool", "repo", "prompt"}; repo may be NULL. */
json_t *runs_task(const char *tool, const char *repo, const char *prompt);
/* Post (body taken) and read the stream to its end. */
void runs_do(const struct stack *s, const struct stack_org *org, json_t *body, struct flow_run *r);
/* Post with respond-async: run and session are known, no line is read. */
void runs_start(const struct stack *s, const struct stack_org *org, json_t *body, struct flow_run *r);
/* Read the stream behind `after` from that api to its terminal line. */
void runs_watch(
    const struct stack *s, const struct stack_org *org, struct flow_run *r, long long after, int api);
/* Follow the stream until `text` has been seen in it, then hang up. Fails the test when the stream ends first. */
void runs_until(
    const struct stack *s, const struct stack_org *org, const struct flow_run *r, const char *text);
/* The first line of this step whose status is `status` (NULL: any), or NULL. */
const json_t *runs_step(const struct flow_run *r, const char *step, const char *status);
/* seq counts from 1 without gaps, exactly one terminal line, last, after `ended`; its type. */
void runs_check(const struct flow_run *r, const char *type);
/* The branch's tip and a file of it in the forge's own storage; "" when there is none. To be freed. */
char *runs_tip(const struct stack *s, const struct stack_org *org, const char *repo, const char *ref);
char *runs_file(
    const struct stack *s, const struct stack_org *org, const char *repo, const char *ref, const char *path);
/* The runner ("runner1") that holds the run's job. */
enum { RUNS_PART = 64 };
void runs_runner(const struct stack *s, const struct flow_run *r, char part[RUNS_PART]);
/* Nothing is left of a run that is over: job, credential, grants; and it never had two sandboxes at one time. */
void runs_sound(const struct stack *s, const struct flow_run *r);
/* One value of SQL, of at most n bytes. */
void runs_sql(const struct stack *s, char *out, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Wait until /ready of every api answers 200; unlike stack_ready this starts nothing. */
void runs_ready(const struct stack *s);
/* One value of SQL, waiting until it is `want`; in the end it fails the test. */
void runs_wait_sql(const struct stack *s, const char *sql, const char *want);
