/* gw.h - what the flow tests of the model gateway share: providers that lead to the scripted vendor, and calls whose answers are read
 * here by a reader of its own, so that it does not share the gateway's faults. */
#pragma once

#include "../fakemodel.h"
#include "stack.h"

/* ms of an ordinary machine, longer on a slow or busy one (span.h): in its measure the limits of gw_conf and the faults of gw_times are
 * kept, so that a vendor who is well is never late. */
int gw_ms(int ms);
/* Settings with which the vendor's faults take a twentieth of their time (the ratios are those of the defaults), and its port is allowed. */
void gw_conf(const struct fakemodel *f, char out[1000]);
void gw_times(struct fakemodel *f);
/* A stack with gw_conf and the lines of conf (NULL: none), and its vendor, with gw_times; gw_down ends both. */
struct fakemodel *gw_up(struct stack *s, int apis, int runners, const char *conf);
void gw_down(struct stack *s, struct fakemodel *f);
/* A provider of the org's, on wire, with n_keys keys; models: names as the vendor calls them, by spaces, each "name" or
 * "name>fallback,fallback". Prices are 100 000 millicents a million tokens in, 200 000 out. */
void gw_provider(const struct stack *s, const struct fakemodel *f, const char *key, const char *name,
    const char *wire, int n_keys, const char *models);

struct gw_call {
	char id[40], name[64], args[200];
};
struct gw_answer {
	long status;
	int64_t ms, first_ms; /* until the end, and until the first byte of a body */
	int64_t took_ms;      /* until the end, for bounds from above (span.h) */
	char text[4096], model[80], finish[24], role[16]; /* text: what a client would show */
	char error[40], code[60], message[500]; /* error.type, error.code; of a refusal, or in the stream */
	bool done;                              /* the terminal event came, or the JSON was whole */
	bool usage;
	long long in, out;
	int n_calls, events;
	struct gw_call calls[8];
	char by[120], id[40]; /* x-gatehouse-model, -call-id */
	int attempts, retry_after_s;
	char *raw, *headers; /* freed by gw_free */
	size_t raw_n;
};
/* A question to a model of chat.completions; more: further members of the body (taken; NULL: none). */
void gw_chat(const struct stack *s, const char *key, const char *model, bool stream, json_t *more,
    struct gw_answer *a);
/* Any body to any path; headers as of web_req; the answer is read by the path's dialect. hang_up_at: bytes, then the client leaves. */
void gw_send(const struct stack *s, const char *key, const char *path, const char *body, size_t body_n,
    const char *const *headers, size_t hang_up_at, struct gw_answer *a);
void gw_free(struct gw_answer *a);
#define auto_gw AUTO(gw_free)
/* A tool named `read`, as `tools` of chat. */
json_t *gw_tools(void);
/* Is it the vendor's whole answer of FAKEMODEL_WORDS words? */
bool gw_whole(const struct gw_answer *a);
