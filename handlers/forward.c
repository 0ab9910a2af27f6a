#include "handlers/forward.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"

static void pass(struct forward *f, json_t *line)
{
	auto_json json_t *mine = line;
	char id[64];
	if (f->gone)
		return;
	f->last_ms = clock_ms();
	(void)snprintf(id, sizeof id, "%lld-%lld%s", f->at[0], f->at[1], f->last ? FORWARD_END : "");
	if ((!f->c->reply->begun && reply_stream(f->c) != 0) || reply_event(f->c, id, json_incref(mine)) != 0)
		f->gone = true;
}

static long long data_bytes(const json_t *line)
{
	const char *data = js_str_or(line, "data", "");
	long long n = (long long)strlen(data);
	if (strcmp(js_str_or(line, "enc", "utf8"), "base64") != 0)
		return n;
	return n / 4 * 3 - (n > 0 && data[n - 1] == '=') - (n > 1 && data[n - 2] == '=');
}

static void ping(struct forward *f)
{
	f->last_ms = clock_ms();
	f->gone = f->gone || reply_ping(f->c) != 0;
}

static void count(struct forward *f, const json_t *line)
{
	const char *type = js_str_or(line, "type", "");
	int i = strcmp(type, "stderr") == 0;
	if (strcmp(type, "start") == 0)
		(void)snprintf(f->cmd, sizeof f->cmd, "%s", js_str_or(line, "id", ""));
	if (i == 1 || strcmp(type, "stdout") == 0)
		f->at[i] = js_int(line, "offset", 0) + data_bytes(line);
	f->last = f->last || strcmp(type, "exit") == 0 || strcmp(type, "lost") == 0;
}

/* Nobody is left to read for, and nobody narrates. */
static bool done(struct forward *f)
{
	f->gone = f->gone || reply_gone(f->c);
	f->drained = f->drained || reply_draining(f->c);
	return f->drained || (f->gone && f->to == NULL);
}

int forward_line(void *arg_, const json_t *line)
{
	struct forward *f = arg_;
	if (f->to != NULL)
		narrate_box_line(f->to, line);
	count(f, line);
	if (f->stream && f->announce)
		pass(f, js_pack("{s:s, s:s}", "type", "start", "id", f->cmd));
	f->announce = false;
	if (f->stream)
		pass(f, json_deep_copy(line));
	return f->gone && f->to == NULL ? -1 : 0;
}

bool forward_cancelled(void *arg_)
{
	struct forward *f = arg_;
	if (f->to != NULL)
		narrate_tick(f->to);
	if (f->stream && f->c->reply->begun && clock_ms() - f->last_ms >= LIMIT_PING_S * 1000)
		ping(f);
	return done(f);
}

void forward_hint(struct forward *f)
{
	pass(f,
	    js_pack("{s:s,s:s,s:I,s:I}", "type", "reconnect", "cmd", f->cmd, "stdout", (json_int_t)f->at[0],
		"stderr", (json_int_t)f->at[1]));
}

void forward_lost(struct forward *f, const struct err *e)
{
	f->last = true;
	pass(f, js_pack("{s:s,s:s}", "type", "lost", "message", e->msg));
}
