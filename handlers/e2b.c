/* e2b.c - what the facades of the E2B SDK share: errors in its shapes, and the sandbox that a token is for. */
#include "handlers/e2b.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "handlers/sandbox.h"
#include "op/connect.h"

enum { USER_MAX = 200, RETRY_S = 2 };

bool e2b_refuse(struct ctx *c, const struct err *why)
{
	/* 502 is what that SDK takes for a sandbox that is over, and nothing else may look like it. */
	bool over = err_is(why, CONNECT_OVER);
	int status = why->code == ERR_UPSTREAM && !over ? 500 : err_http(why->code);
	auto_json json_t *o = js_pack("{s:i,s:s}", "code", status, "message", why->msg);
	const char *text = js_dump(c->mem, o);
	if (why->code == ERR_RATE || why->code == ERR_UNAVAILABLE || why->retry_s > 0)
		reply_header(
		    c, "Retry-After", mem_fmt(c->mem, "%d", why->retry_s > 0 ? why->retry_s : RETRY_S));
	reply_header(c, "Cache-Control", "no-store");
	(void)reply_begin(c, status, "application/json");
	(void)reply_write(c, text, strlen(text));
	return true;
}

bool e2b_refuse_unary(struct ctx *c, const struct err *why)
{
	connect_refuse(c, why);
	return true;
}

bool e2b_refuse_stream(struct ctx *c, const struct err *why)
{
	connect_end(c, why);
	return true;
}

int e2b_use(struct ctx *c, struct box_addr *a, struct err *e)
{
	const char *id = reply_param(c, "HTTP_E2B_SANDBOX_ID"), *own = c->who->sandbox;
	if (id != NULL && strcmp(id, own) != 0)
		return err_set(e, ERR_UNAUTHORIZED, "This token is another sandbox's.");
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL)
		return -1;
	if (lease_use(db, c->who->org, own, a, e) == 0)
		return 0;
	if (e->code != ERR_NOT_FOUND && e->code != ERR_CONFLICT)
		return -1;
	(void)err_replace(e, ERR_UPSTREAM, "The sandbox is not running.");
	e->reason = CONNECT_OVER;
	return -1;
}

int e2b_user(const char *name, struct err *e)
{
	static const char *const same[] = { "", "user", "agent", NULL };
	if (name == NULL || str_one_of(name, same))
		return 0;
	return err_set(e, ERR_BAD_REQUEST,
	    "A sandbox has one user, which is not root; leave `user` out (\"%.40s\" is not there).", name);
}

int e2b_basic_user(struct ctx *c, struct err *e)
{
	static const char basic[] = "Basic ";
	const char *h = reply_param(c, "HTTP_AUTHORIZATION");
	if (h == NULL || strncasecmp(h, basic, sizeof basic - 1) != 0)
		return 0;
	const char *text = h + sizeof basic - 1;
	char name[USER_MAX + 4] = "";
	size_t n = strlen(text);
	ssize_t got = n > USER_MAX ? -1 : b64_decode(text, n, (unsigned char *)name);
	if (got < 0)
		return err_set(e, ERR_BAD_REQUEST, "The user in `Authorization` is malformed.");
	name[got] = '\0';
	name[strcspn(name, ":")] = '\0';
	return e2b_user(name, e);
}
