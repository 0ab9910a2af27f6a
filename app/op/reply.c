/*
 * Replies other than one returned JSON value. The head is gathered in the arena until reply_begin; afterwards a handler can
 * only write on, so everything that can be refused is refused before.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "op/op.h"

enum { MANY_MS = 200 };

static bool is_one_line(const char *s)
{
	return s[strcspn(s, "\r\n")] == 0;
}

void reply_header(struct ctx *c, const char *name, const char *value)
{
	assert(is_one_line(name) && is_one_line(value) && !c->reply->begun);
	const char *before = c->reply->headers == NULL ? "" : c->reply->headers;
	size_t n = strlen(before), name_n = strlen(name), value_n = strlen(value);
	char *all = mem_alloc(c->mem, n + name_n + value_n + sizeof ": \r\n");
	char *at = mempcpy(mempcpy(all, before, n), name, name_n);
	at = mempcpy(mempcpy(at, ": ", 2), value, value_n);
	memcpy(at, "\r\n", 2);
	c->reply->headers = all;
}

void reply_status(struct ctx *c, int status)
{
	assert(!c->reply->begun);
	c->reply->status = status;
}

int reply_begin(struct ctx *c, int status, const char *content_type)
{
	struct reply *r = c->reply;
	assert(!r->begun);
	if (content_type != NULL)
		reply_header(c, "Content-Type", content_type);
	if (r->unbuffered)
		reply_header(c, "X-Accel-Buffering", "no");
	reply_header(c, "X-Request-Id", c->request_id);
	r->begun = true;
	r->status = status;
	return r->vt->head(r, status, r->headers);
}

int reply_write(struct ctx *c, const void *p, size_t n)
{
	assert(c->reply->begun);
	return c->reply->vt->write(c->reply, p, n);
}

int reply_flush(struct ctx *c)
{
	return c->reply->vt->flush(c->reply);
}

ssize_t reply_read(struct ctx *c, void *p, size_t n)
{
	return c->reply->vt->read(c->reply, p, n);
}

ssize_t reply_read_many(struct ctx *c, void *p, size_t n)
{
	int64_t until = clock_ms() + MANY_MS;
	size_t got = 0;
	do {
		ssize_t some = reply_read(c, (char *)p + got, n - got);
		if (some < 0)
			return -1;
		if (some == 0)
			break;
		got += (size_t)some;
	} while (got < n && clock_ms() < until);
	return (ssize_t)got;
}

bool reply_gone(struct ctx *c)
{
	return c->reply->vt->gone(c->reply);
}

bool reply_draining(struct ctx *c)
{
	return c->reply->vt->draining != NULL && c->reply->vt->draining(c->reply);
}

const char *reply_param(struct ctx *c, const char *name)
{
	return c->reply->vt->param(c->reply, name);
}

bool reply_param_twice(struct ctx *c, const char *name)
{
	return c->reply->vt->twice != NULL && c->reply->vt->twice(c->reply, name);
}
