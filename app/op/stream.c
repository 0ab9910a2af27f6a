/*
 * A stream of events: the one place that renders a line, as NDJSON or, where Accept asks for it, as Server-Sent Events (STR-1).
 *
 * In SSE every line is the `data` of a message without `event`: a client's `onmessage` gets them all, and an event of type
 * `error` is not taken for the connection error that EventSource tells under that name. `id` is where to go on (STR-3). A ping is
 * a comment, which a client never sees (STR-4).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "op/op.h"

enum { COME_BACK_S = 2 };

/* RFC 9110 12.4.2: "q=" and 0 to 1 with at most three digits; in thousandths. What is no weight counts as 1. */
static int weight(struct str params)
{
	struct str one;
	while (str_cut(&params, ';', &one)) {
		one = str_trim(one);
		if (one.n < 3 || (one.p[0] != 'q' && one.p[0] != 'Q') || one.p[1] != '=')
			continue;
		int q = one.p[2] == '0' ? 0 : 1000;
		for (size_t i = 4, unit = 100; q < 1000 && i < one.n && unit > 0; i++, unit /= 10)
			if (one.p[i] >= '0' && one.p[i] <= '9')
				q += (one.p[i] - '0') * (int)unit;
		return q;
	}
	return 1000;
}

/* How much an Accept header wants a type that it names; 0 when it does not. */
static int wanted(const char *accept, const char *type)
{
	struct str rest = str_of(accept), range, name;
	while (str_cut(&rest, ',', &range)) {
		if (!str_cut(&range, ';', &name))
			continue;
		name = str_trim(name);
		if (name.n == strlen(type) && strncasecmp(name.p, type, name.n) == 0)
			return weight(range);
	}
	return 0;
}

bool reply_wants_sse(struct ctx *c)
{
	const char *accept = reply_param(c, "HTTP_ACCEPT");
	int sse = wanted(accept, "text/event-stream");
	return sse > 0 && sse >= wanted(accept, "application/x-ndjson");
}

int reply_stream(struct ctx *c)
{
	reply_header(c, "Cache-Control", "no-store");
	reply_header(c, "Vary", "Accept");
	c->reply->sse = reply_wants_sse(c);
	return reply_begin(c, 200, c->reply->sse ? "text/event-stream" : "application/x-ndjson");
}

bool reply_come_back(struct ctx *c, const struct err *why)
{
	char retry[40];
	bool passes = why->code == ERR_UNAVAILABLE || why->code == ERR_RATE;
	if (!passes || c->reply->begun || c->method == NULL || strcmp(c->method, "GET") != 0 ||
	    !reply_wants_sse(c))
		return false;
	(void)snprintf(
	    retry, sizeof retry, "\nretry: %d\n\n", 1000 * (why->retry_s > 0 ? why->retry_s : COME_BACK_S));
	if (reply_stream(c) != 0 || reply_write(c, ": ", 2) != 0 ||
	    reply_write(c, why->msg, strcspn(why->msg, "\r\n")) != 0)
		return true; /* the client is gone */
	(void)reply_write(c, retry, strlen(retry));
	return true;
}

int reply_event_open(struct ctx *c, const char *id)
{
	if (!c->reply->sse)
		return 0;
	if (id != NULL &&
	    (reply_write(c, "id: ", 4) != 0 || reply_write(c, id, strlen(id)) != 0 ||
		reply_write(c, "\n", 1) != 0))
		return -1;
	return reply_write(c, "data: ", 6);
}

int reply_event_close(struct ctx *c)
{
	return c->reply->sse ? reply_write(c, "\n", 1) : 0;
}

int reply_event(struct ctx *c, const char *id, json_t *v)
{
	auto_json json_t *mine = v;
	auto_buf struct buf line = BUF(LIMIT_LINE_BYTES);
	if (js_dump_buf(&line, mine) != 0 || buf_chr(&line, '\n') != 0)
		return -1;
	if (reply_event_open(c, id) != 0 || reply_write(c, line.p, line.n) != 0 || reply_event_close(c) != 0)
		return -1;
	return reply_flush(c);
}

int reply_line(struct ctx *c, json_t *v)
{
	return reply_event(c, NULL, v);
}

int reply_ping(struct ctx *c)
{
	if (!c->reply->sse)
		return reply_line(c, js_pack("{s:s}", "type", "ping"));
	return reply_write(c, ": ping\n\n", 8) != 0 ? -1 : reply_flush(c);
}
