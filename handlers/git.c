/*
 * git.c - the git wire: clone, fetch and push over smart HTTP at /v1/git/<org>/<repo>.git (FRG-1, FRG-2).
 * What is authorised is the path: a `service` that a POST repeats is not looked at.
 */
#include <string.h>

#include "base/js.h"
#include "forge/access.h"
#include "forge/smarthttp.h"

static const char *const services[] = { "git-upload-pack", "git-receive-pack", NULL };

#define PATH_PARAMS                                                                                          \
	IN_REQUIRED(T_STR, "org", "The organisation.", NULL, .max = 4096),                                   \
	    IN_REQUIRED(T_STR, "repo", "The repository.", NULL, .max = 4096)
static const struct param wire_in[] = { PATH_PARAMS, { 0 } };
static const struct param advertise_in[] = { PATH_PARAMS,
	IN_REQUIRED(
	    T_ENUM, "service", "Smart HTTP only: what the client is about to do.", NULL, .values = services),
	{ 0 } };

static json_t *serve(struct ctx *c, const json_t *in, enum git_service service, bool advertise, struct err *e)
{
	struct repo r;
	if (access_repo(c, js_str(in, "org"), js_str(in, "repo"), &r, e) != 0)
		return NULL;
	return smarthttp_serve(
	    c, &(struct smart_req){ .repo = &r, .service = service, .advertise = advertise }, e);
}

static json_t *advertise(struct ctx *c, json_t *in, struct err *e)
{
	bool push = strcmp(js_str(in, "service"), services[GIT_RECEIVE_PACK]) == 0;
	return serve(c, in, push ? GIT_RECEIVE_PACK : GIT_UPLOAD_PACK, true, e);
}

static json_t *upload_pack(struct ctx *c, json_t *in, struct err *e)
{
	return serve(c, in, GIT_UPLOAD_PACK, false, e);
}

static json_t *receive_pack(struct ctx *c, json_t *in, struct err *e)
{
	return serve(c, in, GIT_RECEIVE_PACK, false, e);
}

/* OP_HIDDEN: who is not known is answered with a Basic challenge, the only one git understands (FRG-2). */
enum { WIRE = OP_STREAM | OP_RAW_IN | OP_RAW_OUT | OP_HIDDEN | OP_LAX };

const struct op git_ops[] = {
	{ .id = "git_advertise",
	    .routes = { { "GET", "/v1/git/{org}/{repo}.git/info/refs" } },
	    .summary = "Refs of a repository, for git",
	    .scope = "git",
	    .in = advertise_in,
	    .status = 200,
	    .flags = WIRE,
	    .run = advertise },
	{ .id = "git_upload_pack",
	    .routes = { { "POST", "/v1/git/{org}/{repo}.git/git-upload-pack" } },
	    .summary = "Clone and fetch, for git",
	    .scope = "git",
	    .in = wire_in,
	    .status = 200,
	    .flags = WIRE,
	    .max_body_bytes = SIZE_MAX,
	    .run = upload_pack },
	{ .id = "git_receive_pack",
	    .routes = { { "POST", "/v1/git/{org}/{repo}.git/git-receive-pack" } },
	    .summary = "Push, for git",
	    .scope = "git",
	    .in = wire_in,
	    .status = 200,
	    .flags = WIRE,
	    .max_body_bytes = SIZE_MAX,
	    .run = receive_pack },
	{ 0 },
};
