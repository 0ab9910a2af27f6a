/* client_int.h - shared between the files of the client only. */
#pragma once

#include "io/http.h"
#include "sandbox/client.h"

enum { CLIENT_CONNECT_MS = 5000, CLIENT_CALL_MS = 30000, CLIENT_IDLE_MS = 50000, CLIENT_TAKE_MS = 5000 };

enum { CLIENT_STATUS_MAX = 12 };
/* Where an org's sandbox is, whatever its status. A node that is silent is ERR_UNAVAILABLE only if the sandbox is not over. */
int client_reach(struct pg *db, const char *org, const char *id, struct box_addr *a,
    char status[CLIENT_STATUS_MAX], struct err *e);
/* "http://node/v1/node/sandboxes/<id><rest>", in the arena. */
char *client_url(struct mem *m, const struct box_addr *a, const char *rest);
/* A request whose whole reply is one JSON value: 0 with *got (new reference; may be NULL), or -1 with the other side's error;
 * reason "node_away" when nobody was there to take it. */
int client_call(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    int total_ms, json_t **got, struct err *e);
int client_stop(const struct box_addr *a, const char *cmd, int *stopped, struct err *e);
