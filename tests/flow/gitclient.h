/*
 * gitclient.h - a person with git, as flow tests need one: a home of its own, our test certificate trusted, a credential that git
 * asks for only when it was challenged. Failures to run git at all end the test; what git says is looked at by the caller.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "stack.h"

struct gitclient {
	const struct stack *s;
	char home[64];        /* work happens below it */
	char password[200];   /* key or grant; "" for nobody */
	int protocol;         /* 2 or 0 */
	const char *extra[8]; /* further "key=value" configuration, ended by NULL */
	char said[16384];     /* what the last command wrote, both streams, its start */
	/* Asked a few times a second while git runs; true kills it, as somebody pressing Ctrl-C. May be NULL. */
	bool (*leave)(void *arg);
	void *arg;
};
void gitclient_start(struct gitclient *g, const struct stack *s, const char *password);
void gitclient_end(struct gitclient *g);
/* Run git in home/<where>; its exit code. Arguments end with NULL. */
int gitclient_try(struct gitclient *g, const char *where, ...) __attribute__((sentinel));
/* The same, and it must succeed. */
#define GIT_OK(g, where, ...)                                                                                \
	do {                                                                                                 \
		if (gitclient_try(g, where, __VA_ARGS__, (char *)0) != 0)                                    \
			fail_msg("git failed: %s", (g)->said);                                               \
	} while (0)
/* It must be refused, saying so. */
#define GIT_NO(g, where, says, ...)                                                                          \
	do {                                                                                                 \
		assert_int_not_equal(gitclient_try(g, where, __VA_ARGS__, (char *)0), 0);                    \
		if (strstr((g)->said, says) == NULL)                                                         \
			fail_msg("git did not say \"%s\" but: %s", says, (g)->said);                         \
	} while (0)
/* A commit of the branch or revision in home/<where>, into out. */
void gitclient_id(struct gitclient *g, const char *where, const char *rev, char out[65]);
/* Write text to home/<where>/<path>, and commit everything. */
void gitclient_commit(struct gitclient *g, const char *where, const char *path, const char *text);
/* The URL of a repository. */
const char *gitclient_url(const struct gitclient *g, const char *org, const char *repo, char out[200]);
/* "Authorization: Basic ..." for a raw request. */
void gitclient_basic(const char *password, char out[400]);
