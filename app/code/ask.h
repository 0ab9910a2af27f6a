/*
 * ask.h - is what somebody asked for a run that can be had? COD-1…4 as pure judgements over the input; every violation is
 * collected. No value of a credential is ever part of a message.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct ask { /* strings borrowed from the input; NULL: not said */
	const char *prompt, *tool, *repo, *project, *clone_url, *base, *branch, *session, *user, *token;
	bool desktop;
	long long timeout_s;
};

void ask_read(const json_t *in, struct ask *a);
/* 0, or -1 with every violation as a detail. http_hosts: hosts that a credential may be sent to in clear text. */
int ask_check(const struct ask *a, const json_t *in, const char *http_hosts, struct err *e);
struct ask_host {       /* of a clone URL that ask_check has passed */
	char name[256]; /* without the brackets of an IPv6 address */
	int port;
	bool clear; /* http:// */
};
bool ask_host_of(const char *url, struct ask_host *h);
/* Is it in a list, separated by spaces or commas, of names (any port) and name:port? */
bool ask_host_listed(const char *list, const struct ask_host *h);
/* agent/<tail of the session id> (COD-4). */
enum { ASK_BRANCH_MAX = 40 };
void ask_branch(const char *session, char out[ASK_BRANCH_MAX]);
