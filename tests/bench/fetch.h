/* fetch.h - one kept connection to a stack's nginx, for benches: what a client with a connection pool does. Failures end the bench. */
#pragma once

#include <jansson.h>

#include "../flow/stack.h"

struct fetch;
struct fetch *fetch_new(const struct stack *s, const char *key);
void fetch_free(struct fetch *f);
void fetch_header(struct fetch *f, const char *line); /* one more, in every request from now on */
void fetch_http_1(struct fetch *f);                   /* HTTP/1.1, also where HTTP/2 is offered */
/* Each piece of a body as it comes. */
void fetch_on_piece(struct fetch *f, void (*fn)(void *arg, const char *p, size_t n), void *arg);
/* The reply's body, until the next call; body NULL is none. The status must be 2xx. */
const struct buf *fetch_do(struct fetch *f, const char *method, const char *path, const char *body);
/* The same, parsed: new reference. */
json_t *fetch_json(struct fetch *f, const char *method, const char *path, json_t *body);
