/*
 * node.h - this host in the node table: registered with what it offers, a heartbeat every few seconds, the reaper beside it.
 */
#pragma once

#include "io/pg.h"
#include "sandbox/fleet.h"

enum {
	NODE_BEAT_S = 5,
	NODE_SILENT_S = 20, /* a node that has not been heard of for this long is not given anything */
};

struct node;
struct node_opts { /* borrowed for the node's life */
	struct pg_pool *db;
	struct fleet *fleet;
	const char *name, *instance, *address;
	const char *const *runtimes; /* offered, ended by NULL */
	int capacity;
	bool isolated;       /* the driver isolates: false only for DRV-0 */
	const char *refusal; /* why nothing is leased here; "" when something is */
	const char *volumes; /* why it holds none; "" when it does */
};
/* Starts two threads; the first round of the reaper is done before the node is registered, as soon as the database answers. */
struct node *node_start(const struct node_opts *o);
/* From the next heartbeat on (SIGHUP). */
void node_capacity(struct node *n, int capacity);
void node_stop(struct node *n);
/* ERR_UNAVAILABLE until the node is registered. */
int node_ready(struct node *n, struct err *e);
