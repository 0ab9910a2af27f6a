/* sbx.h - what the flow tests of sandboxes share: leases and commands over HTTP, with the checks every reply gets. */
#pragma once

#include "stack.h"

/* Lease with these further fields (taken; NULL: none); fails the test unless 201. The sandbox's id into out. */
void sbx_lease(const struct stack *s, const char *key, json_t *fields, char out[40]);
/* Is the runtime offered here at all? Tests of gVisor are skipped without it. */
bool sbx_offered(const struct stack *s, const char *key, const char *runtime);
/* Does the node hold volumes? A host without loop devices has none, and says so. */
bool sbx_volumes(const struct stack *s);
/* POST /v1/sandboxes/run with id and these fields (taken). */
void sbx_run(const struct stack *s, const char *key, const char *id, json_t *fields, struct web *w);
/* `sh -c` with all the time it needs, must answer 200; its exit code (-1: a signal), stdout into out (may be NULL). */
int sbx_sh(const struct stack *s, const char *key, const char *id, const char *command, struct buf *out);
/* text with the id in the place of its first "@", if it has one. */
void sbx_with(const char *text, const char *id, char *out, size_t size);
/* The same with 0 as its exit code; a failure tells what ran, line by line. */
void sbx_said(const struct stack *s, const char *key, const char *id, const char *command);
/* A lease with these fields (taken) is refused: status, the field at fault, and a part of the message. */
void sbx_refused(
    const struct stack *s, const char *key, json_t *fields, long status, const char *param, const char *says);
void sbx_end(const struct stack *s, const char *key, const char *id);
/* get_sandbox's status into out[12]. */
void sbx_status(const struct stack *s, const char *key, const char *id, char out[12]);
/* Wait until nothing is left on the host; fails the test with what is. */
void sbx_no_leaks(const struct stack *s);
