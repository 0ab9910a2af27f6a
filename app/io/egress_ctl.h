/*
 * egress_ctl.h - what sandboxd and gatehouse-egress say to each other: small JSON messages, each with at most one descriptor,
 * over a unix SEQPACKET socket. Whoever connects asks and waits for the answer; egress serves root and its own user only
 * (SO_PEERCRED).
 *
 *   {"op":"open","sandbox":ID,"kind":KIND} + descriptor   a listening (for "dns" also a UDP) socket of the sandbox's namespace
 *   {"op":"close","sandbox":ID}                           its listeners are closed, its connections reset; unknown is fine
 *   {"op":"list"}                                         a message {"sandbox","kind"} + descriptor for each, then the answer
 *   {"op":"metrics"}                                      the answer holds Prometheus text in "text"
 *
 * Answers: {"ok":true}, or {"ok":false,"code","reason","message"}. Which sandbox is asking is known from the socket it came in
 * by (EGR-11), so a descriptor is opened once: opening the same kind and type again replaces it and cuts nothing.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum { EGRESS_CTL_BYTES = 128 * 1024, EGRESS_CTL_ID = 64 };

/* ---- the asking side; blocking, at most as long as it was dialled with for each step. -1 with e: ERR_UNAVAILABLE (egress is
 * away or has no room), ERR_TIMEOUT, or what egress answered (reason "policy_unavailable": the policy cannot be read). */
int egress_ctl_dial(const char *path, int timeout_ms, struct err *e); /* a descriptor; close it */
int egress_ctl_open(int ctl, const char *sandbox, const char *kind, int listener, struct err *e);
int egress_ctl_close(int ctl, const char *sandbox, struct err *e);
/* found() owns fd. After a -1 the connection is of no further use. */
typedef void egress_ctl_found_fn(void *arg, const char *sandbox, const char *kind, int fd);
int egress_ctl_list(int ctl, egress_ctl_found_fn *found, void *arg, struct err *e);
int egress_ctl_metrics(int ctl, struct buf *out, struct err *e);

/* ---- both sides. One message; fd -1 for none. -1 with e: ERR_UNAVAILABLE when it cannot be sent now. */
int egress_ctl_send(int ctl, const json_t *body, int fd, struct err *e);
/* 1 with a message (new reference; *fd is -1 or the caller's to close), 0 when the peer is gone, -1 with e: ERR_TIMEOUT when
 * there is none yet, ERR_BAD_REQUEST when it is not one. */
int egress_ctl_recv(int ctl, json_t **body, int *fd, struct err *e);
/* Listen at path: made anew, 0660; whoever may connect is judged by its credentials. Non-blocking. */
int egress_ctl_listen(const char *path, struct err *e);
/* The peer is root or runs as we do. */
bool egress_ctl_trusted(int ctl);
