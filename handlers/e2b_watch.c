/* e2b_watch.c - changes of files at the door of the E2B SDK: filesystem.Filesystem/WatchDir (SBX-47, ECO-3). */
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "handlers/e2b_files.h"
#include "op/connect.h"

enum { REQUEST_BYTES = 64 * 1024 };

struct watch {
	struct ctx *c;
	int64_t last_ms, end_ms; /* end_ms 0: none */
	bool gone, drained, late;
	bool missed; /* something was not told */
};

static void event(struct watch *w, const char *kind, json_t *v)
{
	if (!w->c->reply->begun && connect_begin(w->c) != 0)
		w->gone = true;
	if (connect_send(w->c, js_pack("{s:o}", kind, v)) != 0)
		w->gone = true;
	w->last_ms = clock_ms();
}

static void change(struct watch *w, const char *type, const char *path)
{
	event(w, "filesystem", js_pack("{s:s,s:s}", "name", path[0] == '\0' ? "." : path, "type", type));
}

static int on_line(void *arg, const json_t *line)
{
	static const char *const types[][2] = { { "create", "EVENT_TYPE_CREATE" },
		{ "write", "EVENT_TYPE_WRITE" }, { "remove", "EVENT_TYPE_REMOVE" },
		{ "chmod", "EVENT_TYPE_CHMOD" }, { NULL, NULL } };
	struct watch *w = arg;
	const char *type = js_str_or(line, "type", ""), *path = js_str_or(line, "path", "");
	if (strcmp(type, "start") == 0)
		event(w, "start", json_object());
	w->missed = w->missed || strcmp(type, "overflow") == 0;
	/* There a rename is told as the old name's end and the new one's beginning. */
	if (strcmp(type, "rename") == 0) {
		change(w, "EVENT_TYPE_RENAME", js_str_or(line, "from", ""));
		change(w, "EVENT_TYPE_CREATE", path);
	}
	for (size_t i = 0; types[i][0] != NULL; i++)
		if (strcmp(type, types[i][0]) == 0)
			change(w, types[i][1], path);
	return w->gone || w->missed ? -1 : 0;
}

static bool over(void *arg)
{
	struct watch *w = arg;
	int64_t now = clock_ms();
	if (w->c->reply->begun && now - w->last_ms >= LIMIT_PING_S * 1000)
		event(w, "keepalive", json_object());
	w->late = w->end_ms != 0 && now >= w->end_ms;
	w->gone = w->gone || reply_gone(w->c);
	w->drained = reply_draining(w->c);
	return w->gone || w->drained || w->late;
}

/* How a watch ends that had begun. */
static void ended(const struct watch *w, struct err *e)
{
	if (w->missed) {
		(void)err_replace(e, ERR_INTERNAL,
		    "There were more changes than could be told: look at the files, and watch again.");
		e->reason = "data_loss";
	} else if (w->drained) {
		(void)err_replace(e, ERR_UNAVAILABLE, "This server is ending: watch again.");
	} else if (w->late) {
		(void)err_replace(e, ERR_TIMEOUT, "The time of this watch is over.");
	}
	connect_end(w->c, e);
}

static json_t *watch_dir(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	long long ms;
	(void)in;
	auto_json json_t *q = connect_read(c, REQUEST_BYTES, e);
	if (q == NULL || connect_timeout(c, &ms, e) != 0)
		return NULL;
	if (js_bool(q, "allowNetworkMounts", false) || js_bool(q, "includeEntry", false)) {
		err_set(e, ERR_BAD_REQUEST,
		    "`includeEntry` and `allowNetworkMounts` are not offered; leave them out.");
		return NULL;
	}
	const char *path = e2b_call_path(c, q, "path", &a, e);
	auto_json json_t *at = path == NULL ? NULL : box_list(&a, path, 1, 0, e);
	if (at == NULL)
		return NULL;
	if (strcmp(js_str_or(at, "kind", ""), "dir") != 0) {
		err_set(e, ERR_BAD_REQUEST, "\"%.200s\" is not a directory.", path);
		return NULL;
	}
	struct watch w = { .c = c, .last_ms = clock_ms(), .end_ms = ms == 0 ? 0 : clock_ms() + ms };
	(void)box_watch(&a, path, js_bool(q, "recursive", false), on_line, over, &w, e);
	if (!c->reply->begun && e->code != ERR_NONE)
		return NULL;
	ended(&w, e);
	return REPLIED;
}

const struct op e2b_watch_ops[] = {
	{ .id = "e2b_watch_dir",
	    .routes = { { "POST", "/filesystem.Filesystem/WatchDir" } },
	    .summary = "Changes as they happen",
	    .scope = "sandboxes",
	    .status = 200,
	    .flags = E2B_INSIDE | OP_STREAM | OP_RAW_IN | OP_RAW_OUT,
	    .max_body_bytes = REQUEST_BYTES + CONNECT_HEAD,
	    .run = watch_dir,
	    .refuse = e2b_refuse_stream },
	{ 0 },
};
