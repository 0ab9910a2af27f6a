/* sandbox_watch.c - changes of a sandbox's files, told as they happen (SBX-47). */
#include "handlers/sandbox_file.h"

#include <string.h>

#include "base/clock.h"
#include "base/js.h"

static const struct param watch_in[] = {
	SANDBOX_ID,
	FILE_TEXT("path", "A directory or a file; absolute, or from the sandbox's workdir.", "\"notes\""),
	IN(T_BOOL, "recursive", "Everything below it, too; else what is in it directly.", NULL),
	{ 0 },
};
static const char *const types[] = { "start", "create", "write", "remove", "rename", "chmod", "overflow",
	"end", "lost", "reconnect", "ping", NULL };
static const struct param watch_line[] = {
	OUT(T_ENUM, "type",
	    "start: from now on everything is told. overflow: something was not, so look again. end: the "
	    "path itself has gone. lost: the sandbox has. reconnect: this host ends, watch again.",
	    "\"create\"", .values = types),
	OUT_MAYBE(T_STR, "path", "What changed, from the path that is watched; empty for that itself.", NULL,
	    .max = LIMIT_PATH_BYTES),
	OUT_MAYBE(T_STR, "from", "Of a rename: where it was.", NULL, .max = LIMIT_PATH_BYTES),
	OUT_MAYBE(T_BOOL, "dir", "Is it a directory?", NULL),
	OUT_MAYBE(T_STR, "message", "Of lost: why.", NULL, .max = 480),
	{ 0 },
};

struct told {
	struct ctx *c;
	int64_t last_ms;
	bool gone, drained;
};

static void say(struct told *t, json_t *line)
{
	t->last_ms = clock_ms();
	if (!t->c->reply->begun && reply_stream(t->c) != 0)
		t->gone = true;
	if (t->gone)
		json_decref(line);
	else
		t->gone = reply_line(t->c, line) != 0;
}

static int on_line(void *arg, const json_t *line)
{
	struct told *t = arg;
	if (strcmp(js_str_or(line, "type", ""), "ping") != 0) /* we have our own */
		say(t, json_deep_copy(line));
	return t->gone ? -1 : 0;
}

static bool is_over(void *arg)
{
	struct told *t = arg;
	if (t->c->reply->begun && clock_ms() - t->last_ms >= LIMIT_PING_S * 1000) {
		t->last_ms = clock_ms();
		t->gone = t->gone || reply_ping(t->c) != 0;
	}
	t->gone = t->gone || reply_gone(t->c);
	t->drained = reply_draining(t->c);
	return t->gone || t->drained;
}

static json_t *watch(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	struct told t = { .c = c, .last_ms = clock_ms() };
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	int rc = box_watch(&a, js_str(in, "path"), js_bool(in, "recursive", false), on_line, is_over, &t, e);
	if (!c->reply->begun && !t.gone)
		return NULL;
	if (t.drained)
		say(&t, js_pack("{s:s}", "type", "reconnect"));
	else if (rc == 0)
		say(&t, js_pack("{s:s}", "type", "end"));
	else if (!t.gone)
		say(&t, js_pack("{s:s,s:s}", "type", "lost", "message", e->msg));
	err_clear(e);
	return REPLIED;
}

const struct op sandbox_watch_ops[] = {
	{
	    .id = "watch_sandbox_files",
	    .routes = { { "POST", "/v1/sandboxes/watch" }, { "GET", "/v1/sandboxes/{id}/files/watch" } },
	    .summary = "Be told of changes as they happen",
	    .doc = "A stream, NDJSON or SSE: `start`, then a line for each change until the reader leaves or "
		   "the path is gone. What comes from elsewhere is a `create`, what goes there a `remove`. "
		   "Links are not followed.",
	    .scope = "sandboxes",
	    .in = watch_in,
	    .out = watch_line,
	    .status = 200,
	    .flags = OP_STREAM,
	    .run = watch,
	},
	{ 0 },
};
