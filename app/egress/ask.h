/*
 * ask.h - mode `resolver` (EGR-1): the deployment's own program or service is asked for each decision, by threads that may wait
 * for it. An answer is kept for at most ASK_KEEP_MS and never used after; whatever is not a clear answer is none, and denies.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "egress/decide.h"
#include "egress/loop.h"

enum {
	ASK_THREADS = 4,
	ASK_QUEUE = 256, /* questions that wait for a thread; more are not answered */
	ASK_KEEP_MS = 2000,
	ASK_KEPT = 2048,
};

struct ask;
struct ask_job;
struct ask_wait { /* embedded in who asks */
	void (*on)(struct ask_wait *w, enum decide_answer answer);
	struct ask_job *job; /* NULL: nothing is under way */
};
struct ask_question {
	const char *org, *sandbox, *form, *host;
	uint16_t port;
};

/*
 * target: a URL (http, https), which is sent {"org","sandbox","form","host","port"} by POST and answers {"allow":true} or
 * {"allow":false}; or an absolute path, which is run with org, sandbox, form, host and port as arguments and exits with 0 to allow
 * and 1 to refuse. "": nobody is asked, and nothing is answered. ca_file: as io/http.
 */
struct ask *ask_start(struct loop *l, const char *target, const char *ca_file, int timeout_ms);
void ask_stop(struct ask *a); /* nobody may be waiting */
/* w->on is called once, perhaps before this returns. */
void ask(struct ask *a, const struct ask_question *q, struct ask_wait *w);
void ask_forget(struct ask_wait *w);
