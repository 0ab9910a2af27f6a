/* client_int.h - shared between the files of the client only. */
#pragma once

#include "io/http.h"
#include "sandbox/client.h"

enum { CLIENT_CONNECT_MS = 5000, CLIENT_CALL_MS = 30000, CLIENT_IDLE_MS = 50000, CLIENT_TAKE_MS = 5000 };

enum { CLIENT_STATUS_MAX = 12 };
/* Where an org's sandbox is, whatever its status. A node that is silent is ERR_UNAVAILABLE only if the sandbox is not over. */
int client_reach(struct pg *db, const char *org, const char *id, struct box_addr *a,
    char status[CLIENT_STATUS_MAX], struct err *e);
/* The door of a node by its address and name (nodes.address, nodes.name); no sandbox. */
int client_door(const char *at, const char *node, struct box_addr *a, struct err *e);
/* "http://node/v1/node/sandboxes/<id><rest>", in the arena. */
char *client_url(struct mem *m, const struct box_addr *a, const char *rest);
/* A request whose whole reply is one JSON value: 0 with *got (new reference; may be NULL), or -1 with the other side's error;
 * reason "node_away" when nobody was there to take it. */
struct client_until { /* a call that may take long and be given up: ERR_TIMEOUT with reason "cancelled" */
	int total_ms;
	bool (*cancelled)(void *arg); /* may be NULL */
	void *arg;
	size_t max_reply_bytes; /* 0: 8 MiB */
};
int client_call_until(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    const struct client_until *until, json_t **got, struct err *e);
/* What a node's reply, or (rc of http_do) that there is none, means: 0, or -1 with e as above. */
int client_judge(int rc, const struct http_res *res, struct err *e);
int client_call(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    int total_ms, json_t **got, struct err *e);
int client_stop(const struct box_addr *a, const char *cmd, int *stopped, struct err *e);
/* The body of a request that starts a command. New reference. */
json_t *client_run_body(const struct box_addr *a, const struct box_cmd *cmd, const char *id);
