/*
 * smarthttp.h - git's smart HTTP, served by `git http-backend` as a child, streamed both ways in constant memory (FRG-1).
 * The child's environment is made here alone: the path is the one that was authorised, the service is the route's, and
 * nothing of the request reaches it but the body, its encoding and the protocol version.
 */
#pragma once

#include <stdbool.h>

#include "forge/repo.h"

enum git_service { GIT_UPLOAD_PACK, GIT_RECEIVE_PACK };

struct smart_req {
	const struct repo *repo; /* c->who may enter it (forge/access) */
	enum git_service service;
	bool advertise; /* GET info/refs; else the service itself */
};
/* Answer the request. REPLIED; or NULL with e set when nothing was sent yet (503 when too many are served at once). */
json_t *smarthttp_serve(struct ctx *c, const struct smart_req *q, struct err *e);
