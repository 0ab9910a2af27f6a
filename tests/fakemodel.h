/*
 * fakemodel.h - a model vendor for tests, on one port of 127.0.0.1, that breaks on purpose. The path says which wire is spoken
 * (…/chat/completions, …/messages, …/responses, …/models), the model's name says what goes wrong: see `models` in fakemodel.c. A name may
 * carry a tail after '@', so that tests do not share attempts: "503@mine". The answer is FAKEMODEL_WORDS words, w0 to w59.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { FAKEMODEL_WORDS = 60, FAKEMODEL_PROMPT_TOKENS = 21 };

struct fakemodel;
struct fakemodel_times { /* of the faults that are a matter of time */
	int slow_ms;     /* to the first token */
	int stall_ms;    /* of silence after 20 tokens, then it closes */
	int silent_ms;   /* without any answer */
	int down_ms;     /* since fakemodel_again: how long "flap" is down */
	int token_ms;    /* between two tokens */
	int retry_after_s;
};

struct fakemodel *fakemodel_start(void);
void fakemodel_end(struct fakemodel *f);
int fakemodel_port(const struct fakemodel *f);
void fakemodel_times(struct fakemodel *f, struct fakemodel_times t);
void fakemodel_again(struct fakemodel *f); /* forget all attempts; "flap" goes down */

/* Requests for a model so far; when the n-th (from 0) came, in clock_ms(); its body and its headers. */
int fakemodel_attempts(struct fakemodel *f, const char *model);
int64_t fakemodel_when_ms(struct fakemodel *f, const char *model, int n);
void fakemodel_request(struct fakemodel *f, const char *model, int n, struct buf *out);
int fakemodel_at_work(struct fakemodel *f);     /* requests that are being answered */
int fakemodel_cut_off(struct fakemodel *f);     /* whose client closed before the end */
int fakemodel_connections(struct fakemodel *f); /* accepted so far */
