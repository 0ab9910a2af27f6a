/*
 * fcgiclient.h - asks a FastCGI socket by itself (FastCGI 1.0), as nginx would, on one connection for all requests or one for each. Failures
 * end the test.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

struct fcgiclient;
/* key: of the Authorization header; NULL: none. keep: ask for the connection to be kept, and use it again. */
struct fcgiclient *fcgiclient_new(const char *socket_path, const char *key, bool keep);
void fcgiclient_free(struct fcgiclient *c);
/* The status; the answer with its head into out (may be NULL). body NULL: none. */
int fcgiclient_ask(
    struct fcgiclient *c, const char *method, const char *path, const char *body, struct buf *out);
int fcgiclient_fd(const struct fcgiclient *c); /* of its connection; -1: there is none */
/* The two halves of it. */
void fcgiclient_send(struct fcgiclient *c, const char *method, const char *path, const char *body);
int fcgiclient_hear(struct fcgiclient *c, struct buf *out);
