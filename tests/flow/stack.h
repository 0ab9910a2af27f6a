/*
 * stack.h - the whole real gatehouse for flow tests: PostgreSQL, nginx, api, runner and sandboxd processes of
 * the sanitizer build (with crash points) on free ports under a temporary directory, through
 * tests/stack/stack.sh. Everything is ended by pid. A test program brings up one stack for its group
 * (stack_up as group setup) and takes an org of its own per test.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/buf.h"

struct stack {
	char dir[64];
	char url[2][48]; /* of api1 and api2: "https://127.0.0.1:8443" */
	char e2b[2][48]; /* the door for the E2B SDK: over TLS, and without */
	char ca[96];
	char crash_dir[80]; /* see base/crash.h */
	int apis, runners, nodes;
};
struct stack_org {
	char slug[40];
	char key[128];    /* an org-admin's */
	char member[128]; /* a plain member's */
};

/* 0, or fails the running test with the script's one line. conf: further lines of configuration, or NULL. */
void stack_up(struct stack *s, int apis, int runners, int nodes, const char *conf);
void stack_down(struct stack *s);
/* One part by name ("api1", "runner1", "node1", "pg", "nginx"). kill is SIGKILL; stop is SIGTERM and waits.
 */
void stack_start(const struct stack *s, const char *part);
void stack_stop(const struct stack *s, const char *part);
void stack_kill(const struct stack *s, const char *part);
void stack_ready(const struct stack *s); /* wait until /ready of every api answers 200 */
/* The first of STACK_PORTS ports that no other test program on this host takes while this one runs: stacks start by looking for free
 * ones, and two that look at once would find the same. */
enum { STACK_PORTS = 32 };
int stack_ports(void);
/* nginx reads its files again; afterwards none of its earlier workers accepts anything. */
void stack_reload_nginx(const struct stack *s);
pid_t stack_pid(const struct stack *s, const char *part);
/* Run the operator's command as the service user; its standard output. Fails the test when it exits non-zero.
 */
void stack_cli(const struct stack *s, const char *const *args, struct buf *out);
/* The same for one that may fail: its exit status. */
int stack_cli_exit(const struct stack *s, const char *const *args, struct buf *out);
/* A fresh org with two keys. */
void stack_org(const struct stack *s, struct stack_org *org);
/* A key more: user, "--admin" or NULL, scopes or NULL. */
void stack_key(
    const struct stack *s, const char *org, const char *user, bool admin, const char *scopes, char out[128]);
/* SQL through psql as the database's owner, one value back (tests look at rows they could not see otherwise).
 */
void stack_sql(const struct stack *s, const char *sql, struct buf *out);
/* Connections as the database's owner; free with pg_pool_free. */
struct pg_pool *stack_pool(const struct stack *s, int size);
/* Arm a crash point; wait until a process has stopped there (false: none does); let it go on. */
void stack_crash_arm(const struct stack *s, const char *point);
bool stack_crash_reached(const struct stack *s, const char *point);
void stack_crash_release(const struct stack *s, const char *point);
/* The deployment's name (INSTANCE): in the path of every control group of its sandboxes. */
void stack_instance(const struct stack *s, char out[64]);
/* What is left on the host: processes with our directory in their command line or cgroup, mounts, cgroups,
 * network namespaces and directories under it. Printed into `what`; 0 is nothing left. */
int stack_leaks(const struct stack *s, struct buf *what);

/* ---- requests through nginx */
struct web {
	long status;
	char *headers; /* raw, NUL-terminated */
	char *body;
	size_t body_n;
	json_t *json; /* the body when it is one JSON value, else NULL */
};
struct web_req {
	const char *method, *path, *key; /* key NULL: anonymous */
	const char *body;                /* NULL: none; JSON unless type is set */
	size_t body_n;                   /* 0: strlen(body) */
	const char *type;
	const char *const *headers; /* further "Name: value", ended by NULL */
	int api;                    /* 0 or 1 */
	int timeout_s;              /* 0: 60 */
	/* Called with each piece of the body as it comes; -1 hangs up. Only the first 64 MiB are in web.body, too. */
	int (*on_data)(void *arg, const char *p, size_t n);
	void *arg;
};
/* Fails the test when there is no HTTP reply at all, unless on_data hung up. Free with web_free. */
void web_do(const struct stack *s, const struct web_req *q, struct web *w);
void web_free(struct web *w);
/* Of the bytes of one whole answer, headers and body; fails the test when they are none. */
void web_parse(const struct buf *answer, struct web *w);
static inline void auto_webp(struct web *w)
{
	web_free(w);
}
#define auto_web __attribute__((cleanup(auto_webp)))
/* The common case: method, path, key, JSON body made with json_pack and taken (NULL: none). */
void web_json(const struct stack *s, const char *method, const char *path, const char *key, json_t *body,
    struct web *w);
/* A header's value of the reply into out; false when absent. */
bool web_header(const struct web *w, const char *name, char *out, size_t size);
/* error.message / .code / .param of an envelope, "" when absent. */
const char *web_error(const struct web *w, const char *member);
