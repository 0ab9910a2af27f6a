#include <string.h>

#include "base/clock.h"
#include "io/http_int.h"

struct http_watch http_watch_new(const struct http_req *q)
{
	int64_t now = clock_ms();
	return (struct http_watch){
		.q = q, .end_ms = q->total_ms > 0 ? now + q->total_ms : 0, .last_ms = now, .asked_ms = now
	};
}

void http_watch_moved(struct http_watch *w)
{
	w->last_ms = clock_ms();
	w->rests = false;
}

static int64_t until(const struct http_watch *w)
{
	return w->q->until_ms == NULL ? 0 : *w->q->until_ms;
}

enum http_ending http_watch_look(struct http_watch *w)
{
	int64_t now = clock_ms();
	/* Who waits for a model waits for long, with thousands of others. */
	if (w->q->keep && !w->rests && now - w->last_ms >= HTTP_ASK_MS / 2) {
		mem_stack_rest();
		w->rests = true;
	}
	if ((w->end_ms != 0 && now >= w->end_ms) || (until(w) != 0 && now >= until(w)))
		return HTTP_TOTAL_PASSED;
	if (w->q->idle_ms > 0 && now - w->last_ms >= w->q->idle_ms)
		return HTTP_IDLE_PASSED;
	if (w->q->cancelled == NULL || now - w->asked_ms < HTTP_ASK_MS)
		return HTTP_GOING;
	w->asked_ms = now;
	return w->q->cancelled(w->q->arg) ? HTTP_CANCELLED : HTTP_GOING;
}

int http_watch_wait_ms(const struct http_watch *w)
{
	int64_t now = clock_ms(), ms = HTTP_ASK_MS;
	if (w->end_ms != 0 && w->end_ms - now < ms)
		ms = w->end_ms - now;
	if (until(w) != 0 && until(w) - now < ms)
		ms = until(w) - now;
	if (w->q->idle_ms > 0 && w->last_ms + w->q->idle_ms - now < ms)
		ms = w->last_ms + w->q->idle_ms - now;
	return ms < 0 ? 0 : (int)ms;
}

enum http_ending http_take(const struct http_req *q, struct http_res *res, const char *p, size_t n)
{
	bool good = res->status >= 200 && res->status < 300;
	if (q->on_data != NULL && (q->any_status || good))
		return q->on_data(q->arg, p, n) == 0 ? HTTP_GOING : HTTP_CANCELLED;
	size_t left = res->body.max - res->body.n, take = n < left ? n : left;
	(void)buf_add(&res->body, p, take);
	return take == n || q->on_data != NULL ? HTTP_GOING : HTTP_TOO_LARGE;
}

int http_ended(enum http_ending why, struct err *e)
{
	switch (why) {
	case HTTP_GOING:
		break;
	case HTTP_CANCELLED:
		if (e->code == ERR_NONE)
			e->reason = "cancelled";
		return err_set(e, ERR_TIMEOUT, "The request was given up before its reply was complete.");
	case HTTP_TOO_LARGE:
		return err_set(e, ERR_UPSTREAM, "Another service answered with more than is accepted.");
	case HTTP_TOTAL_PASSED:
	case HTTP_IDLE_PASSED:
		return err_set(e, ERR_TIMEOUT, "Another service did not answer in time; try again.");
	}
	return -1;
}

int http_line_ok(const char *line, struct err *e)
{
	return strpbrk(line, "\r\n") == NULL
	    ? 0
	    : err_set(e, ERR_INTERNAL, "A header of a request to another service holds a line break.");
}
